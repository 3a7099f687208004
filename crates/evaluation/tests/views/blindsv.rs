//! Under BlindSV clients read nothing; servers read numbers under each other's masks, and the principal totals.

use std::collections::BTreeMap;

use secsv_federation::{Coalition, RoundId, skip::SkipMode};
use secsv_protocol::{Ring64, decryptors::Protocol, message::Kind, model::EncodedModel, views::Opened};

use crate::{
    federations::{Case, Seen, Shape, in_file, numbers, stacked},
    messages::check,
};

type Place = (Option<RoundId>, Option<Coalition>, Option<usize>, Option<usize>);

fn place(array: &Opened) -> Place {
    let about = &array.about;
    (about.round, about.coalition, about.owner, about.step)
}

/// Arrays of both servers in a file, of one sort, by place.
fn both<'a>(seen: &'a Seen, file: &'a str, what: &'a str) -> [BTreeMap<Place, Vec<i64>>; 2] {
    [&seen.views.principal, &seen.views.auxiliary].map(|party| {
        let arrays = in_file(party, file).filter(|array| array.what == what);
        arrays.map(|array| (place(array), numbers(array))).collect()
    })
}

/// The number of smallest magnitude, of so many bits.
fn centred(number: i64, bits: u32) -> i64 {
    (number << (64 - bits)) >> (64 - bits)
}

fn record(shape: Shape) -> (Case, Seen, u32) {
    let case = Case::new(shape, &[3, 0, 70, 2], 2);
    let seen = case.record(Protocol::BlindSv, SkipMode::Off);
    check(&seen);
    let bits = seen.session.modulus().trailing_zeros();
    (case, seen, bits)
}

#[test]
fn clients_receive_announcements_and_values_alone() {
    let (_, seen, _) = record(Shape::ThreeClasses);
    let announced = [Kind::Session, Kind::SealedClientKeys, Kind::RoundStart, Kind::BlindTest, Kind::Values];
    for client in &seen.views.clients {
        assert!(client.view.arrays.is_empty() && !client.view.messages.is_empty());
        for message in &client.view.messages {
            assert!(announced.contains(&message.kind), "{}: {}", client.name, message.kind);
        }
    }
}

/// Shares of samples add up; so do what both servers hold of scores, if they pool it, and to no other scores.
#[test]
fn servers_hold_what_adds_up_and_neither_alone() {
    for shape in [Shape::Logistic, Shape::ThreeClasses] {
        let (case, seen, bits) = record(shape);
        let [one, other] = both(&seen, "data-share", "share");
        assert_eq!(one.len(), 3);
        for (place, share) in &one {
            let owner = place.2.unwrap();
            let count = case.inputs[owner].test_set.len();
            let all: Vec<usize> = (0..count).collect();
            let samples = stacked(&case.samples(Ring64, &seen.session, owner), count, &all);
            let sum = share.iter().zip(&other[place]).map(|(a, b)| centred(a.wrapping_add(*b), bits));
            assert_eq!(sum.collect::<Vec<_>>(), samples);
            assert!(share != &samples && other[place] != samples);
        }
        let [one, other] = both(&seen, "derived-masked-openings", "masked outputs");
        let sent = both(&seen, "masked-opening", "share");
        assert!(!one.is_empty());
        for (place, masked) in &one {
            let (round, coalition, owner) = (place.0.unwrap(), place.1.unwrap(), place.2.unwrap());
            let expected = case.expected(Ring64, &seen.session, round, coalition, owner);
            let count = case.inputs[owner].test_set.len();
            let expected = stacked(&expected[0][0], count, &(0..count).collect::<Vec<_>>());
            let terms = masked.iter().zip(&other[place]).zip(sent[0][place].iter().zip(&sent[1][place]));
            let pooled = terms
                .map(|((a, b), (p, q))| centred(a.wrapping_add(*b).wrapping_sub(*p).wrapping_sub(*q), bits));
            assert_eq!(pooled.collect::<Vec<_>>(), expected, "{place:?}");
            for view in [masked, &other[place]] {
                let same = view.iter().zip(&expected).filter(|(a, b)| a == b).count();
                assert_eq!(same, 0, "{place:?}");
            }
        }
    }
}

/// Local models add up, operator by operator, if both servers pool them; and what is opened of deep models has a stage and a scale.
#[test]
fn servers_hold_models_that_add_up_and_neither_alone() {
    for shape in [Shape::ThreeClasses, Shape::Cnn] {
        let (case, seen, _) = record(shape);
        let session = &seen.session;
        let place = |array: &Opened| {
            (array.about.round.unwrap(), array.about.client.unwrap(), array.about.operator.unwrap_or(0))
        };
        let of = |party, file| {
            let arrays = in_file(party, file).map(|array| (place(array), numbers(array)));
            arrays.collect::<BTreeMap<_, _>>()
        };
        let [one, other] = [&seen.views.principal, &seen.views.auxiliary]
            .map(|party| [of(party, "masked-model"), of(party, "derived-masked-models")]);
        assert_eq!(one[0], other[0]);
        assert_eq!(one[1].len(), (4 + 3) * session.program().operators.len());
        for (place, masked) in &one[0] {
            let (round, client, operator) = *place;
            let (share, local) = (session.share(round, client), &case.inputs[client].local[&round]);
            let model =
                EncodedModel::new(session.program(), &session.precision, Ring64, local, share).unwrap();
            let model = &model.operators[operator];
            let bits = session.word_bits(operator).unwrap();
            let words = model.weight.elements().iter().chain(&model.bias);
            let words: Vec<i64> = words.map(|word| centred(word.cast_signed(), bits)).collect();
            let terms = one[1][place].iter().zip(&other[1][place]).zip(masked);
            let pooled = terms.map(|((p, a), e)| centred(p.wrapping_add(*a).wrapping_sub(*e), bits));
            assert_eq!(pooled.collect::<Vec<_>>(), words, "{place:?}");
            for view in [masked, &one[1][place], &other[1][place]] {
                assert!(view.iter().zip(&words).all(|(a, b)| a != b), "{place:?}");
            }
        }
        let stages = session.seen_stages();
        for array in in_file(&seen.views.principal, "derived-masked-openings") {
            let stage = &stages[array.about.step.unwrap()];
            assert_eq!((stage.what, stage.bits.is_some()), (array.what, array.scale.is_some()));
            assert!(stage.sum < session.seen_sums().len());
        }
    }
}

/// The principal's totals are those of the result, one for each coalition that was asked for, of no single owner.
#[test]
fn the_principal_has_totals_and_nobody_else_counts() {
    let (_, seen, _) = record(Shape::ThreeClasses);
    let ids = seen.result.clients.clone();
    let totals: BTreeMap<(RoundId, Vec<String>), i64> = in_file(&seen.views.principal, "derived-counts")
        .map(|array| {
            assert_eq!((array.about.owner, array.shape), (None, (1, 1)));
            let members = array.about.coalition.unwrap().members().map(|i| ids[i].to_string());
            let mut members: Vec<String> = members.collect();
            members.sort();
            ((array.about.round.unwrap(), members), numbers(array)[0])
        })
        .collect();
    assert!(totals.len() > 10);
    for utility in &seen.result.utilities {
        let mut members: Vec<String> = utility.coalition.iter().map(ToString::to_string).collect();
        members.sort();
        if let Some(total) = totals.get(&(utility.round, members)) {
            assert_eq!(*total, utility.correct as i64);
        }
    }
    let counts = |party| in_file(party, "derived-counts").count();
    assert_eq!(counts(&seen.views.auxiliary), 0);
}

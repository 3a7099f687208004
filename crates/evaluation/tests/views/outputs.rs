//! What decryptors read is what fixed point gives, to the last bit, and nothing that was decrypted is missing.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::skip::SkipMode;
use secsv_protocol::{
    Ring, Ring64,
    decryptors::{Protocol, knows},
    disclosure::Disclosure,
    program::Receive,
};

use crate::federations::{Case, Seen, Shape, in_file, numbers, stacked};

/// Compares all outputs and classes, and which predictions are right.
#[expect(clippy::too_many_lines, reason = "every view of one run, held against one table")]
fn check<R: Ring>(ring: R, case: &Case, seen: &Seen, is_all: bool) {
    let (session, federation) = (&seen.session, &seen.session.federation);
    let mut expected = BTreeMap::new();
    let mut classes = BTreeMap::new();
    for &round in federation.rounds.keys() {
        let participants = federation.participants(round);
        for coalition in participants.subsets().filter(|coalition| !coalition.is_empty()) {
            for owner in (0..federation.clients).filter(|&i| !case.inputs[i].test_set.is_empty()) {
                if !knows(owner, coalition, participants) {
                    let outputs = case.expected(ring, session, round, coalition, owner);
                    for (hop, received) in outputs.into_iter().enumerate() {
                        for (item, matrix) in received.into_iter().enumerate() {
                            let is_vector =
                                matches!(session.program().steps[hop].receives[item], Receive::Vector { .. });
                            let place = if is_vector { usize::MAX } else { owner };
                            expected.insert((round, coalition, place, hop, item), matrix);
                        }
                    }
                    let found = case.classes(ring, session, round, coalition, owner);
                    classes.insert((round, coalition, owner), found);
                }
            }
        }
    }
    let mut there = BTreeSet::new();
    for (client, array) in seen.of_clients("derived-outputs").chain(seen.of_clients("reply")) {
        let about = &array.about;
        if array.what == "batch norm" {
            // Of the model: the same for all samples.
            let (step, item) = (about.step.unwrap(), about.item.unwrap());
            let key = (about.round.unwrap(), about.coalition.unwrap(), usize::MAX, step, item);
            assert_eq!(numbers(array), stacked(&expected[&key], 1, &[0]), "client {client} {key:?}");
            there.insert((key, None));
            continue;
        }
        let (round, coalition, owner) =
            (about.round.unwrap(), about.coalition.unwrap(), about.owner.unwrap());
        let key = (round, coalition, owner, about.step.unwrap(), about.item.unwrap_or(0));
        let matrix = expected.get(&key).unwrap_or_else(|| panic!("client {client} read {key:?}"));
        let count = case.inputs[owner].test_set.len();
        assert_eq!(numbers(array), stacked(matrix, count, &about.samples), "client {client} {key:?}");
        assert_eq!(array.shape.1, about.samples.len());
        if array.file == "derived-outputs" {
            // With samples left out, the others may be tested at another time.
            let is_new = there.insert((key, about.test));
            assert!(is_new, "two decryptors of {key:?}");
            assert!(!is_all || about.samples.len() == count, "{key:?}");
        }
    }
    let there: BTreeSet<_> = there.into_iter().map(|(key, _)| key).collect();
    if is_all {
        assert_eq!(there, expected.keys().copied().collect(), "what is decrypted and in no view");
    }
    assert!(!there.is_empty());
    for (_, array) in seen.of_clients("derived-classes") {
        let about = &array.about;
        let key = (about.round.unwrap(), about.coalition.unwrap(), about.owner.unwrap());
        let of_samples: Vec<i64> = about.samples.iter().map(|&k| classes[&key][k] as i64).collect();
        assert_eq!(numbers(array), of_samples, "{key:?}");
    }
    // The principal's verdicts, or the counting clients'.
    let verdicts = in_file(&seen.views.principal, "derived-right")
        .chain(seen.of_clients("derived-right").map(|(_, array)| array));
    let mut judged = BTreeSet::new();
    for array in verdicts {
        let about = &array.about;
        let key = (about.round.unwrap(), about.coalition.unwrap(), about.owner.unwrap());
        let labels = case.inputs[key.2].test_set.labels();
        let right: Vec<i64> =
            about.samples.iter().map(|&k| i64::from(classes[&key][k] as i64 == labels[k])).collect();
        assert_eq!(numbers(array), right, "{key:?}");
        judged.insert(key);
    }
    if is_all {
        assert_eq!(judged, classes.keys().copied().collect());
    }
}

fn everything(protocol: Protocol, shape: Shape, samples: &[usize], rounds: u32) -> Seen {
    let case = Case::new(shape, samples, rounds);
    let seen = case.record(protocol, SkipMode::Off);
    match protocol {
        Protocol::SecretSv => check(Ring64, &case, &seen, true),
        _ => check(seen.session.field(), &case, &seen, true),
    }
    seen
}

#[test]
fn rounds_that_are_stacked() {
    let seen = everything(Protocol::SecSv, Shape::Logistic, &[6, 1, 0, 4, 3], 4);
    assert!(seen.session.round_batches.values().any(|rounds| rounds.len() > 1), "nothing is stacked");
    // A decryptor is sent fewer outputs than it computes.
    let sent = seen.of_clients("reply").count();
    assert!(sent > 0 && sent < seen.of_clients("derived-outputs").count());
}

#[test]
fn every_kind_of_model_under_secsv() {
    for shape in [Shape::ThreeClasses, Shape::Cnn, Shape::Dnn, Shape::Gru] {
        everything(Protocol::SecSv, shape, &[3, 1, 4, 2], 2);
    }
}

#[test]
fn every_kind_of_model_under_secretsv() {
    for shape in [Shape::Logistic, Shape::ThreeClasses, Shape::Cnn, Shape::Dnn, Shape::Gru, Shape::Joined] {
        let seen = everything(Protocol::SecretSv, shape, &[3, 1, 4, 2], 2);
        assert!(seen.of_clients("reply").next().is_none());
        assert!(seen.of_clients("output-share").next().is_some());
    }
}

/// A decryptor reads the vectors of a coalition's batch norm, and of two coalitions what the one client more has. Nobody else reads any.
#[test]
fn a_decryptor_reads_batch_norms_and_finds_single_clients_own() {
    let case = Case::new(Shape::Joined, &[3, 1, 4, 2, 2], 1);
    let seen = case.record(Protocol::SecretSv, SkipMode::Off);
    for server in [&seen.views.principal, &seen.views.auxiliary] {
        let is_norm =
            |array: &&secsv_protocol::views::Opened| array.disclosure == Some(Disclosure::BatchNorm);
        assert_eq!(server.view.arrays.iter().filter(is_norm).count(), 0);
    }
    let mut read: BTreeMap<_, BTreeMap<_, Vec<i64>>> = BTreeMap::new();
    for (client, array) in seen.of_clients("derived-outputs").filter(|(_, array)| array.what == "batch norm")
    {
        assert_eq!(array.disclosure, Some(Disclosure::BatchNorm));
        let about = &array.about;
        let of = read.entry((client, about.step.unwrap(), about.item.unwrap())).or_default();
        of.insert(about.coalition.unwrap().bits(), numbers(array));
    }
    let round = secsv_federation::RoundId(1);
    let models = case.ideal(Ring64, &seen.session, round, 0).models;
    let mut found = 0;
    for ((client, step, item), of) in read {
        let Receive::Vector { operator } = seen.session.program().steps[step].receives[item] else {
            panic!()
        };
        for (other, _, model) in models.iter().filter(|(other, ..)| *other != client) {
            let with = of.iter().filter(|(coalition, _)| *coalition >> other & 1 == 1);
            for (numbers, less) in
                with.filter_map(|(c, numbers)| Some((numbers, of.get(&(c & !(1 << other)))?)))
            {
                let own: Vec<i64> = numbers.iter().zip(less).map(|(a, b)| a - b).collect();
                let bias = model.operators[operator].bias.iter().map(|&x| Ring64.centre(x));
                assert_eq!(own, bias.collect::<Vec<i64>>());
                found += 1;
            }
        }
    }
    assert!(found > 0, "nobody reads two coalitions that differ by one client");
}

/// What is added up is read by nobody by itself: the only outputs are those that are planned (`check`), and a sum is one of them.
#[test]
fn sums_are_read_and_not_what_they_are_made_of() {
    let case = Case::new(Shape::Joined, &[3, 1, 4, 2], 1);
    let seen = case.record(Protocol::SecretSv, SkipMode::Off);
    check(Ring64, &case, &seen, true);
    let sums: Vec<_> = seen.of_clients("derived-outputs").filter(|(_, array)| array.what == "sum").collect();
    assert!(!sums.is_empty());
    for (_, sum) in sums {
        assert_eq!(sum.disclosure, Some(Disclosure::Sums));
        // Each server's share of it is under the servers' sharing of zero: it is not the sum of shares that it holds.
        for server in [&seen.views.principal, &seen.views.auxiliary] {
            let held: Vec<Vec<i64>> = in_file(server, "activation-share")
                .filter(|array| {
                    let (of, about) = (&array.about, &sum.about);
                    (of.test, of.group, of.owner) == (about.test, about.group, about.owner)
                        && of.operator.is_none()
                })
                .map(numbers)
                .collect();
            assert_eq!(held.len(), 2, "shares of both things that are added up");
            let added = held[0].iter().zip(&held[1]).map(|(a, b)| a.wrapping_add(*b));
            let added: Vec<i64> = added.collect();
            let sent = seen
                .of_clients("output-share")
                .filter(|(_, share)| share.about == sum.about && share.from == Some(server.view.party));
            let sent: Vec<Vec<i64>> = sent.map(|(_, share)| numbers(share)).collect();
            assert_eq!(sent.len(), 1);
            assert_ne!(sent[0], added);
        }
    }
}

#[test]
fn convolutions_and_recurrent_units_under_hesv() {
    for shape in [Shape::Cnn, Shape::Gru] {
        let seen = everything(Protocol::Hesv, shape, &[2, 1, 3, 2], 1);
        assert!(seen.views.auxiliary.view.messages.is_empty(), "it takes no part");
    }
}

#[test]
fn samples_that_are_skipped_are_in_no_view() {
    let case = Case::new(Shape::Dnn, &[5, 2, 4, 3], 1);
    let seen = case.record(Protocol::SecSv, SkipMode::On);
    check(seen.session.field(), &case, &seen, false);
    let tested: usize = seen.result.utilities.iter().map(|utility| utility.tested).sum();
    let verdicts = in_file(&seen.views.principal, "derived-right").map(|array| array.shape.1);
    let own = in_file(&seen.views.principal, "own-result").map(|array| array.shape.1);
    assert_eq!(verdicts.chain(own).sum::<usize>(), tested, "a verdict for each prediction that was tested");
    assert!(seen.result.skip, "nothing was skipped");
}

//! What decryptors read is what fixed point gives, to the last bit, and nothing that was decrypted is missing.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::skip::SkipMode;
use secsv_protocol::{
    Ring, Ring64,
    decryptors::{Protocol, knows},
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
                            expected.insert((round, coalition, owner, hop, item), matrix);
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
    for shape in [Shape::Logistic, Shape::ThreeClasses, Shape::Cnn, Shape::Dnn, Shape::Gru] {
        let seen = everything(Protocol::SecretSv, shape, &[3, 1, 4, 2], 2);
        assert!(seen.of_clients("reply").next().is_none());
        assert!(seen.of_clients("output-share").next().is_some());
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

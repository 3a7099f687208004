//! What two servers hold adds up to what was shared, and neither holds it alone.

use std::collections::BTreeMap;

use secsv_federation::skip::SkipMode;
use secsv_protocol::{Ring, Ring64, decryptors::Protocol, views::Opened};

use crate::federations::{Case, Seen, Shape, in_file, numbers, stacked};

/// Where an array belongs, but for the party.
fn place(array: &Opened) -> String {
    let about = &array.about;
    format!("{} {about:?}", array.what)
}

fn added<R: Ring>(ring: R, one: &[i64], other: &[i64]) -> Vec<i64> {
    assert_eq!(one.len(), other.len());
    let sum = |(&a, &b): (&i64, &i64)| ring.centre(ring.add(ring.embed(a), ring.embed(b)));
    one.iter().zip(other).map(sum).collect()
}

/// Both servers' arrays of a file, by place.
fn pairs<'a>(seen: &'a Seen, file: &'a str) -> Vec<(&'a Opened, &'a Opened)> {
    let of = |party| in_file(party, file).map(|array| (place(array), array));
    let others: BTreeMap<String, &Opened> = of(&seen.views.auxiliary).collect();
    of(&seen.views.principal).map(|(place, array)| (array, others[&place])).collect()
}

fn samples_and_activations<R: Ring>(ring: R, case: &Case, seen: &Seen) {
    let data = pairs(seen, "data-share");
    let owners = case.inputs.iter().filter(|input| !input.test_set.is_empty()).count();
    assert_eq!(data.len(), owners);
    for (one, other) in data {
        let owner = one.about.owner.unwrap();
        let count = case.inputs[owner].test_set.len();
        let samples = case.samples(ring, &seen.session, owner);
        let all: Vec<usize> = (0..count).collect();
        assert_eq!(added(ring, &numbers(one), &numbers(other)), stacked(&samples, count, &all));
        assert_ne!(numbers(one), stacked(&samples, count, &all), "a share says nothing");
        // Real numbers come back by the scale.
        let features = case.inputs[owner].test_set.features();
        let (real, size) = (added(ring, &numbers(one), &numbers(other)), one.shape.0);
        for (i, x) in real.into_iter().enumerate() {
            let expected = f64::from(features[i % count * size + i / count]);
            let x = x as f64 * one.scale.unwrap();
            assert!((x - expected).abs() <= one.scale.unwrap(), "{x} {expected}");
        }
    }
    // What decryptors hand on.
    let mut handed: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for (_, array) in seen.of_clients("derived-activations") {
        let about = &array.about;
        handed.insert((about.test, about.group, about.step, about.owner, about.item), numbers(array));
    }
    let mut compared = 0;
    for (one, other) in pairs(seen, "activation-share") {
        let about = &one.about;
        let key = (about.test, about.group, about.step, about.owner, about.item);
        assert_eq!(added(ring, &numbers(one), &numbers(other)), handed[&key], "{key:?}");
        compared += 1;
    }
    assert_eq!(compared, handed.len());
    // Servers open the same masked factors to each other.
    for (one, other) in pairs(seen, "derived-masked-factors") {
        assert_eq!(numbers(one), numbers(other));
    }
}

#[test]
fn shares_of_the_field_add_up() {
    for shape in [Shape::ThreeClasses, Shape::Cnn, Shape::Gru] {
        let case = Case::new(shape, &[3, 1, 4, 2], 1);
        let seen = case.record(Protocol::SecSv, SkipMode::Off);
        samples_and_activations(seen.session.field(), &case, &seen);
        let opened = in_file(&seen.views.principal, "derived-masked-factors").count();
        assert_eq!(opened > 0, matches!(shape, Shape::Gru));
    }
}

#[test]
fn shares_of_the_ring_add_up() {
    for shape in [Shape::Logistic, Shape::Dnn, Shape::Gru, Shape::Joined] {
        let case = Case::new(shape, &[3, 1, 4, 2], 1);
        let seen = case.record(Protocol::SecretSv, SkipMode::Off);
        samples_and_activations(Ring64, &case, &seen);
        assert!(in_file(&seen.views.principal, "derived-masked-factors").count() > 0);
    }
}

fn xor((one, other): &(&Opened, &Opened)) -> Vec<i64> {
    numbers(one).iter().zip(numbers(other)).map(|(a, b)| a ^ b).collect()
}

/// Both servers' shares of a prediction are the class, and those of the truth the label, both under the same mask of the clients':
/// they differ where class and label do, and say nothing by themselves.
#[test]
fn servers_find_differences_of_labels_and_no_label() {
    let case = Case::new(Shape::Logistic, &[40, 1, 0, 30, 30], 3);
    for protocol in [Protocol::SecSv, Protocol::SecretSv] {
        let seen = case.record(protocol, SkipMode::Off);
        let mut classes = BTreeMap::new();
        for (_, array) in seen.of_clients("derived-classes") {
            let about = &array.about;
            classes.insert((about.round, about.coalition, about.owner), numbers(array));
        }
        let mut masks: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        let mut is_one_mask = |owner: usize, samples: &[usize], hidden: Vec<i64>, plain: &[i64]| {
            for ((&k, hidden), plain) in samples.iter().zip(hidden).zip(plain) {
                let mask = *masks.entry((owner, k)).or_insert(hidden ^ plain);
                assert_eq!(mask, hidden ^ plain, "sample {k} of {owner} has two masks");
            }
        };
        let truths = pairs(&seen, "label-share");
        assert!(!truths.is_empty());
        for pair in &truths {
            let about = &pair.0.about;
            let labels = case.inputs[about.owner.unwrap()].test_set.labels();
            let labels: Vec<i64> = about.samples.iter().map(|&k| labels[k]).collect();
            is_one_mask(about.owner.unwrap(), &about.samples, xor(pair), &labels);
            assert_eq!(about.coalition, None, "once for all models");
        }
        let predicted = pairs(&seen, "prediction-share");
        assert_eq!(predicted.len(), classes.len());
        for pair in &predicted {
            let about = &pair.0.about;
            let found = &classes[&(about.round, about.coalition, about.owner)];
            is_one_mask(about.owner.unwrap(), &about.samples, xor(pair), found);
        }
        let ones = masks.values().sum::<i64>() as usize;
        assert!(
            masks.len() > 100 && (25..75).contains(&(100 * ones / masks.len())),
            "{ones} masks of {}",
            masks.len()
        );
    }
}

/// Without masks a label of the first class is zero whatever the factor, and the servers' shares together would say so.
#[test]
fn servers_do_not_find_the_first_class_either() {
    let case = Case::new(Shape::ThreeClasses, &[30, 20, 20, 30], 1);
    let seen = case.record(Protocol::SecSv, SkipMode::Off);
    let (mut zeros, mut first) = (0, 0);
    for pair in &pairs(&seen, "label-share") {
        let about = &pair.0.about;
        let labels = case.inputs[about.owner.unwrap()].test_set.labels();
        let of_first = about.samples.iter().zip(xor(pair)).filter(|(k, _)| labels[**k] == 0);
        for (_, hidden) in of_first {
            (zeros, first) = (zeros + usize::from(hidden == 0), first + 1);
        }
    }
    assert!(first > 100 && zeros * 2 < first, "{zeros} of {first}");
}

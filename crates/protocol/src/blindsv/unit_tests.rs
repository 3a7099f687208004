//! One owner and two servers on random scores: the counts, and every right or wrong, are those of [`ideal`](super::ideal).

use proptest::prelude::*;
use secsv_algebra::{Prg, Seed};
use secsv_federation::{Coalition, RoundId};

use super::{
    hops::{Hops, Scales, WORD_WIDTHS},
    ideal::right,
    keys::{OwnerKey, Place},
    rehearsal::{LaterParts, Unit},
    shape::{Circuit, Outcome, Shape, Widths},
};

/// A model of one layer on some samples.
pub(super) fn of_layer(widths: Widths, sizes: (usize, usize), samples: usize, outcome: Outcome) -> Shape {
    Shape::new(Circuit::new(Hops::of_layer(widths.word), widths, sizes, outcome).into(), samples)
}

/// A unit's count. Scores and labels are shared by `seed`.
fn count(shape: &Shape, scores: &[i64], labels: &[usize], keys: &[OwnerKey; 2], seed: &Seed) -> u64 {
    let split = |words: Vec<u64>, name| {
        let mut own = vec![0; words.len()];
        Prg::new(&seed.derive(name, 0)).fill_words(&mut own);
        let rest = words.iter().zip(&own).map(|(word, own)| word.wrapping_sub(*own)).collect::<Vec<_>>();
        [own, rest]
    };
    let scores = split(scores.iter().map(|score| *score as u64).collect(), "scores");
    let one_hot = (0..shape.rows).flat_map(|row| labels.iter().map(move |label| u64::from(*label == row)));
    let one_hot = split(one_hot.collect(), "labels");
    let place = Place::of_model(RoundId(3), Coalition::EMPTY.with(1).with(70));
    let (scales, later) = (Scales { factors: vec![1], ..Scales::default() }, LaterParts::default());
    let share = |outcome| {
        let shape = of_layer(shape.widths, (shape.rows, shape.classes), shape.samples, outcome);
        let unit = Unit { shape: &shape, keys, place, scales: &scales, later: &later };
        unit.find((&scores, &one_hot, &Default::default()), labels).unwrap()
    };
    let each = share(Outcome::Each);
    let total = share(Outcome::Total)[0];
    let right = |sample: &usize| each[sample / 64] >> (sample % 64) & 1 == 1;
    assert_eq!(total, (0..labels.len()).filter(right).count() as u64, "right ones");
    let mut of_classes = vec![0; 2 * shape.classes];
    for (sample, label) in labels.iter().enumerate() {
        of_classes[if right(&sample) { *label } else { shape.classes + label }] += 1;
    }
    assert_eq!(share(Outcome::Classes), of_classes, "right and wrong ones of each class");
    total
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn counts_are_those_of_the_ideal(
        classes in 2usize..=12,
        has_last: bool,
        samples in 0usize..150,
        width in 0usize..4,
        near in 0u32..60,
        seed: [u8; 32],
    ) {
        let widths = Widths::new(WORD_WIDTHS[width], samples as u64);
        let sizes = (classes - usize::from(!has_last), classes);
        let shape = of_layer(widths, sizes, samples, Outcome::Total);
        let seed = Seed::from_bytes(seed);
        let keys = [0, 1].map(|server| OwnerKey::new(seed.derive("key", server)));
        let mut words = vec![0; (shape.rows + 1) * samples];
        Prg::new(&seed).fill_words(&mut words);
        // Below a quarter of the modulus, and often close to each other or equal.
        let magnitude = (near + 1).min(widths.word - 2);
        let signed = |word: &u64| (*word as i64) >> (64 - magnitude);
        let scores: Vec<i64> = words[..shape.rows * samples].iter().map(signed).collect();
        let labels: Vec<usize> =
            words[shape.rows * samples..].iter().map(|word| (word % classes as u64) as usize).collect();
        let expected = right(&shape, &scores, &labels);
        let expected = expected.iter().filter(|right| **right).count() as u64;
        prop_assert_eq!(count(&shape, &scores, &labels, &keys, &seed), expected);
        // One sample at a time: each right or wrong by itself.
        if let Some(first) = labels.first() {
            let shape = of_layer(widths, sizes, 1, Outcome::Total);
            let scores: Vec<i64> = scores.iter().step_by(samples).copied().collect();
            let expected = right(&shape, &scores, &[*first])[0];
            prop_assert_eq!(count(&shape, &scores, &[*first], &keys, &seed), u64::from(expected));
        }
    }
}

//! What an owner deals for one coalition: shares of functions of masks that it knows beforehand. It depends on no model and on no sample,
//! but for the labels.

use secsv_algebra::Secret;
use secsv_federation::{Coalition, RoundId};

use super::{
    keys::{OwnerKey, Purpose},
    lanes::LANES,
    shape::{Outcome, Shape, Stage},
    words::pack,
};

/// The keys of an owner: with the principal, with the auxiliary.
pub(crate) type OwnerKeys = [OwnerKey; 2];

/// The masks of what is opened at a stage.
fn masks(shape: &Shape, keys: &OwnerKeys, place: (RoundId, Coalition), stage: Stage) -> Secret<Vec<u64>> {
    let (purpose, count) = (Purpose::Opening(shape.index(stage)), shape.opened(stage));
    let [mut sum, other] = [0, 1].map(|server| keys[server].words(place, purpose, count));
    let pairs = sum.expose_mut().iter_mut().zip(other.expose());
    match stage {
        Stage::Scores | Stage::Margins => pairs.for_each(|(sum, other)| *sum = sum.wrapping_add(*other)),
        _ => pairs.for_each(|(sum, other)| *sum ^= other),
    }
    sum
}

/// The stage whose words are compared.
fn compared_stage(shape: &Shape) -> Stage {
    if shape.is_single() { Stage::Scores } else { Stage::Margins }
}

/// Appends what the owner sends the auxiliary for a coalition. `labels` are the classes of its samples.
pub(crate) fn deal(
    shape: &Shape,
    keys: &OwnerKeys,
    place: (RoundId, Coalition),
    labels: &[usize],
    out: &mut Vec<u8>,
) {
    let (samples, widths) = (shape.samples, shape.widths);
    if !shape.is_single() {
        let scores = masks(shape, keys, place, Stage::Scores);
        let own = keys[0].words(place, Purpose::DealtWords, samples);
        let of_label = |(sample, label): (usize, &usize)| match *label < shape.rows {
            true => scores.expose()[label * samples + sample],
            false => 0,
        };
        let rest = labels.iter().enumerate().map(of_label).zip(own.expose());
        pack(rest.map(|(word, own)| word.wrapping_sub(*own) & widths.mask()), widths.bytes(), out);
    }
    let dealt = dealt_planes(shape, keys, place, labels);
    let own = keys[0].words(place, Purpose::DealtPlanes, dealt.expose().len());
    pack(dealt.expose().iter().zip(own.expose()).map(|(plane, own)| plane ^ own), 8, out);
    let last = shape.stage(shape.stages() - 1).unwrap_or(Stage::Scores);
    let masks = masks(shape, keys, place, last);
    let bits = labels.iter().enumerate().map(|(sample, label)| {
        let mask = masks.expose()[sample / LANES] >> (sample % LANES) & 1;
        if shape.is_single() { mask ^ *label as u64 } else { mask }
    });
    let mut words = Secret::new(bits.collect::<Vec<u64>>());
    if shape.outcome == Outcome::Each {
        words = Secret::new(plane(words.expose()));
    }
    let own = keys[0].words(place, Purpose::DealtOutcomes, shape.dealt_outcomes());
    let rest = words.expose().iter().zip(own.expose()).map(|(word, own)| shape.rest(*word, *own));
    pack(rest, shape.outcome_bytes(), out);
}

/// Bits as planes, a word for each block. Lanes without a sample are zero.
fn plane(bits: &[u64]) -> Vec<u64> {
    let block = |bits: &[u64]| (0..).zip(bits).fold(0, |plane, (lane, bit)| plane | bit << lane);
    bits.chunks(LANES).map(block).collect()
}

/// Appends what the owner sends the auxiliary for a coalition that it knows: which of its samples are right, or how many.
pub(crate) fn deal_known(
    shape: &Shape,
    key: &OwnerKey,
    place: (RoundId, Coalition),
    right: impl Iterator<Item = bool>,
    out: &mut Vec<u8>,
) {
    let bits = Secret::new(right.map(u64::from).collect::<Vec<u64>>());
    let found = Secret::new(match shape.outcome {
        Outcome::Total => vec![bits.expose().iter().sum()],
        Outcome::Each => plane(bits.expose()),
    });
    let own = key.words(place, Purpose::OwnOutcome, shape.outcome_words());
    let rest = found.expose().iter().zip(own.expose()).map(|(found, own)| shape.rest(*found, *own));
    pack(rest, shape.outcome_bytes(), out);
}

/// The planes of everything that is dealt bit by bit, stage by stage.
fn dealt_planes(
    shape: &Shape,
    keys: &OwnerKeys,
    place: (RoundId, Coalition),
    labels: &[usize],
) -> Secret<Vec<u64>> {
    let values = values(shape, keys, place, labels);
    let mut dealt = Secret::new(Vec::with_capacity(shape.all_dealt_planes()));
    let out = dealt.expose_mut();
    let mut before = Secret::new(Vec::new());
    for &stage in shape.all_stages() {
        let masks_before = before.expose();
        match stage {
            Stage::Scores | Stage::Margins => continue,
            Stage::Comparison(step) => {
                shape.comparison.deal(step, values.expose(), masks_before, shape.compared_words(), out);
            }
            Stage::Conjunction(level) => shape.conjunction.deal(level, masks_before, shape.blocks(), out),
        }
        before = masks(shape, keys, place, stage);
    }
    dealt
}

/// The planes of v of every comparison.
fn values(
    shape: &Shape,
    keys: &OwnerKeys,
    place: (RoundId, Coalition),
    labels: &[usize],
) -> Secret<Vec<u64>> {
    let bits = shape.widths.word as usize;
    let mut words = masks(shape, keys, place, compared_stage(shape));
    let mut values = Secret::new(Vec::with_capacity(shape.compared_words() * bits));
    if !shape.is_single() {
        // Where a tie goes to a class before the true one, the margin must be at least one more.
        for (class, words) in words.expose_mut().chunks_exact_mut(shape.samples.max(1)).enumerate() {
            let offsets = labels.iter().map(|&label| u64::from(class < label));
            words.iter_mut().zip(offsets).for_each(|(word, offset)| *word = word.wrapping_add(offset));
        }
    }
    shape.compared_planes(words.expose(), values.expose_mut());
    values
}

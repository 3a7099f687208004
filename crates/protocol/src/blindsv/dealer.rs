//! What an owner deals for one coalition: shares of functions of masks that it knows beforehand. It depends on no model and on no sample,
//! but for the labels.

use std::{iter, ops::Range};

use secsv_algebra::Secret;

use super::{
    dealt::{DealtArray, DealtNumbers},
    gates::Item,
    hops::{Scales, mask},
    keys::{OwnerKey, Place, Purpose},
    lanes::{LANES, blocks, planes},
    later::LaterMasks,
    range_check::masks_of_overflows,
    shape::{Chunks, Outcome, Shape, Stage},
    wiring::{Taken, Term, spread},
    words::pack,
};
use crate::Error;

/// The keys of an owner: with the principal, with the auxiliary.
pub(crate) type OwnerKeys = [OwnerKey; 2];

/// What an owner deals from.
pub(crate) struct Dealer<'a> {
    pub shape: &'a Shape,
    pub keys: &'a OwnerKeys,
    pub place: Place,
    /// The coalition's public numbers.
    pub scales: &'a Scales,
    /// Its masks of every operator behind a hop.
    pub later: &'a [LaterMasks<'a>],
    /// Classes of the samples.
    pub labels: &'a [usize],
}

impl Dealer<'_> {
    /// The masks of what is opened at a stage.
    fn masks(&self, stage: Stage) -> Secret<Vec<u64>> {
        self.masks_in(stage, 0..self.shape.opened(stage))
    }

    /// The masks of some words of what is opened at a stage.
    fn masks_in(&self, stage: Stage, range: Range<usize>) -> Secret<Vec<u64>> {
        let purpose = Purpose::Opening(self.shape.index(stage));
        let stream = |server: usize| self.keys[server].words_in(self.place, purpose, range.clone());
        let [mut sum, other] = [0, 1].map(stream);
        let pairs = sum.expose_mut().iter_mut().zip(other.expose());
        match stage.is_numbers() {
            true => {
                let mask = self.shape.mask(stage);
                pairs.for_each(|(sum, other)| *sum = sum.wrapping_add(*other) & mask);
            }
            false => pairs.for_each(|(sum, other)| *sum ^= other),
        }
        sum
    }

    /// Appends what the owner sends the auxiliary for a coalition.
    pub(crate) fn deal(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let shape = self.shape;
        self.numbers(out)?;
        let dealt = self.planes();
        let own = self.keys[0].words(self.place, Purpose::DealtPlanes, dealt.expose().len());
        pack(dealt.expose().iter().zip(own.expose()).map(|(plane, own)| plane ^ own), 8, out);
        let last = shape.stage(shape.stages() - 1).unwrap_or(Stage::Scores);
        let masks = self.masks(last);
        let bits = self.labels.iter().enumerate().map(|(sample, label)| {
            let mask = masks.expose()[sample / LANES] >> (sample % LANES) & 1;
            if shape.is_single() { mask ^ *label as u64 } else { mask }
        });
        let bits = Secret::new(bits.collect::<Vec<u64>>());
        let words = match shape.outcome {
            Outcome::Total => bits,
            Outcome::Classes => Secret::new(of_classes(shape.classes, bits.expose(), self.labels)),
            Outcome::Each => Secret::new(plane(bits.expose())),
        };
        let own = self.keys[0].words(self.place, Purpose::DealtOutcomes, shape.dealt_outcomes());
        let rest = words.expose().iter().zip(own.expose()).map(|(word, own)| shape.rest(*word, *own));
        pack(rest, shape.outcome_bytes(), out);
        Ok(())
    }

    /// Appends the auxiliary's shares of the numbers that are dealt.
    fn numbers(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut hop_masks = HopMasks::default();
        for (index, array) in self.shape.dealt_arrays().enumerate() {
            let own = self.keys[0].words(self.place, Purpose::DealtNumbers(index), array.count);
            let bits = mask(array.bits);
            let rest = |value: u64, own: &u64| value.wrapping_sub(*own) & bits;
            match array.what {
                DealtNumbers::Item(hop, item) => {
                    if item == Item::Mask {
                        hop_masks = self.hop_masks(hop);
                    }
                    let (kept, masks) = (self.shape.hops.all[hop].kept, hop_masks.masks.expose());
                    let signs = item.knot().map_or(&[][..], |knot| of_knot(&hop_masks, knot));
                    let signs = signs.iter().copied().chain(iter::repeat(0));
                    let values = masks.iter().zip(signs).map(|(v, sign)| item.value(kept, *v, sign));
                    pack(values.zip(own.expose()).map(|(value, own)| rest(value, own)), array.bytes(), out);
                }
                DealtNumbers::Compared(hop) => {
                    let masks = self.compared_masks(hop, 0);
                    pack(
                        masks.expose().iter().zip(own.expose()).map(|(v, own)| rest(*v, own)),
                        array.bytes(),
                        out,
                    );
                }
                DealtNumbers::PairSign(hop, level) => {
                    let pairs = self.pair_masks(hop, level);
                    let signs = of_knot(&pairs, 0).iter().zip(own.expose());
                    pack(signs.map(|(sign, own)| rest(*sign, own)), array.bytes(), out);
                }
                DealtNumbers::PairSignMask(hop, level) => {
                    let pairs = self.pair_masks(hop, level);
                    let both = pairs.masks.expose().iter().zip(of_knot(&pairs, 0)).zip(own.expose());
                    pack(both.map(|((v, sign), own)| rest(v.wrapping_mul(*sign), own)), array.bytes(), out);
                }
                DealtNumbers::OverflowMask(_) | DealtNumbers::Scaled(..) | DealtNumbers::Products(..) => {
                    let values = self.dealt(array)?;
                    let pairs = values.expose().iter().zip(own.expose());
                    pack(pairs.map(|(value, own)| rest(*value, own)), array.bytes(), out);
                }
                DealtNumbers::TrueScore => {
                    let (scores, samples) = (self.masks(Stage::Scores), self.shape.samples);
                    let of_label = |(sample, label): (usize, &usize)| match *label < self.shape.rows {
                        true => scores.expose()[label * samples + sample],
                        false => 0,
                    };
                    let pairs = self.labels.iter().enumerate().map(of_label).zip(own.expose());
                    pack(pairs.map(|(value, own)| rest(value, own)), array.bytes(), out);
                }
            }
        }
        Ok(())
    }

    /// What follows from masks of openings alone: of range checks, of products of values, of operators.
    fn dealt(&self, array: DealtArray) -> Result<Secret<Vec<u64>>, Error> {
        match array.what {
            DealtNumbers::OverflowMask(hop) => {
                let last = self.shape.hops.all[hop].comparison.steps() - 1;
                let planes = self.masks(Stage::RangeComparison(hop, last));
                Ok(masks_of_overflows(planes.expose(), array.count))
            }
            DealtNumbers::Scaled(node, term) => Ok(self.scaled_masks(node, term)),
            DealtNumbers::Products(node, term) => self.product_masks(node, term),
            _ => Ok(Secret::new(Vec::new())),
        }
    }

    /// Masks of a value, for each channel, times masks of another one.
    fn scaled_masks(&self, index: usize, term: usize) -> Secret<Vec<u64>> {
        let node = &self.shape.hops.wiring.nodes[index];
        let Term::Scaled { positions, .. } = node.terms[term] else {
            return Secret::new(Vec::new());
        };
        let mut both = node.terms[term].taken(node.size).into_iter().map(|of| self.value_masks(of));
        let (Some(factors), Some(mut numbers)) = (both.next(), both.next()) else {
            return Secret::new(Vec::new());
        };
        let columns = numbers.expose().len().checked_div(node.size).unwrap_or(0);
        let factors = Secret::new(spread(factors.expose(), (node.size / positions, positions), columns));
        let pairs = numbers.expose_mut().iter_mut().zip(factors.expose());
        pairs.for_each(|(number, factor)| *number = number.wrapping_mul(*factor));
        numbers
    }

    /// An operator's masks times masks of what it takes, for a term of a sum.
    fn product_masks(&self, index: usize, term: usize) -> Result<Secret<Vec<u64>>, Error> {
        let node = &self.shape.hops.wiring.nodes[index];
        let mut masks = Secret::new(Vec::new());
        for (place, of) in node.terms[term].taken(node.size).into_iter().enumerate() {
            let factor = self.scales.value((index, term, place));
            let of_value = self.value_masks(of);
            masks.expose_mut().extend(of_value.expose().iter().map(|mask| mask.wrapping_mul(factor)));
        }
        match node.terms[term].product().and_then(|operator| self.later.get(operator.checked_sub(1)?)) {
            Some(later) => later.product(masks),
            None => Err(Error::Local { what: "masks of an operator" }),
        }
    }

    /// Masks of some numbers of a value.
    fn value_masks(&self, of: Taken) -> Secret<Vec<u64>> {
        let stage = Stage::Inputs(of.0.saturating_sub(1));
        self.masks_in(stage, self.shape.words_of(&of, self.shape.opened(stage)))
    }

    /// Masks of a hop's outputs, without the bits that are dropped, and of the larger ones of levels of pairs before this one.
    fn compared_masks(&self, index: usize, level: usize) -> Secret<Vec<u64>> {
        let (hop, dropped) = (&self.shape.hops.all[index], self.scales.dropped[index]);
        let mut masks = self.masks(Stage::Outputs(index));
        let bits = mask(hop.kept);
        masks.expose_mut().iter_mut().for_each(|word| *word = (*word >> dropped) & bits);
        for level in 0..level {
            let of_level = self.masks(Stage::Larger(index, level));
            masks.expose_mut().extend(of_level.expose().iter().map(|word| word & bits));
        }
        masks
    }

    /// Masks of the differences of a level of pairs, and of their signs.
    fn pair_masks(&self, index: usize, level: usize) -> HopMasks {
        let (hop, samples) = (&self.shape.hops.all[index], self.shape.samples);
        let masks = self.compared_masks(index, level);
        let masks = match &hop.largest {
            Some(largest) => largest.differences(level, masks.expose(), samples, hop.kept),
            None => masks,
        };
        let last = hop.comparison.steps() - 1;
        let signs = self.sign_masks(Stage::PairComparison(index, level, last), masks.expose().len());
        HopMasks { masks, signs }
    }

    /// Masks of what a hop's gate takes, and of their signs.
    fn hop_masks(&self, index: usize) -> HopMasks {
        let hop = &self.shape.hops.all[index];
        let mut masks = self.compared_masks(index, hop.levels());
        if let Some(largest) = &hop.largest {
            masks = Secret::new(largest.results(masks.expose(), self.shape.samples));
        }
        let signs = match hop.steps().checked_sub(1) {
            Some(last) => self.sign_masks(Stage::HopComparison(index, last), masks.expose().len()),
            None => Vec::new(),
        };
        HopMasks { masks, signs }
    }

    /// Masks of signs that a stage opens, of so many numbers each.
    fn sign_masks(&self, stage: Stage, numbers: usize) -> Vec<Secret<Vec<u64>>> {
        let planes = self.masks(stage);
        let of_each = planes.expose().chunks_exact(blocks(numbers).max(1)).map(|planes| {
            let mut signs = Secret::new(vec![0; numbers]);
            for (numbers, plane) in signs.expose_mut().chunks_mut(LANES).zip(planes) {
                (0..).zip(numbers).for_each(|(lane, sign)| *sign = plane >> lane & 1);
            }
            signs
        });
        of_each.collect()
    }

    /// The planes of everything that is dealt bit by bit, stage by stage.
    fn planes(&self) -> Secret<Vec<u64>> {
        let shape = self.shape;
        let mut dealt = Secret::new(Vec::with_capacity(shape.all_dealt_planes()));
        let out = dealt.expose_mut();
        let mut before = Secret::new(Vec::new());
        let (mut values, mut range_values) = (Secret::new(Vec::new()), Secret::new(Vec::new()));
        for &stage in shape.all_stages() {
            let (compared, masks) = (shape.compared_at(stage), before.expose());
            match stage {
                Stage::Outputs(hop) => {
                    values = self.compared_next(hop, 0);
                    continue;
                }
                Stage::Larger(hop, level) => {
                    values = self.compared_next(hop, level + 1);
                    continue;
                }
                stage if stage == shape.compared_stage() => {
                    values = self.compared(stage);
                    continue;
                }
                Stage::Inputs(_) | Stage::Scores | Stage::Margins => continue,
                Stage::RangeComparison(hop, step) => {
                    let of_hop = &shape.hops.all[hop];
                    if step == 0 {
                        let masks = self.compared_masks(hop, 0);
                        range_values = Secret::new(planes(masks.expose(), of_hop.kept as usize));
                    }
                    of_hop.comparison.deal(step, range_values.expose(), masks, compared, out);
                }
                Stage::HopComparison(hop, step) | Stage::PairComparison(hop, _, step) => {
                    shape.hops.all[hop].comparison.deal(step, values.expose(), masks, compared, out);
                }
                Stage::Comparison(step) => shape.comparison.deal(step, values.expose(), masks, compared, out),
                Stage::Conjunction(level) => shape.conjunction.deal(level, masks, compared.words, out),
            }
            before = self.masks(stage);
        }
        dealt
    }

    /// The planes of the masks of what a hop compares next: of pairs or, after their last level, of what the gate takes.
    fn compared_next(&self, index: usize, level: usize) -> Secret<Vec<u64>> {
        let hop = &self.shape.hops.all[index];
        if level < hop.levels() {
            let pairs = self.pair_masks(index, level);
            return Secret::new(planes(pairs.masks.expose(), hop.kept as usize));
        }
        if hop.steps() == 0 {
            return Secret::new(Vec::new());
        }
        Secret::new(planes(self.hop_masks(index).masks.expose(), hop.kept as usize))
    }

    /// The planes of the masks of scores or margins that are compared.
    fn compared(&self, stage: Stage) -> Secret<Vec<u64>> {
        let mut words = self.masks(stage);
        if !self.shape.is_single() {
            // Where a tie goes to a class before the true one, the margin must be at least one more.
            let classes = words.expose_mut().chunks_exact_mut(self.shape.samples.max(1));
            for (class, words) in classes.enumerate() {
                let offsets = self.labels.iter().map(|&label| u64::from(class < label));
                words.iter_mut().zip(offsets).for_each(|(word, offset)| *word = word.wrapping_add(offset));
            }
        }
        self.shape.compared_planes(words.expose())
    }
}

/// A hop's masks.
struct HopMasks {
    /// v of every output.
    masks: Secret<Vec<u64>>,
    /// The masks of their signs, knot by knot; none where no sign is opened.
    signs: Vec<Secret<Vec<u64>>>,
}

/// The masks of the signs of a knot; none without samples.
fn of_knot(masks: &HopMasks, knot: usize) -> &[u64] {
    masks.signs.get(knot).map_or(&[], |signs| &signs.expose()[..])
}

impl Default for HopMasks {
    fn default() -> Self {
        Self { masks: Secret::new(Vec::new()), signs: Vec::new() }
    }
}

/// Bits as planes, a word for each block. Lanes without a sample are zero.
fn plane(bits: &[u64]) -> Vec<u64> {
    let block = |bits: &[u64]| (0..).zip(bits).fold(0, |plane, (lane, bit)| plane | bit << lane);
    bits.chunks(LANES).map(block).collect()
}

/// For every class each sample's bit if it is of that class, otherwise 0; then for every class the same of the bits' opposites.
fn of_classes(classes: usize, bits: &[u64], labels: &[usize]) -> Vec<u64> {
    let (all, samples) = (classes * labels.len(), labels.len());
    let mut words = vec![0; 2 * all];
    for (sample, (&label, bit)) in labels.iter().zip(bits).enumerate() {
        words[label * samples + sample] = *bit;
        words[all + label * samples + sample] = 1 - bit;
    }
    words
}

/// Appends what the owner sends the auxiliary for a coalition that it knows: which of its samples are right, or how many.
pub(crate) fn deal_known(
    shape: &Chunks,
    key: &OwnerKey,
    place: Place,
    (right, labels): (impl Iterator<Item = bool>, &[usize]),
    out: &mut Vec<u8>,
) {
    let bits = Secret::new(right.map(u64::from).collect::<Vec<u64>>());
    let found = Secret::new(match shape.outcome {
        Outcome::Total => vec![bits.expose().iter().sum()],
        Outcome::Classes => {
            let words = of_classes(shape.classes, bits.expose(), labels);
            words.chunks(labels.len().max(1)).map(|of_class| of_class.iter().sum()).collect()
        }
        Outcome::Each => plane(bits.expose()),
    });
    let own = key.words(place, Purpose::OwnOutcome, shape.outcome_words());
    let rest = found.expose().iter().zip(own.expose()).map(|(found, own)| shape.rest(*found, *own));
    pack(rest, shape.outcome_bytes(), out);
}

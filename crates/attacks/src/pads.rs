//! Masks that are used twice cancel in differences: of two coalitions, rounds, owners, chunks or stages.

use std::collections::BTreeMap;

use crate::{
    hidden::{Hidden, HiddenNumbers, centred},
    linear::correlation,
};

/// What the differences of some pairs of arrays have to do with those of the numbers behind them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo {
    /// Pairs that were compared.
    pub pairs: usize,
    /// The largest correlation.
    pub correlation: f64,
    /// The largest in deviations of what unrelated numbers have.
    pub deviations: f64,
}

impl Echo {
    fn add(&mut self, numbers: &[f64], truth: &[f64]) {
        let found = correlation(numbers, truth).abs();
        self.pairs += 1;
        self.correlation = self.correlation.max(found);
        self.deviations = self.deviations.max(found * (numbers.len() as f64).sqrt());
    }
}

/// In what two arrays of a pair differ.
pub const WAYS: [&str; 6] = ["nothing", "coalition", "round", "owner", "chunk", "stage"];

/// Fewer numbers say nothing.
const FEWEST: usize = 32;

/// How much of `truth` shows in what somebody has: number by number, and in differences of any two arrays that differ in one way. Of
/// arrays that are not equally long, or not of equally many bits, what both have is compared.
pub fn echoes(have: &HiddenNumbers, truth: &HiddenNumbers) -> BTreeMap<&'static str, Echo> {
    let behind: BTreeMap<_, &Hidden> = truth.all.iter().map(|hidden| (hidden.place(), hidden)).collect();
    let pairs: Vec<(&Hidden, &Hidden)> =
        have.all.iter().filter_map(|own| Some((own, *behind.get(&own.place())?))).collect();
    let mut found: BTreeMap<&'static str, Echo> = BTreeMap::new();
    for (index, (own, behind)) in pairs.iter().enumerate() {
        if own.numbers.len() < FEWEST {
            continue;
        }
        let [numbers, truth] = [own, behind].map(|hidden| reals(&hidden.numbers));
        found.entry(WAYS[0]).or_default().add(&numbers, &truth);
        for (other, other_behind) in &pairs[..index] {
            let Some(way) = way(own, other) else { continue };
            let bits = have.bits(own.stage).min(have.bits(other.stage));
            let less = |one: &Hidden, other: &Hidden| {
                let pairs = one.numbers.iter().zip(&other.numbers);
                reals(&pairs.map(|(a, b)| centred(a.wrapping_sub(*b), bits)).collect::<Vec<_>>())
            };
            let (numbers, truth) = (less(own, other), less(behind, other_behind));
            if numbers.len() >= FEWEST {
                found.entry(way).or_default().add(&numbers, &truth);
            }
        }
    }
    found
}

fn reals(numbers: &[i64]) -> Vec<f64> {
    numbers.iter().map(|&x| x as f64).collect()
}

/// In what one way two arrays differ.
fn way(one: &Hidden, other: &Hidden) -> Option<&'static str> {
    let chunk = |hidden: &Hidden| hidden.samples.first().copied();
    let differs = [
        one.coalition != other.coalition,
        one.round != other.round,
        one.owner != other.owner,
        chunk(one) != chunk(other),
        one.stage != other.stage,
    ];
    // Chunks of two owners begin at the same places.
    let mut ways = WAYS[1..].iter().zip(differs).filter(|(_, differs)| *differs);
    ways.next().filter(|_| ways.next().is_none()).map(|(way, _)| *way)
}

#[cfg(test)]
mod tests {
    use secsv_federation::{Coalition, RoundId};

    use super::*;
    use crate::hidden::Stage;

    /// Numbers of two coalitions under masks that follow from `seeds`.
    fn under(seeds: [u64; 2], bits: u32) -> [HiddenNumbers; 2] {
        let random = |seed: u64, k: u64| {
            (seed + k).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        };
        let array = |client: usize, mask: u64| Hidden {
            round: RoundId(1),
            coalition: Coalition::EMPTY.with(client),
            owner: 2,
            samples: (0..50).collect(),
            stage: 0,
            scale: 1.0,
            offset: 0,
            columns: 50,
            numbers: (0..200u64)
                .map(|k| {
                    let number = (random(7 + client as u64, k) % 1000) as i64;
                    centred(number.wrapping_add((random(mask, k) as i64) * (mask.min(1) as i64)), bits)
                })
                .collect(),
        };
        let what = "masked outputs".to_owned();
        let stages = vec![Stage { stage: 0, what, sum: 0, numbers: Some(4), bits: Some(bits) }];
        [seeds, [0, 0]].map(|seeds| HiddenNumbers {
            stages: stages.clone(),
            sums: Vec::new(),
            samples: BTreeMap::new(),
            all: vec![array(0, seeds[0]), array(1, seeds[1])],
        })
    }

    #[test]
    fn a_mask_that_is_used_twice_is_found() {
        let [have, truth] = under([100_000, 100_000], 40);
        let found = echoes(&have, &truth);
        assert!(found["coalition"].correlation > 0.999 && found["nothing"].deviations < 5.0, "{found:?}");
        let [have, truth] = under([100_000, 900_000], 40);
        let found = echoes(&have, &truth);
        assert!(found["coalition"].deviations < 5.0, "{found:?}");
    }
}

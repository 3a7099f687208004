//! The samples each coalition predicted right, and what follows for larger ones.

use std::collections::HashMap;

use crate::{Coalition, SampleSet};

/// Up to this many participants every coalition has a place in a vector.
const MAX_DENSE: usize = 20;
/// Up to this many participants it is worked out what follows for all coalitions to come.
const MAX_SETTLED: usize = 12;

/// The right samples of the coalitions of one round (the paper's dictionary Phi^t).
#[derive(Clone, Debug)]
pub struct SkipTable {
    participants: Vec<usize>,
    samples: usize,
    recorded: usize,
    store: CorrectSets,
}

#[derive(Clone, Debug)]
enum CorrectSets {
    /// By the coalition's bits among the participants.
    Dense(Vec<Option<SampleSet>>),
    Sparse(HashMap<Coalition, SampleSet>),
}

impl SkipTable {
    /// An empty table for a round with these participants and this many samples.
    pub fn new(participants: Coalition, samples: usize) -> Self {
        let participants: Vec<usize> = participants.members().collect();
        let store = if participants.len() <= MAX_DENSE {
            CorrectSets::Dense(vec![None; 1 << participants.len()])
        } else {
            CorrectSets::Sparse(HashMap::new())
        };
        Self { participants, samples, recorded: 0, store }
    }

    /// Notes which samples a coalition predicted right, skipped ones included. A coalition with somebody who
    /// did not take part is not noted.
    pub fn record(&mut self, coalition: Coalition, correct: SampleSet) {
        let place = self.place(coalition);
        let before = match &mut self.store {
            CorrectSets::Dense(sets) => match place {
                Some(place) => sets[place].replace(correct),
                None => return,
            },
            CorrectSets::Sparse(sets) => sets.insert(coalition, correct),
        };
        self.recorded += usize::from(before.is_none());
    }

    /// The samples a coalition predicted right, if it was noted.
    pub fn get(&self, coalition: Coalition) -> Option<&SampleSet> {
        match &self.store {
            CorrectSets::Dense(sets) => sets[self.place(coalition)?].as_ref(),
            CorrectSets::Sparse(sets) => sets.get(&coalition),
        }
    }

    /// The samples that need not be tested on a coalition (the paper's Psi, Algorithm 6): those that both
    /// parts of some division of it in two predicted right. Divisions count if both parts were noted.
    pub fn skippable(&self, coalition: Coalition) -> SampleSet {
        let mut skippable = SampleSet::none(self.samples);
        if coalition.len() < 2 {
            return skippable;
        }
        match &self.store {
            CorrectSets::Dense(sets) => {
                if let Some(whole) = self.place(coalition) {
                    skip_dense(sets, whole, &mut skippable);
                }
            }
            CorrectSets::Sparse(sets) if divisions(coalition) < sets.len() as f64 => {
                let rest = without_lowest(coalition);
                let parts = rest.subsets().filter(|part| !part.is_empty());
                skip_pairs(sets, coalition, parts, &mut skippable);
            }
            CorrectSets::Sparse(sets) => {
                let rest = without_lowest(coalition);
                let parts = sets.keys().copied().filter(|part| !part.is_empty() && part.is_subset_of(rest));
                skip_pairs(sets, coalition, parts, &mut skippable);
            }
        }
        skippable
    }

    /// The samples that some of these coalitions may not skip, whatever the tests to come will find, if all
    /// coalitions within them are tested before. Nothing is known of too many participants.
    pub fn unsettled(&self, coalitions: impl IntoIterator<Item = Coalition>) -> Option<SampleSet> {
        let CorrectSets::Dense(sets) = &self.store else { return None };
        if self.participants.len() > MAX_SETTLED {
            return None;
        }
        // What a coalition that was not noted will have right at least: parts come before the whole.
        let mut settled: Vec<Option<SampleSet>> = Vec::with_capacity(sets.len());
        for (whole, noted) in sets.iter().enumerate() {
            let found = noted.clone().unwrap_or_else(|| {
                let mut skippable = SampleSet::none(self.samples);
                skip_dense(&settled, whole, &mut skippable);
                skippable
            });
            settled.push(Some(found));
        }
        let mut unsettled = SampleSet::none(self.samples);
        for coalition in coalitions {
            let right = self.place(coalition).and_then(|place| settled[place].as_ref())?;
            unsettled.union_with(&SampleSet::all(self.samples).difference(right));
        }
        Some(unsettled)
    }

    /// Cost of [`SkipTable::skippable`], at most, in operations on 64 samples at a time.
    pub fn search_cost(&self, coalition: Coalition) -> f64 {
        let looked_at = match &self.store {
            CorrectSets::Dense(_) => divisions(coalition),
            CorrectSets::Sparse(_) => divisions(coalition).min(self.recorded as f64),
        };
        looked_at * self.samples.div_ceil(64) as f64
    }

    fn place(&self, coalition: Coalition) -> Option<usize> {
        let mut place = 0;
        let mut found = 0;
        for (bit, &position) in self.participants.iter().enumerate().take(usize::BITS as usize) {
            if coalition.contains(position) {
                place |= 1 << bit;
                found += 1;
            }
        }
        (found == coalition.len()).then_some(place)
    }
}

/// In how many ways a coalition can be divided in two.
fn divisions(coalition: Coalition) -> f64 {
    2f64.powi(coalition.len() as i32 - 1) - 1.0
}

/// Fixing one member on one side counts each division once.
fn without_lowest(coalition: Coalition) -> Coalition {
    Coalition::from_bits(coalition.bits() & coalition.bits().wrapping_sub(1))
}

fn skip_dense(sets: &[Option<SampleSet>], whole: usize, skippable: &mut SampleSet) {
    let rest = whole & whole.wrapping_sub(1);
    let mut part = rest;
    while part != 0 {
        if let (Some(one), Some(other)) = (&sets[part], &sets[whole ^ part]) {
            skippable.insert_common(one, other);
        }
        part = (part - 1) & rest;
    }
}

fn skip_pairs(
    sets: &HashMap<Coalition, SampleSet>,
    whole: Coalition,
    parts: impl Iterator<Item = Coalition>,
    skippable: &mut SampleSet,
) {
    for part in parts {
        if let (Some(one), Some(other)) = (sets.get(&part), sets.get(&whole.difference(part))) {
            skippable.insert_common(one, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(total: usize, members: &[usize]) -> SampleSet {
        let mut set = SampleSet::none(total);
        members.iter().for_each(|&s| set.insert(s));
        set
    }

    fn clients(members: &[usize]) -> Coalition {
        members.iter().copied().collect()
    }

    #[test]
    fn the_example_of_the_paper_skips_all_four_samples() {
        let mut table = SkipTable::new(clients(&[1, 2, 3]), 4);
        for (coalition, right) in [
            (&[1][..], [0, 1]),
            (&[2, 3], [0, 1]),
            (&[2], [1, 2]),
            (&[1, 3], [1, 2]),
            (&[3], [2, 3]),
            (&[1, 2], [2, 3]),
        ] {
            table.record(clients(coalition), samples(4, &right));
        }
        assert!(table.skippable(clients(&[1, 2, 3])).is_all());
        assert_eq!(table.skippable(clients(&[1, 2])), samples(4, &[1]));
        assert!(table.skippable(clients(&[1])).is_empty(), "local models are tested on everything");
        assert!(table.skippable(Coalition::EMPTY).is_empty());
    }

    /// Algorithm 6 as it is written.
    fn by_the_book(sets: &HashMap<Coalition, SampleSet>, whole: Coalition, total: usize) -> SampleSet {
        let mut psi = SampleSet::none(total);
        for part in whole.subsets().filter(|part| !part.is_empty() && *part != whole) {
            if let (Some(one), Some(other)) = (sets.get(&part), sets.get(&whole.difference(part))) {
                psi.insert_common(one, other);
            }
        }
        psi
    }

    proptest! {
        #[test]
        fn skippable_samples_are_those_of_the_algorithm(
            participants in 2..6usize, spread in 1..20usize,
            sets in prop::collection::vec((0..64u32, prop::collection::vec(0..70usize, 0..70)), 0..40),
        ) {
            // With many participants only a few of them are recorded: the sparse table.
            let all: Coalition = (0..128).step_by(spread).collect();
            let position = |bit: usize| bit * spread;
            let mut table = SkipTable::new(all, 70);
            let mut book = HashMap::new();
            for (bits, right) in sets {
                let members = (0..participants).filter(|bit| bits >> bit & 1 == 1).map(position);
                let coalition: Coalition = members.collect();
                table.record(coalition, samples(70, &right));
                book.insert(coalition, samples(70, &right));
            }
            let whole: Coalition = (0..participants).map(position).collect();
            for coalition in whole.subsets() {
                prop_assert_eq!(table.skippable(coalition), by_the_book(&book, coalition, 70));
                prop_assert_eq!(table.get(coalition), book.get(&coalition));
            }
        }

        #[test]
        fn whatever_is_tested_later_was_unsettled(
            participants in 2..6usize, known in 1..5usize,
            found in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.8), 30), 32),
        ) {
            let whole = Coalition::first(participants);
            let mut table = SkipTable::new(whole, 30);
            let mut by_size: Vec<Coalition> = whole.subsets().filter(|c| !c.is_empty()).collect();
            by_size.sort_by_key(|coalition| coalition.len());
            let mut unsettled = None;
            for &coalition in &by_size {
                let later = by_size.iter().copied().filter(|c| c.len() >= coalition.len());
                if coalition.len() == known + 1 && unsettled.is_none() {
                    unsettled = table.unsettled(later);
                }
                let skipped = table.skippable(coalition);
                let left = SampleSet::all(30).difference(&skipped);
                if let Some(unsettled) = &unsettled {
                    prop_assert!(left.difference(unsettled).is_empty());
                }
                let mut right = skipped;
                left.iter().filter(|&k| found[coalition.bits() as usize][k]).for_each(|k| right.insert(k));
                table.record(coalition, right);
            }
            prop_assert!(known >= participants || unsettled.is_some());
        }
    }
}

//! Who took part in which round: whoever is in a tested coalition of it.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{ClientId, RoundId};

use secsv_runtime::EvaluationResult;

/// Clients by round.
pub struct Attendance<'a>(BTreeMap<RoundId, BTreeSet<&'a ClientId>>);

impl<'a> Attendance<'a> {
    /// Reads the coalitions.
    pub fn of(result: &'a EvaluationResult) -> Self {
        let mut by_round: BTreeMap<RoundId, BTreeSet<&ClientId>> = BTreeMap::new();
        for utility in &result.utilities {
            by_round.entry(utility.round).or_default().extend(&utility.coalition);
        }
        Self(by_round)
    }

    /// Whether the client took part.
    pub fn includes(&self, round: RoundId, client: &ClientId) -> bool {
        self.0.get(&round).is_some_and(|present| present.contains(client))
    }

    /// How many took part.
    pub fn count(&self, round: RoundId) -> usize {
        self.0.get(&round).map_or(0, BTreeSet::len)
    }
}

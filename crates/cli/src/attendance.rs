//! Who took part in which round: the largest coalition tested, because every method tests everybody together.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{ClientId, RoundId};

use secsv_evaluation::EvaluationResult;

/// Clients by round.
pub struct RoundAttendance<'a>(BTreeMap<RoundId, BTreeSet<&'a ClientId>>);

impl<'a> RoundAttendance<'a> {
    /// Reads the coalitions.
    pub fn of(result: &'a EvaluationResult) -> Self {
        let mut largest: BTreeMap<RoundId, &[ClientId]> = BTreeMap::new();
        for utility in &result.utilities {
            let known = largest.entry(utility.round).or_default();
            if utility.coalition.len() > known.len() {
                *known = &utility.coalition;
            }
        }
        Self(largest.into_iter().map(|(round, members)| (round, members.iter().collect())).collect())
    }

    /// Whether the client took part.
    pub fn includes(&self, round: RoundId, client: &ClientId) -> bool {
        self.0.get(&round).is_some_and(|present| present.contains(client))
    }

    /// Number of clients that took part.
    pub fn count(&self, round: RoundId) -> usize {
        self.0.get(&round).map_or(0, BTreeSet::len)
    }
}

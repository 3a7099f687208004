//! Who takes part in which round.

use std::collections::BTreeMap;

use rand::seq::index::sample;
use secsv_federation::{ClientId, Coalition};

use crate::TrainingError;
use crate::seeds::{Purpose, generator};

/// Client selection: a share of all clients drawn anew in every round, and lists for rounds that are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Participation {
    /// The share of clients in each round, above 0 and at most 1; at least one client takes part.
    pub fraction: f64,
    /// Rounds with a given list of clients.
    pub lists: BTreeMap<u32, Vec<ClientId>>,
}

impl Default for Participation {
    /// Everybody in every round, as in the paper.
    fn default() -> Self {
        Self { fraction: 1.0, lists: BTreeMap::new() }
    }
}

impl Participation {
    pub(crate) fn check(&self, clients: &[ClientId], rounds: u32) -> Result<(), TrainingError> {
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            return Err(TrainingError::setting(
                "participation",
                "above 0 and at most 1".to_owned(),
                self.fraction.to_string(),
            ));
        }
        for (&round, list) in &self.lists {
            if !(1..=rounds).contains(&round) {
                return Err(TrainingError::setting(
                    "selection",
                    format!("a round from 1 to {rounds}"),
                    round.to_string(),
                ));
            }
            if list.is_empty() {
                return Err(TrainingError::setting(
                    "selection",
                    format!("at least one client in round {round}"),
                    "none".to_owned(),
                ));
            }
            if let Some(stranger) = list.iter().find(|id| !clients.contains(id)) {
                let (expected, found) = (clients.to_vec(), stranger.to_string());
                return Err(TrainingError::UnknownClient { setting: "selection", expected, found });
            }
        }
        Ok(())
    }

    /// The positions of those who take part.
    pub(crate) fn in_round(&self, round: u32, clients: &[ClientId], seed: u64) -> Coalition {
        if let Some(list) = self.lists.get(&round) {
            return (0..clients.len()).filter(|&client| list.contains(&clients[client])).collect();
        }
        let count = ((clients.len() as f64 * self.fraction).round() as usize).clamp(1, clients.len());
        sample(&mut generator(seed, Purpose::Selection { round }), clients.len(), count).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<ClientId> {
        ["a", "b", "c", "d", "e"].map(|id| ClientId::new(id).unwrap()).to_vec()
    }

    #[test]
    fn fractions_are_drawn_per_round_and_lists_win() {
        let lists = BTreeMap::from([(2, vec![ids()[3].clone(), ids()[0].clone()])]);
        let some = Participation { fraction: 0.4, lists };
        let rounds: Vec<Coalition> = (1..=20).map(|round| some.in_round(round, &ids(), 7)).collect();
        assert!(rounds.iter().all(|taking_part| taking_part.len() == 2));
        assert_eq!(rounds[1], [0, 3].into_iter().collect());
        assert!(rounds.iter().any(|taking_part| *taking_part != rounds[0]));
        assert_eq!(rounds[4], some.in_round(5, &ids(), 7));
        assert_eq!(Participation::default().in_round(1, &ids(), 7), Coalition::first(5));
        let hardly = Participation { fraction: 0.01, ..Participation::default() };
        assert_eq!(hardly.in_round(1, &ids(), 7).len(), 1);
    }

    #[test]
    fn impossible_selections_are_refused() {
        let with = |round, list: Vec<&str>| Participation {
            lists: BTreeMap::from([(round, list.into_iter().map(|id| ClientId::new(id).unwrap()).collect())]),
            ..Participation::default()
        };
        assert!(with(1, vec!["a"]).check(&ids(), 3).is_ok());
        assert!(with(4, vec!["a"]).check(&ids(), 3).is_err());
        assert!(with(0, vec!["a"]).check(&ids(), 3).is_err());
        assert!(with(1, vec!["x"]).check(&ids(), 3).is_err());
        assert!(with(1, vec![]).check(&ids(), 3).is_err());
        assert!(Participation { fraction: 0.0, ..Participation::default() }.check(&ids(), 3).is_err());
        assert!(Participation { fraction: f64::NAN, ..Participation::default() }.check(&ids(), 3).is_err());
    }
}

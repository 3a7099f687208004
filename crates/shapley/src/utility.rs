//! The utility of each coalition's model: the game that every method values.

use std::collections::HashMap;

use secsv_federation::Coalition;

use crate::{Error, players::Players};

/// Up to this many clients every coalition has a place in one vector; the exact methods end here too.
pub const MAX_EXACT_CLIENTS: usize = 20;

/// Utilities by coalition, v(S) in the paper. Nothing is assumed: v(empty) is an entry like any other,
/// because the model before the round has an accuracy of its own.
#[derive(Clone, Debug)]
pub struct UtilityTable {
    players: Players,
    store: UtilityStore,
}

#[derive(Clone, Debug)]
enum UtilityStore {
    /// Indexed by packed coalition; NaN is "unknown".
    Dense {
        utilities: Vec<f64>,
        known: usize,
    },
    Sparse(HashMap<u128, f64>),
}

impl UtilityTable {
    /// A table about these clients, without any utility yet.
    pub fn new(players: Coalition) -> Result<Self, Error> {
        let players = Players::new(players)?;
        let store = if players.count() <= MAX_EXACT_CLIENTS {
            UtilityStore::Dense { utilities: vec![f64::NAN; 1 << players.count()], known: 0 }
        } else {
            UtilityStore::Sparse(HashMap::new())
        };
        Ok(Self { players, store })
    }

    /// A table of every coalition of at most [`MAX_EXACT_CLIENTS`] clients.
    pub fn from_fn(players: Coalition, mut utility: impl FnMut(Coalition) -> f64) -> Result<Self, Error> {
        let mut table = Self::new(players)?;
        if players.len() > MAX_EXACT_CLIENTS {
            return Err(Error::TooManyClients {
                method: "a table of all coalitions",
                expected: MAX_EXACT_CLIENTS,
                found: players.len(),
            });
        }
        for coalition in players.subsets() {
            table.insert(coalition, utility(coalition))?;
        }
        Ok(table)
    }

    /// Adds a utility. The same one twice is fine, a different one is an error.
    pub fn insert(&mut self, coalition: Coalition, utility: f64) -> Result<(), Error> {
        let packed = self.players.pack(coalition)?;
        if !utility.is_finite() {
            return Err(Error::NotFinite { coalition, found: utility });
        }
        if let Some(known) = self.at(packed) {
            return if known == utility {
                Ok(())
            } else {
                Err(Error::Contradiction { coalition, expected: known, found: utility })
            };
        }
        match &mut self.store {
            UtilityStore::Dense { utilities, known } => {
                utilities[packed as usize] = utility;
                *known += 1;
            }
            UtilityStore::Sparse(map) => {
                map.insert(packed, utility);
            }
        }
        Ok(())
    }

    /// The utility of a coalition, if known.
    pub fn get(&self, coalition: Coalition) -> Option<f64> {
        self.at(self.players.pack(coalition).ok()?)
    }

    /// Everybody the table is about.
    pub fn players(&self) -> Coalition {
        self.players.set()
    }

    /// Number of known utilities.
    pub fn len(&self) -> usize {
        match &self.store {
            UtilityStore::Dense { known, .. } => *known,
            UtilityStore::Sparse(map) => map.len(),
        }
    }

    /// Whether no utility is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The known utilities, in ascending order of the coalitions' bits.
    pub fn iter(&self) -> impl Iterator<Item = (Coalition, f64)> + '_ {
        let mut packed: Vec<u128> = match &self.store {
            UtilityStore::Dense { utilities, .. } => (0..utilities.len() as u128).collect(),
            UtilityStore::Sparse(map) => map.keys().copied().collect(),
        };
        packed.sort_unstable();
        packed.into_iter().filter_map(|bits| Some((self.players.unpack(bits), self.at(bits)?)))
    }

    pub(crate) fn numbering(&self) -> &Players {
        &self.players
    }

    pub(crate) fn at(&self, packed: u128) -> Option<f64> {
        match &self.store {
            UtilityStore::Dense { utilities, .. } => {
                utilities.get(packed as usize).copied().filter(|utility| !utility.is_nan())
            }
            UtilityStore::Sparse(map) => map.get(&packed).copied(),
        }
    }

    pub(crate) fn need(&self, packed: u128) -> Result<f64, Error> {
        self.at(packed).ok_or_else(|| Error::Missing { coalition: self.players.unpack(packed) })
    }

    /// v(empty) and v(everybody).
    pub(crate) fn ends(&self) -> Result<(f64, f64), Error> {
        Ok((self.need(0)?, self.need(everybody(self.players.count()))?))
    }

    /// Every utility, by packed coalition.
    pub(crate) fn complete(&self) -> Result<&[f64], Error> {
        match &self.store {
            UtilityStore::Dense { utilities, known } if *known == utilities.len() => Ok(utilities),
            UtilityStore::Dense { utilities, .. } => {
                let hole = utilities.iter().position(|utility| utility.is_nan()).unwrap_or_default();
                Err(Error::Missing { coalition: self.players.unpack(hole as u128) })
            }
            UtilityStore::Sparse(_) => Err(Error::TooManyClients {
                method: "a table of all coalitions",
                expected: MAX_EXACT_CLIENTS,
                found: self.players.count(),
            }),
        }
    }
}

/// The packed coalition of the first `count` players.
pub(crate) fn everybody(count: usize) -> u128 {
    Coalition::first(count).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_federation_positions_apart_from_its_own() {
        let players: Coalition = [3, 7, 100].into_iter().collect();
        let mut table = UtilityTable::new(players).unwrap();
        table.insert(Coalition::EMPTY.with(100), 0.5).unwrap();
        assert_eq!(table.get(Coalition::EMPTY.with(100)), Some(0.5));
        assert_eq!(table.at(0b100), Some(0.5));
        assert_eq!(table.get(Coalition::EMPTY), None, "v(empty) is not assumed");
        assert_eq!(table.iter().collect::<Vec<_>>(), [(Coalition::EMPTY.with(100), 0.5)]);
        assert!(matches!(table.insert(Coalition::EMPTY.with(1), 0.5), Err(Error::Stranger { .. })));
    }

    #[test]
    fn utilities_that_cannot_be_are_refused() {
        let mut table = UtilityTable::new(Coalition::first(30)).unwrap();
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(matches!(table.insert(Coalition::EMPTY, bad), Err(Error::NotFinite { .. })));
        }
        table.insert(Coalition::EMPTY, 0.25).unwrap();
        table.insert(Coalition::EMPTY, 0.25).unwrap();
        assert!(matches!(table.insert(Coalition::EMPTY, 0.3), Err(Error::Contradiction { .. })));
        assert_eq!(table.len(), 1);
        assert!(UtilityTable::new(Coalition::EMPTY).is_err());
        assert!(matches!(table.complete(), Err(Error::TooManyClients { .. })));
    }
}

//! Federation-wide positions to the dense numbering 0..n that plans count in, and back.

use secsv_federation::Coalition;

use crate::Error;

/// The clients a game is about, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Players {
    set: Coalition,
    members: Vec<usize>,
}

impl Players {
    pub(crate) fn new(set: Coalition) -> Result<Self, Error> {
        if set.is_empty() {
            return Err(Error::NoClients);
        }
        Ok(Self { set, members: set.members().collect() })
    }

    pub(crate) fn set(&self) -> Coalition {
        self.set
    }

    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// Bit j of the result stands for the j-th player.
    pub(crate) fn pack(&self, coalition: Coalition) -> Result<u128, Error> {
        if !coalition.is_subset_of(self.set) {
            return Err(Error::Stranger { expected: self.set, found: coalition });
        }
        if self.is_contiguous() {
            return Ok(coalition.bits());
        }
        let mut packed = 0;
        for (dense, &member) in self.members.iter().enumerate() {
            packed |= u128::from(coalition.contains(member)) << dense;
        }
        Ok(packed)
    }

    pub(crate) fn unpack(&self, packed: u128) -> Coalition {
        if self.is_contiguous() {
            return Coalition::from_bits(packed);
        }
        Coalition::from_bits(packed).members().map(|dense| self.members[dense]).collect()
    }

    fn is_contiguous(&self) -> bool {
        self.set == Coalition::first(self.members.len())
    }
}

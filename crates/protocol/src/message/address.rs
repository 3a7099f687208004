//! Units, and the addresses of messages about units and first layers.

use secsv_algebra::Seed;
use secsv_federation::MAX_CLIENTS;

use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    test_id::TestId,
};

/// What one chain of decryptors does in a test, on the samples of one owner group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// The test.
    pub test: TestId,
    /// The owner group.
    pub group: usize,
    /// Which of the group's units.
    pub part: UnitPart,
}

/// Which of a group's units, where models are tested together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitPart {
    /// Coalitions that the same client is first to decrypt for.
    Decryptor(usize),
    /// A coalition by itself that was to be tested together with others, by its number in the request.
    Alone(usize),
}

/// Models of a round that are tested together, at most: their predictions travel in one message.
pub(crate) const MAX_TOGETHER: usize = 1024;

/// The number of the first coalition by itself, above those of all clients.
const ALONE: usize = 1 << 8;
const _: () = assert!(ALONE > MAX_CLIENTS && ALONE + MAX_TOGETHER <= u16::MAX as usize);

impl UnitPart {
    /// The one unit of a group in a test of one coalition, whoever decrypts.
    pub(crate) const WHOLE: Self = Self::Decryptor(0);

    /// The number, below 2^16.
    pub fn to_wire(self) -> usize {
        match self {
            Self::Decryptor(client) => client,
            Self::Alone(number) => ALONE + number,
        }
    }

    fn from_wire(number: usize) -> Self {
        number.checked_sub(ALONE).map_or(Self::Decryptor(number), Self::Alone)
    }

    pub(crate) fn write(self, w: &mut Writer) -> &mut Writer {
        w.u16(self.to_wire())
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        r.u16().map(Self::from_wire)
    }
}

/// Head of messages about one unit: the unit, the step, and which of the things sent at the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StepAddress {
    pub unit: UnitId,
    pub step: usize,
    /// Which of the things received at the step.
    pub item: usize,
    /// Which chunk, where there are several.
    pub chunk: usize,
}

impl StepAddress {
    /// Bytes it takes.
    pub(crate) const LENGTH: usize = 8 + 2 + 2 + 2 + 2 + 4;

    pub(crate) fn new(unit: UnitId, step: usize) -> Self {
        Self { unit, step, item: 0, chunk: 0 }
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        self.unit.part.write(self.unit.test.write(w).u16(self.unit.group));
        w.u16(self.step).u16(self.item).index(self.chunk);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        let unit = UnitId { test: TestId::read(r)?, group: r.u16()?, part: UnitPart::read(r)? };
        Ok(Self { unit, step: r.u16()?, item: r.u16()?, chunk: r.index()? })
    }

    /// The bytes it takes in messages: no other address of the session has them.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut w = Writer::default();
        self.write(&mut w);
        w.finish()
    }

    /// A seed for one purpose at this address, from all its bytes.
    pub(crate) fn seed(&self, own: &Seed, purpose: &str) -> Seed {
        own.derive(purpose, self.unit.test.to_wire()).covering(&self.to_bytes())
    }
}

/// Whose first-layer outputs are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FirstLayerBatchId {
    /// All samples of all groups.
    All,
    /// Some samples of a group, by a digest of them, so that no randomness serves two selections.
    Gathered([u8; 32]),
}

impl FirstLayerBatchId {
    pub(crate) fn write(&self, w: &mut Writer) {
        match self {
            Self::All => w.u8(0),
            Self::Gathered(digest) => w.u8(1).raw(digest),
        };
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(if r.flag("first-layer batch")? { Self::Gathered(r.array()?) } else { Self::All })
    }

    /// Bytes it takes.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Gathered(digest) => 1 + digest.len(),
        }
    }

    /// A seed for one purpose and this batch.
    pub(crate) fn seed(&self, of_round: &Seed) -> Seed {
        let mut w = Writer::default();
        self.write(&mut w);
        of_round.covering(&w.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_numbers_and_in_their_order() {
        let parts: Vec<UnitPart> = (0..u16::MAX.into()).map(UnitPart::from_wire).collect();
        assert!(parts.iter().map(|part| part.to_wire()).eq(0..u16::MAX.into()));
        assert!(parts.is_sorted());
        assert_eq!(parts[ALONE - 1..=ALONE], [UnitPart::Decryptor(ALONE - 1), UnitPart::Alone(0)]);
    }
}

//! Units, and the addresses of messages about units and first layers.

use secsv_algebra::Seed;

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
    /// Which of the group's units, where models are tested together.
    pub part: usize,
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
        self.unit.test.write(w).u16(self.unit.group).u16(self.unit.part);
        w.u16(self.step).u16(self.item).index(self.chunk);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        let unit = UnitId { test: TestId::read(r)?, group: r.u16()?, part: r.u16()? };
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

//! Units, and the address of a message about one of them.

use super::join_after;
use crate::{
    codec::{Reader, Writer},
    error::CodecError,
    frame::OVERHEAD,
};

/// What one chain of decryptors does in a test, on the samples of one owner group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// The test, counted by the principal.
    pub test: u64,
    /// The owner group.
    pub group: usize,
    /// Which of the group's units, where models are tested together.
    pub part: usize,
}

/// Head of messages about one unit: the unit, a step, and a further number.
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

    pub(crate) fn encode(&self, content: &[u8]) -> Vec<u8> {
        let mut w = self.head();
        w.make_room(content.len() + OVERHEAD);
        w.raw(content);
        w.finish()
    }

    /// With several byte strings as content.
    pub(crate) fn encode_parts(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        join_after(self.head(), parts)
    }

    fn head(&self) -> Writer {
        let mut w = Writer::default();
        w.u64(self.unit.test).u16(self.unit.group).u16(self.unit.part);
        w.u16(self.step).u16(self.item).u32(self.chunk as u32);
        w
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let mut r = Reader::new(bytes);
        let unit = UnitId { test: r.u64()?, group: r.u16()?, part: r.u16()? };
        let place = Self { unit, step: r.u16()?, item: r.u16()?, chunk: r.u32()? as usize };
        Ok((place, r.rest()))
    }

    /// A number that no other place of the session has, to derive randomness by.
    pub(crate) fn number(&self) -> u64 {
        let parts = [self.unit.group, self.unit.part, self.step, self.item, self.chunk];
        let mut hash = blake3::Hasher::new();
        hash.update(&self.unit.test.to_le_bytes());
        parts.iter().for_each(|&part| {
            hash.update(&(part as u64).to_le_bytes());
        });
        u64::from_le_bytes(hash.finalize().as_bytes()[..8].try_into().unwrap_or_default())
    }
}

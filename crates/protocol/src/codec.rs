//! Content of messages as bytes: little-endian numbers, counted bytes, elements packed to the length of their ring.

use secsv_algebra::{Matrix, Ring, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet};

use crate::error::CodecError;

/// Writes content.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl From<Vec<u8>> for Writer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

impl Writer {
    /// For content of about this many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn u8(&mut self, x: u8) -> &mut Self {
        self.bytes.push(x);
        self
    }

    /// A number below 2^16 - 1. A larger one is written as one that no reader takes.
    pub(crate) fn u16(&mut self, x: usize) -> &mut Self {
        self.bytes.extend(u16::try_from(x).unwrap_or(u16::MAX).to_le_bytes());
        self
    }

    /// A number below 2^32 - 1, by the same rule.
    pub(crate) fn index(&mut self, x: usize) -> &mut Self {
        self.u32(u32::try_from(x).unwrap_or(u32::MAX))
    }

    /// A byte that says whether a number follows.
    pub(crate) fn optional(&mut self, x: Option<usize>) -> &mut Self {
        self.u8(x.is_some().into());
        if let Some(x) = x { self.u16(x) } else { self }
    }

    pub(crate) fn u32(&mut self, x: u32) -> &mut Self {
        self.bytes.extend(x.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, x: u64) -> &mut Self {
        self.bytes.extend(x.to_le_bytes());
        self
    }

    pub(crate) fn u128(&mut self, x: u128) -> &mut Self {
        self.bytes.extend(x.to_le_bytes());
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.u64(bytes.len() as u64).raw(bytes)
    }

    pub(crate) fn samples(&mut self, samples: &SampleSet) -> &mut Self {
        self.u64(samples.total() as u64);
        self.bytes.extend(samples.bytes());
        self
    }

    pub(crate) fn coalitions(&mut self, coalitions: &[Coalition]) -> &mut Self {
        self.u64(coalitions.len() as u64);
        coalitions.iter().fold(self, |w, coalition| w.u128(coalition.bits()))
    }

    pub(crate) fn rounds(&mut self, rounds: &[RoundId]) -> &mut Self {
        self.u64(rounds.len() as u64);
        rounds.iter().fold(self, |w, round| w.u32(round.0))
    }

    pub(crate) fn seed(&mut self, seed: &Seed) -> &mut Self {
        self.raw(seed.expose())
    }
}

/// Bytes that elements of a ring take when packed.
pub(crate) fn packed_len(ring: impl Ring, count: usize) -> usize {
    (count * ring.bits() as usize).div_ceil(8)
}

/// Packs elements.
pub(crate) fn pack(ring: impl Ring, elements: &[u64]) -> Vec<u8> {
    let bits = ring.bits();
    let mut bytes = Vec::with_capacity(packed_len(ring, elements.len()) + 8);
    let (mut pending, mut held) = (0u128, 0);
    for &x in elements {
        pending |= u128::from(x) << held;
        held += bits;
        while held >= 64 {
            bytes.extend((pending as u64).to_le_bytes());
            pending >>= 64;
            held -= 64;
        }
    }
    bytes.extend(&(pending as u64).to_le_bytes()[..(held as usize).div_ceil(8)]);
    bytes
}

/// Unpacks so many elements; the length is checked before anything is allocated, every element to be reduced.
pub(crate) fn unpack(ring: impl Ring, count: usize, bytes: &[u8]) -> Result<Vec<u64>, CodecError> {
    let expected = packed_len(ring, count);
    if bytes.len() < expected {
        return Err(CodecError::Truncated);
    }
    if bytes.len() > expected {
        return Err(CodecError::Trailing { found: bytes.len() - expected });
    }
    let bits = ring.bits();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let (mut pending, mut held, mut rest) = (0u128, 0u32, bytes);
    let mut elements = Vec::with_capacity(count);
    for index in 0..count {
        while held < bits && !rest.is_empty() {
            let taken = rest.len().min(8);
            let mut next = [0; 8];
            next[..taken].copy_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            pending |= u128::from(u64::from_le_bytes(next)) << held;
            held += 8 * taken as u32;
        }
        let element = pending as u64 & mask;
        pending >>= bits;
        held = held.saturating_sub(bits);
        if !ring.contains(element) {
            return Err(CodecError::Unreduced { index });
        }
        elements.push(element);
    }
    if pending != 0 {
        return Err(CodecError::Value { what: "padding" });
    }
    Ok(elements)
}

/// Unpacks a matrix of a known shape.
pub(crate) fn unpack_matrix<R: Ring>(
    ring: R,
    rows: usize,
    columns: usize,
    bytes: &[u8],
) -> Result<Matrix<R>, CodecError> {
    let count = rows.checked_mul(columns).ok_or(CodecError::Truncated)?;
    let elements = unpack(ring, count, bytes)?;
    Matrix::new(ring, rows, columns, elements).map_err(|_| CodecError::Value { what: "matrix" })
}

/// Reads content. Nothing is allocated beyond the bytes that are there.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn raw(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<usize, CodecError> {
        match u16::from_le_bytes(self.array()?) {
            u16::MAX => Err(CodecError::Value { what: "number" }),
            x => Ok(x.into()),
        }
    }

    pub(crate) fn index(&mut self) -> Result<usize, CodecError> {
        match self.u32()? {
            u32::MAX => Err(CodecError::Value { what: "number" }),
            x => Ok(x as usize),
        }
    }

    /// Whether something follows.
    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, CodecError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Value { what }),
        }
    }

    pub(crate) fn optional(&mut self, what: &'static str) -> Result<Option<usize>, CodecError> {
        self.flag(what)?.then(|| self.u16()).transpose()
    }

    pub(crate) fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, CodecError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A count of things that take at least `least` bytes each, so at most as many as the rest can hold.
    pub(crate) fn count(&mut self, what: &'static str, least: usize) -> Result<usize, CodecError> {
        let found = self.u64()?;
        let expected = (self.rest.len() / least.max(1)) as u64;
        if found > expected {
            Err(CodecError::TooLarge { what, expected, found })
        } else {
            Ok(found as usize)
        }
    }

    pub(crate) fn counted(&mut self) -> Result<&'a [u8], CodecError> {
        let count = self.count("bytes", 1)?;
        self.raw(count)
    }

    pub(crate) fn coalitions(&mut self) -> Result<Vec<Coalition>, CodecError> {
        let count = self.count("coalitions", size_of::<u128>())?;
        (0..count).map(|_| self.u128().map(Coalition::from_bits)).collect()
    }

    /// Rounds, each after the one before.
    pub(crate) fn rounds(&mut self) -> Result<Vec<RoundId>, CodecError> {
        let count = self.count("rounds", size_of::<u32>())?;
        let rounds: Vec<RoundId> = (0..count).map(|_| self.u32().map(RoundId)).collect::<Result<_, _>>()?;
        if rounds.is_sorted_by(|a, b| a < b) { Ok(rounds) } else { Err(CodecError::Value { what: "rounds" }) }
    }

    pub(crate) fn samples(&mut self) -> Result<SampleSet, CodecError> {
        let found = self.u64()?;
        let expected = 8 * self.rest.len() as u64;
        if found > expected {
            return Err(CodecError::TooLarge { what: "samples", expected, found });
        }
        let bytes = self.raw((found as usize).div_ceil(8))?;
        SampleSet::from_bytes(found as usize, bytes).ok_or(CodecError::Value { what: "samples" })
    }

    pub(crate) fn seed(&mut self) -> Result<Seed, CodecError> {
        Ok(Seed::from_bytes(self.array()?))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing { found: self.rest.len() }) }
    }
}

/// Checks that bytes are `count` packed elements.
pub(crate) fn check_elements(ring: impl Ring, count: Option<usize>, bytes: &[u8]) -> Result<(), CodecError> {
    unpack(ring, count.ok_or(CodecError::Truncated)?, bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Field, Prg, Ring64};

    use super::*;

    proptest! {
        #[test]
        fn elements_survive_packing(count in 0usize..70, seed: [u8; 32]) {
            fn check<R: Ring>(ring: R, count: usize, seed: [u8; 32]) -> Result<(), TestCaseError> {
                let m = Matrix::uniform(ring, 1, count, &mut Prg::new(&Seed::from_bytes(seed)));
                let bytes = pack(ring, m.elements());
                prop_assert_eq!(bytes.len(), packed_len(ring, count));
                prop_assert_eq!(unpack(ring, count, &bytes).unwrap(), m.elements());
                prop_assert!(unpack(ring, count + 2, &bytes).is_err());
                Ok(())
            }
            check(Field::standard(), count, seed)?;
            check(Field::compact(), count, seed)?;
            check(Ring64, count, seed)?;
        }

        #[test]
        fn sets_of_samples_survive(total in 0usize..200, members in prop::collection::vec(0usize..200, 0..50)) {
            let mut set = SampleSet::none(total);
            members.into_iter().filter(|&m| m < total).for_each(|m| set.insert(m));
            let mut writer = Writer::default();
            writer.samples(&set);
            let bytes = writer.finish();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.samples().unwrap(), set);
            prop_assert!(reader.end().is_ok());
        }
    }

    #[test]
    fn unreduced_and_padded_elements_are_refused() {
        let field = Field::standard();
        let all_ones = vec![0xff; packed_len(field, 1)];
        assert!(unpack(field, 1, &all_ones).is_err());
        let mut padded = pack(field, &[1]);
        *padded.last_mut().unwrap() |= 0x80;
        assert_eq!(unpack(field, 1, &padded), Err(CodecError::Value { what: "padding" }));
    }
}

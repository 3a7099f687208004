//! How operands lie in memory: `[tile of 8 inputs][limb][block of 8 points][input][part][8 words]`, each word
//! split as `low 27 bits | rest << 32`. The last tile holds only the inputs that are left.

use std::borrow::{Borrow, BorrowMut};

use super::{BLOCK, TILE};

/// Bits of the low half of a split word.
pub(crate) const LOW_BITS: u32 = 27;
/// Mask of the low half.
pub(crate) const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// One cache line of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub [u64; BLOCK]);

impl Borrow<[u64; BLOCK]> for Line {
    fn borrow(&self) -> &[u64; BLOCK] {
        &self.0
    }
}

impl BorrowMut<[u64; BLOCK]> for Line {
    fn borrow_mut(&mut self) -> &mut [u64; BLOCK] {
        &mut self.0
    }
}

/// Splits a residue of at most 59 bits for 32-bit multipliers.
#[inline(always)]
pub(crate) const fn split(x: u64) -> u64 {
    (x & LOW_MASK) | (x >> LOW_BITS) << 32
}

/// Undoes [`split`].
#[inline(always)]
pub(crate) const fn join(x: u64) -> u64 {
    (x & LOW_MASK) | (x >> 32) << LOW_BITS
}

/// `inner` inputs of `PARTS` polynomials each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles<const PARTS: usize> {
    inner: usize,
    limbs: usize,
    degree: usize,
    lines: Vec<Line>,
}

/// One row of the encrypted matrix, ready to multiply: both parts of each ciphertext side by side.
pub type CipherTiles = Tiles<2>;
/// One batch of encoded samples, ready to multiply.
pub type PlainTiles = Tiles<1>;

impl<const PARTS: usize> Tiles<PARTS> {
    /// Room for `inner` inputs, zero to begin with.
    pub fn zero(inner: usize, limbs: usize, degree: usize) -> Self {
        let lines = vec![Line([0; BLOCK]); inner * PARTS * limbs * degree / BLOCK];
        Self { inner, limbs, degree, lines }
    }

    /// How many inputs.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Inputs, limbs and points of each polynomial.
    pub fn geometry(&self) -> (usize, usize, usize) {
        (self.inner, self.limbs, self.degree)
    }

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Index of the first line of this tile, limb and block, and the number of inputs in the tile.
    #[inline(always)]
    fn locate(&self, tile: usize, limb: usize, block: usize) -> (usize, usize) {
        let blocks = self.degree / BLOCK;
        let width = TILE.min(self.inner - tile * TILE);
        (PARTS * (tile * TILE * self.limbs * blocks + (limb * blocks + block) * width), width)
    }

    /// The lines of one tile at one limb and some blocks, and how many of them belong to one block: for each
    /// block, for each input, its parts.
    #[inline(always)]
    pub(super) fn stretch(
        &self,
        tile: usize,
        limb: usize,
        first_block: usize,
        blocks: usize,
    ) -> (&[Line], usize) {
        let (start, width) = self.locate(tile, limb, first_block);
        (&self.lines[start..start + PARTS * width * blocks], PARTS * width)
    }

    /// Stores one limb of one part of one input: `points` are residues.
    pub(crate) fn store(&mut self, input: usize, part: usize, limb: usize, points: &[u64]) {
        let (start, width) = self.locate(input / TILE, limb, 0);
        let first = start + PARTS * (input % TILE) + part;
        let lines = self.lines[first..].iter_mut().step_by(PARTS * width);
        for (line, block) in lines.zip(points.as_chunks::<BLOCK>().0) {
            line.0 = block.map(split);
        }
    }

    /// Reads back what [`Self::store`] stored.
    pub(crate) fn load(&self, input: usize, part: usize, limb: usize, points: &mut [u64]) {
        let (start, width) = self.locate(input / TILE, limb, 0);
        let first = start + PARTS * (input % TILE) + part;
        let lines = self.lines[first..].iter().step_by(PARTS * width);
        for (line, block) in lines.zip(points.as_chunks_mut::<BLOCK>().0) {
            *block = line.0.map(join);
        }
    }

    /// All lines of one tile at one limb, in memory order: for sums that treat every word alike.
    pub(crate) fn limb_lines(&self, tile: usize, limb: usize) -> &[Line] {
        let (start, width) = self.locate(tile, limb, 0);
        &self.lines[start..start + PARTS * width * self.degree / BLOCK]
    }

    /// The same, to be written.
    pub(crate) fn limb_lines_mut(&mut self, tile: usize, limb: usize) -> &mut [Line] {
        let (start, width) = self.locate(tile, limb, 0);
        &mut self.lines[start..start + PARTS * width * self.degree / BLOCK]
    }

    /// How many tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.inner.div_ceil(TILE)
    }
}

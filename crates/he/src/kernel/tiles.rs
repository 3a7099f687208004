//! How operands lie in memory. Ciphertexts, prepared once and streamed often: `[tile of 8][limb][block of 8
//! points][ciphertext][part][8 words]`, each word split as `low 27 bits | rest << 32`, the last tile holding
//! only what is left. Plaintexts, made anew for each batch: row by row, where the transform left them.

use std::{
    borrow::{Borrow, BorrowMut},
    sync::{Mutex, PoisonError},
};

use bytemuck::{Pod, Zeroable};
use zeroize::Zeroize;

use super::{BLOCK, TILE};

/// Bits of the low half of a split word.
pub(crate) const LOW_BITS: u32 = 27;
/// Mask of the low half.
pub(crate) const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// One cache line of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub [u64; BLOCK]);

impl Borrow<[u64; BLOCK]> for CacheLine {
    fn borrow(&self) -> &[u64; BLOCK] {
        &self.0
    }
}

impl BorrowMut<[u64; BLOCK]> for CacheLine {
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

/// Memory of operands that are gone, kept for the next ones of their size: fresh memory costs as much as what
/// is computed in it.
struct Spare(Mutex<Vec<Vec<CacheLine>>>);

/// Of wiped plaintexts: all zero.
static WIPED: Spare = Spare(Mutex::new(Vec::new()));
/// Of ciphertexts, with what they left in it.
static USED: Spare = Spare(Mutex::new(Vec::new()));

impl Spare {
    /// Bytes kept at most.
    const KEPT: usize = 1 << 30;

    /// Memory of `lines` cache lines, from here or fresh.
    fn take(&self, lines: usize) -> Vec<CacheLine> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().rposition(|room| room.len() == lines).map(|at| kept.remove(at));
        drop(kept);
        found.unwrap_or_else(|| room(lines))
    }

    /// Keeps memory; what was kept longest makes place for it.
    fn give_back(&self, room: Vec<CacheLine>) {
        let bytes = |room: &Vec<CacheLine>| room.len() * size_of::<CacheLine>();
        if room.is_empty() || bytes(&room) > Self::KEPT {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total: usize = kept.iter().map(bytes).sum();
        while total + bytes(&room) > Self::KEPT {
            total -= bytes(&kept.remove(0));
        }
        kept.push(room);
    }
}

/// Memory of `lines` cache lines, zero, on large pages where the system has them: operands are read in long
/// runs over more memory than the translation buffers cover.
fn room(lines: usize) -> Vec<CacheLine> {
    #[cfg_attr(not(target_os = "linux"), expect(unused_mut))]
    let mut room = bytemuck::zeroed_vec(lines);
    #[cfg(target_os = "linux")]
    super::large_pages::prefer_large_pages(&mut room);
    room
}

/// One row of the encrypted matrix, ready to multiply: both parts of each ciphertext side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherTiles {
    inner: usize,
    limbs: usize,
    degree: usize,
    lines: Vec<CacheLine>,
}

impl Drop for CipherTiles {
    fn drop(&mut self) {
        USED.give_back(std::mem::take(&mut self.lines));
    }
}

impl CipherTiles {
    /// Room for `inner` ciphertexts, every one of which is to be stored.
    pub(crate) fn unset(inner: usize, limbs: usize, degree: usize) -> Self {
        let count = inner * 2 * limbs * degree / BLOCK;
        Self { inner, limbs, degree, lines: USED.take(count) }
    }

    /// Room for `inner` ciphertexts, zero to begin with.
    pub fn zero(inner: usize, limbs: usize, degree: usize) -> Self {
        let lines = room(inner * 2 * limbs * degree / BLOCK);
        Self { inner, limbs, degree, lines }
    }

    /// Number of ciphertexts.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Ciphertexts, limbs and points of each polynomial.
    pub fn geometry(&self) -> (usize, usize, usize) {
        (self.inner, self.limbs, self.degree)
    }

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<CacheLine>()
    }

    /// Index of the first line of this tile, limb and block, and the number of ciphertexts in the tile.
    #[inline(always)]
    fn locate(&self, tile: usize, limb: usize, block: usize) -> (usize, usize) {
        let blocks = self.degree / BLOCK;
        let width = TILE.min(self.inner - tile * TILE);
        (2 * (tile * TILE * self.limbs * blocks + (limb * blocks + block) * width), width)
    }

    /// The lines of one tile at one limb and some blocks, and the number of ciphertexts in the tile: for each
    /// block, for each ciphertext, its parts.
    #[inline(always)]
    pub(super) fn block_run(
        &self,
        tile: usize,
        limb: usize,
        first: usize,
        blocks: usize,
    ) -> (&[[CacheLine; 2]], usize) {
        let (start, width) = self.locate(tile, limb, first);
        (self.lines[start..start + 2 * width * blocks].as_chunks().0, width)
    }

    /// Stores one limb of one part of one ciphertext: `points` are residues.
    pub(crate) fn store(&mut self, input: usize, part: usize, limb: usize, points: &[u64]) {
        let (start, width) = self.locate(input / TILE, limb, 0);
        let first = start + 2 * (input % TILE) + part;
        let lines = self.lines[first..].iter_mut().step_by(2 * width);
        for (line, block) in lines.zip(points.as_chunks::<BLOCK>().0) {
            line.0 = block.map(split);
        }
    }

    /// Reads back what [`Self::store`] stored.
    #[cfg(test)]
    pub(crate) fn load(&self, input: usize, part: usize, limb: usize, points: &mut [u64]) {
        let (start, width) = self.locate(input / TILE, limb, 0);
        let first = start + 2 * (input % TILE) + part;
        let lines = self.lines[first..].iter().step_by(2 * width);
        for (line, block) in lines.zip(points.as_chunks_mut::<BLOCK>().0) {
            *block = line.0.map(join);
        }
    }

    /// All lines of one tile at one limb, in memory order: for sums that treat every word alike.
    pub(crate) fn limb_lines(&self, tile: usize, limb: usize) -> &[CacheLine] {
        let (start, width) = self.locate(tile, limb, 0);
        &self.lines[start..start + 2 * width * self.degree / BLOCK]
    }

    /// The same, to be written.
    pub(crate) fn limb_lines_mut(&mut self, tile: usize, limb: usize) -> &mut [CacheLine] {
        let (start, width) = self.locate(tile, limb, 0);
        &mut self.lines[start..start + 2 * width * self.degree / BLOCK]
    }

    /// Number of tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.inner.div_ceil(TILE)
    }
}

/// One batch of encoded samples, ready to multiply: plain residues, transformed where they lie. Rows are one
/// cache line longer than the polynomial, so that equal points of different rows fall into different cache
/// sets. They are somebody's share: wiped on drop.
pub struct PlainRows {
    inner: usize,
    limbs: usize,
    degree: usize,
    words: Vec<CacheLine>,
}

impl Drop for PlainRows {
    fn drop(&mut self) {
        bytemuck::cast_slice_mut::<CacheLine, u64>(&mut self.words).zeroize();
        WIPED.give_back(std::mem::take(&mut self.words));
    }
}

impl PlainRows {
    /// Room for `inner` plaintexts, zero to begin with.
    pub fn zero(inner: usize, limbs: usize, degree: usize) -> Self {
        let words = WIPED.take(inner * limbs * Self::stride(degree));
        Self { inner, limbs, degree, words }
    }

    /// Lines from one row to the next.
    const fn stride(degree: usize) -> usize {
        degree / BLOCK + 1
    }

    /// Plaintexts, limbs and points of each polynomial.
    pub fn geometry(&self) -> (usize, usize, usize) {
        (self.inner, self.limbs, self.degree)
    }

    /// One limb of one plaintext, a run of blocks.
    #[inline(always)]
    pub(super) fn block_run(&self, input: usize, limb: usize, first: usize, blocks: usize) -> &[CacheLine] {
        let start = (input * self.limbs + limb) * Self::stride(self.degree) + first;
        &self.words[start..start + blocks]
    }

    /// One limb of one plaintext, to be written and transformed in place.
    pub(crate) fn row_mut(&mut self, input: usize, limb: usize) -> &mut [u64] {
        let start = (input * self.limbs + limb) * Self::stride(self.degree);
        let lines = &mut self.words[start..start + self.degree / BLOCK];
        bytemuck::cast_slice_mut(lines)
    }

    /// All limbs of one plaintext, each to be written and transformed in place.
    pub(crate) fn rows_mut(&mut self, input: usize) -> impl Iterator<Item = &mut [u64]> {
        let (stride, blocks) = (Self::stride(self.degree), self.degree / BLOCK);
        let lines = &mut self.words[input * self.limbs * stride..][..self.limbs * stride];
        lines.chunks_exact_mut(stride).map(move |row| bytemuck::cast_slice_mut(&mut row[..blocks]))
    }

    /// One limb of one plaintext.
    #[cfg(test)]
    pub(crate) fn row(&self, input: usize, limb: usize) -> &[u64] {
        let start = (input * self.limbs + limb) * Self::stride(self.degree);
        bytemuck::cast_slice(&self.words[start..start + self.degree / BLOCK])
    }
}

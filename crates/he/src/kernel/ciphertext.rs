//! Ciphertexts as words, where the kernel writes its products: polynomials limb by limb, stored as transform
//! points.

use super::BLOCK;

/// A pair (c0, c1) with c0 + c1 s = round(q m / p) + noise, at transform points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ciphertext {
    limbs: usize,
    degree: usize,
    /// `[part][limb][point]`.
    words: Vec<u64>,
}

impl Ciphertext {
    /// An encryption of zero that hides nothing: the neutral element of sums.
    pub fn zero(limbs: usize, degree: usize) -> Self {
        Self { limbs, degree, words: vec![0; 2 * limbs * degree] }
    }

    pub(crate) fn from_parts(limbs: usize, degree: usize, c0: &[u64], c1: &[u64]) -> Self {
        debug_assert!(c0.len() == limbs * degree && c1.len() == limbs * degree);
        Self { limbs, degree, words: [c0, c1].concat() }
    }

    /// Number of limbs.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Degree of the polynomials.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// One part, limb after limb.
    pub(crate) fn part(&self, part: usize) -> &[u64] {
        &self.words[part * self.limbs * self.degree..][..self.limbs * self.degree]
    }

    /// One part, to be written.
    pub(crate) fn part_mut(&mut self, part: usize) -> &mut [u64] {
        &mut self.words[part * self.limbs * self.degree..][..self.limbs * self.degree]
    }

    /// One limb of one part.
    pub(crate) fn limb(&self, part: usize, limb: usize) -> &[u64] {
        &self.words[(part * self.limbs + limb) * self.degree..][..self.degree]
    }

    /// One limb of one part, to be written.
    pub(crate) fn limb_mut(&mut self, part: usize, limb: usize) -> &mut [u64] {
        &mut self.words[(part * self.limbs + limb) * self.degree..][..self.degree]
    }

    /// One block of points.
    #[inline(always)]
    pub(crate) fn block_mut(&mut self, part: usize, limb: usize, block: usize) -> &mut [u64; BLOCK] {
        let start = (part * self.limbs + limb) * self.degree + block * BLOCK;
        let (blocks, _) = self.words[start..start + BLOCK].as_chunks_mut::<BLOCK>();
        &mut blocks[0]
    }
}

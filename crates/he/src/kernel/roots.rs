//! Tables of the roots of unity that transforms multiply by.

use secsv_algebra::Modulus;

use super::split;

/// Words of the blocks whose last four stages run in registers.
pub(super) const TAIL: usize = 16;
/// Where words are cut that meet a root.
pub(super) const WORD_BITS: u32 = 30;

/// The roots of one direction as a binary tree: node 1 splits the whole polynomial, nodes 2k and 2k + 1 the
/// two halves of what node k splits. The leaves' parents come in groups of eight, those of even number first.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    /// Split for 32-bit multipliers.
    factors: Vec<u64>,
    /// 2^30 times as much, split.
    shifted: Vec<u64>,
    /// One over the degree, for the backward direction.
    scale: [u64; 2],
}

/// Node k holds the root to the power of k's bits reversed.
pub(super) fn tree(modulus: Modulus, root: u64, degree: usize) -> Vec<u64> {
    let (mut roots, mut power) = (vec![0; degree], 1);
    let shift = usize::BITS - degree.ilog2();
    for exponent in 0..degree {
        roots[exponent.reverse_bits() >> shift] = power;
        power = modulus.mul(power, root);
    }
    roots
}

impl Roots {
    pub(super) fn new(modulus: Modulus, mut roots: Vec<u64>, scale: u64) -> Self {
        let half = roots.len() / 2;
        for group in roots[half..].as_chunks_mut::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *group;
            *group = [a, c, e, g, b, d, f, h];
        }
        let shift = |x| split(modulus.mul(x, 1 << WORD_BITS));
        Self {
            factors: roots.iter().map(|&x| split(x)).collect(),
            shifted: roots.iter().map(|&x| shift(x)).collect(),
            scale: [split(scale), shift(scale)],
        }
    }

    pub(super) fn scale(&self) -> [u64; 2] {
        self.scale
    }

    /// One node.
    #[inline(always)]
    pub(super) fn one(&self, node: usize) -> [u64; 2] {
        [self.factors[node], self.shifted[node]]
    }

    /// The four grandchildren of a node.
    #[inline(always)]
    pub(super) fn four(&self, node: usize) -> [&[u64; 4]; 2] {
        [&self.factors, &self.shifted].map(|words| &words.as_chunks::<4>().0[node])
    }

    /// The first and the second child of each of them.
    #[inline(always)]
    pub(super) fn children(&self, node: usize) -> [[&[u64; 4]; 2]; 2] {
        let first = 2 * node;
        [first, first + 1].map(|i| [&self.factors, &self.shifted].map(|words| &words.as_chunks::<4>().0[i]))
    }
}

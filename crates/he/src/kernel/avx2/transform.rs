//! Number-theoretic transforms for primes 2^BITS - c with a small c: products with a root take five 32-bit
//! multiplications, and sums stay unreduced as long as they fit a word.
//!
//! Bounds, in units of 2^57 (a prime is at most 1/4): a product of a word below 8 with a root is below `1 +
//! 7/8 + 1/4 + 1/16 < BIAS = 9/4`. A forward pass folds the one operand that is never multiplied to 1/4, so
//! that its results stay below `1/4 + 2 BIAS < 5` and what it multiplies below `1/4 + 3 BIAS = 7`. A backward
//! pass folds all its results.

use std::arch::x86_64::*;

use secsv_algebra::Modulus;

use super::{load, store};
use crate::kernel::{
    complement,
    roots::{Roots, TAIL, WORD_BITS},
    tiles::{LOW_BITS, LOW_MASK},
};

/// Words of a block whose passes run one after the other while it is in the first-level cache.
const CACHED: usize = 1024;

/// Coefficients to points; all coefficients from `filled` on count as zero.
#[target_feature(enable = "avx2")]
pub(super) fn forward(modulus: Modulus, roots: &Roots, words: &mut [u64], filled: usize) {
    match modulus.bits() {
        54 => forward_at::<54, 27>(modulus, roots, words, filled),
        _ => forward_at::<55, 28>(modulus, roots, words, filled),
    }
}

/// Points to coefficients.
#[target_feature(enable = "avx2")]
pub(super) fn backward(modulus: Modulus, roots: &Roots, words: &mut [u64]) {
    match modulus.bits() {
        54 => backward_at::<54, 27>(modulus, roots, words),
        _ => backward_at::<55, 28>(modulus, roots, words),
    }
}

/// Constants of a prime of BITS bits, of which HIGH lie above the low half of a split word.
#[derive(Clone, Copy)]
struct Prime<const BITS: i32, const HIGH: i32> {
    modulus: __m256i,
    twice: __m256i,
    /// A multiple of the prime that exceeds any product.
    bias: __m256i,
    complement: __m256i,
}

/// A root and 2^30 times it, both split.
#[derive(Clone, Copy)]
struct SplitRoot {
    low: __m256i,
    high: __m256i,
    shifted_low: __m256i,
    shifted_high: __m256i,
}

impl SplitRoot {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(factor: __m256i, shifted: __m256i) -> Self {
        Self {
            low: factor,
            high: _mm256_srli_epi64::<32>(factor),
            shifted_low: shifted,
            shifted_high: _mm256_srli_epi64::<32>(shifted),
        }
    }

    /// The same root in all lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn one([factor, shifted]: [u64; 2]) -> Self {
        Self::new(_mm256_set1_epi64x(factor as i64), _mm256_set1_epi64x(shifted as i64))
    }

    /// Four roots.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn four([factors, shifted]: [&[u64; 4]; 2]) -> Self {
        Self::new(load(factors), load(shifted))
    }
}

impl<const BITS: i32, const HIGH: i32> Prime<BITS, HIGH> {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(modulus: Modulus) -> Self {
        let complement = complement(modulus);
        let modulus = modulus.value();
        Self {
            modulus: _mm256_set1_epi64x(modulus as i64),
            twice: _mm256_set1_epi64x(2 * modulus as i64),
            bias: _mm256_set1_epi64x(((9 << (55 - BITS)) * modulus) as i64),
            complement: _mm256_set1_epi64x(complement as i64),
        }
    }

    /// A word below 2^60 times a root: below the bias, congruent.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn times(self, x: __m256i, factor: SplitRoot) -> __m256i {
        let x_low = _mm256_and_si256(x, _mm256_set1_epi64x((1 << WORD_BITS) - 1));
        let x_high = _mm256_srli_epi64::<{ WORD_BITS as i32 }>(x);
        let low = _mm256_add_epi64(
            _mm256_mul_epu32(x_low, factor.low),
            _mm256_mul_epu32(x_high, factor.shifted_low),
        );
        let high = _mm256_add_epi64(
            _mm256_mul_epu32(x_low, factor.high),
            _mm256_mul_epu32(x_high, factor.shifted_high),
        );
        // low + high * 2^27, and 2^BITS = c.
        let above = _mm256_mul_epu32(_mm256_srli_epi64::<HIGH>(high), self.complement);
        let below = _mm256_and_si256(
            _mm256_slli_epi64::<{ LOW_BITS as i32 }>(high),
            _mm256_set1_epi64x(((1 << BITS) - 1) & !(LOW_MASK as i64)),
        );
        _mm256_add_epi64(_mm256_add_epi64(low, above), below)
    }

    /// A congruent word not above 2^BITS by more than a few c.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fold(self, x: __m256i) -> __m256i {
        let above = _mm256_mul_epu32(_mm256_srli_epi64::<BITS>(x), self.complement);
        _mm256_add_epi64(_mm256_and_si256(x, _mm256_set1_epi64x((1 << BITS) - 1)), above)
    }

    /// The residue.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn reduce(self, x: __m256i) -> __m256i {
        let x = self.fold(x);
        let below = _mm256_cmpgt_epi64(self.modulus, x);
        _mm256_sub_epi64(x, _mm256_andnot_si256(below, self.modulus))
    }

    /// One forward butterfly.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn split(self, x: __m256i, y: __m256i, factor: SplitRoot) -> (__m256i, __m256i) {
        let y = self.times(y, factor);
        (_mm256_add_epi64(x, y), _mm256_sub_epi64(_mm256_add_epi64(x, self.bias), y))
    }

    /// Two stages of forward butterflies.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn split_twice(self, x: [__m256i; 4], factors: [SplitRoot; 3]) -> [__m256i; 4] {
        let (a, c) = self.split(self.fold(x[0]), x[2], factors[0]);
        let (b, d) = self.split(x[1], x[3], factors[0]);
        let ((a, b), (c, d)) = (self.split(a, b, factors[1]), self.split(c, d, factors[2]));
        [a, b, c, d]
    }

    /// Two stages of backward butterflies.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn merge_twice(self, [a, b, c, d]: [__m256i; 4], factors: [SplitRoot; 3]) -> [__m256i; 4] {
        let difference = |x, y, bias| _mm256_sub_epi64(_mm256_add_epi64(x, bias), y);
        let four_times = _mm256_add_epi64(self.twice, self.twice);
        let (b, a) = (self.times(difference(a, b, self.twice), factors[1]), _mm256_add_epi64(a, b));
        let (d, c) = (self.times(difference(c, d, self.twice), factors[2]), _mm256_add_epi64(c, d));
        [
            self.fold(_mm256_add_epi64(a, c)),
            self.fold(_mm256_add_epi64(b, d)),
            self.fold(self.times(difference(a, c, four_times), factors[0])),
            self.fold(self.times(difference(b, d, self.bias), factors[0])),
        ]
    }
}

#[target_feature(enable = "avx2")]
fn forward_at<const BITS: i32, const HIGH: i32>(
    modulus: Modulus,
    roots: &Roots,
    words: &mut [u64],
    filled: usize,
) {
    let prime = Prime::<BITS, HIGH>::new(modulus);
    // A stage whose second half is zero copies the first: so many stages are copies, and an even number
    // remains.
    let block = filled.next_power_of_two().max(TAIL);
    let block = if block.ilog2().is_multiple_of(2) { block } else { 2 * block };
    let zeros = block.min(words.len());
    words[filled..zeros].fill(0);
    if block < words.len() {
        let (first, rest) = words.split_at_mut(block);
        rest.chunks_exact_mut(block).for_each(|copy| copy.copy_from_slice(first));
        let copies = words.len() / block;
        for (i, words) in words.chunks_exact_mut(block).enumerate() {
            forward_block(prime, roots, copies + i, words);
        }
        return;
    }
    if words.len().ilog2().is_multiple_of(2) {
        return forward_block(prime, roots, 1, words);
    }
    let (left, right) = words.split_at_mut(words.len() / 2);
    let factor = SplitRoot::one(roots.one(1));
    for (x, y) in left.as_chunks_mut::<4>().0.iter_mut().zip(right.as_chunks_mut::<4>().0) {
        let (sum, difference) = prime.split(load(x), load(y), factor);
        store(x, sum);
        store(y, difference);
    }
    forward_block(prime, roots, 2, left);
    forward_block(prime, roots, 3, right);
}

/// The stages of one block, which node `node` of the tree of roots splits.
#[target_feature(enable = "avx2")]
fn forward_block<const BITS: i32, const HIGH: i32>(
    prime: Prime<BITS, HIGH>,
    roots: &Roots,
    node: usize,
    words: &mut [u64],
) {
    if words.len() > CACHED {
        let quarter = words.len() / 4;
        pass::<BITS, HIGH, true>(prime, roots, node, words);
        for (i, words) in words.chunks_exact_mut(quarter).enumerate() {
            forward_block(prime, roots, 4 * node + i, words);
        }
        return;
    }
    let (mut node, mut block) = (node, words.len());
    while block > TAIL {
        for (i, words) in words.chunks_exact_mut(block).enumerate() {
            pass::<BITS, HIGH, true>(prime, roots, node + i, words);
        }
        (node, block) = (4 * node, block / 4);
    }
    for (i, words) in words.as_chunks_mut::<TAIL>().0.iter_mut().enumerate() {
        let [a, b, c, d] = words.as_chunks_mut::<4>().0 else { return };
        let x = prime.split_twice([load(a), load(b), load(c), load(d)], roots_of(roots, node + i));
        let x = prime.split_twice(transpose(x), tail_roots(roots, node + i));
        let x = transpose(x.map(|x| prime.reduce(x)));
        store(a, x[0]);
        store(b, x[1]);
        store(c, x[2]);
        store(d, x[3]);
    }
}

#[target_feature(enable = "avx2")]
fn backward_at<const BITS: i32, const HIGH: i32>(modulus: Modulus, roots: &Roots, words: &mut [u64]) {
    let prime = Prime::<BITS, HIGH>::new(modulus);
    let scale = SplitRoot::one(roots.scale());
    if words.len().ilog2().is_multiple_of(2) {
        backward_block(prime, roots, 1, words);
        for x in words.as_chunks_mut::<4>().0 {
            let scaled = prime.reduce(prime.times(load(x), scale));
            store(x, scaled);
        }
        return;
    }
    let (left, right) = words.split_at_mut(words.len() / 2);
    backward_block(prime, roots, 2, left);
    backward_block(prime, roots, 3, right);
    // The last root has the scale in it.
    let factor = SplitRoot::one(roots.one(1));
    for (x, y) in left.as_chunks_mut::<4>().0.iter_mut().zip(right.as_chunks_mut::<4>().0) {
        let (a, b) = (load(x), load(y));
        let difference = _mm256_sub_epi64(_mm256_add_epi64(a, prime.twice), b);
        store(x, prime.reduce(prime.times(_mm256_add_epi64(a, b), scale)));
        store(y, prime.reduce(prime.times(difference, factor)));
    }
}

/// The stages of one block, last stage last.
#[target_feature(enable = "avx2")]
fn backward_block<const BITS: i32, const HIGH: i32>(
    prime: Prime<BITS, HIGH>,
    roots: &Roots,
    node: usize,
    words: &mut [u64],
) {
    if words.len() > CACHED {
        let quarter = words.len() / 4;
        for (i, words) in words.chunks_exact_mut(quarter).enumerate() {
            backward_block(prime, roots, 4 * node + i, words);
        }
        return pass::<BITS, HIGH, false>(prime, roots, node, words);
    }
    let mut level = words.len() / TAIL;
    for (i, words) in words.as_chunks_mut::<TAIL>().0.iter_mut().enumerate() {
        let [a, b, c, d] = words.as_chunks_mut::<4>().0 else { return };
        let x = transpose([load(a), load(b), load(c), load(d)]);
        let x = transpose(prime.merge_twice(x, tail_roots(roots, node * level + i)));
        let x = prime.merge_twice(x, roots_of(roots, node * level + i));
        store(a, x[0]);
        store(b, x[1]);
        store(c, x[2]);
        store(d, x[3]);
    }
    while level > 1 {
        level /= 4;
        let block = words.len() / level;
        for (i, words) in words.chunks_exact_mut(block).enumerate() {
            pass::<BITS, HIGH, false>(prime, roots, node * level + i, words);
        }
    }
}

/// Two stages over one block, forward or backward.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const BITS: i32, const HIGH: i32, const FORWARD: bool>(
    prime: Prime<BITS, HIGH>,
    roots: &Roots,
    node: usize,
    words: &mut [u64],
) {
    let factors = roots_of(roots, node);
    let (left, right) = words.split_at_mut(words.len() / 2);
    let ((a, b), (c, d)) = (left.split_at_mut(left.len() / 2), right.split_at_mut(right.len() / 2));
    let left = a.as_chunks_mut::<4>().0.iter_mut().zip(b.as_chunks_mut::<4>().0);
    let right = c.as_chunks_mut::<4>().0.iter_mut().zip(d.as_chunks_mut::<4>().0);
    for ((a, b), (c, d)) in left.zip(right) {
        let x = [load(a), load(b), load(c), load(d)];
        let x = if FORWARD { prime.split_twice(x, factors) } else { prime.merge_twice(x, factors) };
        store(a, x[0]);
        store(b, x[1]);
        store(c, x[2]);
        store(d, x[3]);
    }
}

/// The root of a node and those of its two children.
#[inline]
#[target_feature(enable = "avx2")]
fn roots_of(roots: &Roots, node: usize) -> [SplitRoot; 3] {
    [
        SplitRoot::one(roots.one(node)),
        SplitRoot::one(roots.one(2 * node)),
        SplitRoot::one(roots.one(2 * node + 1)),
    ]
}

/// The same for the four grandchildren of a node.
#[inline]
#[target_feature(enable = "avx2")]
fn tail_roots(roots: &Roots, node: usize) -> [SplitRoot; 3] {
    let (last, children) = (roots.four(node), roots.children(node));
    [SplitRoot::four(last), SplitRoot::four(children[0]), SplitRoot::four(children[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn transpose([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab_low, ab_high) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    [
        _mm256_permute2x128_si256::<0x20>(ab_low, cd_low),
        _mm256_permute2x128_si256::<0x20>(ab_high, cd_high),
        _mm256_permute2x128_si256::<0x31>(ab_low, cd_low),
        _mm256_permute2x128_si256::<0x31>(ab_high, cd_high),
    ]
}

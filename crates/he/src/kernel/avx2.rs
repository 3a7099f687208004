//! The AVX2 implementation: four points at a time, three 32-bit multiplications per product (Karatsuba), sums
//! kept in 64 bits, one vector reduction at the end.
#![expect(unsafe_code, reason = "loads, stores and calls of functions compiled for AVX2")]

mod transform;

use std::{arch::x86_64::*, borrow::BorrowMut};

use secsv_algebra::Modulus;

use super::{
    Avx2Token, BLOCK, CacheLine, Ciphertext, FOLD_AFTER, GroupAddress, SUMS, Sums, TILE, TileGroup, Words,
    complement,
    roots::Roots,
    tiles::{LOW_BITS, LOW_MASK},
};

pub(super) fn group(
    _: Avx2Token,
    modulus: Modulus,
    group: TileGroup<'_>,
    place: GroupAddress,
    width: usize,
    products: &mut [Ciphertext],
) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { group_avx2(modulus, group, place, width, products) }
}

#[target_feature(enable = "avx2")]
fn group_avx2(
    modulus: Modulus,
    group: TileGroup<'_>,
    place: GroupAddress,
    width: usize,
    products: &mut [Ciphertext],
) {
    let tiles = group.inner.div_ceil(TILE);
    let pairs = group.rows.len() * group.columns.len();
    let mut first = 0;
    loop {
        let last = (first + FOLD_AFTER / TILE).min(tiles);
        let mut sums = [Sums::ZERO; SUMS];
        for tile in first..last {
            let mut pair_sums = sums.chunks_exact_mut(place.blocks);
            for row in group.rows {
                let ciphers =
                    row.block_run(group.first_tile + tile, place.limb, place.first_block, place.blocks);
                for (column, sums) in group.columns.iter().zip(&mut pair_sums) {
                    let mut plains = [&[] as &[CacheLine]; TILE];
                    for (i, plain) in plains.iter_mut().enumerate().take(ciphers.1) {
                        *plain =
                            column.block_run(tile * TILE + i, place.limb, place.first_block, place.blocks);
                    }
                    let blocks = ciphers.0.chunks_exact(ciphers.1).enumerate();
                    for (sums, (block, ciphers)) in sums.iter_mut().zip(blocks) {
                        accumulate(sums, ciphers, &plains, block);
                    }
                }
            }
        }
        let fresh = group.first_tile + first == 0;
        for (pair, sums) in sums.chunks_exact(place.blocks).take(pairs).enumerate() {
            let (r, c) = (pair / group.columns.len(), pair % group.columns.len());
            let product = &mut products[(place.row + r) * width + place.column + c];
            for (block, sums) in sums.iter().enumerate() {
                fold(modulus, sums, product, (place.limb, place.first_block + block), fresh);
            }
        }
        first = last;
        if first >= tiles {
            return;
        }
    }
}

/// Coefficients to points.
pub(super) fn forward(_: Avx2Token, modulus: Modulus, roots: &Roots, words: &mut [u64], filled: usize) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { transform::forward(modulus, roots, words, filled) }
}

/// Points to coefficients.
pub(super) fn backward(_: Avx2Token, modulus: Modulus, roots: &Roots, words: &mut [u64]) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { transform::backward(modulus, roots, words) }
}

pub(super) fn weighted_sum<B: BorrowMut<[u64; BLOCK]>>(
    _: Avx2Token,
    modulus: Modulus,
    form: Words,
    terms: &[(u32, &[B])],
    target: &mut [B],
) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe {
        match form {
            Words::Split => weighted_sum_avx2::<true, B>(modulus, terms, target),
            Words::Plain => weighted_sum_avx2::<false, B>(modulus, terms, target),
        }
    }
}

/// Sums of weight times low half and weight times high half stay within a word: the weights add up to 32
/// bits.
#[target_feature(enable = "avx2")]
fn weighted_sum_avx2<const SPLIT: bool, B: BorrowMut<[u64; BLOCK]>>(
    modulus: Modulus,
    terms: &[(u32, &[B])],
    target: &mut [B],
) {
    let mask = _mm256_set1_epi64x(LOW_MASK as i64);
    for (i, line) in target.iter_mut().enumerate() {
        for half in 0..2 {
            let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
            for (weight, source) in terms {
                let weight = _mm256_set1_epi64x(i64::from(*weight));
                let word = load(half_of(source[i].borrow(), half));
                let (word_low, word_high) = if SPLIT {
                    (word, _mm256_srli_epi64::<32>(word))
                } else {
                    (_mm256_and_si256(word, mask), _mm256_srli_epi64::<{ LOW_BITS as i32 }>(word))
                };
                low = _mm256_add_epi64(low, _mm256_mul_epu32(word_low, weight));
                high = _mm256_add_epi64(high, _mm256_mul_epu32(word_high, weight));
            }
            let sum = reduce(modulus, low, high, _mm256_setzero_si256());
            let stored = if SPLIT {
                let high = _mm256_srli_epi64::<{ LOW_BITS as i32 }>(sum);
                _mm256_or_si256(_mm256_and_si256(sum, mask), _mm256_slli_epi64::<32>(high))
            } else {
                sum
            };
            store(&mut line.borrow_mut().as_chunks_mut::<4>().0[half], stored);
        }
    }
}

pub(super) fn multiply_add(_: Avx2Token, modulus: Modulus, a: &[u64], b: &[u64], target: &mut [u64]) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { multiply_add_avx2(modulus, a, b, target) }
}

#[target_feature(enable = "avx2")]
fn multiply_add_avx2(modulus: Modulus, a: &[u64], b: &[u64], target: &mut [u64]) {
    let operands = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
    for (target, (a, b)) in target.as_chunks_mut::<4>().0.iter_mut().zip(operands) {
        let product = multiply(modulus, load(a), load(b));
        let sum = correct(modulus, _mm256_add_epi64(product, load(target)));
        store(target, sum);
    }
}

pub(super) fn scale(_: Avx2Token, modulus: Modulus, factor: u64, words: &mut [u64]) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { scale_avx2(modulus, factor, words) }
}

#[target_feature(enable = "avx2")]
fn scale_avx2(modulus: Modulus, factor: u64, words: &mut [u64]) {
    let factor = _mm256_set1_epi64x(factor as i64);
    for word in words.as_chunks_mut::<4>().0 {
        let product = multiply(modulus, load(word), factor);
        store(word, product);
    }
}

pub(super) fn combine(_: Avx2Token, modulus: Modulus, terms: &[(u64, &[u64])], target: &mut [u64]) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { combine_avx2(modulus, terms, target) }
}

#[target_feature(enable = "avx2")]
fn combine_avx2(modulus: Modulus, terms: &[(u64, &[u64])], target: &mut [u64]) {
    for (i, target) in target.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let zero = _mm256_setzero_si256();
        let (mut low, mut middle, mut high) = (zero, zero, zero);
        for (factor, words) in terms {
            let [l, m, h] = product(load(&words.as_chunks::<4>().0[i]), _mm256_set1_epi64x(*factor as i64));
            (low, middle, high) =
                (_mm256_add_epi64(low, l), _mm256_add_epi64(middle, m), _mm256_add_epi64(high, h));
        }
        store(target, reduce(modulus, low, middle, high));
    }
}

pub(super) fn lift(_: Avx2Token, half: u64, gap: u64, elements: &[u64], target: &mut [u64]) {
    // SAFETY: the token exists only where AVX2 was detected.
    unsafe { lift_avx2(half, gap, elements, target) }
}

#[target_feature(enable = "avx2")]
fn lift_avx2(half: u64, gap: u64, elements: &[u64], target: &mut [u64]) {
    let (half, gap) = (_mm256_set1_epi64x(half as i64), _mm256_set1_epi64x(gap as i64));
    for (target, x) in target.as_chunks_mut::<4>().0.iter_mut().zip(elements.as_chunks::<4>().0) {
        let x = load(x);
        let negative = _mm256_cmpgt_epi64(x, half);
        store(target, _mm256_add_epi64(x, _mm256_and_si256(negative, gap)));
    }
}

/// Products of words below 2^57 with residues, reduced.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply(modulus: Modulus, a: __m256i, b: __m256i) -> __m256i {
    let [low, middle, high] = product(a, b);
    reduce(modulus, low, middle, high)
}

/// The same, not reduced: `low + middle * 2^27 + high * 2^54`.
#[inline]
#[target_feature(enable = "avx2")]
fn product(a: __m256i, b: __m256i) -> [__m256i; 3] {
    let mask = _mm256_set1_epi64x(LOW_MASK as i64);
    let (a_high, b_high) =
        (_mm256_srli_epi64::<{ LOW_BITS as i32 }>(a), _mm256_srli_epi64::<{ LOW_BITS as i32 }>(b));
    let (a_low, b_low) = (_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
    let low = _mm256_mul_epu32(a_low, b_low);
    let high = _mm256_mul_epu32(a_high, b_high);
    let cross = _mm256_mul_epu32(_mm256_add_epi64(a_low, a_high), _mm256_add_epi64(b_low, b_high));
    [low, _mm256_sub_epi64(cross, _mm256_add_epi64(low, high)), high]
}

/// Adds the products of one tile at one block.
#[inline]
#[target_feature(enable = "avx2")]
fn accumulate(sums: &mut Sums, ciphers: &[[CacheLine; 2]], plains: &[&[CacheLine]; TILE], block: usize) {
    let mask = _mm256_set1_epi64x(LOW_MASK as i64);
    for (half, sums) in sums.0.iter_mut().enumerate() {
        let [[mut low0, mut high0, mut cross0], [mut low1, mut high1, mut cross1]] = [
            [load(&sums[0][0]), load(&sums[0][1]), load(&sums[0][2])],
            [load(&sums[1][0]), load(&sums[1][1]), load(&sums[1][2])],
        ];
        for (cipher, plain) in ciphers.iter().zip(plains) {
            let plain = load(half_of(&plain[block].0, half));
            let plain_high = _mm256_srli_epi64::<{ LOW_BITS as i32 }>(plain);
            let plain = _mm256_and_si256(plain, mask);
            let plain_sum = _mm256_add_epi64(plain, plain_high);
            let c = load(half_of(&cipher[0].0, half));
            let c_high = _mm256_srli_epi64::<32>(c);
            low0 = _mm256_add_epi64(low0, _mm256_mul_epu32(c, plain));
            high0 = _mm256_add_epi64(high0, _mm256_mul_epu32(c_high, plain_high));
            cross0 = _mm256_add_epi64(cross0, _mm256_mul_epu32(_mm256_add_epi64(c, c_high), plain_sum));
            let c = load(half_of(&cipher[1].0, half));
            let c_high = _mm256_srli_epi64::<32>(c);
            low1 = _mm256_add_epi64(low1, _mm256_mul_epu32(c, plain));
            high1 = _mm256_add_epi64(high1, _mm256_mul_epu32(c_high, plain_high));
            cross1 = _mm256_add_epi64(cross1, _mm256_mul_epu32(_mm256_add_epi64(c, c_high), plain_sum));
        }
        for (word, sum) in sums.as_flattened_mut().iter_mut().zip([low0, high0, cross0, low1, high1, cross1])
        {
            store(word, sum);
        }
    }
}

/// Reduces the sums and writes them to the product, or adds them to what an earlier fold left there.
#[target_feature(enable = "avx2")]
fn fold(modulus: Modulus, sums: &Sums, product: &mut Ciphertext, at: (usize, usize), fresh: bool) {
    for part in 0..2 {
        let target = product.block_mut(part, at.0, at.1);
        for half in 0..2 {
            let [low, high, cross] = sums.0[half][part];
            let (low, high) = (load(&low), load(&high));
            // Exact although the crosswise sum may have wrapped: the true middle sum fits a word.
            let middle = _mm256_sub_epi64(load(&cross), _mm256_add_epi64(low, high));
            let mut reduced = reduce(modulus, low, middle, high);
            let slot: &mut [u64; 4] = &mut target.as_chunks_mut::<4>().0[half];
            if !fresh {
                reduced = correct(modulus, _mm256_add_epi64(reduced, load(slot)));
            }
            store(slot, reduced);
        }
    }
}

/// `low + middle * 2^27 + high * 2^54` modulo the limb, which is `2^bits - c` with a small c.
#[inline]
#[target_feature(enable = "avx2")]
fn reduce(modulus: Modulus, low: __m256i, middle: __m256i, high: __m256i) -> __m256i {
    let word_mask = _mm256_set1_epi64x(LOW_MASK as i64);
    let modulus_mask = _mm256_set1_epi64x((1i64 << modulus.bits()) - 1);
    let c = _mm256_set1_epi64x(complement(modulus) as i64);
    let shift = _mm_cvtsi64_si128(i64::from(modulus.bits() - 2 * LOW_BITS));
    // Carries: the value becomes rest + above * 2^bits with rest below 2^bits.
    let middle = _mm256_add_epi64(middle, _mm256_srli_epi64::<{ LOW_BITS as i32 }>(low));
    let high = _mm256_add_epi64(high, _mm256_srli_epi64::<{ LOW_BITS as i32 }>(middle));
    let above = _mm256_srl_epi64(high, shift);
    let rest = _mm256_or_si256(
        _mm256_and_si256(low, word_mask),
        _mm256_and_si256(
            _mm256_or_si256(
                _mm256_slli_epi64::<{ LOW_BITS as i32 }>(_mm256_and_si256(middle, word_mask)),
                _mm256_slli_epi64::<{ 2 * LOW_BITS as i32 }>(high),
            ),
            modulus_mask,
        ),
    );
    // 2^bits = c: fold the part above, its upper 32 bits in two steps.
    let near = _mm256_mul_epu32(above, c);
    let far = _mm256_mul_epu32(_mm256_srli_epi64::<32>(above), c);
    let far_low = _mm256_and_si256(_mm256_slli_epi64::<32>(far), modulus_mask);
    let far_shift = _mm_cvtsi64_si128(i64::from(modulus.bits() - 32));
    let far_high = _mm256_mul_epu32(_mm256_srl_epi64(far, far_shift), c);
    let sum = _mm256_add_epi64(_mm256_add_epi64(rest, near), _mm256_add_epi64(far_low, far_high));
    let bits = _mm_cvtsi64_si128(i64::from(modulus.bits()));
    let folded = _mm256_add_epi64(
        _mm256_and_si256(sum, modulus_mask),
        _mm256_mul_epu32(_mm256_srl_epi64(sum, bits), c),
    );
    correct(modulus, folded)
}

/// Subtracts the modulus where the value is not below it.
#[inline]
#[target_feature(enable = "avx2")]
fn correct(modulus: Modulus, x: __m256i) -> __m256i {
    let modulus = _mm256_set1_epi64x(modulus.value() as i64);
    let below = _mm256_cmpgt_epi64(modulus, x);
    _mm256_sub_epi64(x, _mm256_andnot_si256(below, modulus))
}

#[inline(always)]
fn half_of(line: &[u64; BLOCK], half: usize) -> &[u64; 4] {
    &line.as_chunks::<4>().0[half]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u64; 4]) -> __m256i {
    // SAFETY: four words are exactly the 32 bytes an unaligned load reads.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(words: &mut [u64; 4], value: __m256i) {
    // SAFETY: four words are exactly the 32 bytes an unaligned store writes.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), value) }
}

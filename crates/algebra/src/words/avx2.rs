//! Products of words by AVX2, which multiplies 32-bit halves: low times low, and the two mixed products, whose sum moves up by 32 bits
//! once, at the end.
#![expect(unsafe_code, reason = "loads, stores and a call of a function compiled for AVX2")]

use std::arch::x86_64::*;

use super::{Avx2Words, StripKernel};

/// Words of a vector.
const LANES: usize = 4;
/// Vectors of a strip.
const VECTORS: usize = 2;
const ROWS: usize = 2;

impl StripKernel for Avx2Words {
    const ROWS: usize = ROWS;
    const STRIP: usize = LANES * VECTORS;

    fn multiply(self, rows: &[&[u64]], strip: &[u64], sums: &mut [u64]) {
        // SAFETY: the token exists only where AVX2 was detected.
        unsafe { multiply(rows, strip, sums) }
    }
}

#[target_feature(enable = "avx2")]
fn multiply(rows: &[&[u64]], strip: &[u64], sums: &mut [u64]) {
    let (strip, _) = strip.as_chunks::<{ LANES * VECTORS }>();
    let mut low = [[_mm256_setzero_si256(); VECTORS]; ROWS];
    let mut mixed = low;
    for ((&a, &b), words) in rows[0].iter().zip(rows[1]).zip(strip) {
        let words = load(words);
        // Closures would not be compiled for AVX2 where library functions call them.
        let high = [_mm256_srli_epi64::<32>(words[0]), _mm256_srli_epi64::<32>(words[1])];
        let factors = [_mm256_set1_epi64x(a as i64), _mm256_set1_epi64x(b as i64)];
        for row in 0..ROWS {
            let factor = factors[row];
            let factor_high = _mm256_srli_epi64::<32>(factor);
            for j in 0..VECTORS {
                low[row][j] = _mm256_add_epi64(low[row][j], _mm256_mul_epu32(factor, words[j]));
                let one = _mm256_mul_epu32(factor, high[j]);
                let other = _mm256_mul_epu32(factor_high, words[j]);
                mixed[row][j] = _mm256_add_epi64(mixed[row][j], _mm256_add_epi64(one, other));
            }
        }
    }
    let (places, _) = sums.as_chunks_mut::<LANES>();
    for row in 0..ROWS {
        for j in 0..VECTORS {
            let sum = _mm256_add_epi64(low[row][j], _mm256_slli_epi64::<32>(mixed[row][j]));
            store(&mut places[row * VECTORS + j], sum);
        }
    }
}

#[target_feature(enable = "avx2")]
fn load(words: &[u64; LANES * VECTORS]) -> [__m256i; VECTORS] {
    let at = words.as_ptr();
    // SAFETY: the array has as many bytes as both vectors, and loads need no alignment.
    unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(LANES).cast())] }
}

#[target_feature(enable = "avx2")]
fn store(place: &mut [u64; LANES], words: __m256i) {
    // SAFETY: the array has as many bytes as the vector, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), words) }
}

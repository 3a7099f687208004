//! Products of words by AVX-512 DQ, which multiplies words.
#![expect(unsafe_code, reason = "loads, stores and a call of a function compiled for AVX-512")]

use std::arch::x86_64::*;

use super::{Avx512Words, StripKernel};

/// Words of a vector.
const LANES: usize = 8;
/// Vectors of a strip.
const VECTORS: usize = 2;
const ROWS: usize = 4;

impl StripKernel for Avx512Words {
    const ROWS: usize = ROWS;
    const STRIP: usize = LANES * VECTORS;

    fn multiply(self, rows: &[&[u64]], strip: &[u64], sums: &mut [u64]) {
        // SAFETY: the token exists only where AVX-512 F and DQ were detected.
        unsafe { multiply(rows, strip, sums) }
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn multiply(rows: &[&[u64]], strip: &[u64], sums: &mut [u64]) {
    let (strip, _) = strip.as_chunks::<{ LANES * VECTORS }>();
    let mut found = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    let factors = rows[0].iter().zip(rows[1]).zip(rows[2]).zip(rows[3]);
    for ((((&a, &b), &c), &d), words) in factors.zip(strip) {
        let words = load(words);
        let factors = [a, b, c, d];
        for row in 0..ROWS {
            let factor = _mm512_set1_epi64(factors[row] as i64);
            for j in 0..VECTORS {
                found[row][j] = _mm512_add_epi64(found[row][j], _mm512_mullo_epi64(factor, words[j]));
            }
        }
    }
    let (places, _) = sums.as_chunks_mut::<LANES>();
    for row in 0..ROWS {
        for j in 0..VECTORS {
            store(&mut places[row * VECTORS + j], found[row][j]);
        }
    }
}

#[target_feature(enable = "avx512f")]
fn load(words: &[u64; LANES * VECTORS]) -> [__m512i; VECTORS] {
    let at = words.as_ptr();
    // SAFETY: the array has as many bytes as both vectors, and loads need no alignment.
    unsafe { [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(LANES).cast())] }
}

#[target_feature(enable = "avx512f")]
fn store(place: &mut [u64; LANES], words: __m512i) {
    // SAFETY: the array has as many bytes as the vector, and the store needs no alignment.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), words) }
}

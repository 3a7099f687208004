//! AES-256 in counter mode by VAES: four blocks a vector, four vectors under way at a time.
#![expect(unsafe_code, reason = "stores and calls of functions compiled for VAES")]

use std::arch::x86_64::*;

use super::{
    AesToken, VaesToken,
    aes_ni::{self, KEYS, round_keys, wipe},
};

/// Blocks of a vector.
const LANES: usize = 4;
/// Vectors under way.
const VECTORS: usize = 4;

/// The blocks from number `first` on.
pub(super) fn blocks((aes, _): (AesToken, VaesToken), key: &[u8; 32], first: u64, out: &mut [[u64; 2]]) {
    let (runs, rest) = out.as_chunks_mut::<{ LANES * VECTORS }>();
    let count = (runs.len() * LANES * VECTORS) as u64;
    if !runs.is_empty() {
        // SAFETY: the tokens exist only where AES-NI, VAES and AVX-512 F were detected.
        unsafe { encrypt(key, first, runs) }
    }
    if !rest.is_empty() {
        aes_ni::blocks(aes, key, first.wrapping_add(count), rest);
    }
}

#[target_feature(enable = "aes,sse2,vaes,avx512f")]
fn encrypt(key: &[u8; 32], first: u64, runs: &mut [[[u64; 2]; LANES * VECTORS]]) {
    let mut keys = round_keys(key);
    // Closures would not be compiled for VAES where library functions call them.
    let mut wide = [_mm512_setzero_si512(); KEYS];
    for round in 0..KEYS {
        wide[round] = _mm512_broadcast_i32x4(keys[round]);
    }
    let begin = _mm512_set1_epi64(first as i64);
    // Numbers stand in the lower half of each block.
    let mut numbers = [_mm512_setzero_si512(); VECTORS];
    for (vector, numbers) in numbers.iter_mut().enumerate() {
        let from = (vector * LANES) as i64;
        let offsets = _mm512_set_epi64(0, from + 3, 0, from + 2, 0, from + 1, 0, from);
        *numbers = _mm512_maskz_add_epi64(0b0101_0101, begin, offsets);
    }
    let next = _mm512_maskz_set1_epi64(0b0101_0101, (LANES * VECTORS) as i64);
    for run in runs {
        let mut states = numbers;
        for state in &mut states {
            *state = _mm512_xor_si512(*state, wide[0]);
        }
        for key in &wide[1..KEYS - 1] {
            for state in &mut states {
                *state = _mm512_aesenc_epi128(*state, *key);
            }
        }
        let (places, _) = run.as_chunks_mut::<LANES>();
        for (place, state) in places.iter_mut().zip(states) {
            let blocks = _mm512_aesenclast_epi128(state, wide[KEYS - 1]);
            // SAFETY: the place has as many bytes as the vector, and the store needs no alignment.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), blocks) }
        }
        for numbers in &mut numbers {
            *numbers = _mm512_add_epi64(*numbers, next);
        }
    }
    wipe(&mut keys);
    wide.fill(_mm512_setzero_si512());
    std::hint::black_box(&wide);
}

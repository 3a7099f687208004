//! AES-256 in counter mode by AES-NI, eight blocks under way at a time.
#![expect(unsafe_code, reason = "loads, stores and calls of functions compiled for AES-NI")]

use std::arch::x86_64::*;

use super::AesToken;

/// Blocks under way.
const AT_ONCE: usize = 8;
/// Round keys of AES-256.
pub(super) const KEYS: usize = 15;

/// The blocks from number `first` on.
pub(super) fn blocks(_: AesToken, key: &[u8; 32], first: u64, out: &mut [[u64; 2]]) {
    // SAFETY: the token exists only where AES-NI and SSE2 were detected.
    unsafe { encrypt(key, first, out) }
}

#[target_feature(enable = "aes,sse2")]
fn encrypt(key: &[u8; 32], first: u64, out: &mut [[u64; 2]]) {
    let mut keys = round_keys(key);
    let mut number = first;
    for places in out.chunks_mut(AT_ONCE) {
        let mut states = [_mm_setzero_si128(); AT_ONCE];
        for state in &mut states {
            *state = _mm_xor_si128(_mm_set_epi64x(0, number as i64), keys[0]);
            number = number.wrapping_add(1);
        }
        for key in &keys[1..KEYS - 1] {
            for state in &mut states {
                *state = _mm_aesenc_si128(*state, *key);
            }
        }
        for (place, state) in places.iter_mut().zip(states) {
            let block = _mm_aesenclast_si128(state, keys[KEYS - 1]);
            // SAFETY: the place has as many bytes as the vector, and the store needs no alignment.
            unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), block) }
        }
    }
    wipe(&mut keys);
}

/// Overwrites round keys; the compiler may not leave it out.
#[target_feature(enable = "sse2")]
pub(super) fn wipe(keys: &mut [__m128i; KEYS]) {
    keys.fill(_mm_setzero_si128());
    std::hint::black_box(&*keys);
}

/// The key schedule of FIPS 197.
#[target_feature(enable = "aes,sse2")]
pub(super) fn round_keys(key: &[u8; 32]) -> [__m128i; KEYS] {
    let mut keys = [_mm_setzero_si128(); KEYS];
    // SAFETY: the key has as many bytes as two vectors, and the loads need no alignment.
    unsafe {
        keys[0] = _mm_loadu_si128(key.as_ptr().cast());
        keys[1] = _mm_loadu_si128(key.as_ptr().add(16).cast());
    }
    // The constant of a round is a part of its instruction.
    macro_rules! even {
        ($key:literal, $constant:literal) => {
            let assist = _mm_aeskeygenassist_si128::<$constant>(keys[$key - 1]);
            keys[$key] = added(keys[$key - 2], _mm_shuffle_epi32::<0xff>(assist));
        };
    }
    macro_rules! odd {
        ($key:literal) => {
            let assist = _mm_aeskeygenassist_si128::<0>(keys[$key - 1]);
            keys[$key] = added(keys[$key - 2], _mm_shuffle_epi32::<0xaa>(assist));
        };
    }
    even!(2, 0x01);
    odd!(3);
    even!(4, 0x02);
    odd!(5);
    even!(6, 0x04);
    odd!(7);
    even!(8, 0x08);
    odd!(9);
    even!(10, 0x10);
    odd!(11);
    even!(12, 0x20);
    odd!(13);
    even!(14, 0x40);
    keys
}

/// Every 32-bit word of a key plus all words before it and the assist.
#[target_feature(enable = "sse2")]
fn added(key: __m128i, assist: __m128i) -> __m128i {
    let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    let key = _mm_xor_si128(key, _mm_slli_si128::<8>(key));
    _mm_xor_si128(key, assist)
}

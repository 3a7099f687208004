//! A pseudo-random generator: ChaCha20 from a 32-byte seed.

use rand::{CryptoRng, RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroize;

use crate::Secret;

/// 32 secret bytes that stand for a stream. Two parties with the same seed draw the same stream.
#[derive(Clone)]
pub struct Seed(Secret<[u8; 32]>);

impl Seed {
    /// A seed from bytes the caller got from a cryptographic source.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// A fresh seed from the caller's generator.
    pub fn random(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        Self::from_bytes(bytes)
    }

    /// The bytes, for the codec that seals or sends the seed.
    pub fn expose(&self) -> &[u8; 32] {
        self.0.expose()
    }

    /// A seed for one use, by name: streams of different names are independent.
    pub fn derive(&self, purpose: &str, index: u64) -> Self {
        let mut hash = blake3::Hasher::new_keyed(self.expose());
        hash.update(&(purpose.len() as u64).to_le_bytes());
        hash.update(purpose.as_bytes());
        hash.update(&index.to_le_bytes());
        Self::from_bytes(*hash.finalize().as_bytes())
    }
}

/// The stream of a [`Seed`].
pub struct Prg(ChaCha20Rng);

impl Prg {
    /// Starts the stream at its beginning.
    pub fn new(seed: &Seed) -> Self {
        Self(ChaCha20Rng::from_seed(*seed.expose()))
    }

    /// Fills a slice with uniform words.
    pub fn fill_words(&mut self, out: &mut [u64]) {
        let mut bytes = [0u8; 512];
        for chunk in out.chunks_mut(64) {
            let used = &mut bytes[..chunk.len() * 8];
            self.0.fill_bytes(used);
            for (word, b) in chunk.iter_mut().zip(used.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*b);
            }
        }
        bytes.zeroize();
    }

    /// Fills a slice with uniform numbers below `bound`: words cut to its length, those not below it thrown
    /// away. What is thrown away says nothing about what is kept.
    pub fn fill_uniform(&mut self, bound: u64, out: &mut [u64]) {
        let mask = u64::MAX >> bound.leading_zeros();
        self.fill_words(out);
        for word in out {
            *word &= mask;
            while *word >= bound {
                *word = self.0.next_u64() & mask;
            }
        }
    }
}

impl Drop for Prg {
    fn drop(&mut self) {
        // The generator offers no wipe: overwrite its state and keep the compiler from dropping the write.
        self.0 = ChaCha20Rng::from_seed([0; 32]);
        std::hint::black_box(&self.0);
    }
}

impl RngCore for Prg {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

impl CryptoRng for Prg {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_purposes_differ() {
        let seed = Seed::from_bytes([1; 32]);
        let draw = |s: &Seed| {
            let mut out = [0; 100];
            Prg::new(s).fill_uniform(1000, &mut out);
            out
        };
        assert_eq!(draw(&seed), draw(&seed.clone()));
        assert_ne!(draw(&seed.derive("a", 0)), draw(&seed.derive("a", 1)));
        assert_ne!(draw(&seed.derive("a", 0)), draw(&seed.derive("b", 0)));
        assert!(draw(&seed).iter().all(|&x| x < 1000));
    }

    #[test]
    fn uniform_numbers_fill_their_range_evenly() {
        let bound = 3u64 << 40;
        let mut out = vec![0; 30_000];
        Prg::new(&Seed::from_bytes([2; 32])).fill_uniform(bound, &mut out);
        for third in 0..3u64 {
            let count = out.iter().filter(|&&x| x >> 40 == third).count();
            assert!((9_500..10_500).contains(&count), "third {third} drew {count} of 30000");
        }
    }
}

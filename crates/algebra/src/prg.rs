//! A pseudo-random generator: ChaCha20 from a 32-byte seed.

use rand::{CryptoRng, RngCore, SeedableRng};
use rand_chacha::{ChaCha20Core, rand_core::block::BlockRngCore};

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

    /// A seed for one use on this content: the stream that covers other content is independent. So what is
    /// encoded twice by mistake, and differs, is never covered by the same stream.
    pub fn covering(&self, content: &[u8]) -> Self {
        Self::from_bytes(*blake3::keyed_hash(self.expose(), content).as_bytes())
    }

    /// The same for words.
    pub fn covering_words<'a>(&self, content: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut hash = blake3::Hasher::new_keyed(self.expose());
        let mut bytes = Secret::new(vec![0; 8 * WORDS_AT_ONCE]);
        for words in content {
            hash.update(&(words.len() as u64).to_le_bytes());
            for words in words.chunks(WORDS_AT_ONCE) {
                let bytes = &mut bytes.expose_mut()[..8 * words.len()];
                let (places, _) = bytes.as_chunks_mut::<8>();
                places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
                hash.update(bytes);
            }
        }
        Self::from_bytes(*hash.finalize().as_bytes())
    }
}

/// Words that are hashed in one go.
const WORDS_AT_ONCE: usize = 2048;

/// The stream of a [`Seed`]: the words that `ChaCha20Rng` gives, taken from its blocks directly, which is
/// twice as fast where many are needed.
pub struct Prg {
    core: ChaCha20Core,
    block: <ChaCha20Core as BlockRngCore>::Results,
    /// Words of the block that were given away.
    used: usize,
}

impl Prg {
    /// Starts the stream at its beginning.
    pub fn new(seed: &Seed) -> Self {
        let core = ChaCha20Core::from_seed(*seed.expose());
        Self { core, block: Default::default(), used: usize::MAX }
    }

    /// The rest of the block, or of a new one if nothing is left of it.
    fn rest(&mut self) -> &[u32] {
        if self.used >= self.block.as_ref().len() {
            self.core.generate(&mut self.block);
            self.used = 0;
        }
        &self.block.as_ref()[self.used..]
    }

    /// Fills a slice with uniform words.
    pub fn fill_words(&mut self, out: &mut [u64]) {
        let mut filled = 0;
        while filled < out.len() {
            let (pairs, _) = self.rest().as_chunks::<2>();
            let count = pairs.len().min(out.len() - filled);
            out[filled..].iter_mut().zip(pairs).for_each(|(word, &pair)| *word = joined(pair));
            self.used += 2 * count;
            filled += count;
            // A word across two blocks.
            if count == 0 {
                out[filled] = self.next_u64();
                filled += 1;
            }
        }
    }

    /// Fills a slice with uniform numbers below `bound`: words cut to its length, those not below it thrown
    /// away. What is thrown away says nothing about what is kept.
    pub fn fill_uniform(&mut self, bound: u64, out: &mut [u64]) {
        let mask = u64::MAX >> bound.leading_zeros();
        self.fill_words(out);
        for word in out {
            *word &= mask;
            while *word >= bound {
                *word = self.next_u64() & mask;
            }
        }
    }
}

impl Prg {
    /// Fills a slice with uniform numbers below `bound`, from no more bits each than a power of two.
    pub fn fill_small(&mut self, bound: u16, out: &mut [u16]) {
        let mask = u16::MAX >> bound.leading_zeros();
        let bits = mask.count_ones().next_power_of_two();
        let in_word = (u64::BITS / bits) as usize;
        let mut words = Secret::new([0; 64]);
        let mut filled = 0;
        while filled < out.len() {
            let words = words.expose_mut();
            let count = (out.len() - filled).div_ceil(in_word).min(words.len());
            self.fill_words(&mut words[..count]);
            for word in &words[..count] {
                for k in 0..in_word as u32 {
                    let Some(next) = out.get_mut(filled) else { return };
                    *next = (word >> (k * bits)) as u16 & mask;
                    filled += usize::from(*next < bound);
                }
            }
        }
    }
}

fn joined([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Drop for Prg {
    fn drop(&mut self) {
        // The generator offers no wipe: overwrite its state and keep the compiler from dropping the write.
        self.core = ChaCha20Core::from_seed([0; 32]);
        self.block = Default::default();
        std::hint::black_box((&self.core, self.block.as_ref()));
    }
}

impl RngCore for Prg {
    fn next_u32(&mut self) -> u32 {
        let word = self.rest()[0];
        self.used += 1;
        word
    }

    fn next_u64(&mut self) -> u64 {
        if let [low, high, ..] = *self.rest() {
            self.used += 2;
            return joined([low, high]);
        }
        let low = self.next_u32();
        joined([low, self.next_u32()])
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<4>();
        let mut filled = 0;
        while filled < words.len() {
            let there = self.rest();
            let count = there.len().min(words.len() - filled);
            words[filled..].iter_mut().zip(there).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            self.used += count;
            filled += count;
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&self.next_u32().to_le_bytes()[..rest.len()]);
        }
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
    fn the_stream_is_the_generator_s() {
        let mut ours = Prg::new(&Seed::from_bytes([3; 32]));
        let mut theirs = rand_chacha::ChaCha20Rng::from_seed([3; 32]);
        for count in (0..40).chain([64, 63, 200, 1000]) {
            let mut words = vec![0; count];
            ours.fill_words(&mut words);
            assert!(words.iter().all(|&word| word == theirs.next_u64()), "{count} words");
            assert_eq!(ours.next_u32(), theirs.next_u32());
            let (mut bytes, mut expected) = (vec![0; count], vec![0; count]);
            ours.fill_bytes(&mut bytes);
            theirs.fill_bytes(&mut expected);
            assert_eq!(bytes, expected);
            assert_eq!(ours.next_u64(), theirs.next_u64());
        }
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

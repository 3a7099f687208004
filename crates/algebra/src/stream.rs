//! Streams of a seed by AES-256 in counter mode: many gigabytes a second where the machine has AES, and seekable, so that a party draws
//! any part of a stream without what stands before it. Every implementation gives the same bytes; which one runs is chosen at run time.

#[cfg(target_arch = "x86_64")]
mod aes_ni;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vaes;

use crate::{Secret, Seed};

/// Words of a block.
const BLOCK: usize = 2;

/// An implementation of AES-256 in counter mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKernel {
    /// The `aes` crate.
    Portable,
    /// AES-NI, a block at a time.
    #[cfg(target_arch = "x86_64")]
    AesNi(AesToken),
    /// VAES with AVX-512, four blocks at a time.
    #[cfg(target_arch = "x86_64")]
    Vaes(AesToken, VaesToken),
}

/// Proof that the machine has AES-NI.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AesToken(());

/// Proof that the machine has VAES and AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VaesToken(());

impl StreamKernel {
    /// All that this machine can run, the fastest first.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected;
            if is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse2") {
                if is_x86_feature_detected!("vaes") && is_x86_feature_detected!("avx512f") {
                    found.push(Self::Vaes(AesToken(()), VaesToken(())));
                }
                found.push(Self::AesNi(AesToken(())));
            }
        }
        found.push(Self::Portable);
        found
    }

    /// The fastest that this machine can run.
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::AesNi(_) => "aes-ni",
            #[cfg(target_arch = "x86_64")]
            Self::Vaes(..) => "vaes",
        }
    }
}

/// The stream of a seed. Block i is the encryption of the number i, as 16 bytes, the lowest first; its words are its bytes, the
/// lowest first. A seed stands for this stream or for that of [`Prg`](crate::Prg): whoever derives one says which.
pub struct Stream {
    key: Secret<[u8; 32]>,
    kernel: StreamKernel,
}

impl Stream {
    /// The stream that a seed stands for.
    pub fn new(seed: &Seed) -> Self {
        Self::by(StreamKernel::detect(), seed)
    }

    /// The same by one implementation.
    pub fn by(kernel: StreamKernel, seed: &Seed) -> Self {
        Self { key: Secret::new(*seed.expose()), kernel }
    }

    /// Fills a slice with the words of the stream from word `first` on.
    pub fn fill_words(&self, first: u64, out: &mut [u64]) {
        let mut block = first / BLOCK as u64;
        let mut out = out;
        // A part of a block at the beginning.
        if first % BLOCK as u64 == 1 && !out.is_empty() {
            let mut words = Secret::new([[0; BLOCK]]);
            self.blocks(block, words.expose_mut());
            let (head, rest) = out.split_at_mut(1);
            head[0] = words.expose()[0][1];
            out = rest;
            block += 1;
        }
        let (whole, rest) = out.as_chunks_mut::<BLOCK>();
        let count = whole.len() as u64;
        self.blocks(block, whole);
        if let [last] = rest {
            let mut words = Secret::new([[0; BLOCK]]);
            self.blocks(block + count, words.expose_mut());
            *last = words.expose()[0][0];
        }
    }

    fn blocks(&self, first: u64, out: &mut [[u64; BLOCK]]) {
        let key = self.key.expose();
        match self.kernel {
            StreamKernel::Portable => portable::blocks(key, first, out),
            #[cfg(target_arch = "x86_64")]
            StreamKernel::AesNi(token) => aes_ni::blocks(token, key, first, out),
            #[cfg(target_arch = "x86_64")]
            StreamKernel::Vaes(aes, vaes) => vaes::blocks((aes, vaes), key, first, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The AES-256 example of FIPS 197, C.3: the block that is encrypted is a number here.
    #[test]
    fn a_block_is_the_standard_s() {
        let key: [u8; 32] = std::array::from_fn(|i| i as u8);
        // Encryption of zero and of one under this key.
        for kernel in StreamKernel::available() {
            let mut words = [0; 4];
            Stream::by(kernel, &Seed::from_bytes(key)).fill_words(0, &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(bytes[..16], hex("f29000b62a499fd0a9f39a6add2e7780"), "{}", kernel.name());
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn every_kernel_gives_the_same_words_from_anywhere(
            seed: [u8; 32], first in 0u64..100_000, count in 0usize..700,
        ) {
            let seed = Seed::from_bytes(seed);
            let mut whole = vec![0; count + 64];
            let from = first.saturating_sub(64);
            Stream::by(StreamKernel::Portable, &seed).fill_words(from, &mut whole);
            let expected = &whole[(first - from) as usize..][..count];
            for kernel in StreamKernel::available() {
                let mut words = vec![0; count];
                Stream::by(kernel, &seed).fill_words(first, &mut words);
                prop_assert_eq!(&words[..], expected, "{}", kernel.name());
            }
        }
    }

    #[test]
    fn streams_of_two_seeds_differ() {
        let draw = |byte| {
            let mut words = [0; 100];
            Stream::new(&Seed::from_bytes([byte; 32])).fill_words(0, &mut words);
            words
        };
        assert!(draw(1).iter().zip(&draw(2)).all(|(one, other)| one != other));
    }
}

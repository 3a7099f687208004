//! The numbers that shares and matrices are made of: a finite ring whose elements fit a word.

use std::fmt::Debug;

use crate::{Prg, Seed, Stream};

/// A finite ring with word-sized elements. Elements are plain words; the ring travels with the matrix that
/// holds them, so elements of different rings cannot meet unnoticed.
pub trait Ring: Copy + Debug + PartialEq + Eq + Send + Sync + 'static {
    /// The modulus, or 0 for 2^64.
    fn modulus(self) -> u64;
    /// Bits of the largest element.
    fn bits(self) -> u32;
    /// Sum.
    fn add(self, a: u64, b: u64) -> u64;
    /// Difference.
    fn sub(self, a: u64, b: u64) -> u64;
    /// Product.
    fn mul(self, a: u64, b: u64) -> u64;
    /// The element that stands for a signed integer of magnitude below half the modulus.
    fn embed(self, x: i64) -> u64;
    /// The signed integer of smallest magnitude that an element stands for.
    fn centre(self, x: u64) -> i64;
    /// Whether a word is an element.
    fn contains(self, x: u64) -> bool;
    /// Fills a slice with uniform elements.
    fn fill_uniform(self, prg: &mut Prg, out: &mut [u64]);

    /// Fills a slice with the uniform elements that a seed stands for.
    fn fill_seeded(self, seed: &Seed, out: &mut [u64]) {
        self.fill_uniform(&mut Prg::new(seed), out);
    }
}

/// The integers modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring64;

impl Ring for Ring64 {
    fn modulus(self) -> u64 {
        0
    }
    fn bits(self) -> u32 {
        64
    }
    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(self, a: u64, b: u64) -> u64 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn mul(self, a: u64, b: u64) -> u64 {
        a.wrapping_mul(b)
    }
    fn embed(self, x: i64) -> u64 {
        x as u64
    }
    fn centre(self, x: u64) -> i64 {
        x as i64
    }
    fn contains(self, _: u64) -> bool {
        true
    }
    fn fill_uniform(self, prg: &mut Prg, out: &mut [u64]) {
        prg.fill_words(out);
    }
    /// The words of [`Stream`]: no element is thrown away, so a stream by AES serves.
    fn fill_seeded(self, seed: &Seed, out: &mut [u64]) {
        Stream::new(seed).fill_words(0, out);
    }
}

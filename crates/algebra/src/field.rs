//! The prime fields Z_p in which secrets are shared and the encryption scheme computes.

use crate::{AlgebraError, Modulus, Prg, Ring};

/// The integers modulo a prime p that is 1 modulo 32768, so that polynomials of degree up to 16384 split into
/// slots modulo p.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(Modulus);

impl Field {
    /// p of the preset `standard`: 41 bits.
    pub const STANDARD: u64 = 0x1ff_ffff_0001;
    /// p of the preset `compact`: 40 bits.
    pub const COMPACT: u64 = 0xff_ffe8_0001;

    /// Checks that `p` is a prime of 20 to 44 bits and 1 modulo 32768.
    pub fn new(p: u64) -> Result<Self, AlgebraError> {
        let modulus = Modulus::new(p)?;
        if p % 32768 != 1 || !(20..=44).contains(&modulus.bits()) {
            return Err(AlgebraError::BadModulus { found: p, max_bits: 44 });
        }
        Ok(Self(modulus))
    }

    /// The field of the preset `standard`.
    pub fn standard() -> Self {
        Self::new(Self::STANDARD).expect("a constant prime that the tests check")
    }

    /// The field of the preset `compact`.
    pub fn compact() -> Self {
        Self::new(Self::COMPACT).expect("a constant prime that the tests check")
    }

    /// Reduction and its kin.
    pub const fn arithmetic(self) -> Modulus {
        self.0
    }
}

impl Ring for Field {
    fn modulus(self) -> u64 {
        self.0.value()
    }
    fn bits(self) -> u32 {
        self.0.bits()
    }
    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: u64, b: u64) -> u64 {
        self.0.sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: u64, b: u64) -> u64 {
        self.0.mul(a, b)
    }
    fn embed(self, x: i64) -> u64 {
        self.0.embed(x)
    }
    fn centre(self, x: u64) -> i64 {
        self.0.centre(x)
    }
    fn contains(self, x: u64) -> bool {
        x < self.0.value()
    }
    fn fill_uniform(self, prg: &mut Prg, out: &mut [u64]) {
        prg.fill_uniform(self.0.value(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_primes_are_what_they_claim() {
        for (field, bits) in [(Field::standard(), 41), (Field::compact(), 40)] {
            assert_eq!(field.bits(), bits);
            assert_eq!(field.modulus() % 32768, 1);
        }
    }

    #[test]
    fn primes_that_do_not_split_are_refused() {
        assert!(Field::new(0x3fffffffef8003).is_err());
        assert!(Field::new(65537).is_err(), "too small to share fixed-point numbers in");
    }
}

//! Arithmetic modulo one odd prime of at most 62 bits, branch-free in the values.

use crate::AlgebraError;

/// An odd prime with the constants of Barrett reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus {
    value: u64,
    /// floor(2^128 / value): high and low word.
    ratio: (u64, u64),
}

impl Modulus {
    /// The widest modulus: four of them still add up within a word.
    pub const MAX_BITS: u32 = 62;

    /// Checks that `value` is an odd prime of at most [`Self::MAX_BITS`] bits.
    pub fn new(value: u64) -> Result<Self, AlgebraError> {
        if value < 3 || value.is_multiple_of(2) || value >> Self::MAX_BITS != 0 || !is_prime(value) {
            return Err(AlgebraError::BadModulus { found: value, max_bits: Self::MAX_BITS });
        }
        // value is no power of two, so floor((2^128 - 1) / value) = floor(2^128 / value).
        let ratio = u128::MAX / u128::from(value);
        Ok(Self { value, ratio: ((ratio >> 64) as u64, ratio as u64) })
    }

    /// The prime itself.
    pub const fn value(self) -> u64 {
        self.value
    }

    /// Bits of the prime.
    pub const fn bits(self) -> u32 {
        64 - self.value.leading_zeros()
    }

    /// `x` if below the modulus, `x - modulus` otherwise; `x` must be below twice the modulus.
    #[inline(always)]
    pub const fn correct(self, x: u64) -> u64 {
        let (difference, borrow) = x.overflowing_sub(self.value);
        difference.wrapping_add(self.value & (borrow as u64).wrapping_neg())
    }

    /// Sum of two residues.
    #[inline(always)]
    pub const fn add(self, a: u64, b: u64) -> u64 {
        self.correct(a + b)
    }

    /// Difference of two residues.
    #[inline(always)]
    pub const fn sub(self, a: u64, b: u64) -> u64 {
        self.correct(a + self.value - b)
    }

    /// Minus a residue.
    #[inline(always)]
    pub const fn neg(self, a: u64) -> u64 {
        self.correct(self.value - a)
    }

    /// Product of two residues.
    #[inline(always)]
    pub const fn mul(self, a: u64, b: u64) -> u64 {
        self.reduce_wide(a as u128 * b as u128)
    }

    /// A word modulo the prime.
    #[inline(always)]
    pub const fn reduce(self, x: u64) -> u64 {
        let quotient = ((x as u128 * self.ratio.0 as u128) >> 64) as u64;
        self.correct(x.wrapping_sub(quotient.wrapping_mul(self.value)))
    }

    /// Any double word modulo the prime.
    #[inline(always)]
    pub const fn reduce_wide(self, x: u128) -> u64 {
        let (high, low) = ((x >> 64) as u64, x as u64);
        // floor(x * ratio / 2^128), at most 2 too small because lower partial products are cut.
        let middle = (high as u128 * self.ratio.1 as u128) + ((low as u128 * self.ratio.1 as u128) >> 64);
        let other = low as u128 * self.ratio.0 as u128;
        let (sum, carry) = middle.overflowing_add(other);
        let quotient = (high as u128 * self.ratio.0 as u128) + (sum >> 64) + ((carry as u128) << 64);
        let rest = low.wrapping_sub((quotient as u64).wrapping_mul(self.value));
        self.correct(self.correct(rest))
    }

    /// A signed number modulo the prime; its magnitude must be below the modulus.
    #[inline(always)]
    pub const fn embed(self, x: i64) -> u64 {
        (x as u64).wrapping_add(self.value & ((x >> 63) as u64))
    }

    /// The representative of a residue in `(-modulus/2, modulus/2]`.
    #[inline(always)]
    pub const fn centre(self, x: u64) -> i64 {
        let above = (self.value / 2).wrapping_sub(x) >> 63;
        x.wrapping_sub(self.value & above.wrapping_neg()) as i64
    }

    /// `base` to the power of a public exponent.
    pub const fn pow(self, base: u64, mut exponent: u64) -> u64 {
        let (mut result, mut square) = (1, base);
        while exponent != 0 {
            if exponent & 1 == 1 {
                result = self.mul(result, square);
            }
            square = self.mul(square, square);
            exponent >>= 1;
        }
        result
    }

    /// The inverse of a residue; 0 for 0.
    pub const fn inverse(self, x: u64) -> u64 {
        self.pow(x, self.value - 2)
    }
}

/// A constant factor of one modulus with its precomputed quotient: products cost two multiplications (Shoup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    value: u64,
    quotient: u64,
    modulus: u64,
}

impl Factor {
    /// Prepares a residue of the modulus.
    pub fn new(modulus: Modulus, value: u64) -> Self {
        let quotient = ((u128::from(value) << 64) / u128::from(modulus.value())) as u64;
        Self { value, quotient, modulus: modulus.value() }
    }

    /// The factor itself.
    pub const fn value(self) -> u64 {
        self.value
    }

    /// The product with any word, below twice the modulus.
    #[inline(always)]
    const fn multiply_lazily(self, x: u64) -> u64 {
        let quotient = ((x as u128 * self.quotient as u128) >> 64) as u64;
        x.wrapping_mul(self.value).wrapping_sub(quotient.wrapping_mul(self.modulus))
    }

    /// The product with any word, reduced.
    #[inline(always)]
    pub const fn multiply(self, x: u64) -> u64 {
        let product = self.multiply_lazily(x);
        let (difference, borrow) = product.overflowing_sub(self.modulus);
        difference.wrapping_add(self.modulus & (borrow as u64).wrapping_neg())
    }
}

/// Miller-Rabin with the bases that decide every 64-bit number.
const fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    let mut i = 0;
    while i < BASES.len() {
        if n == BASES[i] {
            return true;
        }
        if n.is_multiple_of(BASES[i]) {
            return false;
        }
        i += 1;
    }
    let shift = (n - 1).trailing_zeros();
    i = 0;
    while i < BASES.len() {
        if !survives(n, BASES[i], shift) {
            return false;
        }
        i += 1;
    }
    true
}

/// Whether `n` behaves like a prime towards this base; n - 1 = odd * 2^shift.
const fn survives(n: u64, base: u64, shift: u32) -> bool {
    const fn mul(a: u64, b: u64, n: u64) -> u64 {
        (a as u128 * b as u128 % n as u128) as u64
    }
    let (mut exponent, mut square, mut x) = ((n - 1) >> shift, base % n, 1);
    while exponent != 0 {
        if exponent & 1 == 1 {
            x = mul(x, square, n);
        }
        square = mul(square, square, n);
        exponent >>= 1;
    }
    if x == 1 || x == n - 1 {
        return true;
    }
    let mut round = 1;
    while round < shift {
        x = mul(x, x, n);
        if x == n - 1 {
            return true;
        }
        round += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRIMES: [u64; 6] =
        [3, 0xffffe80001, 0x3fffffa8001, 0x3fffffffef8001, 0x7ffffffffb4001, 4611686018427387847];

    proptest! {
        #[test]
        fn agrees_with_wide_integers(which in 0..PRIMES.len(), x: u128, y: u64) {
            let m = Modulus::new(PRIMES[which]).unwrap();
            let q = u128::from(m.value());
            let (a, b) = ((x % q) as u64, (u128::from(y) % q) as u64);
            prop_assert_eq!(u128::from(m.reduce_wide(x)), x % q);
            prop_assert_eq!(u128::from(m.reduce(y)), u128::from(y) % q);
            prop_assert_eq!(u128::from(m.mul(a, b)), u128::from(a) * u128::from(b) % q);
            prop_assert_eq!(u128::from(m.add(a, b)), (u128::from(a) + u128::from(b)) % q);
            prop_assert_eq!(m.add(m.sub(a, b), b), a);
            prop_assert_eq!(m.add(m.neg(a), a), 0);
            prop_assert_eq!(m.embed(m.centre(a)), a);
            prop_assert!(m.centre(a).unsigned_abs() <= m.value() / 2);
            prop_assert_eq!(m.mul(a, m.inverse(a)), u64::from(a != 0));
            prop_assert_eq!(Factor::new(m, a).multiply(y), m.mul(a, m.reduce(y)));
        }
    }

    #[test]
    fn extremes_reduce_exactly() {
        for q in PRIMES {
            let m = Modulus::new(q).unwrap();
            for x in [0, u128::from(q) - 1, u128::from(q), u128::MAX, u128::MAX - 1, u128::from(u64::MAX)] {
                assert_eq!(u128::from(m.reduce_wide(x)), x % u128::from(q), "{x} mod {q}");
            }
        }
    }

    #[test]
    fn composites_evens_and_wide_numbers_are_refused() {
        for bad in [0, 1, 2, 9, 0xffffe80001 * 3, 3215031751, u64::MAX, 1 << 62] {
            assert!(Modulus::new(bad).is_err(), "{bad}");
        }
    }
}

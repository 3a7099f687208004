//! How much noise a reply carries, how much it is flooded with, and what that hides (docs/SECURITY.md,
//! "Flooding").

use num_bigint::BigUint;
use secsv_algebra::{Modulus, Prg, Ring, Secret};

use crate::{
    HeError,
    kernel::{Limb, vectorised},
    modulus_switch::switch_with,
    parameters::{Parameters, VARIANCE},
};

/// Standard deviations that a noise coefficient stays within except with probability 2^-79.
const TAIL: f64 = 10.5;

/// Largest deviation of what a fresh ciphertext carries beside its message: the error, of variance 10, and at
/// most one half of rounding.
fn fresh_deviation() -> f64 {
    (VARIANCE as f64).sqrt() + 0.5
}

/// An upper bound on the noise of a reply before it is flooded, as a power of two. It holds for any
/// plaintexts, over the errors of the encryptions, except with probability 2^-79 per coefficient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseBound {
    bits: f64,
}

impl NoiseBound {
    /// A sum of `inner` products of fresh ciphertexts with centred plaintexts: for each product n errors
    /// times a plaintext coefficient of at most p/2.
    pub fn half_product(parameters: &Parameters, inner: usize) -> Self {
        let terms = (parameters.degree() * inner.max(1)) as f64;
        let plaintext = parameters.field().modulus() as f64 / 2.0;
        Self { bits: (TAIL * terms.sqrt() * fresh_deviation() * plaintext).log2() }
    }

    /// A sum of `inner` products of two fresh ciphertexts, relinearised: p times the errors of one side times
    /// the quotient by q that the other side's decryption drops, which is about as large as the secret is
    /// long.
    pub fn full_product(parameters: &Parameters, inner: usize) -> Self {
        let degree = parameters.degree() as f64;
        let quotient = (degree * VARIANCE as f64 / 12.0).sqrt() + 1.0;
        let terms = (2.0 * degree * inner.max(1) as f64).sqrt();
        let product = TAIL * parameters.field().modulus() as f64 * terms * fresh_deviation() * quotient;
        Self { bits: (product + switching(parameters)).log2() }
    }

    /// A product of two fresh ciphertexts, entry by entry, to which a fresh one is added.
    pub fn slot_product(parameters: &Parameters) -> Self {
        let product = Self::full_product(parameters, 1);
        Self { bits: (product.bits.exp2() + TAIL * fresh_deviation()).log2() }
    }

    /// The difference of two fresh ciphertexts times a plaintext.
    pub fn scaled_difference(parameters: &Parameters) -> Self {
        Self { bits: Self::half_product(parameters, 1).bits + 1.0 }
    }

    /// The sum of both servers' products.
    #[must_use]
    pub fn of_two_servers(self) -> Self {
        Self { bits: self.bits + 1.0 }
    }

    /// A weighted sum of such outputs, the weights adding up to at most 2^`weight_bits`.
    #[must_use]
    pub fn weighted(self, weight_bits: u32) -> Self {
        Self { bits: self.bits + f64::from(weight_bits) }
    }

    /// The fold of Matrix Squaring: `copies` rotated summands, each with the noise of key switching.
    #[must_use]
    pub fn folded(self, parameters: &Parameters, copies: usize) -> Self {
        Self { bits: ((2f64.powf(self.bits) + switching(parameters)) * copies as f64).log2() }
    }

    /// Log2 of the bound.
    pub fn bits(self) -> f64 {
        self.bits
    }
}

/// The noise of one key switch: a centred digit of each limb times an error.
fn switching(parameters: &Parameters) -> f64 {
    let limb = parameters.limbs().iter().map(Limb::bits).max().unwrap_or(0);
    let terms = (parameters.limbs().len() * parameters.degree() * VARIANCE) as f64;
    TAIL * terms.sqrt() * 2f64.powi(limb as i32 - 1)
}

/// Uniform noise over an interval as wide as correct decryption allows, as replies carry it: in units of the
/// one limb they keep.
///
/// Let D be the product of the limbs that a reply drops. The flooding is F = a + D h, with a uniform below D
/// and h uniform over `high` integers around zero, and a reply keeps floor((c0 + F) / D) = floor((c0 + a) /
/// D) + h. So a never needs to be written down modulo the whole modulus: limb by limb it decides whether the
/// quotient is rounded up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flooding {
    /// Number of values of h.
    high: u64,
    /// Bits of D.
    unit_bits: u32,
    statistical_bits: u32,
    /// Digest of the parameters.
    pub(crate) digest: u64,
}

impl Flooding {
    /// As wide as it fits above this noise; an error if that keeps less statistical distance than the
    /// parameters promise.
    pub fn new(parameters: &Parameters, noise: NoiseBound) -> Result<Self, HeError> {
        let flooding = Self::without_claim(parameters, noise)?;
        let (expected, found) = (parameters.statistical_floor(), flooding.statistical_bits);
        if found < expected { Err(HeError::Statistical { expected, found }) } else { Ok(flooding) }
    }

    /// As wide as it fits above this noise, whatever distance that keeps.
    pub fn without_claim(parameters: &Parameters, noise: NoiseBound) -> Result<Self, HeError> {
        let modulus = parameters.modulus();
        let capacity = &modulus / (BigUint::from(parameters.field().modulus()) * 2u32);
        // Correct while |noise + flooding| < q / 2p. Kept aside: the rounding of the switch to one limb, and
        // 2^40 for the re-randomising encryptions of zero, which are far smaller even when weighted.
        let rounding = (&modulus / parameters.limbs()[0].modulus().value()) * rounding_bound(parameters);
        let taken =
            (BigUint::from(1u32) << (noise.bits.ceil() as u64)) + rounding + (BigUint::from(1u32) << 40u32);
        if capacity <= taken {
            let (needed, available) = (noise.bits.ceil() as u32 + 1, capacity.bits() as u32);
            return Err(HeError::Budget { operation: "this reply", needed, available });
        }
        let unit = &modulus / parameters.limbs()[0].modulus().value();
        let high = ((capacity - taken) * 2u32 / &unit).iter_u64_digits().next().unwrap_or(0);
        if high < 2 {
            let (needed, available) = (noise.bits.ceil() as u32 + 1, unit.bits() as u32);
            return Err(HeError::Budget { operation: "the flooding of this reply", needed, available });
        }
        // The noises of two replies to equal outputs are at most 2B apart, so the flooded ones differ by at
        // most 2B / width for each of n coefficients.
        let width = log2(&(&unit * high));
        let distance = width - noise.bits - 1.0 - f64::from(parameters.degree().ilog2());
        Ok(Self {
            high,
            unit_bits: unit.bits() as u32,
            statistical_bits: distance.max(0.0) as u32,
            digest: parameters.digest(),
        })
    }

    /// Statistical security of one reply, in bits: the noises of replies to two inputs that give the same
    /// outputs are within two to the minus this of each other. (The other part of the reply is hidden
    /// computationally, by the fresh encryption of zero.)
    pub fn statistical_bits(&self) -> u32 {
        self.statistical_bits
    }

    /// Log2 of the largest flooding value.
    pub fn magnitude_bits(&self) -> u32 {
        64 - self.high.leading_zeros() + self.unit_bits - 2
    }

    /// Floods coefficients, limb after limb, and leaves those of the limb that a reply keeps.
    pub(crate) fn switch(&self, parameters: &Parameters, words: &mut [u64], prg: &mut Prg) -> Vec<u64> {
        let mut draws = Secret::new(vec![0; words.len() / parameters.limbs().len()]);
        let mut kept = switch_with(parameters, words, |modulus, remainders| {
            prg.fill_uniform(modulus.value(), draws.expose_mut());
            round_up_by(modulus, draws.expose(), remainders);
        });
        prg.fill_uniform(self.high, draws.expose_mut());
        let (modulus, centre) = (parameters.limbs()[0].modulus(), self.high / 2);
        vectorised(|| {
            for (word, &h) in kept.iter_mut().zip(draws.expose()) {
                *word = modulus.correct(modulus.add(*word, h) + modulus.value() - centre);
            }
        });
        kept
    }
}

/// Remainders to what is subtracted so that the quotient by the modulus is floor((x + draw) / modulus).
#[inline(always)]
fn round_up_by(modulus: Modulus, draws: &[u64], remainders: &mut [u64]) {
    let q = modulus.value();
    vectorised(|| {
        for (remainder, &draw) in remainders.iter_mut().zip(draws) {
            // Subtracting the modulus once more, that is, adding one to the quotient, where the sum passes
            // it.
            let passed = (q - 1).wrapping_sub(*remainder + draw) >> 63;
            *remainder = remainder.wrapping_sub(q & passed.wrapping_neg());
        }
    });
}

/// Noise that rounding the two parts of a ciphertext to one limb adds, in units of that limb: up to one from
/// c0, which is rounded down, and half of one from every coefficient of c1 times one of s; the limbs dropped
/// before the last add nearly nothing. One more for an interval that is not centred.
fn rounding_bound(parameters: &Parameters) -> u64 {
    let variance = (parameters.degree() * VARIANCE + 1) as f64 / 12.0;
    (TAIL * variance.sqrt()).ceil() as u64 + 3
}

fn log2(x: &BigUint) -> f64 {
    let shift = x.bits().saturating_sub(60);
    ((x >> shift).iter_u64_digits().next().unwrap_or(0) as f64).log2() + shift as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;
    use secsv_algebra::Seed;

    /// One number from its residues.
    fn joined(parameters: &Parameters, words: &[u64], k: usize) -> BigUint {
        let idempotents = parameters.idempotents();
        let degree = words.len() / parameters.limbs().len();
        let sum: BigUint = idempotents.iter().enumerate().map(|(l, i)| i * words[l * degree + k]).sum();
        sum % parameters.modulus()
    }

    #[test]
    fn a_flooded_switch_is_the_quotient_of_the_flooded_number() {
        for preset in [Preset::Standard, Preset::Compact] {
            let parameters = Parameters::preset(preset).unwrap();
            let flooding =
                Flooding::without_claim(&parameters, NoiseBound::half_product(&parameters, 48)).unwrap();
            let (count, q0) = (64, parameters.limbs()[0].modulus().value());
            let mut prg = Prg::new(&Seed::from_bytes([9; 32]));
            let mut words = vec![0; count * parameters.limbs().len()];
            for (words, limb) in words.chunks_exact_mut(count).zip(parameters.limbs()) {
                prg.fill_uniform(limb.modulus().value(), words);
            }
            // The extremes as well.
            words.iter_mut().step_by(count).for_each(|word| *word = 0);
            let seed = Seed::from_bytes([10; 32]);
            let found = flooding.switch(&parameters, &mut words.clone(), &mut Prg::new(&seed));

            let mut prg = Prg::new(&seed);
            let mut draw = |bound: u64| {
                let mut draws = vec![0; count];
                prg.fill_uniform(bound, &mut draws);
                draws
            };
            let limbs: Vec<u64> = parameters.limbs().iter().map(|l| l.modulus().value()).collect();
            let (mut scale, mut floods) = (BigUint::from(1u32), vec![BigUint::from(0u32); count]);
            for &q in limbs[1..].iter().rev() {
                floods.iter_mut().zip(draw(q)).for_each(|(flood, digit)| *flood += &scale * digit);
                scale *= q;
            }
            let high = draw(flooding.high);
            for k in 0..count {
                let flooded = joined(&parameters, &words, k)
                    + &floods[k]
                    + &scale * high[k]
                    + &scale * (q0 - flooding.high / 2);
                let expected = (flooded / &scale) % q0;
                assert_eq!(BigUint::from(found[k]), expected, "{preset:?}, coefficient {k}");
            }
        }
    }
}

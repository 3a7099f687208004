//! How much noise a reply carries, how much it is flooded with, and what that hides (docs/SECURITY.md,
//! "Flooding").

use num_bigint::BigUint;
use rand::CryptoRng;
use secsv_algebra::{Factor, Modulus, Ring};

use crate::{
    HeError,
    parameters::{Limb, Parameters, VARIANCE},
};

/// Standard deviations that a noise coefficient stays within except with probability 2^-79.
const TAIL: f64 = 10.5;

/// Largest deviation of what a fresh ciphertext carries beside its message: the error, of variance 10, and at most
/// one half of rounding.
fn fresh_deviation() -> f64 {
    (VARIANCE as f64).sqrt() + 0.5
}

/// An upper bound on the noise of a reply before it is flooded, as a power of two. It holds for any plaintexts,
/// over the errors of the encryptions, except with probability 2^-79 per coefficient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseBound {
    bits: f64,
}

impl NoiseBound {
    /// A sum of `inner` products of fresh ciphertexts with centred plaintexts: for each product n errors times a
    /// plaintext coefficient of at most p/2.
    pub fn half_product(parameters: &Parameters, inner: usize) -> Self {
        let terms = (parameters.degree() * inner.max(1)) as f64;
        let plaintext = parameters.field().modulus() as f64 / 2.0;
        Self { bits: (TAIL * terms.sqrt() * fresh_deviation() * plaintext).log2() }
    }

    /// A sum of `inner` products of two fresh ciphertexts, relinearised: p times the errors of one side times the
    /// quotient by q that the other side's decryption drops, which is about as large as the secret is long.
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

/// Uniform noise over an interval as wide as correct decryption allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flooding {
    /// The interval has `high * 2^(64 * low_words)` integers and is centred on zero.
    high: u64,
    low_words: usize,
    statistical_bits: u32,
    /// Digest of the parameters.
    pub(crate) digest: u64,
    limbs: Vec<FloodLimb>,
}

/// Constants to write a flooding number modulo one limb.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FloodLimb {
    modulus: Modulus,
    /// 2^(64 i) for i from 0 to the number of low words.
    powers: Vec<Factor>,
    /// Half the interval.
    centre: u64,
}

impl Flooding {
    /// As wide as it fits above this noise; an error if that keeps less statistical distance than the parameters
    /// promise.
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
        let interval = (capacity - taken) * 2u32;
        let low_words = (interval.bits().saturating_sub(1) / 64) as usize;
        let high = (&interval >> (64 * low_words)).iter_u64_digits().next().unwrap_or(0);
        let width = BigUint::from(high) << (64 * low_words);
        // The noises of two replies to equal outputs are at most 2B apart, so the flooded ones differ by at most
        // 2B / width for each of n coefficients.
        let distance = log2(&width) - noise.bits - 1.0 - f64::from(parameters.degree().ilog2());
        let limbs =
            parameters.limbs().iter().map(|l| FloodLimb::new(l.modulus(), low_words, &width)).collect();
        Ok(Self {
            high,
            low_words,
            statistical_bits: distance.max(0.0) as u32,
            digest: parameters.digest(),
            limbs,
        })
    }

    /// Statistical security of one reply, in bits: the noises of replies to two inputs that give the same outputs
    /// are within two to the minus this of each other. (The other part of the reply is hidden computationally, by
    /// the fresh encryption of zero.)
    pub fn statistical_bits(&self) -> u32 {
        self.statistical_bits
    }

    /// Log2 of the largest flooding value.
    pub fn magnitude_bits(&self) -> u32 {
        64 - self.high.leading_zeros() + 64 * self.low_words as u32 - 1
    }

    /// Adds one flooding number to each coefficient; `words` is limb after limb.
    pub(crate) fn add_to(&self, words: &mut [u64], rng: &mut impl CryptoRng) {
        let degree = words.len() / self.limbs.len();
        let mask = u64::MAX >> self.high.leading_zeros();
        for k in 0..degree {
            let mut digits = [0u64; 4];
            digits[..self.low_words].iter_mut().for_each(|digit| *digit = rng.next_u64());
            let high = loop {
                let candidate = rng.next_u64() & mask;
                if candidate < self.high {
                    break candidate;
                }
            };
            digits[self.low_words] = high;
            for (l, limb) in self.limbs.iter().enumerate() {
                let word = &mut words[l * degree + k];
                *word = limb.modulus.add(*word, limb.residue(&digits));
            }
        }
    }
}

/// What rounding the two parts of a ciphertext to one limb adds to its noise, in units of that limb: half a unit
/// from c0 and from every coefficient of c1 times one of s, for each limb dropped.
fn rounding_bound(parameters: &Parameters) -> u64 {
    let variance = (parameters.degree() * VARIANCE + 1) as f64 / 12.0;
    (TAIL * variance.sqrt()).ceil() as u64 + 1
}

impl FloodLimb {
    fn new(modulus: Modulus, low_words: usize, width: &BigUint) -> Self {
        let word = modulus.pow(2, 64);
        let powers = (0..=low_words as u64).map(|i| Factor::new(modulus, modulus.pow(word, i))).collect();
        let centre = ((width / 2u32) % modulus.value()).iter_u64_digits().next().unwrap_or(0);
        Self { modulus, powers, centre }
    }

    #[inline(always)]
    fn residue(&self, digits: &[u64; 4]) -> u64 {
        let sum =
            self.powers.iter().zip(digits).fold(0, |s, (power, &d)| self.modulus.add(s, power.multiply(d)));
        self.modulus.sub(sum, self.centre)
    }
}

fn log2(x: &BigUint) -> f64 {
    let shift = x.bits().saturating_sub(60);
    ((x >> shift).iter_u64_digits().next().unwrap_or(0) as f64).log2() + shift as f64
}

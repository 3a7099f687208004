//! One prime of the ciphertext modulus: arithmetic and transforms.

use num_bigint::BigUint;
use secsv_algebra::Modulus;
use tfhe_ntt::prime64::Plan;

use super::{Backend, Transform, complement};
use crate::HeError;

/// One prime of the ciphertext modulus with its transform.
#[derive(Clone, Debug)]
pub struct Limb {
    modulus: Modulus,
    plan: Plan,
    transform: Transform,
}

impl Limb {
    /// Checks that the prime suits transforms of this degree and the kernel's reduction.
    pub(crate) fn new(prime: u64, degree: usize) -> Result<Self, HeError> {
        let twice_degree = 2 * degree as u64;
        let unusable = HeError::UnusableLimb { found: prime, twice_degree };
        let modulus = Modulus::new(prime).map_err(|_| unusable.clone())?;
        if !(54..=55).contains(&modulus.bits()) {
            return Err(unusable);
        }
        let plan = Plan::try_new(degree, prime).ok_or(unusable.clone())?;
        let transform = Transform::new(modulus, degree, &plan).ok_or(unusable.clone())?;
        let limb = Self { modulus, plan, transform };
        if limb.complement() >= 1 << 22 { Err(unusable) } else { Ok(limb) }
    }

    /// Arithmetic modulo the prime.
    pub const fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Bits of the prime.
    pub const fn bits(&self) -> u32 {
        self.modulus.bits()
    }

    /// 2^bits less the prime: small, which makes reduction cheap.
    pub const fn complement(&self) -> u64 {
        complement(self.modulus)
    }

    /// The library's transform modulo the prime.
    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Coefficients to points, in place.
    pub(crate) fn forward(&self, words: &mut [u64]) {
        self.forward_short(words, words.len());
    }

    /// Coefficients to points, in place, where all coefficients from `filled` on count as zero, whatever is
    /// there.
    pub(crate) fn forward_short(&self, words: &mut [u64], filled: usize) {
        self.transform.forward(Backend::detect(), self.modulus, &self.plan, words, filled);
    }

    /// Points to coefficients, in place.
    pub(crate) fn backward(&self, words: &mut [u64]) {
        self.transform.backward(Backend::detect(), self.modulus, &self.plan, words);
    }
}

/// Bits of the product of primes.
pub(crate) fn product_bits(moduli: &[u64]) -> u32 {
    let product: BigUint = moduli.iter().map(|&q| BigUint::from(q)).product();
    product.bits() as u32
}

//! The larger basis for products of two ciphertexts: extend once, accumulate, scale down once per output.

use std::sync::Arc;

use fhe_math::{
    rns::ScalingFactor,
    rq::{Context, Poly, Representation, scaler::Scaler, traits::TryConvertFrom},
};
use num_bigint::BigUint;
use secsv_algebra::Ring;

use crate::{
    HeError,
    count::Operations,
    parameters::{Limb, Parameters},
};

/// Primes added to the ciphertext modulus, and the library's scalers between the two bases.
pub(crate) struct Extension {
    limbs: Vec<Limb>,
    base: Arc<Context>,
    extended: Arc<Context>,
    up: Scaler,
    down: Scaler,
}

/// Noise bits that must remain after a product of two ciphertexts, so that rotations, sanitising and modulus
/// switching still fit.
const MARGIN_BITS: u32 = 20;

impl Extension {
    pub(crate) fn new(parameters: &Parameters) -> Result<Self, HeError> {
        check_budget(parameters)?;
        let base: Vec<u64> = parameters.limbs().iter().map(|l| l.modulus().value()).collect();
        let extended = extend_basis(&base, parameters)?;
        let limbs = extended.iter().map(|&q| Limb::new(q, parameters.degree())).collect::<Result<_, _>>()?;
        let unusable = |_| HeError::Mixed { what: "extended basis" };
        let base = Context::new_arc(&base, parameters.degree()).map_err(unusable)?;
        let extended = Context::new_arc(&extended, parameters.degree()).map_err(unusable)?;
        let up = Scaler::new(&base, &extended, ScalingFactor::one()).map_err(unusable)?;
        let factor = ScalingFactor::new(&BigUint::from(parameters.field().modulus()), base.modulus());
        let down = Scaler::new(&extended, &base, factor).map_err(unusable)?;
        Ok(Self { limbs, base, extended, up, down })
    }

    /// The primes of the larger basis; the ciphertext modulus comes first.
    pub(crate) fn limbs(&self) -> &[Limb] {
        &self.limbs
    }

    /// One part of a ciphertext, at points, to the larger basis.
    pub(crate) fn extend(&self, points: &[u64], ops: &mut Operations) -> Result<Vec<u64>, HeError> {
        let poly = poly(points.to_vec(), &self.base, Representation::Ntt)?;
        let extended = poly.scale(&self.up).map_err(|_| HeError::Mixed { what: "extended basis" })?;
        ops.ntt += self.limbs.len() as u64;
        Ok(Vec::from(&extended))
    }

    /// `round(p x / q)` of a sum at points of the larger basis, as coefficients under the ciphertext modulus.
    pub(crate) fn scale_down(&self, mut points: Vec<u64>, ops: &mut Operations) -> Result<Vec<u64>, HeError> {
        let degree = points.len() / self.limbs.len();
        for (limb, words) in self.limbs.iter().zip(points.chunks_exact_mut(degree)) {
            limb.backward(words);
        }
        ops.ntt += self.limbs.len() as u64;
        let sum = poly(points, &self.extended, Representation::PowerBasis)?;
        let scaled = sum.scale(&self.down).map_err(|_| HeError::Mixed { what: "extended basis" })?;
        Ok(Vec::from(&scaled))
    }
}

fn poly(words: Vec<u64>, context: &Arc<Context>, representation: Representation) -> Result<Poly, HeError> {
    Poly::try_convert_from(words, context, false, representation)
        .map_err(|_| HeError::Mixed { what: "polynomial" })
}

/// Enough further 54-bit primes that a sum of 2^10 products of centred residues stays exact.
fn extend_basis(base: &[u64], parameters: &Parameters) -> Result<Vec<u64>, HeError> {
    let needed = 2 * parameters.modulus_bits() + parameters.degree().ilog2() + 10;
    let mut extended = base.to_vec();
    let step = 2 * parameters.degree() as u64;
    let mut candidate = (1u64 << 54) + 1 - step;
    let mut bits = parameters.modulus_bits();
    while bits < needed {
        if !base.contains(&candidate) && Limb::new(candidate, parameters.degree()).is_ok() {
            extended.push(candidate);
            bits += 53;
        }
        candidate -= step;
        if candidate < (1 << 54) - (1 << 22) {
            return Err(HeError::Count {
                what: "primes to extend by",
                expected: 4,
                found: extended.len() - base.len(),
            });
        }
    }
    Ok(extended)
}

/// Bits of noise after a sum of products and one relinearisation, estimated from above: products bring about
/// p n sigma_s times the fresh noise, key switching about the largest limb times the root of n.
fn check_budget(parameters: &Parameters) -> Result<(), HeError> {
    let log_degree = parameters.degree().ilog2();
    let product = parameters.field().bits() + log_degree + 2 + 4 + 5;
    let switching = parameters.limbs().iter().map(Limb::bits).max().unwrap_or(0) + log_degree / 2 + 4;
    let needed = product.max(switching) + 1 + MARGIN_BITS;
    let available = parameters.modulus_bits() - parameters.field().bits() - 1;
    if needed > available {
        return Err(HeError::Budget { operation: "a product of two ciphertexts", needed, available });
    }
    Ok(())
}

//! The larger basis for products of two ciphertexts: extend once, accumulate, scale down once per output.

use std::sync::Arc;

use fhe_math::{
    rns::ScalingFactor,
    rq::{Context, Poly, Representation, scaler::Scaler, traits::TryConvertFrom},
};
use num_bigint::BigUint;
use secsv_algebra::{Field, Ring};

use crate::{
    HeError,
    count::Operations,
    kernel::{self, Backend, Limb, product_bits},
};

/// Primes added to the ciphertext modulus, and how numbers move between the two bases.
pub(crate) struct Extension {
    limbs: Vec<Limb>,
    lift: Vec<Lift>,
    /// For each limb of q, (q / q_i)^-1 modulo q_i.
    digits: Vec<u64>,
    base: usize,
    /// The library's scaler back to the ciphertext modulus.
    extended: Arc<Context>,
    down: Scaler,
}

/// Constants of one added prime: q / q_i for each i, and -q.
struct Lift {
    cofactors: Vec<u64>,
    minus_modulus: u64,
}

/// Noise bits that must remain after a product of two ciphertexts, so that rotations, sanitising and modulus
/// switching still fit.
const MARGIN_BITS: u32 = 20;

impl Extension {
    /// The extension of a ciphertext modulus, given by its limbs, for polynomials of this degree and
    /// plaintexts of this field.
    pub(crate) fn new(base_limbs: &[Limb], degree: usize, field: Field) -> Result<Self, HeError> {
        check_budget(base_limbs, degree, field)?;
        let moduli = primes_of(base_limbs);
        let primes = extend_basis(&moduli, degree)?;
        let limbs = primes.iter().map(|&q| Limb::new(q, degree)).collect::<Result<Vec<Limb>, HeError>>()?;
        let unusable = |_| HeError::Mixed { what: "extended basis" };
        let base = Context::new_arc(&moduli, degree).map_err(unusable)?;
        let extended = Context::new_arc(&primes, degree).map_err(unusable)?;
        let factor = ScalingFactor::new(&BigUint::from(field.modulus()), base.modulus());
        let down = Scaler::new(&extended, &base, factor).map_err(unusable)?;
        let lift = limbs[moduli.len()..].iter().map(|l| Lift::new(l, &moduli)).collect();
        let digits =
            base_limbs.iter().enumerate().map(|(i, limb)| limb.modulus().inverse(cofactor(limb, &moduli, i)));
        Ok(Self { limbs, lift, digits: digits.collect(), base: moduli.len(), extended, down })
    }

    /// The primes of the larger basis; the ciphertext modulus comes first.
    pub(crate) fn limbs(&self) -> &[Limb] {
        &self.limbs
    }

    /// One part of a ciphertext, at points, to the larger basis, limb by limb. The numbers are lifted
    /// centred; whether one next to q/2 is lifted as itself or as itself less q does not matter, both are the
    /// same ciphertext: 32 bits of each digit decide.
    pub(crate) fn extend<'a>(
        &self,
        points: &[u64],
        scratch: &mut Vec<u64>,
        ops: &mut Operations,
        targets: impl Iterator<Item = &'a mut [u64]>,
    ) {
        let degree = points.len() / self.base;
        scratch.clear();
        scratch.resize(degree, 1 << 31);
        scratch.extend_from_slice(points);
        let (multiples, digits) = scratch.split_at_mut(degree);
        let mut targets = self.limbs.iter().zip(targets);
        for (i, (limb, target)) in targets.by_ref().take(self.base).enumerate() {
            let words = &mut digits[i * degree..][..degree];
            target.copy_from_slice(words);
            limb.backward(words);
            kernel::scale(Backend::detect(), limb, self.digits[i], words);
            multiples.iter_mut().zip(words).for_each(|(m, d)| *m += *d >> (limb.bits() - 32));
        }
        // The number is the sum of digit * q / q_i less this multiple of q.
        multiples.iter_mut().for_each(|m| *m >>= 32);
        for (lift, (limb, target)) in self.lift.iter().zip(targets) {
            let mut terms: Vec<(u64, &[u64])> =
                lift.cofactors.iter().copied().zip(digits.chunks_exact(degree)).collect();
            terms.push((lift.minus_modulus, multiples));
            kernel::combine(Backend::detect(), limb, &terms, target);
            limb.forward(target);
        }
        ops.ntt += self.limbs.len() as u64;
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

impl Lift {
    fn new(limb: &Limb, moduli: &[u64]) -> Self {
        let modulus = limb.modulus();
        let q = moduli.iter().fold(1, |x, &q| modulus.mul(x, modulus.reduce(q)));
        Self {
            cofactors: (0..moduli.len()).map(|i| cofactor(limb, moduli, i)).collect(),
            minus_modulus: modulus.neg(q),
        }
    }
}

fn primes_of(limbs: &[Limb]) -> Vec<u64> {
    limbs.iter().map(|l| l.modulus().value()).collect()
}

/// q / q_i modulo a limb.
fn cofactor(limb: &Limb, moduli: &[u64], i: usize) -> u64 {
    let others = moduli.iter().enumerate().filter(|(j, _)| *j != i);
    others.fold(1, |x, (_, &q)| limb.modulus().mul(x, limb.modulus().reduce(q)))
}

fn poly(words: Vec<u64>, context: &Arc<Context>, representation: Representation) -> Result<Poly, HeError> {
    Poly::try_convert_from(words, context, false, representation)
        .map_err(|_| HeError::Mixed { what: "polynomial" })
}

/// Products of two ciphertexts that one sum may have.
pub(crate) const MAX_PRODUCTS: usize = 1 << 10;

/// Enough further 54-bit primes that a sum of [`MAX_PRODUCTS`] products of centred residues stays exact.
fn extend_basis(base: &[u64], degree: usize) -> Result<Vec<u64>, HeError> {
    let mut bits = product_bits(base);
    let needed = 2 * bits + degree.ilog2() + MAX_PRODUCTS.ilog2();
    let mut extended = base.to_vec();
    let step = 2 * degree as u64;
    let mut candidate = (1u64 << 54) + 1 - step;
    while bits < needed {
        if !base.contains(&candidate) && Limb::new(candidate, degree).is_ok() {
            extended.push(candidate);
            bits += 53;
        }
        candidate -= step;
        if candidate < (1 << 54) - (1 << 22) {
            return Err(HeError::count("primes to extend by", 4, extended.len() - base.len()));
        }
    }
    Ok(extended)
}

/// Bits of noise after a sum of products and one relinearisation, estimated from above: products bring about
/// p n sigma_s times the fresh noise, key switching about the largest limb times the root of n.
pub(crate) fn check_budget(limbs: &[Limb], degree: usize, field: Field) -> Result<(), HeError> {
    let log_degree = degree.ilog2();
    let product = field.bits() + log_degree + 2 + 4 + 5;
    let switching = limbs.iter().map(Limb::bits).max().unwrap_or(0) + log_degree / 2 + 4;
    let needed = product.max(switching) + 1 + MARGIN_BITS;
    let available = product_bits(&primes_of(limbs)) - field.bits() - 1;
    if needed > available {
        return Err(HeError::Budget { operation: "a product of two ciphertexts", needed, available });
    }
    Ok(())
}

//! Sums of ciphertexts, and ciphertexts half of which is the stream of a seed.

use secsv_algebra::{Prg, Seed};

use crate::{
    HeError,
    kernel::{self, BLOCK, Backend, Ciphertext, Limb, Words},
    parameters::Parameters,
};

impl Ciphertext {
    /// An encryption of zero that hides nothing, under these parameters.
    pub fn zero_under(parameters: &Parameters) -> Self {
        Self::zero(parameters.limbs().len(), parameters.degree())
    }

    /// Adds another ciphertext: the plaintexts add up.
    pub fn add_assign(&mut self, limbs: &[Limb], other: &Self) -> Result<(), HeError> {
        self.combine(limbs, other, |limb, a, b| limb.modulus().add(a, b))
    }

    /// Combines each word with the same one of another.
    pub(crate) fn combine(
        &mut self,
        limbs: &[Limb],
        other: &Self,
        with: impl Fn(&Limb, u64, u64) -> u64,
    ) -> Result<(), HeError> {
        if (self.limbs(), self.degree()) != (other.limbs(), other.degree()) || limbs.len() != self.limbs() {
            return Err(HeError::Mixed { what: "ciphertext" });
        }
        for part in 0..2 {
            for (l, limb) in limbs.iter().enumerate() {
                for (a, &b) in self.limb_mut(part, l).iter_mut().zip(other.limb(part, l)) {
                    *a = with(limb, *a, b);
                }
            }
        }
        Ok(())
    }

    /// The weighted sum of ciphertexts; weights are public non-negative integers that add up to less than
    /// 2^32.
    pub fn weighted_sum(limbs: &[Limb], terms: &[(u32, &Self)]) -> Result<Self, HeError> {
        check_weights(terms.iter().map(|t| t.0))?;
        let degree = terms.first().map(|t| t.1.degree()).ok_or(HeError::count("summands", 1, 0))?;
        if terms.iter().any(|t| (t.1.limbs(), t.1.degree()) != (limbs.len(), degree)) {
            return Err(HeError::Mixed { what: "ciphertext" });
        }
        let mut sum = Self::zero(limbs.len(), degree);
        for part in 0..2 {
            for (l, limb) in limbs.iter().enumerate() {
                let sources: Vec<(u32, &[[u64; BLOCK]])> =
                    terms.iter().map(|&(w, c)| (w, c.limb(part, l).as_chunks().0)).collect();
                let target = sum.limb_mut(part, l).as_chunks_mut().0;
                kernel::weighted_sum(Backend::detect(), limb, Words::Plain, &sources, target);
            }
        }
        Ok(sum)
    }
}

/// Weights whose sum does not fit 32 bits would overflow the unreduced sums.
pub(crate) fn check_weights(weights: impl Iterator<Item = u32>) -> Result<(), HeError> {
    let total: u64 = weights.map(u64::from).sum();
    if total > u64::from(u32::MAX) {
        return Err(HeError::count("sum of weights", u32::MAX as usize, total as usize));
    }
    Ok(())
}

/// A symmetric encryption whose second part is the stream of a seed: half the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeededCiphertext {
    /// Seed of c1: public, fresh for each encryption.
    pub(crate) seed: [u8; 32],
    /// c0 at transform points, limb after limb.
    pub(crate) c0: Vec<u64>,
}

impl SeededCiphertext {
    /// Expands the seed; the caller has checked that it was made under these parameters.
    pub(crate) fn expand(&self, parameters: &Parameters) -> Ciphertext {
        let mut ciphertext = Ciphertext::zero_under(parameters);
        ciphertext.part_mut(0).copy_from_slice(&self.c0);
        let mut points = UniformPoints::new(&self.seed);
        for (l, limb) in parameters.limbs().iter().enumerate() {
            points.fill(limb, ciphertext.limb_mut(1, l));
        }
        ciphertext
    }
}

/// The polynomial at uniform points that a public seed stands for, limb after limb.
pub(crate) struct UniformPoints(Prg);

impl UniformPoints {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self(Prg::new(&Seed::from_bytes(*seed)))
    }

    /// The next limb.
    pub(crate) fn fill(&mut self, limb: &Limb, words: &mut [u64]) {
        self.0.fill_uniform(limb.modulus().value(), words);
    }
}

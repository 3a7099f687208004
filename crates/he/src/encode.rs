//! Plaintexts: field elements in slots or coefficients, lifted for a product (centred) or scaled for
//! encryption.

use secsv_algebra::{Ring, Secret};

use crate::{
    count::Operations,
    kernel::{self, Backend},
    parameters::Parameters,
};

/// How field elements lie in a plaintext polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As coefficients: products are negacyclic convolutions.
    Coefficients,
    /// As values at the roots modulo p: products are entrywise. Slots form two rows of n/2.
    Slots,
}

impl Parameters {
    /// Field elements, in place, from the packing's order to coefficients.
    pub(crate) fn to_coefficients(&self, packing: Packing, elements: &mut [u64], ops: &mut Operations) {
        if packing == Packing::Slots {
            let slots = Secret::new(elements.to_vec());
            for (&x, &i) in slots.expose().iter().zip(self.slot_index()) {
                elements[i as usize] = x;
            }
            self.plaintext_plan().inv(elements);
            self.plaintext_plan().normalize(elements);
            ops.ntt += 1;
        }
    }

    /// Coefficients to field elements in the packing's order.
    pub(crate) fn unpack_coefficients(
        &self,
        packing: Packing,
        coefficients: &mut [u64],
        ops: &mut Operations,
    ) {
        if packing == Packing::Slots {
            self.plaintext_plan().fwd(coefficients);
            let points = Secret::new(coefficients.to_vec());
            for (x, &i) in coefficients.iter_mut().zip(self.slot_index()) {
                *x = points.expose()[i as usize];
            }
            ops.ntt += 1;
        }
    }

    /// One limb of the centred lift of coefficients modulo p, at transform points. Centring the multiplicand
    /// makes the noise of a sum of d products grow with the root of d instead of d.
    pub(crate) fn lift_centred(
        &self,
        coefficients: &[u64],
        limb: usize,
        out: &mut [u64],
        ops: &mut Operations,
    ) {
        self.lift_centred_short(coefficients, coefficients.len(), limb, out, ops);
    }

    /// The same for coefficients that are zero from `filled` on.
    pub(crate) fn lift_centred_short(
        &self,
        coefficients: &[u64],
        filled: usize,
        limb: usize,
        out: &mut [u64],
        ops: &mut Operations,
    ) {
        let limb = &self.limbs()[limb];
        // Whole blocks of the kernel; zero lifts to zero.
        let lifted = filled.next_multiple_of(64).min(coefficients.len());
        kernel::lift(
            Backend::detect(),
            limb,
            self.field().modulus(),
            &coefficients[..lifted],
            &mut out[..lifted],
        );
        limb.forward_short(out, lifted);
        ops.ntt += 1;
    }

    /// The remainders that `round(q m / p)` is computed from: with q m = p round(q m / p) + r, the centred r.
    pub(crate) fn scaling_remainders(&self, coefficients: &[u64]) -> Secret<Vec<i64>> {
        let (in_field, field) = (self.modulus_in_field(), self.field());
        Secret::new(coefficients.iter().map(|&m| field.centre(in_field.multiply(m))).collect())
    }

    /// One limb of `round(q m / p)` as coefficients: -r / p, because q m = 0 modulo the limb.
    pub(crate) fn scaled(&self, remainders: &[i64], limb: usize, out: &mut [u64]) {
        let (limb, factor) = (&self.limbs()[limb], self.minus_field_inverse(limb));
        let modulus = limb.modulus();
        out.iter_mut().zip(remainders).for_each(|(o, &r)| *o = modulus.embed(r));
        kernel::scale(Backend::detect(), limb, factor, out);
    }
}

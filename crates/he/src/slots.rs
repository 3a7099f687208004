//! Vectors in slots, element after element: what is computed entry by entry and not as a matrix product.

use rand::CryptoRng;

use crate::{
    Ciphertext, EvaluationKey, HeError, Operations, Packing, Parameters, SecretKey, SeededCiphertext,
    kernel::{self, Backend, Limb},
};

/// An encrypted vector as it travels, in as many ciphertexts as it fills.
#[derive(Clone)]
pub struct EncryptedSlots {
    /// Digest of the parameters it was made under.
    pub(crate) parameters: u64,
    pub(crate) ciphertexts: Vec<SeededCiphertext>,
}

impl SecretKey {
    /// Encrypts a vector.
    pub fn encrypt_slots(
        &self,
        elements: &[u64],
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<EncryptedSlots, HeError> {
        let parts = elements.chunks(self.parameters().degree());
        let ciphertexts = parts.map(|part| self.encrypt(Packing::Slots, part, rng, ops));
        Ok(EncryptedSlots {
            parameters: self.parameters().digest(),
            ciphertexts: ciphertexts.collect::<Result<_, _>>()?,
        })
    }
}

impl EncryptedSlots {
    /// Expands seeds.
    pub fn expand(&self, parameters: &Parameters) -> Result<Vec<Ciphertext>, HeError> {
        if self.parameters != parameters.digest() {
            return Err(HeError::Mixed { what: "encrypted slots" });
        }
        Ok(self.ciphertexts.iter().map(|seeded| seeded.expand(parameters)).collect())
    }
}

impl Ciphertext {
    /// Subtracts another ciphertext: the plaintexts subtract.
    pub fn sub_assign(&mut self, limbs: &[Limb], other: &Self) -> Result<(), HeError> {
        self.combine(limbs, other, |limb, a, b| limb.modulus().sub(a, b))
    }

    /// Multiplies each slot with an element of a clear vector; slots past its end become zero.
    pub fn scale_slots(
        &self,
        parameters: &Parameters,
        factors: &[u64],
        ops: &mut Operations,
    ) -> Result<Self, HeError> {
        self.check(parameters)?;
        let mut coefficients = crate::keys::padded(parameters, factors)?;
        parameters.to_coefficients(Packing::Slots, coefficients.expose_mut(), ops);
        let mut points = secsv_algebra::Secret::new(vec![0; parameters.degree()]);
        let mut product = Self::zero_under(parameters);
        for (l, limb) in parameters.limbs().iter().enumerate() {
            parameters.lift_centred(coefficients.expose(), l, points.expose_mut(), ops);
            for part in 0..2 {
                let target = product.limb_mut(part, l);
                kernel::multiply_add(Backend::detect(), limb, self.limb(part, l), points.expose(), target);
            }
        }
        ops.ct_pt_mul += 1;
        Ok(product)
    }

    fn check(&self, parameters: &Parameters) -> Result<(), HeError> {
        if (self.limbs(), self.degree()) == (parameters.limbs().len(), parameters.degree()) {
            Ok(())
        } else {
            Err(HeError::Mixed { what: "ciphertext" })
        }
    }
}

impl EvaluationKey {
    /// The product of two ciphertexts, slot by slot: extended, multiplied, scaled down, relinearised.
    pub fn multiply(
        &self,
        parameters: &Parameters,
        a: &Ciphertext,
        b: &Ciphertext,
        ops: &mut Operations,
    ) -> Result<Ciphertext, HeError> {
        a.check(parameters)?;
        b.check(parameters)?;
        let (extension, degree) = (parameters.extension()?, parameters.degree());
        let (words, mut scratch) = (extension.limbs().len() * degree, Vec::new());
        let mut extend = |part: &[u64]| {
            let mut extended = vec![0; words];
            extension.extend(part, &mut scratch, ops, extended.chunks_exact_mut(degree));
            extended
        };
        let [a0, a1, b0, b1] = [a.part(0), a.part(1), b.part(0), b.part(1)].map(&mut extend);
        let mut parts = [vec![0; words], vec![0; words], vec![0; words]];
        for (part, x, y) in [(0, &a0, &b0), (1, &a0, &b1), (1, &a1, &b0), (2, &a1, &b1)] {
            for (l, limb) in extension.limbs().iter().enumerate() {
                let place = l * degree..(l + 1) * degree;
                let target = &mut parts[part][place.clone()];
                kernel::multiply_add(Backend::detect(), limb, &x[place.clone()], &y[place], target);
            }
        }
        ops.ct_ct_mul += 1;
        let [c0, c1, c2] = parts.map(|part| extension.scale_down(part, ops));
        Ok(self.relinearise(parameters, [c0?, c1?, c2?], ops))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use secsv_algebra::{Matrix, Prg, Ring, Seed};

    use super::*;
    use crate::{Flooding, NoiseBound, Preset};

    static KEY: LazyLock<SecretKey> = LazyLock::new(|| {
        let parameters = Parameters::for_full_products(Preset::Standard).unwrap();
        SecretKey::from_seed(&parameters, Seed::from_bytes([8; 32]))
    });
    static EVALUATION: LazyLock<EvaluationKey> =
        LazyLock::new(|| KEY.evaluation_key(&[], &mut Prg::new(&Seed::from_bytes([9; 32]))));

    fn vector(length: usize, largest: bool, rng: &mut Prg) -> Vec<u64> {
        let field = KEY.parameters().field();
        if largest {
            return vec![field.modulus() - 1; length];
        }
        Matrix::uniform(field, 1, length, rng).elements().to_vec()
    }

    fn travel(elements: &[u64], rng: &mut Prg) -> Vec<Ciphertext> {
        let mut ops = Operations::default();
        let parameters = KEY.parameters();
        let bytes = KEY.encrypt_slots(elements, rng, &mut ops).unwrap().to_bytes(parameters);
        assert_eq!(bytes.len(), EncryptedSlots::encoded_len(parameters, elements.len()));
        assert!(EncryptedSlots::from_bytes(parameters, elements.len() + 8192, &bytes).is_err());
        EncryptedSlots::from_bytes(parameters, elements.len(), &bytes).unwrap().expand(parameters).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        #[test]
        fn products_and_differences_are_those_of_the_field(
            length in 1usize..8200, largest: bool, seed: u8,
        ) {
            let (parameters, field) = (KEY.parameters(), KEY.parameters().field());
            let (mut rng, mut ops) = (Prg::new(&Seed::from_bytes([seed; 32])), Operations::default());
            let [x, y, z] = [0, 1, 2].map(|_| vector(length, largest, &mut rng));
            let [cx, cy, cz] = [&x, &y, &z].map(|v| travel(v, &mut rng));
            prop_assert_eq!(cx.len(), length.div_ceil(8192));
            let public = KEY.public_key(&mut rng);
            for part in 0..cx.len() {
                let range = part * 8192..length.min((part + 1) * 8192);
                let planned: Vec<bool> = (0..8192).map(|i| i < range.len()).collect();
                let mut sum = EVALUATION.multiply(parameters, &cx[part], &cy[part], &mut ops).unwrap();
                sum.add_assign(parameters.limbs(), &cz[part]).unwrap();
                let mut difference = cx[part].clone();
                difference.sub_assign(parameters.limbs(), &cy[part]).unwrap();
                let scaled = difference.scale_slots(parameters, &z[range.clone()], &mut ops).unwrap();
                for (found, bound, of) in [
                    (sum, NoiseBound::slot_product(parameters), 0),
                    (scaled, NoiseBound::scaled_difference(parameters), 1),
                ] {
                    let noise = KEY.measure_noise(&found).unwrap();
                    prop_assert!(f64::from(noise) <= bound.bits().ceil(), "{} above {}", noise, bound.bits());
                    let flooding = Flooding::new(parameters, bound).unwrap();
                    let reply = public
                        .sanitise(&found, Packing::Slots, &planned, &flooding, &mut rng, &mut ops)
                        .unwrap();
                    let opened = KEY.decrypt_reply(Packing::Slots, &planned, &reply, &mut ops).unwrap();
                    for (slot, i) in range.clone().enumerate() {
                        let expected = if of == 0 {
                            field.add(field.mul(x[i], y[i]), z[i])
                        } else {
                            field.mul(field.sub(x[i], y[i]), z[i])
                        };
                        prop_assert_eq!(opened.expose()[slot], expected);
                    }
                }
            }
        }
    }

    #[test]
    fn foreign_operands_are_refused() {
        let (compact, mut ops) = (Parameters::preset(Preset::Standard).unwrap(), Operations::default());
        let mut rng = Prg::new(&Seed::from_bytes([1; 32]));
        let own = travel(&[1, 2, 3], &mut rng).remove(0);
        let foreign = Ciphertext::zero_under(&compact);
        assert!(EVALUATION.multiply(KEY.parameters(), &own, &foreign, &mut ops).is_err());
        assert!(own.clone().sub_assign(KEY.parameters().limbs(), &foreign).is_err());
        assert!(foreign.scale_slots(KEY.parameters(), &[1], &mut ops).is_err());
        let slots = KEY.encrypt_slots(&[1], &mut rng, &mut ops).unwrap();
        assert!(slots.expand(&compact).is_err());
    }
}

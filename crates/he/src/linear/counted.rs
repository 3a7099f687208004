//! Operations of each step of a layer, known before it runs: plans add these up, tests compare them with what
//! ran.

use super::{Layout, sums::batches_at_once};
use crate::{EncryptedSlots, HeError, Operations, Packing, Parameters};

impl Parameters {
    fn limb_count(&self) -> u64 {
        self.limbs().len() as u64
    }

    fn switch_transforms(&self) -> u64 {
        self.limb_count() * self.limb_count()
    }

    /// One symmetric encryption.
    pub fn encryption_operations(&self, packing: Packing) -> Operations {
        Operations { encrypt: 1, ntt: self.limb_count() + in_slots(packing), ..Operations::default() }
    }

    /// One re-randomised output.
    pub fn rerandomisation_operations(&self) -> Operations {
        Operations { encrypt: 1, ntt: 3 * self.limb_count(), ..Operations::default() }
    }

    /// One sanitised reply.
    pub fn sanitising_operations(&self, packing: Packing) -> Operations {
        Operations { encrypt: 1, ntt: 3 * self.limb_count() + in_slots(packing), ..Operations::default() }
    }

    /// One decrypted reply.
    pub fn decryption_operations(&self, packing: Packing) -> Operations {
        Operations { decrypt: 1, ntt: 2 + in_slots(packing), ..Operations::default() }
    }

    /// One product of a ciphertext and a clear vector, slot by slot.
    pub fn scaling_operations(&self) -> Operations {
        Operations { ct_pt_mul: 1, ntt: 1 + self.limb_count(), ..Operations::default() }
    }

    /// One product of two ciphertexts, slot by slot.
    pub fn slot_product_operations(&self) -> Result<Operations, HeError> {
        let extended = self.extension()?.limbs().len() as u64;
        Ok(Operations { ct_ct_mul: 1, ntt: 4 * extended, ..Operations::default() }
            + self.finishing_operations()?)
    }

    /// Scaling down and relinearising one output of full products.
    fn finishing_operations(&self) -> Result<Operations, HeError> {
        let extended = self.extension()?.limbs().len() as u64;
        let ntt = 3 * extended + 2 * self.limb_count() + self.switch_transforms();
        Ok(Operations { ntt, ..Operations::default() })
    }

    fn rotation_operations(&self) -> Operations {
        let ntt = self.limb_count() + self.switch_transforms();
        Operations { rotate: 1, ntt, ..Operations::default() }
    }
}

impl EncryptedSlots {
    /// Ciphertexts that this many elements fill.
    pub fn ciphertexts(parameters: &Parameters, elements: usize) -> u64 {
        elements.div_ceil(parameters.degree()) as u64
    }
}

fn in_slots(packing: Packing) -> u64 {
    u64::from(packing == Packing::Slots)
}

impl Layout {
    /// Operations of encoding this many batches at one server.
    pub fn encoding_operations(&self, batches: u64) -> Operations {
        let transforms = self.parameters().limb_count() + in_slots(self.packing());
        Operations { ntt: self.inner() as u64 * batches * transforms, ..Operations::default() }
    }

    /// Operations of one server's half products of `models` models with `batches` encoded batches.
    pub fn half_operations(&self, models: u64, batches: u64) -> Operations {
        let products = Operations {
            ct_pt_mul: self.weight_ciphertexts() as u64 * models * batches,
            ..Operations::default()
        };
        products + self.parameters().rotation_operations() * (self.rotations() as u64 * models * batches)
    }

    /// The extension of one model.
    pub fn extension_operations(&self) -> Result<Operations, HeError> {
        Ok(self.extended(self.weight_ciphertexts() as u64)? * 2)
    }

    /// Full products of one extended model with one encrypted batch.
    pub fn full_operations(&self) -> Result<Operations, HeError> {
        let products = Operations { ct_ct_mul: self.weight_ciphertexts() as u64, ..Operations::default() };
        Ok(products + self.extended(self.inner() as u64)? * 2 + self.outputs(1)?)
    }

    /// Operations of full products of `models` models with `batches` encrypted batches, nothing stored.
    pub fn sums_operations(&self, models: u64, batches: u64) -> Result<Operations, HeError> {
        let (pairs, weights) = (models * batches, self.weight_ciphertexts() as u64);
        let products = Operations { ct_ct_mul: weights * pairs, ..Operations::default() };
        let passes = self.sums_passes(models, batches)?;
        let extended = self.inner() as u64 * batches + weights * models * passes;
        Ok(products + self.extended(extended)? * 2 + self.outputs(pairs)?)
    }

    /// Number of times that models are extended for `batches` encrypted batches, nothing stored.
    pub fn sums_passes(&self, models: u64, batches: u64) -> Result<u64, HeError> {
        Ok(batches.div_ceil(batches_at_once(self, models as usize)? as u64))
    }

    /// Polynomials brought to the larger basis.
    fn extended(&self, polynomials: u64) -> Result<Operations, HeError> {
        let limbs = self.parameters().extension()?.limbs().len() as u64;
        Ok(Operations { ntt: polynomials * limbs, ..Operations::default() })
    }

    /// Operations of finished and folded outputs of `pairs` pairs of model and batch.
    fn outputs(&self, pairs: u64) -> Result<Operations, HeError> {
        let parameters = self.parameters();
        Ok(parameters.finishing_operations()? * (self.rows() as u64 * pairs)
            + parameters.rotation_operations() * (self.rotations() as u64 * pairs))
    }
}

//! Full products: both matrices encrypted. Each ciphertext is extended to the larger basis once, products are
//! accumulated there by the same kernel, and each output is scaled down and relinearised once.

use rand::CryptoRng;
use secsv_algebra::{Field, Matrix, Secret};

use super::{EncryptedMatrix, Layout, squaring};
use crate::{
    EvaluationKey, HeError, Operations, SecretKey, SeededCiphertext,
    ciphertext::Ciphertext,
    kernel::{self, Backend, CipherTiles, PlainRows},
};

/// An encrypted weight matrix in the larger basis.
pub struct ExtendedMatrix {
    layout: u64,
    rows: Vec<CipherTiles>,
}

/// One batch of encrypted samples, as it travels.
pub struct EncryptedBatch {
    /// Digest of the layout it was made for.
    pub(crate) layout: u64,
    pub(crate) ciphertexts: Vec<SeededCiphertext>,
}

impl Layout {
    /// Encrypts one batch of samples.
    pub fn encrypt_batch(
        &self,
        key: &SecretKey,
        b: &Matrix<Field>,
        batch: usize,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<EncryptedBatch, HeError> {
        self.check_samples(b)?;
        self.check_key(key)?;
        let mut elements = Secret::new(vec![0; self.parameters.degree()]);
        let ciphertexts = (0..self.inner()).map(|input| {
            self.place_samples(b, batch, input, elements.expose_mut());
            key.encrypt(self.packing(), elements.expose(), rng, ops)
        });
        Ok(EncryptedBatch { layout: self.digest, ciphertexts: ciphertexts.collect::<Result<_, _>>()? })
    }

    /// Extends an encrypted matrix: once per model, whatever the number of batches.
    pub fn extend(&self, matrix: &EncryptedMatrix, ops: &mut Operations) -> Result<ExtendedMatrix, HeError> {
        self.check_made_for(matrix.layout, "encrypted matrix")?;
        let (extension, degree) = (self.parameters.extension()?, self.parameters.degree());
        let limbs = extension.limbs().len();
        let mut source = matrix.ciphertexts.iter();
        let rows = (0..self.rows()).map(|row| {
            let inner = self.row_inner(row);
            let mut tiles = CipherTiles::zero(inner, limbs, degree);
            for (input, seeded) in source.by_ref().take(inner).enumerate() {
                let ciphertext = seeded.expand(&self.parameters);
                for part in 0..2 {
                    extension
                        .extend(ciphertext.part(part), ops, |l, points| tiles.store(input, part, l, points));
                }
            }
            tiles
        });
        Ok(ExtendedMatrix { layout: self.digest, rows: rows.collect() })
    }

    /// Multiplies an encrypted matrix with an encrypted batch: the rows of the product in order.
    pub fn multiply_full(
        &self,
        matrix: &ExtendedMatrix,
        batch: &EncryptedBatch,
        evaluation: &EvaluationKey,
        ops: &mut Operations,
    ) -> Result<Vec<Ciphertext>, HeError> {
        self.check_made_for(matrix.layout, "extended matrix")?;
        self.check_made_for(batch.layout, "encrypted batch")?;
        let columns = self.extend_batch(batch, ops)?;
        let columns = [&columns[0], &columns[1]];
        let limbs = self.parameters.extension()?.limbs();
        let outputs = matrix.rows.iter().enumerate().map(|(row, tiles)| {
            let mut sums = vec![Ciphertext::zero(limbs.len(), self.parameters.degree()); 2];
            kernel::multiply(Backend::detect(), limbs, &[tiles], &columns, &mut sums)?;
            ops.ct_ct_mul += tiles.inner() as u64;
            let product = self.finish(&sums, evaluation, ops)?;
            squaring::apply(&self.parameters, Some(evaluation), product, self.fold(row), ops)
        });
        outputs.collect()
    }

    /// The two parts of the batch's ciphertexts in the larger basis, as columns for the kernel.
    fn extend_batch(&self, batch: &EncryptedBatch, ops: &mut Operations) -> Result<[PlainRows; 2], HeError> {
        let (extension, degree) = (self.parameters.extension()?, self.parameters.degree());
        let mut columns =
            [0, 1].map(|_| PlainRows::zero(batch.ciphertexts.len(), extension.limbs().len(), degree));
        for (input, seeded) in batch.ciphertexts.iter().enumerate() {
            let ciphertext = seeded.expand(&self.parameters);
            for (part, column) in columns.iter_mut().enumerate() {
                extension.extend(ciphertext.part(part), ops, |l, points| {
                    column.row_mut(input, l).copy_from_slice(points);
                });
            }
        }
        Ok(columns)
    }

    /// (sum a0 b0, sum a1 b0) and (sum a0 b1, sum a1 b1) to a ciphertext of two parts.
    fn finish(
        &self,
        sums: &[Ciphertext],
        evaluation: &EvaluationKey,
        ops: &mut Operations,
    ) -> Result<Ciphertext, HeError> {
        let extension = self.parameters.extension()?;
        let mut middle = sums[0].part(1).to_vec();
        let degree = self.parameters.degree();
        for (i, (m, &other)) in middle.iter_mut().zip(sums[1].part(0)).enumerate() {
            *m = extension.limbs()[i / degree].modulus().add(*m, other);
        }
        let parts = [
            extension.scale_down(sums[0].part(0).to_vec(), ops)?,
            extension.scale_down(middle, ops)?,
            extension.scale_down(sums[1].part(1).to_vec(), ops)?,
        ];
        Ok(evaluation.relinearise(&self.parameters, parts, ops))
    }
}

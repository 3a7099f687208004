//! Full products: both matrices encrypted. Each ciphertext is extended to the larger basis once, products are
//! accumulated there by the same kernel, and each output is scaled down and relinearised once.

use rand::CryptoRng;
use secsv_algebra::{Field, Matrix, Secret};

use super::{EncryptedMatrix, Layout, squaring};
use crate::{
    EvaluationKey, HeError, Operations, SecretKey, SeededCiphertext,
    kernel::{self, Backend, CipherTiles, Ciphertext, PlainRows, TILE},
};

/// Inputs of a batch that are extended and multiplied at a time: what the last-level cache holds in the
/// larger basis.
pub(super) const CHUNK: usize = 2 * TILE;

/// An encrypted weight matrix in the larger basis.
pub struct ExtendedMatrix {
    pub(super) layout: u64,
    pub(super) rows: Vec<CipherTiles>,
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
        let (mut extended, mut scratch) = (vec![0; limbs * degree], Vec::new());
        let rows = (0..self.rows()).map(|row| {
            let inner = self.row_inner(row);
            let mut tiles = CipherTiles::unset(inner, limbs, degree);
            for (input, seeded) in source.by_ref().take(inner).enumerate() {
                let ciphertext = seeded.expand(&self.parameters);
                for part in 0..2 {
                    let targets = extended.chunks_exact_mut(degree);
                    extension.extend(ciphertext.part(part), &mut scratch, ops, targets);
                    for (l, points) in extended.chunks_exact(degree).enumerate() {
                        tiles.store(input, part, l, points);
                    }
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
        let (expected, found) = (self.inner(), batch.ciphertexts.len());
        if found != expected {
            return Err(HeError::count("batch ciphertexts", expected, found));
        }
        let (extension, degree) = (self.parameters.extension()?, self.parameters.degree());
        let limbs = extension.limbs();
        let mut sums: Vec<[Ciphertext; 2]> =
            matrix.rows.iter().map(|_| [0, 1].map(|_| Ciphertext::zero(limbs.len(), degree))).collect();
        let room = batch.ciphertexts.len().min(CHUNK);
        let mut columns = [0, 1].map(|_| PlainRows::zero(room, limbs.len(), degree));
        let mut scratch = Vec::new();
        for (chunk, ciphertexts) in batch.ciphertexts.chunks(CHUNK).enumerate() {
            for (input, seeded) in ciphertexts.iter().enumerate() {
                let ciphertext = seeded.expand(&self.parameters);
                for (part, column) in columns.iter_mut().enumerate() {
                    extension.extend(ciphertext.part(part), &mut scratch, ops, column.rows_mut(input));
                }
            }
            let columns = [&columns[0], &columns[1]];
            for (tiles, sums) in matrix.rows.iter().zip(&mut sums) {
                if tiles.inner() > chunk * CHUNK {
                    let first_tile = chunk * CHUNK / TILE;
                    kernel::multiply_part(Backend::detect(), limbs, &[tiles], &columns, first_tile, sums)?;
                }
            }
        }
        let outputs = matrix.rows.iter().zip(&sums).enumerate().map(|(row, (tiles, sums))| {
            ops.ct_ct_mul += tiles.inner() as u64;
            let product = self.finish(sums, evaluation, ops)?;
            squaring::apply(&self.parameters, Some(evaluation), product, self.fold(row), ops)
        });
        outputs.collect()
    }

    /// (sum a0 b0, sum a1 b0) and (sum a0 b1, sum a1 b1) to a ciphertext of two parts.
    pub(super) fn finish(
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

//! Half products: A encrypted, B in the clear or one party's share of it.

use std::ops::Range;

use rand::CryptoRng;
use secsv_algebra::{Field, Matrix, Secret};

use super::{Layout, squaring};
use crate::{
    EvaluationKey, HeError, Operations, SecretKey, SeededCiphertext,
    ciphertext::{UniformPoints, check_weights},
    kernel::{self, Backend, CipherTiles, Ciphertext, PlainRows},
};

/// An encrypted weight matrix as it travels: rows of seeded ciphertexts.
#[derive(Clone)]
pub struct EncryptedMatrix {
    /// Digest of the layout it was made for, as in the other operands.
    pub(crate) layout: u64,
    pub(crate) ciphertexts: Vec<SeededCiphertext>,
}

/// An encrypted weight matrix, expanded and tiled for the kernel.
#[derive(Clone)]
pub struct PreparedMatrix {
    layout: u64,
    rows: Vec<CipherTiles>,
}

/// One batch of samples, encoded and tiled for the kernel: reused for every model that meets the same data.
pub struct EncodedBatch {
    layout: u64,
    rows: PlainRows,
}

impl Layout {
    /// Encrypts a weight matrix.
    pub fn encrypt(
        &self,
        key: &SecretKey,
        a: &Matrix<Field>,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<EncryptedMatrix, HeError> {
        let mut ciphertexts = Vec::with_capacity(self.weight_ciphertexts());
        self.encrypt_each(key, a, rng, ops, |ciphertext| ciphertexts.push(ciphertext))?;
        Ok(EncryptedMatrix { layout: self.digest, ciphertexts })
    }

    /// Encrypts a weight matrix, one ciphertext after the other.
    pub(crate) fn encrypt_each(
        &self,
        key: &SecretKey,
        a: &Matrix<Field>,
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
        mut take: impl FnMut(SeededCiphertext),
    ) -> Result<(), HeError> {
        self.check_weights(a)?;
        self.check_key(key)?;
        let mut elements = Secret::new(vec![0; self.parameters.degree()]);
        for row in 0..self.rows() {
            for input in 0..self.row_inner(row) {
                self.place_weights(a, row, input, elements.expose_mut());
                take(key.encrypt(self.packing(), elements.expose(), rng, ops)?);
            }
        }
        Ok(())
    }

    pub(super) fn check_key(&self, key: &SecretKey) -> Result<(), HeError> {
        if key.parameters().digest() == self.parameters.digest() {
            Ok(())
        } else {
            Err(HeError::Mixed { what: "key" })
        }
    }

    /// Expands seeds and tiles the ciphertexts.
    pub fn prepare(&self, matrix: &EncryptedMatrix) -> Result<PreparedMatrix, HeError> {
        self.check_made_for(matrix.layout, "encrypted matrix")?;
        let (mut source, degree) = (matrix.ciphertexts.iter(), self.parameters.degree());
        self.prepare_each(
            || source.next().ok_or(HeError::Mixed { what: "encrypted matrix" }),
            |seeded| Ok(seeded.seed),
            |seeded, l, words| {
                words.copy_from_slice(&seeded.c0[l * degree..][..degree]);
                Ok(())
            },
        )
    }

    /// Expands and tiles one ciphertext after the other: `next` brings it, `seed` tells its seed, and `limb`
    /// writes one limb of its first part.
    pub(crate) fn prepare_each<C, E>(
        &self,
        mut next: impl FnMut() -> Result<C, E>,
        mut seed: impl FnMut(&mut C) -> Result<[u8; 32], E>,
        mut limb: impl FnMut(&mut C, usize, &mut [u64]) -> Result<(), E>,
    ) -> Result<PreparedMatrix, E> {
        let (limbs, degree) = (self.parameters.limbs(), self.parameters.degree());
        let mut words = vec![0; degree];
        let rows = (0..self.rows()).map(|row| {
            let inner = self.row_inner(row);
            let mut tiles = CipherTiles::unset(inner, limbs.len(), degree);
            for input in 0..inner {
                let mut ciphertext = next()?;
                let mut points = UniformPoints::new(&seed(&mut ciphertext)?);
                for (l, prime) in limbs.iter().enumerate() {
                    limb(&mut ciphertext, l, &mut words)?;
                    tiles.store(input, 0, l, &words);
                    points.fill(prime, &mut words);
                    tiles.store(input, 1, l, &words);
                }
            }
            Ok(tiles)
        });
        Ok(PreparedMatrix { layout: self.digest, rows: rows.collect::<Result<_, E>>()? })
    }

    /// Room for one encoded batch.
    pub fn empty_batch(&self) -> EncodedBatch {
        EncodedBatch {
            layout: self.digest,
            rows: PlainRows::zero(self.inner(), self.parameters.limbs().len(), self.parameters.degree()),
        }
    }

    /// Encodes batch number `batch` of the samples in place.
    pub fn encode_into(
        &self,
        b: &Matrix<Field>,
        batch: usize,
        target: &mut EncodedBatch,
        ops: &mut Operations,
    ) -> Result<(), HeError> {
        self.check_samples(b)?;
        self.check_made_for(target.layout, "batch")?;
        if batch >= self.batches(b.columns()) {
            return Err(HeError::count("batches", self.batches(b.columns()), batch));
        }
        self.encode_inputs(b, batch, 0..self.inner(), &mut target.rows, ops);
        Ok(())
    }

    /// Encodes some inputs of a batch.
    fn encode_inputs(
        &self,
        b: &Matrix<Field>,
        batch: usize,
        inputs: Range<usize>,
        target: &mut PlainRows,
        ops: &mut Operations,
    ) {
        let mut coefficients = Secret::new(vec![0; self.parameters.degree()]);
        let filled = self.sample_extent();
        for (row, input) in inputs.enumerate() {
            self.place_samples(b, batch, input, coefficients.expose_mut());
            self.parameters.to_coefficients(self.packing(), coefficients.expose_mut(), ops);
            for l in 0..self.parameters.limbs().len() {
                let target = target.row_mut(row, l);
                self.parameters.lift_centred_short(coefficients.expose(), filled, l, target, ops);
            }
        }
    }

    /// Encodes all samples.
    pub fn encode(&self, b: &Matrix<Field>, ops: &mut Operations) -> Result<Vec<EncodedBatch>, HeError> {
        (0..self.batches(b.columns()))
            .map(|batch| {
                let mut encoded = self.empty_batch();
                self.encode_into(b, batch, &mut encoded, ops).map(|()| encoded)
            })
            .collect()
    }
}

/// Multiplies every model with every batch. The result has one vector per (model, batch) pair, models
/// slowest, with the layout's rows in order.
pub fn multiply(
    layout: &Layout,
    models: &[&PreparedMatrix],
    batches: &[&EncodedBatch],
    evaluation: Option<&EvaluationKey>,
    ops: &mut Operations,
) -> Result<Vec<Vec<Ciphertext>>, HeError> {
    let mut results = Vec::new();
    multiply_into(layout, models, batches, evaluation, &mut results, ops)?;
    Ok(results)
}

/// The same, into the memory of earlier results.
pub fn multiply_into(
    layout: &Layout,
    models: &[&PreparedMatrix],
    batches: &[&EncodedBatch],
    evaluation: Option<&EvaluationKey>,
    results: &mut Vec<Vec<Ciphertext>>,
    ops: &mut Operations,
) -> Result<(), HeError> {
    let parameters = layout.parameters();
    let size = (parameters.limbs().len(), parameters.degree());
    let mut spare: Vec<Ciphertext> =
        results.drain(..).flatten().filter(|c| (c.limbs(), c.degree()) == size).collect();
    let columns: Vec<&PlainRows> = batches.iter().map(|b| &b.rows).collect();
    results.resize_with(models.len() * batches.len(), Vec::new);
    models.iter().try_for_each(|m| layout.check_made_for(m.layout, "prepared matrix"))?;
    batches.iter().try_for_each(|b| layout.check_made_for(b.layout, "batch"))?;
    // Row by row: rows of all models meet all batches while they are in cache, and rows of one number have
    // equally many inputs.
    let mut row = 0;
    while row < layout.rows() {
        let inner = layout.row_inner(row);
        let alike = (row..layout.rows()).take_while(|&r| layout.row_inner(r) == inner).count();
        let tiles: Vec<&CipherTiles> = models.iter().flat_map(|m| &m.rows[row..row + alike]).collect();
        let mut products: Vec<Ciphertext> = (0..tiles.len() * columns.len())
            .map(|_| spare.pop().unwrap_or_else(|| Ciphertext::zero_under(parameters)))
            .collect();
        kernel::multiply(Backend::detect(), parameters.limbs(), &tiles, &columns, &mut products)?;
        ops.ct_pt_mul += (tiles.len() * columns.len() * inner) as u64;
        for (i, product) in products.into_iter().enumerate() {
            let (tile, batch) = (i / columns.len(), i % columns.len());
            let (model, row) = (tile / alike, row + tile % alike);
            let folded = squaring::apply(parameters, evaluation, product, layout.fold(row), ops)?;
            results[model * batches.len() + batch].push(folded);
        }
        row += alike;
    }
    Ok(())
}

/// Inputs of `inner` that are encoded at a time: few take little memory, many are multiplied faster.
fn inputs_at_once(inner: usize) -> usize {
    inner.div_ceil(4).next_multiple_of(kernel::TILE).clamp(2 * kernel::TILE, kernel::FOLD_AFTER)
}

/// Multiplies models with some batches of samples, which are encoded on the way, a few inputs at a time:
/// little memory is needed beside models and products. For methods that fold nothing. The result is that of
/// [`multiply`].
pub fn multiply_samples(
    layout: &Layout,
    models: &[&PreparedMatrix],
    samples: &Matrix<Field>,
    batches: Range<usize>,
    ops: &mut Operations,
) -> Result<Vec<Vec<Ciphertext>>, HeError> {
    let parameters = layout.parameters();
    layout.check_samples(samples)?;
    models.iter().try_for_each(|m| layout.check_made_for(m.layout, "prepared matrix"))?;
    let expected = layout.batches(samples.columns());
    if batches.end > expected || layout.rotations() > 0 {
        return Err(HeError::count("batches", expected, batches.end));
    }
    let (inner, height) = (layout.inner(), inputs_at_once(layout.inner()));
    let (limbs, degree) = (parameters.limbs().len(), parameters.degree());
    let mut encoded: Vec<PlainRows> =
        batches.clone().map(|_| PlainRows::zero(height.min(inner), limbs, degree)).collect();
    // Rows with equally many inputs, of all models, meet all batches while they are in cache.
    let rows: Vec<usize> = (0..layout.rows()).collect();
    let mut alike: Vec<(&[usize], Vec<&CipherTiles>, Vec<Ciphertext>)> = rows
        .chunk_by(|&a, &b| layout.row_inner(a) == layout.row_inner(b))
        .map(|rows| {
            let tiles: Vec<_> = models.iter().flat_map(|m| rows.iter().map(|&row| &m.rows[row])).collect();
            let products = (0..tiles.len() * batches.len()).map(|_| Ciphertext::zero_under(parameters));
            let products = products.collect();
            (rows, tiles, products)
        })
        .collect();
    for first in (0..inner).step_by(height) {
        for (target, batch) in encoded.iter_mut().zip(batches.clone()) {
            layout.encode_inputs(samples, batch, first..inner.min(first + height), target, ops);
        }
        let columns: Vec<&PlainRows> = encoded.iter().collect();
        let (backend, first_tile) = (Backend::detect(), first / kernel::TILE);
        for (rows, tiles, products) in &mut alike {
            if layout.row_inner(rows[0]) > first {
                let limbs = parameters.limbs();
                kernel::multiply_part(backend, limbs, tiles, &columns, first_tile, products)?;
            }
        }
    }
    ops.ct_pt_mul += (layout.weight_ciphertexts() * models.len() * batches.len()) as u64;
    let mut results: Vec<Vec<Ciphertext>> = vec![Vec::new(); models.len() * batches.len()];
    for (rows, _, products) in alike {
        for (i, product) in products.into_iter().enumerate() {
            let (tile, batch) = (i / batches.len(), i % batches.len());
            results[tile / rows.len() * batches.len() + batch].push(product);
        }
    }
    Ok(results)
}

impl PreparedMatrix {
    /// The weighted sum of encrypted matrices: a coalition's model. Weights are public integers that add up
    /// to less than 2^32.
    pub fn weighted_sum(layout: &Layout, terms: &[(u32, &Self)]) -> Result<Self, HeError> {
        check_weights(terms.iter().map(|t| t.0))?;
        terms.iter().try_for_each(|(_, m)| layout.check_made_for(m.layout, "prepared matrix"))?;
        let limbs = layout.parameters().limbs();
        let rows = (0..layout.rows()).map(|row| {
            let sources: Vec<(u32, &CipherTiles)> = terms.iter().map(|&(w, m)| (w, &m.rows[row])).collect();
            let (inner, degree) = (layout.row_inner(row), layout.parameters().degree());
            let mut sum = CipherTiles::unset(inner, limbs.len(), degree);
            kernel::weighted_tiles(Backend::detect(), limbs, &sources, &mut sum)?;
            Ok(sum)
        });
        Ok(Self { layout: layout.digest, rows: rows.collect::<Result<_, HeError>>()? })
    }

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(CipherTiles::bytes).sum()
    }
}

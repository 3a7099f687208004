//! Full products with coalitions' models: weighted sums of encrypted matrices, summed modulo q before they
//! are extended, so that a coalition costs no more than one model.

use super::{EncryptedBatch, EncryptedMatrix, ExtendedMatrix, Layout, full::CHUNK, squaring};
use crate::{
    EvaluationKey, HeError, Operations, SeededCiphertext,
    extension::{Extension, MAX_PRODUCTS},
    kernel::{self, Backend, CipherTiles, Ciphertext, PlainRows},
};

/// A model as weights and encrypted matrices; the weights are public and add up to less than 2^32.
pub type MatrixTerms<'a> = [(u32, &'a EncryptedMatrix)];

/// Bytes of unfinished sums in the larger basis that [`Layout::multiply_sums`] holds at a time.
const SUMS_BYTES: usize = 128 << 20;

/// Batches whose unfinished sums are held together.
pub(super) fn batches_at_once(layout: &Layout, models: usize) -> Result<usize, HeError> {
    let words = layout.parameters.extension()?.limbs().len() * layout.parameters.degree();
    let of_batch = models * layout.rows() * 4 * words * 8;
    Ok((SUMS_BYTES / of_batch.max(1)).max(1))
}

impl Layout {
    /// Checks that full products of this layout are exact: the larger basis holds `MAX_PRODUCTS` products and
    /// no more.
    pub fn check_full(&self) -> Result<(), HeError> {
        self.parameters.extension()?;
        let (expected, found) = (MAX_PRODUCTS, self.inner());
        if found <= expected {
            Ok(())
        } else {
            Err(HeError::count("products of two ciphertexts in one sum", expected, found))
        }
    }

    /// Bytes of one model's weights, ready for full products.
    pub fn extended_bytes(&self) -> Result<usize, HeError> {
        let words = self.parameters.extension()?.limbs().len() * self.parameters.degree();
        Ok(self.weight_ciphertexts() * 2 * words * 8)
    }

    /// Extends a weighted sum of encrypted matrices: once per coalition, whatever the number of batches.
    pub fn extend_sum(
        &self,
        terms: &MatrixTerms<'_>,
        ops: &mut Operations,
    ) -> Result<ExtendedMatrix, HeError> {
        self.check_full()?;
        self.check_terms(terms)?;
        let extension = self.parameters.extension()?;
        let mut first = 0;
        let rows = (0..self.rows()).map(|row| {
            let inner = self.row_inner(row);
            let tiles = self.extended_tiles(extension, terms, first, inner, ops);
            first += inner;
            tiles
        });
        let rows = rows.collect::<Result<_, HeError>>()?;
        Ok(ExtendedMatrix { layout: self.digest, rows })
    }

    /// Multiplies weighted sums of encrypted matrices with encrypted batches. Of all of them only a few
    /// inputs at a time are held in the larger basis. For each model the rows of the first batch, then of the
    /// second, and so on.
    pub fn multiply_sums(
        &self,
        models: &[&MatrixTerms<'_>],
        batches: &[EncryptedBatch],
        evaluation: &EvaluationKey,
        ops: &mut Operations,
    ) -> Result<Vec<Vec<Ciphertext>>, HeError> {
        self.check_full()?;
        models.iter().try_for_each(|terms| self.check_terms(terms))?;
        for batch in batches {
            self.check_made_for(batch.layout, "encrypted batch")?;
            let (expected, found) = (self.inner(), batch.ciphertexts.len());
            if found != expected {
                return Err(HeError::count("batch ciphertexts", expected, found));
            }
        }
        let group = batches_at_once(self, models.len())?;
        let mut outputs: Vec<Vec<Ciphertext>> = models.iter().map(|_| Vec::new()).collect();
        for batches in batches.chunks(group) {
            let sums = self.sums_of(models, batches, ops)?;
            // Sums lie row by row, in a row model by model, then batch by batch, for each two columns.
            for (model, outputs) in outputs.iter_mut().enumerate() {
                for batch in 0..batches.len() {
                    for (row, sums) in sums.iter().enumerate() {
                        let pair = &sums[2 * (model * batches.len() + batch)..][..2];
                        let product = self.finish(pair, evaluation, ops)?;
                        let fold = self.fold(row);
                        outputs.push(squaring::apply(
                            &self.parameters,
                            Some(evaluation),
                            product,
                            fold,
                            ops,
                        )?);
                    }
                }
            }
        }
        Ok(outputs)
    }

    /// Sums of products in the larger basis, for each row of the layout.
    fn sums_of(
        &self,
        models: &[&MatrixTerms<'_>],
        batches: &[EncryptedBatch],
        ops: &mut Operations,
    ) -> Result<Vec<Vec<Ciphertext>>, HeError> {
        let (extension, degree) = (self.parameters.extension()?, self.parameters.degree());
        let limbs = extension.limbs();
        let pairs = 2 * models.len() * batches.len();
        let empty = || (0..pairs).map(|_| Ciphertext::zero(limbs.len(), degree)).collect::<Vec<_>>();
        let mut sums: Vec<Vec<Ciphertext>> = (0..self.rows()).map(|_| empty()).collect();
        let mut part_sums = empty();
        let room = self.inner().min(CHUNK);
        let mut columns: Vec<PlainRows> =
            (0..2 * batches.len()).map(|_| PlainRows::zero(room, limbs.len(), degree)).collect();
        let mut scratch = Vec::new();
        for start in (0..self.inner()).step_by(CHUNK) {
            for (batch, columns) in batches.iter().zip(columns.chunks_exact_mut(2)) {
                for (input, seeded) in batch.ciphertexts[start..].iter().take(CHUNK).enumerate() {
                    let ciphertext = seeded.expand(&self.parameters);
                    for (part, column) in columns.iter_mut().enumerate() {
                        extension.extend(ciphertext.part(part), &mut scratch, ops, column.rows_mut(input));
                    }
                }
            }
            let columns: Vec<&PlainRows> = columns.iter().collect();
            let mut first = 0;
            for (row, sums) in sums.iter_mut().enumerate() {
                let inner = self.row_inner(row);
                if inner > start {
                    let count = CHUNK.min(inner - start);
                    let tiles = models
                        .iter()
                        .map(|terms| self.extended_tiles(extension, terms, first + start, count, ops))
                        .collect::<Result<Vec<CipherTiles>, HeError>>()?;
                    let tiles: Vec<&CipherTiles> = tiles.iter().collect();
                    kernel::multiply(Backend::detect(), limbs, &tiles, &columns, &mut part_sums)?;
                    ops.ct_ct_mul += (models.len() * batches.len() * count) as u64;
                    for (sum, part) in sums.iter_mut().zip(&part_sums) {
                        sum.add_assign(limbs, part)?;
                    }
                }
                first += inner;
            }
        }
        Ok(sums)
    }

    fn check_terms(&self, terms: &MatrixTerms<'_>) -> Result<(), HeError> {
        if terms.is_empty() {
            return Err(HeError::count("summands", 1, 0));
        }
        terms.iter().try_for_each(|(_, matrix)| self.check_made_for(matrix.layout, "encrypted matrix"))
    }

    /// Some ciphertexts of a weighted sum, in the larger basis.
    fn extended_tiles(
        &self,
        extension: &Extension,
        terms: &MatrixTerms<'_>,
        first: usize,
        count: usize,
        ops: &mut Operations,
    ) -> Result<CipherTiles, HeError> {
        let (limbs, degree) = (extension.limbs().len(), self.parameters.degree());
        let mut tiles = CipherTiles::unset(count, limbs, degree);
        let (mut extended, mut scratch) = (vec![0; limbs * degree], Vec::new());
        for input in 0..count {
            let of: Vec<(u32, &SeededCiphertext)> =
                terms.iter().map(|(weight, matrix)| (*weight, &matrix.ciphertexts[first + input])).collect();
            let sum = self.weighted(&of)?;
            for part in 0..2 {
                extension.extend(sum.part(part), &mut scratch, ops, extended.chunks_exact_mut(degree));
                for (l, points) in extended.chunks_exact(degree).enumerate() {
                    tiles.store(input, part, l, points);
                }
            }
        }
        Ok(tiles)
    }

    /// A weighted sum modulo q.
    fn weighted(&self, terms: &[(u32, &SeededCiphertext)]) -> Result<Ciphertext, HeError> {
        if let [(1, only)] = terms {
            return Ok(only.expand(&self.parameters));
        }
        let expanded: Vec<(u32, Ciphertext)> =
            terms.iter().map(|(weight, seeded)| (*weight, seeded.expand(&self.parameters))).collect();
        let terms: Vec<(u32, &Ciphertext)> = expanded.iter().map(|(weight, c)| (*weight, c)).collect();
        Ciphertext::weighted_sum(self.parameters.limbs(), &terms)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use proptest::prelude::*;
    use secsv_algebra::{Field, Matrix, Prg, Seed};

    use super::*;
    use crate::{
        Flooding, Parameters, Preset, SecretKey,
        linear::{BlockShape, LayerShape, MatrixMethod},
    };

    static PARAMETERS: LazyLock<Arc<Parameters>> =
        LazyLock::new(|| Parameters::for_full_products(Preset::Standard).unwrap());
    static KEY: LazyLock<SecretKey> =
        LazyLock::new(|| SecretKey::from_seed(&PARAMETERS, Seed::from_bytes([21; 32])));

    /// Shapes of the four tasks and of the DNN.
    const SHAPES: [(usize, usize); 10] = [
        (4, 300),
        (2, 48),
        (4, 49),
        (64, 256),
        (10, 64),
        (96, 64),
        (96, 32),
        (2, 32),
        (100, 784),
        (100, 100),
    ];

    #[test]
    fn every_task_keeps_forty_bits_with_the_finest_weights() {
        for (d_out, d_in) in SHAPES {
            for method in [MatrixMethod::Squaring, MatrixMethod::Reducing] {
                let layout = Layout::new(&PARAMETERS, LayerShape { d_out, d_in }, method).unwrap();
                layout.check_full().unwrap();
                let flooding = Flooding::new(&PARAMETERS, layout.full_noise().weighted(11)).unwrap();
                println!("{layout:?}: {} bits", flooding.statistical_bits());
                assert!(flooding.statistical_bits() >= 40);
            }
        }
        let wide =
            Layout::new(&PARAMETERS, LayerShape { d_out: 1, d_in: 1025 }, MatrixMethod::Reducing).unwrap();
        assert!(matches!(wide.check_full(), Err(HeError::Count { .. })));
    }

    fn read(layout: &Layout, batch: usize, products: &[Ciphertext], result: &mut Matrix<Field>, bits: u32) {
        let mut ops = Operations::default();
        let claimed = layout.full_noise().weighted(bits).bits();
        for (row, product) in products.iter().enumerate() {
            let noise = KEY.measure_noise(product).unwrap();
            assert!(f64::from(noise) <= claimed.ceil(), "{noise} bits of noise, claimed {claimed}");
            let elements = KEY.decrypt(layout.packing(), product, &mut ops).unwrap();
            layout.read(row, batch, elements.expose(), result).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        #[test]
        fn sums_of_encrypted_matrices_multiply_like_the_clear_sum(
            method in 0usize..3, d_out in 1usize..20, d_in in 1usize..20, samples in 1usize..90,
            weights in prop::collection::vec(0u32..512, 1..4), seed: u8,
        ) {
            let method = [MatrixMethod::Squaring, MatrixMethod::Reducing, MatrixMethod::Packed(BlockShape { rows: 3, columns: 4, samples: 50 })][method];
            let (field, mut ops) = (PARAMETERS.field(), Operations::default());
            let mut rng = Prg::new(&Seed::from_bytes([seed; 32]));
            let layout = Layout::new(&PARAMETERS, LayerShape { d_out, d_in }, method).unwrap();
            let evaluation = KEY.evaluation_key(&layout.rotation_steps(), &mut rng);
            let models: Vec<_> = weights.iter().map(|_| Matrix::uniform(field, d_out, d_in, &mut rng)).collect();
            let encrypted: Vec<_> =
                models.iter().map(|m| layout.encrypt(&KEY, m, &mut rng, &mut ops).unwrap()).collect();
            let terms: Vec<_> = weights.iter().copied().zip(&encrypted).collect();
            let clear = models.iter().zip(&weights).fold(
                Matrix::zero(field, d_out, d_in),
                |sum, (m, &w)| sum.add(&m.scale(u64::from(w))).unwrap(),
            );
            let data = Matrix::uniform(field, d_in, samples, &mut rng);
            let batches: Vec<_> = (0..layout.batches(samples))
                .map(|b| layout.encrypt_batch(&KEY, &data, b, &mut rng, &mut ops).unwrap())
                .collect();
            let extended = layout.extend_sum(&terms, &mut ops).unwrap();
            let mut found = Matrix::zero(field, d_out, samples);
            for (b, batch) in batches.iter().enumerate() {
                let products = layout.multiply_full(&extended, batch, &evaluation, &mut ops).unwrap();
                read(&layout, b, &products, &mut found, 11);
            }
            prop_assert_eq!(&found, &clear.multiply(&data).unwrap());
            // The same without anything kept, and each model for itself.
            let single = [(1, &encrypted[0])];
            let streamed =
                layout.multiply_sums(&[&terms, &single], &batches, &evaluation, &mut ops).unwrap();
            for (outputs, (expected, bits)) in streamed.iter().zip([(&clear, 11), (&models[0], 0)]) {
                let mut found = Matrix::zero(field, d_out, samples);
                for (b, products) in outputs.chunks_exact(layout.rows()).enumerate() {
                    read(&layout, b, products, &mut found, bits);
                }
                prop_assert_eq!(&found, &expected.multiply(&data).unwrap());
            }
        }
    }

    #[test]
    fn operands_of_another_layout_are_refused() {
        let mut ops = Operations::default();
        let mut rng = Prg::new(&Seed::from_bytes([1; 32]));
        let [layout, other] = [4, 5].map(|d_in| {
            Layout::new(&PARAMETERS, LayerShape { d_out: 2, d_in }, MatrixMethod::Reducing).unwrap()
        });
        let evaluation = KEY.evaluation_key(&[], &mut rng);
        let field = PARAMETERS.field();
        let matrix = layout.encrypt(&KEY, &Matrix::zero(field, 2, 4), &mut rng, &mut ops).unwrap();
        let batch = other.encrypt_batch(&KEY, &Matrix::zero(field, 5, 1), 0, &mut rng, &mut ops).unwrap();
        assert!(other.extend_sum(&[(1, &matrix)], &mut ops).is_err());
        assert!(layout.extend_sum(&[], &mut ops).is_err());
        assert!(layout.extend_sum(&[(u32::MAX, &matrix), (1, &matrix)], &mut ops).is_err());
        let terms: &MatrixTerms<'_> = &[(1, &matrix)];
        assert!(layout.multiply_sums(&[terms], &[batch], &evaluation, &mut ops).is_err());
    }
}

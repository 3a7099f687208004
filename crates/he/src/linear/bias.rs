//! Biases: encrypted where products come out, so that adding one is an addition of ciphertexts.

use rand::CryptoRng;
use secsv_algebra::Secret;

use super::{AnyPlacement, Layout};
use crate::{Ciphertext, HeError, Operations, SecretKey, SeededCiphertext};

/// A layer's encrypted biases as they travel: one ciphertext for each output row, with each bias wherever an
/// entry of its row of AB comes out.
#[derive(Clone)]
pub struct EncryptedBias {
    /// Digest of the layout it was made for.
    pub(crate) layout: u64,
    pub(crate) ciphertexts: Vec<SeededCiphertext>,
}

impl Layout {
    /// Encrypts one bias for each row of the weight matrix, at the scale of products.
    pub fn encrypt_bias(
        &self,
        key: &SecretKey,
        bias: &[u64],
        rng: &mut impl CryptoRng,
        ops: &mut Operations,
    ) -> Result<EncryptedBias, HeError> {
        self.check_key(key)?;
        if bias.len() != self.shape.d_out {
            return Err(HeError::count("biases", self.shape.d_out, bias.len()));
        }
        let mut elements = Secret::new(vec![0; self.parameters.degree()]);
        let ciphertexts = (0..self.rows()).map(|row| {
            elements.expose_mut().fill(0);
            let target = elements.expose_mut();
            each!(self, p => super::Placement::output(p, row, |position, j, _| target[position] = bias[j]));
            key.encrypt(self.packing(), elements.expose(), rng, ops)
        });
        Ok(EncryptedBias { layout: self.digest, ciphertexts: ciphertexts.collect::<Result<_, _>>()? })
    }

    /// Expands seeds: one ciphertext for each output row, to be added to products.
    pub fn expand_bias(&self, bias: &EncryptedBias) -> Result<Vec<Ciphertext>, HeError> {
        self.check_made_for(bias.layout, "encrypted bias")?;
        Ok(bias.ciphertexts.iter().map(|seeded| seeded.expand(&self.parameters)).collect())
    }
}

#[cfg(test)]
mod tests {
    use secsv_algebra::{Field, Matrix, Prg, Ring, Seed};

    use super::*;
    use crate::{
        Parameters, Preset,
        linear::{BlockShape, LayerShape, MatrixMethod, multiply},
    };

    #[test]
    fn products_and_biases_add_up_in_every_method() {
        let parameters = Parameters::preset(Preset::Compact).unwrap();
        let (mut rng, mut ops) = (Prg::new(&Seed::from_bytes([4; 32])), Operations::default());
        let key = SecretKey::generate(&parameters, &mut rng);
        let (d_out, d_in, samples) = (5, 7, 11);
        let field = parameters.field();
        let a: Matrix<Field> = Matrix::uniform(field, d_out, d_in, &mut rng);
        let b = Matrix::uniform(field, d_in, samples, &mut rng);
        let bias = Matrix::uniform(field, 1, d_out, &mut rng);
        for method in [
            MatrixMethod::Squaring,
            MatrixMethod::Reducing,
            MatrixMethod::Packed(BlockShape { rows: 3, columns: 2, samples: 600 }),
        ] {
            let layout = Layout::new(&parameters, LayerShape { d_out, d_in }, method).unwrap();
            let evaluation = key.evaluation_key(&layout.rotation_steps(), &mut rng);
            let prepared = layout.prepare(&layout.encrypt(&key, &a, &mut rng, &mut ops).unwrap()).unwrap();
            let encrypted = layout.encrypt_bias(&key, bias.elements(), &mut rng, &mut ops).unwrap();
            let bytes = encrypted.to_bytes(&parameters);
            let biases = layout.expand_bias(&EncryptedBias::from_bytes(&layout, &bytes).unwrap()).unwrap();
            let mut found = Matrix::zero(field, d_out, samples);
            for (i, batch) in layout.encode(&b, &mut ops).unwrap().iter().enumerate() {
                let products =
                    multiply(&layout, &[&prepared], &[batch], Some(&evaluation), &mut ops).unwrap();
                for (row, product) in products[0].iter().enumerate() {
                    let mut sum = product.clone();
                    sum.add_assign(parameters.limbs(), &biases[row]).unwrap();
                    let elements = key.decrypt(layout.packing(), &sum, &mut ops).unwrap();
                    layout.read(row, i, elements.expose(), &mut found).unwrap();
                }
            }
            let product = a.multiply(&b).unwrap();
            let expected =
                Matrix::from_fn(field, d_out, samples, |j, k| field.add(product.at(j, k), bias.at(0, j)));
            assert_eq!(found, expected, "{method:?}");
        }
    }
}

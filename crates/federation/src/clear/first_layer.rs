//! The first layer's outputs of every local model, computed once and summed for every coalition.

use rayon::prelude::*;

use super::{
    BLOCK,
    forward::{Scratch, linear_product, linear_rows, linear_size, rest},
    parameters::ModelParameters,
};
use crate::{CollectiveTestSet, PlacedLayer};

/// Outputs of the first layer's linear part times the weights. They lie block by block,
/// within a block model by model: what is summed together lies together.
pub(super) struct FirstLayerOutputs {
    outputs: Vec<f64>,
    models: usize,
    samples: usize,
    width: usize,
}

impl FirstLayerOutputs {
    /// Bytes that these outputs take.
    pub(super) fn bytes(models: usize, samples: usize, width: usize) -> usize {
        [models, samples, width].into_iter().fold(size_of::<f64>(), usize::saturating_mul)
    }

    /// Computes the outputs of `layers[first]`, the first layer with parameters, for every model and sample.
    pub(super) fn new(
        layers: &[PlacedLayer],
        first: usize,
        models: &[(&ModelParameters, f64)],
        test_set: &CollectiveTestSet,
    ) -> Self {
        let (layer, samples) = (&layers[first].layer, test_set.len());
        let width = linear_size(layer);
        let mut outputs = vec![0.0; models.len() * samples * width];
        let block = BLOCK * models.len() * width;
        outputs.par_chunks_mut(block.max(1)).enumerate().for_each_init(
            Scratch::default,
            |scratch, (index, outputs)| {
                let rows = index * BLOCK..samples.min((index + 1) * BLOCK);
                scratch.values.clear();
                for row in rows.clone() {
                    scratch.values.extend(test_set.sample(row).iter().map(|&v| f64::from(v)));
                }
                layers[..first].iter().for_each(|placed| rest(&placed.layer, &[], rows.len(), scratch));
                linear_rows(layer, scratch);
                for ((model, weight), outputs) in
                    models.iter().zip(outputs.chunks_exact_mut(rows.len() * width))
                {
                    linear_product(layer, model.layer(first), scratch);
                    outputs.iter_mut().zip(&scratch.values).for_each(|(out, v)| *out = weight * v);
                }
            },
        );
        Self { outputs, models: models.len(), samples, width }
    }

    /// One model's outputs for a block of samples.
    pub(super) fn block(&self, model: usize, block: usize) -> &[f64] {
        let rows = BLOCK.min(self.samples - block * BLOCK);
        let begin = (block * BLOCK * self.models + model * rows) * self.width;
        &self.outputs[begin..][..rows * self.width]
    }

    /// One model's outputs for one sample.
    pub(super) fn sample(&self, model: usize, sample: usize) -> &[f64] {
        &self.block(model, sample / BLOCK)[sample % BLOCK * self.width..][..self.width]
    }

    /// Bytes in use.
    pub(super) fn len_bytes(&self) -> usize {
        size_of_val(&self.outputs[..])
    }
}

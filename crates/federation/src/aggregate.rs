//! Federated averaging in double precision.

use std::collections::BTreeMap;

use crate::{Tensor, Weights};

/// A weighted sum of models in the making: the aggregate is the sum of `weight * model` over the sum of weights.
#[derive(Clone, Debug, Default)]
pub struct WeightedMean {
    shapes: BTreeMap<String, Vec<usize>>,
    sums: BTreeMap<String, Vec<f64>>,
    total: f64,
}

impl WeightedMean {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model with its weight. All models must have the same tensors.
    pub fn add(&mut self, model: &Weights, weight: f64) {
        self.total += weight;
        for (name, tensor) in model.iter() {
            let sum = self.sums.entry(name.to_owned()).or_insert_with(|| vec![0.0; tensor.len()]);
            for (sum, value) in sum.iter_mut().zip(tensor.numbers()) {
                *sum += weight * value;
            }
            self.shapes.entry(name.to_owned()).or_insert_with(|| tensor.shape().to_vec());
        }
    }

    /// The mean of each tensor, unless there is no weight.
    pub fn finish(mut self) -> Option<BTreeMap<String, Vec<f64>>> {
        if self.total == 0.0 {
            return None;
        }
        for value in self.sums.values_mut().flatten() {
            *value /= self.total;
        }
        Some(self.sums)
    }

    /// The mean as a model in single precision, unless there is no weight.
    pub fn finish_single(self) -> Option<Weights> {
        let shapes = self.shapes.clone();
        let mean = self.finish()?;
        let tensors = mean.into_iter().zip(shapes.into_values()).map(|((name, values), shape)| {
            let values = values.into_iter().map(|v| v as f32).collect();
            Tensor::new(shape, values).ok().map(|tensor| (name, tensor))
        });
        tensors.collect()
    }
}

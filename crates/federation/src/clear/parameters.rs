//! A model's parameters as one vector of doubles, so that a coalition's model is one weighted sum of vectors.

use crate::{Architecture, Weights};

/// All parameters of a model, layer by layer, in double precision.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelParameters {
    values: Vec<f64>,
    /// Where each layer's parameters begin; one more entry for the end.
    begins: Vec<usize>,
}

impl ModelParameters {
    /// The parameters of a model that [`Architecture::check`] has passed. A tensor that is missing counts as
    /// zero.
    pub fn new(architecture: &Architecture, weights: &Weights) -> Self {
        let mut values = Vec::new();
        let mut begins = vec![0];
        for placed in architecture.layers() {
            for name in placed.layer.tensors() {
                let size = architecture.tensors().get(name).map_or(0, |shape| shape.iter().product());
                let end = values.len() + size;
                if let Some(tensor) = weights.get(name) {
                    values.extend(tensor.numbers());
                }
                values.resize(end, 0.0);
            }
            begins.push(values.len());
        }
        Self { values, begins }
    }

    /// The weighted mean of models: `None` without any weight.
    pub fn mean<'a>(models: impl IntoIterator<Item = (&'a Self, f64)>) -> Option<Self> {
        let mut models = models.into_iter();
        let (first, mut total) = models.next()?;
        let mut mean = first.clone();
        mean.values.iter_mut().for_each(|v| *v *= total);
        for (model, weight) in models {
            total += weight;
            mean.values.iter_mut().zip(&model.values).for_each(|(sum, v)| *sum += weight * v);
        }
        mean.values.iter_mut().for_each(|v| *v /= total);
        (total > 0.0).then_some(mean)
    }

    /// Adds a multiple of another model of the same architecture.
    pub fn add_scaled(&mut self, other: &Self, factor: f64) {
        self.values.iter_mut().zip(&other.values).for_each(|(sum, v)| *sum += factor * v);
    }

    /// All parameters, layer by layer.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// All layers.
    pub(super) fn tail(&self) -> Tail<'_> {
        Tail { values: &self.values, begins: &self.begins, left_out: 0 }
    }

    /// The parameters of one layer.
    pub(super) fn layer(&self, index: usize) -> &[f64] {
        self.tail().layer(index)
    }

    /// Where each layer's parameters begin among all; one more entry for the end.
    pub(super) fn begins(&self) -> &[usize] {
        &self.begins
    }
}

/// The parameters of all layers, or of the last ones.
#[derive(Clone, Copy)]
pub(super) struct Tail<'a> {
    /// The parameters that are there.
    pub(super) values: &'a [f64],
    /// Where each layer begins among all parameters, and where the last one ends.
    pub(super) begins: &'a [usize],
    /// Number of parameters of earlier layers that are left out.
    pub(super) left_out: usize,
}

impl<'a> Tail<'a> {
    /// The parameters of one layer: its tensors one after the other.
    pub(super) fn layer(&self, index: usize) -> &'a [f64] {
        &self.values[self.begins[index] - self.left_out..self.begins[index + 1] - self.left_out]
    }
}

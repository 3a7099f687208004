//! A model's layers on the machine-learning library, with gradients.

use std::collections::BTreeMap;

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::ops::{sigmoid, softmax};
use secsv_federation::{LayerSpec, ModelSpec, Weights};

use crate::product::times_transposed;
use crate::{Samples, TrainingError};

/// Parameters that are being trained, and the layers that use them.
pub(crate) struct TrainableNetwork<'a> {
    spec: &'a ModelSpec,
    parameters: BTreeMap<String, Var>,
}

impl<'a> TrainableNetwork<'a> {
    /// A copy of `weights`, ready to be trained.
    pub(crate) fn new(spec: &'a ModelSpec, weights: &Weights) -> Result<Self> {
        let parameters = weights
            .iter()
            .map(|(name, tensor)| {
                let values = Tensor::from_slice(&tensor.singles(), tensor.shape(), &Device::Cpu)?;
                Ok((name.to_owned(), Var::from_tensor(&values)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self { spec, parameters })
    }

    /// The parameters that an optimiser changes, by name.
    pub(crate) fn variables(&self) -> Vec<Var> {
        self.parameters.values().cloned().collect()
    }

    /// The parameters as they are now; the name of the first one with a value that is no finite number, if
    /// any.
    pub(crate) fn weights(&self) -> std::result::Result<std::result::Result<Weights, String>, TrainingError> {
        let mut weights = Weights::new();
        for (name, variable) in &self.parameters {
            let values = variable.flatten_all()?.to_vec1::<f32>()?;
            if values.iter().any(|value| !value.is_finite()) {
                return Ok(Err(name.clone()));
            }
            weights.insert(name, secsv_federation::Tensor::new(variable.dims().to_vec(), values)?);
        }
        Ok(Ok(weights))
    }

    /// The scores of some samples, one row each.
    pub(crate) fn scores(&self, samples: &Samples, rows: &[usize]) -> Result<Tensor> {
        let features: Vec<f32> = rows.iter().flat_map(|&row| samples.row(row)).copied().collect();
        let mut shape = vec![rows.len()];
        shape.extend(&self.spec.input);
        self.forward(&Tensor::from_vec(features, shape, &Device::Cpu)?)
    }

    /// The scores of a batch `[m, ...input shape]`.
    fn forward(&self, batch: &Tensor) -> Result<Tensor> {
        self.spec.layers.iter().try_fold(batch.clone(), |input, named| match &named.layer {
            LayerSpec::Linear { weight, bias } => {
                add_bias(&times_transposed(&input, self.get(weight)?)?, self.optional(bias.as_ref())?)
            }
            LayerSpec::Conv2d(conv) => {
                let bias = self.optional(conv.bias.as_ref())?;
                convolve(&input, self.get(&conv.weight)?, bias, conv.stride, conv.padding)
            }
            LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh } => {
                let gates = Gates {
                    input: self.thirds(Some(weight_ih))?,
                    hidden: self.thirds(Some(weight_hh))?,
                    input_bias: self.thirds(bias_ih.as_ref())?,
                    hidden_bias: self.thirds(bias_hh.as_ref())?,
                };
                gates.last_hidden(&input)
            }
            LayerSpec::Relu {} => input.relu(),
            LayerSpec::Sigmoid {} => sigmoid(&input),
            LayerSpec::Tanh {} => input.tanh(),
            LayerSpec::Square {} => input.sqr(),
            LayerSpec::Softmax {} => softmax(&input, D::Minus1),
            LayerSpec::Flatten {} => input.flatten_from(1),
            other => Err(candle_core::Error::Msg(format!("no training of {} layers here", other.kind()))),
        })
    }

    fn get(&self, name: &str) -> Result<&Tensor> {
        match self.parameters.get(name) {
            Some(variable) => Ok(variable.as_tensor()),
            None => Err(candle_core::Error::CannotFindTensor { path: name.to_owned() }),
        }
    }

    fn optional(&self, name: Option<&String>) -> Result<Option<&Tensor>> {
        name.map(|name| self.get(name)).transpose()
    }

    /// The parts of a tensor that belong to the reset, update and new gate.
    fn thirds(&self, name: Option<&String>) -> Result<Option<[Tensor; 3]>> {
        let Some(whole) = self.optional(name)? else { return Ok(None) };
        let width = whole.dim(0)? / 3;
        let part = |gate: usize| whole.narrow(0, gate * width, width);
        Ok(Some([part(0)?, part(1)?, part(2)?]))
    }
}

fn add_bias(scores: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    bias.map_or_else(|| Ok(scores.clone()), |bias| scores.broadcast_add(bias))
}

/// Convolution as one matrix product over copied patches when the input is data: the library's own kernel
/// would also compute the gradient of the images, which nobody needs.
fn convolve(
    images: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: usize,
    padding: usize,
) -> Result<Tensor> {
    let (outputs, _, kernel_height, kernel_width) = weight.dims4()?;
    if images.track_op() || padding > 0 {
        let scores = images.conv2d(weight, padding, stride, 1, 1)?;
        let bias = bias.map(|bias| bias.reshape((1, outputs, 1, 1))).transpose()?;
        return add_bias(&scores, bias.as_ref());
    }
    let (count, _, height, width) = images.dims4()?;
    let (rows, columns) = ((height - kernel_height) / stride + 1, (width - kernel_width) / stride + 1);
    let patches = patches(images, (kernel_height, kernel_width), stride, (rows, columns))?;
    let scores = add_bias(&times_transposed(&patches, &weight.flatten_from(1)?)?, bias)?;
    scores
        .reshape((count, rows * columns, outputs))?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((count, outputs, rows, columns))
}

/// The patch under every position of the kernel, one row each.
fn patches(
    images: &Tensor,
    (kernel_height, kernel_width): (usize, usize),
    stride: usize,
    (rows, columns): (usize, usize),
) -> Result<Tensor> {
    let (count, channels, height, width) = images.dims4()?;
    let pixels = images.flatten_all()?.to_vec1::<f32>()?;
    let size = channels * kernel_height * kernel_width;
    let mut patches = Vec::with_capacity(count * rows * columns * size);
    for image in pixels.chunks_exact(channels * height * width) {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            for (channel, line) in (0..channels).flat_map(|c| (0..kernel_height).map(move |line| (c, line))) {
                let from = (channel * height + row * stride + line) * width + column * stride;
                patches.extend_from_slice(&image[from..from + kernel_width]);
            }
        }
    }
    Tensor::from_vec(patches, (count * rows * columns, size), &Device::Cpu)
}

/// A gated recurrent unit as PyTorch defines it, its weights cut into reset, update and new gate.
struct Gates {
    input: Option<[Tensor; 3]>,
    hidden: Option<[Tensor; 3]>,
    input_bias: Option<[Tensor; 3]>,
    hidden_bias: Option<[Tensor; 3]>,
}

impl Gates {
    fn last_hidden(&self, sequences: &Tensor) -> Result<Tensor> {
        let steps = sequences.dim(1)?;
        (0..steps)
            .try_fold(None, |hidden, step| {
                let input = sequences.narrow(1, step, 1)?.squeeze(1)?.contiguous()?;
                self.step(&input, hidden.as_ref()).map(Some)
            })?
            .ok_or_else(|| candle_core::Error::Msg("a sequence without steps".to_owned()))
    }

    /// r = s(W_r x + U_r h), z = s(W_z x + U_z h), n = tanh(W_n x + r * (U_n h)), h' = n + z * (h - n); the
    /// first hidden state is zero.
    fn step(&self, input: &Tensor, hidden: Option<&Tensor>) -> Result<Tensor> {
        let from_input = |gate| part(Some(input), &self.input, &self.input_bias, gate);
        let from_hidden = |gate| part(hidden, &self.hidden, &self.hidden_bias, gate);
        let gate = |gate| match (from_input(gate)?, from_hidden(gate)?) {
            (Some(a), Some(b)) => sigmoid(&a.broadcast_add(&b)?),
            (Some(only), None) | (None, Some(only)) => sigmoid(&only),
            (None, None) => Err(no_weights()),
        };
        let (reset, update) = (gate(0)?, gate(1)?);
        let input_part = from_input(2)?.ok_or_else(no_weights)?;
        let new = match from_hidden(2)? {
            Some(hidden_part) => (input_part + reset.broadcast_mul(&hidden_part)?)?.tanh()?,
            None => input_part.tanh()?,
        };
        match hidden {
            Some(hidden) => &new + (update * (hidden - &new)?)?,
            None => &new - (update * &new)?,
        }
    }
}

fn no_weights() -> candle_core::Error {
    candle_core::Error::Msg("a gate without weights".to_owned())
}

/// One gate's share of one operand: the product, the bias, both, or neither.
fn part(
    operand: Option<&Tensor>,
    weights: &Option<[Tensor; 3]>,
    biases: &Option<[Tensor; 3]>,
    gate: usize,
) -> Result<Option<Tensor>> {
    let bias = biases.as_ref().map(|biases| &biases[gate]);
    match (operand, weights) {
        (Some(operand), Some(weights)) => {
            add_bias(&times_transposed(operand, &weights[gate])?, bias).map(Some)
        }
        _ => Ok(bias.cloned()),
    }
}

#[cfg(test)]
mod tests {
    use candle_nn::loss::cross_entropy;
    use secsv_federation::Tensor as Stored;

    use super::*;
    use crate::ModelKind;

    /// Numbers that look random and repeat.
    fn wave(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|index| (index as f32 * 1.7 + phase).sin()).collect()
    }

    fn loss(spec: &ModelSpec, weights: &Weights, samples: &Samples) -> (Tensor, Vec<(String, Var)>) {
        let network = TrainableNetwork::new(spec, weights).unwrap();
        let rows: Vec<usize> = (0..samples.len()).collect();
        let labels = Tensor::from_slice(samples.labels(), samples.len(), &Device::Cpu).unwrap();
        let loss = cross_entropy(&network.scores(samples, &rows).unwrap(), &labels).unwrap();
        (loss, network.parameters.into_iter().collect())
    }

    /// Every gradient against the slope of the loss, for every kind of model.
    #[test]
    fn gradients_are_slopes() {
        for (model, sample) in [
            (ModelKind::Logistic, vec![6]),
            (ModelKind::Dnn { layers: 3 }, vec![6]),
            (ModelKind::Cnn, vec![2, 5, 4]),
            (ModelKind::Gru, vec![4, 3]),
        ] {
            let plan = model.blueprint(&sample, 3).unwrap();
            let weights = plan.initial(1).unwrap();
            let width: usize = sample.iter().product();
            let samples = Samples::new(plan.spec().input.clone(), wave(width * 5, 0.3), vec![0, 2, 1, 1, 0]);
            let (at, parameters) = loss(plan.spec(), &weights, &samples);
            let gradients = at.backward().unwrap();
            for (name, variable) in parameters {
                let gradient =
                    gradients.get(&variable).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                // Along a wave through the whole tensor, so that every element counts.
                let direction = wave(gradient.len(), 0.9);
                let expected: f32 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
                let moved = |step: f32| {
                    let original = weights.get(&name).unwrap();
                    let values =
                        original.singles().iter().zip(&direction).map(|(w, d)| w + step * d).collect();
                    let mut changed = weights.clone();
                    changed.insert(&name, Stored::new(original.shape().to_vec(), values).unwrap());
                    loss(plan.spec(), &changed, &samples).0.to_scalar::<f32>().unwrap()
                };
                let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                let bound = 2e-3 + 0.02 * expected.abs();
                assert!(
                    (slope - expected).abs() < bound,
                    "{} {name}: slope {slope}, gradient {expected}",
                    model.name()
                );
            }
        }
    }

    /// Copied patches against the library's own convolution, which padding selects.
    #[test]
    fn convolution_by_patches_is_the_librarys() {
        let images = Tensor::from_vec(wave(2 * 2 * 7 * 6, 0.1), (2, 2, 7, 6), &Device::Cpu).unwrap();
        let weight = Tensor::from_vec(wave(3 * 2 * 3 * 2, 0.5), (3, 2, 3, 2), &Device::Cpu).unwrap();
        let ours = convolve(&images, &weight, None, 2, 0).unwrap();
        let theirs = images.conv2d(&weight, 0, 2, 1, 1).unwrap();
        assert_eq!(ours.dims(), [2, 3, 3, 3]);
        let difference =
            (ours - theirs).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(difference < 1e-5, "{difference}");
    }
}

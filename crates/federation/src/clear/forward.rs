//! A block of samples on its way through the layers.

use super::{
    activation::{GatedStep, activate},
    matrix::{affine, repeat},
    parameters::Tail,
};
use crate::{Conv2d, Gru, Layer};

/// Memory that successive blocks share. `values` holds a block before and after each layer.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) values: Vec<f64>,
    outputs: Vec<f64>,
    /// The rows that a layer's weights are multiplied with.
    rows: Vec<f64>,
    hidden: Vec<f64>,
}

/// Sends `scratch.values`, a block of this many samples, through all layers.
pub(super) fn forward(layers: &[Layer], parameters: Tail<'_>, samples: usize, scratch: &mut Scratch) {
    for (index, layer) in layers.iter().enumerate() {
        let parameters = parameters.layer(index);
        linear_rows(layer, samples, scratch);
        linear_product(layer, parameters, scratch);
        rest(layer, parameters, samples, scratch);
    }
}

/// Arranges a block as the rows that a layer's weights are multiplied with.
pub(super) fn linear_rows(layer: &Layer, samples: usize, scratch: &mut Scratch) {
    match layer {
        Layer::Linear(_) | Layer::Gru(_) => std::mem::swap(&mut scratch.values, &mut scratch.rows),
        Layer::Conv2d(conv) => cut_patches(conv, samples, &scratch.values, &mut scratch.rows),
        Layer::Activation(..) => {}
    }
}

/// The part of a layer that is linear in its parameters and needs nothing but the layer's input: everything
/// for linear layers and convolutions, the input gates for a recurrent unit, nothing for an activation. The
/// rows stay, so that one arrangement serves many models.
pub(super) fn linear_product(layer: &Layer, parameters: &[f64], scratch: &mut Scratch) {
    let (rows, values) = (&scratch.rows, &mut scratch.values);
    match layer {
        Layer::Linear(linear) => {
            let (weight, bias) = parameters.split_at(linear.outputs * linear.inputs);
            affine(rows, linear.inputs, weight, linear.bias.as_ref().map(|_| bias), values);
        }
        Layer::Conv2d(conv) => convolution(conv, parameters, scratch),
        Layer::Gru(gru) => {
            let tensors = GruTensors::new(gru, parameters);
            affine(rows, gru.features, tensors.weight_ih, tensors.bias_ih, values);
        }
        Layer::Activation(..) => {}
    }
}

/// The rest of a layer after its linear part.
pub(super) fn rest(layer: &Layer, parameters: &[f64], samples: usize, scratch: &mut Scratch) {
    match layer {
        Layer::Linear(_) | Layer::Conv2d(_) => {}
        Layer::Gru(gru) => recurrence(gru, parameters, samples, scratch),
        Layer::Activation(activation, _) => activate(*activation, &mut scratch.values),
    }
}

/// Numbers one sample has after a layer's linear part.
pub(super) fn linear_size(layer: &Layer) -> usize {
    match layer {
        Layer::Gru(gru) => gru.steps * 3 * gru.hidden,
        layer => layer.output_size(),
    }
}

/// The product has a row of channels for each position of the kernel; afterwards there is a row of positions
/// for each channel.
fn convolution(conv: &Conv2d, parameters: &[f64], scratch: &mut Scratch) {
    let [channels, rows, columns] = conv.output;
    let (inputs, positions) = (conv.input[0] * conv.kernel[0] * conv.kernel[1], rows * columns);
    let (weight, bias) = parameters.split_at(channels * inputs);
    affine(&scratch.rows, inputs, weight, conv.bias.as_ref().map(|_| bias), &mut scratch.outputs);
    scratch.values.clear();
    for sample in scratch.outputs.chunks_exact(positions * channels) {
        for channel in 0..channels {
            scratch.values.extend(sample.iter().skip(channel).step_by(channels));
        }
    }
}

/// Every position of the kernel becomes a row.
fn cut_patches(conv: &Conv2d, samples: usize, values: &[f64], patches: &mut Vec<f64>) {
    let [channels, height, width] = conv.input;
    let [_, rows, columns] = conv.output;
    let [kernel_height, kernel_width] = conv.kernel;
    patches.clear();
    patches.reserve(samples * rows * columns * channels * kernel_height * kernel_width);
    for sample in values.chunks_exact(channels * height * width) {
        for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
            for channel in sample.chunks_exact(height * width) {
                for y in (0..kernel_height).map(|y| (row * conv.stride + y).wrapping_sub(conv.padding)) {
                    let left = (column * conv.stride).wrapping_sub(conv.padding);
                    match channel.get(y.wrapping_mul(width)..).filter(|_| y < height) {
                        Some(line) => {
                            let x = (0..kernel_width).map(|x| left.wrapping_add(x));
                            patches.extend(x.map(|x| if x < width { line[x] } else { 0.0 }));
                        }
                        None => patches.extend((0..kernel_width).map(|_| 0.0)),
                    }
                }
            }
        }
    }
}

/// The hidden state after all steps, from the input gates of all steps.
fn recurrence(gru: &Gru, parameters: &[f64], samples: usize, scratch: &mut Scratch) {
    let tensors = GruTensors::new(gru, parameters);
    let (hidden, steps) = (gru.hidden, gru.steps);
    let state = &mut scratch.hidden;
    state.clear();
    state.resize(samples * hidden, 0.0);
    for step in 0..steps {
        match step {
            // The state before the first step is zero.
            0 => repeat(tensors.bias_hh, 3 * hidden, samples, &mut scratch.outputs),
            _ => affine(state, hidden, tensors.weight_hh, tensors.bias_hh, &mut scratch.outputs),
        }
        let (recurrent, inputs) = (&scratch.outputs, &scratch.values);
        GatedStep { state, recurrent, inputs, hidden, steps, step }.apply();
    }
    std::mem::swap(&mut scratch.values, &mut scratch.hidden);
}

/// A recurrent unit's tensors within its parameters.
struct GruTensors<'a> {
    weight_ih: &'a [f64],
    weight_hh: &'a [f64],
    bias_ih: Option<&'a [f64]>,
    bias_hh: Option<&'a [f64]>,
}

impl<'a> GruTensors<'a> {
    fn new(gru: &Gru, parameters: &'a [f64]) -> Self {
        let gates = 3 * gru.hidden;
        let (weight_ih, parameters) = parameters.split_at(gates * gru.features);
        let (weight_hh, biases) = parameters.split_at(gates * gru.hidden);
        let (bias_ih, bias_hh) = biases.split_at(if gru.bias_ih.is_some() { gates } else { 0 });
        Self {
            weight_ih,
            weight_hh,
            bias_ih: gru.bias_ih.as_ref().map(|_| bias_ih),
            bias_hh: gru.bias_hh.as_ref().map(|_| bias_hh),
        }
    }
}

//! A block of samples on its way through the layers.

use super::{
    activation::{GatedStep, activate},
    lstm::{self, LstmTensors},
    matrix::{affine, repeat},
    normalise::{batch_norm, embed, layer_norm, pool, transpose},
    parameters::Tail,
};
use crate::{Activation, Conv2d, Gru, Layer, PlacedLayer, Source};

/// Numbers of windows that are cut at once, where no other model needs them: what fits in the cache.
const WINDOW_NUMBERS: usize = 1 << 17;

/// Memory that successive blocks share. `values` holds a block before and after each layer.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) values: Vec<f64>,
    outputs: Vec<f64>,
    /// The rows that a layer's weights are multiplied with.
    rows: Vec<f64>,
    hidden: Vec<f64>,
    /// What later layers take again: the sample, then what each layer handed on.
    kept: Vec<Vec<f64>>,
}

impl Scratch {
    /// Keeps the block as it is now for layers behind the next.
    pub(super) fn keep(&mut self, source: Source) {
        let place = place_of(source);
        if self.kept.len() <= place {
            self.kept.resize_with(place + 1, Vec::new);
        }
        self.kept[place].clear();
        self.kept[place].extend_from_slice(&self.values);
    }

    fn take(&mut self, source: Source) {
        self.values.clear();
        self.values.extend(self.kept.get(place_of(source)).into_iter().flatten());
    }
}

fn place_of(source: Source) -> usize {
    match source {
        Source::Sample => 0,
        Source::Layer(index) => index + 1,
    }
}

/// Sends `scratch.values`, a block of this many samples, through the layers from `first` on. It is the input of the
/// first of them; what later ones take from before it must be kept.
pub(super) fn forward(
    layers: &[PlacedLayer],
    first: usize,
    parameters: Tail<'_>,
    samples: usize,
    scratch: &mut Scratch,
) {
    for (index, placed) in layers.iter().enumerate().skip(first) {
        let parameters = parameters.layer(index);
        arrange(placed, index, samples, scratch);
        match &placed.layer {
            Layer::Conv2d(conv) => convolution(conv, parameters, scratch),
            layer => {
                linear_rows(layer, scratch);
                linear_product(layer, parameters, scratch);
                rest(layer, parameters, samples, scratch);
            }
        }
        if placed.is_kept {
            scratch.keep(Source::Layer(index));
        }
    }
}

/// Brings together what a layer takes: one input, the sum of several, or several behind each other.
fn arrange(placed: &PlacedLayer, index: usize, samples: usize, scratch: &mut Scratch) {
    if placed.from == [Source::before(index)] {
        return;
    }
    if let Layer::Concat(widths) = &placed.layer {
        scratch.values.clear();
        for sample in 0..samples {
            for (source, width) in placed.from.iter().zip(widths) {
                let Some(kept) = scratch.kept.get(place_of(*source)) else { continue };
                scratch.values.extend_from_slice(&kept[sample * width..][..*width]);
            }
        }
        return;
    }
    for (place, &source) in placed.from.iter().enumerate() {
        match place {
            0 => scratch.take(source),
            _ => {
                let more = scratch.kept.get(place_of(source)).into_iter().flatten();
                scratch.values.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
        }
    }
}

/// Arranges a block as the rows that a layer's weights are multiplied with.
pub(super) fn linear_rows(layer: &Layer, scratch: &mut Scratch) {
    match layer {
        Layer::Linear(_) | Layer::Gru(_) | Layer::Lstm(_) | Layer::Embedding(_) => {
            std::mem::swap(&mut scratch.values, &mut scratch.rows)
        }
        Layer::Conv2d(conv) => cut_windows(conv, &scratch.values, &mut scratch.rows),
        _ => {}
    }
}

/// The part of a layer that is linear in its parameters and needs nothing but the layer's input: everything
/// for linear layers, convolutions and tables, the input gates for a recurrent unit, nothing for others. The
/// rows stay, so that one arrangement serves many models.
pub(super) fn linear_product(layer: &Layer, parameters: &[f64], scratch: &mut Scratch) {
    let (rows, values) = (&scratch.rows, &mut scratch.values);
    match layer {
        Layer::Linear(linear) => {
            let (weight, bias) = parameters.split_at(linear.outputs * linear.inputs);
            affine(rows, linear.inputs, weight, linear.bias.as_ref().map(|_| bias), values);
        }
        Layer::Conv2d(conv) => {
            values.clear();
            window_products(conv, parameters, rows, &mut scratch.outputs, values);
        }
        Layer::Gru(gru) => {
            let tensors = GruTensors::new(gru, parameters);
            affine(rows, gru.features, tensors.weight_ih, tensors.bias_ih, values);
        }
        Layer::Lstm(lstm) => {
            let tensors = LstmTensors::new(lstm, parameters);
            affine(rows, lstm.features, tensors.weight_ih, tensors.bias_ih, values);
        }
        Layer::Embedding(embedding) => embed(embedding, parameters, rows, values),
        _ => {}
    }
}

/// The rest of a layer after its linear part.
pub(super) fn rest(layer: &Layer, parameters: &[f64], samples: usize, scratch: &mut Scratch) {
    match layer {
        Layer::Gru(gru) => recurrence(gru, parameters, samples, scratch),
        Layer::Lstm(unit) => {
            let tensors = LstmTensors::new(unit, parameters);
            scratch.values = lstm::recurrence(unit, &tensors, samples, &scratch.values);
        }
        Layer::BatchNorm(norm) => batch_norm(norm, parameters, &mut scratch.values),
        Layer::LayerNorm(norm) => layer_norm(norm, parameters, &mut scratch.values),
        Layer::Activation(activation, _) => apply(activation, scratch),
        Layer::Linear(_) | Layer::Conv2d(_) | Layer::Embedding(_) | Layer::Add { .. } | Layer::Concat(_) => {}
    }
}

fn apply(activation: &Activation, scratch: &mut Scratch) {
    match activation {
        Activation::MaxPool(windows) => pool(windows, true, &scratch.values, &mut scratch.outputs),
        Activation::AveragePool(windows) => pool(windows, false, &scratch.values, &mut scratch.outputs),
        Activation::Transpose { rows, columns } => {
            transpose(*rows, *columns, &scratch.values, &mut scratch.outputs)
        }
        in_place => return activate(*in_place, &mut scratch.values),
    }
    std::mem::swap(&mut scratch.values, &mut scratch.outputs);
}

/// Numbers one sample has after a layer's linear part.
pub(super) fn linear_size(layer: &Layer) -> usize {
    match layer {
        Layer::Gru(gru) => gru.steps * 3 * gru.hidden,
        Layer::Lstm(lstm) => lstm.steps * 4 * lstm.hidden,
        layer => layer.output_size(),
    }
}

/// A convolution of a block, some samples at a time.
fn convolution(conv: &Conv2d, parameters: &[f64], scratch: &mut Scratch) {
    let [channels, height, width] = conv.input;
    let windows = conv.groups * conv.output[1] * conv.output[2] * conv.inputs();
    let some = (WINDOW_NUMBERS / windows.max(1)).max(1) * channels * height * width;
    std::mem::swap(&mut scratch.values, &mut scratch.hidden);
    scratch.values.clear();
    for values in scratch.hidden.chunks(some.max(1)) {
        cut_windows(conv, values, &mut scratch.rows);
        window_products(conv, parameters, &scratch.rows, &mut scratch.outputs, &mut scratch.values);
    }
}

/// Products of windows and kernels, behind `values`. A product has a row of channels for each position of the
/// kernel; afterwards there is a row of positions for each channel.
fn window_products(
    conv: &Conv2d,
    parameters: &[f64],
    windows: &[f64],
    products: &mut Vec<f64>,
    values: &mut Vec<f64>,
) {
    let [outputs, rows, columns] = conv.output;
    let (inputs, positions, channels) = (conv.inputs(), rows * columns, outputs / conv.groups);
    let (weight, bias) = parameters.split_at(outputs * inputs);
    let in_columns = |products: &[f64], values: &mut Vec<f64>| {
        for sample in products.chunks_exact(positions * channels) {
            for channel in 0..channels {
                values.extend(sample.iter().skip(channel).step_by(channels));
            }
        }
    };
    if conv.groups == 1 {
        affine(windows, inputs, weight, conv.bias.as_ref().map(|_| bias), products);
        return in_columns(products, values);
    }
    for (part, windows) in windows.chunks_exact(positions * inputs).enumerate() {
        let begin = part % conv.groups * channels;
        let weight = &weight[begin * inputs..][..channels * inputs];
        let bias = conv.bias.as_ref().map(|_| &bias[begin..][..channels]);
        affine(windows, inputs, weight, bias, products);
        in_columns(products, values);
    }
}

/// Every position of the kernel becomes a row, group by group.
fn cut_windows(conv: &Conv2d, values: &[f64], windows: &mut Vec<f64>) {
    let [channels, height, width] = conv.input;
    let [_, rows, columns] = conv.output;
    let [kernel_height, kernel_width] = conv.kernel;
    let ([down, across], [above, left]) = (conv.stride, conv.padding);
    windows.clear();
    windows.reserve(values.len() / (height * width).max(1) * rows * columns * kernel_height * kernel_width);
    for group in values.chunks_exact((channels / conv.groups * height * width).max(1)) {
        for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
            for channel in group.chunks_exact(height * width) {
                let y = (0..kernel_height).map(|y| (row * down + y * conv.dilation[0]).wrapping_sub(above));
                for y in y {
                    let first = (column * across).wrapping_sub(left);
                    match channel.get(y.wrapping_mul(width)..).filter(|_| y < height) {
                        Some(line) => {
                            let x = (0..kernel_width).map(|x| first.wrapping_add(x * conv.dilation[1]));
                            windows.extend(x.map(|x| if x < width { line[x] } else { 0.0 }));
                        }
                        None => windows.extend((0..kernel_width).map(|_| 0.0)),
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

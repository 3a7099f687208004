//! The canonical encoding of what everybody knows before a session: its digest is the session's fingerprint.
//!
//! Numbers are little-endian. A text or a list has its length before it, as 8 bytes; something optional a byte before it,
//! 1 if it is there. In this order:
//!
//! | what | how |
//! | --- | --- |
//! | version | the text `secsv session, format 6` |
//! | name of the federation | text |
//! | rounds | 4 bytes |
//! | clients | list of: name (text), weight (8 bytes), list of other weights (round, 4 bytes; weight, 8 bytes) |
//! | input of the model | list of sizes, 8 bytes each |
//! | classes | 8 bytes |
//! | layers | list of: kind (1 byte, below), then names of tensors (texts; biases optional) and sizes (8 bytes) |
//! | tensors | list in the order of their names: name (text), list of sizes |
//! | weights that count | list of: round (4 bytes), list of weights by client, 0 for those who took no part |
//! | settings | protocol, preset, matrix method, whether samples are always skipped (2: not, and right predictions are counted by class), whether rounds are asked for as a whole: 1 byte each |
//! | extras | layout of files (0 PyTorch's, 1 Keras's), aggregation (0 means, 1 other): 1 byte each; nothing if both are 0 |
//! | hidden numbers | ranges (0 auto, 1 calibrated, 2 proven), 4 more where all are checked, 8 more where labels of ten thousand that must agree follow in 2 bytes: 1 byte; nothing for 0 |
//! | limits | 255, rounds (4 bytes), norm, input (8 bytes each), hidden numbers (a byte, and 8 if there is one); nothing without limits |
//!
//! A whole weight, such as a number of samples, is that number; another one the bits of the double, which is above all
//! of those: no weight is below 1e-9, and none above 2^46.
//!
//! Kinds of layers: 0 linear (weight, bias), 1 convolution (weight, bias, stride, padding), 2 gated recurrent unit
//! (weights of input and state, biases of both), 3 ReLU, 4 sigmoid, 5 tanh, 6 square, 7 softmax, 8 flatten, 9 convolution
//! with dilation or groups (as 1, then these), 10 the same in one dimension, 11 long short-term memory (as 2, then whether it
//! hands on all states), 12 embedding (weight), 13 batch norm (weight and bias, optional; mean, variance; epsilon, optional),
//! 14 layer norm (weight, bias, epsilon, all optional), 15 to 18 pools: largest and mean in two dimensions, then in one (size,
//! stride, padding), 19 and 20 mean and largest of all, 21 leaky ReLU (slope, optional), 22 GELU, 23 SiLU, 24 ELU (alpha), 25
//! ReLU6, 26 hard tanh, 27 hard sigmoid, 28 reshape (sizes), 29 transpose, 30 nothing, 31 sum, 32 concatenation. Before a layer
//! with names stands 255, then its own name, optional, and the list of those in `from`. Real numbers are the bits of a double.

use std::collections::BTreeMap;

use secsv_federation::{
    Aggregation, Architecture, ConvolutionSpec, FederationSpec, LayerSpec, Layout, NamedLayer, PoolSpec,
    RoundId,
};
use secsv_he::Preset;

use super::{HiddenSettings, Matmul, Settings};
use crate::codec::Writer;

const VERSION: &str = "secsv session, format 6";

/// The encoding of a federation.
pub(super) fn encode(
    spec: &FederationSpec,
    architecture: &Architecture,
    rounds: &BTreeMap<RoundId, Vec<f64>>,
    settings: &Settings,
) -> Vec<u8> {
    let mut w = Writer::default();
    text(&mut w, VERSION);
    text(&mut w, &spec.name);
    w.u32(spec.rounds).u64(spec.clients.len() as u64);
    for client in &spec.clients {
        text(&mut w, client.id.as_str());
        w.u64(weight(client.weight)).u64(client.rounds.len() as u64);
        for other in &client.rounds {
            w.u32(other.round.0).u64(weight(other.weight));
        }
    }
    sizes(&mut w, &spec.model.input);
    w.u64(spec.model.classes as u64).u64(spec.model.layers.len() as u64);
    spec.model.layers.iter().for_each(|named| named_layer(&mut w, named));
    w.u64(architecture.tensors().len() as u64);
    for (name, shape) in architecture.tensors() {
        text(&mut w, name);
        sizes(&mut w, shape);
    }
    w.u64(rounds.len() as u64);
    for (round, weights) in rounds {
        w.u32(round.0).u64(weights.len() as u64);
        weights.iter().for_each(|&of_client| {
            w.u64(weight(of_client));
        });
    }
    self::settings(&mut w, settings);
    extras(&mut w, spec);
    hidden(&mut w, settings.hidden);
    limits(&mut w, spec);
    w.finish()
}

/// What files of other frameworks need; nothing where they are PyTorch's and aggregates are means.
fn extras(w: &mut Writer, spec: &FederationSpec) {
    let layout = match spec.model.layout {
        None | Some(Layout::PyTorch) => 0,
        Some(Layout::Keras) => 1,
    };
    let aggregation = match spec.aggregation {
        Aggregation::Mean => 0,
        Aggregation::Other => 1,
    };
    if layout + aggregation > 0 {
        w.u8(layout).u8(aggregation);
    }
}

/// How numbers that nobody reads are held in their ranges; nothing where it is as usual.
fn hidden(w: &mut Writer, hidden: HiddenSettings) {
    w.raw(&hidden.session_bytes());
}

/// What was agreed on before there were models. No other part begins with so large a byte.
fn limits(w: &mut Writer, spec: &FederationSpec) {
    if let Some(limits) = &spec.limits {
        w.u8(255).u32(limits.rounds).u64(limits.norm.to_bits()).u64(limits.input.to_bits());
        optional_number(w, limits.hidden);
    }
}

fn weight(weight: f64) -> u64 {
    if weight.fract() == 0.0 { weight as u64 } else { weight.to_bits() }
}

fn text(w: &mut Writer, text: &str) {
    w.counted(text.as_bytes());
}

fn optional_text(w: &mut Writer, content: Option<&str>) {
    w.u8(content.is_some().into());
    content.into_iter().for_each(|content| text(w, content));
}

fn sizes(w: &mut Writer, sizes: &[usize]) {
    w.u64(sizes.len() as u64);
    sizes.iter().for_each(|&size| {
        w.u64(size as u64);
    });
}

fn optional_number(w: &mut Writer, number: Option<f64>) {
    w.u8(number.is_some().into());
    number.into_iter().for_each(|number| {
        w.u64(number.to_bits());
    });
}

/// The names come first, where there are any.
fn named_layer(w: &mut Writer, named: &NamedLayer) {
    if named.name.is_some() || !named.from.is_empty() {
        w.u8(255);
        optional_text(w, named.name.as_deref());
        w.u64(named.from.len() as u64);
        named.from.iter().for_each(|name| text(w, name));
    }
    layer(w, &named.layer);
}

fn convolution(w: &mut Writer, kind: u8, conv: &ConvolutionSpec) {
    text(w.u8(kind), &conv.weight);
    optional_text(w, conv.bias.as_deref());
    let sizes = [conv.stride, conv.padding, conv.dilation, conv.groups];
    let known = if kind == 1 { 2 } else { 4 };
    sizes[..known].iter().for_each(|&size| {
        w.u64(size as u64);
    });
}

fn pool(w: &mut Writer, kind: u8, pool: &PoolSpec) {
    let stride = pool.stride.unwrap_or(pool.size);
    w.u8(kind).u64(pool.size as u64).u64(stride as u64).u64(pool.padding as u64);
}

/// Layers with tensors.
fn layer(w: &mut Writer, layer: &LayerSpec) {
    match layer {
        LayerSpec::Linear { weight, bias } => {
            text(w.u8(0), weight);
            optional_text(w, bias.as_deref());
        }
        LayerSpec::Conv2d(conv) if (conv.dilation, conv.groups) == (1, 1) => convolution(w, 1, conv),
        LayerSpec::Conv2d(conv) => convolution(w, 9, conv),
        LayerSpec::Conv1d(conv) => convolution(w, 10, conv),
        LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh } => {
            text(w.u8(2), weight_ih);
            text(w, weight_hh);
            optional_text(w, bias_ih.as_deref());
            optional_text(w, bias_hh.as_deref());
        }
        LayerSpec::Lstm { weight_ih, weight_hh, bias_ih, bias_hh, sequence } => {
            text(w.u8(11), weight_ih);
            text(w, weight_hh);
            optional_text(w, bias_ih.as_deref());
            optional_text(w, bias_hh.as_deref());
            w.u8((*sequence).into());
        }
        LayerSpec::Embedding { weight } => text(w.u8(12), weight),
        LayerSpec::BatchNorm(norm) => {
            optional_text(w.u8(13), norm.weight.as_deref());
            optional_text(w, norm.bias.as_deref());
            text(w, &norm.mean);
            text(w, &norm.variance);
            optional_number(w, norm.epsilon);
        }
        LayerSpec::LayerNorm { weight, bias, epsilon } => {
            optional_text(w.u8(14), weight.as_deref());
            optional_text(w, bias.as_deref());
            optional_number(w, *epsilon);
        }
        other => layer_without_tensors(w, other),
    }
}

fn layer_without_tensors(w: &mut Writer, layer: &LayerSpec) {
    match layer {
        LayerSpec::Relu {} => drop(w.u8(3)),
        LayerSpec::Sigmoid {} => drop(w.u8(4)),
        LayerSpec::Tanh {} => drop(w.u8(5)),
        LayerSpec::Square {} => drop(w.u8(6)),
        LayerSpec::Softmax {} => drop(w.u8(7)),
        LayerSpec::Flatten {} => drop(w.u8(8)),
        LayerSpec::MaxPool2d(windows) => pool(w, 15, windows),
        LayerSpec::AvgPool2d(windows) => pool(w, 16, windows),
        LayerSpec::MaxPool1d(windows) => pool(w, 17, windows),
        LayerSpec::AvgPool1d(windows) => pool(w, 18, windows),
        LayerSpec::GlobalAvgPool {} => drop(w.u8(19)),
        LayerSpec::GlobalMaxPool {} => drop(w.u8(20)),
        LayerSpec::LeakyRelu { slope } => optional_number(w.u8(21), *slope),
        LayerSpec::Gelu {} => drop(w.u8(22)),
        LayerSpec::Silu {} => drop(w.u8(23)),
        LayerSpec::Elu { alpha } => optional_number(w.u8(24), Some(*alpha)),
        LayerSpec::Relu6 {} => drop(w.u8(25)),
        LayerSpec::HardTanh {} => drop(w.u8(26)),
        LayerSpec::HardSigmoid {} => drop(w.u8(27)),
        LayerSpec::Reshape { shape } => sizes(w.u8(28), shape),
        LayerSpec::Transpose {} => drop(w.u8(29)),
        LayerSpec::Dropout { .. } | LayerSpec::Identity {} => drop(w.u8(30)),
        LayerSpec::Add {} => drop(w.u8(31)),
        LayerSpec::Concat {} => drop(w.u8(32)),
        // The others are written with their tensors.
        _ => {}
    }
}

fn settings(w: &mut Writer, settings: &Settings) {
    let Settings { protocol, preset, matmul, always_skips, whole_rounds, .. } = *settings;
    let found = if settings.counts_classes() { 2 } else { always_skips.into() };
    let preset = match preset {
        Preset::Standard => 0,
        Preset::Compact => 1,
    };
    let matmul = match matmul {
        Matmul::Packed => 0,
        Matmul::Reducing => 1,
        Matmul::Squaring => 2,
    };
    w.u8(protocol.rules().session_byte()).u8(preset).u8(matmul).u8(found).u8(whole_rounds.into());
}

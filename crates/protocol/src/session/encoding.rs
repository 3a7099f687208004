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
//! | settings | protocol, preset, matrix method, whether samples are always skipped, whether rounds are asked for as a whole: 1 byte each |
//! | extras | layout of files (0 PyTorch's, 1 Keras's), aggregation (0 means, 1 other): 1 byte each; nothing if both are 0 |
//!
//! A whole weight, such as a number of samples, is that number; another one the bits of the double, which is above all
//! of those: no weight is below 1e-9, and none above 2^46.
//!
//! Kinds of layers: 0 linear (weight, bias), 1 convolution (weight, bias, stride, padding), 2 gated recurrent unit
//! (weights of input and state, biases of both), 3 ReLU, 4 sigmoid, 5 tanh, 6 square, 7 softmax, 8 flatten.

use std::collections::BTreeMap;

use secsv_federation::{Aggregation, Architecture, FederationSpec, LayerSpec, Layout, RoundId};
use secsv_he::Preset;

use super::{Matmul, Settings};
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
    spec.model.layers.iter().for_each(|named| layer(&mut w, &named.layer));
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

fn layer(w: &mut Writer, layer: &LayerSpec) {
    match layer {
        LayerSpec::Linear { weight, bias } => {
            text(w.u8(0), weight);
            optional_text(w, bias.as_deref());
        }
        LayerSpec::Conv2d(conv) => {
            text(w.u8(1), &conv.weight);
            optional_text(w, conv.bias.as_deref());
            w.u64(conv.stride as u64).u64(conv.padding as u64);
        }
        LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh } => {
            text(w.u8(2), weight_ih);
            text(w, weight_hh);
            optional_text(w, bias_ih.as_deref());
            optional_text(w, bias_hh.as_deref());
        }
        LayerSpec::Relu {} => drop(w.u8(3)),
        LayerSpec::Sigmoid {} => drop(w.u8(4)),
        LayerSpec::Tanh {} => drop(w.u8(5)),
        LayerSpec::Square {} => drop(w.u8(6)),
        LayerSpec::Softmax {} => drop(w.u8(7)),
        LayerSpec::Flatten {} => drop(w.u8(8)),
    }
}

fn settings(w: &mut Writer, settings: &Settings) {
    let Settings { protocol, preset, matmul, always_skips, whole_rounds } = *settings;
    let preset = match preset {
        Preset::Standard => 0,
        Preset::Compact => 1,
    };
    let matmul = match matmul {
        Matmul::Packed => 0,
        Matmul::Reducing => 1,
        Matmul::Squaring => 2,
    };
    w.u8(protocol.rules().session_byte())
        .u8(preset)
        .u8(matmul)
        .u8(always_skips.into())
        .u8(whole_rounds.into());
}

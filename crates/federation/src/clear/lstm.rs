//! A long short-term memory, step by step.

use super::{
    activation::{sigmoid, tanh},
    matrix::{affine, repeat},
};
use crate::Lstm;

/// Its tensors within its parameters.
pub(super) struct LstmTensors<'a> {
    pub(super) weight_ih: &'a [f64],
    weight_hh: &'a [f64],
    pub(super) bias_ih: Option<&'a [f64]>,
    bias_hh: Option<&'a [f64]>,
}

impl<'a> LstmTensors<'a> {
    pub(super) fn new(lstm: &Lstm, parameters: &'a [f64]) -> Self {
        let gates = 4 * lstm.hidden;
        let (weight_ih, parameters) = parameters.split_at(gates * lstm.features);
        let (weight_hh, biases) = parameters.split_at(gates * lstm.hidden);
        let (bias_ih, bias_hh) = biases.split_at(if lstm.bias_ih.is_some() { gates } else { 0 });
        Self {
            weight_ih,
            weight_hh,
            bias_ih: lstm.bias_ih.as_ref().map(|_| bias_ih),
            bias_hh: lstm.bias_hh.as_ref().map(|_| bias_hh),
        }
    }
}

/// The hidden states, from the input gates `[samples, steps, 4 hidden]`: those of all steps, or the last.
pub(super) fn recurrence(lstm: &Lstm, tensors: &LstmTensors<'_>, samples: usize, inputs: &[f64]) -> Vec<f64> {
    let (hidden, steps, gates) = (lstm.hidden, lstm.steps, 4 * lstm.hidden);
    let (mut state, mut cell) = (vec![0.0; samples * hidden], vec![0.0; samples * hidden]);
    let mut sequence = vec![0.0; if lstm.sequence { samples * steps * hidden } else { 0 }];
    let mut recurrent = Vec::new();
    for step in 0..steps {
        match step {
            // The state before the first step is zero.
            0 => repeat(tensors.bias_hh, gates, samples, &mut recurrent),
            _ => affine(&state, hidden, tensors.weight_hh, tensors.bias_hh, &mut recurrent),
        }
        for sample in 0..samples {
            let input = &inputs[(sample * steps + step) * gates..][..gates];
            let recurrent = &recurrent[sample * gates..][..gates];
            for unit in 0..hidden {
                let gate = |which: usize| input[which * hidden + unit] + recurrent[which * hidden + unit];
                let (enter, forget, output) = (sigmoid(gate(0)), sigmoid(gate(1)), sigmoid(gate(3)));
                let place = sample * hidden + unit;
                cell[place] = forget * cell[place] + enter * tanh(gate(2));
                state[place] = output * tanh(cell[place]);
            }
            if lstm.sequence {
                let target = &mut sequence[(sample * steps + step) * hidden..][..hidden];
                target.copy_from_slice(&state[sample * hidden..][..hidden]);
            }
        }
    }
    if lstm.sequence { sequence } else { state }
}

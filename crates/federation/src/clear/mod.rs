//! Models tested in the clear, in double precision: the answer that every secure protocol is measured
//! against.
//!
//! A class is predicted where its score is largest; ties go to the lowest class. Of a single score, class 1 is predicted where
//! it is above 0. Sigmoid, tanh and softmax
//! after the last scores are left out before scores are compared: they grow strictly with their input, so
//! they cannot change which score is largest, but rounding could (a saturated sigmoid makes 40 and 50 equal).

mod activation;
mod coalition;
mod cumulative;
mod first_layer;
mod forward;
mod lstm;
mod matrix;
mod normalise;
mod parameters;
mod partial_sums;
mod round_models;

use rayon::prelude::*;

use crate::{Architecture, CollectiveTestSet, PlacedLayer, SampleSet, Source, Weights};

pub use activation::{activate, sigmoid, tanh};
pub use coalition::{ClearRound, cost};
pub use cumulative::CumulativeModels;
use forward::{Scratch, forward};
pub use normalise::{pool, transpose};
pub use parameters::ModelParameters;

pub use crate::up_to_scores;

/// Samples that pass the layers together: enough for the matrix products, few enough for the cache.
const BLOCK: usize = 128;

/// One model's scores, row by row: as many numbers for every sample as the last layer hands on. Every layer is
/// computed, those behind the last scores too.
pub fn scores(architecture: &Architecture, weights: &Weights, features: &[f32]) -> Vec<f64> {
    let parameters = ModelParameters::new(architecture, weights);
    let size = architecture.input_size();
    let blocks: Vec<Vec<f64>> = features
        .par_chunks(BLOCK * size)
        .map(|block| {
            let mut scratch = Scratch::default();
            scratch.values.extend(block.iter().map(|&v| f64::from(v)));
            forward_samples(
                architecture,
                architecture.layers(),
                &parameters,
                block.len() / size,
                &mut scratch,
            );
            scratch.values
        })
        .collect();
    blocks.concat()
}

/// The samples that one model predicts right, every layer computed from the samples up.
pub fn correct_samples(
    architecture: &Architecture,
    parameters: &ModelParameters,
    test_set: &CollectiveTestSet,
    samples: &SampleSet,
) -> SampleSet {
    let rows: Vec<usize> = samples.iter().collect();
    let layers = up_to_scores(architecture.layers());
    let right: Vec<Vec<usize>> = rows
        .par_chunks(BLOCK)
        .map_init(Scratch::default, |scratch, rows| {
            scratch.values.clear();
            for &row in rows {
                scratch.values.extend(test_set.sample(row).iter().map(|&v| f64::from(v)));
            }
            forward_samples(architecture, layers, parameters, rows.len(), scratch);
            right_rows(&scratch.values, architecture.outputs(), rows, test_set.labels())
        })
        .collect();
    let mut correct = SampleSet::none(test_set.len());
    right.into_iter().flatten().for_each(|row| correct.insert(row));
    correct
}

/// Sends samples through layers, from the first.
fn forward_samples(
    architecture: &Architecture,
    layers: &[PlacedLayer],
    parameters: &ModelParameters,
    samples: usize,
    scratch: &mut Scratch,
) {
    if architecture.keeps_sample() {
        scratch.keep(Source::Sample);
    }
    forward(layers, 0, parameters.tail(), samples, scratch);
}

/// Which of `rows` have their largest score at their label.
fn right_rows(scores: &[f64], outputs: usize, rows: &[usize], labels: &[i64]) -> Vec<usize> {
    let scored = scores.chunks_exact(outputs).zip(rows);
    scored.filter(|(scores, row)| predicted(scores) as i64 == labels[**row]).map(|(_, &row)| row).collect()
}

/// The class of the largest score; the lowest of them where several are equal. Of a single score, the second class where
/// it is above 0.
pub fn predicted(scores: &[f64]) -> usize {
    if let [score] = scores {
        return usize::from(*score > 0.0);
    }
    let mut best = 0;
    for (class, score) in scores.iter().enumerate().skip(1) {
        if *score > scores[best] {
            best = class;
        }
    }
    best
}

#[cfg(test)]
mod tests;

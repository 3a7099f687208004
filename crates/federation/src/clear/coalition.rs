//! All coalitions of one round, fast.
//!
//! A coalition's model is a weighted sum of local models, and the first layer is linear in its parameters:
//! its outputs for any coalition are the same weighted sum of the local models' outputs. So the first layer
//! is computed once for each local model. Coalitions are visited in an order in which each is one addition
//! away from a partial sum that is still there. Sums run over members in ascending order whatever the path,
//! so a coalition's result does not depend on what else is asked for.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::{
    BLOCK, ModelParameters, correct_samples,
    first_layer::FirstLayerOutputs,
    forward::{Scratch, linear_size},
    partial_sums::PartialSums,
    right_rows,
    round_models::{RoundModels, summed_layer},
};
use crate::{
    Architecture, Coalition, CollectiveTestSet, Layer, PlacedLayer, SampleSet, Weights, up_to_scores,
};

/// Above this many bytes of first-layer outputs, coalition models are computed whole instead.
const FIRST_LAYER_BYTES: usize = 2 << 30;
/// Tasks for each thread: enough to balance them, few enough to share partial sums within each.
const TASKS_PER_THREAD: usize = 8;

/// Cost of a test of `coalition` on `samples` of `all` samples, in multiplications: `skip auto` weighs it
/// against the search for samples to skip.
pub fn cost(architecture: &Architecture, all: usize, coalition: Coalition, samples: usize) -> f64 {
    let layers = up_to_scores(architecture.layers());
    let multiplications = |layers: &[PlacedLayer]| -> usize {
        layers.iter().map(|placed| placed.layer.multiplications()).sum()
    };
    let Some(first) = summed_layer(layers) else {
        return samples as f64 * multiplications(layers) as f64;
    };
    let tail = multiplications(&layers[first..]);
    let width = linear_size(&layers[first].layer);
    let products = match &layers[first].layer {
        Layer::Gru(gru) => width * gru.features,
        Layer::Lstm(lstm) => width * lstm.features,
        layer => layer.multiplications(),
    };
    // On all samples one addition makes the first layer's outputs, on some of them one for each member.
    let sums = if samples == all { 1 } else { coalition.len() };
    samples as f64 * (tail.saturating_sub(products) + sums * width) as f64
}

/// The local models of one round, ready to be tested in any coalition.
pub struct ClearRound<'a> {
    models: RoundModels<'a>,
    participants: Coalition,
    /// None if it would not fit: then models are computed whole.
    first_layer: Option<FirstLayerOutputs>,
}

impl<'a> ClearRound<'a> {
    /// Local models by their client's position, with their weights, which must not be 0.
    pub fn new(
        architecture: &'a Architecture,
        test_set: &'a CollectiveTestSet<'a>,
        models: impl IntoIterator<Item = (usize, f64, Weights)>,
    ) -> Self {
        Self::with_budget(architecture, test_set, models, FIRST_LAYER_BYTES)
    }

    pub(super) fn with_budget(
        architecture: &'a Architecture,
        test_set: &'a CollectiveTestSet<'a>,
        models: impl IntoIterator<Item = (usize, f64, Weights)>,
        first_layer_bytes: usize,
    ) -> Self {
        let models = RoundModels::new(architecture, test_set, models);
        let RoundModels { layers, first, has_sums, ref members, .. } = models;
        let participants = members.iter().map(|member| member.position).collect();
        let bytes =
            FirstLayerOutputs::bytes(members.len(), test_set.len(), linear_size(&layers[first].layer));
        let first_layer = (has_sums && bytes <= first_layer_bytes).then(|| {
            let weighted: Vec<_> = members.iter().map(|member| (&member.parameters, member.weight)).collect();
            FirstLayerOutputs::new(layers, first, &weighted, test_set)
        });
        Self { models, participants, first_layer }
    }

    /// Who took part.
    pub fn participants(&self) -> Coalition {
        self.participants
    }

    /// For each coalition and the samples to test it on, those that it predicts right. Coalitions must not be
    /// empty and must be of participants.
    pub fn correct_samples(&self, tests: &[(Coalition, SampleSet)]) -> Vec<SampleSet> {
        let mut correct: Vec<SampleSet> = tests.iter().map(|(_, s)| SampleSet::none(s.total())).collect();
        let Some(first_layer) = &self.first_layer else {
            for (correct, (coalition, samples)) in correct.iter_mut().zip(tests) {
                *correct = self.test_whole_model(*coalition, samples);
            }
            return correct;
        };
        let (on_all, on_some): (Vec<usize>, Vec<usize>) =
            (0..tests.len()).partition(|&test| tests[test].1.is_all());
        let coalitions: Vec<Coalition> = on_all.iter().map(|&test| tests[test].0).collect();
        for (test, samples) in on_all.into_iter().zip(self.test_on_all(first_layer, &coalitions)) {
            correct[test] = samples;
        }
        let some: Vec<_> = on_some
            .par_iter()
            .map(|&test| (test, self.test_on_some(first_layer, tests[test].0, &tests[test].1)))
            .collect();
        for (test, samples) in some {
            correct[test] = samples;
        }
        correct
    }

    /// Bytes that the first layer's outputs take.
    pub fn bytes(&self) -> usize {
        self.first_layer.as_ref().map_or(0, FirstLayerOutputs::len_bytes)
    }

    fn test_whole_model(&self, coalition: Coalition, samples: &SampleSet) -> SampleSet {
        let members = self.models.members_of(coalition).map(|member| (&member.parameters, member.weight));
        match ModelParameters::mean(members) {
            Some(mean) => correct_samples(self.models.architecture, &mean, self.models.test_set, samples),
            None => SampleSet::none(samples.total()),
        }
    }

    /// Tests coalitions on every sample: tasks are runs of coalitions times blocks of samples.
    fn test_on_all(&self, first_layer: &FirstLayerOutputs, coalitions: &[Coalition]) -> Vec<SampleSet> {
        let samples = self.models.test_set.len();
        let mut order: Vec<usize> = (0..coalitions.len()).collect();
        // Neighbours share their first members as long as possible.
        order.sort_unstable_by_key(|&i| Reverse(coalitions[i].bits().reverse_bits()));
        let blocks = samples.div_ceil(BLOCK).max(1);
        let wanted = (rayon::current_num_threads() * TASKS_PER_THREAD).div_ceil(blocks);
        let run = order.len().div_ceil(wanted).max(1);
        let tasks: Vec<(usize, &[usize])> =
            (0..blocks).flat_map(|block| order.chunks(run).map(move |run| (block, run))).collect();
        let right: Vec<Vec<[u64; BLOCK / 64]>> = tasks
            .par_iter()
            .map(|&(block, run)| {
                let rows = block * BLOCK..samples.min((block + 1) * BLOCK);
                let mut sums = PartialSums::new(&self.models, first_layer, rows);
                run.iter().map(|&index| sums.test(coalitions[index])).collect()
            })
            .collect();
        let mut correct = vec![SampleSet::none(samples); coalitions.len()];
        for ((block, run), right) in tasks.into_iter().zip(right) {
            for (&index, words) in run.iter().zip(right) {
                correct[index].insert_words(block * BLOCK, &words);
            }
        }
        correct
    }

    /// Tests one coalition on some samples: first-layer outputs are summed for these alone.
    fn test_on_some(
        &self,
        first_layer: &FirstLayerOutputs,
        coalition: Coalition,
        samples: &SampleSet,
    ) -> SampleSet {
        let rows: Vec<usize> = samples.iter().collect();
        let models: Vec<usize> = (0..self.models.members.len())
            .filter(|&model| coalition.contains(self.models.members[model].position))
            .collect();
        let total: f64 = self.models.members_of(coalition).map(|member| member.weight).sum();
        let mut tail = Vec::new();
        self.models.members_of(coalition).for_each(|member| accumulate(&mut tail, &member.tail));
        tail.iter_mut().for_each(|v| *v *= 1.0 / total);
        let right: Vec<Vec<usize>> = rows
            .par_chunks(BLOCK)
            .map_init(Scratch::default, |scratch, rows| {
                scratch.values.clear();
                for &row in rows {
                    let begin = scratch.values.len();
                    for (index, &model) in models.iter().enumerate() {
                        let outputs = first_layer.sample(model, row);
                        match index {
                            0 => scratch.values.extend_from_slice(outputs),
                            _ => add(&mut scratch.values[begin..], outputs),
                        }
                    }
                }
                scratch.values.iter_mut().for_each(|v| *v *= 1.0 / total);
                self.models.finish(&tail, rows.len(), scratch);
                right_rows(
                    &scratch.values,
                    self.models.architecture.outputs(),
                    rows,
                    self.models.test_set.labels(),
                )
            })
            .collect();
        let mut correct = SampleSet::none(samples.total());
        right.into_iter().flatten().for_each(|row| correct.insert(row));
        correct
    }
}

fn accumulate(sum: &mut Vec<f64>, more: &[f64]) {
    if sum.is_empty() { sum.extend_from_slice(more) } else { add(sum, more) }
}

fn add(sum: &mut [f64], more: &[f64]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

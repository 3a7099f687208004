//! Sums over many coalitions, each one addition away from a sum that is still there.

use super::{BLOCK, first_layer::FirstLayerOutputs, forward::Scratch, predicted, round_models::RoundModels};
use crate::Coalition;

/// Sums over the members of one coalition after the other, for one block of samples. Level k holds the sum
/// over the first k + 1 members; a level is kept as long as coalitions begin with the same members.
pub(super) struct PartialSums<'a> {
    models: &'a RoundModels<'a>,
    first_layer: &'a FirstLayerOutputs,
    rows: std::ops::Range<usize>,
    members: Vec<usize>,
    levels: Vec<Level>,
    scratch: Scratch,
    tail: Vec<f64>,
}

#[derive(Default)]
struct Level {
    outputs: Vec<f64>,
    tail: Vec<f64>,
    total: f64,
}

impl<'a> PartialSums<'a> {
    pub(super) fn new(
        models: &'a RoundModels<'a>,
        first_layer: &'a FirstLayerOutputs,
        rows: std::ops::Range<usize>,
    ) -> Self {
        let (members, levels, scratch, tail) = (Vec::new(), Vec::new(), Scratch::default(), Vec::new());
        Self { models, first_layer, rows, members, levels, scratch, tail }
    }

    /// One bit for each sample of the block: whether the coalition predicts it right.
    pub(super) fn test(&mut self, coalition: Coalition) -> [u64; BLOCK / 64] {
        let mut right = [0; BLOCK / 64];
        self.sum_over(coalition);
        let Some(level) = self.members.len().checked_sub(1).map(|top| &self.levels[top]) else {
            return right;
        };
        let is_final = self.models.first + 1 == self.models.layers.len() && level.tail.is_empty();
        let scores = if is_final {
            // The largest score stays the largest without the division by the total weight.
            &level.outputs
        } else {
            let factor = 1.0 / level.total;
            self.scratch.values.clear();
            self.scratch.values.extend(level.outputs.iter().map(|v| v * factor));
            self.tail.clear();
            self.tail.extend(level.tail.iter().map(|v| v * factor));
            self.models.finish(&self.tail, self.rows.len(), &mut self.scratch);
            &self.scratch.values
        };
        let labels = &self.models.test_set.labels()[self.rows.clone()];
        let scored = scores.chunks_exact(self.models.architecture.outputs()).zip(labels);
        for (row, (scores, &label)) in scored.enumerate() {
            right[row / 64] |= u64::from(predicted(scores) as i64 == label) << (row % 64);
        }
        right
    }

    fn sum_over(&mut self, coalition: Coalition) {
        let wanted: Vec<usize> = (0..self.models.members.len())
            .filter(|&member| coalition.contains(self.models.members[member].position))
            .collect();
        let shared = self.members.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        self.levels.resize_with(self.levels.len().max(wanted.len()), Level::default);
        for (depth, &member) in wanted.iter().enumerate().skip(shared) {
            let outputs = self.first_layer.block(member, self.rows.start / BLOCK);
            let member = &self.models.members[member];
            let (below, above) = self.levels.split_at_mut(depth);
            let level = &mut above[0];
            let below = below.last();
            sum_into(&mut level.outputs, below.map(|level| &level.outputs[..]), outputs);
            sum_into(&mut level.tail, below.map(|level| &level.tail[..]), &member.tail);
            level.total = below.map_or(0.0, |level| level.total) + member.weight;
        }
        self.members = wanted;
    }
}

fn sum_into(sum: &mut Vec<f64>, below: Option<&[f64]>, more: &[f64]) {
    sum.clear();
    match below {
        None => sum.extend_from_slice(more),
        Some(below) => sum.extend(below.iter().zip(more).map(|(a, b)| a + b)),
    }
}

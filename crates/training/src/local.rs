//! The work of one client in one round: train the global model on its own samples.

use candle_core::{Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss::cross_entropy};
use rand::Rng;
use rand::seq::SliceRandom;
use secsv_federation::{ModelSpec, Weights};

use crate::network::TrainableNetwork;
use crate::{Samples, TrainingError};

/// How a client trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalTraining {
    /// Passes over its samples in each round.
    pub epochs: u32,
    /// Adam's step size. Its moments start anew in every round.
    pub learning_rate: f64,
    /// Samples per step.
    pub batch: usize,
    /// The loss that is minimised.
    pub loss: Loss,
}

/// The loss of local training: cross-entropy of the raw scores, as they are or corrected for label skew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// As the paper's authors do. A client that holds one class learns to answer nothing else.
    Plain,
    /// The scores of class c get the logarithm of (the client's share of c / the federation's share of c)
    /// added during training. When clients differ in how often classes occur and in nothing else, as a
    /// Dirichlet split makes them, every client then aims at the same model, and averages do not drift
    /// towards the larger clients' favourite class.
    #[default]
    Calibrated,
}

impl Loss {
    /// Numbers that training adds to the scores of each class. One imagined sample per class keeps the
    /// logarithm finite.
    pub(crate) fn offsets(self, own: &[usize], everybody: &[usize]) -> Option<Vec<f32>> {
        let share = |counts: &[usize], class: usize| {
            (counts[class] + 1) as f64 / (counts.iter().sum::<usize>() + counts.len()) as f64
        };
        let offset = |class| (share(own, class) / share(everybody, class)).ln() as f32;
        (self == Self::Calibrated).then(|| (0..own.len()).map(offset).collect())
    }
}

/// The result of training a model: new weights, or the name of the tensor that is no longer finite.
pub(crate) type TrainedWeights = Result<Weights, String>;

/// Adam on cross-entropy of the raw scores, from `weights`, over freshly shuffled samples in every epoch (the
/// authors do not shuffle; without it a client whose samples lie class by class forgets the first ones).
pub(crate) fn train(
    spec: &ModelSpec,
    weights: &Weights,
    samples: &Samples,
    training: LocalTraining,
    offsets: Option<&[f32]>,
    random: &mut impl Rng,
    after_epoch: impl Fn(u32),
) -> Result<TrainedWeights, TrainingError> {
    let network = TrainableNetwork::new(spec, weights)?;
    // Without decay AdamW is Adam.
    let settings = ParamsAdamW { lr: training.learning_rate, weight_decay: 0.0, ..ParamsAdamW::default() };
    let mut optimiser = AdamW::new(network.variables(), settings)?;
    let offsets =
        offsets.map(|offsets| Tensor::from_slice(offsets, (1, offsets.len()), &Device::Cpu)).transpose()?;
    let mut order: Vec<usize> = (0..samples.len()).collect();
    for epoch in 1..=training.epochs {
        order.shuffle(random);
        for rows in order.chunks(training.batch) {
            let labels: Vec<u32> = rows.iter().map(|&row| samples.labels()[row]).collect();
            let labels = Tensor::from_vec(labels, rows.len(), &Device::Cpu)?;
            let mut scores = network.scores(samples, rows)?;
            if let Some(offsets) = &offsets {
                scores = scores.broadcast_add(offsets)?;
            }
            optimiser.backward_step(&cross_entropy(&scores, &labels)?)?;
        }
        after_epoch(epoch);
    }
    network.weights()
}

/// Number of samples that a model gets right; the lowest of equal scores decides.
pub(crate) fn correct(
    spec: &ModelSpec,
    weights: &Weights,
    samples: &Samples,
) -> Result<usize, TrainingError> {
    const BATCH: usize = 500;
    let network = TrainableNetwork::new(spec, weights)?;
    let rows: Vec<usize> = (0..samples.len()).collect();
    let mut correct = 0;
    for batch in rows.chunks(BATCH) {
        let scores = network.scores(samples, batch)?.to_vec2::<f32>()?;
        correct += batch
            .iter()
            .zip(&scores)
            .filter(|(row, scores)| predicted(scores) == samples.labels()[**row])
            .count();
    }
    Ok(correct)
}

fn predicted(scores: &[f32]) -> u32 {
    let best =
        (0..scores.len()).reduce(|best, class| if scores[class] > scores[best] { class } else { best });
    best.unwrap_or_default() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_offsets_are_log_ratios_of_class_shares() {
        assert_eq!(Loss::Plain.offsets(&[1, 2], &[3, 4]), None);
        let offsets = Loss::Calibrated.offsets(&[8, 0], &[9, 9]).unwrap();
        assert!(
            (offsets[0] - (0.9f32 / 0.5).ln()).abs() < 1e-6
                && (offsets[1] - (0.1f32 / 0.5).ln()).abs() < 1e-6
        );
        assert_eq!(Loss::Calibrated.offsets(&[4, 9], &[4, 9]).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn the_lowest_of_equal_scores_wins() {
        assert_eq!(predicted(&[0.0, 2.0, 2.0]), 1);
        assert_eq!(predicted(&[0.0, 0.0]), 0);
    }
}

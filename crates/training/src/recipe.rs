//! Everything that decides how a federation trains.

use secsv_federation::{ClientId, MAX_ROUNDS};

use crate::faults::{self, Fault};
use crate::local::{LocalTraining, Loss};
use crate::models::ModelKind;
use crate::participation::Participation;
use crate::{DatasetSource, TrainingError};

/// How a federation trains. The same recipe, seed and samples give the same run directory, byte for byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The federation's name, for people.
    pub name: String,
    /// The model.
    pub model: ModelKind,
    /// Rounds of federated averaging (the paper's T).
    pub rounds: u32,
    /// How each client trains in a round.
    pub local: LocalTraining,
    /// Who takes part in which round.
    pub participation: Participation,
    /// Faults that are planted, by client.
    pub faults: Vec<Fault>,
    /// Drives initial values, sample order, selection and faults.
    pub seed: u64,
}

impl Recipe {
    /// Ten rounds with everybody, and the local training that suits the task ([`LocalTraining::suited_to`]).
    pub fn new(source: &DatasetSource, model: ModelKind, seed: u64) -> Self {
        Self {
            name: "federation".to_owned(),
            model,
            rounds: 10,
            local: LocalTraining::suited_to(source, model),
            participation: Participation::default(),
            faults: Vec::new(),
            seed,
        }
    }

    pub(crate) fn check(&self, clients: &[ClientId]) -> Result<(), TrainingError> {
        let within = |setting, expected: String, holds: bool, found: String| {
            if holds { Ok(()) } else { Err(TrainingError::setting(setting, expected, found)) }
        };
        let local = self.local;
        within(
            "rounds",
            format!("1 to {MAX_ROUNDS}"),
            (1..=MAX_ROUNDS).contains(&self.rounds),
            self.rounds.to_string(),
        )?;
        within("epochs", "at least 1".into(), local.epochs >= 1, local.epochs.to_string())?;
        within("batch", "at least 1".into(), local.batch >= 1, local.batch.to_string())?;
        let finite = local.learning_rate > 0.0 && local.learning_rate.is_finite();
        within("learning rate", "a positive number".into(), finite, local.learning_rate.to_string())?;
        self.participation.check(clients, self.rounds)?;
        faults::check(&self.faults, clients)
    }
}

impl LocalTraining {
    /// Batches of 64 and what reached the best accuracy in ten rounds: fewer and larger steps than the
    /// paper's authors take (docs/DATASETS.md has theirs), because long local training pulls clients apart.
    pub fn suited_to(source: &DatasetSource, model: ModelKind) -> Self {
        let (epochs, learning_rate) = match (model, source) {
            (ModelKind::Dnn { .. }, source) if source.is_large() => (5, 1e-3),
            (ModelKind::Dnn { .. }, _) => (5, 5e-3),
            (ModelKind::Cnn, source) if source.is_large() => (3, 3e-3),
            (ModelKind::Cnn, _) => (10, 1e-3),
            (ModelKind::Gru, source) if source.is_large() => (1, 5e-3),
            (ModelKind::Gru, _) => (10, 5e-3),
            (ModelKind::Logistic, DatasetSource::Agnews) => (5, 1e-4),
            (ModelKind::Logistic, source) if source.is_large() => (2, 1e-3),
            (ModelKind::Logistic, _) => (5, 1e-2),
        };
        Self { epochs, learning_rate, batch: 64, loss: Loss::default() }
    }

    /// Epochs, learning rate and loss of the paper's authors. They pull clients further apart.
    pub fn of_the_authors(source: &DatasetSource, model: ModelKind) -> Self {
        let (epochs, learning_rate) = match (model, source) {
            (ModelKind::Dnn { .. }, _) | (ModelKind::Logistic, DatasetSource::Agnews) => (5, 1e-4),
            (ModelKind::Logistic, _) => (5, 1e-3),
            (ModelKind::Cnn | ModelKind::Gru, _) => (10, 1e-3),
        };
        Self { epochs, learning_rate, batch: 64, loss: Loss::Plain }
    }
}

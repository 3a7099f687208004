//! Federated averaging: rounds of local training and weighted means, written to a run directory as they
//! happen.

use std::path::Path;

use rayon::prelude::*;
use secsv_federation::{
    ClientId, ClientSpec, Coalition, FederationSpec, ModelSpec, RoundId, RunDirectory, RunWriter, TestSet,
    WeightedMean, Weights,
};

use crate::datasets::{Dataset, Silo};
use crate::faults::{self, Fault, free_ride};
use crate::local;
use crate::models::Blueprint;
use crate::recipe::Recipe;
use crate::seeds::{Purpose, generator};
use crate::{Samples, TrainingError};

/// A step of training, for progress bars and logs. Events of different clients may come from different
/// threads at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TrainingEvent<'a> {
    /// A round begins.
    RoundStarted {
        /// The round.
        round: RoundId,
        /// Number of clients that take part.
        clients: usize,
    },
    /// A client has gone over its samples once more.
    EpochFinished {
        /// The round.
        round: RoundId,
        /// The client.
        client: &'a ClientId,
        /// Counted from 1.
        epoch: u32,
    },
    /// The round's models are averaged and tested.
    RoundFinished(&'a RoundOutcome),
}

/// A client as it was trained.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOutcome {
    /// Its name.
    pub id: ClientId,
    /// Training samples, its weight in the average.
    pub train_size: usize,
    /// Test samples.
    pub test_size: usize,
}

/// One round and the model that came out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOutcome {
    /// The round.
    pub round: RoundId,
    /// Who took part, by position.
    pub participants: Coalition,
    /// Test samples of all clients that the round's global model gets right.
    pub correct: usize,
    /// All test samples.
    pub total: usize,
}

/// A finished training.
#[derive(Clone, Debug)]
pub struct TrainingOutcome {
    /// The run directory that was written.
    pub directory: RunDirectory,
    /// The clients in order.
    pub clients: Vec<ClientOutcome>,
    /// Test samples that the initial model gets right.
    pub initial_correct: usize,
    /// The rounds in order.
    pub rounds: Vec<RoundOutcome>,
}

impl RoundOutcome {
    /// The share of test samples that the round's global model gets right.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.total as f64
    }
}

/// Trains a federation on the samples that `silos` hold of `dataset` and writes its run directory to `out`,
/// which must be absent or empty; nothing is left there if training fails.
pub fn train(
    dataset: &Dataset,
    silos: &[Silo],
    recipe: &Recipe,
    out: &Path,
    observe: &(dyn Fn(TrainingEvent<'_>) + Sync),
) -> Result<TrainingOutcome, TrainingError> {
    let federation = FederationInTraining::new(dataset, silos, recipe)?;
    let writer = RunWriter::create(out, &federation.spec())?;
    let initial = federation.blueprint.initial(recipe.seed)?;
    writer.initial_model(&initial)?;
    federation.write_test_sets(&writer)?;
    let initial_correct = federation.correct(&initial)?;

    let mut global = initial;
    let mut rounds = Vec::new();
    for round in (1..=recipe.rounds).map(RoundId) {
        let participants = recipe.participation.in_round(round.0, &federation.ids, recipe.seed);
        observe(TrainingEvent::RoundStarted { round, clients: participants.len() });
        global = federation.round(round, participants, &global, &writer, observe)?;
        writer.global_model(round, &global)?;
        let (correct, total) = (federation.correct(&global)?, federation.test.len());
        let outcome = RoundOutcome { round, participants, correct, total };
        observe(TrainingEvent::RoundFinished(&outcome));
        rounds.push(outcome);
    }
    let directory = writer.finish()?;
    Ok(TrainingOutcome { directory, clients: federation.clients(), initial_correct, rounds })
}

/// Everything that stays the same from round to round.
struct FederationInTraining<'a> {
    recipe: &'a Recipe,
    blueprint: Blueprint,
    class_names: &'a [String],
    ids: Vec<ClientId>,
    /// Training samples by client, faults planted.
    train: Vec<Samples>,
    /// Test samples of all clients, client after client.
    test: Samples,
    test_sizes: Vec<usize>,
    /// Numbers that each client's training adds to its scores.
    offsets: Vec<Option<Vec<f32>>>,
}

impl<'a> FederationInTraining<'a> {
    fn new(dataset: &'a Dataset, silos: &[Silo], recipe: &'a Recipe) -> Result<Self, TrainingError> {
        let ids: Vec<ClientId> = silos.iter().map(|silo| silo.id.clone()).collect();
        recipe.check(&ids)?;
        let blueprint = recipe.model.blueprint(dataset.train.shape(), dataset.classes)?;
        let input = &blueprint.spec().input;
        let mut train: Vec<Samples> =
            silos.iter().map(|silo| dataset.train.select(&silo.train).reshaped(input.clone())).collect();
        faults::plant(&recipe.faults, &ids, &mut train, dataset.classes, recipe.seed);
        let class_sizes: Vec<Vec<usize>> = train.iter().map(|own| own.class_sizes(dataset.classes)).collect();
        let everybody: Vec<usize> =
            (0..dataset.classes).map(|class| class_sizes.iter().map(|sizes| sizes[class]).sum()).collect();
        let offsets = class_sizes.iter().map(|own| recipe.local.loss.offsets(own, &everybody)).collect();
        let test_rows: Vec<usize> = silos.iter().flat_map(|silo| silo.test.iter().copied()).collect();
        let test = dataset.test.select(&test_rows).reshaped(input.clone());
        let test_sizes = silos.iter().map(|silo| silo.test.len()).collect();
        let class_names = &dataset.class_names;
        Ok(Self { recipe, blueprint, class_names, ids, train, test, test_sizes, offsets })
    }

    fn spec(&self) -> FederationSpec {
        let client = |(id, train): (&ClientId, &Samples)| ClientSpec::new(id.clone(), train.len() as f64);
        let class_names = self.class_names.to_vec();
        FederationSpec::new(
            self.recipe.name.clone(),
            self.recipe.rounds,
            ModelSpec { class_names, ..self.blueprint.spec().clone() },
            self.ids.iter().zip(&self.train).map(client).collect(),
        )
    }

    fn clients(&self) -> Vec<ClientOutcome> {
        let sizes = self.train.iter().map(Samples::len).zip(&self.test_sizes);
        let client = |(id, (train_size, &test_size)): (&ClientId, _)| ClientOutcome {
            id: id.clone(),
            train_size,
            test_size,
        };
        self.ids.iter().zip(sizes).map(client).collect()
    }

    fn write_test_sets(&self, writer: &RunWriter) -> Result<(), TrainingError> {
        let mut from = 0;
        for (id, &size) in self.ids.iter().zip(&self.test_sizes) {
            let own = self.test.select(&(from..from + size).collect::<Vec<_>>());
            let labels = own.labels().iter().map(|&label| i64::from(label)).collect();
            writer.test_set(id, &TestSet::new(own.shape().to_vec(), own.features().to_vec(), labels)?)?;
            from += size;
        }
        Ok(())
    }

    /// Local models, written as they come, and their mean. Clients train at the same time; each draws from a
    /// stream of its own, and the sum is taken in their order, so the result does not depend on who finishes
    /// first.
    fn round(
        &self,
        round: RoundId,
        participants: Coalition,
        global: &Weights,
        writer: &RunWriter,
        observe: &(dyn Fn(TrainingEvent<'_>) + Sync),
    ) -> Result<Weights, TrainingError> {
        let members: Vec<usize> = participants.members().collect();
        let locals = members
            .par_iter()
            .map(|&client| {
                let local = self.local_model(round, client, global, observe)?;
                writer.local_model(&self.ids[client], round, &local)?;
                Ok(local)
            })
            .collect::<Result<Vec<Weights>, TrainingError>>()?;
        let mut mean = WeightedMean::new();
        for (&client, local) in members.iter().zip(&locals) {
            mean.add(local, self.train[client].len() as f64);
        }
        Ok(mean.finish_single().unwrap_or_else(|| global.clone()))
    }

    fn local_model(
        &self,
        round: RoundId,
        client: usize,
        global: &Weights,
        observe: &(dyn Fn(TrainingEvent<'_>) + Sync),
    ) -> Result<Weights, TrainingError> {
        let id = &self.ids[client];
        let mut random = generator(self.recipe.seed, Purpose::Local { round: round.0, client });
        let rides_free = self.recipe.faults.iter().find_map(|fault| match fault {
            Fault::FreeRider { client, noise } if client == id => Some(*noise),
            _ => None,
        });
        if let Some(noise) = rides_free {
            return free_ride(global, noise, &mut random);
        }
        let after_epoch = |epoch| observe(TrainingEvent::EpochFinished { round, client: id, epoch });
        let (spec, local) = (self.blueprint.spec(), self.recipe.local);
        let offsets = self.offsets[client].as_deref();
        let trained =
            local::train(spec, global, &self.train[client], local, offsets, &mut random, after_epoch)?;
        trained.map_err(|tensor| TrainingError::Diverged {
            client: id.clone(),
            round: round.0,
            tensor,
            learning_rate: local.learning_rate,
        })
    }

    fn correct(&self, model: &Weights) -> Result<usize, TrainingError> {
        local::correct(self.blueprint.spec(), model, &self.test)
    }
}

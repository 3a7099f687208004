//! Models of coalitions over all rounds, rebuilt from the updates that clients made in the one training that
//! took place.

use crate::{Aggregation, Coalition, Error, RoundId, RunDirectory, clear::ModelParameters};

/// Every client's update of every round: its local model less the model the round began with.
///
/// The model of S is the initial model plus, round after round, the mean update of those members of S who
/// took part, by their weights (one-round reconstruction, Song et al. 2019). Everybody's is
/// the last aggregate, where aggregates are means.
#[derive(Debug)]
pub struct CumulativeModels {
    initial: ModelParameters,
    /// By round, for each participant its position, weight and update.
    updates: Vec<Vec<(usize, f64, ModelParameters)>>,
}

impl CumulativeModels {
    /// Reads all models of a run that [`RunDirectory::check`] has passed.
    pub fn read(run: &RunDirectory) -> Result<Self, Error> {
        let initial = ModelParameters::new(run.architecture(), &run.initial_model()?);
        let mut before = initial.clone();
        let mut updates = Vec::new();
        for round in run.spec().round_ids() {
            let mut of_round = read_round(run, round)?;
            let is_last = round.0 == run.spec().rounds;
            let aggregate = match run.spec().aggregation {
                Aggregation::Other if is_last => None,
                Aggregation::Other => {
                    Some(ModelParameters::new(run.architecture(), &run.global_model(round)?))
                }
                Aggregation::Mean => {
                    ModelParameters::mean(of_round.iter().map(|(_, weight, model)| (model, *weight)))
                }
            };
            for (_, _, model) in &mut of_round {
                model.add_scaled(&before, -1.0);
            }
            before = aggregate.unwrap_or(before);
            updates.push(of_round);
        }
        Ok(Self { initial, updates })
    }

    /// Everybody who took part in any round.
    pub fn participants(&self) -> Coalition {
        self.updates.iter().flatten().map(|(position, _, _)| *position).collect()
    }

    /// The model that the coalition's updates make of the initial one.
    pub fn model(&self, coalition: Coalition) -> ModelParameters {
        let mut model = self.initial.clone();
        for of_round in &self.updates {
            let members = of_round.iter().filter(|(position, _, _)| coalition.contains(*position));
            if let Some(update) = ModelParameters::mean(members.map(|(_, weight, update)| (update, *weight)))
            {
                model.add_scaled(&update, 1.0);
            }
        }
        model
    }
}

fn read_round(run: &RunDirectory, round: RoundId) -> Result<Vec<(usize, f64, ModelParameters)>, Error> {
    let mut of_round = Vec::new();
    for position in run.participants(round).members() {
        let client = &run.spec().clients[position];
        let model = ModelParameters::new(run.architecture(), &run.local_model(&client.id, round)?);
        of_round.push((position, client.weight_in(round), model));
    }
    Ok(of_round)
}

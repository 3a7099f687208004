//! Everything that must hold in a whole run directory, checked before anything is computed.

use super::{CLIENTS, GLOBAL, RunDirectory, entries, round_file};
use crate::{Aggregation, ClientId, Defect, Error, RoundId, Weights, aggregate::WeightedMean};

/// How far a global model may be from the weighted mean of the local ones, relative to numbers beyond 1.
const MEAN_TOLERANCE: f64 = 1e-4;

impl RunDirectory {
    /// Reads every file once and checks it against the federation: this is for a whole run, as simulations
    /// have it.
    pub fn check(&self) -> Result<(), Error> {
        self.check_listing()?;
        let mut samples = 0;
        for client in self.spec.ids() {
            samples += self.test_set(client)?.len();
        }
        if samples == 0 {
            return Err(Error::defect(self.path.join(CLIENTS), "test samples", Defect::NoTestSamples));
        }
        self.initial_model()?;
        if self.spec.aggregation == Aggregation::Other && self.spec.rounds > 1 && !self.has_global_models() {
            return Err(Error::defect(self.spec_file(), "aggregation", Defect::NoGlobalModels));
        }
        for round in self.spec.round_ids() {
            self.check_round(round)?;
        }
        Ok(())
    }

    /// Nobody unknown, and no round beyond the last: what is overlooked would silently change the values.
    fn check_listing(&self) -> Result<(), Error> {
        let clients = self.path.join(CLIENTS);
        for found in entries(&clients)? {
            let known = self.spec.ids().any(|id| id.as_str() == found);
            if !known && clients.join(&found).is_dir() {
                return Err(Error::defect(&clients, "clients", Defect::Unlisted { found }));
            }
        }
        for client in self.spec.ids() {
            self.check_rounds_in(&self.client_directory(client))?;
        }
        self.check_rounds_in(&self.path.join(GLOBAL))
    }

    fn check_rounds_in(&self, directory: &std::path::Path) -> Result<(), Error> {
        for found in entries(directory)? {
            let is_model = found.starts_with("round-") && found.ends_with(".safetensors");
            let is_known = || self.spec.round_ids().any(|round| round_file(round) == found);
            if is_model && !is_known() {
                return Err(Error::defect(directory, "rounds", Defect::Unlisted { found }));
            }
        }
        Ok(())
    }

    fn check_round(&self, round: RoundId) -> Result<(), Error> {
        let mut mean = WeightedMean::new();
        for position in self.participants(round).members() {
            let client = &self.spec.clients[position];
            let weight = client.weight_in(round);
            if weight == 0.0 {
                let field = format!("clients.{}.train_size", client.id);
                return Err(Error::defect(self.spec_file(), field, Defect::NoWeight { round }));
            }
            mean.add(&self.local_model(&client.id, round)?, weight);
        }
        let Some(expected) = mean.finish() else {
            let defect = Defect::NobodyTookPart { round };
            return Err(Error::defect(self.path.join(CLIENTS), round_file(round), defect));
        };
        // Nothing is computed from the last one.
        let is_last = round.0 == self.spec.rounds;
        let is_mean = self.spec.aggregation == Aggregation::Mean;
        if !self.has_global_models() || is_last && !self.has_global_model(round) {
            return Ok(());
        }
        let found = self.global_model(round)?;
        if !is_mean {
            return Ok(());
        }
        for (name, expected) in &expected {
            self.check_mean(round, name, expected, &found)?;
        }
        Ok(())
    }

    fn check_mean(
        &self,
        round: RoundId,
        name: &str,
        expected: &[f64],
        global: &Weights,
    ) -> Result<(), Error> {
        let Some(global) = global.get(name) else { return Ok(()) };
        for (position, (&expected, found)) in expected.iter().zip(global.numbers()).enumerate() {
            if (found - expected).abs() > MEAN_TOLERANCE * expected.abs().max(1.0) {
                let is_absent = |id: &&ClientId| !self.took_part(id, round);
                let absent = self.spec.ids().filter(is_absent).cloned().collect();
                let defect = Defect::NotTheMean { position, expected, found, absent };
                return Err(Error::defect(self.global_file(round), name, defect));
            }
        }
        Ok(())
    }
}

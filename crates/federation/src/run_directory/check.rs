//! Everything that must hold in a whole run directory, checked before anything is computed.

use super::{CLIENTS, GLOBAL, RunDirectory, entries, round_file};
use crate::{Aggregation, ClientId, Defect, Error, RoundId, Weights, aggregate::WeightedMean};

/// How far a global model may be from the weighted mean of the local ones, relative to numbers beyond 1.
const MEAN_TOLERANCE: f64 = 1e-4;
/// The same where the mean was rounded to half precision, or to numbers of eight bits (BF16).
const HALF_TOLERANCE: f64 = 1.0 / 2048.0;
const BRAIN_TOLERANCE: f64 = 1.0 / 256.0;

/// How far a model may be from the weighted mean: numbers of few bits, all of them, were rounded to that.
fn tolerance(model: &Weights) -> f64 {
    match model.iter().flat_map(|(_, tensor)| tensor.numbers()).map(significant_bits).max() {
        Some(..=8) => BRAIN_TOLERANCE,
        Some(..=11) => HALF_TOLERANCE,
        _ => MEAN_TOLERANCE,
    }
}

/// Bits from the first that is set to the last.
fn significant_bits(number: f64) -> u32 {
    let fraction = number.to_bits() & (u64::MAX >> 12);
    f64::MANTISSA_DIGITS - fraction.trailing_zeros().min(f64::MANTISSA_DIGITS - 1)
}

impl RunDirectory {
    /// Reads every file once and checks it against the federation: this is for a whole run, as simulations
    /// have it.
    pub fn check(&self) -> Result<(), Error> {
        if self.spec.comes_later() {
            return Err(Error::defect(self.spec_file(), "rounds", Defect::RoundsToCome));
        }
        if self.spec.first != 1 {
            let defect = Defect::Range { least: 1, most: 1, found: self.spec.first.into() };
            return Err(Error::defect(self.spec_file(), "first", defect));
        }
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
                let is_zeroth = found == round_file(RoundId(0));
                let field = if is_zeroth { "rounds, which count from 1" } else { "rounds" };
                return Err(Error::defect(directory, field, Defect::Unlisted { found }));
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
        let tolerance = tolerance(&found);
        for (name, expected) in &expected {
            self.check_mean((round, tolerance), name, expected, &found)?;
        }
        Ok(())
    }

    fn check_mean(
        &self,
        (round, tolerance): (RoundId, f64),
        name: &str,
        expected: &[f64],
        global: &Weights,
    ) -> Result<(), Error> {
        let Some(global) = global.get(name) else { return Ok(()) };
        for (position, (&expected, found)) in expected.iter().zip(global.numbers()).enumerate() {
            if (found - expected).abs() > tolerance * expected.abs().max(1.0) {
                let is_absent = |id: &&ClientId| !self.took_part(id, round);
                let absent = self.spec.ids().filter(is_absent).cloned().collect();
                let defect = Defect::NotTheMean { position, expected, found, tolerance, absent };
                return Err(Error::defect(self.global_file(round), name, defect));
            }
        }
        Ok(())
    }
}

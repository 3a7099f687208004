//! What an evaluation will cost, from a run directory, before anything runs.

use std::sync::Arc;

use secsv_federation::{ClientId, RoundId, RunDirectory, SampleSet};
use secsv_protocol::{
    ClientInput, PartyId, TestRequest,
    cost::{self, Prediction, predict},
    session::{Federation, Session, Settings, typical_costs},
};
use serde::{Deserialize, Serialize};

use crate::{
    EncryptionParameters, Error, KindTraffic, Operations, SecurityResult, Test, Traffic, client_inputs,
    evaluate::exact_tests,
    outcomes::MAX_GATHERED,
    role_evaluator::requests,
    secure_result::{messages, parameters, security, traffic},
};

/// The plan of an exact evaluation.
pub struct Plan {
    /// What the parties will agree on.
    pub session: Arc<Session>,
    /// What each client brings.
    pub inputs: Vec<ClientInput>,
    /// Models that will be tested.
    pub tests: Vec<(RoundId, secsv_federation::Coalition)>,
    /// The cost if no sample is skipped; with SampleSkip, as if samples were gathered as often as they may be too.
    pub at_most: Prediction,
    /// The cost if every sample is skipped that SampleSkip might skip; none without it.
    pub at_least: Option<Prediction>,
}

/// A plan as outsiders read it: fields have the names they have in an evaluation's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanResult {
    /// `secsv`, `hesv` or `secretsv`.
    pub protocol: String,
    /// How values will be computed from utilities.
    pub estimator: String,
    /// What utilities will be, if not `accuracy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utility: Option<String>,
    /// Whether samples may be skipped: then costs are upper bounds.
    pub skip: bool,
    /// All clients, in the order of `federation.toml`.
    pub clients: Vec<ClientId>,
    /// Samples of all clients together.
    pub samples: usize,
    /// Models that will be tested.
    pub tests: usize,
    /// The cost: exact without SampleSkip, at most this with it.
    #[serde(flatten)]
    pub cost: PlannedCost,
    /// The least it can be with SampleSkip; null without.
    pub at_least: Option<PlannedCost>,
    /// Memory of all parties in one process, estimated.
    pub memory_bytes: u64,
    /// What one client can make each server hold, whatever it sends.
    pub most_held: Vec<Held>,
    /// The encryption's parameters; null without encryption.
    pub parameters: Option<EncryptionParameters>,
    /// Who will learn what, and who can do what with it.
    pub security: SecurityResult,
}

/// What one client can make a server hold at most, whatever it sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The server.
    pub server: String,
    /// Bytes on its disk.
    pub disk_bytes: u64,
    /// Bytes in its memory.
    pub memory_bytes: u64,
}

/// What a run costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCost {
    /// Cryptographic operations.
    pub operations: Operations,
    /// Bytes between parties.
    pub traffic: Vec<Traffic>,
    /// Bytes and messages by kind.
    pub messages: Vec<KindTraffic>,
    /// Seconds of processor time on this machine, estimated.
    pub cpu_s: f64,
    /// Seconds until the values are there if all parties share this machine and nobody else does, estimated.
    pub wall_s: f64,
}

impl Plan {
    /// The plan of a run that [`RunDirectory::check`] has passed.
    pub fn new(run: &RunDirectory, settings: Settings, skips: bool) -> Result<Self, Error> {
        let federation =
            Federation::new(run.spec(), run.architecture(), |round| run.participants(round), settings)
                .map_err(Error::Role)?;
        let (federation, inputs) = (Arc::new(federation), client_inputs(run)?);
        let costs = typical_costs(settings.preset);
        let session = cost::session(&federation, &inputs, Some(&costs)).map_err(Error::Role)?;
        let rounds: Vec<_> =
            federation.rounds.keys().map(|&round| (round, federation.participants(round))).collect();
        let tests = exact_tests(&rounds)?;
        let total = session.samples();
        let (every, none) = (Arc::new(SampleSet::all(total)), Arc::new(SampleSet::none(total)));
        let asked = |all: bool| -> Vec<TestRequest> {
            let request = |&(round, coalition): &(RoundId, secsv_federation::Coalition)| {
                // Nothing is known yet that the samples of a local model could be skipped by.
                let is_tested = all || coalition.len() <= 1;
                let samples = if is_tested { every.clone() } else { none.clone() };
                (round, Test { coalition, samples, candidate_samples: every.clone() })
            };
            requests(&session, tests.iter().map(request).collect())
        };
        let gathers = skips && settings.protocol.rules().batching().gathers;
        let gathered = if gathers { MAX_GATHERED } else { 0 };
        let at_most = predict(&session, &asked(true), gathered).map_err(Error::Role)?;
        let at_least = skips.then(|| predict(&session, &asked(false), 0)).transpose().map_err(Error::Role)?;
        Ok(Self { session, inputs, tests, at_most, at_least })
    }

    /// What any one client can make each server hold.
    fn most_held(&self) -> Vec<Held> {
        let servers = self.session.federation.settings.protocol.rules().servers();
        let held = |&server: &PartyId| {
            let of_clients =
                (0..self.session.federation.clients).map(|client| self.session.most_held(client, server));
            let (disk_bytes, memory_bytes) =
                of_clients.fold((0, 0), |most, held| (most.0.max(held.0), most.1.max(held.1)));
            Held { server: server.to_string(), disk_bytes, memory_bytes }
        };
        servers.iter().map(held).collect()
    }

    /// What outsiders read, with what `seconds` says of a prediction: processor time and elapsed time.
    pub fn result(&self, run: &RunDirectory, seconds: impl Fn(&Prediction) -> (f64, f64)) -> PlanResult {
        let cost = |prediction: &Prediction| {
            let (cpu_s, wall_s) = seconds(prediction);
            PlannedCost {
                operations: prediction.operations,
                traffic: traffic(&prediction.traffic, run.spec()),
                messages: messages(&prediction.traffic),
                cpu_s,
                wall_s,
            }
        };
        let skips = self.at_least.is_some();
        PlanResult {
            protocol: self.session.federation.settings.protocol.name().to_owned(),
            estimator: "exact".to_owned(),
            utility: None,
            skip: skips,
            clients: run.spec().ids().cloned().collect(),
            samples: self.session.samples(),
            tests: self.tests.len(),
            cost: cost(&self.at_most),
            at_least: self.at_least.as_ref().map(cost),
            memory_bytes: self.at_most.memory,
            most_held: self.most_held(),
            parameters: parameters(&self.session),
            security: security(
                run.spec(),
                &self.session,
                self.at_most.planner.as_ref(),
                self.at_most.operations.decrypt,
                skips,
            ),
        }
    }
}

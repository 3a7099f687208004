//! What an evaluation will cost, from a run directory, before anything runs.

use std::sync::Arc;

use secsv_federation::{ClientId, Labels, RoundId, RunDirectory, SampleSet, skip::SkipMode};
use secsv_protocol::{
    ClientInput, PartyId, TestRequest,
    cost::{self, Prediction, predict},
    session::{Federation, Session, Settings, typical_costs},
};
use secsv_shapley::{EstimatorSettings, Method};
use serde::{Deserialize, Serialize};

use crate::{
    EncryptionParameters, Error, EvaluationSettings, KindTraffic, Operations, SecurityResult, Test, Traffic,
    client_inputs,
    evaluate::{Batch, planned_tests},
    outcomes::MAX_GATHERED,
    role_evaluator::requests,
    secure_result::{messages, parameters, security, traffic},
};

/// The plan of an evaluation.
pub struct Plan {
    /// What the parties will agree on.
    pub session: Arc<Session>,
    /// What each client brings.
    pub inputs: Vec<ClientInput>,
    /// How values will be computed from utilities.
    pub method: Method,
    /// Models that will be tested; at most these where the estimator looks at utilities on the way.
    pub tests: Vec<(RoundId, secsv_federation::Coalition)>,
    /// The cost if no sample is skipped; with SampleSkip, as if samples were gathered as often as they may be too.
    pub at_most: Prediction,
    /// The cost if every sample is skipped that SampleSkip might skip; none without it.
    pub at_least: Option<Prediction>,
}

/// A plan as outsiders read it: fields have the names they have in an evaluation's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanResult {
    /// What this document is: `secsv-plan`.
    #[serde(default = "schema")]
    pub schema: String,
    /// Version of its form.
    #[serde(default = "version")]
    pub version: u32,
    /// `secsv`, `hesv` or `secretsv`.
    pub protocol: String,
    /// How values will be computed from utilities.
    pub estimator: String,
    /// What utilities will be, if not `accuracy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utility: Option<String>,
    /// Whether samples may be skipped: then costs are upper bounds.
    pub skip: bool,
    /// Whether the estimator may leave models out that change little: then costs are upper bounds.
    #[serde(default)]
    pub truncates: bool,
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

fn schema() -> String {
    "secsv-plan".to_owned()
}

fn version() -> u32 {
    1
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

/// Coalitions that are gone through to say how many requests there will be, at most.
const MOST_COUNTED: u64 = 1 << 17;

/// How many requests an evaluation makes, where that is known before: not with SampleSkip, and not where an estimator may end early.
pub fn planned_requests(session: &Session, settings: &EvaluationSettings) -> Option<usize> {
    let EvaluationSettings { method, estimator, skip, .. } = settings;
    let federation = &session.federation;
    let rounds: Vec<_> =
        federation.rounds.keys().map(|&round| (round, federation.participants(round))).collect();
    let all = rounds
        .iter()
        .map(|(_, participants)| 1u64.checked_shl(participants.len() as u32).unwrap_or(u64::MAX));
    let is_open = *skip != SkipMode::Off || method.truncates() || estimator.stop.standard_error.is_some();
    if is_open || all.fold(0, u64::saturating_add) > MOST_COUNTED {
        return None;
    }
    let every = Arc::new(SampleSet::all(session.samples()));
    let test = |coalition| Test { coalition, samples: every.clone(), candidate_samples: every.clone() };
    let of_batch = |batch: &Batch| {
        requests(session, batch.iter().map(|&(round, coalition)| (round, test(coalition))).collect()).len()
    };
    Some(planned_tests(&rounds, *method, estimator).ok()?.iter().map(of_batch).sum())
}

impl Plan {
    /// The plan of an exact evaluation of a run that [`RunDirectory::check`] has passed.
    pub fn new(run: &RunDirectory, settings: Settings, skips: bool) -> Result<Self, Error> {
        Self::by(run, settings, skips, (Method::Exact, &EstimatorSettings::default()))
    }

    /// The same by another estimator.
    pub fn by(
        run: &RunDirectory,
        settings: Settings,
        skips: bool,
        (method, estimator): (Method, &EstimatorSettings),
    ) -> Result<Self, Error> {
        let federation =
            Federation::new(run.spec(), run.architecture(), |round| run.participants(round), settings)
                .map_err(Error::Role)?;
        Self::of_inputs(Arc::new(federation), client_inputs(run)?, skips, (method, estimator))
    }

    /// The same for whoever has no run directory: `inputs` are what clients are thought to bring.
    pub fn of_inputs(
        federation: Arc<Federation>,
        inputs: Vec<ClientInput>,
        skips: bool,
        (method, estimator): (Method, &EstimatorSettings),
    ) -> Result<Self, Error> {
        let settings = federation.settings;
        let costs = typical_costs(settings.preset);
        let session = cost::session(&federation, &inputs, Some(&costs)).map_err(Error::Role)?;
        let rounds: Vec<_> =
            federation.rounds.keys().map(|&round| (round, federation.participants(round))).collect();
        let batches = planned_tests(&rounds, method, estimator)?;
        let total = session.samples();
        let (every, none) = (Arc::new(SampleSet::all(total)), Arc::new(SampleSet::none(total)));
        let asked = |all: bool| -> Vec<TestRequest> {
            let request = |&(round, coalition): &(RoundId, secsv_federation::Coalition)| {
                // Nothing is known yet that the samples of a local model could be skipped by.
                let is_tested = all || coalition.len() <= 1;
                let samples = if is_tested { every.clone() } else { none.clone() };
                (round, Test { coalition, samples, candidate_samples: every.clone() })
            };
            let of_batch = |batch: &Batch| requests(&session, batch.iter().map(request).collect());
            batches.iter().flat_map(of_batch).collect()
        };
        let gathers = skips && settings.protocol.rules().batching().gathers;
        let gathered = if gathers { MAX_GATHERED } else { 0 };
        let at_most = predict(&session, &asked(true), gathered).map_err(Error::Role)?;
        let at_least = skips.then(|| predict(&session, &asked(false), 0)).transpose().map_err(Error::Role)?;
        let tests = batches.concat();
        Ok(Self { session, inputs, method, tests, at_most, at_least })
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
    pub fn result(
        &self,
        run: &RunDirectory,
        labels: &Labels,
        seconds: impl Fn(&Prediction) -> (f64, f64),
    ) -> PlanResult {
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
            schema: schema(),
            version: version(),
            protocol: self.session.federation.settings.protocol.name().to_owned(),
            estimator: self.method.name().to_owned(),
            utility: None,
            skip: skips,
            truncates: self.method.truncates(),
            clients: run.spec().ids().cloned().collect(),
            samples: self.session.samples(),
            tests: self.tests.len(),
            cost: cost(&self.at_most),
            at_least: self.at_least.as_ref().map(cost),
            memory_bytes: self.at_most.memory,
            most_held: self.most_held(),
            parameters: parameters(&self.session),
            security: security(
                (run.spec(), labels),
                &self.session,
                self.at_most.planner.as_ref(),
                self.at_most.operations.decrypt,
                skips,
            ),
        }
    }
}

//! One measurement: a federation, how it is valued, and the file its result is kept in.

use secsv_federation::{RunDirectory, skip::SkipMode};
use secsv_protocol::decryptors::Protocol;
use secsv_runtime::{EvaluationResult, EvaluationSettings};
use secsv_shapley::{Method, Settings};
use secsv_training::ModelKind;
use serde::{Deserialize, Serialize};

use super::{machine::reset_peak_memory, runs::Runs, runs::Trained, tasks::Task};
use crate::commands::{
    plan::planned_seconds,
    protocols::{EncryptionArgs, ProtocolName, evaluate_run},
};

/// Where a cell must fit a limit, these shares of its samples are tried.
const SHARES: [f64; 7] = [1.0, 0.5, 0.25, 0.1, 0.05, 0.025, 0.01];
/// Fewer samples than this say nothing about a cost per sample.
const FEWEST_SAMPLES: usize = 20;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The federation.
    pub trained: Trained,
    /// The share of its test samples.
    pub share: f64,
    /// How many of its rounds.
    pub rounds: u32,
    /// How models are tested.
    pub protocol: ProtocolName,
    /// Whether samples are skipped.
    pub skip: bool,
    /// How values come from utilities.
    pub method: Method,
    /// Samples of the estimator, where not its own number.
    pub estimator_samples: Option<usize>,
    /// Fewer samples are used if the plan says that it would take more seconds than this.
    pub limit: Option<f64>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The share of the samples that were asked for.
    pub used_share: f64,
    /// What the plan said it would take with all of them, where it was asked.
    pub planned_s: Option<f64>,
    /// Where fewer samples were used: the distance of the values from NSSV's on the same samples.
    #[serde(default)]
    pub own_error: Option<f64>,
    /// The evaluation.
    pub result: EvaluationResult,
}

impl Measured {
    /// Test samples of all clients together.
    pub fn samples(&self) -> f64 {
        self.result.utilities.first().map_or(0.0, |utility| utility.total as f64)
    }

    /// Bytes over all links.
    pub fn bytes(&self) -> f64 {
        self.result.traffic.iter().map(|link| link.bytes as f64).sum()
    }

    /// The Euclidean distance of the values from those in the clear, on the same samples.
    pub fn distance(&self, exact: &Self) -> f64 {
        self.own_error.unwrap_or_else(|| distance(&self.result, &exact.result))
    }
}

impl Measurement {
    /// All samples and rounds of a federation, exact, nothing skipped.
    pub fn new(trained: Trained, protocol: ProtocolName) -> Self {
        Self {
            trained,
            share: 1.0,
            rounds: trained.rounds,
            protocol,
            skip: false,
            method: Method::Exact,
            estimator_samples: None,
            limit: None,
        }
    }

    /// The data set.
    pub fn task(&self) -> Task {
        self.trained.task
    }

    /// The cell's name.
    pub fn key(&self) -> String {
        let Self { share, rounds, method, .. } = self;
        let protocol = format!("{:?}", self.protocol).to_lowercase();
        let skip = if self.skip { "-skip" } else { "" };
        let samples = self.estimator_samples.map_or(String::new(), |samples| format!("{samples}"));
        let limit = self.limit.map_or(String::new(), |seconds| format!("-limit{seconds}"));
        format!("{}-M{share:.4}-t{rounds}-{protocol}{skip}-{method}{samples}{limit}", self.trained.key())
    }

    /// A guess at the work relative to other cells, for the time left.
    pub fn weight(&self) -> f64 {
        let models = 2f64.powi(self.trained.clients as i32) * f64::from(self.rounds);
        let layers = match self.trained.model {
            ModelKind::Logistic => 1.0,
            ModelKind::Cnn | ModelKind::Gru => 30.0,
            ModelKind::Dnn { layers } => 10.0 * layers as f64,
        };
        let per_sample = match self.protocol {
            ProtocolName::Nssv => 1.0,
            ProtocolName::Hesv => 200.0 * layers,
            ProtocolName::Secsv | ProtocolName::Secretsv => 10.0 * layers,
        };
        let skipped = if self.skip { 0.4 } else { 1.0 };
        let samples = super::paper::samples(self.task()).unwrap_or(300.0) * self.trained.scale * self.share;
        1e-6 * models * samples * per_sample * skipped + 0.1
    }

    /// Trains if need be, and measures.
    pub fn take(&self, runs: &Runs<'_>) -> anyhow::Result<Measured> {
        let whole = runs.trained(&self.trained)?;
        let run = runs.cut(&whole, self.share, self.rounds)?;
        let (used_share, planned_s) = self.share_that_fits(&run)?;
        let run = runs.cut(&whole, self.share * used_share, self.rounds)?;
        run.check()?;
        let seed = self.trained.seed;
        let estimator = Settings { seed, samples: self.estimator_samples, ..Settings::default() };
        let skip = if self.skip { SkipMode::On } else { SkipMode::Off };
        let verify_skip = self.skip && self.protocol == ProtocolName::Nssv;
        let settings = EvaluationSettings { method: self.method, estimator, skip, verify_skip };
        reset_peak_memory();
        let result = evaluate_run(&run, self.protocol, EncryptionArgs::USUAL, &settings)?;
        let mut own_error = None;
        if used_share < 1.0 {
            let exact = evaluate_run(&run, ProtocolName::Nssv, EncryptionArgs::USUAL, &settings)?;
            own_error = Some(distance(&result, &exact));
        }
        Ok(Measured { used_share, planned_s, own_error, result })
    }

    fn share_that_fits(&self, run: &RunDirectory) -> anyhow::Result<(f64, Option<f64>)> {
        let (Some(limit), Some(protocol)) = (self.limit, self.protocol.secure()) else {
            return Ok((1.0, None));
        };
        let planned = planned_seconds(run, EncryptionArgs::USUAL.settings(protocol)?)?;
        let mut samples = 0;
        for id in run.spec().ids() {
            samples += run.test_set(id)?.len();
        }
        let fits = |share: &&f64| planned * **share <= limit;
        let enough = |share: &&f64| samples as f64 * **share >= FEWEST_SAMPLES as f64;
        let share = SHARES.iter().filter(enough).find(fits);
        let smallest = SHARES.iter().rfind(enough);
        Ok((share.or(smallest).copied().unwrap_or(1.0), Some(planned)))
    }
}

fn distance(found: &EvaluationResult, exact: &EvaluationResult) -> f64 {
    let off = |(id, value): (_, &f64)| found.fsv.get(id).map_or(0.0, |found| found - value);
    exact.fsv.iter().map(off).map(|d| d * d).sum::<f64>().sqrt()
}

/// The three secure protocols in the order of the paper's table.
pub const SECURE: [(ProtocolName, Protocol, &str); 3] = [
    (ProtocolName::Hesv, Protocol::Hesv, "HESV"),
    (ProtocolName::Secsv, Protocol::SecSv, "SecSV"),
    (ProtocolName::Secretsv, Protocol::SecretSv, "SecretSV"),
];

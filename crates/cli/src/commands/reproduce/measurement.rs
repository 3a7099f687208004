//! One measurement: a federation, how it is valued, and the file its result is kept in.

use secsv_evaluation::{EvaluationResult, EvaluationSettings};
use secsv_federation::{RunDirectory, skip::SkipMode};
use secsv_protocol::session::Matmul;
use secsv_shapley::{EstimatorSettings, Method};
use secsv_training::ModelKind;
use serde::{Deserialize, Serialize};

use super::{machine::reset_peak_memory, runs::Runs, runs::TrainedCell, tasks::PaperTask};
use crate::{
    commands::{
        plan::planned_seconds,
        protocols::{EncryptionArgs, evaluate_run},
    },
    protocol_name::ProtocolName,
};

/// Where not even one round fits a limit, these shares of the samples are tried.
const SHARES: [f64; 6] = [0.5, 0.25, 0.1, 0.05, 0.025, 0.01];
/// Seconds below which a run on all samples is taken several times, because what else the machine does shows
/// most there ...
pub const SHORT_S: f64 = 30.0;
/// ... this many times; the fastest counts.
pub const TIMES: usize = 3;
/// Fewer samples than this say nothing about a cost per sample.
const FEWEST_SAMPLES: f64 = 20.0;

/// A measurement to be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The federation.
    pub trained: TrainedCell,
    /// The share of its test samples.
    pub share: f64,
    /// Number of its rounds.
    pub rounds: u32,
    /// How models are tested.
    pub protocol: ProtocolName,
    /// Whether samples are skipped.
    pub skip: bool,
    /// How values come from utilities.
    pub method: Method,
    /// Samples of the estimator, where not its own number.
    pub estimator_samples: Option<usize>,
    /// Fewer rounds, then fewer samples are used if the plan says that it would take more seconds than this.
    pub limit: Option<f64>,
}

/// A measurement that was taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Planned seconds with all rounds and samples, where there is a plan.
    pub planned_s: Option<f64>,
    /// HESV: the paper's matrix method that the plan found faster.
    #[serde(default)]
    pub matmul: Option<Matmul>,
    /// HESV, or BlindSV of recurrent units, on fewer samples or rounds: the distance of the values from NSSV's on the same.
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

    /// Rounds that were valued.
    pub fn rounds(&self) -> f64 {
        self.result.ssv.len() as f64
    }

    /// Wall time per test sample and round.
    pub fn seconds_per_sample(&self) -> f64 {
        self.result.timing.wall_s / (self.samples() * self.rounds())
    }

    /// The most memory of the process, in GiB.
    pub fn memory_gib(&self) -> Option<f64> {
        self.result.peak_memory_bytes.map(|bytes| bytes as f64 / (1u64 << 30) as f64)
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
    pub fn new(trained: TrainedCell, protocol: ProtocolName) -> Self {
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
    pub fn task(&self) -> PaperTask {
        self.trained.task
    }

    /// Whether a protocol tests a part of a task's samples where others test all: HESV, and BlindSV of recurrent units.
    pub fn is_in_part(task: PaperTask, protocol: ProtocolName) -> bool {
        protocol.lacks_packing() || (task.is_recurrent() && protocol == ProtocolName::BLINDSV)
    }

    /// The cell's name.
    pub fn key(&self) -> String {
        let Self { share, rounds, method, .. } = self;
        let protocol = self.protocol.name();
        let skip = if self.skip { "-skip" } else { "" };
        let samples = self.estimator_samples.map_or(String::new(), |samples| format!("{samples}"));
        let limit = self.limit.map_or(String::new(), |seconds| format!("-limit{seconds}"));
        format!("{}-M{share:.4}-t{rounds}-{protocol}{skip}-{method}{samples}{limit}", self.trained.key())
    }

    /// A guess at the seconds it takes once the models are there, for the time left.
    pub fn seconds(&self) -> f64 {
        let models = 2f64.powi(self.trained.clients as i32) * f64::from(self.rounds);
        let layers = match self.trained.model {
            ModelKind::Logistic => 1.0,
            ModelKind::Cnn | ModelKind::Gru => 30.0,
            ModelKind::Dnn { layers } => 10.0 * layers as f64,
        };
        let per_sample = match self.protocol {
            ProtocolName::Nssv => 1.0,
            protocol if protocol.lacks_packing() => 200.0 * layers,
            ProtocolName::Secure(_) => 10.0 * layers,
        };
        let skipped = if self.skip { 0.4 } else { 1.0 };
        let samples = super::paper::samples(self.task()).unwrap_or(300.0) * self.trained.scale * self.share;
        let seconds = 1e-6 * models * samples * per_sample * skipped + 0.1;
        self.limit.map_or(seconds, |limit| seconds.min(limit))
    }

    /// Trains if need be, and measures.
    pub fn take(&self, runs: &Runs<'_>) -> anyhow::Result<Measured> {
        let whole = runs.trained(&self.trained)?;
        let Choice { share, rounds, planned_s, matmul } = self.choose(runs, &whole)?;
        let run = runs.cut(&whole, self.share * share, rounds)?;
        let encryption = EncryptionArgs::with(matmul);
        run.check()?;
        let seed = self.trained.seed;
        let estimator =
            EstimatorSettings { seed, samples: self.estimator_samples, ..EstimatorSettings::default() };
        let skip = self.skip_mode();
        let verify_skip = self.skip && self.protocol == ProtocolName::Nssv;
        let settings = EvaluationSettings {
            method: self.method,
            estimator,
            skip,
            verify_skip,
            ..EvaluationSettings::default()
        };
        reset_peak_memory();
        let mut result = evaluate_run(&run, self.protocol, encryption, &settings)?;
        let is_short = self.trained.scale >= 1.0 && result.timing.wall_s < SHORT_S;
        for _ in 1..if is_short { TIMES } else { 1 } {
            let again = evaluate_run(&run, self.protocol, encryption, &settings)?;
            result = if again.timing.wall_s < result.timing.wall_s { again } else { result };
        }
        let mut own_error = None;
        let is_cut = self.share * share < 1.0 || rounds < self.rounds;
        if is_cut && Self::is_in_part(self.task(), self.protocol) {
            let exact = evaluate_run(&run, ProtocolName::Nssv, EncryptionArgs::USUAL, &settings)?;
            own_error = Some(distance(&result, &exact));
        }
        Ok(Measured { planned_s, matmul, own_error, result })
    }

    fn skip_mode(&self) -> SkipMode {
        if self.skip { SkipMode::On } else { SkipMode::Off }
    }

    /// Numbers of rounds and samples that fit the limit. Rounds cost the same each, so they go first; samples
    /// by the plan for just these, because batches that are not full cost as much as full ones.
    fn choose(&self, runs: &Runs<'_>, whole: &RunDirectory) -> anyhow::Result<Choice> {
        let mut choice = Choice { share: 1.0, rounds: self.rounds, planned_s: None, matmul: None };
        let (Some(limit), Some(protocol)) = (self.limit, self.protocol.secure()) else {
            return Ok(choice);
        };
        let matmuls = protocol.rules().matmuls();
        let methods: Vec<Option<Matmul>> = match matmuls.has_packing() {
            true => vec![None],
            false => matmuls.all.iter().copied().map(Some).collect(),
        };
        let plan = |share: f64, rounds: u32| -> anyhow::Result<(f64, Option<Matmul>)> {
            let run = runs.cut(whole, self.share * share, rounds)?;
            let mut fastest = (f64::INFINITY, None);
            for &matmul in &methods {
                let settings =
                    EncryptionArgs::with(matmul).settings(protocol, self.skip_mode(), self.method)?;
                let seconds = planned_seconds(&run, settings)?;
                fastest = if seconds < fastest.0 { (seconds, matmul) } else { fastest };
            }
            Ok(fastest)
        };
        let (all, matmul) = plan(1.0, self.rounds)?;
        (choice.planned_s, choice.matmul) = (Some(all), matmul);
        let of_one = all / f64::from(self.rounds);
        choice.rounds = ((limit / of_one) as u32).clamp(1, self.rounds);
        let mut samples = 0.0;
        for id in whole.spec().ids() {
            samples += whole.test_set(id)?.len() as f64 * self.share;
        }
        let mut seconds = of_one;
        for share in SHARES.into_iter().filter(|share| samples * share >= FEWEST_SAMPLES) {
            if seconds <= limit {
                break;
            }
            choice.share = share;
            // No share takes less than its part of the whole.
            if of_one * share <= limit {
                (seconds, choice.matmul) = plan(share, choice.rounds)?;
            }
        }
        Ok(choice)
    }
}

/// Rounds, samples and method of a measurement with a limit.
struct Choice {
    share: f64,
    rounds: u32,
    planned_s: Option<f64>,
    matmul: Option<Matmul>,
}

fn distance(found: &EvaluationResult, exact: &EvaluationResult) -> f64 {
    let off = |(id, value): (_, &f64)| found.fsv.get(id).map_or(0.0, |found| found - value);
    exact.fsv.iter().map(off).map(|d| d * d).sum::<f64>().sqrt()
}

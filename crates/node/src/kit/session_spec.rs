//! How the federation is valued: the settings that every party's kit has in common.

use secsv_federation::skip::SkipMode;
use secsv_protocol::{
    Preset,
    decryptors::Protocol,
    session::{Matmul, Settings},
};
use secsv_shapley::{Method, Settings as EstimatorSettings, StopRule};
use serde::{Deserialize, Serialize};

use secsv_evaluation::EvaluationSettings;

/// The settings of a run, by the names the command line has for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// How models are tested: `secsv`, `hesv` or `secretsv`.
    pub protocol: String,
    /// Parameters of the encryption: `standard` or `compact`.
    pub preset: String,
    /// How encrypted matrices are multiplied: `packed`, `reducing` or `squaring`.
    pub matmul: String,
    /// Whether samples are skipped: `on`, `off` or `auto`.
    pub skip: String,
    /// How values are computed from utilities.
    pub estimator: String,
    /// What the estimator's draws follow from.
    pub seed: u64,
    /// Error that permutation sampling and group testing aim for ...
    pub epsilon: f64,
    /// ... except with this probability.
    pub delta: f64,
    /// Samples that the estimator takes in each round, instead of what it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Sampling stops when no client's standard error is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_error: Option<f64>,
    /// Sampling stops after this many tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tests: Option<usize>,
}

/// A setting that does not fit: its name, what was expected, what was found.
pub(super) type Misfit = (&'static str, &'static str, String);

const PROTOCOLS: [(&str, Protocol); 3] =
    [("secsv", Protocol::SecSv), ("hesv", Protocol::Hesv), ("secretsv", Protocol::SecretSv)];
const PRESETS: [(&str, Preset); 2] = [("standard", Preset::Standard), ("compact", Preset::Compact)];
const MATMULS: [(&str, Matmul); 3] =
    [("packed", Matmul::Packed), ("reducing", Matmul::Reducing), ("squaring", Matmul::Squaring)];
const SKIPS: [(&str, SkipMode); 3] = [("on", SkipMode::On), ("off", SkipMode::Off), ("auto", SkipMode::Auto)];

impl SessionSpec {
    /// The spelling of settings. There is no limit by time: when a party was away, it would change the values.
    pub fn new(settings: Settings, evaluation: &EvaluationSettings) -> Self {
        let estimator = &evaluation.estimator;
        Self {
            protocol: name(&PROTOCOLS, settings.protocol),
            preset: name(&PRESETS, settings.preset),
            matmul: name(&MATMULS, settings.matmul),
            skip: name(&SKIPS, evaluation.skip),
            estimator: evaluation.method.name().to_owned(),
            seed: estimator.seed,
            epsilon: estimator.epsilon,
            delta: estimator.delta,
            samples: estimator.samples,
            max_error: estimator.stop.standard_error,
            max_tests: estimator.stop.tests,
        }
    }

    /// How models are tested.
    pub(super) fn settings(&self) -> Result<Settings, Misfit> {
        let protocol = named(&PROTOCOLS, &self.protocol).ok_or((
            "protocol",
            "secsv, hesv or secretsv",
            self.protocol.clone(),
        ))?;
        let preset =
            named(&PRESETS, &self.preset).ok_or(("preset", "standard or compact", self.preset.clone()))?;
        let matmul = named(&MATMULS, &self.matmul).ok_or((
            "matmul",
            "packed, reducing or squaring",
            self.matmul.clone(),
        ))?;
        match (protocol, matmul) {
            (Protocol::Hesv, Matmul::Packed) => {
                Err(("matmul", "squaring or reducing with hesv", self.matmul.clone()))
            }
            (Protocol::SecSv, Matmul::Squaring) => {
                Err(("matmul", "packed or reducing with secsv", self.matmul.clone()))
            }
            _ => {
                let method = self.estimator.parse::<Method>().ok();
                let (always_skips, whole_rounds) =
                    (self.skip == "on", method.is_some_and(Method::asks_for_all));
                Ok(Settings { protocol, preset, matmul, always_skips, whole_rounds })
            }
        }
    }

    /// How values are computed.
    pub(super) fn evaluation(&self) -> Result<EvaluationSettings, Misfit> {
        let skip = named(&SKIPS, &self.skip).ok_or(("skip", "on, off or auto", self.skip.clone()))?;
        if self.protocol == "hesv" && skip != SkipMode::Off {
            return Err(("skip", "off with hesv: its server learns counts alone", self.skip.clone()));
        }
        let method = self.estimator.parse::<Method>().ok().filter(|method| !method.needs_cumulative_models());
        let method =
            method.ok_or(("estimator", "an estimator that values each round", self.estimator.clone()))?;
        let stop = StopRule { standard_error: self.max_error, elapsed: None, tests: self.max_tests };
        let estimator = EstimatorSettings {
            seed: self.seed,
            epsilon: self.epsilon,
            delta: self.delta,
            samples: self.samples,
            stop,
            ..EstimatorSettings::default()
        };
        estimator.check().map_err(|error| ("estimator", "settings in their ranges", error.to_string()))?;
        Ok(EvaluationSettings { method, estimator, skip, verify_skip: false })
    }
}

fn name<T: PartialEq + Copy>(names: &[(&str, T)], value: T) -> String {
    names.iter().find(|(_, other)| *other == value).map_or(String::new(), |(name, _)| (*name).to_owned())
}

fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

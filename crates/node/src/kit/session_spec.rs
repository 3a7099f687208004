//! How the federation is valued: the settings that every party's kit has in common.

use secsv_federation::skip::SkipMode;
use secsv_protocol::session::{HiddenSettings, RangeRule, Settings};
use secsv_shapley::{EstimatorSettings, Method, RoundWeights, StopRule};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, value::StrDeserializer},
};

use secsv_evaluation::{EvaluationSettings, Utility};

/// The settings of a run, by the names the command line has for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// How models are tested: `blindsv`, `secsv`, `hesv` or `secretsv`.
    pub protocol: String,
    /// Parameters of the encryption: `standard` or `compact`.
    pub preset: String,
    /// How encrypted matrices are multiplied: `packed`, `reducing` or `squaring`.
    pub matmul: String,
    /// Whether samples are skipped: `on`, `off` or `auto`.
    pub skip: String,
    /// Which bounds hidden numbers are held to, where not the usual ones: `auto`, `proven` or `calibrated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<String>,
    /// Whether numbers out of range are counted where none can be, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_ranges: bool,
    /// Labels of ten thousand that a model with functions by straight pieces must share with the exact one, where not the usual number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<u16>,
    /// How values are computed from utilities.
    pub estimator: String,
    /// What a coalition's model is worth: `accuracy`, `balanced-accuracy`, `recall=CLASS` or `f1`.
    #[serde(default = "accuracy", skip_serializing_if = "is_accuracy")]
    pub utility: String,
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

fn accuracy() -> String {
    Utility::Accuracy.to_string()
}

fn is_accuracy(utility: &str) -> bool {
    utility == accuracy()
}

/// A setting that does not fit: its name, what was expected, what was found.
pub(super) type Misfit = (&'static str, &'static str, String);

impl SessionSpec {
    /// The spelling of settings. There is no limit by time: when a party was away, it would change the values.
    pub fn new(settings: Settings, evaluation: &EvaluationSettings) -> Self {
        let (estimator, ranges) = (&evaluation.estimator, settings.hidden.ranges);
        Self {
            protocol: settings.protocol.name().to_owned(),
            preset: settings.preset.name().to_owned(),
            matmul: settings.matmul.name().to_owned(),
            skip: evaluation.skip.name().to_owned(),
            ranges: (ranges != RangeRule::default()).then(|| ranges.name().to_owned()),
            check_ranges: settings.hidden.checks_all,
            agreement: (settings.hidden.agreement != HiddenSettings::USUAL.agreement)
                .then_some(settings.hidden.agreement),
            estimator: evaluation.method.name().to_owned(),
            utility: evaluation.utility.to_string(),
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
        let protocol = named("protocol", "blindsv, secsv, hesv or secretsv", &self.protocol)?;
        let preset = named("preset", "standard or compact", &self.preset)?;
        let matmul = named("matmul", "packed, reducing or squaring", &self.matmul)?;
        let whole_rounds = self.estimator.parse::<Method>().is_ok_and(Method::asks_for_all);
        let ranges = self.ranges.as_ref().map(|text| named("ranges", "auto, proven or calibrated", text));
        let hidden = HiddenSettings {
            ranges: ranges.transpose()?.unwrap_or_default(),
            checks_all: self.check_ranges,
            agreement: self.agreement.unwrap_or(HiddenSettings::USUAL.agreement).min(10_000),
        };
        let settings = Settings::new(protocol, preset, Some(matmul), self.skip()?, whole_rounds)
            .and_then(|settings| settings.with_hidden(hidden))
            .map_err(|conflict| (conflict.setting, conflict.expected, conflict.found.to_owned()))?;
        self.utility()?
            .settings(settings)
            .map_err(|error| ("utility", "accuracy, or blindsv without skipped samples", error.to_string()))
    }

    fn utility(&self) -> Result<Utility, Misfit> {
        let expected = "accuracy, balanced-accuracy, recall=CLASS or f1";
        self.utility.parse().map_err(|_| ("utility", expected, self.utility.clone()))
    }

    /// Whether clients test models that they know from training on their own samples, and so need the aggregates.
    pub(crate) fn tests_known_models(&self) -> bool {
        self.settings().is_ok_and(|settings| settings.protocol.rules().has_decryptors())
    }

    /// Why rounds that are valued one by one would not add up to the whole, if they would not.
    pub(super) fn misfit_of_rounds(&self, evaluation: &EvaluationSettings) -> Option<Misfit> {
        let stops = self.max_error.is_some() || self.max_tests.is_some();
        let weighs = RoundWeights::of(evaluation.method, &evaluation.estimator) != RoundWeights::Equal;
        match (stops, weighs) {
            (true, _) => Some((
                "max_tests",
                "no stopping rule beside limits: it is for all rounds together",
                "one".into(),
            )),
            (_, true) => {
                let expected = "an estimator whose rounds count alike, beside limits";
                Some(("estimator", expected, self.estimator.clone()))
            }
            _ => None,
        }
    }

    fn skip(&self) -> Result<SkipMode, Misfit> {
        named("skip", "on, off or auto", &self.skip)
    }

    /// How values are computed.
    pub(super) fn evaluation(&self) -> Result<EvaluationSettings, Misfit> {
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
        let (utility, skip) = (self.utility()?, self.skip()?);
        Ok(EvaluationSettings { method, estimator, utility, skip, ..EvaluationSettings::default() })
    }
}

/// The value that a setting's text names.
fn named<T: DeserializeOwned>(
    setting: &'static str,
    expected: &'static str,
    text: &str,
) -> Result<T, Misfit> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(text))
        .map_err(|_| (setting, expected, text.to_owned()))
}

//! How values are computed from tests: what `evaluate` and `provision` have in common.

use std::time::Duration;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use secsv_evaluation::{EvaluationSettings, Utility};
use secsv_federation::skip::SkipMode;
use secsv_shapley::{Error, EstimatorSettings, Method, StopRule};

use crate::failure::BadInput;

/// Arguments about skipping, utilities and estimating.
#[derive(Args)]
pub struct ValuationArgs {
    /// Whether samples that two models predict right are skipped on their aggregate.
    #[arg(long, value_enum, default_value_t = SkipMode::Off)]
    skip: SkipMode,
    /// What a coalition's model is worth: accuracy, balanced-accuracy, recall=CLASS or f1 (two classes; class 1 counts). All but
    /// accuracy ask how many right samples are of each class, which blindsv (without SampleSkip) and nssv can tell.
    #[arg(long, default_value_t = Utility::Accuracy)]
    utility: Utility,
    #[command(flatten)]
    estimator: EstimatorArgs,
}

/// Arguments about estimating.
#[derive(Args)]
pub struct EstimatorArgs {
    /// How values are computed from utilities.
    #[arg(long, default_value = Method::Exact.name(), value_parser = methods())]
    estimator: Method,
    /// What everything random follows from.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Euclidean error of a round's values that permutation sampling and group testing aim for ...
    #[arg(long, default_value_t = EstimatorSettings::default().epsilon, allow_negative_numbers = true)]
    epsilon: f64,
    /// ... except with this probability.
    #[arg(long, default_value_t = EstimatorSettings::default().delta, allow_negative_numbers = true)]
    delta: f64,
    /// Samples that the estimator takes in each round, instead of what it would.
    #[arg(long)]
    samples: Option<usize>,
    /// Stop sampling when no client's standard error is larger.
    #[arg(long, allow_negative_numbers = true)]
    max_error: Option<f64>,
    /// Stop sampling after this many tests, over all rounds.
    #[arg(long)]
    max_tests: Option<usize>,
}

/// Every estimator, with a line on what it is for.
fn methods() -> impl TypedValueParser<Value = Method> {
    let named = |method: Method| PossibleValue::new(method.name()).help(method.about());
    PossibleValuesParser::new(Method::all().map(named)).map(|name| name.parse().unwrap_or(Method::Exact))
}

impl ValuationArgs {
    /// The settings, in their ranges and with nothing that the estimator would not look at.
    pub fn settings(&self, elapsed: Option<Duration>) -> Result<EvaluationSettings, BadInput> {
        Ok(EvaluationSettings { utility: self.utility, skip: self.skip, ..self.estimator.settings(elapsed)? })
    }
}

impl EstimatorArgs {
    /// The same for accuracies without skipping.
    pub fn settings(&self, elapsed: Option<Duration>) -> Result<EvaluationSettings, BadInput> {
        let stop = StopRule { standard_error: self.max_error, elapsed, tests: self.max_tests };
        let (seed, epsilon, delta, samples) = (self.seed, self.epsilon, self.delta, self.samples);
        let estimator =
            EstimatorSettings { seed, epsilon, delta, samples, stop, ..EstimatorSettings::default() };
        estimator.check().map_err(named)?;
        self.check_used(elapsed)?;
        Ok(EvaluationSettings { method: self.estimator, estimator, ..EvaluationSettings::default() })
    }

    /// Whether it may end before all that was planned is tested.
    pub fn may_stop_early(&self) -> bool {
        self.max_error.is_some()
    }

    /// Refuses limits that an estimator does not have.
    fn check_used(&self, elapsed: Option<Duration>) -> Result<(), BadInput> {
        let method = self.estimator;
        let (draws, stops) = (method.takes_samples(), method.stops_early());
        let given = [
            ("--samples", self.samples.is_some(), draws),
            ("--max-tests", self.max_tests.is_some(), draws),
            ("--max-error", self.max_error.is_some(), stops),
            ("--max-seconds", elapsed.is_some(), stops),
        ];
        match given.into_iter().find(|(_, is_given, is_used)| *is_given && !is_used) {
            None => Ok(()),
            Some((setting, ..)) => {
                let expected = "an estimator that samples beside it, such as --estimator permutation";
                Err(BadInput::new(setting, expected, method.name()))
            }
        }
    }
}

/// A setting outside its range, by its name on the command line.
fn named(error: Error) -> BadInput {
    let (setting, expected, found) = match error {
        Error::Setting { name, expected, found } => (name, expected, found.to_string()),
        other => return BadInput::new("--estimator", "settings in their ranges", other.to_string()),
    };
    let setting = match setting {
        "epsilon" => "--epsilon",
        "delta" => "--delta",
        "samples" => "--samples",
        "stop.standard_error" => "--max-error",
        other => other,
    };
    BadInput::new(setting, expected, found)
}

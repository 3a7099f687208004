//! How values are computed from tests: what `evaluate` and `provision` have in common.

use clap::Args;
use secsv_evaluation::EvaluationSettings;
use secsv_federation::skip::SkipMode;
use secsv_shapley::{EstimatorSettings, Method, StopRule};

/// Arguments about skipping and estimating.
#[derive(Args)]
pub struct ValuationArgs {
    /// Whether samples that two models predict right are skipped on their aggregate.
    #[arg(long, value_enum, default_value_t = SkipMode::Off)]
    skip: SkipMode,
    #[arg(long, default_value_t = Method::Exact, value_parser = method, help = methods())]
    estimator: Method,
    /// What everything random follows from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Euclidean error of a round's values that permutation sampling and group testing aim for ...
    #[arg(long, default_value_t = EstimatorSettings::default().epsilon)]
    epsilon: f64,
    /// ... except with this probability.
    #[arg(long, default_value_t = EstimatorSettings::default().delta)]
    delta: f64,
    /// Samples that the estimator takes in each round, instead of what it would.
    #[arg(long)]
    samples: Option<usize>,
    /// Stop sampling when no client's standard error is larger.
    #[arg(long)]
    max_error: Option<f64>,
    /// Stop sampling after this many tests.
    #[arg(long)]
    max_tests: Option<usize>,
}

fn methods() -> String {
    let names: Vec<&str> = Method::all().map(Method::name).collect();
    format!("How values are computed from utilities: {}", names.join(", "))
}

fn method(name: &str) -> Result<Method, secsv_shapley::Error> {
    name.parse()
}

impl ValuationArgs {
    /// The settings, not checked yet.
    pub fn settings(&self) -> EvaluationSettings {
        let stop = StopRule { standard_error: self.max_error, elapsed: None, tests: self.max_tests };
        let (seed, epsilon, delta, samples) = (self.seed, self.epsilon, self.delta, self.samples);
        let estimator =
            EstimatorSettings { seed, epsilon, delta, samples, stop, ..EstimatorSettings::default() };
        EvaluationSettings {
            method: self.estimator,
            estimator,
            skip: self.skip,
            ..EvaluationSettings::default()
        }
    }
}

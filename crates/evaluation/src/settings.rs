//! EstimatorSettings of an evaluation.

use secsv_federation::skip::SkipMode;
use secsv_shapley::{EstimatorSettings, Method};

use crate::Utility;

/// How to value a federation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationSettings {
    /// The estimator.
    pub method: Method,
    /// What it is told, the seed included.
    pub estimator: EstimatorSettings,
    /// What a coalition's model is worth.
    pub utility: Utility,
    /// Whether samples are skipped.
    pub skip: SkipMode,
    /// Whether skipped samples are tested after all, to count those that should not have been.
    pub verify_skip: bool,
}

impl Default for EvaluationSettings {
    fn default() -> Self {
        let estimator = EstimatorSettings::default();
        Self {
            method: Method::Exact,
            estimator,
            utility: Utility::Accuracy,
            skip: SkipMode::Off,
            verify_skip: false,
        }
    }
}

//! Settings of the estimators.

use crate::{Error, StopRule};

/// Settings of all methods; each reads its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimatorSettings {
    /// Everything random follows from it.
    pub seed: u64,
    /// Permutation sampling and group testing take as many samples as make the Euclidean error of a round's
    /// values at most this ...
    pub epsilon: f64,
    /// ... except with this probability.
    pub delta: f64,
    /// The largest difference between two utilities: 1 for accuracies.
    pub utility_range: f64,
    /// Orders (permutation methods), tests (group testing, KernelSHAP, least core) to use instead of what the
    /// method would.
    pub samples: Option<usize>,
    /// When sampling ends early.
    pub stop: StopRule,
    /// How near to everybody's utility an order is left, in `tmc`, `gtg-shapley` and `wt-shapley`.
    pub tolerance: f64,
    /// A round that changes the utility by no more than this is worth nothing to anybody in `gtg-shapley`.
    pub round_tolerance: f64,
    /// `gtg-shapley` stops when its last means differ by no more than this share.
    pub convergence: f64,
    /// Alpha and beta of `beta-shapley`.
    pub beta: (f64, f64),
    /// Number of groups that `group-sv` forms.
    pub groups: usize,
    /// `contribution-index-mr` weighs round t by this to the power t - 1.
    pub decay: f64,
    /// About how many coalitions are asked for at once, where the method has a choice.
    pub batch: usize,
}

impl Default for EstimatorSettings {
    /// Epsilon and delta are those of the paper's experiments, the tolerances those of GTG-Shapley's,
    /// Beta(16, 1) that of Beta-Shapley's.
    fn default() -> Self {
        Self {
            seed: 0,
            epsilon: 0.25,
            delta: 0.1,
            utility_range: 1.0,
            samples: None,
            stop: StopRule::default(),
            tolerance: 0.001,
            round_tolerance: 0.01,
            convergence: 0.05,
            beta: (16.0, 1.0),
            groups: 3,
            decay: 1.0,
            batch: 256,
        }
    }
}

impl EstimatorSettings {
    /// Every number in its range.
    pub fn check(&self) -> Result<(), Error> {
        let positive = |found: f64| found > 0.0 && found.is_finite();
        let not_negative = |found: f64| found >= 0.0 && found.is_finite();
        let rules: [(&'static str, &'static str, f64, bool); 12] = [
            ("epsilon", "a positive number", self.epsilon, positive(self.epsilon)),
            ("delta", "more than 0 and less than 1", self.delta, self.delta > 0.0 && self.delta < 1.0),
            ("utility_range", "a positive number", self.utility_range, positive(self.utility_range)),
            ("samples", "at least 1", self.samples.map_or(1.0, |s| s as f64), self.samples != Some(0)),
            ("tolerance", "0 or more", self.tolerance, not_negative(self.tolerance)),
            ("round_tolerance", "0 or more", self.round_tolerance, not_negative(self.round_tolerance)),
            ("convergence", "0 or more", self.convergence, not_negative(self.convergence)),
            ("beta.alpha", "a positive number", self.beta.0, positive(self.beta.0)),
            ("beta.beta", "a positive number", self.beta.1, positive(self.beta.1)),
            ("groups", "at least 1", self.groups as f64, self.groups > 0),
            ("decay", "more than 0 and at most 1", self.decay, self.decay > 0.0 && self.decay <= 1.0),
            (
                "stop.standard_error",
                "a positive number",
                self.stop.standard_error.unwrap_or(1.0),
                self.stop.standard_error.is_none_or(positive),
            ),
        ];
        for (name, expected, found, is_right) in rules {
            if !is_right {
                return Err(Error::Setting { name, expected, found });
            }
        }
        match self.stop.elapsed {
            Some(found) if found.is_zero() => Err(Error::NoTime { found }),
            _ => Ok(()),
        }
    }
}

//! What tests models: in the clear today, under encryption by the same interface.

use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_protocol::TestResult;

use crate::Error;

/// One model to test and the samples to test it on.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Whose aggregate. The empty coalition stands for the model before the round.
    pub coalition: Coalition,
    /// Positions in the collective test set.
    pub samples: SampleSet,
}

/// Something that can tell which samples a coalition's model predicts right.
pub trait Evaluator {
    /// The name results carry.
    fn protocol(&self) -> &'static str;

    /// How many samples all clients together have.
    fn samples(&self) -> usize;

    /// The rounds with those who took part in each, ascending.
    fn rounds(&self) -> Vec<(RoundId, Coalition)>;

    /// Whether tests tell which samples were predicted right, or only how many. Skipping needs to know which.
    fn tells_samples(&self) -> bool {
        true
    }

    /// For each test, how many of its samples were predicted right and, where it can be told, which, in the same
    /// order. Coalitions are of participants of the round; the empty one is asked for in the first round alone.
    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error>;

    /// What a test of so many samples costs, counted so that looking for samples to skip costs 1 for every pair of
    /// coalitions and 64 samples. Skipping in mode `auto` compares the two.
    fn cost(&mut self, round: RoundId, coalition: Coalition, samples: usize) -> Result<f64, Error>;
}

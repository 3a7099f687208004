//! What tests models: in the clear or under encryption, by the same interface.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_protocol::TestResult;

use crate::Error;

/// One model to test and the samples to test it on.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Whose aggregate. The empty coalition stands for the model before the round.
    pub coalition: Coalition,
    /// Positions in the collective test set. Shared: thousands of tests are on the same samples.
    pub samples: Arc<SampleSet>,
    /// All that this test and others of the round, of coalitions not smaller, may need: what is done once for all of them
    /// is done for these.
    pub candidate_samples: Arc<SampleSet>,
}

impl Test {
    /// A test for which nothing is gathered.
    pub fn new(coalition: Coalition, samples: impl Into<Arc<SampleSet>>) -> Self {
        let samples = samples.into();
        let candidate_samples =
            if samples.is_all() { samples.clone() } else { Arc::new(SampleSet::all(samples.total())) };
        Self { coalition, samples, candidate_samples }
    }
}

/// Something that can tell which samples a coalition's model predicts right.
pub trait Evaluator {
    /// Why a test cannot be run.
    type Error: From<Error>;

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

    /// Whether who runs it knows which cases every model gets right: then it may say how far values would move with others.
    fn knows_outcomes(&self) -> bool {
        false
    }

    /// Whether it pays to know which samples larger coalitions may still need, before the first of them is tested.
    fn gathers(&self) -> bool {
        false
    }

    /// Whether models are tested together: then a sample that is skipped spares next to nothing.
    fn tests_together(&self) -> bool {
        false
    }

    /// How many classes there are, where tests count right predictions for each and nobody knows single labels.
    fn counted_classes(&self) -> Option<usize> {
        None
    }

    /// The true class of every sample and the number of classes, where whoever evaluates may know them.
    fn labels(&self) -> Option<(&[i64], usize)> {
        None
    }

    /// Whether the empty coalition is tested in every round. Otherwise it is in the first: later its model is that of
    /// everybody in the round before.
    fn tests_empty_each_round(&self) -> bool {
        false
    }

    /// What the model before the first round gave on all samples, if it was tested in an earlier evaluation.
    fn known_empty(&self) -> Option<TestResult> {
        None
    }

    /// For each test, how many of its samples were predicted right and, where it can be told, which, in the same
    /// order. Coalitions are of participants of the round; the empty one is asked for in the first round alone, or in each
    /// ([`tests_empty_each_round`](Self::tests_empty_each_round)).
    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Self::Error>;

    /// Runs tests of any rounds; `next` is told of each result, in any order, and may ask for more. Unless an evaluator
    /// can do better: batch by batch, the earliest round first.
    fn drive(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Self::Error> {
        let mut queue: BTreeMap<RoundId, Vec<Test>> = BTreeMap::new();
        tests.into_iter().for_each(|(round, test)| queue.entry(round).or_default().push(test));
        while let Some((round, tests)) = queue.pop_first() {
            let found = self.test(round, &tests)?;
            if found.len() != tests.len() {
                return Err(Error::Answers { expected: tests.len(), found: found.len() }.into());
            }
            for (test, result) in tests.iter().zip(found) {
                for (round, more) in next(round, test, result)? {
                    queue.entry(round).or_default().push(more);
                }
            }
        }
        Ok(())
    }

    /// What a test of a coalition on so many samples costs, counted so that looking for samples to skip costs 1 for every
    /// pair of coalitions and 64 samples. Skipping in mode `auto` compares the two.
    fn cost_model(&self) -> CostModel;
}

/// Told of each result; returns what to test next.
pub type Next<'a> = dyn FnMut(RoundId, &Test, TestResult) -> Result<Vec<(RoundId, Test)>, Error> + 'a;

/// Costs by coalition and number of samples.
pub type CostModel = Box<dyn Fn(Coalition, usize) -> f64>;

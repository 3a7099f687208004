//! Models accumulated over all rounds, tested in the clear: what the one-round Contribution Index values.

use secsv_federation::{
    Coalition, CollectiveTestSet, RoundId, RunDirectory,
    clear::{CumulativeModels, correct_samples},
};

use secsv_protocol::TestResult;

use crate::{CostModel, Error, Evaluator, Test};

/// One game instead of one per round: a coalition's model is rebuilt from its members' updates of all rounds. It
/// goes by the number of the last round.
pub struct CumulativeEvaluator<'a> {
    run: &'a RunDirectory,
    test_set: &'a CollectiveTestSet<'a>,
    models: CumulativeModels,
    multiplications: usize,
}

impl<'a> CumulativeEvaluator<'a> {
    /// An evaluator of a run that [`RunDirectory::check`] has passed, on its clients' samples.
    pub fn new(run: &'a RunDirectory, test_set: &'a CollectiveTestSet<'a>) -> Result<Self, Error> {
        let models = CumulativeModels::read(run)?;
        let multiplications =
            run.architecture().layers().iter().map(|placed| placed.layer.multiplications()).sum();
        Ok(Self { run, test_set, models, multiplications })
    }

    fn check(&self, round: RoundId) -> Result<(), Error> {
        if round == self.last_round() { Ok(()) } else { Err(Error::UnknownRound { found: round }) }
    }

    fn last_round(&self) -> RoundId {
        RoundId(self.run.spec().rounds)
    }
}

impl Evaluator for CumulativeEvaluator<'_> {
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "nssv"
    }

    fn samples(&self) -> usize {
        self.test_set.len()
    }

    fn labels(&self) -> Option<(&[i64], usize)> {
        Some((self.test_set.labels(), self.run.architecture().classes()))
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        vec![(self.last_round(), self.models.participants())]
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
        self.check(round)?;
        let right = |test: &Test| {
            let model = self.models.model(test.coalition);
            TestResult::from(correct_samples(self.run.architecture(), &model, self.test_set, &test.samples))
        };
        Ok(tests.iter().map(right).collect())
    }

    fn cost_model(&self) -> CostModel {
        let multiplications = self.multiplications;
        Box::new(move |_, samples| samples as f64 * multiplications as f64)
    }
}

//! NSSV: everything in the clear, in one process (the paper's baseline and the answer secure protocols must match).

use secsv_federation::{
    Aggregation, Coalition, CollectiveTestSet, RoundId, RunDirectory, SampleSet,
    clear::{ClearRound, ModelParameters, correct_samples, cost},
};

use secsv_protocol::TestResult;

use crate::{CostModel, Error, Evaluator, Test};

/// Rounds are kept for later batches while their first-layer outputs take no more than this.
const KEPT_BYTES: usize = 2 << 30;

/// Tests coalitions of a run in double precision.
pub struct ClearEvaluator<'a> {
    run: &'a RunDirectory,
    test_set: &'a CollectiveTestSet<'a>,
    rounds: Vec<(RoundId, Coalition)>,
    /// The round used last comes last.
    kept: Vec<(RoundId, ClearRound<'a>)>,
}

impl<'a> ClearEvaluator<'a> {
    /// An evaluator of a run that [`RunDirectory::check`] has passed, on its clients' samples.
    pub fn new(run: &'a RunDirectory, test_set: &'a CollectiveTestSet<'a>) -> Self {
        let rounds = run.spec().round_ids().map(|round| (round, run.participants(round))).collect();
        Self { run, test_set, rounds, kept: Vec::new() }
    }

    fn round(&mut self, round: RoundId) -> Result<&ClearRound<'a>, Error> {
        let known = self.rounds.iter().find(|(id, _)| *id == round);
        let &(_, participants) = known.ok_or(Error::UnknownRound { found: round })?;
        let loaded = match self.kept.iter().position(|(id, _)| *id == round) {
            Some(place) => self.kept.remove(place).1,
            None => self.load(round, participants)?,
        };
        let others: usize = self.kept.iter().map(|(_, round)| round.bytes()).sum();
        let mut excess = (others + loaded.bytes()).saturating_sub(KEPT_BYTES);
        while excess > 0 && !self.kept.is_empty() {
            excess = excess.saturating_sub(self.kept.remove(0).1.bytes());
        }
        self.kept.push((round, loaded));
        self.kept.last().map(|(_, round)| round).ok_or(Error::UnknownRound { found: round })
    }

    fn load(&self, round: RoundId, participants: Coalition) -> Result<ClearRound<'a>, Error> {
        let mut models = Vec::with_capacity(participants.len());
        for position in participants.members() {
            let client = &self.run.spec().clients[position];
            let weights = self.run.local_model(&client.id, round)?;
            models.push((position, client.weight_in(round), weights));
        }
        Ok(ClearRound::new(self.run.architecture(), self.test_set, models))
    }

    fn test_model_before(&self, round: RoundId, samples: &SampleSet) -> Result<SampleSet, Error> {
        let architecture = self.run.architecture();
        let parameters = ModelParameters::new(architecture, &self.run.model_before(round)?);
        Ok(correct_samples(architecture, &parameters, self.test_set, samples))
    }
}

impl Evaluator for ClearEvaluator<'_> {
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "nssv"
    }

    fn samples(&self) -> usize {
        self.test_set.len()
    }

    fn knows_outcomes(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<(&[i64], usize)> {
        Some((self.test_set.labels(), self.run.architecture().classes()))
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        self.rounds.clone()
    }

    fn tests_empty_each_round(&self) -> bool {
        self.run.spec().aggregation == Aggregation::Other
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
        let (empty, others): (Vec<_>, Vec<_>) =
            tests.iter().enumerate().partition(|(_, test)| test.coalition.is_empty());
        let mut correct = vec![TestResult::from(SampleSet::none(self.samples())); tests.len()];
        for (index, test) in empty {
            correct[index] = self.test_model_before(round, &test.samples)?.into();
        }
        if others.is_empty() {
            return Ok(correct);
        }
        let asked: Vec<(Coalition, SampleSet)> =
            others.iter().map(|(_, test)| (test.coalition, (*test.samples).clone())).collect();
        let found = self.round(round)?.correct_samples(&asked);
        for ((index, _), found) in others.into_iter().zip(found) {
            correct[index] = found.into();
        }
        Ok(correct)
    }

    fn cost_model(&self) -> CostModel {
        let (architecture, all) = (self.run.architecture().clone(), self.samples());
        Box::new(move |coalition, samples| cost(&architecture, all, coalition, samples))
    }
}

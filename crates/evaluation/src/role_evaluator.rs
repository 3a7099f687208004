//! Coalitions tested by the roles of a protocol, in one process or on a network: what follows from the federation and
//! from running tests is the same.

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{
    TestRequest, TestResult,
    session::{Federation, Session, Settings},
};

use crate::{CostModel, Error, Evaluator, Next, Test};

/// Roles that can be asked to test.
pub trait RoleEvaluator {
    /// Why a test cannot be run.
    type Error: From<Error>;

    /// Who takes part, and how.
    fn federation(&self) -> &Federation;

    /// How many samples all clients together have.
    fn sample_count(&self) -> usize;

    /// What the model before the first round gave, see [`Evaluator::known_empty`].
    fn known_before(&self) -> Option<TestResult> {
        None
    }

    /// Runs tests, see [`Evaluator::drive`].
    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Self::Error>;
}

impl<E: RoleEvaluator> Evaluator for E {
    type Error = E::Error;

    fn protocol(&self) -> &'static str {
        self.federation().settings.protocol.name()
    }

    fn samples(&self) -> usize {
        self.sample_count()
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        let federation = self.federation();
        federation.rounds.keys().map(|&round| (round, federation.participants(round))).collect()
    }

    fn tells_samples(&self) -> bool {
        let Settings { protocol, always_skips, .. } = self.federation().settings;
        protocol.rules().learns_each_prediction(always_skips)
    }

    fn counted_classes(&self) -> Option<usize> {
        let federation = self.federation();
        federation.settings.counts_classes().then(|| federation.architecture.classes())
    }

    fn known_empty(&self) -> Option<TestResult> {
        self.known_before()
    }

    fn gathers(&self) -> bool {
        self.federation().settings.protocol.rules().batching().gathers
    }

    fn tests_together(&self) -> bool {
        self.federation().tests_together()
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Self::Error> {
        let mut found: BTreeMap<usize, TestResult> = BTreeMap::new();
        let asked = tests.iter().map(|test| (round, test.clone())).collect();
        self.run(asked, &mut |_, test, result| {
            let place =
                tests.iter().enumerate().position(|(i, other)| !found.contains_key(&i) && other == test);
            found.extend(place.map(|place| (place, result)));
            Ok(Vec::new())
        })?;
        Ok(found.into_values().collect())
    }

    fn drive(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Self::Error> {
        self.run(tests, next)
    }

    fn cost_model(&self) -> CostModel {
        // Microseconds beside nanoseconds: any sample that is not tested pays for the search.
        Box::new(|_, samples| samples as f64 * 1e4)
    }
}

/// Tests as roles are asked for them: where they test models together, those of a round batch's rounds on the same samples.
pub fn requests(session: &Session, tests: Vec<(RoundId, Test)>) -> Vec<TestRequest> {
    let most = session.most_together();
    let mut requests: Vec<TestRequest> = Vec::new();
    for (rounds, Test { coalition, samples, candidate_samples }) in by_round_batch(session, tests) {
        let shared = requests.iter_mut().rev().take(if most > 1 { usize::MAX } else { 0 }).find(|request| {
            request.rounds == rounds
                && request.coalitions.len() < most
                && !request.coalitions.contains(&coalition)
                && request.samples == *samples
                && request.candidate_samples == *candidate_samples
        });
        if let Some(request) = shared {
            request.coalitions.push(coalition);
        } else {
            let round = session.round_batch_of(rounds[0]);
            let (coalitions, samples, candidate_samples) =
                (vec![coalition], (*samples).clone(), (*candidate_samples).clone());
            requests.push(TestRequest { round, rounds, coalitions, samples, candidate_samples });
        }
    }
    requests
}

/// Tests that are asked for in every round of a round batch, once for all of them, and others as they are.
fn by_round_batch(session: &Session, tests: Vec<(RoundId, Test)>) -> Vec<(Vec<RoundId>, Test)> {
    let mut found: Vec<(Vec<RoundId>, Test)> = Vec::new();
    let mut last: BTreeMap<(RoundId, Coalition), usize> = BTreeMap::new();
    for (round, test) in tests {
        let key = (session.round_batch_of(round), test.coalition);
        match last.get(&key).map(|&at| &mut found[at]).filter(|(_, other)| *other == test) {
            Some((rounds, _)) => rounds.push(round),
            None => {
                last.insert(key, found.len());
                found.push((vec![round], test));
            }
        }
    }
    let is_whole = |rounds: &[RoundId]| session.rounds_of(rounds[0]) == rounds;
    let parts = found.into_iter().flat_map(|(rounds, test)| match is_whole(&rounds) {
        true => vec![(rounds, test)],
        false => rounds.into_iter().map(|round| (vec![round], test.clone())).collect(),
    });
    parts.collect()
}

/// What a request asked for, round by round and coalition by coalition.
pub fn tests_of(request: &TestRequest) -> impl Iterator<Item = (RoundId, Test)> + '_ {
    let TestRequest { rounds, coalitions, samples, candidate_samples, .. } = request;
    let (samples, candidate_samples) = (Arc::new(samples.clone()), Arc::new(candidate_samples.clone()));
    rounds.iter().flat_map(move |&round| {
        let (samples, candidate_samples) = (samples.clone(), candidate_samples.clone());
        let test = move |&coalition: &_| Test {
            coalition,
            samples: samples.clone(),
            candidate_samples: candidate_samples.clone(),
        };
        coalitions.iter().map(move |coalition| (round, test(coalition)))
    })
}

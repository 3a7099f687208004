//! Coalitions tested by the roles of a protocol, in one process or on a network: what follows from the federation and
//! from running tests is the same.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{TestRequest, TestResult, decryptors::Protocol, session::Federation};

use crate::{CostModel, Error, Evaluator, Next, Test};

/// Roles that can be asked to test.
pub trait ByRoles {
    /// Who takes part, and how.
    fn federation(&self) -> &Federation;

    /// How many samples all clients together have.
    fn sample_count(&self) -> usize;

    /// Runs tests, see [`Evaluator::drive`].
    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error>;
}

impl<E: ByRoles> Evaluator for E {
    fn protocol(&self) -> &'static str {
        protocol_name(self.federation().settings.protocol)
    }

    fn samples(&self) -> usize {
        self.sample_count()
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        let federation = self.federation();
        federation.rounds.keys().map(|&round| (round, federation.participants(round))).collect()
    }

    fn tells_samples(&self) -> bool {
        self.federation().settings.protocol != Protocol::Hesv
    }

    fn gathers(&self) -> bool {
        self.federation().settings.protocol == Protocol::SecSv
    }

    fn tests_together(&self) -> bool {
        self.federation().tests_together()
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
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

    fn drive(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
        self.run(tests, next)
    }

    fn cost_model(&self) -> CostModel {
        // Microseconds beside nanoseconds: any sample that is not tested pays for the search.
        Box::new(|_, samples| samples as f64 * 1e4)
    }
}

/// Tests as roles are asked for them: where they test models together, those of one round on the same samples.
pub(crate) fn requests(federation: &Federation, tests: Vec<(RoundId, Test)>) -> Vec<TestRequest> {
    let mut requests: Vec<TestRequest> = Vec::new();
    let whole = whole_rounds(federation, &tests);
    for (round, Test { coalition, samples, among }) in tests {
        let most = federation.most_together(samples.total());
        let shared = requests.iter_mut().rev().take(if most > 1 { usize::MAX } else { 0 }).find(|request| {
            request.round == round
                && request.coalitions.len() < most
                && !request.coalitions.contains(&coalition)
                && request.samples == samples
                && request.among == among
        });
        match shared {
            Some(request) => request.coalitions.push(coalition),
            None => {
                let (coalitions, of_all) = (vec![coalition], whole.contains(&round));
                requests.push(TestRequest { round, coalitions, samples, among, of_all });
            }
        }
    }
    requests
}

/// Rounds of which all coalitions are asked for at once, where models are tested together.
fn whole_rounds(federation: &Federation, tests: &[(RoundId, Test)]) -> BTreeSet<RoundId> {
    let mut asked: BTreeMap<RoundId, BTreeSet<Coalition>> = BTreeMap::new();
    for (round, test) in tests.iter().filter(|_| federation.tests_together()) {
        asked.entry(*round).or_default().insert(test.coalition);
    }
    let is_whole = |&(round, coalitions): &(&RoundId, &BTreeSet<Coalition>)| {
        let participants = federation.participants(*round);
        let asked =
            coalitions.iter().filter(|coalition| !coalition.is_empty() && **coalition != participants);
        // All but the empty coalition and the grand one, whose model everybody knows.
        Some(asked.count() + 2) == 1usize.checked_shl(participants.len() as u32)
    };
    asked.iter().filter(is_whole).map(|(round, _)| *round).collect()
}

/// What a request asked for, coalition by coalition.
pub(crate) fn tests_of(request: &TestRequest) -> impl Iterator<Item = Test> + '_ {
    let TestRequest { coalitions, samples, among, .. } = request;
    coalitions.iter().map(|&coalition| Test { coalition, samples: samples.clone(), among: among.clone() })
}

/// A protocol's name in results.
pub(crate) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::SecSv => "secsv",
        Protocol::Hesv => "hesv",
        Protocol::SecretSv => "secretsv",
    }
}

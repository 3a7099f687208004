//! Coalitions tested by parties on the network, as the principal's process sees it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
};

use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{Principal, TestRequest, TestResult, decryptors::Protocol, session::Federation};

use super::{GLANCE, Network};
use crate::{
    CostModel, Error, Evaluator, Next, Test,
    journal::TestRecord,
    party::{Party, local, record},
    secure::protocol_name,
};

/// Tests coalitions by asking the principal's role.
pub(super) struct NetworkEvaluator<'a> {
    pub party: &'a Arc<Party<Principal>>,
    pub network: &'a Network,
    pub federation: Arc<Federation>,
    pub samples: usize,
    pub results: Receiver<(u64, TestResult)>,
    /// Tests of an earlier process, by what was asked.
    pub known: BTreeMap<Vec<u8>, VecDeque<(u64, Option<TestResult>)>>,
    pub next_test: u64,
    /// Looks after parties that stay away.
    pub watch: &'a mut dyn FnMut() -> Result<(), Error>,
}

/// Tests by what was asked, and the number of the next one.
pub(super) type Known = (BTreeMap<Vec<u8>, VecDeque<(u64, Option<TestResult>)>>, u64);

/// What an earlier process asked for and found.
pub(super) fn known_tests(tests: Vec<TestRecord>) -> Result<Known, Error> {
    let mut known: BTreeMap<Vec<u8>, VecDeque<_>> = BTreeMap::new();
    let mut next = 0;
    for TestRecord { test, request, result } in tests {
        let result = result.map(|bytes| TestResult::decode(&bytes)).transpose();
        let result = result.map_err(|_| local("a result that decodes"))?;
        known.entry(request).or_default().push_back((test, result));
        next = next.max(test + 1);
    }
    Ok((known, next))
}

/// Tests under way.
#[derive(Default)]
struct Open {
    asked: BTreeMap<u64, (RoundId, Test)>,
    /// Found by an earlier process.
    found: VecDeque<(u64, TestResult)>,
}

impl NetworkEvaluator<'_> {
    fn ask(&mut self, round: RoundId, test: Test, open: &mut Open) {
        let Test { coalition, samples, among } = test.clone();
        let request = TestRequest { round, coalition, samples, among };
        let known = self.known.get_mut(&request.encode()).and_then(VecDeque::pop_front);
        let number = known.as_ref().map_or(self.next_test, |(number, _)| *number);
        self.next_test = self.next_test.max(number + 1);
        self.party.board().asked(round, coalition);
        open.asked.insert(number, (round, test));
        if let Some((_, Some(result))) = known {
            self.party.board().was_done(round, coalition);
            open.found.push_back((number, result));
            return;
        }
        self.party.act(Box::new(move |role| {
            let record = record(number, &request);
            Ok((role.request_as(number, request)?, vec![record]))
        }));
    }

    fn wait(&mut self, open: &mut Open) -> Result<(u64, TestResult), Error> {
        loop {
            if let Some(found) = open.found.pop_front() {
                return Ok(found);
            }
            match self.results.recv_timeout(GLANCE) {
                Ok(found) => {
                    if let Some((round, test)) = open.asked.get(&found.0) {
                        self.party.board().done(*round, test.coalition);
                    }
                    return Ok(found);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(local("the journal's writer")),
                Err(RecvTimeoutError::Timeout) => {
                    self.network.check()?;
                    (self.watch)()?;
                    self.party.desk().wait_for(std::time::Duration::ZERO, |_| None::<()>)?;
                }
            }
        }
    }
}

impl Evaluator for NetworkEvaluator<'_> {
    fn protocol(&self) -> &'static str {
        protocol_name(self.federation.settings.protocol)
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn rounds(&self) -> Vec<(RoundId, Coalition)> {
        self.federation.rounds.keys().map(|&round| (round, self.federation.participants(round))).collect()
    }

    fn tells_samples(&self) -> bool {
        self.federation.settings.protocol != Protocol::Hesv
    }

    fn gathers(&self) -> bool {
        self.federation.settings.protocol == Protocol::SecSv
    }

    fn test(&mut self, round: RoundId, tests: &[Test]) -> Result<Vec<TestResult>, Error> {
        let mut found: BTreeMap<usize, TestResult> = BTreeMap::new();
        let asked = tests.iter().map(|test| (round, test.clone())).collect();
        self.drive(asked, &mut |_, test, result| {
            let is_open = |(i, other): &(usize, &Test)| !found.contains_key(i) && *other == test;
            let place = tests.iter().enumerate().find(is_open).map(|(i, _)| i);
            found.extend(place.map(|place| (place, result)));
            Ok(Vec::new())
        })?;
        Ok(found.into_values().collect())
    }

    fn drive(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
        let mut open = Open::default();
        for (round, test) in tests {
            self.ask(round, test, &mut open);
        }
        while !open.asked.is_empty() {
            let (number, result) = self.wait(&mut open)?;
            let Some((round, test)) = open.asked.remove(&number) else { continue };
            for (round, test) in next(round, &test, result)? {
                self.ask(round, test, &mut open);
            }
            if open.asked.values().all(|(other, _)| *other != round) {
                self.party.act(Box::new(move |role| Ok((role.close_round(round)?, Vec::new()))));
            }
        }
        Ok(())
    }

    fn cost_model(&self) -> CostModel {
        // Microseconds beside nanoseconds: any sample that is not tested pays for the search.
        Box::new(|_, samples| samples as f64 * 1e4)
    }
}

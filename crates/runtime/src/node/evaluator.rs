//! Coalitions tested by parties on the network, as the principal's process sees it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
};

use secsv_federation::RoundId;
use secsv_protocol::{Principal, TestRequest, TestResult, session::Federation};

use super::{GLANCE, Network};
use crate::{
    Error, Next, Test,
    by_roles::ByRoles,
    journal::TestRecord,
    party::{Party, local, record},
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
    /// Rounds that an earlier process opened and did not close.
    pub left_open: BTreeSet<RoundId>,
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

impl ByRoles for NetworkEvaluator<'_> {
    fn federation(&self) -> &Federation {
        &self.federation
    }

    fn sample_count(&self) -> usize {
        self.samples
    }

    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
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
                let left_open = self.left_open.remove(&round);
                self.party.act(Box::new(move |role| {
                    let ended = if left_open { role.end_round(round) } else { role.close_round(round) };
                    Ok((ended?, Vec::new()))
                }));
            }
        }
        Ok(())
    }
}

//! Coalitions tested by parties on the network, as the principal's process sees it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
};

use secsv_federation::RoundId;
use secsv_protocol::{
    Principal, RequestId, TestRequest, TestResult,
    session::{Federation, Session},
};

use super::{POLL_INTERVAL, PartyNetwork};
use crate::{
    Error,
    journal::TestRecord,
    party::{Party, local, record},
};
use secsv_evaluation::{
    Next, Test,
    role_evaluator::{RoleEvaluator, requests, tests_of},
};

/// Tests coalitions by asking the principal's role.
pub(super) struct NetworkEvaluator<'a> {
    pub party: &'a Arc<Party<Principal>>,
    pub network: &'a PartyNetwork,
    pub session: Arc<Session>,
    pub results: Receiver<(RequestId, Vec<TestResult>)>,
    /// Tests of an earlier process, by what was asked.
    pub known: BTreeMap<Vec<u8>, VecDeque<Asked>>,
    pub next_request: RequestId,
    /// What the model before the first round gave in an earlier session.
    pub before: Option<TestResult>,
    /// Rounds that an earlier process opened and did not close.
    pub left_open: BTreeSet<RoundId>,
    /// Looks after parties that stay away.
    pub watch: &'a mut dyn FnMut() -> Result<(), Error>,
}

/// Tests by what was asked, and the number of the next one.
pub(super) type KnownTest = (BTreeMap<Vec<u8>, VecDeque<Asked>>, RequestId);

/// A test's number, and what it found.
type Asked = (RequestId, Option<Vec<TestResult>>);

/// What an earlier process asked for and found.
pub(super) fn known_tests(tests: Vec<TestRecord>) -> Result<KnownTest, Error> {
    let mut known: BTreeMap<Vec<u8>, VecDeque<_>> = BTreeMap::new();
    let mut next = RequestId::FIRST;
    for TestRecord { test, request, result } in tests {
        let result = result.map(|bytes| TestResult::decode(&bytes)).transpose();
        let result = result.map_err(|_| local("a result that decodes"))?;
        known.entry(request).or_default().push_back((test.request, result));
        next = next.max(test.request.next()?);
    }
    Ok((known, next))
}

/// Tests under way.
#[derive(Default)]
struct Open {
    asked: BTreeMap<RequestId, TestRequest>,
    /// Found by an earlier process.
    found: VecDeque<(RequestId, Vec<TestResult>)>,
}

impl NetworkEvaluator<'_> {
    fn ask(&mut self, request: TestRequest, open: &mut Open) -> Result<(), Error> {
        let known = self.known.get_mut(&request.encode()).and_then(VecDeque::pop_front);
        let id = known.as_ref().map_or(self.next_request, |(id, _)| *id);
        self.next_request = self.next_request.max(id.next()?);
        for (round, test) in tests_of(&request) {
            self.party.board().asked(round, test.coalition);
        }
        open.asked.insert(id, request.clone());
        if let Some((_, Some(result))) = known {
            for (round, test) in tests_of(&request) {
                self.party.board().was_done(round, test.coalition);
            }
            open.found.push_back((id, result));
            return Ok(());
        }
        self.party.act(Box::new(move |role| {
            let record = record(id, &request);
            Ok((role.request_as(id, request)?, vec![record]))
        }));
        Ok(())
    }

    fn wait(&mut self, open: &mut Open) -> Result<(RequestId, Vec<TestResult>), Error> {
        loop {
            if let Some(found) = open.found.pop_front() {
                return Ok(found);
            }
            match self.results.recv_timeout(POLL_INTERVAL) {
                Ok(found) => {
                    for (round, test) in open.asked.get(&found.0).into_iter().flat_map(tests_of) {
                        self.party.board().done(round, test.coalition);
                    }
                    return Ok(found);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(local("the journal's writer")),
                Err(RecvTimeoutError::Timeout) => {
                    self.network.check()?;
                    (self.watch)()?;
                    self.party.wait_for(std::time::Duration::ZERO, |_| None::<()>)?;
                }
            }
        }
    }
}

impl RoleEvaluator for NetworkEvaluator<'_> {
    type Error = Error;

    fn federation(&self) -> &Federation {
        &self.session.federation
    }

    fn sample_count(&self) -> usize {
        self.session.samples()
    }

    fn known_before(&self) -> Option<TestResult> {
        self.before.clone()
    }

    fn run(&mut self, tests: Vec<(RoundId, Test)>, next: &mut Next<'_>) -> Result<(), Error> {
        let mut open = Open::default();
        let session = self.session.clone();
        for request in requests(&session, tests) {
            self.ask(request, &mut open)?;
        }
        while !open.asked.is_empty() {
            let (number, found) = self.wait(&mut open)?;
            let Some(request) = open.asked.remove(&number) else { continue };
            let round = request.round;
            let mut more = Vec::new();
            for ((round, test), found) in tests_of(&request).zip(found) {
                more.extend(next(round, &test, found)?);
            }
            for request in requests(&session, more) {
                self.ask(request, &mut open)?;
            }
            if open.asked.values().all(|other| other.round != round) {
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

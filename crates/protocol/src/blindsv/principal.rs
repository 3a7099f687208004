//! BlindSV at the principal: announces tests, does its half of them, and opens one total for each coalition, over all owners, once.

use std::collections::{BTreeMap, BTreeSet};

use secsv_federation::{Coalition, RoundId};

use super::{
    server::{BlindHost, BlindServer, ServerTest, advance_all, take_opening, take_upload},
    shape::Outcome,
    words::unpack,
};
use crate::{
    Error, PartyId,
    disclosure::Disclosure,
    error::CodecError,
    message::{
        BlindTest, Dealing, Head, Kind, OutcomeShare, RoundFinished, RoundStart, SealedClientKeys, Server,
        TestFinished,
    },
    role::{Effects, Incoming, Outgoing, waits_for},
    scheduler::{ClassCount, TestRequest, TestResult},
    scope::Scope,
    session::BlindSession,
    test_id::{RequestId, TestId},
};

/// Bytes that tests under way may take at a server.
const TESTS_MEMORY: usize = 256 << 20;
/// Tests under way: enough to keep both servers busy while messages travel.
const MAX_TESTS: usize = 32;
/// Bytes that the scores of open rounds may take at a server.
const ROUNDS_MEMORY: usize = 256 << 20;
/// Bytes of what owners deal for tests that have not started, at the auxiliary, on disk.
const MAX_AHEAD_BYTES: u64 = 4 << 30;

/// Tests under way at the principal.
pub(crate) struct BlindPrincipal {
    server: BlindServer,
    /// Clients to whom the leader's envelope was sent on.
    relayed: BTreeSet<usize>,
    /// Rounds with tests under way.
    rounds: BTreeSet<RoundId>,
    /// Rounds whose models were asked for.
    asked: BTreeSet<RoundId>,
    /// The earliest round first.
    queue: BTreeMap<(RoundId, RequestId), TestRequest>,
    /// Queued tests that owners deal for already, with how many coalitions each has.
    announced: BTreeMap<RequestId, usize>,
    /// Coalitions of such tests, at most: none where the auxiliary would have to keep what is dealt in memory.
    max_ahead: usize,
    /// Tests under way, with the auxiliary's shares of the totals.
    tests: BTreeMap<RequestId, Option<Vec<u8>>>,
    away: Coalition,
    next_request: RequestId,
    results: Vec<(RequestId, Vec<TestResult>)>,
    finished: Vec<Scope>,
}

impl BlindHost for BlindPrincipal {
    const SERVER: Server = Server::Principal;

    fn server(&mut self) -> &mut BlindServer {
        &mut self.server
    }

    fn counted(&mut self, request: RequestId) -> Result<Effects<Self>, Error> {
        self.finish(request)
    }
}

impl BlindPrincipal {
    pub(crate) fn new(
        session: BlindSession,
        next_request: RequestId,
        away: Coalition,
        queue: BTreeMap<(RoundId, RequestId), TestRequest>,
        finished: Vec<Scope>,
        deals_ahead: bool,
    ) -> Self {
        let max_ahead = if deals_ahead { max_ahead(&session) } else { 0 };
        Self {
            server: BlindServer::new(session),
            relayed: BTreeSet::new(),
            rounds: BTreeSet::new(),
            asked: BTreeSet::new(),
            queue,
            announced: BTreeMap::new(),
            max_ahead,
            tests: BTreeMap::new(),
            away,
            next_request,
            results: Vec::new(),
            finished,
        }
    }

    pub(crate) fn session(&self) -> &BlindSession {
        &self.server.session
    }

    pub(crate) fn next_request(&self) -> RequestId {
        self.next_request
    }

    pub(crate) fn take_results(&mut self) -> Vec<(RequestId, Vec<TestResult>)> {
        std::mem::take(&mut self.results)
    }

    pub(crate) fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    pub(crate) fn set_away(&mut self, away: Coalition) {
        self.away = away;
    }

    /// Clients that stay away and that tests wait for: nobody can take the place of an owner or of a model's client.
    pub(crate) fn awaited(&self) -> Coalition {
        let owners: Coalition = self.session().owners().collect();
        let participants = self.rounds.iter().map(|&round| self.session().federation.participants(round));
        let needed = participants.fold(owners, Coalition::union);
        if self.tests.is_empty() { Coalition::EMPTY } else { needed.difference(needed.difference(self.away)) }
    }

    pub(crate) fn awaiting(&self) -> String {
        let mut missing = self.server.missing(Server::Principal);
        let totals = self.tests.iter().filter(|(_, total)| total.is_none());
        missing.extend(totals.map(|(id, _)| format!("{} of test {id} from auxiliary", Kind::OutcomeShare)));
        waits_for(PartyId::Principal, &missing)
    }

    /// Bytes of a client's models that may wait for their rounds, if such a message is about a round that has not begun.
    pub(crate) fn ahead(&self, kind: Kind, scope: Scope) -> Option<u64> {
        let is_early = |round: RoundId| self.asked.contains(&round) && !self.rounds.contains(&round);
        match scope {
            Scope::Round(round) if kind == Kind::MaskedModel && is_early(round) => Some(u64::MAX),
            _ => None,
        }
    }

    pub(crate) fn is_open(&self, scope: Scope) -> bool {
        match scope {
            Scope::Session => true,
            Scope::Round(round) => self.rounds.contains(&round),
            Scope::Test(test) => self.tests.contains_key(&test.request),
        }
    }

    /// Takes a message of a session under way.
    pub(crate) fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        if !message.kind.is_of(self.session().federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        match (message.kind, message.from) {
            (Kind::SealedClientKeys, PartyId::Client(leader)) if leader == self.session().leader => {
                self.relay(leader, &message)
            }
            (Kind::MaskedOpening | Kind::OutcomeShare, PartyId::Auxiliary) if self.is_late(&message) => {
                Ok(Effects::default())
            }
            (Kind::MaskedOpening, PartyId::Auxiliary) => take_opening(self, message),
            (Kind::OutcomeShare, PartyId::Auxiliary) => self.take_outcomes(&message),
            (Kind::MaskedModel, PartyId::Client(_)) if self.is_closed(&message) => Ok(Effects::default()),
            (Kind::ModelMaskSeed | Kind::MaskSeed | Kind::MaskedModel, PartyId::Client(_)) => {
                take_upload(self, &message)
            }
            _ => Err(message.unexpected("testing")),
        }
    }

    /// Hands an envelope of the leader's to whom it is for, once.
    fn relay(&mut self, leader: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let sealed: SealedClientKeys<'_> = message.read(&())?;
        if sealed.client >= self.session().federation.clients || sealed.client == leader {
            return Err(message.malformed(CodecError::Value { what: "addressee" }));
        }
        if !self.relayed.insert(sealed.client) {
            return Err(message.unexpected("the envelope was sent on"));
        }
        Ok(Effects::send(Outgoing::of(PartyId::Client(sealed.client), &sealed)))
    }

    /// Whether a message is about a test that has ended.
    fn is_late(&self, message: &Incoming) -> bool {
        let request = match Head::of(message.kind, &message.content) {
            Ok((Head::Request(request) | Head::Opening { request, .. }, _)) => request,
            _ => return false,
        };
        request < self.next_request && !self.is_open(Scope::Test(TestId::first(request)))
    }

    /// Whether a message is about a round that was closed or not opened.
    fn is_closed(&self, message: &Incoming) -> bool {
        let head = Head::of(message.kind, &message.content);
        matches!(head, Ok((Head::Round(round), _)) if !self.rounds.contains(&round))
    }

    /// Adds a test to the queue.
    pub(crate) fn enqueue(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Self>, Error> {
        self.next_request = self.next_request.max(id.next()?);
        self.queue.insert((request.round, id), request);
        self.pump()
    }

    /// Starts queued tests while there is room.
    pub(crate) fn pump(&mut self) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (tests, rounds) = (max_tests(self.session()), max_rounds(self.session()));
        while self.tests.len() < tests {
            let is_open = |round: &RoundId| self.rounds.contains(round) || self.rounds.len() < rounds;
            let next = self.queue.keys().find(|(round, _)| is_open(round)).copied();
            let Some((round, id)) = next else { break };
            let Some(request) = self.queue.remove(&(round, id)) else { break };
            effects.and(self.start(id, request)?);
        }
        effects.and(self.announce_ahead());
        Ok(effects)
    }

    /// Has owners deal for queued tests while there is room for that at the auxiliary: they need not be there when these start.
    fn announce_ahead(&mut self) -> Effects<Self> {
        let mut effects = Effects::default();
        let mut taken: usize = self.announced.values().sum();
        let is_new =
            |&(&(_, id), _): &(&(RoundId, RequestId), &TestRequest)| !self.announced.contains_key(&id);
        let mut tests = Vec::new();
        for (&(_, id), request) in self.queue.iter().filter(is_new) {
            taken += request.coalitions.len();
            if taken > self.max_ahead {
                break;
            }
            tests.push(announcement(id, request));
        }
        for test in tests {
            self.announced.insert(test.request, test.coalitions.len());
            effects.and(self.announce(&test));
        }
        effects
    }

    /// Asks for the models of a test's round, and has owners deal for it.
    fn announce(&mut self, test: &BlindTest) -> Effects<Self> {
        let mut effects = Effects::default();
        let (round, owners) = (test.round, self.session().owners().collect::<Coalition>());
        if self.asked.insert(round) {
            let concerned = owners.union(self.session().federation.participants(round));
            let start = |client| Outgoing::of(PartyId::Client(client), &RoundStart { round });
            effects.outbox.extend(concerned.members().map(start));
        }
        effects.outbox.extend(owners.members().map(|owner| Outgoing::of(PartyId::Client(owner), test)));
        effects
    }

    fn start(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Self>, Error> {
        let (is_all, is_each) = (request.samples.is_all(), self.session().outcome() == Outcome::Each);
        if request.rounds != [request.round] || (!is_all && !is_each) {
            let what = "blindsv tests all samples of one round: only totals are opened";
            return Err(Error::Unsupported { what });
        }
        let test = announcement(id, &request);
        let round = test.round;
        let twice = Error::Unsupported { what: "a coalition is tested once: its masks were used" };
        self.server.begin(&test).map_err(|_| twice)?;
        self.tests.insert(id, None);
        self.rounds.insert(round);
        let mut effects = match self.announced.remove(&id) {
            Some(_) => Effects::default(),
            None => self.announce(&test),
        };
        effects.outbox.push(Outgoing::of(PartyId::Auxiliary, &test));
        effects.and(advance_all(self)?);
        effects.and(self.finish(id)?);
        Ok(effects)
    }

    /// Takes the auxiliary's shares of what a test finds.
    fn take_outcomes(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let OutcomeShare { request, found } = message.read(&())?;
        let bytes = self.session().outcome_bytes();
        let length = |test: &ServerTest| {
            test.found.len() * bytes + self.server.session.overflows_len(test.coalitions.len())
        };
        let length = self.server.tests.get(&request).map(length);
        let place = self.tests.get_mut(&request).filter(|place| place.is_none());
        let (Some(place), Some(length)) = (place, length) else {
            return Err(message.unexpected("totals are opened once"));
        };
        if found.len() != length {
            return Err(message.malformed(CodecError::Value { what: "totals" }));
        }
        *place = Some(found.to_vec());
        self.finish(request)
    }

    /// Opens the totals of a test, once both servers have added up over all owners.
    fn finish(&mut self, request: RequestId) -> Result<Effects<Self>, Error> {
        let session = self.session().clone();
        let test = self.server.tests.get(&request).filter(|test| test.is_counted());
        let (Some(test), Some(Some(other))) = (test, self.tests.get(&request)) else {
            return Ok(Effects::default());
        };
        let (other, over) = other.split_at(other.len() - session.overflows_len(test.coalitions.len()));
        let overflows = open_overflows(&session, test, over)?;
        let shares = test.found.iter().copied().zip(unpack(other, session.outcome_bytes()));
        let mut found: Vec<TestResult> = match session.outcome() {
            Outcome::Total => {
                let opening = session.opening(Disclosure::Counts)?;
                let mask = session.widths().count_mask();
                let totals = shares.map(|(own, other)| own.wrapping_add(other) & mask).collect::<Vec<_>>();
                let result = |total: u64| TestResult::of_count(total as usize);
                opening.told(totals).into_iter().map(result).collect()
            }
            Outcome::Classes => {
                let opening = session.opening(Disclosure::ClassCounts)?;
                let mask = session.widths().count_mask();
                let totals = shares.map(|(own, other)| own.wrapping_add(other) & mask).collect::<Vec<_>>();
                let totals = opening.told(totals);
                totals.chunks_exact(session.summed_words()).map(of_classes).collect()
            }
            Outcome::Each => {
                let opening = session.opening(Disclosure::RightOrWrong)?;
                let planes = opening.told(shares.map(|(own, other)| own ^ other).collect::<Vec<_>>());
                let words = (planes.len() / test.coalitions.len().max(1)).max(1);
                let right = |planes: &[u64]| session.right(test.samples.as_ref(), planes).into();
                match planes.is_empty() {
                    true => test.coalitions.iter().map(|_| right(&[])).collect(),
                    false => planes.chunks_exact(words).map(right).collect(),
                }
            }
        };
        found.iter_mut().zip(overflows).for_each(|(found, count)| found.overflows = Some(count));
        self.results.push((request, found));
        self.tests.remove(&request);
        self.server.tests.remove(&request);
        let test = TestId::first(request);
        self.finished.push(Scope::Test(test));
        let mut effects = Effects::send(Outgoing::of(PartyId::Auxiliary, &TestFinished { test }));
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// Says that the models and scores of a round are not needed any more.
    pub(crate) fn close_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        self.rounds.remove(&round);
        self.asked.remove(&round);
        self.server.forget_round(round);
        self.finished.push(Scope::Round(round));
        let mut effects = Effects::send(Outgoing::of(PartyId::Auxiliary, &RoundFinished { round }));
        effects.and(self.pump()?);
        Ok(effects)
    }
}

/// Opens how many numbers are out of range for each coalition of a test, from the auxiliary's shares; none where nothing is checked.
fn open_overflows(session: &BlindSession, test: &ServerTest, other: &[u8]) -> Result<Vec<u64>, Error> {
    if test.overflows.is_empty() {
        return Ok(Vec::new());
    }
    let opening = session.opening(Disclosure::Overflows)?;
    let shares = test.overflows.iter().zip(unpack(other, session.overflow_bytes()));
    Ok(opening.told(shares.map(|(own, other)| session.add_overflows(*own, other)).collect()))
}

/// A coalition's result from how many samples of each class are right, then how many are wrong.
fn of_classes(totals: &[u64]) -> TestResult {
    let (right, wrong) = totals.split_at(totals.len() / 2);
    let count = |(&right, &wrong): (&u64, &u64)| ClassCount {
        right: right as usize,
        samples: right.wrapping_add(wrong) as usize,
    };
    TestResult::of_class_counts(right.iter().zip(wrong).map(count).collect())
}

/// A test as it is announced.
pub(crate) fn announcement(request: RequestId, asked: &TestRequest) -> BlindTest {
    let samples = (!asked.samples.is_all()).then(|| asked.samples.clone());
    BlindTest { request, round: asked.round, coalitions: asked.coalitions.clone(), samples }
}

/// How many tests run at the same time.
pub(crate) fn max_tests(session: &BlindSession) -> usize {
    (TESTS_MEMORY / test_memory(session).max(1)).clamp(2, MAX_TESTS)
}

/// Coalitions that owners deal for ahead, at most.
fn max_ahead(session: &BlindSession) -> usize {
    let dealt: usize = session.owners().map(|owner| session.chunks(owner).dealt_len()).sum();
    usize::try_from(MAX_AHEAD_BYTES / dealt.max(1) as u64).unwrap_or(usize::MAX)
}

/// Bytes that an owner may have dealt ahead, at most: what it deals for so many coalitions, and for one test more.
pub(crate) fn max_ahead_bytes(session: &BlindSession, owner: usize) -> u64 {
    let coalitions = max_ahead(session).saturating_add(session.most_together().min(coalitions(session)));
    let dealt = session.chunks(owner).dealt_len() as u64;
    // Heads are of no weight, and a test has one coalition at least.
    (coalitions as u64).saturating_mul(dealt + Dealing::HEAD as u64)
}

/// Bytes of one test at a server, at most: what was dealt, what was opened, and planes of what is compared.
pub(crate) fn test_memory(session: &BlindSession) -> usize {
    let of_owner = |owner| {
        let chunks = session.chunks(owner);
        // What was dealt; two messages of a stage, and what later stages need of them.
        chunks.dealt_len() + 4 * chunks.largest_opened() + chunks.kept_len()
    };
    session.most_together().min(coalitions(session)) * session.owners().map(of_owner).sum::<usize>()
}

/// Coalitions of all clients, at most.
fn coalitions(session: &BlindSession) -> usize {
    1usize.checked_shl(session.federation.clients as u32).unwrap_or(usize::MAX)
}

/// How many rounds are open at the same time.
pub(crate) fn max_rounds(session: &BlindSession) -> usize {
    (ROUNDS_MEMORY / round_memory(session).max(1)).clamp(2, MAX_TESTS)
}

/// Bytes of one round at a server, at most: models, dealt products, scores.
pub(crate) fn round_memory(session: &BlindSession) -> usize {
    let rounds = session.federation.rounds.keys();
    let rows = rounds.map(|&round| session.stacked_rows(round)).max().unwrap_or(0);
    let models = session.federation.clients * session.model_len();
    let outputs = rows * session.program().operators[0].positions * session.samples();
    outputs * (size_of::<u64>() + session.hops().bytes(0)) + models
}

//! Runs one role: messages and findings one after the other, jobs on all cores. What the role does is told to the scribe
//! before anybody else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, mpsc::Sender},
    time::{Duration, Instant},
};

use secsv_protocol::{
    Assignment, Auxiliary, Client, Error as RoleError, MAX_EARLY_BYTES, PartyId, Principal, Scope,
    TestRequest, TestResult,
    message::{Kind, replies_in},
    role::{Continuation, Effects, Incoming, Job, Meter, Outgoing, Role},
    session::{Federation, Session},
};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::scribe::Order;
use crate::{
    Error,
    journal::{
        Batch, Body, Claim, Digest, Emission, Filled, Inbound, Places, Shelf, TestRecord, Way, places::Place,
    },
    status::Board,
    transport::{Arrival, FinishedTests, PeerLink},
};
use secsv_evaluation::in_process::{Accounts, Stopwatch};

/// Bytes of a message that comes before the session: the role says why it is refused.
const BEFORE_SESSION: u64 = 4 << 10;
/// ... and of one that comes after it has ended.
const AFTER_SESSION: u64 = 16 << 20;
/// Who waits for a change looks up now and then all the same.
const MOST_PATIENT: Duration = Duration::from_secs(1);

/// What a role has to say to whoever runs it.
#[derive(Default)]
pub(crate) struct Harvest {
    pub assigned: Vec<Assignment>,
    pub results: Vec<(u64, Vec<TestResult>)>,
    /// What it counted, by test.
    pub counted: Vec<(u64, Vec<u8>)>,
}

/// A role that a process may run.
pub(crate) trait Hosted: Role {
    /// What it has to say.
    fn harvest(&mut self) -> Harvest {
        Harvest::default()
    }

    /// Whether messages are judged by a session. Whoever has ended takes and forgets what still comes.
    const HAS_SESSION: bool = true;

    /// Whether messages about this can be understood by now.
    fn is_open(&self, _: Scope) -> bool {
        true
    }
}

impl Hosted for Principal {
    fn harvest(&mut self) -> Harvest {
        Harvest { assigned: self.take_assigned(), results: self.take_results(), ..Harvest::default() }
    }

    fn is_open(&self, scope: Scope) -> bool {
        Principal::is_open(self, scope)
    }
}

impl Hosted for Auxiliary {
    fn harvest(&mut self) -> Harvest {
        Harvest { counted: self.take_counted(), ..Harvest::default() }
    }
}

impl Hosted for Client {}

/// What the role is asked to do: what follows, and tests to be remembered.
pub(crate) type Act<R> = Box<dyn FnOnce(&mut R) -> Result<(Effects<R>, Vec<TestRecord>), RoleError> + Send>;

enum Event<R> {
    Arrival(Arrival),
    /// From the journal.
    Replay(Inbound),
    Found(Continuation<R>),
    Act(Act<R>),
    /// A peer says that this has ended. It takes room in the inbox until it is kept.
    Over(Vec<Scope>, Option<OwnedSemaphorePermit>),
}

/// A role and what goes with it wherever it is.
struct Seat<R> {
    role: R,
    /// The number due from each peer.
    due: BTreeMap<PartyId, u64>,
    finished: BTreeSet<u64>,
    /// What an earlier process had open and this one has not yet.
    resuming: BTreeSet<Scope>,
    /// Messages for then: the journal has them.
    held: Vec<Inbound>,
    /// Requests of tests under way.
    requests: BTreeMap<u64, Vec<u8>>,
    /// Bytes and messages by sender, receiver and kind.
    traffic: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>,
    /// What fills the places of the session.
    places: Places,
}

impl<R> Seat<R> {
    fn count(&mut self, from: PartyId, to: PartyId, kind: Kind, bytes: u64) {
        let entry = self.traffic.entry((from, to, kind)).or_default();
        *entry = (entry.0 + bytes, entry.1 + 1);
    }
}

/// Bytes of a peer's messages that wait for what they are about.
fn held_bytes(held: &[Inbound], from: PartyId) -> u64 {
    held.iter().filter(|message| message.from == from).map(|message| message.length).sum()
}

struct Floor<R> {
    seat: Option<Box<Seat<R>>>,
    /// What jobs found.
    found: VecDeque<Continuation<R>>,
    /// From the journal. Each waits until those before it have taken effect, as they had when it came first; everything that is
    /// new waits for them.
    replays: VecDeque<Inbound>,
    /// Whether one was taken that may not have taken effect yet.
    is_catching_up: bool,
    inbox: VecDeque<Event<R>>,
    jobs: VecDeque<Job<R>>,
    busy: usize,
    /// Threads without work.
    idle: usize,
    /// Those who wait for a change.
    lookers: usize,
    failure: Option<Error>,
    stopping: bool,
    accounts: Accounts,
}

/// Runs one role.
pub(crate) struct Desk<R> {
    own: PartyId,
    federation: Arc<Federation>,
    floor: Mutex<Floor<R>>,
    /// There is work.
    work: Condvar,
    /// Something has changed, for those who look.
    moved: Condvar,
    scribe: Sender<Order>,
    shelf: Shelf,
    peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    /// Whether clients are told what has ended, and what it was.
    tells: bool,
    finished_tests: FinishedTests,
    /// The session, once the role knows it.
    session: watch::Sender<Option<Arc<Session>>>,
    board: Arc<Board>,
}

/// What a desk begins with.
pub(crate) struct Beginning<R> {
    pub own: PartyId,
    pub federation: Arc<Federation>,
    pub role: R,
    pub due: BTreeMap<PartyId, u64>,
    pub finished: BTreeSet<u64>,
    pub resuming: BTreeSet<Scope>,
    pub scribe: Sender<Order>,
    pub shelf: Shelf,
    pub peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    pub finished_tests: FinishedTests,
    pub places: Places,
    pub board: Arc<Board>,
}

impl<R: Hosted> Desk<R> {
    pub fn new(beginning: Beginning<R>) -> Self {
        let Beginning {
            own,
            federation,
            role,
            due,
            finished,
            resuming,
            scribe,
            shelf,
            peers,
            finished_tests,
            places,
            board,
        } = beginning;
        let (held, requests, traffic) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let seat = Seat { role, due, finished, resuming, held, requests, traffic, places };
        let floor = Floor {
            seat: Some(Box::new(seat)),
            found: VecDeque::new(),
            replays: VecDeque::new(),
            is_catching_up: false,
            inbox: VecDeque::new(),
            jobs: VecDeque::new(),
            busy: 0,
            idle: 0,
            lookers: 0,
            failure: None,
            stopping: false,
            accounts: Accounts::default(),
        };
        let (floor, tells) = (Mutex::new(floor), own == PartyId::Principal);
        let (work, moved) = (Condvar::new(), Condvar::new());
        let session = watch::Sender::new(None);
        Self {
            own,
            federation,
            floor,
            work,
            moved,
            scribe,
            shelf,
            peers,
            tells,
            finished_tests,
            session,
            board,
        }
    }

    /// The most bytes that a message may have: before the session is known, whoever sends what depends on it waits.
    pub async fn max_len(&self, from: PartyId, kind: Kind) -> u64 {
        if let Some(known) = self.federation.max_len(from, kind) {
            return known;
        }
        if !R::HAS_SESSION {
            return AFTER_SESSION;
        }
        // The principal is told to introduce nobody but clients, and says so.
        if self.own == PartyId::Principal && self.session.borrow().is_none() {
            return BEFORE_SESSION;
        }
        let mut session = self.session.subscribe();
        let Ok(session) = session.wait_for(Option::is_some).await else { return 0 };
        session.as_ref().map_or(0, |session| session.max_len(from, self.own, kind))
    }

    /// Says that a message was at fault.
    fn blame(&self, from: PartyId, kind: Kind, error: &RoleError) {
        let peer = self.peers.get(&from);
        let refusals = peer.map_or(0, |peer| peer.refuse(error.to_string()));
        // Whoever goes on for ever does not fill the log.
        if refusals < 16 || refusals.is_power_of_two() {
            tracing::warn!(peer = peer.map(|p| p.name.as_str()), %kind, refusals, %error, "message refused");
        }
    }

    /// What a message would be to its place.
    fn filled(
        &self,
        way: Way,
        peer: PartyId,
        kind: Kind,
        scope: Scope,
        (content, digest): (&[u8], Digest),
    ) -> Option<Filled> {
        let from = if way == Way::In { peer } else { self.own };
        let head = self.federation.place(from, kind, content)?;
        Some(Filled { scope, place: Place { way, peer, kind, head }, digest })
    }

    fn lock(&self) -> MutexGuard<'_, Floor<R>> {
        self.floor.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn push(&self, event: Event<R>) {
        let mut floor = self.lock();
        floor.inbox.push_back(event);
        self.wake(&floor, 0);
    }

    /// Wakes as many as there is work for, beside those who are awake: waking costs more than many a task.
    fn wake(&self, floor: &Floor<R>, awake: usize) {
        let events = usize::from(floor.seat.is_some() && floor.has_event());
        let wanted = (events + floor.jobs.len()).saturating_sub(awake);
        (0..wanted.min(floor.idle)).for_each(|_| self.work.notify_one());
        if floor.lookers > 0 {
            self.moved.notify_all();
        }
    }

    /// Waits until something has changed.
    fn watch<'a>(&self, mut floor: MutexGuard<'a, Floor<R>>, time: Duration) -> MutexGuard<'a, Floor<R>> {
        floor.lookers += 1;
        let woken = self.moved.wait_timeout(floor, time);
        let mut floor = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        floor.lookers -= 1;
        floor
    }

    /// A message has come.
    pub fn arrive(&self, arrival: Arrival) {
        self.push(Event::Arrival(arrival));
    }

    /// A message had come.
    pub fn replay(&self, message: Inbound) {
        let mut floor = self.lock();
        floor.replays.push_back(message);
        self.wake(&floor, 0);
    }

    /// The role is to do something.
    pub fn act(&self, act: Act<R>) {
        self.push(Event::Act(act));
    }

    /// A peer says that this has ended.
    pub fn finished(&self, scopes: Vec<Scope>, room: Option<OwnedSemaphorePermit>) {
        self.push(Event::Over(scopes, room));
    }

    /// Has clients hear that this has ended.
    pub fn tell_ends(&self, scopes: &[Scope]) {
        let (tests, rounds): (Vec<Scope>, Vec<Scope>) =
            scopes.iter().partition(|scope| matches!(scope, Scope::Test(_)));
        self.finished_tests.add(&tests);
        let clients = self.peers.values().filter(|peer| matches!(peer.id, PartyId::Client(_)));
        clients.for_each(|peer| peer.finish_rounds(&rounds));
    }

    /// Looks at the role as soon as it is at its desk.
    pub fn look<T>(&self, look: impl Fn(&R) -> T) -> T {
        let mut floor = self.lock();
        loop {
            if let Some(seat) = &floor.seat {
                return look(&seat.role);
            }
            floor = self.watch(floor, MOST_PATIENT);
        }
    }

    /// What this process's work and messages cost so far.
    pub fn accounts(&self) -> Accounts {
        let mut floor = self.lock();
        loop {
            if let Some(seat) = &floor.seat {
                return Accounts { traffic: seat.traffic.clone(), ..floor.accounts.clone() };
            }
            floor = self.watch(floor, MOST_PATIENT);
        }
    }

    /// Looks at the role until there is something to see, the time is over or nothing goes on.
    pub fn wait_for<T>(&self, time: Duration, look: impl Fn(&R) -> Option<T>) -> Result<Option<T>, Error> {
        let until = Instant::now() + time;
        let mut floor = self.lock();
        loop {
            if let Some(failure) = floor.failure.take() {
                return Err(failure);
            }
            if let Some(seen) = floor.seat.as_ref().and_then(|seat| look(&seat.role)) {
                return Ok(Some(seen));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            floor = self.watch(floor, left);
        }
    }

    /// Nothing goes on.
    pub fn fail(&self, error: Error) {
        self.lock().fail(error);
        self.work.notify_all();
        self.moved.notify_all();
    }

    /// Has all threads end.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_all();
        self.moved.notify_all();
    }

    /// Works until told to stop; any number of threads may.
    pub fn work(&self) {
        let mut floor = self.lock();
        loop {
            if floor.stopping {
                return;
            }
            if let Some((seat, event)) = floor.next_event() {
                drop(floor);
                floor = self.take_event(seat, event);
            } else if let Some(job) = floor.jobs.pop_front() {
                floor.busy += 1;
                drop(floor);
                floor = self.run_job(job);
            } else {
                floor.idle += 1;
                floor = self.work.wait(floor).unwrap_or_else(std::sync::PoisonError::into_inner);
                floor.idle -= 1;
            }
        }
    }

    fn take_event(&self, mut seat: Box<Seat<R>>, event: Event<R>) -> MutexGuard<'_, Floor<R>> {
        let done = catch_unwind(AssertUnwindSafe(|| self.handle(&mut seat, event)));
        let mut floor = self.lock();
        match done {
            Ok(Ok(jobs)) => {
                floor.jobs.extend(jobs);
                let Seat { role, resuming, held, .. } = &mut *seat;
                if self.session.borrow().is_none() && role.session().is_some() {
                    self.session.send_replace(role.session().cloned());
                }
                resuming.retain(|scope| !role.is_open(*scope));
                let ready = held.extract_if(.., |message| !resuming.contains(&message.scope.whole()));
                let ready: Vec<Inbound> = ready.collect();
                ready.into_iter().rev().for_each(|message| floor.replays.push_front(message));
            }
            Ok(Err(error)) => floor.fail(error),
            Err(_) => floor.fail(Error::Role(RoleError::Local { what: "the role panicked" })),
        }
        floor.seat = Some(seat);
        self.wake(&floor, 1);
        floor
    }

    fn run_job(&self, job: Job<R>) -> MutexGuard<'_, Floor<R>> {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut stopwatch = Stopwatch::default();
            let mut meter = Meter::new(&mut stopwatch);
            let found = job(&mut meter);
            let operations = meter.operations;
            stopwatch.stop();
            (found, stopwatch, operations)
        }));
        let mut floor = self.lock();
        floor.busy -= 1;
        let mut faulty = None;
        match done {
            Ok((found, stopwatch, operations)) => {
                for (phase, seconds) in stopwatch.seconds {
                    *floor.accounts.seconds.entry(phase).or_default() += seconds;
                }
                floor.accounts.operations += operations;
                match found {
                    Ok(next) => floor.found.push_back(next),
                    // What a peer is to blame for is found before a job begins. Should a job find it, the peer is cut off, what
                    // depends on its message waits, and everybody else goes on.
                    Err(error) if error.is_of_peer() => faulty = error.blamed(),
                    Err(error) => floor.fail(Error::Role(error)),
                }
            }
            Err(_) => floor.fail(Error::Role(RoleError::Local { what: "a job panicked" })),
        }
        self.wake(&floor, 1);
        if let Some((from, kind, error)) = faulty {
            drop(floor);
            self.blame(from, kind, &error);
            floor = self.lock();
        }
        floor
    }

    /// Has the role take an event, and the scribe write down what follows. Returns the jobs that follow.
    fn handle(&self, seat: &mut Seat<R>, event: Event<R>) -> Result<Vec<Job<R>>, Error> {
        let mut batch = Batch::default();
        let mut room = None;
        let effects = match event {
            Event::Arrival(arrival) => match self.take_arrival(seat, arrival, &mut batch, &mut room)? {
                Some(effects) => effects,
                None => return Ok(Vec::new()),
            },
            Event::Replay(message) if seat.resuming.contains(&message.scope.whole()) => {
                seat.held.push(message);
                return Ok(Vec::new());
            }
            Event::Replay(message) => self.take_again(seat, &message)?,
            Event::Found(next) => match next(&mut seat.role).map_err(RoleError::or_blamed) {
                Ok(effects) => effects,
                Err(Ok((from, kind, error))) => {
                    self.blame(from, kind, &error);
                    Effects::default()
                }
                Err(Err(error)) => return Err(Error::Role(error)),
            },
            Event::Act(act) => {
                let (effects, tests) = act(&mut seat.role).map_err(Error::Role)?;
                seat.requests.extend(tests.iter().map(|test| (test.test, test.request.clone())));
                batch.tests = tests;
                effects
            }
            Event::Over(scopes, taken) => {
                // They are told again on every stream.
                let is_known =
                    |scope: &Scope| matches!(scope, Scope::Test(test) if seat.finished.contains(test));
                batch.over = scopes.into_iter().filter(|scope| !is_known(scope)).collect();
                batch.over.iter().for_each(|scope| seat.role.end(*scope));
                room = taken;
                Effects::default()
            }
        };
        self.settle(seat, effects, batch, room)
    }

    fn take_arrival(
        &self,
        seat: &mut Seat<R>,
        arrival: Arrival,
        batch: &mut Batch,
        room: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Effects<R>>, Error> {
        let Arrival { from, number, kind, content, digest, room: taken } = arrival;
        let due = seat.due.entry(from).or_insert(0);
        if number != *due {
            // Known already, or behind one that was refused: it will come again.
            return Ok(None);
        }
        let peer = self.peers.get(&from);
        let refuse = |error: &RoleError| self.blame(from, kind, error);
        let scope = match self.federation.scope(kind, &content) {
            Ok(scope) => scope,
            Err(why) => {
                refuse(&RoleError::Malformed { from, kind, why });
                return Ok(None);
            }
        };
        if matches!(scope, Scope::Test(test) if seat.finished.contains(&test)) {
            *due += 1;
            peer.into_iter().for_each(|peer| peer.accepted(number + 1));
            let (length, body) = (content.len() as u64, Body::Inline(Arc::default()));
            batch.skipped.push(Inbound { from, number, kind, scope, digest, length, body });
            *room = taken;
            return Ok(Some(Effects::default()));
        }
        let filled = self.filled(Way::In, from, kind, scope, (&content, digest));
        let claim = filled.as_ref().map(|filled| seat.places.claim(filled));
        if claim == Some(Claim::Other) {
            refuse(&RoleError::Second { from, kind });
            return Ok(None);
        }
        let length = content.len() as u64;
        let is_held = seat.resuming.contains(&scope.whole());
        if is_held && held_bytes(&seat.held, from) + length > MAX_EARLY_BYTES as u64 {
            refuse(&RoleError::Unexpected { from, kind, state: "the test is being taken up again" });
            return Ok(None);
        }
        let content = Arc::new(content);
        let body = Body::received(&self.shelf, &content)?;
        let message = Inbound { from, number, kind, scope, digest, length, body };
        let content = Arc::unwrap_or_clone(content);
        let effects = if is_held {
            seat.held.push(message.clone());
            Effects::default()
        } else {
            match seat.role.handle(Incoming { from, kind, content, digest }) {
                Ok(effects) => effects,
                Err(error) if error.is_of_peer() => {
                    refuse(&error);
                    return Ok(None);
                }
                Err(error) => return Err(Error::Role(error)),
            }
        };
        if let Some(filled) = filled.filter(|_| claim == Some(Claim::New)) {
            seat.places.fill(&filled);
            batch.filled.push(filled);
        }
        *due += 1;
        peer.into_iter().for_each(|peer| peer.accepted(number + 1));
        // Small contents wait for the scribe in memory.
        *room = taken.filter(|_| matches!(message.body, Body::Inline(_)));
        batch.received.push(message);
        seat.count(from, self.own, kind, length);
        Ok(Some(effects))
    }

    /// A message that the journal has. It may have been kept before the role could judge it: then nobody is told what is wrong
    /// with it, and it has no effect.
    fn take_again(&self, seat: &mut Seat<R>, message: &Inbound) -> Result<Effects<R>, Error> {
        let content = self.shelf.read(&message.body, &message.digest)?;
        let (from, kind, number) = (message.from, message.kind, message.number);
        match seat.role.handle(Incoming { from, kind, content, digest: message.digest }) {
            Err(error) if error.is_of_peer() => {
                let peer = self.peers.get(&from).map(|peer| peer.name.as_str());
                tracing::warn!(peer, %kind, number, %error, "message ignored");
                self.board.refused(from, &error.to_string());
                Ok(Effects::default())
            }
            taken => taken.map_err(Error::Role),
        }
    }

    fn settle(
        &self,
        seat: &mut Seat<R>,
        effects: Effects<R>,
        mut batch: Batch,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<Job<R>>, Error> {
        let Effects { outbox, jobs } = effects;
        let mut last: Option<(Arc<Vec<u8>>, Digest, Body)> = None;
        for message in outbox {
            let (to, kind, content) = (message.to, message.kind, message.content.clone());
            let emission = self.emission(message, &mut last)?;
            let (scope, digest) = (emission.scope, emission.digest);
            if let Some(filled) = self.filled(Way::Out, to, kind, scope, (&content, digest)) {
                match seat.places.claim(&filled) {
                    Claim::Other => return Err(Error::Role(RoleError::Second { from: self.own, kind })),
                    Claim::Same => {}
                    Claim::New => {
                        seat.places.fill(&filled);
                        batch.filled.push(filled);
                    }
                }
            }
            drop(content);
            if emission.kind == Kind::RoundStart {
                self.peers.get(&emission.to).into_iter().for_each(|peer| peer.begin_round(emission.scope));
            }
            seat.count(self.own, emission.to, emission.kind, emission.length);
            batch.sent.push(emission);
        }
        let harvest = seat.role.harvest();
        batch.assigned = harvest.assigned.iter().map(Assignment::encode).collect();
        for (test, result) in harvest.results {
            let request = seat.requests.remove(&test).unwrap_or_default();
            batch.tests.push(TestRecord { test, request, result: Some(TestResult::encode(&result)) });
        }
        let counted = harvest.counted.into_iter();
        batch.tests.extend(counted.map(|(test, request)| TestRecord { test, request, result: None }));
        let over = seat.role.drain_finished();
        if self.tells && !over.is_empty() {
            self.tell_ends(&over);
        }
        batch.over.extend(over);
        // A round that finished_tests before it was taken up again takes with it what was held for then.
        for scope in batch.over.iter().filter(|scope| matches!(scope, Scope::Round(_))) {
            seat.resuming.remove(scope);
            seat.held.retain(|message| message.scope != *scope);
        }
        batch.over.iter().for_each(|scope| seat.places.forget(*scope));
        seat.finished.extend(batch.over.iter().filter_map(|scope| match scope {
            Scope::Test(test) => Some(*test),
            _ => None,
        }));
        if !batch.is_empty() && self.scribe.send(Order::Keep(batch, room)).is_err() {
            return Err(Error::Role(RoleError::Local { what: "the journal's writer" }));
        }
        Ok(jobs)
    }

    /// A message on its way to the journal. One to several parties is hashed and written once.
    fn emission(
        &self,
        message: Outgoing,
        last: &mut Option<(Arc<Vec<u8>>, Digest, Body)>,
    ) -> Result<Emission, Error> {
        let Outgoing { to, kind, content } = message;
        let scope = self.federation.scope(kind, &content).map_err(|why| {
            let from = self.own;
            Error::Role(RoleError::Malformed { from, kind, why })
        })?;
        let (length, replies) = (content.len() as u64, replies_in(kind, &content));
        let (digest, body) = match last {
            Some((same, digest, body)) if Arc::ptr_eq(same, &content) => (*digest, body.clone()),
            _ => {
                let digest = *blake3::hash(&content).as_bytes();
                let body = Body::sent(&self.shelf, &content)?;
                *last = Some((content, digest, body.clone()));
                (digest, body)
            }
        };
        Ok(Emission { to, kind, scope, digest, length, body, replies })
    }
}

impl<R> Floor<R> {
    /// Whoever works stops: what comes behind a message that was not kept must not be acknowledged.
    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.stopping = true;
    }

    fn has_event(&self) -> bool {
        let is_idle = self.jobs.is_empty() && self.busy == 0;
        let (has_replay, has_new) = (!self.replays.is_empty(), !self.inbox.is_empty());
        !self.found.is_empty() || (has_replay || has_new) && (is_idle || !has_replay && !self.is_catching_up)
    }

    fn next_event(&mut self) -> Option<(Box<Seat<R>>, Event<R>)> {
        let seat = if self.has_event() { self.seat.take()? } else { return None };
        let found = self.found.pop_front().map(Event::Found);
        let event = found.or_else(|| {
            let replayed = self.replays.pop_front().map(Event::Replay);
            self.is_catching_up = replayed.is_some();
            replayed.or_else(|| self.inbox.pop_front())
        });
        let Some(event) = event else {
            self.seat = Some(seat);
            return None;
        };
        Some((seat, event))
    }
}

/// What a request is remembered as.
pub(crate) fn record(test: u64, request: &TestRequest) -> TestRecord {
    TestRecord { test, request: request.encode(), result: None }
}

//! Runs one role: events one after the other, jobs on any thread. The same for all roles of a session in one process and for
//! the one role of a process on a network; what stands around the role is its [`RoleHost`].

mod signal;

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use secsv_protocol::{
    Assignment, Auxiliary, Client, Error as RoleError, Operations, PartyId, Principal, RequestId, Scope,
    TestId, TestResult,
    message::Kind,
    role::{Continuation, Effects, Job, Meter, Outgoing, Phase, Probe, Role},
};

pub use signal::Signal;

/// Whoever waits for a change looks up after this long all the same.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Cost of a session, or of one party's part in it.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Bytes of contents, and messages, by sender, receiver and kind.
    pub traffic: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>,
    /// Seconds of work by phase, over all threads.
    pub seconds: BTreeMap<Phase, f64>,
    /// Operations.
    pub operations: Operations,
}

impl Accounts {
    /// Counts a message with `bytes` of content.
    pub fn count(&mut self, from: PartyId, to: PartyId, kind: Kind, bytes: u64) {
        let entry = self.traffic.entry((from, to, kind)).or_default();
        *entry = (entry.0 + bytes, entry.1 + 1);
    }

    /// Adds other work.
    pub fn add_work(&mut self, seconds: &BTreeMap<Phase, f64>, operations: Operations) {
        for (phase, seconds) in seconds {
            *self.seconds.entry(*phase).or_default() += seconds;
        }
        self.operations += operations;
    }
}

/// Findings of a role for whoever runs it.
#[derive(Default)]
pub struct Harvest {
    /// Who decrypts what.
    pub assigned: Vec<Assignment>,
    /// Results of tests.
    pub results: Vec<(RequestId, Vec<TestResult>)>,
    /// Counts of an auxiliary, by test.
    pub counted: Vec<(TestId, Vec<u8>)>,
}

/// A role that an executor may run.
pub trait HostedRole: Role {
    /// Whether messages are judged by a session. Whoever has finished takes and forgets what still comes.
    const HAS_SESSION: bool = true;

    /// Findings since this was last called.
    fn harvest(&mut self) -> Harvest {
        Harvest::default()
    }

    /// Whether messages about this can be understood by now.
    fn is_open(&self, _: Scope) -> bool {
        true
    }

    /// Bytes of one sender's messages of a kind that may wait, if such a message is about something that has not begun. A host
    /// that stores messages keeps it until then; another hands it over.
    fn ahead(&self, _: PartyId, _: Kind, _: Scope) -> Option<u64> {
        None
    }
}

impl HostedRole for Principal {
    fn harvest(&mut self) -> Harvest {
        Harvest { assigned: self.take_assigned(), results: self.take_results(), ..Harvest::default() }
    }

    fn is_open(&self, scope: Scope) -> bool {
        Principal::is_open(self, scope)
    }

    fn ahead(&self, _: PartyId, kind: Kind, scope: Scope) -> Option<u64> {
        Principal::ahead(self, kind, scope)
    }
}

impl HostedRole for Auxiliary {
    fn harvest(&mut self) -> Harvest {
        Harvest { counted: self.take_counted(), ..Harvest::default() }
    }

    fn ahead(&self, from: PartyId, kind: Kind, scope: Scope) -> Option<u64> {
        Auxiliary::ahead(self, from, kind, scope)
    }
}

impl HostedRole for Client {}

/// Runs the jobs of a role on this thread, and those that follow from them; returns what it sends. For whoever brings no threads.
pub fn settle<R: Role>(role: &mut R, effects: Effects<R>) -> Result<Vec<Outgoing>, RoleError> {
    let mut outbox = effects.outbox;
    for job in effects.jobs {
        let found = job(&mut Meter::new(&mut Stopwatch::default()))?;
        let effects = found(role)?;
        outbox.extend(settle(role, effects)?);
    }
    Ok(outbox)
}

/// A role and its host's state.
pub struct RunningRole<R, S> {
    /// The role.
    pub role: R,
    /// What its host keeps with it.
    pub state: S,
}

/// Jobs that follow from an event, and messages.
pub type Consequences<R, O> = (Vec<Job<R>>, O);

/// What stands around a role: how it takes events, and what becomes of its effects. Every error ends all work.
pub trait RoleHost<R: HostedRole>: Send + Sync + 'static {
    /// What is kept with the role.
    type State: Send;
    /// An event from outside.
    type Event: Send;
    /// Messages that the executor is to deliver; nothing where the host does that.
    type Output;
    /// Why work ends.
    type Error: From<RoleError> + Send;

    /// Has the role take an event: the jobs that follow, and messages.
    fn on_event(
        &self,
        running: &mut RunningRole<R, Self::State>,
        event: Self::Event,
    ) -> Result<Consequences<R, Self::Output>, Self::Error>;

    /// Has the role take what a job found.
    fn on_found(
        &self,
        running: &mut RunningRole<R, Self::State>,
        found: Continuation<R>,
    ) -> Result<Consequences<R, Self::Output>, Self::Error>;

    /// Judges the error of a job.
    fn on_job_error(&self, error: RoleError) -> Result<(), Self::Error> {
        Err(error.into())
    }

    /// Events that waited until the role had come this far.
    fn ready(&self, _: &mut RunningRole<R, Self::State>) -> Vec<Self::Event> {
        Vec::new()
    }
}

struct ExecutorState<R: HostedRole, H: RoleHost<R>> {
    /// The role, unless a thread has it.
    running: Option<Box<RunningRole<R, H::State>>>,
    /// What jobs found.
    found: VecDeque<Continuation<R>>,
    /// Events of an earlier process. Each waits until those before it have taken effect, as they had when it came first;
    /// everything that is new waits for them.
    replays: VecDeque<H::Event>,
    /// Whether one was taken that may not have taken effect yet.
    is_catching_up: bool,
    inbox: VecDeque<H::Event>,
    jobs: VecDeque<Job<R>>,
    /// Jobs that threads are busy with.
    busy: usize,
    failure: Option<H::Error>,
    stopping: bool,
    accounts: Accounts,
}

/// The role with the event that it takes.
type TakenEvent<R, H> =
    (Box<RunningRole<R, <H as RoleHost<R>>::State>>, NextEvent<R, <H as RoleHost<R>>::Event>);

enum NextEvent<R, E> {
    Event(E),
    Found(Continuation<R>),
}

impl<R: HostedRole, H: RoleHost<R>> ExecutorState<R, H> {
    /// Ends all work: what comes behind a message that was not stored must not be acknowledged.
    fn fail(&mut self, error: H::Error) {
        self.failure.get_or_insert(error);
        self.stopping = true;
    }

    fn has_event(&self) -> bool {
        let is_idle = self.jobs.is_empty() && self.busy == 0;
        let (has_replay, has_new) = (!self.replays.is_empty(), !self.inbox.is_empty());
        let may_take = is_idle || !has_replay && !self.is_catching_up;
        self.running.is_some() && (!self.found.is_empty() || (has_replay || has_new) && may_take)
    }

    fn next_event(&mut self) -> Option<TakenEvent<R, H>> {
        if self.stopping || !self.has_event() {
            return None;
        }
        let running = self.running.take()?;
        if let Some(found) = self.found.pop_front() {
            return Some((running, NextEvent::Found(found)));
        }
        let replayed = self.replays.pop_front();
        self.is_catching_up = replayed.is_some();
        match replayed.or_else(|| self.inbox.pop_front()) {
            Some(event) => Some((running, NextEvent::Event(event))),
            None => {
                self.running = Some(running);
                None
            }
        }
    }

    /// Tasks that threads could take now.
    fn tasks(&self) -> usize {
        if self.stopping { 0 } else { usize::from(self.has_event()) + self.jobs.len() }
    }
}

/// Runs one role.
pub struct RoleExecutor<R: HostedRole, H: RoleHost<R>> {
    /// What stands around the role.
    pub host: H,
    state: Mutex<ExecutorState<R, H>>,
    signal: Arc<Signal>,
}

impl<R: HostedRole, H: RoleHost<R>> RoleExecutor<R, H> {
    /// An executor that tells of work by a signal, which several may have in common.
    pub fn new(role: R, state: H::State, host: H, signal: Arc<Signal>) -> Self {
        let state = ExecutorState {
            running: Some(Box::new(RunningRole { role, state })),
            found: VecDeque::new(),
            replays: VecDeque::new(),
            is_catching_up: false,
            inbox: VecDeque::new(),
            jobs: VecDeque::new(),
            busy: 0,
            failure: None,
            stopping: false,
            accounts: Accounts::default(),
        };
        Self { host, state: Mutex::new(state), signal }
    }

    fn lock(&self) -> MutexGuard<'_, ExecutorState<R, H>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub fn push(&self, event: H::Event) {
        let mut state = self.lock();
        self.signal.expect(1);
        state.inbox.push_back(event);
        let tasks = state.tasks();
        drop(state);
        self.signal.added(tasks.min(1));
    }

    /// Adds an event of an earlier process.
    pub fn replay(&self, event: H::Event) {
        let mut state = self.lock();
        self.signal.expect(1);
        state.replays.push_back(event);
        let tasks = state.tasks();
        drop(state);
        self.signal.added(tasks.min(1));
    }

    /// Adds jobs.
    pub fn add_jobs(&self, jobs: Vec<Job<R>>) {
        let count = jobs.len();
        self.signal.expect(count);
        self.lock().jobs.extend(jobs);
        self.signal.added(count);
    }

    /// Has the role take one event, if there is any that it may take. Messages are delivered before it takes another.
    pub fn run_event(&self, deliver: impl FnOnce(H::Output)) -> bool {
        let Some((mut running, next)) = self.lock().next_event() else { return false };
        let done = catch_unwind(AssertUnwindSafe(|| match next {
            NextEvent::Event(event) => self.host.on_event(&mut running, event),
            NextEvent::Found(found) => self.host.on_found(&mut running, found),
        }));
        let panicked = RoleError::Local { what: "the role panicked" };
        self.settle(running, done.unwrap_or_else(|_| Err(panicked.into())), deliver, 1);
        true
    }

    /// Runs one job, if there is any.
    pub fn run_job(&self) -> bool {
        let mut state = self.lock();
        let Some(job) = (if state.stopping { None } else { state.jobs.pop_front() }) else { return false };
        state.busy += 1;
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut stopwatch = Stopwatch::default();
            let mut meter = Meter::new(&mut stopwatch);
            let found = job(&mut meter);
            let operations = meter.operations;
            stopwatch.stop();
            (found, stopwatch.seconds, operations)
        }));
        let panicked = RoleError::Local { what: "a job panicked" };
        let (found, seconds, operations) =
            done.unwrap_or_else(|_| (Err(panicked), BTreeMap::new(), Operations::default()));
        let judged = match found {
            Ok(found) => Ok(Some(found)),
            Err(error) => self.host.on_job_error(error).map(|()| None),
        };
        let mut state = self.lock();
        state.busy -= 1;
        state.accounts.add_work(&seconds, operations);
        let mut added = 0;
        match judged {
            Ok(Some(found)) => {
                state.found.push_back(found);
                added = 1;
            }
            Ok(None) => {}
            Err(error) => state.fail(error),
        }
        self.finish_task(state, added, 1);
        true
    }

    /// Waits until the role is at rest, and has it do something.
    pub fn act<T>(
        &self,
        act: impl FnOnce(&mut RunningRole<R, H::State>) -> Result<(T, Vec<Job<R>>, H::Output), H::Error>,
        deliver: impl FnOnce(H::Output),
    ) -> Result<T, H::Error> {
        self.signal.expect(1);
        let mut running = self.wait_until(|state| state.running.take());
        match act(&mut running) {
            Ok((answer, jobs, output)) => {
                self.settle(running, Ok((jobs, output)), deliver, 0);
                Ok(answer)
            }
            Err(error) => {
                let mut state = self.lock();
                state.running = Some(running);
                self.finish_task(state, 0, 0);
                Err(error)
            }
        }
    }

    /// Delivers messages, adds jobs, and puts the role back.
    fn settle(
        &self,
        mut running: Box<RunningRole<R, H::State>>,
        done: Result<Consequences<R, H::Output>, H::Error>,
        deliver: impl FnOnce(H::Output),
        awake: usize,
    ) {
        let done = done.map(|(jobs, output)| {
            deliver(output);
            (jobs, self.host.ready(&mut running))
        });
        let mut state = self.lock();
        let mut added = 0;
        match done {
            Ok((jobs, ready)) => {
                added = jobs.len() + ready.len();
                state.jobs.extend(jobs);
                ready.into_iter().rev().for_each(|event| state.replays.push_front(event));
            }
            Err(error) => state.fail(error),
        }
        state.running = Some(running);
        self.finish_task(state, added, awake);
    }

    /// Ends a task from which `added` others have followed. Wakes as many threads as there is work for beside those who are awake:
    /// waking costs more than many a task.
    fn finish_task(&self, state: MutexGuard<'_, ExecutorState<R, H>>, added: usize, awake: usize) {
        let (tasks, has_failed) = (state.tasks().saturating_sub(awake), state.failure.is_some());
        self.signal.expect(added);
        drop(state);
        self.signal.finished(tasks);
        if has_failed {
            self.signal.wake_all();
        }
    }

    /// Looks at the role and its state, unless a thread has it.
    pub fn try_look<T>(&self, look: impl FnOnce(&R, &H::State) -> T) -> Option<T> {
        self.lock().running.as_ref().map(|running| look(&running.role, &running.state))
    }

    /// Looks at the role as soon as it is at rest.
    pub fn look<T>(&self, look: impl Fn(&R, &H::State) -> T) -> T {
        self.wait_until(|state| state.running.as_ref().map(|running| look(&running.role, &running.state)))
    }

    fn wait_until<T>(&self, mut look: impl FnMut(&mut ExecutorState<R, H>) -> Option<T>) -> T {
        loop {
            let epoch = self.signal.watch();
            if let Some(found) = look(&mut self.lock()) {
                self.signal.unwatch();
                return found;
            }
            self.signal.wait_for_change(epoch, POLL_INTERVAL);
        }
    }

    /// Looks at the role until there is something to see, the time is over or work has ended.
    pub fn wait_for<T>(&self, time: Duration, look: impl Fn(&R) -> Option<T>) -> Result<Option<T>, H::Error> {
        let until = Instant::now() + time;
        loop {
            let epoch = self.signal.watch();
            let mut state = self.lock();
            let failure = state.failure.take();
            let seen = state.running.as_ref().and_then(|running| look(&running.role));
            drop(state);
            let left = until.saturating_duration_since(Instant::now());
            if failure.is_some() || seen.is_some() || left.is_zero() {
                self.signal.unwatch();
                return failure.map_or(Ok(seen), Err);
            }
            self.signal.wait_for_change(epoch, left);
        }
    }

    /// What this executor's work has cost so far.
    pub fn accounts(&self) -> Accounts {
        self.lock().accounts.clone()
    }

    /// Why work has ended, if it has: told once.
    pub fn take_failure(&self) -> Option<H::Error> {
        self.lock().failure.take()
    }

    /// Ends all work.
    pub fn fail(&self, error: H::Error) {
        self.lock().fail(error);
        self.signal.wake_all();
    }

    /// Has all threads end.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.signal.wake_all();
    }
}

impl<R: HostedRole, H: RoleHost<R, Output = ()>> RoleExecutor<R, H> {
    /// Works until told to stop; any number of threads may.
    pub fn work(&self) {
        loop {
            let epoch = self.signal.epoch();
            if self.lock().stopping {
                return;
            }
            if !self.run_event(|()| {}) && !self.run_job() {
                self.signal.wait_for_work(epoch);
            }
        }
    }
}

/// Seconds by phase.
#[derive(Default)]
struct Stopwatch {
    seconds: BTreeMap<Phase, f64>,
    current: Option<(Phase, Instant)>,
}

impl Stopwatch {
    fn stop(&mut self) {
        if let Some((phase, since)) = self.current.take() {
            *self.seconds.entry(phase).or_default() += since.elapsed().as_secs_f64();
        }
    }
}

impl Probe for Stopwatch {
    fn enter(&mut self, phase: Phase) {
        self.stop();
        self.current = Some((phase, Instant::now()));
    }
}

//! All parties of a session in one process, on all cores. Messages between them are the packets that travel on a network; an
//! interceptor may tamper with them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use secsv_federation::RoundId;
use secsv_protocol::{
    Auxiliary, Client, ClientInput, PartyId, Principal, RequestId, Seed, TestRequest, TestResult, UnitCosts,
    role::{Continuation, Effects, Job},
    session::{Federation, Session},
};

use crate::{
    Accounts, Envelope, Error,
    executor::{HostedRole, RoleExecutor, RoleHost, RunningRole, Signal},
    memory_link::MemoryLinks,
};

/// Stands between the parties: may drop, double, change or hold back what passes.
pub trait Interceptor: Send {
    /// What becomes of a message.
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope>;

    /// Whether a message may come out as another than it went in: then receivers check digests.
    fn tampers(&self) -> bool {
        true
    }

    /// Messages held back, let go because nothing else moves.
    fn release(&mut self) -> Vec<Envelope> {
        Vec::new()
    }
}

/// Lets everything pass.
pub struct Honest;

impl Interceptor for Honest {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        vec![envelope]
    }

    /// Contents stay where they lie: they are what was hashed when they were sent.
    fn tampers(&self) -> bool {
        false
    }
}

/// Results of tests, by test.
type Results = Vec<(RequestId, Vec<TestResult>)>;
/// Jobs, and messages to be delivered.
type HostedStep<R> = (Vec<Job<R>>, Vec<Envelope>);
type MemoryRole<R> = RunningRole<R, MemoryLinks>;
type Executor<R> = RoleExecutor<R, MemoryHost>;

/// A role among others in the same process.
struct MemoryHost {
    results: Arc<Mutex<Results>>,
    signal: Arc<Signal>,
}

impl MemoryHost {
    fn step<R: HostedRole>(&self, running: &mut MemoryRole<R>, effects: Effects<R>) -> HostedStep<R> {
        let results = running.role.harvest().results;
        if !results.is_empty() {
            lock(&self.results).extend(results);
            self.signal.call();
        }
        let Effects { outbox, jobs } = effects;
        (jobs, outbox.into_iter().map(|message| running.state.seal(message)).collect())
    }
}

impl<R: HostedRole> RoleHost<R> for MemoryHost {
    type State = MemoryLinks;
    type Event = Envelope;
    type Output = Vec<Envelope>;
    type Error = Error;

    fn on_event(&self, running: &mut MemoryRole<R>, envelope: Envelope) -> Result<HostedStep<R>, Error> {
        let mut effects = Effects::default();
        for message in running.state.open(envelope)? {
            effects.and(running.role.handle(message)?);
        }
        Ok(self.step(running, effects))
    }

    fn on_found(&self, running: &mut MemoryRole<R>, found: Continuation<R>) -> Result<HostedStep<R>, Error> {
        let effects = found(&mut running.role)?;
        Ok(self.step(running, effects))
    }
}

/// A party, whatever its role.
trait AnyParty {
    /// Has the role take an event, if there is one; `post` delivers what it sends.
    fn run_event(&self, post: &dyn Fn(Vec<Envelope>)) -> bool;
    fn run_job(&self) -> bool;
    fn push(&self, envelope: Envelope);
    fn take_failure(&self) -> Option<Error>;
    fn accounts(&self) -> Accounts;
    /// What the party waits for, in words.
    fn awaiting(&self, own: PartyId) -> Option<String>;
}

impl<R: HostedRole> AnyParty for Executor<R> {
    fn run_event(&self, post: &dyn Fn(Vec<Envelope>)) -> bool {
        self.run_event(post)
    }

    fn run_job(&self) -> bool {
        self.run_job()
    }

    fn push(&self, envelope: Envelope) {
        self.push(envelope);
    }

    fn take_failure(&self) -> Option<Error> {
        self.take_failure()
    }

    fn accounts(&self) -> Accounts {
        self.accounts()
    }

    fn awaiting(&self, own: PartyId) -> Option<String> {
        self.try_look(|role, links| {
            let gaps: Vec<String> = links.gaps().iter().map(ToString::to_string).collect();
            if gaps.is_empty() {
                role.awaiting()
            } else {
                format!("{own}: a message from {} is missing", gaps.join(", "))
            }
        })
    }
}

/// What is between the parties.
struct Exchange {
    interceptor: Box<dyn Interceptor>,
    /// The traffic.
    accounts: Accounts,
}

/// The parties of one session.
pub struct InProcess {
    principal: Executor<Principal>,
    auxiliary: Executor<Auxiliary>,
    clients: Vec<Executor<Client>>,
    exchange: Mutex<Exchange>,
    results: Arc<Mutex<Results>>,
    signal: Arc<Signal>,
    stopping: AtomicBool,
    /// Whose inbox is looked at first next time: nobody waits for ever.
    turn: AtomicUsize,
    threads: usize,
}

impl InProcess {
    /// All parties, each with randomness of its own derived from one seed.
    pub fn new(
        federation: &Arc<Federation>,
        inputs: Vec<ClientInput>,
        costs: Option<UnitCosts>,
        seed: &Seed,
        interceptor: Box<dyn Interceptor>,
    ) -> Self {
        let (results, signal): (Arc<Mutex<Results>>, Arc<Signal>) = (Arc::default(), Arc::default());
        let host = || MemoryHost { results: results.clone(), signal: signal.clone() };
        let is_checked = interceptor.tampers();
        let links = |party| MemoryLinks::new(party, is_checked);
        let principal = Principal::new(federation.clone(), costs, seed.derive("principal", 0));
        let auxiliary = Auxiliary::new(federation.clone(), seed.derive("auxiliary", 0));
        let client = |(position, input)| {
            let seed = seed.derive("client", position as u64);
            let mut client = Client::new(federation.clone(), position, input, seed);
            let effects = client.start();
            let links = links(PartyId::Client(position));
            let executor = RoleExecutor::new(client, links, host(), signal.clone());
            executor.add_jobs(effects.jobs);
            executor
        };
        Self {
            principal: RoleExecutor::new(principal, links(PartyId::Principal), host(), signal.clone()),
            auxiliary: RoleExecutor::new(auxiliary, links(PartyId::Auxiliary), host(), signal.clone()),
            clients: inputs.into_iter().enumerate().map(client).collect(),
            exchange: Mutex::new(Exchange { interceptor, accounts: Accounts::default() }),
            stopping: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            results,
            signal,
        }
    }

    /// Cost so far.
    pub fn accounts(&self) -> Accounts {
        let mut all = lock(&self.exchange).accounts.clone();
        for party in self.parties() {
            let accounts = self.party(party).map(AnyParty::accounts).unwrap_or_default();
            all.add_work(&accounts.seconds, accounts.operations);
        }
        all
    }

    /// Looks at the principal while nothing runs.
    pub fn with_principal<T>(&self, look: impl FnOnce(&Principal) -> T) -> Option<T> {
        self.principal.try_look(|role, _| look(role))
    }

    /// Looks at the auxiliary while nothing runs.
    pub fn with_auxiliary<T>(&self, look: impl FnOnce(&Auxiliary) -> T) -> Option<T> {
        self.auxiliary.try_look(|role, _| look(role))
    }

    /// Looks at a client while nothing runs.
    pub fn with_client<T>(&self, position: usize, look: impl FnOnce(&Client) -> T) -> Option<T> {
        self.clients.get(position)?.try_look(|role, _| look(role))
    }

    /// Runs until the parties have agreed on the session, and nothing else is left to do before a test.
    pub fn agree(&mut self) -> Result<Arc<Session>, Error> {
        let agreed = |all: &Self| all.with_principal(|principal| principal.session().cloned()).flatten();
        if let Some(session) = agreed(self) {
            return Ok(session);
        }
        let stalled = self.with_threads(|all| match all.wait() {
            Err(stalled @ Error::Stalled { .. }) => Ok(stalled),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Stalled { awaiting: String::new() }),
        })?;
        agreed(self).ok_or(stalled)
    }

    /// Asks for tests and runs until all that were asked for have ended. `next` is given the results of each and may ask for
    /// more; a round of which nothing more is asked for then is closed. Ends with an error if a party fails, or if
    /// nothing moves any more.
    pub fn run(
        &mut self,
        requests: Vec<TestRequest>,
        mut next: impl FnMut(&TestRequest, Vec<TestResult>) -> Result<Vec<TestRequest>, Error>,
    ) -> Result<(), Error> {
        let mut open: BTreeMap<RequestId, TestRequest> = BTreeMap::new();
        self.ask(requests, &mut open)?;
        self.with_threads(|all| {
            all.serve(&mut open, &mut next)?;
            // Everybody takes what is on its way.
            match all.wait() {
                Err(Error::Stalled { .. }) | Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// Does something while threads work.
    fn with_threads<T>(&mut self, act: impl FnOnce(&Self) -> T) -> T {
        self.stopping.store(false, Ordering::Relaxed);
        let all = &*self;
        std::thread::scope(|scope| {
            for _ in 0..all.threads {
                scope.spawn(|| all.work());
            }
            let _release = ThreadRelease(all);
            act(all)
        })
    }

    fn serve(
        &self,
        open: &mut BTreeMap<RequestId, TestRequest>,
        next: &mut impl FnMut(&TestRequest, Vec<TestResult>) -> Result<Vec<TestRequest>, Error>,
    ) -> Result<(), Error> {
        while !open.is_empty() {
            for (test, found) in self.wait()? {
                let Some(request) = open.remove(&test) else { continue };
                self.ask(next(&request, found)?, open)?;
                if open.values().all(|other| other.round != request.round) {
                    self.close_round(request.round)?;
                }
            }
        }
        Ok(())
    }

    /// Hands requests to the principal.
    fn ask(
        &self,
        requests: Vec<TestRequest>,
        open: &mut BTreeMap<RequestId, TestRequest>,
    ) -> Result<(), Error> {
        for request in requests {
            let test = self.act(|principal| Ok(principal.request(request.clone())?))?;
            open.insert(test, request);
        }
        Ok(())
    }

    /// Lets go of what a round needed.
    fn close_round(&self, round: RoundId) -> Result<(), Error> {
        self.act(|principal| Ok(((), principal.close_round(round)?)))
    }

    /// Has the principal do something.
    fn act<T>(
        &self,
        act: impl FnOnce(&mut Principal) -> Result<(T, Effects<Principal>), Error>,
    ) -> Result<T, Error> {
        let host = &self.principal.host;
        let act = |running: &mut MemoryRole<Principal>| {
            let (answer, effects) = act(&mut running.role)?;
            // A test of no sample ends as it is asked for.
            let (jobs, outbox) = host.step(running, effects);
            Ok((answer, jobs, outbox))
        };
        self.principal.act(act, |outbox| self.post(outbox))
    }

    /// Waits for results; an error if a party has failed, or if nothing moves any more.
    fn wait(&self) -> Result<Results, Error> {
        loop {
            // Looked at first: whatever has ended the last task is there then.
            let (calls, is_idle) = self.signal.calls();
            if let Some(failure) = self.parties().find_map(|party| self.party(party)?.take_failure()) {
                return Err(failure);
            }
            let results = std::mem::take(&mut *lock(&self.results));
            if !results.is_empty() {
                return Ok(results);
            }
            if is_idle {
                let held = lock(&self.exchange).interceptor.release();
                if held.is_empty() {
                    let awaiting = self.parties().filter_map(|party| self.party(party)?.awaiting(party));
                    return Err(Error::Stalled { awaiting: awaiting.collect::<Vec<_>>().join("; ") });
                }
                held.into_iter().for_each(|envelope| self.deliver(envelope));
            } else {
                self.signal.wait_for_call(calls);
            }
        }
    }

    fn work(&self) {
        loop {
            let epoch = self.signal.epoch();
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            if !self.run_task() {
                self.signal.wait_for_work(epoch);
            }
        }
    }

    /// Does one thing that there is to do. Messages before jobs: they are short, and give others work.
    fn run_task(&self) -> bool {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % (self.clients.len() + 2);
        let in_turn = || self.parties().skip(first).chain(self.parties().take(first));
        let mut parties = in_turn().filter_map(|party| self.party(party));
        let post = |outbox| self.post(outbox);
        parties.any(|party| party.run_event(&post))
            || in_turn().filter_map(|party| self.party(party)).any(AnyParty::run_job)
    }

    fn parties(&self) -> impl Iterator<Item = PartyId> {
        let clients = (0..self.clients.len()).map(PartyId::Client);
        [PartyId::Principal, PartyId::Auxiliary].into_iter().chain(clients)
    }

    fn party(&self, party: PartyId) -> Option<&dyn AnyParty> {
        match party {
            PartyId::Principal => Some(&self.principal),
            PartyId::Auxiliary => Some(&self.auxiliary),
            PartyId::Client(position) => self.clients.get(position).map(|client| client as &dyn AnyParty),
        }
    }

    /// Delivers what the interceptor lets pass.
    fn post(&self, outbox: Vec<Envelope>) {
        for envelope in outbox {
            let mut exchange = lock(&self.exchange);
            let Envelope { from, to, kind, ref content, .. } = envelope;
            exchange.accounts.count(from, to, kind, content.len() as u64);
            let passed = exchange.interceptor.pass(envelope);
            drop(exchange);
            passed.into_iter().for_each(|envelope| self.deliver(envelope));
        }
    }

    fn deliver(&self, envelope: Envelope) {
        if let Some(party) = self.party(envelope.to) {
            party.push(envelope);
        }
    }
}

/// Sends the threads home when it is dropped, after a panic too: a scope would wait for them for ever.
struct ThreadRelease<'a>(&'a InProcess);

impl Drop for ThreadRelease<'_> {
    fn drop(&mut self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.0.signal.wake_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! All parties of a session in one process, on all cores. Messages between them are the packets that travel on a network; an
//! interceptor may tamper with them.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Instant,
};

use secsv_federation::RoundId;
use secsv_protocol::{
    Auxiliary, Client, ClientInput, Error as RoleError, Operations, PartyId, Principal, Seed, TestRequest,
    TestResult, UnitCosts,
    message::Kind,
    role::{Continuation, Effects, Job, Meter, Phase, Probe, Role},
    session::{Federation, Session},
};

use crate::{Envelope, Error, memory_link::MemoryLinks};

/// Stands between the parties: may drop, double, change or hold back what passes.
pub trait Interceptor: Send {
    /// What becomes of a frame.
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope>;

    /// Frames held back, let go because nothing else moves.
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
}

/// What a session cost.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Bytes of contents, and messages, by sender, receiver and kind.
    pub traffic: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>,
    /// Seconds of work by phase, over all threads.
    pub seconds: BTreeMap<Phase, f64>,
    /// Operations.
    pub operations: Operations,
}

/// One event for a party.
enum Event<R> {
    Frame(Envelope),
    Found(Continuation<R>),
}

/// A role with its ends of the links.
struct Party<R> {
    role: R,
    links: MemoryLinks,
}

/// What a party wants done, in frames.
struct Step<R> {
    outbox: Vec<Envelope>,
    jobs: Vec<Job<R>>,
}

impl<R: Role> Party<R> {
    fn handle(&mut self, event: Event<R>) -> Result<Step<R>, Error> {
        let effects = match event {
            Event::Frame(envelope) => {
                let mut effects = Effects::default();
                for message in self.links.open(envelope)? {
                    effects.and(self.role.handle(message).map_err(Error::Role)?);
                }
                effects
            }
            Event::Found(next) => next(&mut self.role).map_err(Error::Role)?,
        };
        Ok(self.seal(effects))
    }

    fn seal(&mut self, effects: Effects<R>) -> Step<R> {
        let Effects { outbox, jobs } = effects;
        let outbox = outbox.into_iter().map(|message| self.links.seal(message)).collect();
        Step { outbox, jobs }
    }

    fn awaiting(&self, own: PartyId) -> String {
        let gaps: Vec<String> = self.links.gaps().iter().map(ToString::to_string).collect();
        if gaps.is_empty() {
            self.role.awaiting()
        } else {
            format!("{own}: a message from {} is missing", gaps.join(", "))
        }
    }
}

/// A party and what waits for it.
struct Desk<R> {
    party: Option<Box<Party<R>>>,
    own: PartyId,
    inbox: VecDeque<Event<R>>,
}

impl<R: Role> Desk<R> {
    fn new(role: R, own: PartyId) -> Self {
        let party = Party { role, links: MemoryLinks::new(own) };
        Self { party: Some(Box::new(party)), own, inbox: VecDeque::new() }
    }

    fn has_task(&self) -> bool {
        self.party.is_some() && !self.inbox.is_empty()
    }

    fn awaiting(&self) -> Option<String> {
        self.party.as_ref().map(|party| party.awaiting(self.own))
    }
}

/// Everything the threads share.
struct Floor {
    principal: Desk<Principal>,
    auxiliary: Desk<Auxiliary>,
    clients: Vec<Desk<Client>>,
    jobs: VecDeque<AnyJob>,
    interceptor: Box<dyn Interceptor>,
    accounts: Accounts,
    /// Threads at work.
    busy: usize,
    /// Threads that found nothing to do.
    resting: usize,
    results: Vec<(u64, Vec<TestResult>)>,
    failure: Option<Error>,
    stopping: bool,
    /// Whether somebody waits for the principal to be at its desk.
    wanted: bool,
    /// Whose inbox is looked at first next time: nobody waits for ever.
    turn: usize,
}

enum AnyJob {
    Principal(Job<Principal>),
    Auxiliary(Job<Auxiliary>),
    Client(usize, Job<Client>),
}

enum Task {
    Principal(Box<Party<Principal>>, Event<Principal>),
    Auxiliary(Box<Party<Auxiliary>>, Event<Auxiliary>),
    Client(usize, Box<Party<Client>>, Event<Client>),
    Job(AnyJob),
}

/// The parties of one session.
pub struct World {
    floor: Mutex<Floor>,
    /// There is work for one thread more.
    work: Condvar,
    /// There is something for whoever asked: a result, a failure, nothing at all to do, or the principal at its desk.
    told: Condvar,
    threads: usize,
}

impl World {
    /// All parties, each with randomness of its own derived from one seed.
    pub fn new(
        federation: &Arc<Federation>,
        inputs: Vec<ClientInput>,
        costs: Option<UnitCosts>,
        seed: &Seed,
        interceptor: Box<dyn Interceptor>,
    ) -> Self {
        let principal = Principal::new(federation.clone(), costs, seed.derive("principal", 0));
        let auxiliary = Auxiliary::new(federation.clone(), seed.derive("auxiliary", 0));
        let mut floor = Floor {
            principal: Desk::new(principal, PartyId::Principal),
            auxiliary: Desk::new(auxiliary, PartyId::Auxiliary),
            clients: Vec::new(),
            jobs: VecDeque::new(),
            interceptor,
            accounts: Accounts::default(),
            busy: 0,
            resting: 0,
            results: Vec::new(),
            failure: None,
            stopping: false,
            wanted: false,
            turn: 0,
        };
        for (position, input) in inputs.into_iter().enumerate() {
            let mut client =
                Client::new(federation.clone(), position, input, seed.derive("client", position as u64));
            let effects = client.start();
            floor.clients.push(Desk::new(client, PartyId::Client(position)));
            floor.jobs.extend(effects.jobs.into_iter().map(|job| AnyJob::Client(position, job)));
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { floor: Mutex::new(floor), work: Condvar::new(), told: Condvar::new(), threads }
    }

    /// What it cost so far.
    pub fn accounts(&self) -> Accounts {
        self.lock().accounts.clone()
    }

    /// Looks at the principal while nothing runs.
    pub fn with_principal<T>(&self, look: impl FnOnce(&Principal) -> T) -> Option<T> {
        self.lock().principal.party.as_deref().map(|party| look(&party.role))
    }

    /// The same for the auxiliary.
    pub fn with_auxiliary<T>(&self, look: impl FnOnce(&Auxiliary) -> T) -> Option<T> {
        self.lock().auxiliary.party.as_deref().map(|party| look(&party.role))
    }

    /// The same for a client.
    pub fn with_client<T>(&self, position: usize, look: impl FnOnce(&Client) -> T) -> Option<T> {
        self.lock().clients.get(position)?.party.as_deref().map(|party| look(&party.role))
    }

    fn lock(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs until the parties have agreed on the session, and nothing else is left to do before a test.
    pub fn agree(&mut self) -> Result<Arc<Session>, Error> {
        let agreed = |world: &Self| world.with_principal(|principal| principal.session().cloned()).flatten();
        if let Some(session) = agreed(self) {
            return Ok(session);
        }
        let stalled = self.with_threads(|world| match world.wait() {
            Err(stalled @ Error::Stalled { .. }) => Ok(stalled),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Stalled { awaiting: String::new() }),
        })?;
        agreed(self).ok_or(stalled)
    }

    /// Asks for tests and runs until all that were asked for have ended. `next` is told what each found and may ask for
    /// more; a round of which nothing more is asked for then is closed. Ends with an error if a party fails, or if
    /// nothing moves any more.
    pub fn run(
        &mut self,
        requests: Vec<TestRequest>,
        mut next: impl FnMut(&TestRequest, Vec<TestResult>) -> Result<Vec<TestRequest>, Error>,
    ) -> Result<(), Error> {
        let mut open: BTreeMap<u64, TestRequest> = BTreeMap::new();
        self.ask(requests, &mut open)?;
        self.with_threads(|world| {
            world.serve(&mut open, &mut next)?;
            world.settle()
        })
    }

    /// Waits until everybody has taken what is on its way.
    fn settle(&self) -> Result<(), Error> {
        match self.wait() {
            Err(Error::Stalled { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does something while threads work.
    fn with_threads<T>(&mut self, act: impl FnOnce(&Self) -> T) -> T {
        self.lock().stopping = false;
        let world = &*self;
        std::thread::scope(|scope| {
            for _ in 0..world.threads {
                scope.spawn(|| world.work());
            }
            let outcome = act(world);
            world.lock().stopping = true;
            world.work.notify_all();
            outcome
        })
    }

    fn serve(
        &self,
        open: &mut BTreeMap<u64, TestRequest>,
        next: &mut impl FnMut(&TestRequest, Vec<TestResult>) -> Result<Vec<TestRequest>, Error>,
    ) -> Result<(), Error> {
        while !open.is_empty() {
            let results = self.wait()?;
            for (test, found) in results {
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
    fn ask(&self, requests: Vec<TestRequest>, open: &mut BTreeMap<u64, TestRequest>) -> Result<(), Error> {
        for request in requests {
            let test = self.at_desk(|principal| match principal.request(request.clone()) {
                Ok((test, effects)) => (effects, Ok(test)),
                Err(error) => (Effects::default(), Err(Error::Role(error))),
            })?;
            open.insert(test, request);
        }
        Ok(())
    }

    /// Lets go of what a round needed.
    fn close_round(&self, round: RoundId) -> Result<(), Error> {
        self.at_desk(|principal| match principal.close_round(round) {
            Ok(effects) => (effects, Ok(())),
            Err(error) => (Effects::default(), Err(Error::Role(error))),
        })
    }

    /// Waits until the principal is at its desk, and has it do something.
    fn at_desk<T>(&self, act: impl FnOnce(&mut Principal) -> (Effects<Principal>, T)) -> T {
        let mut floor = self.lock();
        loop {
            if let Some(principal) = floor.principal.party.as_deref_mut() {
                let (effects, answer) = act(&mut principal.role);
                let step = principal.seal(effects);
                // A test of no sample ends as it is asked for.
                let ended = principal.role.take_results();
                floor.results.extend(ended);
                floor.absorb_step(step, AnyJob::Principal);
                self.work.notify_all();
                return answer;
            }
            floor.wanted = true;
            floor = self.told.wait(floor).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn wait(&self) -> Result<Vec<(u64, Vec<TestResult>)>, Error> {
        let mut floor = self.lock();
        loop {
            if let Some(failure) = floor.failure.take() {
                return Err(failure);
            }
            if !floor.results.is_empty() {
                return Ok(std::mem::take(&mut floor.results));
            }
            if floor.is_idle() {
                let held = floor.interceptor.release();
                if held.is_empty() {
                    return Err(Error::Stalled { awaiting: floor.awaiting() });
                }
                held.into_iter().for_each(|envelope| floor.deliver(envelope));
                self.work.notify_all();
            }
            floor = self.told.wait(floor).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn work(&self) {
        let mut floor = self.lock();
        loop {
            if floor.stopping || floor.failure.is_some() {
                return;
            }
            let Some(task) = floor.next_task() else {
                if floor.is_idle() {
                    self.told.notify_one();
                }
                floor.resting += 1;
                floor = self.work.wait(floor).unwrap_or_else(std::sync::PoisonError::into_inner);
                floor.resting -= 1;
                continue;
            };
            if floor.resting > 0 && floor.has_task() {
                self.work.notify_one();
            }
            floor.busy += 1;
            drop(floor);
            let done = catch_unwind(AssertUnwindSafe(|| perform(task)));
            floor = self.lock();
            floor.busy -= 1;
            match done {
                Ok(done) => {
                    floor.absorb(done);
                    let is_back = floor.wanted && floor.principal.party.is_some();
                    if is_back || !floor.results.is_empty() || floor.failure.is_some() {
                        floor.wanted = false;
                        self.told.notify_one();
                    }
                }
                Err(panic) => {
                    // Nobody waits for a party that will not come back.
                    floor.fail(Error::Role(RoleError::Local { what: "a party panicked" }));
                    self.told.notify_one();
                    drop(floor);
                    resume_unwind(panic);
                }
            }
        }
    }
}

/// What a thread brings back.
enum Done {
    Principal(Box<Party<Principal>>, Result<Step<Principal>, Error>),
    Auxiliary(Box<Party<Auxiliary>>, Result<Step<Auxiliary>, Error>),
    Client(usize, Box<Party<Client>>, Result<Step<Client>, Error>),
    Found(Box<Finding>),
}

struct Finding {
    event: Result<AnyFound, RoleError>,
    stopwatch: Stopwatch,
    operations: Operations,
}

enum AnyFound {
    Principal(Continuation<Principal>),
    Auxiliary(Continuation<Auxiliary>),
    Client(usize, Continuation<Client>),
}

fn perform(task: Task) -> Done {
    match task {
        Task::Principal(mut party, event) => {
            let step = party.handle(event);
            Done::Principal(party, step)
        }
        Task::Auxiliary(mut party, event) => {
            let step = party.handle(event);
            Done::Auxiliary(party, step)
        }
        Task::Client(position, mut party, event) => {
            let step = party.handle(event);
            Done::Client(position, party, step)
        }
        Task::Job(job) => {
            let mut stopwatch = Stopwatch::default();
            let mut meter = Meter::new(&mut stopwatch);
            let event = match job {
                AnyJob::Principal(job) => job(&mut meter).map(AnyFound::Principal),
                AnyJob::Auxiliary(job) => job(&mut meter).map(AnyFound::Auxiliary),
                AnyJob::Client(position, job) => job(&mut meter).map(|next| AnyFound::Client(position, next)),
            };
            let operations = meter.operations;
            stopwatch.stop();
            Done::Found(Box::new(Finding { event, stopwatch, operations }))
        }
    }
}

impl Floor {
    fn is_idle(&self) -> bool {
        self.busy == 0
            && self.jobs.is_empty()
            && self.principal.inbox.is_empty()
            && self.auxiliary.inbox.is_empty()
            && self.clients.iter().all(|desk| desk.inbox.is_empty())
    }

    fn awaiting(&self) -> String {
        let mut all = Vec::new();
        all.extend(self.principal.awaiting());
        all.extend(self.auxiliary.awaiting());
        all.extend(self.clients.iter().filter_map(Desk::awaiting));
        all.join("; ")
    }

    /// Frames before jobs: they are short, and give others work.
    fn next_task(&mut self) -> Option<Task> {
        let parties = self.clients.len() + 2;
        for k in 0..parties {
            let party = (self.turn + k) % parties;
            let task = match party {
                0 => take(&mut self.principal).map(|(party, event)| Task::Principal(party, event)),
                1 => take(&mut self.auxiliary).map(|(party, event)| Task::Auxiliary(party, event)),
                client => take(&mut self.clients[client - 2])
                    .map(|(party, event)| Task::Client(client - 2, party, event)),
            };
            if task.is_some() {
                self.turn = party + 1;
                return task;
            }
        }
        self.jobs.pop_front().map(Task::Job)
    }

    /// Whether there is something that a thread could do now.
    fn has_task(&self) -> bool {
        let clients = self.clients.iter().any(Desk::has_task);
        !self.jobs.is_empty() || self.principal.has_task() || self.auxiliary.has_task() || clients
    }

    fn absorb(&mut self, done: Done) {
        match done {
            Done::Principal(mut party, step) => {
                self.results.extend(party.role.take_results());
                self.principal.party = Some(party);
                self.absorb_result(step, AnyJob::Principal);
            }
            Done::Auxiliary(party, step) => {
                self.auxiliary.party = Some(party);
                self.absorb_result(step, AnyJob::Auxiliary);
            }
            Done::Client(position, party, step) => {
                self.clients[position].party = Some(party);
                self.absorb_result(step, |job| AnyJob::Client(position, job));
            }
            Done::Found(finding) => {
                for (phase, seconds) in &finding.stopwatch.seconds {
                    *self.accounts.seconds.entry(*phase).or_default() += seconds;
                }
                self.accounts.operations += finding.operations;
                match finding.event {
                    Ok(AnyFound::Principal(next)) => self.principal.inbox.push_back(Event::Found(next)),
                    Ok(AnyFound::Auxiliary(next)) => self.auxiliary.inbox.push_back(Event::Found(next)),
                    Ok(AnyFound::Client(i, next)) => self.clients[i].inbox.push_back(Event::Found(next)),
                    Err(error) => self.fail(Error::Role(error)),
                }
            }
        }
    }

    fn absorb_result<R>(&mut self, step: Result<Step<R>, Error>, job: impl Fn(Job<R>) -> AnyJob) {
        match step {
            Ok(step) => self.absorb_step(step, job),
            Err(error) => self.fail(error),
        }
    }

    fn absorb_step<R>(&mut self, step: Step<R>, job: impl Fn(Job<R>) -> AnyJob) {
        self.jobs.extend(step.jobs.into_iter().map(job));
        step.outbox.into_iter().for_each(|envelope| self.post(envelope));
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    fn post(&mut self, envelope: Envelope) {
        let entry = self.accounts.traffic.entry((envelope.from, envelope.to, envelope.kind)).or_default();
        *entry = (entry.0 + envelope.content.len() as u64, entry.1 + 1);
        for envelope in self.interceptor.pass(envelope) {
            self.deliver(envelope);
        }
    }

    fn deliver(&mut self, envelope: Envelope) {
        match envelope.to {
            PartyId::Principal => self.principal.inbox.push_back(Event::Frame(envelope)),
            PartyId::Auxiliary => self.auxiliary.inbox.push_back(Event::Frame(envelope)),
            PartyId::Client(i) => {
                if let Some(desk) = self.clients.get_mut(i) {
                    desk.inbox.push_back(Event::Frame(envelope));
                }
            }
        }
    }
}

fn take<R>(desk: &mut Desk<R>) -> Option<(Box<Party<R>>, Event<R>)> {
    if desk.inbox.is_empty() {
        return None;
    }
    let party = desk.party.take()?;
    desk.inbox.pop_front().map(|event| (party, event))
}

/// Seconds by phase.
#[derive(Default)]
pub struct Stopwatch {
    /// Of the phases so far.
    pub seconds: BTreeMap<Phase, f64>,
    current: Option<(Phase, Instant)>,
}

impl Stopwatch {
    /// Ends the current phase.
    pub fn stop(&mut self) {
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

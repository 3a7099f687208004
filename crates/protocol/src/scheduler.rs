//! The scheduler that all protocols share: when tests begin, with whom, and when rounds are opened, as far as there is memory for
//! them.

mod attempts;
mod engine;
mod persistence;
mod results;
pub(crate) mod split;

pub(crate) use attempts::plan_of;
pub(crate) use engine::{Engine, PrincipalUnit};
pub use persistence::Assignment;
pub use results::{ClassCount, TestRequest, TestResult};

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use attempts::Roles;
use results::TestState;
use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};
use split::{SplitTest, is_secure, split_by_known_models};

use crate::{
    Error, PartyId,
    decryptors::{PlanError, Planner, Unit},
    error::CodecError,
    message::{
        Kind, Message as _, OwnTest, RoundFinished, RoundStart, SealedClientKeys, TestPlan, UnitId, UnitPlan,
    },
    role::{Effects, Incoming, Outgoing, waits_for},
    round_memory::open_rounds,
    scope::Scope,
    session::Session,
    test_id::{RequestId, TestId},
    unit::UnitContext,
};

/// Tests that run at the same time: enough to keep every party busy.
pub(crate) const MAX_ACTIVE: usize = 12;
/// Tests that run at the same time where a test is one visit to a client about one model, and most of its time goes by on the way and
/// at the disks.
const MAX_ACTIVE_OF_ONE_LAYER: usize = 40;
/// Bytes that the coalitions' models of both servers may take, over all tests under way.
const MODELS_MEMORY: usize = 1 << 30;

/// How many tests run at the same time, where two servers hold the models of their coalitions.
pub(crate) fn max_tests(session: &Session) -> usize {
    let later = session.encryption().into_iter().flat_map(|encryption| encryption.layouts.iter().skip(1));
    let of_one: usize = later.map(|layout| 2 * layout.prepared_bytes()).sum();
    let is_one_visit = session.program().steps.len() == 1 && !session.federation.tests_together();
    let most = if is_one_visit { MAX_ACTIVE_OF_ONE_LAYER } else { MAX_ACTIVE };
    MODELS_MEMORY.checked_div(of_one).unwrap_or(most).clamp(2, most)
}

/// Tests, rounds and units under way, and the engine that works on them.
pub(crate) struct Scheduler<E: Engine> {
    pub session: Arc<Session>,
    pub engine: E,
    pub seed: Seed,
    pub(crate) planner: Planner,
    /// Clients to whom the leader's envelope was sent on.
    relayed: BTreeSet<usize>,
    /// Round batches that are open, by their first rounds, as everything here that is about a round.
    pub rounds: BTreeMap<RoundId, E::Round>,
    /// The earliest round first, so that few rounds are open at a time.
    pub(crate) queue: BTreeMap<(RoundId, RequestId), TestRequest>,
    tests: BTreeMap<RequestId, TestState>,
    pub units: BTreeMap<UnitId, E::Unit>,
    roles: BTreeMap<(RoundId, Coalition, usize), Roles>,
    /// Rounds and groups in which others have taken somebody's place.
    replaced: BTreeSet<(RoundId, usize)>,
    /// Clients that stay away: nothing is planned for them.
    pub(crate) away: Coalition,
    /// Clients without whom something cannot go on.
    pub(crate) awaited: Coalition,
    pub(crate) next_request: RequestId,
    pub(crate) results: Vec<(RequestId, Vec<TestResult>)>,
    pub(crate) finished: Vec<Scope>,
    /// Assignments that are not stored yet.
    pub(crate) assigned: Vec<Assignment>,
}

impl<E: Engine> Scheduler<E> {
    /// A scheduler of a session that has just been agreed on.
    pub(crate) fn new(engine: E, seed: Seed) -> Result<Self, Error> {
        let session = engine.session().clone();
        Ok(Self {
            planner: session.planner()?,
            session,
            engine,
            seed,
            relayed: BTreeSet::new(),
            rounds: BTreeMap::new(),
            queue: BTreeMap::new(),
            tests: BTreeMap::new(),
            units: BTreeMap::new(),
            roles: BTreeMap::new(),
            replaced: BTreeSet::new(),
            away: Coalition::EMPTY,
            awaited: Coalition::EMPTY,
            next_request: RequestId::FIRST,
            results: Vec::new(),
            finished: Vec::new(),
            assigned: Vec::new(),
        })
    }

    /// Takes a message of a session under way.
    pub(crate) fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        if self.is_late(message.kind, &message.content) {
            return Ok(Effects::default());
        }
        if !message.kind.is_of(self.session.federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        match (message.kind, message.from) {
            (Kind::SealedClientKeys, PartyId::Client(leader)) if leader == self.session.leader => {
                self.relay(leader, &message)
            }
            (Kind::OwnResult, PartyId::Client(client)) => self.own_result(client, &message),
            (Kind::OwnResultCounts, PartyId::Client(client)) => self.own_count(client, &message),
            _ => E::on_message(self, message),
        }
    }

    /// Hands an envelope of the leader's to whom it is for.
    fn relay(&mut self, leader: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let sealed: SealedClientKeys<'_> = message.read(&())?;
        if sealed.client >= self.session.federation.clients || sealed.client == leader {
            return Err(message.malformed(CodecError::Value { what: "addressee" }));
        }
        // Once: whoever has one refuses another, and whatever comes behind it.
        if !self.relayed.insert(sealed.client) {
            return Err(message.unexpected("the envelope was sent on"));
        }
        Ok(Effects::send(Outgoing::of(PartyId::Client(sealed.client), &sealed)))
    }

    /// What a unit under way is about.
    pub(crate) fn context(&self, unit: UnitId) -> Option<Arc<UnitContext>> {
        self.units.get(&unit).map(|unit| unit.context().clone())
    }

    /// A unit under way that a message is about.
    pub(crate) fn unit(&mut self, unit: UnitId, message: &Incoming) -> Result<&mut E::Unit, Error> {
        self.units.get_mut(&unit).ok_or_else(|| message.unexpected("no such test"))
    }

    /// Starts whatever some units have everything for.
    pub(crate) fn advance_all(&mut self, of: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error> {
        let units: Vec<UnitId> = self.units.keys().filter(|&id| of(id)).copied().collect();
        let mut effects = Effects::default();
        for unit in units {
            effects.and(E::advance(self, unit)?);
        }
        Ok(effects)
    }

    /// What has not come, and from whom, in words.
    pub(crate) fn missing(&self) -> String {
        let mut missing = E::missing(self);
        for (id, state) in &self.tests {
            let owners = state.owners_left.keys().map(|&owner| PartyId::Client(owner));
            missing.extend(owners.map(|owner| format!("the result of test {id} from {owner}")));
        }
        waits_for(PartyId::Principal, &missing)
    }

    /// Starts queued tests while there is room.
    pub(crate) fn pump(&mut self) -> Result<Effects<Self>, Error> {
        if !self.engine.is_ready() {
            return Ok(self.open_early());
        }
        let mut effects = Effects::default();
        while self.tests.len() < self.engine.max_active() {
            let Some((round, id)) = self.next_queued() else { break };
            let Some(request) = self.queue.remove(&(round, id)) else { break };
            match self.start(id, request.clone()) {
                Err(Error::Plan(PlanError::Awaiting { clients, .. })) => {
                    // It waits until one of them is back.
                    self.queue.insert((round, id), request);
                    self.awaited = self.awaited.union(clients);
                    break;
                }
                started => effects.and(started?),
            }
        }
        Ok(effects)
    }

    /// Where models are tested together nothing about a round batch's first tests depends on anything but the session: its models
    /// are asked for while keys and samples are still on their way.
    fn open_early(&mut self) -> Effects<Self> {
        let session = &self.session;
        // A test of models that owners know needs no round, and might end before the models come.
        let is_together = |request: &&TestRequest| {
            request.coalitions.len() > 1
                && request.rounds == session.rounds_of(request.round)
                && is_secure(session, request)
        };
        let first = self.queue.values().find(is_together).map(|request| request.round);
        let first = first.filter(|_| session.federation.tests_together() && self.rounds.is_empty());
        first.map_or_else(Effects::default, |round_batch| self.open_round(round_batch))
    }

    /// The earliest test that waits: of any round if there is memory for one more, else of those that are open. Should
    /// none of these be under way, somebody still looks at the last results: more tests follow, or a round is closed.
    fn next_queued(&self) -> Option<(RoundId, RequestId)> {
        if self.rounds.len() < open_rounds(&self.session) {
            return self.queue.first_key_value().map(|(&key, _)| key);
        }
        let all_of = |round| (round, RequestId::FIRST)..=(round, RequestId::LAST);
        let of_round = |&round: &RoundId| self.queue.range(all_of(round)).next();
        self.rounds.keys().find_map(of_round).map(|(&key, _)| key)
    }

    fn start(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Self>, Error> {
        let (session, mut effects) = (self.session.clone(), Effects::default());
        let round = request.round;
        let participants = session.federation.participants(round);
        let unit = |coalition, group| Unit { round, participants, group, coalition };
        let roles = |coalition, group| self.first_roles(unit(coalition, group));
        let SplitTest { own, secure, mut plan } =
            split_by_known_models(&session, TestId::first(id), &request, roles)?;
        if request.samples.difference(&request.candidate_samples).is_empty() {
            let (candidates, participants) = (&request.candidate_samples, participants.len());
            for unit in &mut plan.units {
                unit.gathered = self.engine.to_gather(unit.group, candidates, participants);
            }
        }
        if !secure.is_empty() && request.rounds != session.rounds_of(round) {
            return Err(Error::Unsupported { what: "a test of a part of a round batch" });
        }
        let nothing = E::nothing_found(request.samples.total());
        let mut state = TestState::new(request, nothing);
        state.units_left.extend(secure);
        for (owner, tests) in own {
            state.owners_left.insert(owner, tests.iter().map(|(number, _)| *number).collect());
            let model = |(number, samples): (usize, _)| (state.request.coalitions[number], samples);
            let models = tests.into_iter().map(model).collect();
            let own_test = OwnTest { request: id, rounds: state.request.rounds.clone(), models };
            effects.outbox.push(Outgoing::of(PartyId::Client(owner), &own_test));
        }
        let attempts = self.attempts(&state.request, plan);
        self.tests.insert(id, state);
        if attempts.iter().any(|plan| !plan.units.is_empty()) {
            effects.and(self.open_round(round));
            for plan in attempts {
                effects.and(self.announce(&plan)?);
            }
            // Its roles may be older than somebody's absence.
            effects.and(self.replace_absent(|unit| unit.test.request == id)?);
        }
        effects.and(self.finish(id)?);
        Ok(effects)
    }

    /// Tells those concerned of a test, and begins with those of its units that are at this attempt.
    pub(crate) fn announce(&mut self, plan: &TestPlan) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let content = Arc::new(plan.encode());
        let mut concerned: BTreeSet<PartyId> = E::AUXILIARY.into_iter().collect();
        let mut begun = Vec::new();
        for context in UnitContext::of(&self.session, plan)? {
            let clients = context.assigned().chain(context.owners(&self.session));
            concerned.extend(clients.map(PartyId::Client));
            let id = context.id;
            if !self.is_stale(id) {
                self.units.insert(id, self.engine.unit(Arc::new(context)));
                begun.push(id);
            }
        }
        for to in concerned {
            effects.outbox.push(Outgoing::new(to, Kind::Test, content.clone()));
        }
        for unit in begun {
            effects.and(E::advance(self, unit)?);
        }
        effects.and(E::on_announced(self, plan.round)?);
        Ok(effects)
    }

    /// Who was first to test a coalition on a group's samples: planned once, whatever the samples.
    fn first_roles(&mut self, unit: Unit) -> Result<UnitPlan, Error> {
        match self.attempts_at(unit.round, unit.coalition, unit.group).first() {
            Some(known) => Ok(known.clone()),
            None => self.assign(Assignment { unit, away: self.away, sent: None }),
        }
    }

    fn open_round(&mut self, round: RoundId) -> Effects<Self> {
        let mut effects = Effects::default();
        if let Entry::Vacant(vacant) = self.rounds.entry(round) {
            vacant.insert(E::Round::default());
            for client in self.engine.concerned(round).members() {
                effects.outbox.push(Outgoing::of(PartyId::Client(client), &RoundStart { round }));
            }
        }
        effects
    }

    /// Says that the models and outputs of a round are not needed any more.
    pub(crate) fn close_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        self.rounds.remove(&round);
        self.finished.push(Scope::Round(round));
        self.engine.forget_round(round);
        let mut effects = Effects::default();
        effects.outbox.extend(E::AUXILIARY.map(|to| Outgoing::of(to, &RoundFinished { round })));
        // Others may come in its place.
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// Adds a test to the queue.
    pub(crate) fn enqueue(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Self>, Error> {
        self.next_request = self.next_request.max(id.next()?);
        self.queue.insert((request.round, id), request);
        self.pump()
    }

    /// Whether messages about this can be understood by now.
    pub(crate) fn knows(&self, scope: Scope) -> bool {
        match scope {
            Scope::Session => true,
            Scope::Round(round) => self.rounds.contains_key(&round),
            Scope::Test(test) => self.tests.contains_key(&test.request),
        }
    }
}

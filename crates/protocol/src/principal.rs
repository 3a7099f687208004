//! The first server (the paper's P): plans every test, adds both servers' halves up, sanitises replies and learns which
//! predictions are right. It sees shares and ciphertexts, no data, no models, no labels.

mod attempts;
pub(crate) mod cut;
mod first_layer;
pub(crate) mod hesv;
mod later_layers;
mod memory;
mod replies;
mod schedule;

use attempts::asked;
pub(crate) use attempts::plan_of;
pub use memory::Assignment;
pub(crate) use schedule::most_active;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use secsv_algebra::{Matrix, Prg, Seed, SeedShare, Share};
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_he::{Ciphertext, PublicKey, UnitCosts};

use crate::{
    Error, PartyId,
    codec::{Reader, Writer},
    decryptors::Planner,
    error::CodecError,
    message::{Hello, Kind, Place, UnitId},
    pass::{EVERYTHING, Pass, PassId},
    role::{Effects, Outgoing, Role},
    scope::Scope,
    secret::{self, SecretServer},
    server::{Store, Triple, UnitContext, UnitState, may_send, missing, missing_inputs, waits_for},
    session::{Federation, Session},
};

/// A test that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub struct TestRequest {
    /// The round.
    pub round: RoundId,
    /// Whose aggregates: one, or several where [`Federation::tests_together`]. The empty coalition stands for the model
    /// before the first round.
    pub coalitions: Vec<Coalition>,
    /// Which samples of the collective test set.
    pub samples: SampleSet,
    /// All that this test and others of the round, of coalitions not smaller, may need.
    pub among: SampleSet,
}

impl TestRequest {
    /// A test for which nothing is gathered.
    pub fn new(round: RoundId, coalition: Coalition, samples: SampleSet) -> Self {
        let among = SampleSet::all(samples.total());
        Self { round, coalitions: vec![coalition], samples, among }
    }
}

/// What a test found.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// How many of the samples were predicted right.
    pub correct: usize,
    /// Which, where the principal learns it: not in HESV.
    pub right: Option<SampleSet>,
}

impl From<SampleSet> for TestResult {
    fn from(right: SampleSet) -> Self {
        Self { correct: right.len(), right: Some(right) }
    }
}

/// The principal server.
pub struct Principal {
    federation: Arc<Federation>,
    seed: Seed,
    costs: Option<UnitCosts>,
    hellos: BTreeMap<usize, Hello>,
    session: Option<Arc<Session>>,
    planner: Option<Planner>,
    public: Option<Arc<PublicKey>>,
    common: Option<Seed>,
    store: Store,
    secret: SecretServer,
    rounds: BTreeMap<RoundId, RoundState>,
    /// The earliest round first, so that few rounds are open at a time.
    queue: BTreeMap<(RoundId, u64), TestRequest>,
    tests: BTreeMap<u64, TestState>,
    units: BTreeMap<UnitId, UnitState>,
    halves: BTreeMap<Place, Halves>,
    verdicts: BTreeMap<UnitId, Vec<u8>>,
    roles: BTreeMap<(RoundId, Coalition, usize), attempts::Roles>,
    /// Clients that stay away: nothing is planned for them.
    away: Coalition,
    /// Clients without whom something cannot go on.
    awaited: Coalition,
    next_test: u64,
    results: Vec<(u64, Vec<TestResult>)>,
    over: Vec<Scope>,
    memory: memory::Memory,
    hesv: hesv::State,
}

#[derive(Default)]
struct RoundState {
    started: bool,
    /// Samples gathered, and whether their first layer has begun.
    gathered: BTreeMap<PassId, (Arc<Pass>, bool)>,
    own: BTreeMap<(PassId, usize), Vec<Vec<Ciphertext>>>,
    /// Messages as they came.
    other: BTreeMap<(PassId, usize), Vec<u8>>,
    /// First-layer outputs of every model, chunk by chunk.
    outputs: BTreeMap<(PassId, usize), Arc<Vec<Vec<Ciphertext>>>>,
}

struct TestState {
    request: TestRequest,
    /// For each coalition, the samples that it predicts right ...
    right: Vec<SampleSet>,
    /// ... or how many, where that is all that is learnt.
    counted: Vec<usize>,
    /// Groups whose samples are not tested yet, and by which coalition.
    units_left: BTreeSet<(usize, usize)>,
    /// Owners that have not tested models they know, and which coalitions' these are.
    owners_left: BTreeMap<usize, Vec<usize>>,
}

impl TestState {
    fn new(request: TestRequest) -> Self {
        let coalitions = request.coalitions.len();
        Self {
            right: vec![SampleSet::none(request.samples.total()); coalitions],
            counted: vec![0; coalitions],
            units_left: BTreeSet::new(),
            owners_left: BTreeMap::new(),
            request,
        }
    }

    /// A coalition's number in the request.
    fn number(&self, coalition: Coalition) -> Option<usize> {
        self.request.coalitions.iter().position(|other| *other == coalition)
    }
}

#[derive(Default)]
struct Halves {
    own: Option<Vec<Ciphertext>>,
    /// The message as it came.
    other: Option<Vec<u8>>,
}

impl Principal {
    /// A principal whose randomness follows from a seed. `costs` are this machine's, to choose packings by; needed
    /// wherever something is encrypted.
    pub fn new(federation: Arc<Federation>, costs: Option<UnitCosts>, seed: Seed) -> Self {
        Self {
            federation,
            seed,
            costs,
            hellos: BTreeMap::new(),
            session: None,
            planner: None,
            public: None,
            common: None,
            store: Store::default(),
            secret: SecretServer::default(),
            rounds: BTreeMap::new(),
            queue: BTreeMap::new(),
            tests: BTreeMap::new(),
            units: BTreeMap::new(),
            halves: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            roles: BTreeMap::new(),
            away: Coalition::EMPTY,
            awaited: Coalition::EMPTY,
            next_test: 0,
            results: Vec::new(),
            over: Vec::new(),
            memory: memory::Memory::default(),
            hesv: hesv::State::default(),
        }
    }

    /// The agreement, once everybody has published.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Who decrypts what, and what that leaves to be known.
    pub fn planner(&self) -> Option<&Planner> {
        self.planner.as_ref()
    }

    /// Asks for a test; returns its number.
    pub fn request(&mut self, request: TestRequest) -> Result<(u64, Effects<Self>), Error> {
        let test = self.next_test;
        Ok((test, self.request_as(test, request)?))
    }

    /// Tests that ended, with what they found for each coalition.
    pub fn take_results(&mut self) -> Vec<(u64, Vec<TestResult>)> {
        std::mem::take(&mut self.results)
    }

    /// Says that the models and outputs of a round that is open are not needed any more.
    pub fn close_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        if self.rounds.contains_key(&round) { self.end_round(round) } else { Ok(Effects::default()) }
    }

    /// The same whether it is open or not: an earlier process may have opened it and not said so.
    pub fn end_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        self.rounds.remove(&round);
        self.over.push(Scope::Round(round));
        self.secret.forget_round(round);
        self.store.forget_round(round);
        self.hesv.forget_round(round);
        let mut w = Writer::default();
        w.u8(1).u64(round.0.into());
        let content = w.finish();
        effects.outbox.extend(self.auxiliary().map(|to| Outgoing::new(to, Kind::Done, content)));
        // Others may come in its place.
        effects.and(self.pump()?);
        Ok(effects)
    }

    fn agreed(&self) -> Result<Arc<Session>, Error> {
        self.session.clone().ok_or(Error::Local { what: "the session" })
    }

    fn take(&mut self, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<Effects<Self>, Error> {
        let malformed = |why: CodecError| Error::Malformed { from, kind, why };
        let unexpected = |state| Error::Unexpected { from, kind, state };
        match (kind, from) {
            (Kind::Hello, PartyId::Client(client))
                if self.session.is_none() && client < self.federation.clients =>
            {
                let hello =
                    Hello::decode(&content, self.federation.program.operators.len()).map_err(malformed)?;
                if !self.federation.is_envelope_key(client, &hello.public_key) {
                    return Err(malformed(CodecError::Value { what: "envelope key" }));
                }
                self.hellos.insert(client, hello);
                return self.propose();
            }
            _ if self.session.is_none() => return Err(unexpected("clients introduce themselves")),
            _ => {}
        }
        if self.is_late(kind, &content) {
            return Ok(Effects::default());
        }
        if let Some(session) = self.session.clone().filter(|session| secret::takes(session, from, kind)) {
            return secret::take(self, &session, from, kind, content);
        }
        let session = self.agreed()?;
        if self.is_hesv() && kind != Kind::ClientKeys {
            return self.take_hesv(&session, from, kind, content);
        }
        match (kind, from) {
            (Kind::ServerKeys, PartyId::Client(leader)) if leader == session.leader => {
                let parameters = &session.encryption()?.parameters;
                let key = PublicKey::from_bytes(parameters, &content).map_err(|e| malformed(e.into()))?;
                self.public = Some(Arc::new(key));
                self.pump()
            }
            (Kind::ClientKeys, PartyId::Client(leader)) if leader == session.leader => {
                let mut r = Reader::new(&content);
                let to = r.u16().map_err(malformed)?;
                if to >= self.federation.clients {
                    return Err(malformed(CodecError::Value { what: "addressee" }));
                }
                let mut effects = Effects::default();
                effects.outbox.push(Outgoing::new(PartyId::Client(to), Kind::ClientKeys, r.rest().to_vec()));
                Ok(effects)
            }
            (Kind::Common, PartyId::Auxiliary) => {
                self.common = Some(Reader::new(&content).seed().map_err(malformed)?);
                self.pump()
            }
            (Kind::Data, PartyId::Client(owner)) => {
                let seed = Reader::new(&content).seed().map_err(malformed)?;
                let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
                let share = SeedShare::new(session.field(), rows, columns, seed).expand();
                self.store.data.insert(owner, Arc::new(share));
                self.pump()
            }
            (Kind::Model, PartyId::Client(owner)) => self.model(session, owner, content),
            (Kind::FirstLayer, PartyId::Auxiliary) => {
                let mut r = Reader::new(&content);
                let round = RoundId(r.u32().map_err(malformed)?);
                let pass: PassId = r.array().map_err(malformed)?;
                let chunk = r.u32().map_err(malformed)? as usize;
                if let Some(state) = self.rounds.get_mut(&round) {
                    // After a restart, outputs may come before the test that they are for, or after the last one.
                    let (chunks, room) = (session.chunks.len(), 4 * session.chunks.len());
                    let is_known = match state.gathered.get(&pass) {
                        Some((gathered, _)) => gathered.numbers().contains(&chunk),
                        None => chunk < chunks && (pass == EVERYTHING || state.other.len() < room),
                    };
                    if !is_known {
                        return Err(malformed(CodecError::Value { what: "chunk" }));
                    }
                    state.other.insert((pass, chunk), content);
                }
                self.combine(round, (pass, chunk))
            }
            (Kind::Half, PartyId::Auxiliary) => {
                let (place, _) = Place::decode(&content).map_err(malformed)?;
                self.halves.entry(place).or_default().other = Some(content);
                self.advance(place.unit)
            }
            (Kind::Opening, PartyId::Auxiliary) => {
                let (place, rest) = Place::decode(&content).map_err(malformed)?;
                let state = self.units.get_mut(&place.unit).ok_or(unexpected("no such test"))?;
                state.openings.entry(place.hop).or_default().other = Some(rest.to_vec());
                self.advance(place.unit)
            }
            (Kind::Verdict, PartyId::Auxiliary) => {
                let (place, rest) = Place::decode(&content).map_err(malformed)?;
                self.verdicts.insert(place.unit, rest.to_vec());
                self.advance(place.unit)
            }
            (Kind::Shared | Kind::Truth | Kind::Predicted | Kind::Triple, PartyId::Client(client)) => {
                self.client_share(&session, client, kind, &content)
            }
            (Kind::OwnResult, PartyId::Client(client)) => {
                self.own_result(&session, client, &content).map_err(malformed)?
            }
            _ => Err(unexpected("testing")),
        }
    }

    /// Once everybody has published: choose, and tell everybody.
    fn propose(&mut self) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        if self.hellos.len() < self.federation.clients {
            return Ok(effects);
        }
        let hellos: Vec<Hello> = self.hellos.values().cloned().collect();
        let leader = self.federation.leader();
        let proposal = Session::propose(&self.federation, leader, &hellos, self.costs.as_ref())?;
        let session = Session::decode(&self.federation, &proposal)
            .map_err(|_| Error::Local { what: "a proposal that decodes" })??;
        self.planner = Some(session.planner()?);
        self.session = Some(Arc::new(session));
        self.repeat_assignments()?;
        let clients = (0..self.federation.clients).map(PartyId::Client);
        let proposal = Arc::new(proposal);
        for to in clients.chain(self.auxiliary()) {
            effects.outbox.push(Outgoing::new(to, Kind::Session, proposal.clone()));
        }
        Ok(effects)
    }

    fn own_result(
        &mut self,
        session: &Session,
        client: usize,
        content: &[u8],
    ) -> Result<Result<Effects<Self>, Error>, CodecError> {
        let mut r = Reader::new(content);
        let test = r.u64()?;
        let state = self.tests.get_mut(&test).ok_or(CodecError::Value { what: "test" })?;
        let asked = state.owners_left.get(&client).ok_or(CodecError::Value { what: "test" })?;
        let found = asked.iter().map(|_| r.samples()).collect::<Result<Vec<_>, _>>()?;
        r.end()?;
        let (offset, own) = (session.offset(client), session.hellos[client].samples as usize);
        if found.iter().any(|right| right.total() != own) {
            return Err(CodecError::Value { what: "samples" });
        }
        for (number, right) in state.owners_left.remove(&client).into_iter().flatten().zip(found) {
            let asked = right.iter().filter(|k| state.request.samples.contains(offset + k));
            asked.for_each(|k| state.right[number].insert(offset + k));
        }
        Ok(self.finish(test))
    }

    fn client_share(
        &mut self,
        session: &Arc<Session>,
        client: usize,
        kind: Kind,
        content: &[u8],
    ) -> Result<Effects<Self>, Error> {
        let from = PartyId::Client(client);
        let malformed = |why| Error::Malformed { from, kind, why };
        let (place, rest) = Place::decode(content).map_err(malformed)?;
        let unexpected = Error::Unexpected { from, kind, state: "somebody else's part, or no such test" };
        let Some(state) = self.units.get_mut(&place.unit) else { return Err(unexpected) };
        let Some(context) = state.plan.clone() else { return Err(unexpected) };
        if !may_send(session, &context, client, kind, place.hop) {
            return Err(unexpected);
        }
        if session.encryption.is_none() && matches!(kind, Kind::Shared | Kind::Triple) {
            return secret::take_shared(self, session, &context, from, kind, place, rest);
        }
        let mut r = Reader::new(rest);
        let seed = r.seed().map_err(malformed)?;
        r.end().map_err(malformed)?;
        let (field, count) = (session.field(), context.places().len());
        let labels = |count: usize, seed: &Seed| session.label_field().expand(seed, count);
        match kind {
            Kind::Shared => {
                let rows = session.program().shared_size(place.hop);
                let share = SeedShare::new(field, rows, count, seed).expand();
                state.inputs.insert(place.hop, Arc::new(share));
            }
            Kind::Predicted => state.predicted = Some(labels(context.labels(), &seed)),
            Kind::Truth => {
                state.truths.insert(client, labels(context.labels_of(session, client), &seed));
            }
            _ => {
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let mut prg = Prg::new(&seed);
                let mut draw = || Share::new(Matrix::uniform(field, hidden, count, &mut prg));
                state.triples.insert(place.hop, Triple { a: draw(), b: draw(), c: draw() });
            }
        }
        self.advance(place.unit)
    }

    /// Starts whatever a unit has everything for.
    fn advance(&mut self, id: UnitId) -> Result<Effects<Self>, Error> {
        let session = self.agreed()?;
        if session.encryption.is_none() {
            return self.advance_secret(&session, id);
        }
        let mut effects = Effects::default();
        let Some(context) = self.units.get(&id).and_then(|state| state.plan.clone()) else {
            return Ok(effects);
        };
        if self.is_hesv() {
            return self.advance_hesv(&session, &context);
        }
        effects.and(self.first_replies(&session, &context)?);
        effects.and(self.bias_replies(&session, &context)?);
        effects.and(self.own_halves(&session, &context)?);
        effects.and(self.later_replies(&session, &context)?);
        effects.and(self.updates(&session, &context)?);
        effects.and(self.judge(&session, &context)?);
        Ok(effects)
    }

    fn advance_secret(&mut self, session: &Arc<Session>, id: UnitId) -> Result<Effects<Self>, Error> {
        let Some(context) = secret::Host::context(self, id) else { return Ok(Effects::default()) };
        let mut effects = secret::advance(self, session, &context)?;
        effects.and(self.judge(session, &context)?);
        Ok(effects)
    }

    fn send(&self, to: PartyId, kind: Kind, content: Vec<u8>) -> Effects<Self> {
        let mut effects = Effects::default();
        effects.outbox.push(Outgoing::new(to, kind, content));
        effects
    }

    /// Which predictions are right (Algorithm 4, steps 13 and 14).
    fn judge(&mut self, session: &Session, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let id = context.id;
        let Some(state) = self.units.get_mut(&id) else { return Ok(Effects::default()) };
        let (Some(predicted), true) = (&state.predicted, self.verdicts.contains_key(&id)) else {
            return Ok(Effects::default());
        };
        let Some(truth) = context.arranged(session, &state.truths) else { return Ok(Effects::default()) };
        let verdict = self.verdicts.remove(&id).unwrap_or_default();
        let field = session.label_field();
        let from = PartyId::Auxiliary;
        let malformed = |why| Error::Malformed { from, kind: Kind::Verdict, why };
        let other = field.unpack(context.labels(), &verdict).map_err(malformed)?;
        let differences = predicted.expose().iter().zip(truth.expose().iter()).zip(other.expose().iter());
        let mut is_right = differences.map(|((&p, &t), &other)| field.is_zero(p, t, other));
        let group = &session.groups[context.plan.group];
        let Some(test) = self.tests.get_mut(&asked(id.test)) else { return Ok(Effects::default()) };
        for (&coalition, selection) in context.plan.coalitions.iter().zip(&context.selections) {
            let number = test.number(coalition).ok_or(Error::Local { what: "a coalition of a test" })?;
            for &(owner, first, count) in &group.parts {
                let offset = session.offset(owner);
                for (&place, is_right) in selection.within(&(first..first + count)).iter().zip(&mut is_right)
                {
                    if is_right {
                        test.right[number].insert(offset + place - first);
                    }
                }
            }
            test.units_left.remove(&(id.group, number));
        }
        self.units.remove(&id);
        self.secret.forget_unit(id);
        self.finish(asked(id.test))
    }

    /// Ends a test that has everything.
    fn finish(&mut self, test: u64) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let ended =
            self.tests.get(&test).is_some_and(|t| t.units_left.is_empty() && t.owners_left.is_empty());
        if let Some(mut state) = ended.then(|| self.tests.remove(&test)).flatten() {
            let found = if self.is_hesv() {
                state.counted.iter().map(|&correct| TestResult { correct, right: None }).collect()
            } else {
                std::mem::take(&mut state.right).into_iter().map(TestResult::from).collect()
            };
            self.results.push((test, found));
            for number in self.numbers(test, &state.request) {
                self.over.push(Scope::Test(number));
                self.store.forget_test(number);
                self.hesv.forget_test(number);
                let mut w = Writer::default();
                w.u8(0).u64(number);
                let content = w.finish();
                effects.outbox.extend(self.auxiliary().map(|to| Outgoing::new(to, Kind::Done, content)));
            }
            effects.and(self.pump()?);
        }
        Ok(effects)
    }
}

impl secret::Host for Principal {
    const SIDE: PartyId = PartyId::Principal;

    fn secret(&mut self) -> &mut SecretServer {
        &mut self.secret
    }

    fn common(&self) -> Option<Seed> {
        self.common.clone()
    }

    fn units(&self) -> &BTreeMap<UnitId, UnitState> {
        &self.units
    }

    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error> {
        self.advance(unit)
    }

    fn prepared(&mut self) -> Result<Effects<Self>, Error> {
        self.pump()
    }
}

impl Role for Principal {
    fn handle(&mut self, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<Effects<Self>, Error> {
        self.take(from, kind, content)
    }

    fn take_over(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.over)
    }

    fn awaiting(&self) -> String {
        if self.session.is_none() {
            let missing = (0..self.federation.clients).filter(|c| !self.hellos.contains_key(c));
            let names: Vec<String> = missing.map(|c| PartyId::Client(c).to_string()).collect();
            return format!("principal: introductions of {}", names.join(", "));
        }
        if let Some(session) = self.session.as_ref().filter(|_| self.is_hesv()) {
            return self.awaiting_hesv(session);
        }
        let Some(session) = &self.session else { return waits_for(PartyId::Principal, &[]) };
        if session.encryption.is_none() {
            let units = self.units.values().filter_map(|state| state.plan.as_ref());
            return waits_for(PartyId::Principal, &self.secret.missing(session, PartyId::Principal, units));
        }
        let leader = PartyId::Client(session.leader);
        let mut all = Vec::new();
        all.extend(self.public.is_none().then(|| format!("{} from {leader}", Kind::ServerKeys)));
        all.extend(self.common.is_none().then(|| format!("{} from auxiliary", Kind::Common)));
        let rounds: Vec<RoundId> = self.rounds.keys().copied().collect();
        all.extend(missing_inputs(session, &self.store, &rounds));
        for (round, state) in &self.rounds {
            let halves = state.own.keys().filter(|chunk| !state.other.contains_key(chunk));
            all.extend(
                halves.map(|(_, chunk)| {
                    format!("{} {chunk} of round {round} from auxiliary", Kind::FirstLayer)
                }),
            );
        }
        for (place, _) in self.halves.iter().filter(|(_, h)| h.own.is_some() && h.other.is_none()) {
            let (test, group) = (place.unit.test, place.unit.group);
            let hop = place.hop;
            all.push(format!("{} of test {test} group {group} hop {hop} from auxiliary", Kind::Half));
        }
        for (test, state) in &self.tests {
            let owners = state.owners_left.keys().map(|&owner| PartyId::Client(owner));
            all.extend(owners.map(|owner| format!("{} of test {test} from {owner}", Kind::OwnResult)));
        }
        for (id, state) in &self.units {
            let lacks = missing(session, *id, state);
            if lacks.is_empty() && !self.verdicts.contains_key(id) {
                let (test, group) = (id.test, id.group);
                all.push(format!("{} of test {test} group {group} from auxiliary", Kind::Verdict));
            }
            all.extend(lacks);
        }
        waits_for(PartyId::Principal, &all)
    }
}

//! The first server (the paper's P): plans every test, adds both servers' halves up, sanitises replies and learns which
//! predictions are right. It sees shares and ciphertexts, no data, no models, no labels.

mod attempts;
mod first_layer;
pub(crate) mod hesv;
mod later_layers;
mod persistence;
mod replies;
mod results;
mod schedule;
pub(crate) mod split;

use attempts::base_test;
pub(crate) use attempts::plan_of;
pub use persistence::Assignment;
use results::TestState;
pub use results::{TestRequest, TestResult};
pub(crate) use schedule::most_active;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use secsv_algebra::{Matrix, Prg, Seed, SeedShare, Share};
use secsv_federation::{Coalition, RoundId};
use secsv_he::{Ciphertext, PublicKey, UnitCosts};

use crate::{
    Error, PartyId, check,
    decryptors::Planner,
    error::CodecError,
    first_layer_batch::FirstLayerBatch,
    labels,
    message::{
        ActivationShare, ClientHello, CommonSeed, DataShare, DifferenceShare, FirstLayerBatchId, Head, Kind,
        LabelBody, LabelShare, LayerHalf, MaskedFactors, PredictionShare, RoundFinished, SealedClientKeys,
        Server, ServerKeys, ServerPublicKey, ShareBody, StepAddress, TripleShare, UnitId,
    },
    precision::Ranges,
    role::{Digest, Effects, Incoming, Outgoing, Role},
    scope::Scope,
    secret::{self, SecretServer},
    server::{
        Store, Triple, UnitContext, UnitState, may_send, missing, missing_inputs, products_of, tell_key,
        waits_for,
    },
    session::{Federation, Session, formats},
    views::{SeenMessage, View, server_view},
};

/// Numbers that the samples of one client may have in all, 2 GiB as words: a seed stands for as many at the principal.
const MAX_SAMPLE_ELEMENTS: u64 = 1 << 28;

/// The principal server.
pub struct Principal {
    federation: Arc<Federation>,
    seed: Seed,
    costs: Option<UnitCosts>,
    hellos: BTreeMap<usize, ClientHello>,
    session: Option<Arc<Session>>,
    planner: Option<Planner>,
    public: Option<Arc<PublicKey>>,
    common: Option<Seed>,
    /// Clients to whom the leader's envelope was sent on.
    relayed: BTreeSet<usize>,
    store: Store,
    secret: SecretServer,
    /// Stretches that are open, by their first rounds, as everything here that is about a round.
    rounds: BTreeMap<RoundId, RoundState>,
    /// The earliest round first, so that few rounds are open at a time.
    queue: BTreeMap<(RoundId, u64), TestRequest>,
    tests: BTreeMap<u64, TestState>,
    units: BTreeMap<UnitId, UnitState>,
    halves: BTreeMap<StepAddress, Halves>,
    verdicts: BTreeMap<UnitId, Vec<u8>>,
    roles: BTreeMap<(RoundId, Coalition, usize), attempts::Roles>,
    /// Rounds and groups in which others have taken somebody's place.
    replaced: BTreeSet<(RoundId, usize)>,
    /// Clients that stay away: nothing is planned for them.
    away: Coalition,
    /// Clients without whom something cannot go on.
    awaited: Coalition,
    next_test: u64,
    results: Vec<(u64, Vec<TestResult>)>,
    finished: Vec<Scope>,
    persistence: persistence::Persistence,
    hesv: hesv::HesvServer,
}

#[derive(Default)]
struct RoundState {
    started: bool,
    /// Samples gathered, and whether their first layer has begun.
    gathered: BTreeMap<FirstLayerBatchId, (Arc<FirstLayerBatch>, bool)>,
    own: BTreeMap<(FirstLayerBatchId, usize), Vec<Vec<Ciphertext>>>,
    /// Messages as they came.
    other: BTreeMap<(FirstLayerBatchId, usize), Incoming>,
    /// First-layer outputs of every model, chunk by chunk.
    outputs: BTreeMap<(FirstLayerBatchId, usize), Arc<FirstOutputs>>,
}

/// First-layer outputs of every model on a chunk.
struct FirstOutputs {
    /// Model by model.
    ciphertexts: Vec<Vec<Ciphertext>>,
    /// Of the auxiliary's half, where there is one.
    half: Digest,
}

#[derive(Default)]
struct Halves {
    own: Option<Vec<Ciphertext>>,
    /// The message as it came.
    other: Option<Incoming>,
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
            relayed: BTreeSet::new(),
            store: Store::default(),
            secret: SecretServer::default(),
            rounds: BTreeMap::new(),
            queue: BTreeMap::new(),
            tests: BTreeMap::new(),
            units: BTreeMap::new(),
            halves: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            roles: BTreeMap::new(),
            replaced: BTreeSet::new(),
            away: Coalition::EMPTY,
            awaited: Coalition::EMPTY,
            next_test: 0,
            results: Vec::new(),
            finished: Vec::new(),
            persistence: persistence::Persistence::default(),
            hesv: hesv::HesvServer::default(),
        }
    }

    /// The agreement, once everybody has published.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// What it saw, from the messages it received and sent.
    pub fn view(&self, received: &[SeenMessage], sent: &[SeenMessage]) -> Result<View, Error> {
        let protocol = self.federation.settings.protocol;
        server_view(self.session.as_deref(), protocol, PartyId::Principal, received, sent)
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
        self.finished.push(Scope::Round(round));
        self.secret.forget_round(round);
        self.store.forget_round(round);
        self.hesv.forget_round(round);
        effects.outbox.extend(self.auxiliary().map(|to| Outgoing::of(to, &RoundFinished { round })));
        // Others may come in its place.
        effects.and(self.pump()?);
        Ok(effects)
    }

    fn agreed(&self) -> Result<Arc<Session>, Error> {
        self.session.clone().ok_or(Error::Local { what: "the session" })
    }

    fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let Incoming { from, kind, ref content, .. } = message;
        let malformed = |why: CodecError| Error::Malformed { from, kind, why };
        let unexpected = |state| Error::Unexpected { from, kind, state };
        if self.session.is_none() {
            return self.introduction(&message);
        }
        if self.is_late(kind, content) {
            return Ok(Effects::default());
        }
        let session = self.agreed()?;
        if !kind.is_of(self.federation.settings.protocol) {
            return Err(unexpected("another protocol"));
        }
        if secret::takes(&session, from, kind) {
            return secret::take(self, &session, message);
        }
        if self.is_hesv() && kind != Kind::SealedClientKeys {
            return self.take_hesv(&session, message);
        }
        match (kind, from) {
            // Once: clients were told which one it is.
            (Kind::ServerKeys, PartyId::Client(leader))
                if leader == session.leader && self.public.is_none() =>
            {
                self.take_server_keys(&session, &message)
            }
            (Kind::SealedClientKeys, PartyId::Client(leader)) if leader == session.leader => {
                self.relay(leader, &message)
            }
            (Kind::CommonSeed, PartyId::Auxiliary) => {
                let CommonSeed { seed } = message.read(&())?;
                self.common = Some(seed);
                self.pump()
            }
            (Kind::DataShare, PartyId::Client(owner)) if owner < session.hellos.len() => {
                self.data_share(&session, owner, &message)
            }
            (Kind::Model, PartyId::Client(owner)) => self.model(session, owner, message),
            (Kind::FirstLayerHalf, PartyId::Auxiliary) => self.first_half(&session, message),
            (Kind::LayerHalf, PartyId::Auxiliary) => self.layer_half(&session, message),
            (Kind::MaskedFactors, PartyId::Auxiliary) => {
                let factors: MaskedFactors<'_> = message.read(&())?;
                let unit = factors.address.unit;
                let state = self.units.get_mut(&unit).ok_or(unexpected("no such test"))?;
                state.take_masked(&session, factors).map_err(malformed)?;
                self.advance(unit)
            }
            (Kind::DifferenceShare, PartyId::Auxiliary) => self.difference_share(&session, &message),
            (
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple,
                PartyId::Client(client),
            ) => self.client_share(&session, client, message),
            (Kind::OwnResult, PartyId::Client(client)) => {
                self.own_result(&session, client, content).map_err(malformed)?
            }
            _ => Err(unexpected("testing")),
        }
    }

    /// What a client publishes, before there is a session.
    fn introduction(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        match (message.kind, message.from) {
            (Kind::ClientHello, PartyId::Client(client)) if client < self.federation.clients => {
                let hello: ClientHello = message.read(&self.federation.program.operators.len())?;
                if !self.federation.is_envelope_key(client, &hello.public_key) {
                    return Err(message.malformed(CodecError::Value { what: "envelope key" }));
                }
                let elements = hello.samples.saturating_mul(self.federation.program.input_size as u64);
                if elements > MAX_SAMPLE_ELEMENTS {
                    let (expected, found) = (MAX_SAMPLE_ELEMENTS, elements);
                    let why = CodecError::TooLarge { what: "numbers of all samples", expected, found };
                    return Err(message.malformed(why));
                }
                self.check_ranges(client, &hello)?;
                self.hellos.insert(client, hello);
                self.propose()
            }
            _ => Err(message.unexpected("clients introduce themselves")),
        }
    }

    /// Refuses numbers that leave no format beside those of clients that came before.
    fn check_ranges(&self, client: usize, hello: &ClientHello) -> Result<(), Error> {
        let others = self.hellos.iter().filter(|(other, _)| **other != client).map(|(_, hello)| hello);
        let ranges = Ranges::union(others.chain([hello]).map(|hello| &hello.ranges));
        let from = PartyId::Client(client);
        match ranges.map(|ranges| formats(&self.federation, &ranges)) {
            Some(Err(Error::Precision { layer, needed, available })) => {
                Err(Error::Ranges { from, layer, needed, available })
            }
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The leader's public key.
    fn take_server_keys(&mut self, session: &Session, message: &Incoming) -> Result<Effects<Self>, Error> {
        let ServerKeys { public } = message.read(&())?;
        let key = PublicKey::from_bytes(&session.encryption()?.parameters, public);
        self.public = Some(Arc::new(key.map_err(|e| message.malformed(e.into()))?));
        self.store.digests.insert((message.kind, session.leader), message.digest);
        let mut effects = tell_key(session, &ServerPublicKey { public });
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// Hands an envelope of the leader's to whom it is for.
    fn relay(&mut self, leader: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let sealed: SealedClientKeys<'_> = message.read(&())?;
        if sealed.client >= self.federation.clients || sealed.client == leader {
            return Err(message.malformed(CodecError::Value { what: "addressee" }));
        }
        // Once: whoever has one refuses another, and whatever comes behind it.
        if !self.relayed.insert(sealed.client) {
            return Err(message.unexpected("the envelope was sent on"));
        }
        Ok(Effects::send(Outgoing::of(PartyId::Client(sealed.client), &sealed)))
    }

    /// The principal's share of an owner's samples.
    fn data_share(
        &mut self,
        session: &Session,
        owner: usize,
        message: &Incoming,
    ) -> Result<Effects<Self>, Error> {
        let DataShare { share: ShareBody::Seed(seed) } = message.read(&Server::Principal)? else {
            return Err(message.unexpected("a seed"));
        };
        self.store.digests.insert((message.kind, owner), message.digest);
        let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
        let share = SeedShare::new(session.field(), rows, columns, seed).expand();
        self.store.data.insert(owner, Arc::new(share));
        let mut effects = self.pump()?;
        let open: Vec<RoundId> = self.rounds.keys().copied().collect();
        for round in open {
            effects.and(self.first_layer(round)?);
        }
        Ok(effects)
    }

    /// The auxiliary's share of the differences of a unit's labels.
    fn difference_share(&mut self, session: &Session, message: &Incoming) -> Result<Effects<Self>, Error> {
        let DifferenceShare { address, labels } = message.read(&())?;
        let context = self.units.get(&address.unit).and_then(|state| state.plan.as_ref());
        let context = context.ok_or_else(|| message.unexpected("no such test"))?;
        labels::check_len(context.label_bytes(session), labels).map_err(|why| message.malformed(why))?;
        self.verdicts.insert(address.unit, labels.to_vec());
        self.advance(address.unit)
    }

    /// Once everybody has published: choose, and tell everybody.
    fn propose(&mut self) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        if self.hellos.len() < self.federation.clients {
            return Ok(effects);
        }
        let hellos: Vec<ClientHello> = self.hellos.values().cloned().collect();
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

    /// The auxiliary's halves of a later layer's outputs.
    fn layer_half(&mut self, session: &Session, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let LayerHalf { address, ciphertexts } = message.read(&())?;
        let context = self.units.get(&address.unit).and_then(|state| state.plan.as_ref());
        let context = context.ok_or_else(|| message.unexpected("no such test"))?;
        let mut products = products_of(session);
        let found = products.find(|(step, item, ..)| (*step, *item) == (address.step, address.item));
        let (.., operator, _) = found.ok_or(malformed(CodecError::Value { what: "step" }))?;
        let columns = session.program().operators[operator].positions * context.places().len();
        let layout = &session.encryption()?.layouts[operator];
        let count = layout.batches(columns) * layout.rows();
        check::ciphertexts(session, count, &ciphertexts).map_err(malformed)?;
        self.halves.entry(address).or_default().other = Some(message);
        self.advance(address.unit)
    }

    fn client_share(
        &mut self,
        session: &Arc<Session>,
        client: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let kind = message.kind;
        let address = Head::step(kind, &message.content);
        let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
        let unexpected = message.unexpected("somebody else's part, or no such test");
        let Some(state) = self.units.get_mut(&address.unit) else { return Err(unexpected) };
        let Some(context) = state.plan.clone() else { return Err(unexpected) };
        if !may_send(session, &context, client, kind, address) {
            return Err(unexpected);
        }
        match kind {
            Kind::ActivationShare if session.encryption.is_none() => {
                return secret::take_shared(self, session, &context, message);
            }
            Kind::Triple if session.encryption.is_none() => {
                return secret::take_triple(self, session, &context, &message);
            }
            _ => seed_share(state, session, &context, client, &message)?,
        }
        self.advance(address.unit)
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
}

/// The principal's share of what a client shares in a unit: all of it the stream of a seed.
fn seed_share(
    state: &mut UnitState,
    session: &Session,
    context: &UnitContext,
    client: usize,
    message: &Incoming,
) -> Result<(), Error> {
    let (field, count, kind) = (session.field(), context.places().len(), message.kind);
    let no_seed = || message.unexpected("a seed");
    match kind {
        Kind::ActivationShare => {
            let ActivationShare { address, share } = message.read(&Server::Principal)?;
            let ShareBody::Seed(seed) = share else { return Err(no_seed()) };
            let rows = session.program().shared_size(address.step);
            let share = SeedShare::new(field, rows, count, seed).expand();
            state.inputs.insert(address.step, Arc::new(share));
            state.input_digests.insert(address.step, message.digest);
        }
        Kind::PredictionShare => {
            let PredictionShare { share, .. } = message.read(&Server::Principal)?;
            let LabelBody::Seed(seed) = share else { return Err(no_seed()) };
            state.predicted = Some(labels::expand(&seed, context.label_bytes(session)));
            state.seeds.insert((kind, client), seed);
        }
        Kind::LabelShare => {
            let LabelShare { share, .. } = message.read(&Server::Principal)?;
            let LabelBody::Seed(seed) = share else { return Err(no_seed()) };
            let truth = labels::expand(&seed, context.truth_bytes(session, client));
            state.truths.insert(client, truth);
            state.seeds.insert((kind, client), seed);
        }
        _ => {
            let TripleShare { address, seed, .. } = message.read(&Server::Principal)?;
            let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
            let mut prg = Prg::new(&seed);
            let mut draw = || Share::new(Matrix::uniform(field, hidden, count, &mut prg));
            state.triples.insert(address.step, Triple { a: draw(), b: draw(), c: draw() });
        }
    }
    Ok(())
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
    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        self.on_message(message)
    }

    fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
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
            let units = self.units.values().filter(|unit| !unit.judged);
            let units = units.filter_map(|state| state.plan.as_ref());
            return waits_for(PartyId::Principal, &self.secret.missing(session, PartyId::Principal, units));
        }
        let leader = PartyId::Client(session.leader);
        let mut all = Vec::new();
        all.extend(self.public.is_none().then(|| format!("{} from {leader}", Kind::ServerKeys)));
        all.extend(self.common.is_none().then(|| format!("{} from auxiliary", Kind::CommonSeed)));
        let rounds: Vec<RoundId> = self.rounds.keys().copied().collect();
        all.extend(missing_inputs(session, &self.store, &rounds));
        for (round, state) in &self.rounds {
            let halves = state.own.keys().filter(|chunk| !state.other.contains_key(chunk));
            all.extend(halves.map(|(_, chunk)| {
                format!("{} {chunk} of round {round} from auxiliary", Kind::FirstLayerHalf)
            }));
        }
        for (address, _) in self.halves.iter().filter(|(_, h)| h.own.is_some() && h.other.is_none()) {
            let (test, group) = (address.unit.test, address.unit.group);
            let step = address.step;
            all.push(format!("{} of test {test} group {group} step {step} from auxiliary", Kind::LayerHalf));
        }
        for (test, state) in &self.tests {
            let owners = state.owners_left.keys().map(|&owner| PartyId::Client(owner));
            all.extend(owners.map(|owner| format!("{} of test {test} from {owner}", Kind::OwnResult)));
        }
        for (id, state) in self.units.iter().filter(|(_, state)| !state.judged) {
            let lacks = missing(session, *id, state);
            if lacks.is_empty() && !self.verdicts.contains_key(id) {
                let (test, group) = (id.test, id.group);
                all.push(format!("{} of test {test} group {group} from auxiliary", Kind::DifferenceShare));
            }
            all.extend(lacks);
        }
        waits_for(PartyId::Principal, &all)
    }
}

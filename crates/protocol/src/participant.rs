//! A client's part in tests: labels, triples, and step after step what it is assigned to decrypt.

mod engine;
mod input;
mod key_exchange;
mod known_models;
pub(crate) mod labels;
mod samples;
mod view;

pub(crate) use engine::{
    ClientEngine, KeyHolder, Matrices, PartId, ReceivedParts, Source, check_output_share, open_shares,
    output_shape, part_of,
};
pub use input::{ClientInput, model_digest, test_set_digest};
pub(crate) use key_exchange::{ClientSecrets, KeyCheck, KeyExchange, lead};
pub use known_models::own_right;
pub(crate) use samples::share_samples;
pub(crate) use view::{ClientReading, StepParts, Unasked, numbers_of, of_model};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Matrix, Prg, Ring, Secret, Seed};

use crate::{
    Error, PartyId,
    activation::Activator,
    codec::pack,
    early::Early,
    error::CodecError,
    message::{Head, Kind, RoundStart, Server, StepAddress, TestPlan, TripleShare, UnitId},
    role::{Digest, Effects, Incoming, Outgoing, Phase, waits_for},
    session::{Federation, Session},
    test_id::TestId,
    unit::{UnitContext, Update, check_plan, updates_of},
};

/// Who a client is, and what it brings.
#[derive(Clone)]
pub(crate) struct Identity {
    pub federation: Arc<Federation>,
    pub position: usize,
    pub input: Arc<ClientInput>,
    /// All its randomness follows from it.
    pub seed: Seed,
    /// Of the samples: what is dealt for them depends on it.
    pub samples: Digest,
}

impl Identity {
    pub(crate) fn party(&self) -> PartyId {
        PartyId::Client(self.position)
    }
}

/// A client that takes part in tests.
pub(crate) struct Testing<E: ClientEngine> {
    pub identity: Identity,
    pub engine: E,
    units: BTreeMap<UnitId, DecryptorUnit>,
    /// Parts of units that were not announced yet.
    early_parts: Early,
}

/// A unit that this client decrypts a step of.
struct DecryptorUnit {
    context: Arc<UnitContext>,
    /// What came for each step.
    parts: BTreeMap<usize, ReceivedParts>,
    state: DecryptorState,
    /// Steps that were begun.
    begun: BTreeSet<usize>,
}

/// A unit at a decryptor, by what it waits for.
enum DecryptorState {
    /// The parts of a step.
    Parts(Activator),
    /// A step, which is handed on.
    Step,
}

impl DecryptorUnit {
    /// What is not there yet of the first step that this client decrypts, in words.
    fn missing<E: ClientEngine>(&self, engine: &E, position: usize) -> Vec<String> {
        let (UnitId { test, group, .. }, context) = (self.context.id, &self.context);
        let is_next = |step: &usize| context.decryptor(*step) == position && !self.begun.contains(step);
        let Some(step) = (0..engine.session().program().steps.len()).find(is_next) else { return Vec::new() };
        let there = self.parts.get(&step);
        let absent = |key: &PartId| !there.is_some_and(|parts| parts.contains_key(key));
        let name = |(_, source): PartId| {
            let (kind, from) = match source {
                Source::Share(server) => (Kind::OutputShare, server.party()),
                Source::Chunk(_) => (Kind::Reply, PartyId::Principal),
            };
            format!("{kind} of test {test} group {group} step {step} from {from}")
        };
        engine.expected_parts(context, step).into_iter().filter(absent).map(name).collect()
    }
}

impl<E: ClientEngine> Testing<E> {
    pub(crate) fn new(identity: Identity, engine: E) -> Self {
        Self { identity, engine, units: BTreeMap::new(), early_parts: Early::default() }
    }

    /// The agreement.
    pub(crate) fn session(&self) -> &Session {
        self.engine.session()
    }

    pub(crate) fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        match (message.kind, message.from) {
            (Kind::RoundStart, PartyId::Principal) => {
                let RoundStart { round } = message.read(&())?;
                E::begin_round(self, round).map_err(malformed)
            }
            (Kind::Test, PartyId::Principal) => {
                let plan: TestPlan = message.read(&())?;
                check_plan(self.session(), &plan).map_err(malformed)?;
                self.join_test(&plan)
            }
            (Kind::OwnTest, PartyId::Principal) => self.own_test(&message),
            (Kind::Reply, PartyId::Principal)
            | (Kind::OutputShare, PartyId::Principal | PartyId::Auxiliary) => self.take_part(message),
            _ => E::on_message(self, message),
        }
    }

    /// Takes part in a test: as owner with labels, as dealer with triples, as decryptor later.
    fn join_test(&mut self, plan: &TestPlan) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let contexts = UnitContext::of(self.session(), plan)?;
        let is_another = |context: &UnitContext| {
            self.units.get(&context.id).is_some_and(|known| known.context.digest != context.digest)
        };
        if contexts.iter().any(is_another) {
            return Err(Error::Second { from: PartyId::Principal, kind: Kind::Test });
        }
        let position = self.identity.position;
        for context in contexts.into_iter().map(Arc::new) {
            self.engine.on_announced(&self.identity, &context);
            if context.owners(self.session()).any(|owner| owner == position) {
                effects.and(E::share_labels(self, &context));
            }
            if context.plan.dealer == Some(position) {
                self.deal(&context, &mut effects);
            }
            if context.decrypts(position) {
                effects.and(self.decrypt_unit(context)?);
            }
        }
        Ok(effects)
    }

    /// Takes up a unit of which this client decrypts something, with parts that came before it was announced.
    fn decrypt_unit(&mut self, context: Arc<UnitContext>) -> Result<Effects<Self>, Error> {
        let (id, state) = (context.id, DecryptorState::Parts(Activator::default()));
        let unit = DecryptorUnit { context, parts: BTreeMap::new(), state, begun: BTreeSet::new() };
        self.units.insert(id, unit);
        let is_due = |message: &Incoming| {
            Head::step(message.kind, &message.content).is_some_and(|address| address.unit == id)
        };
        let mut effects = Effects::default();
        for message in self.early_parts.take(is_due) {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(self.take_part(message).or_else(Error::unless_of_peer)?);
        }
        Ok(effects)
    }

    /// Multiplication triples for the gated sums: the principal's shares from a seed, the auxiliary's factors too.
    fn deal(&self, context: &Arc<UnitContext>, effects: &mut Effects<Self>) {
        for Update { step, .. } in updates_of(self.session()) {
            let address = StepAddress::new(context.id, step);
            let seed = address.seed(&self.identity.seed, "triple").covering(&context.digest);
            let shape = (self.session().program().hidden(), context.places().len());
            let ring = self.engine.ring();
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let outbox = triple(ring, shape, &seed, address);
                Ok(move |_: &mut Self| Ok(Effects { outbox, jobs: Vec::new() }))
            });
        }
    }

    /// Takes a part of what a step needs.
    fn take_part(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let address = Head::step(message.kind, &message.content).ok_or(malformed(CodecError::Truncated))?;
        let share = Server::of(message.from).filter(|_| message.kind == Kind::OutputShare);
        let Some(unit) = self.units.get_mut(&address.unit) else {
            // The principal announces a test before it sends anything about it; the auxiliary may be faster.
            if share != Some(Server::Auxiliary) {
                return Err(message.unexpected("no such test"));
            }
            self.early_parts.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        if address.step >= self.engine.session().program().steps.len() {
            return Err(malformed(CodecError::Value { what: "step" }));
        }
        let is_own = unit.context.decryptor(address.step) == self.identity.position;
        if !is_own || unit.begun.contains(&address.step) {
            return Err(message.unexpected("not this client's step"));
        }
        let part = (address.item, share.map_or(Source::Chunk(address.chunk), Source::Share));
        let is_only = share.is_none() || address.chunk == 0;
        if !is_only || !self.engine.expected_parts(&unit.context, address.step).contains(&part) {
            return Err(malformed(CodecError::Value { what: "item or chunk" }));
        }
        let checked = self.engine.check_part(&unit.context, address.step, part, &message.content);
        checked.map_err(malformed)?;
        unit.parts.entry(address.step).or_default().insert(part, message.content);
        Ok(self.advance(address.unit, address.step))
    }

    /// Decrypts, activates and shares once everything a step needs is there (Algorithm 4, steps 7 to 11).
    fn advance(&mut self, id: UnitId, step: usize) -> Effects<Self> {
        let Some(unit) = self.units.get_mut(&id) else { return Effects::default() };
        let expected = self.engine.expected_parts(&unit.context, step);
        let is_whole = |parts: &ReceivedParts| expected.iter().all(|key| parts.contains_key(key));
        if !unit.parts.get(&step).is_some_and(is_whole) {
            return Effects::default();
        }
        match std::mem::replace(&mut unit.state, DecryptorState::Step) {
            DecryptorState::Step => Effects::default(),
            DecryptorState::Parts(activator) => {
                let parts = unit.parts.remove(&step).unwrap_or_default();
                unit.begun.insert(step);
                let context = unit.context.clone();
                E::hand_on(self, context, step, activator, parts)
            }
        }
    }

    /// Goes on with what came in the meantime, or lets the unit go after its last step here.
    pub(crate) fn after_step(&mut self, id: UnitId, step: usize, activator: Activator) -> Effects<Self> {
        let mut effects = Effects::default();
        let (steps, position) = (self.session().program().steps.len(), self.identity.position);
        let Some(unit) = self.units.get_mut(&id) else { return effects };
        if (step + 1..steps).all(|later| unit.context.decryptor(later) != position) {
            self.units.remove(&id);
            return effects;
        }
        unit.state = DecryptorState::Parts(activator);
        let waiting: Vec<usize> = unit.parts.keys().copied().collect();
        for step in waiting {
            effects.and(self.advance(id, step));
        }
        effects
    }

    /// Lets a unit go.
    pub(crate) fn forget_unit(&mut self, id: UnitId) {
        self.units.remove(&id);
    }

    /// Lets the units of a test go.
    pub(crate) fn forget_test(&mut self, test: TestId) {
        self.units.retain(|id, _| id.test != test);
        self.engine.forget_test(test);
    }

    pub(crate) fn awaiting(&self) -> String {
        let position = self.identity.position;
        let missing = self.units.values().flat_map(|unit| unit.missing(&self.engine, position));
        waits_for(self.identity.party(), &missing.collect::<Vec<_>>())
    }
}

/// A multiplication triple, entry by entry: the principal's shares from a seed, the auxiliary's factors too.
fn triple<R: Ring>(
    ring: R,
    (rows, columns): (usize, usize),
    seed: &Seed,
    address: StepAddress,
) -> Vec<Outgoing> {
    let (principal, auxiliary) = (seed.derive("principal", 0), seed.derive("auxiliary", 0));
    let mut first = Prg::new(&principal);
    let mut second = Prg::new(&auxiliary);
    let draw = |prg: &mut Prg| Secret::new(Matrix::uniform(ring, rows, columns, prg));
    let (a1, b1, c1) = (draw(&mut first), draw(&mut first), draw(&mut first));
    let (a2, b2) = (draw(&mut second), draw(&mut second));
    let rest: Vec<u64> = (0..rows * columns)
        .map(|i| {
            let [a1, b1, c1, a2, b2] = [&a1, &b1, &c1, &a2, &b2].map(|m| m.expose().elements()[i]);
            ring.sub(ring.mul(ring.add(a1, a2), ring.add(b1, b2)), c1)
        })
        .collect();
    let rest = pack(ring, &rest);
    let shares = [
        (PartyId::Principal, TripleShare { address, seed: principal, product: None }),
        (PartyId::Auxiliary, TripleShare { address, seed: auxiliary, product: Some(&rest) }),
    ];
    shares.iter().map(|(to, share)| Outgoing::of(*to, share)).collect()
}

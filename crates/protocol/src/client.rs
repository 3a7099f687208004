//! A client (silo): encrypts its models, shares its samples, decrypts what it is assigned to, activates and shares
//! again. One of them, the leader, makes the secrets all clients have in common.

mod hesv;

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Field, Matrix, Prg, Ring, Ring64, Secret, Seed, share::split as share};
use secsv_federation::{
    Coalition, CollectiveTestSet, RoundId, SampleSet, TestSet, Weights,
    clear::{Parameters, correct_samples},
};
use secsv_he::{Reply, SecretKey};

use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::{Reader, Writer, pack, unpack_matrix},
    error::CodecError,
    message::{Hello, Kind, Place, TestPlan, UnitId, join_after, split},
    model::{EncodedModel, ranges, sample_values},
    program::{Input, Receive},
    role::{Effects, Meter, Outgoing, Phase, Role},
    sealed::EnvelopeKeys,
    server::{UnitContext, check_plan, waits_for, wanted_batches},
    session::{Federation, Session},
};

mod secret;

/// What a silo brings: its samples and the models it has from training.
pub struct ClientInput {
    /// Its test set.
    pub test_set: TestSet,
    /// The models it trained, by round.
    pub local: BTreeMap<RoundId, Weights>,
    /// The aggregates of the rounds.
    pub global: BTreeMap<RoundId, Weights>,
    /// The model before the first round.
    pub initial: Weights,
}

/// A client.
pub struct Client {
    federation: Arc<Federation>,
    position: usize,
    input: Arc<ClientInput>,
    seed: Seed,
    envelopes: EnvelopeKeys,
    session: Option<Arc<Session>>,
    key: Option<Arc<SecretKey>>,
    label_secret: Option<Seed>,
    units: BTreeMap<UnitId, UnitState>,
    early: Vec<(PartyId, Kind, Vec<u8>)>,
    values: Option<Vec<u8>>,
    hesv: hesv::State,
}

#[derive(Default)]
struct UnitState {
    context: Option<Arc<UnitContext>>,
    /// What came for each hop: replies by item and chunk, shares by item and server.
    parts: BTreeMap<usize, BTreeMap<(usize, usize), Vec<u8>>>,
    activator: Option<Activator>,
    done: Vec<usize>,
}

impl UnitState {
    /// What is not there yet of the hops that this client has a seat at.
    fn missing(&self, session: &Session, id: UnitId, own: PartyId) -> Vec<String> {
        let UnitId { test, group } = id;
        let Some(context) = &self.context else {
            return vec![format!("the announcement of test {test} from principal")];
        };
        let seated = |hop: &usize| {
            let seat = context.client(session.program().hops[*hop].seat);
            seat.is_ok_and(|client| PartyId::Client(client) == own) && !self.done.contains(hop)
        };
        let Some(hop) = (0..session.program().hops.len()).find(seated) else { return Vec::new() };
        let there = self.parts.get(&hop);
        let absent = |key: &(usize, usize)| !there.is_some_and(|parts| parts.contains_key(key));
        let name = |(item, part): (usize, usize)| {
            let (kind, from) = match session.program().hops[hop].receives[item] {
                Receive::Update { .. } if part == FROM_AUXILIARY => (Kind::OutputShare, PartyId::Auxiliary),
                Receive::Update { .. } => (Kind::OutputShare, PartyId::Principal),
                _ => (Kind::Reply, PartyId::Principal),
            };
            format!("{kind} of test {test} group {group} hop {hop} from {from}")
        };
        expected_parts(session, context, hop).into_iter().filter(absent).map(name).collect()
    }
}

/// Messages kept until what they refer to is known.
const MOST_EARLY: usize = 100_000;
/// Marks a share from the auxiliary among a hop's parts.
const FROM_AUXILIARY: usize = usize::MAX;

impl Client {
    /// A client whose randomness follows from a seed, its envelope keys too.
    pub fn new(federation: Arc<Federation>, position: usize, input: ClientInput, seed: Seed) -> Self {
        let envelopes = EnvelopeKeys::derive(&seed.derive("envelopes", 0));
        Self::with_envelope_keys(federation, position, input, seed, envelopes)
    }

    /// A client whose envelope keys the others know already (see [`Federation::among`]).
    pub fn with_envelope_keys(
        federation: Arc<Federation>,
        position: usize,
        input: ClientInput,
        seed: Seed,
        envelopes: EnvelopeKeys,
    ) -> Self {
        Self {
            federation,
            position,
            input: Arc::new(input),
            seed,
            envelopes,
            session: None,
            key: None,
            label_secret: None,
            units: BTreeMap::new(),
            early: Vec::new(),
            values: None,
            hesv: hesv::State::default(),
        }
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// Publishes what the others need to know (DESIGN 3.2).
    pub fn start(&mut self) -> Effects<Self> {
        let mut effects = Effects::default();
        let (federation, input, public_key) =
            (self.federation.clone(), self.input.clone(), self.envelopes.public());
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let own: Vec<&Weights> = input.local.values().collect();
            let known: Vec<&Weights> = input.global.values().chain([&input.initial]).collect();
            let ranges = ranges(&federation.program, &own, &known, &input.test_set);
            let hello = Hello { samples: input.test_set.len() as u64, ranges, public_key };
            Ok(move |role: &mut Self| Ok(role.send(PartyId::Principal, Kind::Hello, hello.encode())))
        });
        effects
    }

    fn send(&self, to: PartyId, kind: Kind, content: impl Into<Arc<Vec<u8>>>) -> Effects<Self> {
        let mut effects = Effects::default();
        effects.outbox.push(Outgoing::new(to, kind, content));
        effects
    }

    fn id(&self) -> PartyId {
        PartyId::Client(self.position)
    }

    fn take(&mut self, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<Effects<Self>, Error> {
        let malformed = |why: CodecError| Error::Malformed { from, kind, why };
        let unexpected = |state| Error::Unexpected { from, kind, state };
        match (kind, from) {
            (Kind::Session, PartyId::Principal) if self.session.is_none() => {
                let session = Arc::new(Session::decode(&self.federation, &content).map_err(malformed)??);
                self.session = Some(session.clone());
                return if session.leader == self.position {
                    self.lead(&session)
                } else {
                    Ok(Effects::default())
                };
            }
            _ if self.session.is_none() => return Err(unexpected("the session has not begun")),
            _ => {}
        }
        let session = self.session.clone().ok_or(Error::Local { what: "the session" })?;
        match (kind, from) {
            (Kind::ClientKeys, PartyId::Principal) if self.label_secret.is_none() => {
                let leader = PartyId::Client(session.leader);
                let sender = &session.hellos[session.leader].public_key;
                let info = envelope_info(&session);
                let opened = self.envelopes.open(leader, self.id(), sender, &info, &content)?;
                let Some((key, labels)) = opened.expose().split_first_chunk::<32>() else {
                    return Err(malformed(CodecError::Truncated));
                };
                let labels: [u8; 32] = labels.try_into().map_err(|_| malformed(CodecError::Truncated))?;
                self.adopt(&session, Seed::from_bytes(*key), Seed::from_bytes(labels))
            }
            (Kind::RoundStart, PartyId::Principal) => {
                let round = RoundId(Reader::new(&content).u32().map_err(malformed)?);
                if session.encryption.is_none() {
                    return self.secret_round(&session, round).map_err(malformed);
                }
                if !self.input.local.contains_key(&round) {
                    return Err(malformed(CodecError::Value { what: "round" }));
                }
                self.upload_model(&session, round)
            }
            (Kind::Test, PartyId::Principal) => {
                let plan = TestPlan::decode(&content).map_err(malformed)?;
                check_plan(&session, &plan).map_err(malformed)?;
                self.join_test(&session, &plan)
            }
            (Kind::Values, PartyId::Principal) if self.values.is_none() => {
                self.values = Some(content);
                Ok(Effects::default())
            }
            (Kind::OwnTest, PartyId::Principal) => self.own_test(&content).map_err(malformed),
            (Kind::Reply, PartyId::Principal) if session.encryption.is_none() => {
                Err(unexpected("outputs are shared"))
            }
            (Kind::Reply, PartyId::Principal) => self.part(&session, &content, None).map_err(malformed)?,
            (Kind::Differences, PartyId::Principal) if self.is_hesv() => {
                self.count_right(&session, &content).map_err(malformed)
            }
            (Kind::OutputShare, PartyId::Principal) => {
                self.part(&session, &content, Some(0)).map_err(malformed)?
            }
            (Kind::OutputShare, PartyId::Auxiliary) => {
                self.part(&session, &content, Some(FROM_AUXILIARY)).map_err(malformed)?
            }
            _ => Err(unexpected("testing")),
        }
    }

    /// The leader makes the clients' key and their common secret (Algorithm 3, step 2).
    fn lead(&mut self, session: &Arc<Session>) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (key, labels) =
            (self.seed.derive("clients' key", 0), self.seed.derive("clients' label secret", 0));
        let secrets = Secret::new([*key.expose(), *labels.expose()].concat());
        let info = envelope_info(session);
        let position = self.position;
        for client in (0..self.federation.clients).filter(|&c| c != position) {
            let mut rng = Prg::new(&self.seed.derive("envelope", client as u64));
            let (from, to) = (self.id(), PartyId::Client(client));
            let receiver = &session.hellos[client].public_key;
            let sealed = self.envelopes.seal(from, to, receiver, &info, secrets.expose(), &mut rng)?;
            let mut w = Writer::default();
            w.u16(client).raw(&sealed);
            effects.and(self.send(PartyId::Principal, Kind::ClientKeys, w.finish()));
        }
        if session.encryption.is_none() {
            effects.and(self.adopt(session, key, labels)?);
            return Ok(effects);
        }
        let parameters = &session.encryption()?.parameters;
        let secret = SecretKey::from_seed(parameters, key.clone());
        let public = secret.public_key(&mut Prg::new(&self.seed.derive("public key", 0))).to_bytes();
        if self.is_hesv() {
            let keys = self.evaluation_keys(session, &secret, &public)?;
            effects.and(self.send(PartyId::Principal, Kind::ServerKeys, keys));
        } else {
            let public = Arc::new(public);
            effects.and(self.send(PartyId::Principal, Kind::ServerKeys, public.clone()));
            effects.and(self.send(PartyId::Auxiliary, Kind::ServerKeys, public));
        }
        effects.and(self.adopt(session, key, labels)?);
        Ok(effects)
    }

    /// Takes the clients' secrets over, and shares the samples (Algorithm 3, step 3).
    fn adopt(&mut self, session: &Arc<Session>, key: Seed, labels: Seed) -> Result<Effects<Self>, Error> {
        if session.encryption.is_none() {
            return self.adopt_secret(session, labels);
        }
        let parameters = &session.encryption()?.parameters;
        self.key = Some(Arc::new(SecretKey::from_seed(parameters, key)));
        self.label_secret = Some(labels);
        let mut effects = Effects::default();
        if self.is_hesv() {
            effects.and(self.upload_data(session)?);
        }
        let (session, input, seed) = (session.clone(), self.input.clone(), self.seed.derive("data share", 0));
        if !input.test_set.is_empty() && !self.is_hesv() {
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let field = session.field();
                let values = sample_values(session.program(), &input.test_set);
                let samples = Secret::new(values.encode(field, session.precision.operators[0].input, 1)?);
                let (seeded, rest) = share(samples.expose(), seed);
                let rest = pack(field, rest.expose().elements());
                Ok(move |role: &mut Self| {
                    let mut effects =
                        role.send(PartyId::Principal, Kind::Data, seeded.seed().expose().to_vec());
                    effects.and(role.send(PartyId::Auxiliary, Kind::Data, rest));
                    Ok(effects)
                })
            });
        }
        for (from, kind, content) in std::mem::take(&mut self.early) {
            effects.and(self.take(from, kind, content)?);
        }
        Ok(effects)
    }

    /// Encrypts the model of a round for both servers.
    fn upload_model(&mut self, session: &Arc<Session>, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (session, input) = (session.clone(), self.input.clone());
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        let seed = self.seed.derive("model", round.0.into());
        effects.job(move |meter| {
            meter.enter(Phase::Encrypt);
            let encryption = session.encryption()?;
            let weights = input.local.get(&round).ok_or(Error::Local { what: "the model of a round" })?;
            let model = Secret::new(EncodedModel::new(
                session.program(),
                &session.precision,
                session.field(),
                weights,
            )?);
            let mut rng = Prg::new(&seed);
            let mut parts = Vec::new();
            for (layout, operator) in encryption.layouts.iter().zip(&model.expose().operators) {
                parts.push(layout.encrypt_to_bytes(
                    &key,
                    &operator.weight,
                    &mut rng,
                    &mut meter.operations,
                )?);
                let bias = layout.encrypt_bias(&key, &operator.bias, &mut rng, &mut meter.operations)?;
                parts.push(bias.to_bytes(&encryption.parameters));
            }
            let mut w = Writer::default();
            w.u32(round.0);
            let content = Arc::new(join_after(w, &parts));
            Ok(move |role: &mut Self| {
                let mut effects = role.send(PartyId::Principal, Kind::Model, content.clone());
                if !role.is_hesv() {
                    effects.and(role.send(PartyId::Auxiliary, Kind::Model, content));
                }
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Tests a model this client knows on its own samples, in the clear.
    fn own_test(&mut self, content: &[u8]) -> Result<Effects<Self>, CodecError> {
        let mut r = Reader::new(content);
        let (test, round, coalition) = (r.u64()?, RoundId(r.u32()?), Coalition::from_bits(r.u128()?));
        let samples = r.samples()?;
        r.end()?;
        if samples.total() != self.input.test_set.len() {
            return Err(CodecError::Value { what: "samples" });
        }
        let mut effects = Effects::default();
        let (federation, input, position) = (self.federation.clone(), self.input.clone(), self.position);
        let counts = self.is_hesv();
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let right = own_right(&federation, position, &input, round, coalition, &samples)?;
            let mut w = Writer::default();
            if counts {
                w.u64(test).u64(right.len() as u64);
            } else {
                w.u64(test).samples(&right);
            }
            let content = w.finish();
            Ok(move |role: &mut Self| Ok(role.send(PartyId::Principal, Kind::OwnResult, content)))
        });
        Ok(effects)
    }

    /// Takes part in a test: as owner with blinded labels, as dealer with triples, as decryptor later.
    fn join_test(&mut self, session: &Arc<Session>, plan: &TestPlan) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        for context in UnitContext::of(session, plan) {
            let (id, context) = (context.id, Arc::new(context));
            self.await_differences(&context);
            if context.owners(session).any(|owner| owner == self.position) {
                effects.and(self.truth(session, &context)?);
            }
            if context.plan.dealer == Some(self.position) {
                self.deal(session, &context, &mut effects);
            }
            let seated =
                session.program().hops.iter().any(|hop| context.client(hop.seat) == Ok(self.position));
            if seated {
                let state = self.units.entry(id).or_default();
                state.context = Some(context.clone());
                state.activator = Some(Activator::default());
                let hops: Vec<usize> = state.parts.keys().copied().collect();
                for hop in hops {
                    effects.and(self.advance(session, id, hop)?);
                }
            }
        }
        Ok(effects)
    }

    /// Shares of the blinded labels (DESIGN 3.12).
    fn truth(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>) -> Result<Effects<Self>, Error> {
        if self.is_hesv() {
            return self.encrypted_truth(session, context);
        }
        let mut effects = Effects::default();
        let secret = self.label_secret.clone().ok_or(Error::Local { what: "the label secret" })?;
        let place = Place::new(context.id, 0);
        let seed = self.seed.derive("truth", context.id.test).derive("truth", place.number());
        let (session, context, input, position) =
            (session.clone(), context.clone(), self.input.clone(), self.position);
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let places = session.groups[context.plan.group].places(position);
            let wanted = places.clone().filter(|&p| context.plan.samples.contains(p));
            let labels =
                wanted.map(|p| (p, input.test_set.labels()[p - places.start] as u64)).collect::<Vec<_>>();
            let (seeded, rest) = blinded(&session, &secret, &context, &labels, seed)?;
            Ok(move |role: &mut Self| Ok(role.send_share(Kind::Truth, place, &seeded, &rest)))
        });
        Ok(effects)
    }

    fn send_share(&mut self, kind: Kind, place: Place, seed: &Seed, rest: &[u8]) -> Effects<Self> {
        let mut effects = self.send(PartyId::Principal, kind, place.encode(seed.expose()));
        effects.and(self.send(PartyId::Auxiliary, kind, place.encode(rest)));
        effects
    }

    /// Multiplication triples for the gated sums: the principal's shares from a seed, the auxiliary's factors too.
    fn deal(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>, effects: &mut Effects<Self>) {
        for (hop, ..) in crate::server::updates_of(session) {
            let place = Place::new(context.id, hop);
            let seed = self.seed.derive("triple", context.id.test).derive("triple", place.number());
            let (session, context) = (session.clone(), context.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let shape = (hidden, context.places.len());
                let (principal, rest) = match session.encryption {
                    Some(_) => triple(session.field(), shape, &seed),
                    None => triple(Ring64, shape, &seed),
                };
                Ok(move |role: &mut Self| Ok(role.send_share(Kind::Triple, place, &principal, &rest)))
            });
        }
    }

    /// Keeps a part of what a hop needs.
    fn part(
        &mut self,
        session: &Arc<Session>,
        content: &[u8],
        server: Option<usize>,
    ) -> Result<Result<Effects<Self>, Error>, CodecError> {
        let (place, rest) = Place::decode(content)?;
        if place.hop >= session.program().hops.len() || self.units.len() > MOST_EARLY {
            return Err(CodecError::Value { what: "hop" });
        }
        let state = self.units.entry(place.unit).or_default();
        let parts = state.parts.entry(place.hop).or_default();
        if parts.len() > MOST_EARLY {
            return Err(CodecError::Value { what: "parts" });
        }
        parts.insert((place.item, server.unwrap_or(place.chunk)), rest.to_vec());
        Ok(self.advance(session, place.unit, place.hop))
    }

    /// Decrypts, activates and shares once everything a hop needs is there (Algorithm 4, steps 7 to 11).
    fn advance(&mut self, session: &Arc<Session>, id: UnitId, hop: usize) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let Some(state) = self.units.get_mut(&id) else { return Ok(effects) };
        let Some(context) = state.context.clone() else { return Ok(effects) };
        let step = &session.program().hops[hop];
        if context.client(step.seat)? != self.position || state.done.contains(&hop) {
            return Err(Error::Unexpected {
                from: PartyId::Principal,
                kind: Kind::Reply,
                state: "not this client's hop",
            });
        }
        let expected: Vec<(usize, usize)> = expected_parts(session, &context, hop);
        let Some(parts) =
            state.parts.get(&hop).filter(|parts| expected.iter().all(|key| parts.contains_key(key)))
        else {
            return Ok(effects);
        };
        let _ = parts;
        let Some(mut activator) = state.activator.take() else { return Ok(effects) };
        let parts = state.parts.remove(&hop).unwrap_or_default();
        state.done.push(hop);
        if session.encryption.is_none() {
            return self.hand_on_secret(session, context, hop, activator, parts);
        }
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        let secret = self.label_secret.clone().ok_or(Error::Local { what: "the label secret" })?;
        let place = Place::new(id, hop);
        let seed = self.seed.derive("shared", id.test).derive("shared", place.number());
        let last = session.program().hops.len() - 1;
        let session = session.clone();
        effects.job(move |meter| {
            let received = receive(&session, &context, hop, &key, &parts, meter)?;
            meter.enter(Phase::Activate);
            let total = session.total_weight(context.round, context.coalition);
            let received = received.expose();
            let handed = activator.step(session.program(), &session.precision, hop, total, &received.0)?;
            let encrypted = hesv::encrypted(&session, hop, &handed, &key, &seed, meter)?;
            meter.enter(Phase::Share);
            let (kind, seeded, rest) = match handed {
                _ if encrypted.is_some() => (Kind::Shared, seed, Vec::new()),
                Handed::Shared(matrix) => {
                    let matrix = Secret::new(matrix);
                    let (seeded, rest) = share(matrix.expose(), seed);
                    (Kind::Shared, seeded.seed().clone(), pack(session.field(), rest.expose().elements()))
                }
                Handed::Labels(labels) => {
                    let labels: Vec<(usize, u64)> =
                        context.places.iter().copied().zip(labels.into_iter().map(|l| l as u64)).collect();
                    let (seeded, rest) = blinded(&session, &secret, &context, &labels, seed)?;
                    (Kind::Predicted, seeded, rest)
                }
            };
            Ok(move |role: &mut Self| {
                let mut effects = match encrypted {
                    Some((kind, content)) => role.send(PartyId::Principal, kind, place.encode(&content)),
                    None => role.send_share(kind, place, &seeded, &rest),
                };
                if let Some(state) = role.units.get_mut(&id) {
                    state.activator = Some(activator);
                    let next: Vec<usize> = state.parts.keys().copied().collect();
                    let mine = |hop: &usize| {
                        session
                            .program()
                            .hops
                            .get(*hop)
                            .is_some_and(|h| context.client(h.seat) == Ok(role.position))
                    };
                    let more = (hop + 1..=last).any(|hop| mine(&hop));
                    if !more {
                        role.units.remove(&id);
                    }
                    for hop in next.into_iter().filter(|_| more) {
                        effects.and(role.advance(&session, id, hop)?);
                    }
                }
                Ok(effects)
            })
        });
        Ok(effects)
    }
}

fn envelope_info(session: &Session) -> Vec<u8> {
    [&session.federation.digest()[..], &(session.leader as u16).to_le_bytes()].concat()
}

/// The samples of its own that a model predicts right which this client knows from training.
pub fn own_right(
    federation: &Federation,
    position: usize,
    input: &ClientInput,
    round: RoundId,
    coalition: Coalition,
    samples: &SampleSet,
) -> Result<SampleSet, Error> {
    let architecture = &federation.architecture;
    let participants = federation.participants(round);
    let of = |weights: Option<&Weights>| {
        weights
            .map(|w| Parameters::new(architecture, w))
            .ok_or(Error::Local { what: "a model this client should have" })
    };
    let model = if coalition.is_empty() {
        of(Some(&input.initial))?
    } else if coalition == participants {
        of(input.global.get(&round))?
    } else if coalition == Coalition::EMPTY.with(position) {
        of(input.local.get(&round))?
    } else if participants.contains(position) && coalition == participants.without(position) {
        // The aggregate less the own share of it.
        let sizes = federation.rounds.get(&round).map_or(&[][..], |sizes| sizes);
        let (total, own) =
            (sizes.iter().sum::<u64>() as f64, sizes.get(position).copied().unwrap_or(0) as f64);
        let (global, local) = (of(input.global.get(&round))?, of(input.local.get(&round))?);
        let mut rest = global.clone();
        rest.add_scaled(&global, own / (total - own));
        rest.add_scaled(&local, -own / (total - own));
        rest
    } else {
        return Err(Error::Local { what: "a model this client does not know" });
    };
    let test_set = CollectiveTestSet::new(architecture.input_size(), [&input.test_set])
        .ok_or(Error::Local { what: "samples of the model's size" })?;
    Ok(correct_samples(architecture, &model, &test_set, samples))
}

/// A multiplication triple, entry by entry: the principal's shares from a seed, the auxiliary's factors too.
fn triple<R: Ring>(ring: R, (rows, columns): (usize, usize), seed: &Seed) -> (Seed, Vec<u8>) {
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
    let mut w = Writer::default();
    w.seed(&auxiliary).raw(&pack(ring, &rest));
    (principal, w.finish())
}

/// Shares of labels times blinding factors.
fn blinded(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    labels: &[(usize, u64)],
    seed: Seed,
) -> Result<(Seed, Vec<u8>), Error> {
    let field = session.field();
    let blinds = Secret::new(session.blinds(secret, context.round, context.coalition, context.plan.group));
    let elements = labels.iter().map(|&(place, label)| field.mul(blinds.expose()[place], label)).collect();
    let blinded = Secret::new(Matrix::new(field, 1, labels.len(), elements)?);
    let (seeded, rest) = share(blinded.expose(), seed);
    Ok((seeded.seed().clone(), pack(field, rest.expose().elements())))
}

/// Which parts a hop is made of.
fn expected_parts(session: &Session, context: &UnitContext, hop: usize) -> Vec<(usize, usize)> {
    let receives = session.program().hops[hop].receives.iter().enumerate();
    receives
        .flat_map(|(item, receive)| match receive {
            _ if session.encryption.is_none() => vec![(item, 0), (item, FROM_AUXILIARY)],
            Receive::Outputs { input: Input::Data, .. } => {
                let chunks = context.pass.wanted_chunks(&context.plan.samples);
                chunks.map(|chunk| (item, chunk)).collect()
            }
            Receive::Outputs { .. } | Receive::Bias { .. } => vec![(item, 0)],
            Receive::Update { .. } if crate::hesv::is_hesv(session) => vec![(item, 0)],
            Receive::Update { .. } => vec![(item, 0), (item, FROM_AUXILIARY)],
        })
        .collect()
}

/// Matrices that are wiped.
struct Matrices(Vec<Matrix<Field>>);

impl zeroize::Zeroize for Matrices {
    fn zeroize(&mut self) {
        self.0.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
}

/// Decrypts or reconstructs everything a hop receives.
fn receive(
    session: &Session,
    context: &UnitContext,
    hop: usize,
    key: &SecretKey,
    parts: &BTreeMap<(usize, usize), Vec<u8>>,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices>, Error> {
    let field = session.field();
    let count = context.places.len();
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, receive) in session.program().hops[hop].receives.iter().enumerate() {
        let part = |chunk: usize| parts.get(&(item, chunk)).ok_or(Error::Local { what: "a part of a hop" });
        let matrix = match *receive {
            Receive::Outputs { operator, input: Input::Data, first, count: positions } => {
                let rows = session.program().operators[operator].shape.d_out;
                let mut matrix = Matrix::zero(field, rows, positions * count);
                for chunk in context.pass.wanted_chunks(&context.plan.samples) {
                    let outputs = chunk_outputs(
                        session,
                        context,
                        operator,
                        (first, positions),
                        chunk,
                        key,
                        part(chunk)?,
                        meter,
                    )?;
                    let length = context.pass.length(chunk);
                    // Both ascend.
                    let mut wanted = context.places.iter().enumerate().peekable();
                    for (k, place) in context.pass.places(chunk).enumerate() {
                        while wanted.next_if(|(_, wanted)| **wanted < place).is_some() {}
                        let Some((column, _)) = wanted.next_if(|(_, wanted)| **wanted == place) else {
                            continue;
                        };
                        for (position, row) in (0..positions).flat_map(|p| (0..rows).map(move |r| (p, r))) {
                            let source = (first + position) * length + k;
                            matrix.set(row, position * count + column, outputs.expose().at(row, source));
                        }
                    }
                }
                matrix
            }
            Receive::Outputs { operator, count: positions, .. } => {
                decrypt(session, operator, positions * count, |_| true, key, part(0)?, meter)?
            }
            Receive::Bias { operator } => decrypt(session, operator, count, |_| true, key, part(0)?, meter)?,
            Receive::Update { .. } if crate::hesv::is_hesv(session) => {
                hesv::opened_sum(session, context, key, part(0)?, meter)?
            }
            Receive::Update { .. } => {
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let open = |from, bytes: &[u8]| {
                    unpack_matrix(field, hidden, count, bytes).map_err(|why| Error::Malformed {
                        from,
                        kind: Kind::OutputShare,
                        why,
                    })
                };
                let own = open(PartyId::Principal, part(0)?)?;
                own.add(&open(PartyId::Auxiliary, part(FROM_AUXILIARY)?)?)?
            }
        };
        received.expose_mut().0.push(matrix);
    }
    Ok(received)
}

/// First-layer outputs of a chunk, where they are wanted.
#[expect(clippy::too_many_arguments, reason = "what a chunk is, what is wanted of it, and how to read it")]
fn chunk_outputs(
    session: &Session,
    context: &UnitContext,
    operator: usize,
    (first, positions): (usize, usize),
    chunk: usize,
    key: &SecretKey,
    bytes: &[u8],
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrix<Field>>, Error> {
    let columns = session.program().operators[operator].positions * context.pass.length(chunk);
    let wants = context.pass.wants(&context.plan.samples, chunk, (first, positions));
    decrypt(session, operator, columns, wants, key, bytes, meter).map(Secret::new)
}

/// Decrypts the batches that hold wanted columns.
fn decrypt(
    session: &Session,
    operator: usize,
    columns: usize,
    wants: impl Fn(usize) -> bool,
    key: &SecretKey,
    bytes: &[u8],
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let malformed = |why| Error::Malformed { from: PartyId::Principal, kind: Kind::Reply, why };
    let encryption = session.encryption()?;
    let layout = &encryption.layouts[operator];
    let batches = wanted_batches(layout, columns, wants);
    let replies = split(bytes).map_err(malformed)?;
    if replies.len() != batches.len() * layout.rows() {
        return Err(malformed(CodecError::Value { what: "number of replies" }));
    }
    let mut product = Matrix::zero(session.field(), layout.shape().d_out, columns);
    for (i, bytes) in replies.iter().enumerate() {
        meter.enter(Phase::Codec);
        let reply = Reply::from_bytes(&encryption.parameters, bytes).map_err(|e| malformed(e.into()))?;
        meter.enter(Phase::Decrypt);
        let elements = key.decrypt_reply(layout.packing(), &reply, &mut meter.operations)?;
        layout.read(i % layout.rows(), batches[i / layout.rows()], elements.expose(), &mut product)?;
    }
    Ok(product)
}

impl Role for Client {
    fn handle(&mut self, from: PartyId, kind: Kind, content: Vec<u8>) -> Result<Effects<Self>, Error> {
        let needs_key = !matches!(kind, Kind::Session | Kind::ClientKeys | Kind::OwnTest);
        if needs_key && self.label_secret.is_none() && self.session.is_some() {
            // The leader's envelope is still on its way.
            if self.early.len() >= MOST_EARLY {
                return Err(Error::Unexpected { from, kind, state: "the clients' key has not come" });
            }
            self.early.push((from, kind, content));
            return Ok(Effects::default());
        }
        self.take(from, kind, content)
    }

    fn awaiting(&self) -> String {
        let own = self.id();
        match (&self.session, &self.label_secret) {
            (None, _) => format!("{own}: the session from principal"),
            (_, None) => format!("{own}: the leader's envelope"),
            (Some(session), Some(_)) => {
                let all: Vec<String> =
                    self.units.iter().flat_map(|(id, state)| state.missing(session, *id, own)).collect();
                waits_for(own, &all)
            }
        }
    }
}

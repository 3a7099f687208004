//! A client's part in tests: blinded labels, triples, and step after step what it is assigned to decrypt.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Matrix, Prg, Ring, Ring64, Secret, Seed, share::split as share};
use secsv_federation::{Coalition, RoundId};

use super::{
    Client, hesv,
    received::{FROM_AUXILIARY, Matrices, check_part, expected_parts, receive, receive_together},
};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::{Writer, pack},
    combinations::{Derivation, Outputs},
    error::CodecError,
    labels::{self, Labels, Packed, Wiped},
    message::{Kind, Place, TestPlan, UnitId},
    program::{DecryptionStep, Receive, Then},
    role::{Effects, Incoming, Phase},
    server::{UnitContext, recount::commitment, updates_of},
    session::Session,
};

/// A unit that this client has a slot in.
pub(super) struct UnitState {
    context: Arc<UnitContext>,
    /// What came for each step: replies by item and chunk, shares by item and server.
    parts: BTreeMap<usize, BTreeMap<(usize, usize), Vec<u8>>>,
    activator: Option<Activator>,
    done: Vec<usize>,
}

impl UnitState {
    /// What is not there yet of the steps that this client has a slot at.
    pub(super) fn missing(&self, session: &Session, id: UnitId, own: PartyId) -> Vec<String> {
        let (UnitId { test, group, .. }, context) = (id, &self.context);
        let decryptors = |step: &usize| {
            let slot = context.client(session.program().steps[*step].slot);
            slot.is_ok_and(|client| PartyId::Client(client) == own) && !self.done.contains(step)
        };
        let Some(step) = (0..session.program().steps.len()).find(decryptors) else { return Vec::new() };
        let there = self.parts.get(&step);
        let absent = |key: &(usize, usize)| !there.is_some_and(|parts| parts.contains_key(key));
        let name = |(item, part): (usize, usize)| {
            let (kind, from) = match session.program().steps[step].receives.get(item) {
                Some(Receive::Update { .. }) if part == FROM_AUXILIARY => {
                    (Kind::OutputShare, PartyId::Auxiliary)
                }
                Some(Receive::Update { .. }) => (Kind::OutputShare, PartyId::Principal),
                _ => (Kind::Reply, PartyId::Principal),
            };
            format!("{kind} of test {test} group {group} step {step} from {from}")
        };
        expected_parts(session, context, step).into_iter().filter(absent).map(name).collect()
    }
}

impl Client {
    /// Takes part in a test: as owner with blinded labels, as dealer with triples, as decryptor later.
    pub(super) fn join_test(
        &mut self,
        session: &Arc<Session>,
        plan: &TestPlan,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let contexts = UnitContext::of(session, plan);
        let is_another = |context: &UnitContext| {
            self.units.get(&context.id).is_some_and(|known| known.context.digest != context.digest)
        };
        if contexts.iter().any(is_another) {
            return Err(Error::Second { from: PartyId::Principal, kind: Kind::Test });
        }
        for context in contexts {
            let (id, context) = (context.id, Arc::new(context));
            self.await_differences(&context);
            if context.owners(session).any(|owner| owner == self.position) {
                effects.and(self.truth(session, &context)?);
            }
            if context.plan.dealer == Some(self.position) {
                self.deal(session, &context, &mut effects);
            }
            let decryptors =
                session.program().steps.iter().any(|step| context.client(step.slot) == Ok(self.position));
            if decryptors {
                let activator = Some(Activator::default());
                let state = UnitState { context, parts: BTreeMap::new(), activator, done: Vec::new() };
                self.units.insert(id, state);
                let is_due = |message: &Incoming| {
                    Place::decode(&message.content).is_ok_and(|(place, _)| place.unit == id)
                };
                for message in self.early_parts.take(is_due) {
                    let taken = self.part(session, message, Some(FROM_AUXILIARY));
                    // It was kept before it could be judged: if it is at fault, it has no effect.
                    effects.and(taken.or_else(Error::unless_of_peer)?);
                }
            }
        }
        Ok(effects)
    }

    /// Shares of the blinded labels (PROTOCOL.md 2).
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
            let mut packed = labels::empty(context.truth_bytes(&session, position));
            for (round, number) in context.shared_truths(&session, position) {
                for segment in context.segments(&session, number).filter(|(owner, ..)| *owner == position) {
                    let label = |&place: &usize| input.test_set.labels()[place - segment.1] as u16;
                    let labels = Labels::new(Wiped(segment.2.iter().map(label).collect()));
                    let model = (round, context.plan.coalitions[number]);
                    blind(&session, &secret, model, segment, labels.expose(), &mut packed);
                }
            }
            let seed = seed.covering(&context.digest).covering(packed.expose());
            let rest = labels::rest(packed, &seed);
            Ok(move |role: &mut Self| Ok(role.send_share(Kind::Truth, place, &seed, &rest)))
        });
        Ok(effects)
    }

    /// A share for each server, and for the auxiliary, of labels, a commitment to the seed that the principal's is.
    pub(super) fn send_share(&mut self, kind: Kind, place: Place, seed: &Seed, rest: &[u8]) -> Effects<Self> {
        let mut effects = self.send(PartyId::Principal, kind, place.encode(seed.expose()));
        let to_auxiliary = if matches!(kind, Kind::Truth | Kind::Predicted) {
            place.encode(&[&commitment(self.id(), kind, place, seed)[..], rest].concat())
        } else {
            place.encode(rest)
        };
        effects.and(self.send(PartyId::Auxiliary, kind, to_auxiliary));
        effects
    }

    /// Multiplication triples for the gated sums: the principal's shares from a seed, the auxiliary's factors too.
    fn deal(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>, effects: &mut Effects<Self>) {
        for (step, ..) in updates_of(session) {
            let place = Place::new(context.id, step);
            let seed = self.seed.derive("triple", context.id.test).derive("triple", place.number());
            let seed = seed.covering(&context.digest);
            let (session, context) = (session.clone(), context.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let shape = (hidden, context.places().len());
                let (principal, rest) = match session.encryption {
                    Some(_) => triple(session.field(), shape, &seed),
                    None => triple(Ring64, shape, &seed),
                };
                Ok(move |role: &mut Self| Ok(role.send_share(Kind::Triple, place, &principal, &rest)))
            });
        }
    }

    /// Keeps a part of what a step needs.
    pub(super) fn part(
        &mut self,
        session: &Arc<Session>,
        message: Incoming,
        server: Option<usize>,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let (place, rest) = Place::decode(&message.content).map_err(malformed)?;
        let Some(state) = self.units.get_mut(&place.unit) else {
            // The principal announces a test before it sends anything about it; the auxiliary may be faster.
            if server != Some(FROM_AUXILIARY) {
                return Err(message.unexpected("no such test"));
            }
            self.early_parts.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        let context = state.context.clone();
        let step =
            session.program().steps.get(place.step).ok_or(malformed(CodecError::Value { what: "step" }))?;
        if context.client(step.slot) != Ok(self.position) || state.done.contains(&place.step) {
            return Err(message.unexpected("not this client's step"));
        }
        let key = (place.item, server.unwrap_or(place.chunk));
        check_part(session, &context, place.step, key, rest).map_err(malformed)?;
        state.parts.entry(place.step).or_default().insert(key, rest.to_vec());
        self.advance(session, place.unit, place.step)
    }

    /// Decrypts, activates and shares once everything a step needs is there (Algorithm 4, steps 7 to 11).
    fn advance(&mut self, session: &Arc<Session>, id: UnitId, step: usize) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let Some(state) = self.units.get_mut(&id) else { return Ok(effects) };
        let context = state.context.clone();
        let expected = expected_parts(session, &context, step);
        let is_whole = |parts: &BTreeMap<_, _>| expected.iter().all(|key| parts.contains_key(key));
        if !state.parts.get(&step).is_some_and(is_whole) {
            return Ok(effects);
        }
        let Some(mut activator) = state.activator.take() else { return Ok(effects) };
        let parts = state.parts.remove(&step).unwrap_or_default();
        state.done.push(step);
        if session.encryption.is_none() {
            return self.hand_on_secret(session, context, step, activator, parts);
        }
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        let secret = self.label_secret.clone().ok_or(Error::Local { what: "the label secret" })?;
        let place = Place::new(id, step);
        let seed = self.seed.derive("shared", id.test).derive("shared", place.number());
        let session = session.clone();
        if session.federation.tests_together() {
            effects.job(move |meter| {
                let decrypted = receive_together(&session, &context, &key, &parts, meter)?;
                let height = session.program().operators[0].shape.d_out;
                let mut packed = labels::empty(context.label_bytes(&session));
                // The same for all rounds.
                let (combinations, coalitions) = (context.combinations(&session), &context.plan.coalitions);
                let derivation =
                    Derivation::new(session.field(), combinations, coalitions, &context.selections);
                for (k, &round) in context.rounds.iter().enumerate() {
                    meter.enter(Phase::Activate);
                    let of_round =
                        |matrix: &Matrix<_>| Outputs::of_rows(matrix, k * height..(k + 1) * height);
                    let received: Vec<Outputs> = decrypted.expose().0.iter().map(of_round).collect();
                    let mut found = found_together(&session, &context, round, &derivation, &received)?;
                    meter.enter(Phase::Share);
                    blind_together(&session, &secret, &context, round, &mut found);
                    packed.expose_mut().extend_from_slice(found.expose());
                }
                let seed = seed.covering(&context.digest).covering(packed.expose());
                let rest = labels::rest(packed, &seed);
                Ok(move |role: &mut Self| {
                    role.units.remove(&context.id);
                    Ok(role.send_share(Kind::Predicted, place, &seed, &rest))
                })
            });
            return Ok(effects);
        }
        effects.job(move |meter| {
            let received = receive(&session, &context, step, &key, &parts, meter)?;
            meter.enter(Phase::Activate);
            let total = session.total_share(context.round, context.coalition());
            let received = received.expose();
            let handed = activator.step(session.program(), &session.precision, step, total, &received.0)?;
            let encrypted = hesv::encrypted(&session, step, &handed, &key, &seed, meter)?;
            meter.enter(Phase::Share);
            let (kind, seeded, rest) = match handed {
                _ if encrypted.is_some() => (Kind::Shared, seed, Vec::new()),
                Handed::Shared(matrix) => {
                    let matrix = Secret::new(matrix);
                    let seed = seed.covering(&context.digest).covering_words([matrix.expose().elements()]);
                    let (seeded, rest) = share(matrix.expose(), seed);
                    (Kind::Shared, seeded.seed().clone(), pack(session.field(), rest.expose().elements()))
                }
                Handed::Labels(labels) => {
                    let (seed, rest) = blinded(&session, &secret, &context, labels, &seed);
                    (Kind::Predicted, seed, rest)
                }
            };
            Ok(move |role: &mut Self| {
                let mut effects = match encrypted {
                    Some((kind, content)) => role.send(PartyId::Principal, kind, place.encode(&content)),
                    None => role.send_share(kind, place, &seeded, &rest),
                };
                effects.and(role.after_step(&session, &context, step, activator)?);
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Goes on with what came in the meantime, or lets the unit go after its last step here.
    pub(super) fn after_step(
        &mut self,
        session: &Arc<Session>,
        context: &UnitContext,
        step: usize,
        activator: Activator,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let later = &session.program().steps[step + 1..];
        if !later.iter().any(|decryption| context.client(decryption.slot) == Ok(self.position)) {
            self.units.remove(&context.id);
        } else if let Some(state) = self.units.get_mut(&context.id) {
            state.activator = Some(activator);
            let waiting: Vec<usize> = state.parts.keys().copied().collect();
            for step in waiting {
                effects.and(self.advance(session, context.id, step)?);
            }
        }
        Ok(effects)
    }
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

/// The classes that all coalitions' models of a round predict, as they are, where models are tested together.
fn found_together(
    session: &Session,
    context: &UnitContext,
    round: RoundId,
    derivation: &Derivation<'_>,
    received: &[Outputs],
) -> Result<Packed, Error> {
    let (program, field) = (session.program(), session.label_field());
    let combinations = context.combinations(session);
    let bytes = context.label_bytes(session) / context.rounds.len().max(1);
    let mut packed = Packed::new(Wiped(vec![0; bytes]));
    let all = packed.expose_mut();
    if let [DecryptionStep { then: Then::Label(activations), .. }] = &program.steps[..]
        && activations.is_empty()
        && program.operators[0].positions == 1
    {
        // Scores are outputs over a positive number, and differ wherever outputs do; row by row they are the classes'.
        for (owner, begins) in context.begins(session) {
            let places = session.groups[context.plan.group].places(owner);
            let is_sign = program.classes == 2 && program.operators[0].shape.d_out == 1;
            if is_sign {
                derivation.signs(received, &places, |number, samples, words| {
                    let begin = begins[number] + field.packed_len(samples.start);
                    field.pack_bits(samples.len(), words, &mut all[begin..]);
                })?;
            } else {
                derivation.labels(received, &places, program.classes, |number, samples, labels| {
                    let begin = begins[number] + field.packed_len(samples.start);
                    field.pack_into(labels, &mut all[begin..]);
                })?;
            }
        }
        return Ok(packed);
    }
    let mut rest = all.as_mut_slice();
    for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
        let outputs = combinations.outputs(number, &context.selections, received)?;
        let total = session.total_share(round, coalition);
        let outputs = Secret::new(Matrices(vec![outputs.matrix()?]));
        let handed = Activator::default().step(program, &session.precision, 0, total, &outputs.expose().0)?;
        let Handed::Labels(labels) = handed else {
            return Err(Error::Local { what: "labels of a single layer" });
        };
        let labels = Labels::new(Wiped(labels));
        let mut labels = labels.expose().as_slice();
        for (.., places) in context.segments(session, number) {
            let (of_segment, later) = labels.split_at(places.len());
            field.pack_into(of_segment, &mut rest[..field.packed_len(places.len())]);
            rest = &mut rest[field.packed_len(places.len())..];
            labels = later;
        }
    }
    Ok(packed)
}

/// Multiplies all coalitions' labels in a round by blinding factors and masks them.
fn blind_together(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    round: RoundId,
    packed: &mut Packed,
) {
    let field = session.label_field();
    let mut rest = packed.expose_mut().as_mut_slice();
    for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
        for segment in context.segments(session, number) {
            let (now, later) = rest.split_at_mut(field.packed_len(segment.2.len()));
            if field.has_factors() {
                field.blind(now, factors(session, secret, (round, coalition), segment).expose());
            }
            hide(session, secret, (round, coalition), segment, now);
            rest = later;
        }
    }
}

/// Predicted labels times blinding factors in two shares, where models are not tested together: the principal's is a seed.
pub(super) fn blinded(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    labels: Vec<u16>,
    seed: &Seed,
) -> (Seed, Vec<u8>) {
    let labels = Secret::new(Wiped(labels));
    let mut packed = labels::empty(context.label_bytes(session));
    blind_all(session, secret, context, (context.round, 0), labels.expose(), &mut packed);
    let seed = seed.covering(&context.digest).covering(packed.expose());
    let rest = labels::rest(packed, &seed);
    (seed, rest)
}

/// Appends the segments of a coalition's labels in a round, which are those of all its places.
fn blind_all(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    (round, number): (RoundId, usize),
    labels: &[u16],
    packed: &mut Packed,
) {
    let mut rest = labels;
    for segment in context.segments(session, number) {
        let (labels, later) = rest.split_at(segment.2.len());
        blind(session, secret, (round, context.plan.coalitions[number]), segment, labels, packed);
        rest = later;
    }
}

/// Appends a segment of a model's labels times blinding factors, masked.
fn blind(
    session: &Session,
    secret: &Seed,
    model: (RoundId, Coalition),
    segment: (usize, usize, &[usize]),
    labels: &[u16],
    packed: &mut Packed,
) {
    let field = session.label_field();
    let begin = packed.expose().len();
    if field.has_factors() {
        field.pack_blinded(labels, factors(session, secret, model, segment).expose(), packed);
    } else {
        field.pack(labels, packed);
    }
    hide(session, secret, model, segment, &mut packed.expose_mut()[begin..]);
}

/// Adds masks that no server knows to a packed segment of a model's labels.
fn hide(
    session: &Session,
    secret: &Seed,
    model: (RoundId, Coalition),
    (owner, first, places): (usize, usize, &[usize]),
    segment: &mut [u8],
) {
    let (field, samples) = (session.label_field(), session.hellos[owner].samples as usize);
    let mut masks = session.label_masks(secret, model, owner);
    if places.len() != samples {
        let all = field.unpack(masks.expose(), samples);
        let chosen = places.iter().map(|&place| all.expose()[place - first]);
        let chosen = Labels::new(Wiped(chosen.collect()));
        masks = labels::empty(segment.len());
        field.pack(chosen.expose(), &mut masks);
    }
    labels::add(segment, masks.expose());
}

/// The blinding factors of a segment.
fn factors(
    session: &Session,
    secret: &Seed,
    (round, coalition): (RoundId, Coalition),
    (owner, first, places): (usize, usize, &[usize]),
) -> Labels {
    let blinds = session.blinds(secret, round, coalition, owner);
    if places.len() == blinds.expose().len() {
        return blinds;
    }
    Labels::new(Wiped(places.iter().map(|&place| blinds.expose()[place - first]).collect()))
}

//! A client's part in tests: blinded labels, triples, and step after step what it is assigned to decrypt.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Matrix, Prg, Ring, Ring64, Secret, Seed, share::split as share};
use secsv_federation::{Coalition, RoundId};
use secsv_he::SecretKey;

use super::{
    Client, hesv,
    received::{
        Matrices, PartId, ReceivedParts, Source, check_part, expected_parts, receive, receive_together,
    },
};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::pack,
    combinations::{Derivation, Outputs},
    error::CodecError,
    labels::{self, Labels, Packed, Wiped},
    message::{
        ActivationShare, Head, Kind, LabelBody, LabelShare, PredictionShare, Server, ShareBody, StepAddress,
        TestPlan, TripleShare, UnitId,
    },
    program::{DecryptionStep, Then},
    role::{Effects, Incoming, Outgoing, Phase},
    server::{UnitContext, recount::commitment, updates_of},
    session::Session,
};

/// A unit that this client has a slot in.
pub(super) struct DecryptorUnit {
    context: Arc<UnitContext>,
    /// What came for each step.
    parts: BTreeMap<usize, ReceivedParts>,
    activator: Option<Activator>,
    done: Vec<usize>,
}

impl DecryptorUnit {
    /// What is not there yet of the steps that this client has a slot at.
    pub(super) fn missing(&self, session: &Session, id: UnitId, own: PartyId) -> Vec<String> {
        let (UnitId { test, group, .. }, context) = (id, &self.context);
        let decryptors = |step: &usize| {
            let slot = context.client(session.program().steps[*step].slot);
            slot.is_ok_and(|client| PartyId::Client(client) == own) && !self.done.contains(step)
        };
        let Some(step) = (0..session.program().steps.len()).find(decryptors) else { return Vec::new() };
        let there = self.parts.get(&step);
        let absent = |key: &PartId| !there.is_some_and(|parts| parts.contains_key(key));
        let name = |(_, source): PartId| {
            let (kind, from) = match source {
                Source::Share(server) => (Kind::OutputShare, server.party()),
                Source::Chunk(_) => (Kind::Reply, PartyId::Principal),
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
                let state = DecryptorUnit { context, parts: BTreeMap::new(), activator, done: Vec::new() };
                self.units.insert(id, state);
                let is_due = |message: &Incoming| {
                    Head::step(message.kind, &message.content).is_some_and(|address| address.unit == id)
                };
                for message in self.early_parts.take(is_due) {
                    let taken = self.part(session, message);
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
        let address = StepAddress::new(context.id, 0);
        let seed = address.seed(&self.seed, "truth");
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
            let outbox = label_shares(PartyId::Client(position), Kind::LabelShare, address, &seed, &rest);
            Ok(move |_: &mut Self| Ok(Effects { outbox, jobs: Vec::new() }))
        });
        Ok(effects)
    }

    /// Multiplication triples for the gated sums: the principal's shares from a seed, the auxiliary's factors too.
    fn deal(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>, effects: &mut Effects<Self>) {
        for (step, ..) in updates_of(session) {
            let address = StepAddress::new(context.id, step);
            let seed = address.seed(&self.seed, "triple").covering(&context.digest);
            let (session, context) = (session.clone(), context.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let shape = (hidden, context.places().len());
                let outbox = match session.encryption {
                    Some(_) => triple(session.field(), shape, &seed, address),
                    None => triple(Ring64, shape, &seed, address),
                };
                Ok(move |_: &mut Self| Ok(Effects { outbox, jobs: Vec::new() }))
            });
        }
    }

    /// Keeps a part of what a step needs.
    pub(super) fn part(&mut self, session: &Arc<Session>, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let address = Head::step(message.kind, &message.content).ok_or(malformed(CodecError::Truncated))?;
        let share = Server::of(message.from).filter(|_| message.kind == Kind::OutputShare);
        let Some(state) = self.units.get_mut(&address.unit) else {
            // The principal announces a test before it sends anything about it; the auxiliary may be faster.
            if share != Some(Server::Auxiliary) {
                return Err(message.unexpected("no such test"));
            }
            self.early_parts.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        let context = state.context.clone();
        let step =
            session.program().steps.get(address.step).ok_or(malformed(CodecError::Value { what: "step" }))?;
        if context.client(step.slot) != Ok(self.position) || state.done.contains(&address.step) {
            return Err(message.unexpected("not this client's step"));
        }
        let part = (address.item, share.map_or(Source::Chunk(address.chunk), Source::Share));
        check_part(session, &context, address.step, part, &message.content).map_err(malformed)?;
        state.parts.entry(address.step).or_default().insert(part, message.content);
        self.advance(session, address.unit, address.step)
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
        let address = StepAddress::new(id, step);
        let seed = address.seed(&self.seed, "shared");
        let (session, own) = (session.clone(), self.id());
        if session.federation.tests_together() {
            return Ok(hand_on_together(session, context, address, (key, secret, seed), (own, parts)));
        }
        effects.job(move |meter| {
            let received = receive(&session, &context, step, &key, &parts, meter)?;
            meter.enter(Phase::Activate);
            let total = session.total_share(context.round, context.coalition());
            let received = received.expose();
            let handed = activator.step(session.program(), &session.precision, step, total, &received.0)?;
            let encrypted = hesv::encrypted(&session, address, &handed, &key, &seed, meter)?;
            meter.enter(Phase::Share);
            let outbox = match (encrypted, handed) {
                (Some(message), _) => vec![message],
                (None, Handed::Shared(matrix)) => {
                    let matrix = Secret::new(matrix);
                    let seed = seed.covering(&context.digest).covering_words([matrix.expose().elements()]);
                    let (seeded, rest) = share(matrix.expose(), seed);
                    let rest = pack(session.field(), rest.expose().elements());
                    activation_shares(address, seeded.seed(), &rest)
                }
                (None, Handed::Labels(labels)) => {
                    let (seed, rest) = blinded(&session, &secret, &context, labels, &seed);
                    label_shares(own, Kind::PredictionShare, address, &seed, &rest)
                }
            };
            Ok(move |role: &mut Self| {
                let mut effects = Effects { outbox, jobs: Vec::new() };
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

/// Decrypts what a unit receives at its only step, and shares what all its coalitions' models predict.
fn hand_on_together(
    session: Arc<Session>,
    context: Arc<UnitContext>,
    address: StepAddress,
    (key, secret, seed): (Arc<SecretKey>, Seed, Seed),
    (own, parts): (PartyId, ReceivedParts),
) -> Effects<Client> {
    let mut effects = Effects::default();
    effects.job(move |meter| {
        let decrypted = receive_together(&session, &context, &key, &parts, meter)?;
        let height = session.program().operators[0].shape.d_out;
        let mut packed = labels::empty(context.label_bytes(&session));
        // The same for all rounds.
        let (combinations, coalitions) = (context.combinations(&session), &context.plan.coalitions);
        let derivation = Derivation::new(session.field(), combinations, coalitions, &context.selections);
        for (k, &round) in context.rounds.iter().enumerate() {
            meter.enter(Phase::Activate);
            let of_round = |matrix: &Matrix<_>| Outputs::of_rows(matrix, k * height..(k + 1) * height);
            let received: Vec<Outputs> = decrypted.expose().0.iter().map(of_round).collect();
            let mut found = found_together(&session, &context, round, &derivation, &received)?;
            meter.enter(Phase::Share);
            blind_together(&session, &secret, &context, round, &mut found);
            packed.expose_mut().extend_from_slice(found.expose());
        }
        let seed = seed.covering(&context.digest).covering(packed.expose());
        let rest = labels::rest(packed, &seed);
        let outbox = label_shares(own, Kind::PredictionShare, address, &seed, &rest);
        Ok(move |role: &mut Client| {
            role.units.remove(&context.id);
            Ok(Effects { outbox, jobs: Vec::new() })
        })
    });
    effects
}

/// Shares of activations for both servers.
pub(super) fn activation_shares(address: StepAddress, seed: &Seed, rest: &[u8]) -> Vec<Outgoing> {
    let shares = [
        (PartyId::Principal, ActivationShare { address, share: ShareBody::Seed(seed.clone()) }),
        (PartyId::Auxiliary, ActivationShare { address, share: ShareBody::Elements(rest) }),
    ];
    shares.iter().map(|(to, share)| Outgoing::of(*to, share)).collect()
}

/// Shares of true or predicted labels for both servers, with a commitment for the auxiliary to the principal's seed.
pub(super) fn label_shares(
    own: PartyId,
    kind: Kind,
    address: StepAddress,
    seed: &Seed,
    rest: &[u8],
) -> Vec<Outgoing> {
    let commitment = commitment(own, kind, address, seed);
    let shares = [
        (PartyId::Principal, LabelBody::Seed(seed.clone())),
        (PartyId::Auxiliary, LabelBody::Committed { commitment, labels: rest }),
    ];
    let message = |(to, share)| match kind {
        Kind::PredictionShare => Outgoing::of(to, &PredictionShare { address, share }),
        _ => Outgoing::of(to, &LabelShare { address, share }),
    };
    shares.into_iter().map(message).collect()
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

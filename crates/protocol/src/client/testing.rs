//! A client's part in tests: blinded labels, triples, and hop after hop what it is assigned to decrypt.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Matrix, Prg, Ring, Ring64, Secret, Seed, share::split as share};

use super::{
    Client, MOST_EARLY, hesv,
    received::{FROM_AUXILIARY, Matrices, expected_parts, receive, receive_together},
};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::{Writer, pack},
    error::CodecError,
    labels::{Labels, Residues},
    message::{Kind, Place, TestPlan, UnitId},
    program::Receive,
    role::{Effects, Phase},
    server::{UnitContext, updates_of},
    session::Session,
};

/// A unit that this client has a seat in, or something came for before it was announced.
#[derive(Default)]
pub(super) struct UnitState {
    context: Option<Arc<UnitContext>>,
    /// What came for each hop: replies by item and chunk, shares by item and server.
    parts: BTreeMap<usize, BTreeMap<(usize, usize), Vec<u8>>>,
    activator: Option<Activator>,
    done: Vec<usize>,
}

impl UnitState {
    /// What is not there yet of the hops that this client has a seat at.
    pub(super) fn missing(&self, session: &Session, id: UnitId, own: PartyId) -> Vec<String> {
        let UnitId { test, group, .. } = id;
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
            let (kind, from) = match session.program().hops[hop].receives.get(item) {
                Some(Receive::Update { .. }) if part == FROM_AUXILIARY => {
                    (Kind::OutputShare, PartyId::Auxiliary)
                }
                Some(Receive::Update { .. }) => (Kind::OutputShare, PartyId::Principal),
                _ => (Kind::Reply, PartyId::Principal),
            };
            format!("{kind} of test {test} group {group} hop {hop} from {from}")
        };
        expected_parts(session, context, hop).into_iter().filter(absent).map(name).collect()
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
            let own = session.groups[context.plan.group].places(position);
            let label = |place: usize| input.test_set.labels()[place - own.start] as u16;
            let labels = context.selections.iter().flat_map(|selection| selection.within(&own));
            let labels = Secret::new(Residues(labels.map(|&place| label(place)).collect()));
            let (seeded, rest) = blinded(&session, &secret, &context, Some(position), labels, seed);
            Ok(move |role: &mut Self| Ok(role.send_share(Kind::Truth, place, &seeded, &rest)))
        });
        Ok(effects)
    }

    pub(super) fn send_share(&mut self, kind: Kind, place: Place, seed: &Seed, rest: &[u8]) -> Effects<Self> {
        let mut effects = self.send(PartyId::Principal, kind, place.encode(seed.expose()));
        effects.and(self.send(PartyId::Auxiliary, kind, place.encode(rest)));
        effects
    }

    /// Multiplication triples for the gated sums: the principal's shares from a seed, the auxiliary's factors too.
    fn deal(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>, effects: &mut Effects<Self>) {
        for (hop, ..) in updates_of(session) {
            let place = Place::new(context.id, hop);
            let seed = self.seed.derive("triple", context.id.test).derive("triple", place.number());
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

    /// Keeps a part of what a hop needs.
    pub(super) fn part(
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
        let expected = expected_parts(session, &context, hop);
        let is_whole = |parts: &BTreeMap<_, _>| expected.iter().all(|key| parts.contains_key(key));
        if !state.parts.get(&hop).is_some_and(is_whole) {
            return Ok(effects);
        }
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
        let session = session.clone();
        if context.plan.coalitions.len() > 1 {
            effects.job(move |meter| {
                let received = receive_together(&session, &context, &key, &parts, meter)?;
                meter.enter(Phase::Activate);
                let (combinations, received) = (context.combinations(&session), &received.expose().0);
                let mut labels = Secret::new(Residues(Vec::with_capacity(context.labels())));
                for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
                    let total = session.total_share(context.round, coalition);
                    let outputs = combinations.outputs(number, &context.selections, received)?;
                    let outputs = Secret::new(Matrices(vec![outputs]));
                    let handed = Activator::default().step(
                        session.program(),
                        &session.precision,
                        hop,
                        total,
                        &outputs.expose().0,
                    )?;
                    let Handed::Labels(found) = handed else {
                        return Err(Error::Local { what: "labels of a single layer" });
                    };
                    labels.expose_mut().extend(found.into_iter().map(|label| label as u16));
                }
                meter.enter(Phase::Share);
                let (seeded, rest) = blinded(&session, &secret, &context, None, labels, seed);
                Ok(move |role: &mut Self| {
                    role.units.remove(&context.id);
                    Ok(role.send_share(Kind::Predicted, place, &seeded, &rest))
                })
            });
            return Ok(effects);
        }
        effects.job(move |meter| {
            let received = receive(&session, &context, hop, &key, &parts, meter)?;
            meter.enter(Phase::Activate);
            let total = session.total_share(context.round, context.coalition());
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
                    let labels = labels.into_iter().map(|label| label as u16).collect();
                    let labels = Secret::new(Residues(labels));
                    let (seeded, rest) = blinded(&session, &secret, &context, None, labels, seed);
                    (Kind::Predicted, seeded, rest)
                }
            };
            Ok(move |role: &mut Self| {
                let mut effects = match encrypted {
                    Some((kind, content)) => role.send(PartyId::Principal, kind, place.encode(&content)),
                    None => role.send_share(kind, place, &seeded, &rest),
                };
                effects.and(role.after_hop(&session, &context, hop, activator)?);
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Goes on with what came in the meantime, or lets the unit go after its last hop here.
    pub(super) fn after_hop(
        &mut self,
        session: &Arc<Session>,
        context: &UnitContext,
        hop: usize,
        activator: Activator,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let later = &session.program().hops[hop + 1..];
        if !later.iter().any(|step| context.client(step.seat) == Ok(self.position)) {
            self.units.remove(&context.id);
        } else if let Some(state) = self.units.get_mut(&context.id) {
            state.activator = Some(activator);
            let waiting: Vec<usize> = state.parts.keys().copied().collect();
            for hop in waiting {
                effects.and(self.advance(session, context.id, hop)?);
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

/// Shares of labels times blinding factors, coalition by coalition: an owner's, or those of all places.
pub(super) fn blinded(
    session: &Session,
    secret: &Seed,
    context: &UnitContext,
    owner: Option<usize>,
    mut labels: Labels,
    seed: Seed,
) -> (Seed, Vec<u8>) {
    let field = session.label_field();
    let parts = &session.groups[context.plan.group].parts;
    let mut rest = labels.expose_mut().iter_mut();
    for (&coalition, selection) in context.plan.coalitions.iter().zip(&context.selections) {
        for &(owner, first, count) in parts.iter().filter(|(other, ..)| owner.is_none_or(|own| own == *other))
        {
            let places = selection.within(&(first..first + count));
            if places.is_empty() {
                continue;
            }
            let blinds = session.blinds(secret, context.round, coalition, owner);
            for (&place, label) in places.iter().zip(&mut rest) {
                *label = field.mul(blinds.expose()[place - first], *label);
            }
        }
    }
    let rest = field.rest(&labels, &seed);
    (seed, rest)
}

//! What both servers do in SecretSV, each with its own shares.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Matrix, Prg, Ring64, Seed, SeedShare, Share};
use secsv_federation::RoundId;

use super::{Masks, SharedModel, first_columns, stacked};
use crate::{
    Error, PartyId,
    codec::{Reader, Writer, pack, packed_len, unpack_matrix},
    error::CodecError,
    message::{Kind, Place, UnitId},
    program::{Input, Receive},
    role::{Effects, Outgoing, Phase, Role},
    server::{Opening, Triple, UnitContext, gated_sum, masked_factors, products_of, updates_of},
    session::Session,
};

/// A server that holds such a state.
pub(crate) trait Host: Role {
    /// Which of the two it is.
    const SIDE: PartyId;
    /// The state.
    fn secret(&mut self) -> &mut SecretServer;
    /// The seed of the servers' sharings of zero.
    fn common(&self) -> Option<Seed>;
    /// A unit under way.
    fn context(&self, unit: UnitId) -> Option<Arc<UnitContext>>;
    /// Units under way.
    fn under_way(&self) -> Vec<UnitId>;
    /// Goes on with a unit.
    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error>;
    /// Something that tests wait for has come.
    fn prepared(&mut self) -> Result<Effects<Self>, Error>;
}

fn is_principal<H: Host>() -> bool {
    H::SIDE == PartyId::Principal
}

fn other_side<H: Host>() -> PartyId {
    if is_principal::<H>() { PartyId::Auxiliary } else { PartyId::Principal }
}

/// One server's shares.
#[derive(Default)]
pub(crate) struct SecretServer {
    /// What clients deal to this server.
    masks: BTreeMap<usize, Masks>,
    data: BTreeMap<usize, Arc<Share<Ring64>>>,
    rounds: BTreeMap<RoundId, Round>,
    units: BTreeMap<UnitId, Unit>,
}

#[derive(Default)]
struct Round {
    models: BTreeMap<usize, Arc<SharedModel>>,
    /// The first layer on each owner's samples.
    owners: BTreeMap<usize, FirstLayer>,
}

#[derive(Default)]
struct FirstLayer {
    masking: Masking,
    /// At the auxiliary: its share of the products that the owner dealt.
    dealt: Option<Vec<u8>>,
    started: bool,
    /// Outputs of all models, one below the other.
    outputs: Option<Arc<Share<Ring64>>>,
}

/// E = theta - U on its way to be opened.
#[derive(Default)]
struct Masking {
    started: bool,
    own: Option<Share<Ring64>>,
    other: Option<Vec<u8>>,
}

impl Masking {
    /// E, once both shares are there.
    fn open(&self, from: PartyId) -> Result<Option<Share<Ring64>>, Error> {
        let (Some(own), Some(other)) = (&self.own, &self.other) else { return Ok(None) };
        let (rows, columns) = own.expose().shape();
        let malformed = |why| Error::Malformed { from, kind: Kind::Opening, why };
        let other = unpack_matrix(Ring64, rows, columns, other).map_err(malformed)?;
        Ok(Some(own.add(&Share::new(other))?))
    }
}

#[derive(Default)]
struct Unit {
    /// What clients shared, by hop.
    inputs: BTreeMap<usize, Arc<Shared>>,
    /// Later operators' maskings, and what they opened.
    maskings: BTreeMap<usize, Masking>,
    masked: BTreeMap<usize, Arc<Share<Ring64>>>,
    /// Which receives are under way.
    started: BTreeSet<(usize, usize)>,
    triples: BTreeMap<usize, Triple<Ring64>>,
    openings: BTreeMap<usize, Opening<Ring64>>,
}

/// What a client shared at a hop: numbers, and the mask of the operator that takes them times the numbers.
struct Shared {
    input: Share<Ring64>,
    product: Option<Share<Ring64>>,
}

impl SecretServer {
    /// Whether every client has given what all tests need.
    pub(crate) fn is_ready(&self, session: &Session) -> bool {
        let all = 0..session.federation.clients;
        all.clone().all(|client| self.masks.contains_key(&client))
            && owners(session).all(|owner| self.data.contains_key(&owner))
    }

    pub(crate) fn forget_round(&mut self, round: RoundId) {
        self.rounds.remove(&round);
    }

    pub(crate) fn forget_unit(&mut self, unit: UnitId) {
        self.units.remove(&unit);
    }

    pub(crate) fn forget_test(&mut self, test: u64) {
        self.units.retain(|id, _| id.test != test);
    }

    /// What this server waits for, in words.
    pub(crate) fn missing<'a>(
        &self,
        session: &Session,
        side: PartyId,
        units: impl Iterator<Item = &'a Arc<UnitContext>>,
    ) -> Vec<String> {
        let from = |kind: Kind, client: usize| format!("{kind} from {}", PartyId::Client(client));
        let masks = (0..session.federation.clients).filter(|client| !self.masks.contains_key(client));
        let mut missing: Vec<String> = masks.map(|client| from(Kind::ServerKeys, client)).collect();
        let data = owners(session).filter(|owner| !self.data.contains_key(owner));
        missing.extend(data.map(|owner| from(Kind::Data, owner)));
        let contexts: Vec<_> = units.collect();
        let rounds: BTreeSet<RoundId> = contexts.iter().map(|context| context.round).collect();
        for round in rounds {
            missing.extend(self.missing_of_round(session, side, round));
        }
        for context in contexts {
            let unit = self.units.get(&context.id);
            let hops = session.program().hops.iter().enumerate().take(session.program().hops.len() - 1);
            let mut open = hops.filter(|(hop, _)| unit.is_none_or(|unit| !unit.inputs.contains_key(hop)));
            if let Some((hop, step)) = open.next()
                && let Ok(client) = context.client(step.seat)
            {
                let UnitId { test, group } = context.id;
                missing.push(format!(
                    "{} of test {test} group {group} hop {hop} from {}",
                    Kind::Shared,
                    PartyId::Client(client)
                ));
            }
        }
        missing
    }

    fn missing_of_round(&self, session: &Session, side: PartyId, round: RoundId) -> Vec<String> {
        let of = |kind: Kind, from: PartyId| format!("{kind} of round {round} from {from}");
        let state = self.rounds.get(&round);
        let models = session.federation.participants(round).members();
        let models = models.filter(|i| state.is_none_or(|state| !state.models.contains_key(i)));
        let mut missing: Vec<String> = models.map(|i| of(Kind::Model, PartyId::Client(i))).collect();
        for owner in owners(session) {
            let layer = state.and_then(|state| state.owners.get(&owner));
            let pending = layer.is_none_or(|layer| !layer.started);
            if pending && side == PartyId::Auxiliary && layer.is_none_or(|layer| layer.dealt.is_none()) {
                missing.push(of(Kind::FirstLayer, PartyId::Client(owner)));
            }
            if pending && layer.is_none_or(|layer| layer.masking.other.is_none()) {
                missing.push(format!("{} of round {round} from the other server", Kind::Opening));
            }
        }
        missing
    }

    /// All models of a round in the order of their clients, once everybody's has come.
    fn all_models(&self, session: &Session, round: RoundId) -> Option<Vec<(usize, Arc<SharedModel>)>> {
        let models = &self.rounds.get(&round)?.models;
        let participants = session.federation.participants(round);
        participants.members().map(|i| models.get(&i).map(|model| (i, model.clone()))).collect()
    }
}

fn owners(session: &Session) -> impl Iterator<Item = usize> + '_ {
    (0..session.federation.clients).filter(|&client| session.hellos[client].samples > 0)
}

/// Openings: of the first layer's maskings, of a later layer's, of the factors of a gated sum.
const FIRST_LAYER: u8 = 0;
const LATER_LAYER: u8 = 1;
const GATED_SUM: u8 = 2;

/// Whether a message is for [`take`].
pub(crate) fn takes(session: &Session, from: PartyId, kind: Kind) -> bool {
    let from_client = matches!(kind, Kind::ServerKeys | Kind::Data | Kind::Model | Kind::FirstLayer);
    session.encryption.is_none()
        && match from {
            PartyId::Client(client) => client < session.federation.clients && from_client,
            _ => kind == Kind::Opening,
        }
}

/// Takes a message that is about no unit, or comes from the other server.
pub(crate) fn take<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    from: PartyId,
    kind: Kind,
    content: Vec<u8>,
) -> Result<Effects<H>, Error> {
    let malformed = |why: CodecError| Error::Malformed { from, kind, why };
    let mut r = Reader::new(&content);
    match (kind, from) {
        (Kind::ServerKeys, PartyId::Client(client)) => {
            let seed = r.seed().and_then(|seed| r.end().map(|()| seed)).map_err(malformed)?;
            host.secret().masks.entry(client).or_insert(Masks(seed));
            prepared(host, session)
        }
        (Kind::Data, PartyId::Client(owner)) => {
            let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
            let share = own_share::<H>(rows, columns, &content).map_err(malformed)?;
            host.secret().data.entry(owner).or_insert(Arc::new(share));
            prepared(host, session)
        }
        (Kind::Model, PartyId::Client(owner)) => {
            let round = RoundId(r.u32().map_err(malformed)?);
            if !session.federation.participants(round).contains(owner) {
                return Err(malformed(CodecError::Value { what: "round" }));
            }
            let share =
                own_share::<H>(1, SharedModel::size(session.program()), r.rest()).map_err(malformed)?;
            let model = SharedModel::new(session.program(), &share)?;
            let state = host.secret().rounds.entry(round).or_default();
            state.models.insert(owner, Arc::new(model));
            first_layer(host, session, round)
        }
        (Kind::FirstLayer, PartyId::Client(owner)) if !is_principal::<H>() => {
            let round = RoundId(r.u32().map_err(malformed)?);
            let count = stacked(session, round).checked_mul(first_columns(session, owner));
            if count.is_none_or(|count| count == 0 || packed_len(Ring64, count) + 4 != content.len()) {
                return Err(malformed(CodecError::Value { what: "round or length" }));
            }
            let state = host.secret().rounds.entry(round).or_default();
            state.owners.entry(owner).or_default().dealt = Some(r.rest().to_vec());
            first_layer(host, session, round)
        }
        (Kind::Opening, _) if from == other_side::<H>() => match r.u8().map_err(malformed)? {
            FIRST_LAYER => {
                let round = RoundId(r.u32().map_err(malformed)?);
                let owner = r.u16().map_err(malformed)?;
                if stacked(session, round) == 0 || !owners(session).any(|o| o == owner) {
                    return Err(malformed(CodecError::Value { what: "round or owner" }));
                }
                let state = host.secret().rounds.entry(round).or_default();
                state.owners.entry(owner).or_default().masking.other = Some(r.rest().to_vec());
                first_layer(host, session, round)
            }
            which @ (LATER_LAYER | GATED_SUM) => {
                let (place, rest) = Place::decode(r.rest()).map_err(malformed)?;
                let program = session.program();
                if place.item >= program.operators.len() || place.hop >= program.hops.len() {
                    return Err(malformed(CodecError::Value { what: "hop" }));
                }
                if host.context(place.unit).is_none() {
                    return Err(Error::Unexpected { from, kind, state: "no such test" });
                }
                let unit = host.secret().units.entry(place.unit).or_default();
                if which == LATER_LAYER {
                    unit.maskings.entry(place.item).or_default().other = Some(rest.to_vec());
                } else {
                    unit.openings.entry(place.hop).or_default().other = Some(rest.to_vec());
                }
                host.resume(place.unit)
            }
            _ => Err(malformed(CodecError::Value { what: "opening" })),
        },
        _ => Err(Error::Unexpected { from, kind, state: "testing" }),
    }
}

/// Takes what a client shares or deals in a unit. The caller has checked that it is the client's part.
pub(crate) fn take_shared<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    from: PartyId,
    kind: Kind,
    place: Place,
    content: &[u8],
) -> Result<Effects<H>, Error> {
    let malformed = move |why: CodecError| Error::Malformed { from, kind, why };
    let samples = context.places.len();
    if kind == Kind::Triple {
        if !updates_of(session).any(|(hop, ..)| hop == place.hop) {
            return Err(malformed(CodecError::Value { what: "hop" }));
        }
        let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
        let triple = triple::<H>(hidden, samples, content).map_err(malformed)?;
        host.secret().units.entry(place.unit).or_default().triples.entry(place.hop).or_insert(triple);
        return host.resume(place.unit);
    }
    let PartyId::Client(client) = from else {
        return Err(Error::Unexpected { from, kind, state: "testing" });
    };
    let masks = host.secret().masks.get(&client).cloned().ok_or(Error::Local { what: "a client's masks" })?;
    let place = Place::new(place.unit, place.hop);
    let (session, content) = (session.clone(), content.to_vec());
    let mut effects = Effects::default();
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let shared = shared::<H>(&session, &masks, place, samples, &content).map_err(|e| match e {
            Ok(why) => malformed(why),
            Err(error) => error,
        })?;
        Ok(move |host: &mut H| {
            if host.context(place.unit).is_some() {
                let unit = host.secret().units.entry(place.unit).or_default();
                unit.inputs.entry(place.hop).or_insert(Arc::new(shared));
            }
            host.resume(place.unit)
        })
    });
    Ok(effects)
}

/// This server's share of what a client shared at a hop.
fn shared<H: Host>(
    session: &Session,
    masks: &Masks,
    place: Place,
    samples: usize,
    content: &[u8],
) -> Result<Shared, Result<CodecError, Error>> {
    let program = session.program();
    let rows = program.shared_size(place.hop);
    let Some(operator) = program.hops[place.hop].feeds else {
        return Ok(Shared { input: own_share::<H>(rows, samples, content).map_err(Ok)?, product: None });
    };
    if is_principal::<H>() {
        let product = masks.product(session, place, operator, samples);
        let input = own_share::<H>(rows, samples, content).map_err(Ok)?;
        return Ok(Shared { input, product: Some(product) });
    }
    let (shape, columns) =
        (program.operators[operator].shape, program.operators[operator].positions * samples);
    let (input, product) =
        content.split_at_checked(packed_len(Ring64, rows * samples)).ok_or(Ok(CodecError::Truncated))?;
    let input = own_share::<H>(rows, samples, input).map_err(Ok)?;
    let product = own_share::<H>(shape.d_out, columns, product).map_err(Ok)?;
    Ok(Shared { input, product: Some(product) })
}

/// A share as this server gets it: the principal a seed, the auxiliary the elements.
fn own_share<H: Host>(rows: usize, columns: usize, content: &[u8]) -> Result<Share<Ring64>, CodecError> {
    if is_principal::<H>() {
        let mut r = Reader::new(content);
        let seed = r.seed()?;
        r.end()?;
        Ok(SeedShare::new(Ring64, rows, columns, seed).expand())
    } else {
        Ok(Share::new(unpack_matrix(Ring64, rows, columns, content)?))
    }
}

/// A share of a triple for a gated sum: all of it the stream of a seed, but for the auxiliary's product.
fn triple<H: Host>(hidden: usize, samples: usize, content: &[u8]) -> Result<Triple<Ring64>, CodecError> {
    let mut r = Reader::new(content);
    let mut prg = Prg::new(&r.seed()?);
    let mut draw = || Share::new(Matrix::uniform(Ring64, hidden, samples, &mut prg));
    let (a, b) = (draw(), draw());
    let c = if is_principal::<H>() {
        r.end()?;
        draw()
    } else {
        Share::new(unpack_matrix(Ring64, hidden, samples, r.rest())?)
    };
    Ok(Triple { a, b, c })
}

/// Goes on with whatever waited for masks or samples.
fn prepared<H: Host>(host: &mut H, session: &Arc<Session>) -> Result<Effects<H>, Error> {
    let mut effects = host.prepared()?;
    let rounds: Vec<RoundId> = host.secret().rounds.keys().copied().collect();
    for round in rounds {
        effects.and(first_layer(host, session, round)?);
    }
    Ok(effects)
}

/// The first layer of a round: local models on each owner's samples.
fn first_layer<H: Host>(host: &mut H, session: &Arc<Session>, round: RoundId) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let Some(models) = host.secret().all_models(session, round) else { return Ok(effects) };
    for owner in owners(session) {
        effects.and(mask_first(host, session, round, owner, &models));
        effects.and(multiply_first(host, session, round, owner, &models)?);
    }
    // Biases alone need no product.
    for unit in host.under_way() {
        effects.and(host.resume(unit)?);
    }
    Ok(effects)
}

/// Opens the first layer of every model, masked for one owner's samples.
fn mask_first<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    round: RoundId,
    owner: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let mut effects = Effects::default();
    let secret = host.secret();
    let (Some(masks), Some(state)) = (secret.masks.get(&owner).cloned(), secret.rounds.get_mut(&round))
    else {
        return effects;
    };
    let masking = &mut state.owners.entry(owner).or_default().masking;
    if std::mem::replace(&mut masking.started, true) {
        return effects;
    }
    let (session, models) = (session.clone(), models.to_vec());
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let mask = masks.first_masks(&session, round);
        let weights = models.iter().flat_map(|(_, model)| model.operators[0].0.expose().elements());
        let elements = weights.zip(mask.expose().elements()).map(|(&w, &u)| w.wrapping_sub(u)).collect();
        let (rows, columns) = mask.expose().shape();
        let own = Share::new(Matrix::new(Ring64, rows, columns, elements)?);
        let mut w = Writer::default();
        w.u8(FIRST_LAYER).u32(round.0).u16(owner).raw(&pack(Ring64, own.expose().elements()));
        let content = w.finish();
        Ok(move |host: &mut H| {
            let mut effects = Effects::default();
            effects.outbox.push(Outgoing::new(other_side::<H>(), Kind::Opening, content));
            if let Some(state) = host.secret().rounds.get_mut(&round) {
                state.owners.entry(owner).or_default().masking.own = Some(own);
                effects.and(first_layer(host, &session, round)?);
            }
            Ok(effects)
        })
    });
    effects
}

/// This server's share of first-layer outputs on one owner's samples: E X + W and the biases.
fn multiply_first<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    round: RoundId,
    owner: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let secret = host.secret();
    let (Some(masks), Some(data)) = (secret.masks.get(&owner).cloned(), secret.data.get(&owner).cloned())
    else {
        return Ok(effects);
    };
    let Some(state) = secret.rounds.get_mut(&round).and_then(|state| state.owners.get_mut(&owner)) else {
        return Ok(effects);
    };
    if state.started || !(is_principal::<H>() || state.dealt.is_some()) {
        return Ok(effects);
    }
    let Some(masked) = state.masking.open(other_side::<H>())? else { return Ok(effects) };
    state.started = true;
    let dealt = state.dealt.take();
    state.masking = Masking { started: true, ..Masking::default() };
    let (session, models) = (session.clone(), models.to_vec());
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let columns = Share::new(session.program().operators[0].arrange(data.expose())?);
        let product = Share::new(masked.expose().product(columns.expose())?);
        let (rows, width) = product.expose().shape();
        let from = PartyId::Client(owner);
        let dealt = match dealt {
            None => masks.first_products(&session, round, owner),
            Some(bytes) => {
                Share::new(unpack_matrix(Ring64, rows, width, &bytes).map_err(|why| Error::Malformed {
                    from,
                    kind: Kind::FirstLayer,
                    why,
                })?)
            }
        };
        let biases: Vec<u64> =
            models.iter().flat_map(|(_, model)| model.operators[0].1.expose().elements()).copied().collect();
        let outputs = Arc::new(Share::new(sum_with_biases(product.expose(), dealt.expose(), &biases)?));
        Ok(move |host: &mut H| {
            if let Some(state) = host.secret().rounds.get_mut(&round) {
                state.owners.entry(owner).or_default().outputs = Some(outputs);
            }
            let mut effects = Effects::default();
            for unit in host.under_way() {
                effects.and(host.resume(unit)?);
            }
            Ok(effects)
        })
    });
    Ok(effects)
}

fn sum_with_biases(
    product: &Matrix<Ring64>,
    dealt: &Matrix<Ring64>,
    biases: &[u64],
) -> Result<Matrix<Ring64>, Error> {
    let (rows, columns) = product.shape();
    let terms = product.elements().iter().zip(dealt.elements());
    let biases = biases.iter().flat_map(|&bias| std::iter::repeat_n(bias, columns));
    let elements = terms.zip(biases).map(|((&p, &d), b)| p.wrapping_add(d).wrapping_add(b)).collect();
    Ok(Matrix::new(Ring64, rows, columns, elements)?)
}

/// Starts whatever a unit has everything for.
pub(crate) fn advance<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let Some(models) = host.secret().all_models(session, context.round) else { return Ok(effects) };
    for (hop, step) in session.program().hops.iter().enumerate() {
        for (item, receive) in step.receives.iter().enumerate() {
            let place = Place { item, ..Place::new(context.id, hop) };
            match *receive {
                Receive::Outputs { input: Input::Data, first, count, .. } => {
                    effects.and(first_outputs(host, session, context, place, (first, count))?);
                }
                Receive::Bias { operator } => {
                    effects.and(bias_outputs(host, session, context, place, operator, &models)?);
                }
                Receive::Outputs { .. } | Receive::Update { .. } => {}
            }
        }
    }
    effects.and(mask_models(host, session, context, &models)?);
    effects.and(later_outputs(host, session, context, &models)?);
    effects.and(updates(host, session, context)?);
    Ok(effects)
}

/// Sends a share of outputs to the client at a hop, re-randomised.
fn send_outputs<H: Host>(
    effects: &mut Effects<H>,
    host: &H,
    session: &Session,
    context: &UnitContext,
    place: Place,
    outputs: impl FnOnce() -> Result<Matrix<Ring64>, Error> + Send + 'static,
) -> Result<(), Error> {
    let common = host.common().ok_or(Error::Local { what: "the common seed" })?;
    let zero = common.derive("outputs of a test", place.unit.test).derive("outputs", place.number());
    let to = PartyId::Client(context.client(session.program().hops[place.hop].seat)?);
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let outputs = Share::new(outputs()?);
        meter.enter(Phase::Sanitise);
        let (rows, columns) = outputs.expose().shape();
        let zero = Share::new(Matrix::uniform(Ring64, rows, columns, &mut Prg::new(&zero)));
        let outputs = Share::new(if is_principal::<H>() {
            outputs.expose().add(zero.expose())?
        } else {
            outputs.expose().sub(zero.expose())?
        });
        let content = place.encode(&pack(Ring64, outputs.expose().elements()));
        Ok(move |_: &mut H| {
            let mut effects = Effects::default();
            effects.outbox.push(Outgoing::new(to, Kind::OutputShare, content));
            Ok(effects)
        })
    });
    Ok(())
}

/// A coalition's first-layer outputs at some positions: weighted sums of those of its members.
fn first_outputs<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    place: Place,
    (first, count): (usize, usize),
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let secret = host.secret();
    let Some(round) = secret.rounds.get(&context.round) else { return Ok(effects) };
    let outputs: Option<BTreeMap<usize, _>> = context
        .owners(session)
        .map(|owner| Some((owner, round.owners.get(&owner)?.outputs.clone()?)))
        .collect();
    let Some(outputs) = outputs else { return Ok(effects) };
    let unit = secret.units.entry(context.id).or_default();
    if !unit.started.insert((place.hop, place.item)) {
        return Ok(effects);
    }
    let (owned, of) = (session.clone(), context.clone());
    send_outputs(&mut effects, host, session, context, place, move || {
        weighted_outputs(&owned, &of, &outputs, first, count)
    })?;
    Ok(effects)
}

fn weighted_outputs(
    session: &Session,
    context: &UnitContext,
    outputs: &BTreeMap<usize, Arc<Share<Ring64>>>,
    first: usize,
    positions: usize,
) -> Result<Matrix<Ring64>, Error> {
    let rows = session.program().operators[0].shape.d_out;
    let participants: Vec<usize> = session.federation.participants(context.round).members().collect();
    let samples = context.places.len();
    let mut elements = vec![0u64; rows * positions * samples];
    let group = &session.groups[context.plan.group];
    for (client, weight) in session.members(context.round, context.coalition) {
        let model = participants
            .iter()
            .position(|&participant| participant == client)
            .ok_or(Error::Local { what: "a member's model" })?;
        for (row, target) in elements.chunks_exact_mut((positions * samples).max(1)).enumerate() {
            for (position, target) in target.chunks_exact_mut(samples.max(1)).enumerate() {
                let mut parts = group.parts.iter();
                let mut part = None;
                for (sum, &place) in target.iter_mut().zip(&context.places) {
                    // Places ascend, and so do parts.
                    while part.is_none_or(|(_, _, end)| place >= end) {
                        let &(owner, start, count) =
                            parts.next().ok_or(Error::Local { what: "a place of nobody's" })?;
                        let source = outputs.get(&owner).map(|outputs| {
                            let row = outputs.expose().row(model * rows + row);
                            &row[(first + position) * count..][..count]
                        });
                        part = Some((source, start, start + count));
                    }
                    if let Some((Some(source), start, _)) = part {
                        *sum = sum.wrapping_add(u64::from(weight).wrapping_mul(source[place - start]));
                    }
                }
            }
        }
    }
    Ok(Matrix::new(Ring64, rows, positions * samples, elements)?)
}

/// The weighted sum of something of the members' models.
fn coalition_sum<'a>(
    session: &Session,
    context: &UnitContext,
    models: &'a [(usize, Arc<SharedModel>)],
    part: impl Fn(&'a SharedModel) -> &'a Share<Ring64>,
) -> Result<Share<Ring64>, Error> {
    let mut sum: Option<Matrix<Ring64>> = None;
    for (client, weight) in session.members(context.round, context.coalition) {
        let found = models.iter().find(|(owner, _)| *owner == client);
        let (_, model) = found.ok_or(Error::Local { what: "a member's model" })?;
        let scaled = part(model).expose().scale(weight.into());
        sum = Some(match sum {
            None => scaled,
            Some(sum) => sum.add(&scaled)?,
        });
    }
    sum.map(Share::new).ok_or(Error::Local { what: "the sum of no models" })
}

/// Biases alone: the hidden gates of a zero state.
fn bias_outputs<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    place: Place,
    operator: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let unit = host.secret().units.entry(context.id).or_default();
    if unit.started.insert((place.hop, place.item)) {
        let (owned, of, models) = (session.clone(), context.clone(), models.to_vec());
        send_outputs(&mut effects, host, session, context, place, move || {
            let bias = coalition_sum(&owned, &of, &models, |model| &model.operators[operator].1)?;
            let bias = bias.expose();
            Ok(Matrix::from_fn(Ring64, bias.rows(), of.places.len(), |j, _| bias.at(j, 0)))
        })?;
    }
    Ok(effects)
}

/// Opens the coalition's model of every later layer, masked for this unit.
fn mask_models<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    models: &[(usize, Arc<SharedModel>)],
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let id = context.id;
    for (_, _, operator, from) in products_of(session) {
        let dealer = context.client(session.program().hops[from].seat)?;
        let secret = host.secret();
        let Some(masks) = secret.masks.get(&dealer).cloned() else { continue };
        let masking = secret.units.entry(id).or_default().maskings.entry(operator).or_default();
        if std::mem::replace(&mut masking.started, true) {
            continue;
        }
        let (session, context, models) = (session.clone(), context.clone(), models.to_vec());
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let model = coalition_sum(&session, &context, &models, |model| &model.operators[operator].0)?;
            let own = Share::new(model.expose().sub(masks.mask(&session, id, operator).expose())?);
            let place = Place { item: operator, ..Place::new(id, 0) };
            let content = opening(LATER_LAYER, place, own.expose().elements());
            Ok(move |host: &mut H| {
                let mut effects = Effects::default();
                effects.outbox.push(Outgoing::new(other_side::<H>(), Kind::Opening, content));
                if host.context(id).is_some() {
                    let unit = host.secret().units.entry(id).or_default();
                    unit.maskings.entry(operator).or_default().own = Some(own);
                    effects.and(host.resume(id)?);
                }
                Ok(effects)
            })
        });
    }
    Ok(effects)
}

fn opening(which: u8, place: Place, elements: &[u64]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u8(which).raw(&place.encode(&pack(Ring64, elements)));
    w.finish()
}

/// Shares of a later layer's outputs: E X + W and the biases.
fn later_outputs<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    models: &[(usize, Arc<SharedModel>)],
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    for (hop, item, operator, from) in products_of(session) {
        let unit = host.secret().units.entry(context.id).or_default();
        let Some(shared) = unit.inputs.get(&from).cloned() else { continue };
        if !unit.masked.contains_key(&operator)
            && let Some(masking) = unit.maskings.get_mut(&operator)
            && let Some(masked) = masking.open(other_side::<H>())?
        {
            *masking = Masking { started: true, ..Masking::default() };
            unit.masked.insert(operator, Arc::new(masked));
        }
        let Some(masked) = unit.masked.get(&operator).cloned() else { continue };
        if !unit.started.insert((hop, item)) {
            continue;
        }
        let (owned, of, models) = (session.clone(), context.clone(), models.to_vec());
        let place = Place { item, ..Place::new(context.id, hop) };
        send_outputs(&mut effects, host, session, context, place, move || {
            let columns = Share::new(owned.program().operators[operator].arrange(shared.input.expose())?);
            let product = Share::new(masked.expose().product(columns.expose())?);
            let dealt = shared.product.as_ref().ok_or(Error::Local { what: "a dealt product" })?;
            let bias = coalition_sum(&owned, &of, &models, |model| &model.operators[operator].1)?;
            sum_with_biases(product.expose(), dealt.expose(), bias.expose().elements())
        })?;
    }
    Ok(effects)
}

/// Shares of gated sums for the re-sharer (DESIGN 3.9).
fn updates<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    for (hop, item, gates, held) in updates_of(session) {
        let place = Place { item, ..Place::new(context.id, hop) };
        let unit = host.secret().units.entry(context.id).or_default();
        let (Some(gates), Some(held)) = (unit.inputs.get(&gates).cloned(), unit.inputs.get(&held).cloned())
        else {
            continue;
        };
        if unit.started.contains(&(hop, item)) {
            continue;
        }
        let Some(triple) = unit.triples.get(&hop) else { continue };
        let step = unit.openings.entry(hop).or_default();
        let mut masked = None;
        if step.own.is_none() {
            let (d, e) = masked_factors(triple, &gates.input, &held.input)?;
            masked = Some(opening(GATED_SUM, place, &[d.elements(), e.elements()].concat()));
            step.own = Some((d, e));
        }
        let ready = step.own.is_some() && step.other.is_some();
        if let Some(content) = masked {
            effects.outbox.push(Outgoing::new(other_side::<H>(), Kind::Opening, content));
        }
        if !ready {
            continue;
        }
        let unit = host.secret().units.entry(context.id).or_default();
        unit.started.insert((hop, item));
        let (Some(triple), Some(Opening { own: Some(own), other: Some(other) })) =
            (unit.triples.remove(&hop), unit.openings.remove(&hop))
        else {
            return Err(Error::Local { what: "a triple" });
        };
        let common = host.common().ok_or(Error::Local { what: "the common seed" })?;
        let zero = common.derive("outputs of a test", place.unit.test).derive("outputs", place.number());
        let share = gated_sum(&triple, &gates.input, (&own, &other), is_principal::<H>(), &zero)?;
        let to = PartyId::Client(context.client(session.program().hops[hop].seat)?);
        let content = place.encode(&pack(Ring64, share.elements()));
        effects.outbox.push(Outgoing::new(to, Kind::OutputShare, content));
    }
    Ok(effects)
}

//! What clients and the other server send.

use std::sync::Arc;

use secsv_algebra::{Matrix, Prg, Ring64, SeedShare, Share};
use secsv_federation::RoundId;

use super::{
    FIRST_LAYER, GATED_SUM, Host, LATER_LAYER, Shared, first_layer::first_layer, is_principal, other_side,
    owners,
};
use crate::{
    Error, PartyId, check,
    codec::{Reader, packed_len, unpack_matrix},
    error::CodecError,
    message::{Kind, Place},
    role::{Effects, Incoming, Phase},
    secret::{Masks, SharedModel, first_columns, stacked},
    server::{Triple, UnitContext, updates_of},
    session::Session,
};

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
    message: Incoming,
) -> Result<Effects<H>, Error> {
    let Incoming { from, kind, ref content, .. } = message;
    let malformed = |why: CodecError| Error::Malformed { from, kind, why };
    let mut r = Reader::new(content);
    match (kind, from) {
        (Kind::ServerKeys, PartyId::Client(client)) => {
            let seed = r.seed().and_then(|seed| r.end().map(|()| seed)).map_err(malformed)?;
            host.secret().masks.entry(client).or_insert(Masks(seed));
            prepared(host, session)
        }
        (Kind::Data, PartyId::Client(owner)) => {
            let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
            let share = own_share::<H>(rows, columns, content).map_err(malformed)?;
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
                let count = stacked(session, round).checked_mul(session.program().operators[0].shape.d_in);
                let masked = r.rest();
                check::elements(Ring64, count, masked).map_err(malformed)?;
                let state = host.secret().rounds.entry(round).or_default();
                state.owners.entry(owner).or_default().masking.other = Some(masked.to_vec());
                first_layer(host, session, round)
            }
            which @ (LATER_LAYER | GATED_SUM) => {
                let (place, rest) = Place::decode(r.rest()).map_err(malformed)?;
                let program = session.program();
                if place.item >= program.operators.len() || place.step >= program.steps.len() {
                    return Err(malformed(CodecError::Value { what: "step" }));
                }
                let Some(context) = host.context(place.unit) else {
                    return Err(message.unexpected("no such test"));
                };
                let shape = program.operators[place.item].shape;
                let hidden = program.gru.map_or(0, |gru| gru.hidden);
                let count = match which {
                    LATER_LAYER => shape.d_out.checked_mul(shape.d_in),
                    _ => (2 * hidden).checked_mul(context.places().len()),
                };
                check::elements(Ring64, count, rest).map_err(malformed)?;
                let unit = host.secret().units.entry(place.unit).or_default();
                if which == LATER_LAYER {
                    unit.maskings.entry(place.item).or_default().other = Some(rest.to_vec());
                } else {
                    unit.openings.entry(place.step).or_default().other = Some(rest.to_vec());
                }
                host.resume(place.unit)
            }
            _ => Err(malformed(CodecError::Value { what: "opening" })),
        },
        _ => Err(message.unexpected("testing")),
    }
}

/// Takes what a client shares or deals in a unit. The caller has checked that it is the client's part.
pub(crate) fn take_shared<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    message: &Incoming,
    place: Place,
    content: &[u8],
) -> Result<Effects<H>, Error> {
    let Incoming { from, kind, .. } = *message;
    let malformed = move |why: CodecError| Error::Malformed { from, kind, why };
    let samples = context.places().len();
    if kind == Kind::Triple {
        if !updates_of(session).any(|(step, ..)| step == place.step) {
            return Err(malformed(CodecError::Value { what: "step" }));
        }
        let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
        let triple = triple::<H>(hidden, samples, content).map_err(malformed)?;
        host.secret().units.entry(place.unit).or_default().triples.entry(place.step).or_insert(triple);
        return host.resume(place.unit);
    }
    let PartyId::Client(client) = from else {
        return Err(message.unexpected("testing"));
    };
    let expected = shared_len::<H>(session, place.step, samples);
    if content.len() != expected {
        let found = content.len() as u64;
        return Err(malformed(CodecError::Length { expected: expected as u64, found }));
    }
    let masks = host.secret().masks.get(&client).cloned().ok_or(Error::Local { what: "a client's masks" })?;
    let place = Place::new(place.unit, place.step);
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
                unit.inputs.entry(place.step).or_insert(Arc::new(shared));
            }
            host.resume(place.unit)
        })
    });
    Ok(effects)
}

/// Bytes of what a client shares at a step with this server: words of any value.
fn shared_len<H: Host>(session: &Session, step: usize, samples: usize) -> usize {
    if is_principal::<H>() {
        return size_of::<[u8; 32]>();
    }
    let program = session.program();
    let product = |operator: usize| {
        let operator = &program.operators[operator];
        packed_len(Ring64, operator.shape.d_out * operator.positions * samples)
    };
    packed_len(Ring64, program.shared_size(step) * samples) + program.steps[step].feeds.map_or(0, product)
}

/// This server's share of what a client shared at a step.
fn shared<H: Host>(
    session: &Session,
    masks: &Masks,
    place: Place,
    samples: usize,
    content: &[u8],
) -> Result<Shared, Result<CodecError, Error>> {
    let program = session.program();
    let rows = program.shared_size(place.step);
    let Some(operator) = program.steps[place.step].feeds else {
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

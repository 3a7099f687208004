//! What clients and the other server send.

use std::sync::Arc;

use secsv_algebra::{Matrix, Prg, Ring64, SeedShare, Share};
use secsv_federation::RoundId;

use super::{Host, Shared, first_layer::first_layer, is_principal, other_side, owners, server};
use crate::{
    Error, PartyId,
    codec::{packed_len, unpack_matrix},
    error::CodecError,
    message::{
        ActivationShare, DataShare, DealtProduct, Kind, MaskSeed, MaskedFactors, MaskedFirstLayer,
        MaskedLayer, ModelShare, ShareBody, StepAddress, TripleShare,
    },
    role::{Effects, Incoming, Phase},
    secret::{Masks, SharedModel, first_columns, stacked},
    server::{Triple, UnitContext, updates_of},
    session::Session,
};

/// Whether a message is for [`take`].
pub(crate) fn takes(session: &Session, from: PartyId, kind: Kind) -> bool {
    session.encryption.is_none()
        && match from {
            PartyId::Client(client) => {
                let kinds = [Kind::MaskSeed, Kind::DataShare, Kind::ModelShare, Kind::DealtProduct];
                client < session.federation.clients && kinds.contains(&kind)
            }
            _ => [Kind::MaskedFirstLayer, Kind::MaskedLayer, Kind::MaskedFactors].contains(&kind),
        }
}

/// Takes a message that is about no unit, or comes from the other server.
pub(crate) fn take<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    message: Incoming,
) -> Result<Effects<H>, Error> {
    match (message.kind, message.from) {
        (Kind::MaskSeed, PartyId::Client(client)) => {
            let MaskSeed { seed } = message.read(&())?;
            host.secret().masks.entry(client).or_insert(Masks(seed));
            prepared(host, session)
        }
        (Kind::DataShare, PartyId::Client(owner)) => {
            let DataShare { share } = message.read(&server::<H>())?;
            let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
            let share = own_share(rows, columns, share).map_err(|why| message.malformed(why))?;
            host.secret().data.entry(owner).or_insert(Arc::new(share));
            prepared(host, session)
        }
        (Kind::ModelShare, PartyId::Client(owner)) => take_model(host, session, owner, &message),
        (Kind::DealtProduct, PartyId::Client(owner)) if !is_principal::<H>() => {
            take_dealt(host, session, owner, &message)
        }
        (Kind::MaskedFirstLayer, from) if from == other_side::<H>() => {
            take_masked_first_layer(host, session, &message)
        }
        (Kind::MaskedLayer, from) if from == other_side::<H>() => take_masked_layer(host, session, &message),
        (Kind::MaskedFactors, from) if from == other_side::<H>() => {
            take_masked_factors(host, session, &message)
        }
        _ => Err(message.unexpected("testing")),
    }
}

/// A client's model of a round.
fn take_model<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    owner: usize,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let ModelShare { round, share } = message.read(&server::<H>())?;
    if !session.federation.participants(round).contains(owner) {
        return Err(malformed(CodecError::Value { what: "round" }));
    }
    let share = own_share(1, SharedModel::size(session.program()), share).map_err(malformed)?;
    let model = SharedModel::new(session.program(), &share)?;
    let state = host.secret().rounds.entry(round).or_default();
    state.models.insert(owner, Arc::new(model));
    first_layer(host, session, round)
}

/// What an owner deals for the first layer of a round.
fn take_dealt<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    owner: usize,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let DealtProduct { round, elements } = message.read(&())?;
    let count = stacked(session, round).checked_mul(first_columns(session, owner));
    if count.is_none_or(|count| count == 0 || packed_len(Ring64, count) != elements.len()) {
        return Err(message.malformed(CodecError::Value { what: "round or length" }));
    }
    let state = host.secret().rounds.entry(round).or_default();
    state.owners.entry(owner).or_default().dealt = Some(elements.to_vec());
    first_layer(host, session, round)
}

/// The other server's share of a round's first layers, masked for an owner's samples.
fn take_masked_first_layer<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let MaskedFirstLayer { round, owner, elements } = message.read(&())?;
    if stacked(session, round) == 0 || !owners(session).any(|o| o == owner) {
        return Err(malformed(CodecError::Value { what: "round or owner" }));
    }
    let count = stacked(session, round).checked_mul(session.program().operators[0].shape.d_in);
    crate::codec::check_elements(Ring64, count, elements).map_err(malformed)?;
    let state = host.secret().rounds.entry(round).or_default();
    state.owners.entry(owner).or_default().masking.other = Some(elements.to_vec());
    first_layer(host, session, round)
}

/// The other server's share of a coalition's later layer, masked for a unit.
fn take_masked_layer<H: Host>(
    host: &mut H,
    session: &Session,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let MaskedLayer { address, elements } = message.read(&())?;
    let operator = session.program().operators.get(address.item);
    let shape = operator.ok_or(malformed(CodecError::Value { what: "step" }))?.shape;
    if host.context(address.unit).is_none() {
        return Err(message.unexpected("no such test"));
    }
    crate::codec::check_elements(Ring64, shape.d_out.checked_mul(shape.d_in), elements).map_err(malformed)?;
    let unit = host.secret().units.entry(address.unit).or_default();
    unit.maskings.entry(address.item).or_default().other = Some(elements.to_vec());
    host.resume(address.unit)
}

/// The other server's masked factors of a gated sum.
fn take_masked_factors<H: Host>(
    host: &mut H,
    session: &Session,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let MaskedFactors { address, elements } = message.read(&())?;
    if !updates_of(session).any(|(step, ..)| step == address.step) {
        return Err(malformed(CodecError::Value { what: "step" }));
    }
    let context = host.context(address.unit).ok_or_else(|| message.unexpected("no such test"))?;
    let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
    let count = (2 * hidden).checked_mul(context.places().len());
    crate::codec::check_elements(Ring64, count, elements).map_err(malformed)?;
    let unit = host.secret().units.entry(address.unit).or_default();
    unit.openings.entry(address.step).or_default().other = Some(elements.to_vec());
    host.resume(address.unit)
}

/// Takes a triple that a client deals in a unit. The caller has checked that it is the client's part.
pub(crate) fn take_triple<H: Host>(
    host: &mut H,
    session: &Session,
    context: &UnitContext,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let share: TripleShare<'_> = message.read(&server::<H>())?;
    let StepAddress { unit, step, .. } = share.address;
    if !updates_of(session).any(|(of, ..)| of == step) {
        return Err(malformed(CodecError::Value { what: "step" }));
    }
    let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
    let triple = triple(hidden, context.places().len(), &share).map_err(malformed)?;
    host.secret().units.entry(unit).or_default().triples.entry(step).or_insert(triple);
    host.resume(unit)
}

/// Takes what a client shares in a unit. The caller has checked that it is the client's part.
pub(crate) fn take_shared<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    message: Incoming,
) -> Result<Effects<H>, Error> {
    let PartyId::Client(client) = message.from else {
        return Err(message.unexpected("testing"));
    };
    let ActivationShare { address, share } = message.read(&server::<H>())?;
    let samples = context.places().len();
    if let ShareBody::Elements(elements) = share {
        let (expected, found) = (shared_len(session, address.step, samples) as u64, elements.len() as u64);
        if expected != found {
            return Err(message.malformed(CodecError::Length { expected, found }));
        }
    }
    // The principal begins when it has everybody's masks: that this server has them too is up to their dealer.
    let masks = host.secret().masks.get(&client).cloned();
    let masks = masks.ok_or_else(|| message.unexpected("its server keys have not come"))?;
    let address = StepAddress::new(address.unit, address.step);
    let session = session.clone();
    let mut effects = Effects::default();
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let ActivationShare { share, .. } = message.read(&server::<H>())?;
        let shared = shared(&session, &masks, address, samples, share).map_err(|e| message.malformed(e))?;
        Ok(move |host: &mut H| {
            if host.context(address.unit).is_some() {
                let unit = host.secret().units.entry(address.unit).or_default();
                unit.inputs.entry(address.step).or_insert(Arc::new(shared));
            }
            host.resume(address.unit)
        })
    });
    Ok(effects)
}

/// Bytes of the elements that a client shares with the auxiliary at a step: words of any value.
fn shared_len(session: &Session, step: usize, samples: usize) -> usize {
    let program = session.program();
    let product = |operator: usize| {
        let operator = &program.operators[operator];
        packed_len(Ring64, operator.shape.d_out * operator.positions * samples)
    };
    packed_len(Ring64, program.shared_size(step) * samples) + program.steps[step].feeds.map_or(0, product)
}

/// A server's share of what a client shared at a step, with its share of the product that the client deals for.
fn shared(
    session: &Session,
    masks: &Masks,
    address: StepAddress,
    samples: usize,
    share: ShareBody<'_>,
) -> Result<Shared, CodecError> {
    let program = session.program();
    let rows = program.shared_size(address.step);
    let Some(operator) = program.steps[address.step].feeds else {
        return Ok(Shared { input: own_share(rows, samples, share)?, product: None });
    };
    let (shape, columns) =
        (program.operators[operator].shape, program.operators[operator].positions * samples);
    let (input, product) = match share {
        ShareBody::Seed(_) => (share, masks.product(session, address, operator, samples)),
        ShareBody::Elements(elements) => {
            let length = packed_len(Ring64, rows * samples);
            let (input, product) = elements.split_at_checked(length).ok_or(CodecError::Truncated)?;
            let product = own_share(shape.d_out, columns, ShareBody::Elements(product))?;
            (ShareBody::Elements(input), product)
        }
    };
    Ok(Shared { input: own_share(rows, samples, input)?, product: Some(product) })
}

/// A share as a server gets it: the principal a seed, the auxiliary the elements.
fn own_share(rows: usize, columns: usize, share: ShareBody<'_>) -> Result<Share<Ring64>, CodecError> {
    Ok(match share {
        ShareBody::Seed(seed) => SeedShare::new(Ring64, rows, columns, seed).expand(),
        ShareBody::Elements(elements) => Share::new(unpack_matrix(Ring64, rows, columns, elements)?),
    })
}

/// A share of a triple for a gated sum: all of it the stream of a seed, but for the auxiliary's product.
fn triple(hidden: usize, samples: usize, share: &TripleShare<'_>) -> Result<Triple<Ring64>, CodecError> {
    let mut prg = Prg::new(&share.seed);
    let mut draw = || Share::new(Matrix::uniform(Ring64, hidden, samples, &mut prg));
    let (a, b) = (draw(), draw());
    let c = match share.product {
        None => draw(),
        Some(product) => Share::new(unpack_matrix(Ring64, hidden, samples, product)?),
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

//! What clients and the other server send.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Ring64, SeedShare, Share};
use secsv_federation::RoundId;

use super::{SecretUnit, ShareHost, Shared, first_layer::first_layer, other_party, owners};
use crate::{
    Error, PartyId,
    codec::{check_elements, packed_len, unpack_matrix},
    error::CodecError,
    message::{
        ActivationShare, DataShare, DealtProduct, Head, Kind, MaskSeed, MaskedFirstLayer, MaskedLayer,
        ModelShare, Server, ShareBody, StepAddress, UnitId,
    },
    role::{Effects, Incoming, Phase},
    secretsv::{Masks, SharedModel},
    session::Session,
    unit::server_address,
};

/// Takes a message that is about no unit, or comes from the other server.
pub(in crate::secretsv) fn take<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let clients = session.federation.clients;
    match (message.kind, message.from) {
        (_, PartyId::Client(client)) if client >= clients => Err(message.unexpected("no such client")),
        (Kind::MaskSeed, PartyId::Client(client)) => {
            let MaskSeed { seed } = message.read(&())?;
            host.secret().masks.entry(client).or_insert(Masks(seed));
            prepared(host, session)
        }
        (Kind::DataShare, PartyId::Client(owner)) => {
            let DataShare { share } = message.read(&H::SERVER)?;
            let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
            let share = own_share(rows, columns, share).map_err(|why| message.malformed(why))?;
            host.secret().data.entry(owner).or_insert(Arc::new(share));
            prepared(host, session)
        }
        (Kind::ModelShare, PartyId::Client(owner)) => take_model(host, session, owner, message),
        (Kind::DealtProduct, PartyId::Client(owner)) if H::SERVER == Server::Auxiliary => {
            take_dealt(host, session, owner, message)
        }
        (Kind::MaskedFirstLayer, from) if from == other_party::<H>() => {
            take_masked_first_layer(host, session, message)
        }
        (Kind::MaskedLayer, from) if from == other_party::<H>() => take_masked_layer(host, session, message),
        (Kind::MaskedFactors, from) if from == other_party::<H>() => {
            take_masked_factors(host, session, message)
        }
        _ => Err(message.unexpected("testing")),
    }
}

/// A client's model of a round.
fn take_model<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    owner: usize,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let ModelShare { round, share } = message.read(&H::SERVER)?;
    if !session.federation.participants(round).contains(owner) {
        return Err(malformed(CodecError::Value { what: "round" }));
    }
    let share = own_share(1, session.program().model_size(), share).map_err(malformed)?;
    let model = SharedModel::new(session.program(), &share)?;
    let state = host.secret().rounds.entry(round).or_default();
    state.models.insert(owner, Arc::new(model));
    first_layer(host, session, round)
}

/// What an owner deals for the first layer of a round.
fn take_dealt<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    owner: usize,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let DealtProduct { round, elements } = message.read(&())?;
    let count = session.stacked_rows(round).checked_mul(session.first_columns(owner));
    if count.is_none_or(|count| count == 0 || packed_len(Ring64, count) != elements.len()) {
        return Err(message.malformed(CodecError::Value { what: "round or length" }));
    }
    let state = host.secret().rounds.entry(round).or_default();
    state.owners.entry(owner).or_default().dealt = Some(elements.to_vec());
    first_layer(host, session, round)
}

/// The other server's share of a round's first layers, masked for an owner's samples.
fn take_masked_first_layer<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let MaskedFirstLayer { round, owner, elements } = message.read(&())?;
    if session.stacked_rows(round) == 0 || !owners(session).any(|o| o == owner) {
        return Err(malformed(CodecError::Value { what: "round or owner" }));
    }
    let count = session.stacked_rows(round).checked_mul(session.program().operators[0].shape.d_in);
    check_elements(Ring64, count, elements).map_err(malformed)?;
    let state = host.secret().rounds.entry(round).or_default();
    let masking = &mut state.owners.entry(owner).or_default().masking;
    masking.take_other::<H>(session, elements, message.kind)?;
    first_layer(host, session, round)
}

/// The other server's share of a coalition's later layer, masked for a unit.
fn take_masked_layer<H: ShareHost>(
    host: &mut H,
    session: &Session,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let malformed = |why| message.malformed(why);
    let MaskedLayer { elements, .. } = message.read(&())?;
    let address = address_of(host, session, message)?;
    let shape = session.program().operators[address.item].shape;
    check_elements(Ring64, shape.d_out.checked_mul(shape.d_in), elements).map_err(malformed)?;
    let unit = unit_of(host, address.unit, message)?;
    unit.maskings.entry(address.item).or_default().take_other::<H>(session, elements, message.kind)?;
    host.resume(address.unit)
}

/// The other server's masked factors of a gated sum.
fn take_masked_factors<H: ShareHost>(
    host: &mut H,
    session: &Session,
    message: &Incoming,
) -> Result<Effects<H>, Error> {
    let id = address_of(host, session, message)?.unit;
    let unit = unit_of(host, id, message)?;
    let taken = unit.sums.take_masked(session, &unit.context, message.read(&())?);
    taken.map_err(|why| message.malformed(why))?;
    host.resume(id)
}

/// The address of something that the other server sends about a unit under way.
fn address_of<H: ShareHost>(
    host: &mut H,
    session: &Session,
    message: &Incoming,
) -> Result<StepAddress, Error> {
    let unit = Head::step(message.kind, &message.content).map(|address| address.unit);
    let context = unit.and_then(|id| host.secret_unit(id)).map(|unit| unit.context.clone());
    Ok(server_address(session, message, |_| context.clone())?.0)
}

/// A unit under way that a message is about.
fn unit_of<'a, H: ShareHost>(
    host: &'a mut H,
    id: UnitId,
    message: &Incoming,
) -> Result<&'a mut SecretUnit, Error> {
    host.secret_unit(id).ok_or_else(|| message.unexpected("no such test"))
}

/// Takes what a decryptor shares in a unit, or a dealer. It was checked that this is the client's part.
pub(in crate::secretsv) fn take_share<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    id: UnitId,
    message: Incoming,
) -> Result<Effects<H>, Error> {
    let unit = unit_of(host, id, &message)?;
    if message.kind == Kind::Triple {
        let taken = unit.sums.take_triple(session, &unit.context, message.read(&H::SERVER)?);
        taken.map_err(|why| message.malformed(why))?;
        return host.resume(id);
    }
    let samples = unit.context.places().len();
    let ActivationShare { address, share } = message.read(&H::SERVER)?;
    if let ShareBody::Elements(elements) = share {
        let (expected, found) = (shared_len(session, address.step, samples) as u64, elements.len() as u64);
        if expected != found {
            return Err(message.malformed(CodecError::Length { expected, found }));
        }
    }
    // The principal begins when it has everybody's masks: that this server has them too is up to their dealer.
    let PartyId::Client(client) = message.from else { return Err(message.unexpected("testing")) };
    let masks = host.secret().masks.get(&client).cloned();
    let masks = masks.ok_or_else(|| message.unexpected("its server keys have not come"))?;
    let address = StepAddress::new(address.unit, address.step);
    let session = session.clone();
    let mut effects = Effects::default();
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let ActivationShare { share, .. } = message.read(&H::SERVER)?;
        let shared = shared(&session, &masks, address, samples, share).map_err(|e| message.malformed(e))?;
        Ok(move |host: &mut H| {
            if let Some(unit) = host.secret_unit(id) {
                unit.inputs.entry(address.step).or_insert(Arc::new(shared));
            }
            host.resume(id)
        })
    });
    Ok(effects)
}

/// Bytes of the elements that a client shares with the auxiliary at a step: words of any value.
fn shared_len(session: &Session, step: usize, samples: usize) -> usize {
    let program = session.program();
    let products =
        program.fed(step).into_iter().map(|(operator, _)| program.operators[operator].output_size());
    packed_len(Ring64, program.shared_size(step) * samples)
        + products.map(|size| packed_len(Ring64, size * samples)).sum::<usize>()
}

/// A server's share of what a client shared at a step, with its shares of the products that the client deals for.
fn shared(
    session: &Session,
    masks: &Masks,
    address: StepAddress,
    samples: usize,
    share: ShareBody<'_>,
) -> Result<Shared, CodecError> {
    let program = session.program();
    let rows = program.shared_size(address.step);
    let (input, mut rest) = match share {
        ShareBody::Seed(_) => (share, None),
        ShareBody::Elements(elements) => {
            let length = packed_len(Ring64, rows * samples);
            let (input, rest) = elements.split_at_checked(length).ok_or(CodecError::Truncated)?;
            (ShareBody::Elements(input), Some(rest))
        }
    };
    let mut products = BTreeMap::new();
    for (operator, _) in program.fed(address.step) {
        let product = match &mut rest {
            None => masks.product(session, address, operator, samples),
            Some(rest) => {
                let map = &program.operators[operator];
                let (d_out, columns) = (map.shape.d_out, map.positions * samples);
                let length = packed_len(Ring64, d_out * columns);
                let (product, later) = rest.split_at_checked(length).ok_or(CodecError::Truncated)?;
                *rest = later;
                own_share(d_out, columns, ShareBody::Elements(product))?
            }
        };
        products.insert(operator, Arc::new(product));
    }
    Ok(Shared { input: own_share(rows, samples, input)?, products })
}

/// A share as a server gets it: the principal a seed, the auxiliary the elements.
fn own_share(rows: usize, columns: usize, share: ShareBody<'_>) -> Result<Share<Ring64>, CodecError> {
    Ok(match share {
        ShareBody::Seed(seed) => SeedShare::new(Ring64, rows, columns, seed).expand(),
        ShareBody::Elements(elements) => Share::new(unpack_matrix(Ring64, rows, columns, elements)?),
    })
}

/// Goes on with whatever waited for masks or samples.
fn prepared<H: ShareHost>(host: &mut H, session: &Arc<Session>) -> Result<Effects<H>, Error> {
    let mut effects = host.prepared()?;
    let rounds: Vec<RoundId> = host.secret().rounds.keys().copied().collect();
    for round in rounds {
        effects.and(first_layer(host, session, round)?);
    }
    Ok(effects)
}

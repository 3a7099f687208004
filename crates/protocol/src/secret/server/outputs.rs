//! Shares of what a unit's clients are to see: outputs of layers and gated sums.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Matrix, Prg, Ring64, Share};

use super::{GATED_SUM, Host, LATER_LAYER, Masking, first_layer::sum_with_biases, is_principal, other_side};
use crate::{
    Error, PartyId,
    codec::{Writer, pack},
    message::{Kind, Place},
    program::{Input, Receive},
    role::{Effects, Outgoing, Phase},
    secret::SharedModel,
    server::{Opening, UnitContext, gated_sum, masked_factors, products_of, updates_of},
    session::Session,
};

/// Starts whatever a unit has everything for.
pub(crate) fn advance<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let Some(models) = host.secret().all_models(session, context.round) else { return Ok(effects) };
    for (step, decryption) in session.program().steps.iter().enumerate() {
        for (item, receive) in decryption.receives.iter().enumerate() {
            let place = Place { item, ..Place::new(context.id, step) };
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

/// Sends a share of outputs to the client at a step, re-randomised.
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
    let zero = zero.covering(&context.digest);
    let to = PartyId::Client(context.client(session.program().steps[place.step].slot)?);
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

/// A coalition's first-layer outputs at some positions: sums of those of its members.
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
    if !unit.started.insert((place.step, place.item)) {
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
    let samples = context.places().len();
    let mut elements = vec![0u64; rows * positions * samples];
    let group = &session.groups[context.plan.group];
    for (client, _) in session.members(context.round, context.coalition()) {
        let model = participants
            .iter()
            .position(|&participant| participant == client)
            .ok_or(Error::Local { what: "a member's model" })?;
        for (row, target) in elements.chunks_exact_mut((positions * samples).max(1)).enumerate() {
            for (position, target) in target.chunks_exact_mut(samples.max(1)).enumerate() {
                let mut parts = group.parts.iter();
                let mut part = None;
                for (sum, &place) in target.iter_mut().zip(context.places()) {
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
                        *sum = sum.wrapping_add(source[place - start]);
                    }
                }
            }
        }
    }
    Ok(Matrix::new(Ring64, rows, positions * samples, elements)?)
}

/// The sum of something of the members' models.
fn coalition_sum<'a>(
    session: &Session,
    context: &UnitContext,
    models: &'a [(usize, Arc<SharedModel>)],
    part: impl Fn(&'a SharedModel) -> &'a Share<Ring64>,
) -> Result<Share<Ring64>, Error> {
    let mut sum: Option<Matrix<Ring64>> = None;
    for (client, _) in session.members(context.round, context.coalition()) {
        let found = models.iter().find(|(owner, _)| *owner == client);
        let (_, model) = found.ok_or(Error::Local { what: "a member's model" })?;
        let part = part(model).expose();
        sum = Some(match sum {
            None => part.clone(),
            Some(sum) => sum.add(part)?,
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
    if unit.started.insert((place.step, place.item)) {
        let (owned, of, models) = (session.clone(), context.clone(), models.to_vec());
        send_outputs(&mut effects, host, session, context, place, move || {
            let bias = coalition_sum(&owned, &of, &models, |model| &model.operators[operator].1)?;
            let bias = bias.expose();
            Ok(Matrix::from_fn(Ring64, bias.rows(), of.places().len(), |j, _| bias.at(j, 0)))
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
        let dealer = context.client(session.program().steps[from].slot)?;
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
    for (step, item, operator, from) in products_of(session) {
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
        if !unit.started.insert((step, item)) {
            continue;
        }
        let (owned, of, models) = (session.clone(), context.clone(), models.to_vec());
        let place = Place { item, ..Place::new(context.id, step) };
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

/// Shares of gated sums for the re-sharer (PROTOCOL.md, the recurrent unit).
fn updates<H: Host>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    for (step, item, gates, held) in updates_of(session) {
        let place = Place { item, ..Place::new(context.id, step) };
        let unit = host.secret().units.entry(context.id).or_default();
        let (Some(gates), Some(held)) = (unit.inputs.get(&gates).cloned(), unit.inputs.get(&held).cloned())
        else {
            continue;
        };
        if unit.started.contains(&(step, item)) {
            continue;
        }
        let Some(triple) = unit.triples.get(&step) else { continue };
        let factors = unit.openings.entry(step).or_default();
        let mut masked = None;
        if factors.own.is_none() {
            let (d, e) = masked_factors(triple, &gates.input, &held.input)?;
            masked = Some(opening(GATED_SUM, place, &[d.elements(), e.elements()].concat()));
            factors.own = Some((d, e));
        }
        let ready = factors.own.is_some() && factors.other.is_some();
        if let Some(content) = masked {
            effects.outbox.push(Outgoing::new(other_side::<H>(), Kind::Opening, content));
        }
        if !ready {
            continue;
        }
        let unit = host.secret().units.entry(context.id).or_default();
        unit.started.insert((step, item));
        let (Some(triple), Some(Opening { own: Some(own), other: Some(other) })) =
            (unit.triples.remove(&step), unit.openings.remove(&step))
        else {
            return Err(Error::Local { what: "a triple" });
        };
        let common = host.common().ok_or(Error::Local { what: "the common seed" })?;
        let zero = common.derive("outputs of a test", place.unit.test).derive("outputs", place.number());
        let zero = zero.covering(&context.digest);
        let share = gated_sum(&triple, &gates.input, (&own, &other), is_principal::<H>(), &zero)?;
        let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
        let content = place.encode(&pack(Ring64, share.elements()));
        effects.outbox.push(Outgoing::new(to, Kind::OutputShare, content));
    }
    Ok(effects)
}

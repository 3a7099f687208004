//! Shares of what a unit's clients are to see: outputs of layers and gated sums.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use secsv_algebra::{Matrix, Ring64, Share};

use super::{FirstProduct, ShareHost, first_layer::sum_with_biases, other_party};
use crate::{
    Error, PartyId,
    codec::pack,
    ideal::sum_of_parts,
    message::{Kind, MaskedLayer, OutputShare, Server, StepAddress, UnitId},
    program::{Input, Program, Receive},
    role::{Effects, Outgoing, Phase},
    secretsv::SharedModel,
    session::{OwnerPart, Session},
    unit::{Product, UnitContext, products_of},
};

/// Starts whatever a unit has everything for.
pub(in crate::secretsv) fn advance<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    unit: UnitId,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let Some(context) = host.secret_unit(unit).map(|unit| unit.context.clone()) else { return Ok(effects) };
    let context = &context;
    let Some(models) = host.secret().all_models(session, context.round) else { return Ok(effects) };
    for (step, decryption) in session.program().steps.iter().enumerate() {
        for (item, receive) in decryption.receives.iter().enumerate() {
            let address = StepAddress { item, ..StepAddress::new(context.id, step) };
            match *receive {
                Receive::Outputs { input: Input::Data, first, count, .. } => {
                    effects.and(first_outputs(host, session, context, address, (first, count)));
                }
                Receive::Bias { operator } => {
                    effects.and(bias_outputs(host, session, context, address, operator, &models));
                }
                Receive::Vector { operator } => {
                    let (session, of, models) = (session.clone(), context.clone(), models.clone());
                    effects.and(send_outputs(host, context, address, move || {
                        Ok(coalition_bias(&session, &of, &models, operator)?.expose().clone())
                    }));
                }
                Receive::Sum { ref parts } => {
                    effects.and(sum_outputs(host, session, context, address, parts))
                }
                Receive::Outputs { .. } | Receive::Update { .. } => {}
            }
        }
    }
    effects.and(mask_models(host, session, context, &models));
    effects.and(later_outputs(host, session, context, &models));
    if let (Some(common), Some(unit)) = (host.common(), host.secret_unit(unit)) {
        let inputs = |step: usize| unit.inputs.get(&step).map(|shared| &shared.input);
        effects.outbox.extend(unit.sums.advance(session, context, &common, inputs)?);
    }
    Ok(effects)
}

/// Sends a share of outputs to the client at a step, re-randomised, unless that is under way.
fn send_outputs<H: ShareHost>(
    host: &mut H,
    context: &UnitContext,
    address: StepAddress,
    outputs: impl FnOnce() -> Result<Matrix<Ring64>, Error> + Send + 'static,
) -> Effects<H> {
    let mut effects = Effects::default();
    let Some(common) = host.common() else { return effects };
    let unit = host.secret_unit(context.id);
    if !unit.is_some_and(|unit| unit.begun.insert(address)) {
        return effects;
    }
    let zero = address.seed(&common, "outputs of a test").covering(&context.digest);
    let to = PartyId::Client(context.decryptor(address.step));
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let outputs = Share::new(outputs()?);
        meter.enter(Phase::Sanitise);
        let (rows, columns) = outputs.expose().shape();
        let zero = Share::new(Matrix::seeded(Ring64, rows, columns, &zero));
        let outputs = Share::new(match H::SERVER {
            Server::Principal => outputs.expose().add(zero.expose())?,
            Server::Auxiliary => outputs.expose().sub(zero.expose())?,
        });
        let elements = &pack(Ring64, outputs.expose().elements());
        let message = Outgoing::of(to, &OutputShare { address, elements });
        Ok(move |_: &mut H| Ok(Effects::send(message)))
    });
    effects
}

/// A coalition's first-layer outputs at some positions: sums of those of its members.
fn first_outputs<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    address: StepAddress,
    (first, count): (usize, usize),
) -> Effects<H> {
    let Some(round) = host.secret().rounds.get(&context.round) else { return Effects::default() };
    let known = |owner: usize| match &round.owners.get(&owner)?.outputs {
        FirstProduct::Known(outputs) => Some((owner, outputs.clone())),
        FirstProduct::Factors | FirstProduct::Product => None,
    };
    let outputs: Option<BTreeMap<usize, _>> = context.owners(session).map(known).collect();
    let Some(outputs) = outputs else { return Effects::default() };
    let (session, of) = (session.clone(), context.clone());
    send_outputs(host, context, address, move || weighted_outputs(&session, &of, &outputs, first, count))
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
    let members = session.members(context.round, context.coalition());
    let places = members.iter().filter_map(|(member, _)| participants.iter().position(|p| p == member));
    for model in places {
        for (row, target) in elements.chunks_exact_mut((positions * samples).max(1)).enumerate() {
            for (position, target) in target.chunks_exact_mut(samples.max(1)).enumerate() {
                let mut parts = group.parts.iter();
                let mut part = None;
                for (sum, &place) in target.iter_mut().zip(context.places()) {
                    // Places ascend, and so do parts.
                    while part.is_none_or(|(_, places): (_, &Range<usize>)| place >= places.end)
                        && let Some(OwnerPart { owner, places }) = parts.next()
                    {
                        let source = outputs.get(owner).map(|outputs| {
                            let row = outputs.expose().row(model * rows + row);
                            &row[(first + position) * places.len()..][..places.len()]
                        });
                        part = Some((source, places));
                    }
                    if let Some((Some(source), places)) = part {
                        *sum = sum.wrapping_add(source[place - places.start]);
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
    (rows, columns): (usize, usize),
    part: impl Fn(&'a SharedModel) -> &'a Share<Ring64>,
) -> Result<Share<Ring64>, Error> {
    let mut sum = Matrix::zero(Ring64, rows, columns);
    for (client, _) in session.members(context.round, context.coalition()) {
        for (_, model) in models.iter().filter(|(owner, _)| *owner == client) {
            sum = sum.add(part(model).expose())?;
        }
    }
    Ok(Share::new(sum))
}

/// The biases of a coalition's operator.
fn coalition_bias(
    session: &Session,
    context: &UnitContext,
    models: &[(usize, Arc<SharedModel>)],
    operator: usize,
) -> Result<Share<Ring64>, Error> {
    let rows = session.program().operators[operator].shape.d_out;
    coalition_sum(session, context, models, (rows, 1), |model| &model.operators[operator].1)
}

/// What an operator takes of what a client shared at a step.
fn taken(program: &Program, step: usize, operator: usize, shared: &Share<Ring64>) -> Share<Ring64> {
    let rows = program.fed(step).into_iter().find(|(fed, _)| *fed == operator).map(|(_, rows)| rows);
    Share::new(shared.expose().row_range(rows.unwrap_or(0..shared.expose().rows())))
}

/// The sum of what clients shared at some steps, once all of it has come.
fn sum_outputs<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    address: StepAddress,
    parts: &[(usize, usize)],
) -> Effects<H> {
    let Some(unit) = host.secret_unit(context.id) else { return Effects::default() };
    let of = |&(step, _): &(usize, usize)| Some((step, unit.inputs.get(&step)?.clone()));
    let Some(shared) = parts.iter().map(of).collect::<Option<BTreeMap<_, _>>>() else {
        return Effects::default();
    };
    let (session, parts, samples) = (session.clone(), parts.to_vec(), context.places().len());
    send_outputs(host, context, address, move || {
        let shared = |step: usize| shared.get(&step).map(|shared| shared.input.expose());
        sum_of_parts(session.program(), Ring64, &parts, samples, shared)
    })
}

/// Biases alone: the hidden gates of a zero state.
fn bias_outputs<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    address: StepAddress,
    operator: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let (session, of, models) = (session.clone(), context.clone(), models.to_vec());
    send_outputs(host, context, address, move || {
        let bias = coalition_bias(&session, &of, &models, operator)?;
        let bias = bias.expose();
        Ok(Matrix::from_fn(Ring64, bias.rows(), of.places().len(), |j, _| bias.at(j, 0)))
    })
}

/// Opens the coalition's model of every later layer, masked for this unit.
fn mask_models<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let mut effects = Effects::default();
    let id = context.id;
    for Product { operator, from, .. } in products_of(session) {
        let Some(masks) = host.secret().masks.get(&context.decryptor(from)).cloned() else { continue };
        let Some(unit) = host.secret_unit(id) else { break };
        if !unit.maskings.entry(operator).or_default().begin() {
            continue;
        }
        let (session, context, models) = (session.clone(), context.clone(), models.to_vec());
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let shape = session.program().operators[operator].shape;
            let shape = (shape.d_out, shape.d_in);
            let model = coalition_sum(&session, &context, &models, shape, |m| &m.operators[operator].0)?;
            let own = Share::new(model.expose().sub(masks.mask(&session, id, operator).expose())?);
            let address = StepAddress { item: operator, ..StepAddress::new(id, 0) };
            let elements = &pack(Ring64, own.expose().elements());
            let message = Outgoing::of(other_party::<H>(), &MaskedLayer { address, elements });
            Ok(move |host: &mut H| {
                let mut effects = Effects::send(message);
                if let Some(unit) = host.secret_unit(id) {
                    let masking = unit.maskings.entry(operator).or_default();
                    masking.take_own::<H>(&session, own, Kind::MaskedLayer)?;
                    effects.and(host.resume(id)?);
                }
                Ok(effects)
            })
        });
    }
    effects
}

/// Shares of a later layer's outputs: E X + W and the biases.
fn later_outputs<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    context: &Arc<UnitContext>,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let mut effects = Effects::default();
    for product in products_of(session) {
        let Product { operator, from, .. } = product;
        let Some(unit) = host.secret_unit(context.id) else { break };
        let masked = unit.maskings.get(&operator).and_then(|masking| masking.opened().cloned());
        let shared = unit.inputs.get(&from).cloned();
        let (Some(masked), Some(shared)) = (masked, shared) else { continue };
        let Some(dealt) = shared.products.get(&operator).cloned() else { continue };
        let (session, of, models) = (session.clone(), context.clone(), models.to_vec());
        effects.and(send_outputs(host, context, product.address(context.id), move || {
            let taken = taken(session.program(), from, operator, &shared.input);
            let columns = Share::new(session.program().operators[operator].arrange(taken.expose())?);
            let product = Share::new(masked.product(columns.expose())?);
            let bias = coalition_bias(&session, &of, &models, operator)?;
            sum_with_biases(product.expose(), dealt.expose(), bias.expose().elements())
        }));
    }
    effects
}

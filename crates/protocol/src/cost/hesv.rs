//! HESV: everything encrypted, one server.

use std::collections::BTreeSet;

use secsv_federation::RoundId;
use secsv_he::{EncryptedSlots, EvaluationKey, Packing, PublicKey, linear::EncryptedBatch};

use super::{
    secsv::{models, replies},
    tally::{Tally, lists_len},
};
use crate::{
    Error, PartyId,
    hesv::{KEPT, rotation_steps, slots_of},
    message::{Kind, TestPlan},
    server::{UnitContext, products_of, updates_of},
};

/// Keys and encrypted samples.
pub(super) fn prepare(tally: &mut Tally<'_>) -> Result<(), Error> {
    let (session, parameters) = (tally.session, tally.parameters()?);
    let rotations = rotation_steps(session)?.len();
    let keys = [PublicKey::encoded_len(parameters), EvaluationKey::encoded_len(parameters, rotations)];
    let leader = PartyId::Client(session.leader);
    tally.send(leader, PartyId::Principal, Kind::ServerKeys, lists_len(keys.into_iter()));
    tally.tell_key(keys[0]);
    for chunk in &session.chunks {
        let columns = session.program().operators[0].positions * chunk.places.len();
        let parts = batches(tally, 0, columns)?;
        let content = size_of::<u32>() + lists_len(parts.into_iter());
        for owner in session.groups[chunk.group].owners.members() {
            tally.send(PartyId::Client(owner), PartyId::Principal, Kind::Data, content);
        }
    }
    Ok(())
}

/// Encrypts columns for an operator; the length of each batch.
fn batches(tally: &mut Tally<'_>, operator: usize, columns: usize) -> Result<Vec<usize>, Error> {
    let layout = &tally.encryption()?.layouts[operator];
    let (batches, length) = (layout.batches(columns), EncryptedBatch::encoded_len(layout));
    tally.encrypt(layout.packing(), (batches * layout.inner()) as u64)?;
    tally.carry(batches * length, 1);
    Ok(vec![length; batches])
}

/// Encrypts elements in slots; the length.
fn slots(tally: &mut Tally<'_>, elements: usize) -> Result<usize, Error> {
    let parameters = tally.parameters()?;
    let (count, length) = (
        EncryptedSlots::ciphertexts(parameters, elements),
        EncryptedSlots::encoded_len(parameters, elements),
    );
    tally.encrypt(Packing::Slots, count)?;
    tally.carry(length, 1);
    tally.work.expanded += count;
    Ok(length)
}

/// Models of a round, and first-layer outputs of all of them.
pub(super) fn round(tally: &mut Tally<'_>, round: RoundId) -> Result<(), Error> {
    let session = tally.session;
    models(tally, round, &[PartyId::Principal])?;
    let models = session.federation.participants(round).len() as u64;
    for chunk in &session.chunks {
        let columns = session.program().operators[0].positions * chunk.places.len();
        sums(tally, 0, models, columns)?;
    }
    Ok(())
}

/// Products of models that are extended on the way.
fn sums(tally: &mut Tally<'_>, operator: usize, models: u64, columns: usize) -> Result<(), Error> {
    let layout = &tally.encryption()?.layouts[operator];
    let batches = layout.batches(columns) as u64;
    tally.operations += layout.sums_operations(models, batches)?;
    let work = &mut tally.work.layers[operator];
    work.extended_models += models * layout.sums_passes(models, batches)?;
    work.extended_batches += batches;
    work.full += models * batches;
    Ok(())
}

/// A test's units.
pub(super) fn test(tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
    let session = tally.session;
    let contexts = UnitContext::of(session, plan);
    let members = contexts.first().map_or(0, |context| context.members(session, 0)) as u64;
    let operators: BTreeSet<usize> = products_of(session).map(|(_, _, operator, _)| operator).collect();
    for operator in operators {
        let layout = &tally.encryption()?.layouts[operator];
        if layout.extended_bytes()? <= KEPT {
            tally.operations += layout.extension_operations()?;
            tally.work.layers[operator].extended_models += 1;
            tally.work.weighed += members * layout.weight_ciphertexts() as u64;
        }
    }
    contexts.iter().try_for_each(|context| unit(tally, context, members))
}

fn unit(tally: &mut Tally<'_>, context: &UnitContext, members: u64) -> Result<(), Error> {
    let (session, samples) = (tally.session, context.places().len());
    for owner in context.owners(session) {
        let truth = slots(tally, samples)?;
        tally.send_about_unit(PartyId::Client(owner), PartyId::Principal, Kind::Truth, truth);
    }
    for (_, _, operator, _) in products_of(session) {
        let columns = session.program().operators[operator].positions * samples;
        let layout = &tally.encryption()?.layouts[operator];
        if layout.extended_bytes()? > KEPT {
            sums(tally, operator, 1, columns)?;
            tally.work.weighed += members * layout.weight_ciphertexts() as u64;
            continue;
        }
        let batches = layout.batches(columns) as u64;
        tally.operations += layout.full_operations()? * batches;
        tally.work.layers[operator].extended_batches += batches;
        tally.work.layers[operator].full += batches;
    }
    replies(tally, context)?;
    for (step, ..) in updates_of(session) {
        let to = PartyId::Client(context.client(session.program().steps[step].slot)?);
        let hidden = session.program().gru.map_or(0, |gru| gru.hidden) * samples;
        let count = EncryptedSlots::ciphertexts(tally.parameters()?, hidden);
        tally.operations += tally.parameters()?.slot_product_operations()? * count;
        tally.work.slot_products += count;
        let list = tally.slot_reply(count)?;
        tally.send_about_unit(PartyId::Principal, to, Kind::Reply, list);
    }
    (0..session.program().steps.len()).try_for_each(|step| upload(tally, context, step))?;
    count(tally, context)
}

/// What the client of a step encrypts again, or the predicted labels.
fn upload(tally: &mut Tally<'_>, context: &UnitContext, step: usize) -> Result<(), Error> {
    let (session, samples) = (tally.session, context.places().len());
    let client = PartyId::Client(context.client(session.program().steps[step].slot)?);
    if step + 1 == session.program().steps.len() {
        let predicted = slots(tally, samples)?;
        tally.send_about_unit(client, PartyId::Principal, Kind::Predicted, predicted);
        return Ok(());
    }
    let mut parts = Vec::new();
    if let Some(operator) = session.program().steps[step].feeds {
        parts = batches(tally, operator, session.program().operators[operator].positions * samples)?;
    }
    let (vectors, elements) = slots_of(session, step, samples);
    for _ in 0..vectors {
        parts.push(slots(tally, elements)?);
    }
    tally.send_about_unit(client, PartyId::Principal, Kind::Shared, lists_len(parts.into_iter()));
    Ok(())
}

/// Blinded differences, and the number of zeros among them.
fn count(tally: &mut Tally<'_>, context: &UnitContext) -> Result<(), Error> {
    let Some(counter) = context.plan.counter.map(PartyId::Client) else { return Ok(()) };
    let count = EncryptedSlots::ciphertexts(tally.parameters()?, context.places().len());
    tally.operations += tally.parameters()?.scaling_operations() * count;
    let list = tally.slot_reply(count)?;
    tally.send_about_unit(PartyId::Principal, counter, Kind::Differences, list);
    tally.send_about_unit(counter, PartyId::Principal, Kind::Count, size_of::<u64>());
    Ok(())
}

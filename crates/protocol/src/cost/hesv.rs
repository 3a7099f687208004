//! HESV: everything encrypted, one server.

use std::collections::BTreeSet;

use secsv_federation::RoundId;
use secsv_he::{EncryptedSlots, EvaluationKey, Packing, PublicKey, linear::EncryptedBatch};

use super::{
    EngineCosts,
    secsv::{models, replies},
    tally::Tally,
};
use crate::{
    Error, PartyId,
    hesv::{KEPT, bytes_of_test, most_active, rotation_steps},
    message::{EncryptedData, EvaluationKeys, Kind, Parts, TestPlan},
    round_memory::first_batches,
    session::EncryptedSession,
    unit::{Product, UnitContext, Update, products_of, slots_of, updates_of},
};

/// HESV's costs.
pub(super) struct HesvCosts(pub EncryptedSession);

impl EngineCosts for HesvCosts {
    fn prepare(&self, tally: &mut Tally<'_>) -> Result<(), Error> {
        prepare(tally, &self.0);
        Ok(())
    }

    fn round(&self, tally: &mut Tally<'_>, of: RoundId) -> Result<(), Error> {
        round(tally, &self.0, of)
    }

    fn test(&self, tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
        test(tally, &self.0, plan)
    }

    fn memory(&self) -> usize {
        let session = &self.0;
        let uploaded = first_batches(session) * EncryptedBatch::encoded_len(session.layout(0)) * 5 / 4;
        2 * uploaded + most_active(session) * bytes_of_test(session)
    }
}

/// Keys and encrypted samples.
fn prepare(tally: &mut Tally<'_>, session: &EncryptedSession) {
    let parameters = session.parameters();
    let rotations = rotation_steps(&session.encryption).len();
    let keys = [PublicKey::encoded_len(parameters), EvaluationKey::encoded_len(parameters, rotations)];
    let leader = PartyId::Client(session.leader);
    let length = EvaluationKeys::length(keys[0], keys[1]);
    tally.send(leader, PartyId::Principal, Kind::EvaluationKeys, length);
    tally.tell_key(keys[0]);
    for chunk in &session.chunks {
        let columns = session.program().operators[0].positions * chunk.places.len();
        let parts = batches(tally, session, 0, columns);
        let content = EncryptedData::HEAD + Parts::length(parts.into_iter());
        for owner in session.groups[chunk.group].owners.members() {
            tally.send(PartyId::Client(owner), PartyId::Principal, Kind::EncryptedData, content);
        }
    }
}

/// Encrypts columns for an operator; the length of each batch.
fn batches(tally: &mut Tally<'_>, session: &EncryptedSession, operator: usize, columns: usize) -> Vec<usize> {
    let layout = session.layout(operator);
    let (batches, length) = (layout.batches(columns), EncryptedBatch::encoded_len(layout));
    tally.encrypt(session, layout.packing(), (batches * layout.inner()) as u64);
    tally.carry(batches * length, 1);
    vec![length; batches]
}

/// Encrypts elements in slots; the length.
fn slots(tally: &mut Tally<'_>, session: &EncryptedSession, elements: usize) -> usize {
    let parameters = session.parameters();
    let (count, length) = (
        EncryptedSlots::ciphertexts(parameters, elements),
        EncryptedSlots::encoded_len(parameters, elements),
    );
    tally.encrypt(session, Packing::Slots, count);
    tally.carry(length, 1);
    tally.work.expanded += count;
    length
}

/// Models of a round, and first-layer outputs of all of them.
fn round(tally: &mut Tally<'_>, session: &EncryptedSession, round: RoundId) -> Result<(), Error> {
    models(tally, session, round, &[PartyId::Principal]);
    let models = session.federation.participants(round).len() as u64;
    for chunk in &session.chunks {
        let columns = session.program().operators[0].positions * chunk.places.len();
        sums(tally, session, 0, models, columns)?;
    }
    Ok(())
}

/// Products of models that are extended on the way.
fn sums(
    tally: &mut Tally<'_>,
    session: &EncryptedSession,
    operator: usize,
    models: u64,
    columns: usize,
) -> Result<(), Error> {
    let layout = session.layout(operator);
    let batches = layout.batches(columns) as u64;
    tally.operations += layout.sums_operations(models, batches)?;
    let work = &mut tally.work.layers[operator];
    work.extended_models += models * layout.sums_passes(models, batches)?;
    work.extended_batches += batches;
    work.full += models * batches;
    Ok(())
}

/// A test's units.
fn test(tally: &mut Tally<'_>, session: &EncryptedSession, plan: &TestPlan) -> Result<(), Error> {
    let contexts = UnitContext::of(session, plan)?;
    let members = contexts.first().map_or(0, |context| context.members(session, 0)) as u64;
    let operators: BTreeSet<usize> = products_of(session).map(|product| product.operator).collect();
    for operator in operators {
        let layout = session.layout(operator);
        if layout.extended_bytes()? <= KEPT {
            tally.operations += layout.extension_operations()?;
            tally.work.layers[operator].extended_models += 1;
            tally.work.weighed += members * layout.weight_ciphertexts() as u64;
        }
    }
    contexts.iter().try_for_each(|context| unit(tally, session, context, members))
}

fn unit(
    tally: &mut Tally<'_>,
    session: &EncryptedSession,
    context: &UnitContext,
    members: u64,
) -> Result<(), Error> {
    let samples = context.places().len();
    for owner in context.owners(session) {
        let truth = slots(tally, session, samples);
        tally.send_about_unit(PartyId::Client(owner), PartyId::Principal, Kind::EncryptedLabels, truth);
    }
    for Product { operator, .. } in products_of(session) {
        let columns = session.program().operators[operator].positions * samples;
        let layout = session.layout(operator);
        if layout.extended_bytes()? > KEPT {
            sums(tally, session, operator, 1, columns)?;
            tally.work.weighed += members * layout.weight_ciphertexts() as u64;
            continue;
        }
        let batches = layout.batches(columns) as u64;
        tally.operations += layout.full_operations()? * batches;
        tally.work.layers[operator].extended_batches += batches;
        tally.work.layers[operator].full += batches;
    }
    replies(tally, session, context);
    for Update { step, .. } in updates_of(session) {
        let to = PartyId::Client(context.decryptor(step));
        let hidden = session.program().hidden() * samples;
        let count = EncryptedSlots::ciphertexts(session.parameters(), hidden);
        tally.operations += session.parameters().slot_product_operations()? * count;
        tally.work.slot_products += count;
        let list = tally.slot_reply(session, count);
        tally.send_about_unit(PartyId::Principal, to, Kind::Reply, list);
    }
    (0..session.program().steps.len()).try_for_each(|step| upload(tally, session, context, step))?;
    count(tally, session, context)
}

/// What the client of a step encrypts again, or the predicted labels.
fn upload(
    tally: &mut Tally<'_>,
    session: &EncryptedSession,
    context: &UnitContext,
    step: usize,
) -> Result<(), Error> {
    let samples = context.places().len();
    let client = PartyId::Client(context.decryptor(step));
    if step + 1 == session.program().steps.len() {
        let predicted = slots(tally, session, samples);
        tally.send_about_unit(client, PartyId::Principal, Kind::EncryptedPredictions, predicted);
        return Ok(());
    }
    let mut parts = Vec::new();
    if let Some(operator) = session.program().steps[step].feeds() {
        parts = batches(tally, session, operator, session.program().operators[operator].positions * samples);
    }
    let (vectors, elements) = slots_of(session, step, samples);
    for _ in 0..vectors {
        parts.push(slots(tally, session, elements));
    }
    tally.send_about_unit(
        client,
        PartyId::Principal,
        Kind::EncryptedActivations,
        Parts::length(parts.into_iter()),
    );
    Ok(())
}

/// Blinded differences, and the number of zeros among them.
fn count(tally: &mut Tally<'_>, session: &EncryptedSession, context: &UnitContext) -> Result<(), Error> {
    let Some(counter) = context.plan.counter.map(PartyId::Client) else { return Ok(()) };
    let count = EncryptedSlots::ciphertexts(session.parameters(), context.places().len());
    tally.operations += session.parameters().scaling_operations() * count;
    let list = tally.slot_reply(session, count);
    tally.send_about_unit(PartyId::Principal, counter, Kind::BlindedDifferences, list);
    tally.send_about_unit(counter, PartyId::Principal, Kind::Count, size_of::<u64>());
    Ok(())
}

//! SecretSV: models and test data shared modulo 2^64.

use std::collections::BTreeSet;

use secsv_algebra::Ring64;
use secsv_federation::RoundId;

use super::{
    SEED,
    secsv::{labels, predicted},
    tally::Tally,
};
use crate::{
    Error, PartyId,
    codec::packed_len,
    message::{Kind, TestPlan},
    program::{Input, Receive},
    secret::{SharedModel, first_columns, stacked},
    server::{UnitContext, products_of, updates_of},
};

const SERVERS: [PartyId; 2] = [PartyId::Principal, PartyId::Auxiliary];

fn packed(elements: usize) -> usize {
    packed_len(Ring64, elements)
}

/// Seeds of masks, and shares of samples.
pub(super) fn prepare(tally: &mut Tally<'_>) -> Result<(), Error> {
    let session = tally.session;
    for (client, hello) in session.hellos.iter().enumerate() {
        let client = PartyId::Client(client);
        for server in SERVERS {
            tally.send(client, server, Kind::ServerKeys, SEED);
        }
        let elements = session.program().input_size * hello.samples as usize;
        if elements > 0 {
            tally.send(client, PartyId::Principal, Kind::Data, SEED);
            tally.send(client, PartyId::Auxiliary, Kind::Data, packed(elements));
            tally.work.shared += elements as u64;
        }
    }
    Ok(())
}

/// Models of a round, and their first layers on every owner's samples.
pub(super) fn round(tally: &mut Tally<'_>, round: RoundId) -> Result<(), Error> {
    let session = tally.session;
    let size = SharedModel::size(session.program());
    for client in session.federation.participants(round).members() {
        let client = PartyId::Client(client);
        let head = size_of::<u32>();
        tally.send(client, PartyId::Principal, Kind::Model, head + SEED);
        tally.send(client, PartyId::Auxiliary, Kind::Model, head + packed(size));
        tally.work.shared += size as u64;
    }
    let (rows, d_in) = (stacked(session, round), session.program().operators[0].shape.d_in);
    for (owner, _) in session.hellos.iter().enumerate().filter(|(_, hello)| hello.samples > 0) {
        let outputs = rows * first_columns(session, owner);
        let head = size_of::<u32>();
        tally.send(PartyId::Client(owner), PartyId::Auxiliary, Kind::FirstLayer, head + packed(outputs));
        both_ways(tally, 1 + size_of::<u32>() + size_of::<u16>() + packed(rows * d_in));
        tally.work.shared += (2 * rows * d_in + outputs) as u64;
        // Once by the owner, once by each server.
        tally.work.word_products += 3 * (outputs * d_in) as u64;
    }
    Ok(())
}

fn both_ways(tally: &mut Tally<'_>, content: usize) {
    tally.send(SERVERS[0], SERVERS[1], Kind::Opening, content);
    tally.send(SERVERS[1], SERVERS[0], Kind::Opening, content);
}

/// A test's units.
pub(super) fn test(tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
    UnitContext::of(tally.session, plan).iter().try_for_each(|context| unit(tally, context))
}

fn unit(tally: &mut Tally<'_>, context: &UnitContext) -> Result<(), Error> {
    let (session, samples) = (tally.session, context.places().len());
    let members = context.members(session, 0);
    let program = session.program();
    labels(tally, context);
    let kind_and_place = 1 + super::tally::place_len();
    let operators: BTreeSet<usize> = products_of(session).map(|(_, _, operator, _)| operator).collect();
    for operator in operators {
        let shape = program.operators[operator].shape;
        let weights = shape.d_out * shape.d_in;
        both_ways(tally, kind_and_place + packed(weights));
        // Masks and their opening, and the members' weights added up.
        tally.work.shared += (2 * weights) as u64;
        tally.work.scaled += (2 * weights * members) as u64;
    }
    let hidden = program.gru.map_or(0, |gru| gru.hidden) * samples;
    for _ in updates_of(session) {
        if let Some(dealer) = context.plan.dealer {
            tally.share(dealer, Kind::Triple, 6 * hidden, SEED + packed(hidden));
        }
        both_ways(tally, kind_and_place + packed(2 * hidden));
    }
    for step in 0..program.steps.len() {
        outputs(tally, context, step, members)?;
        hand_on(tally, context, step)?;
    }
    Ok(())
}

/// Both servers' shares of what a step receives.
fn outputs(tally: &mut Tally<'_>, context: &UnitContext, step: usize, members: usize) -> Result<(), Error> {
    let (program, samples) = (tally.session.program(), context.places().len());
    let to = PartyId::Client(context.client(program.steps[step].slot)?);
    for receive in &program.steps[step].receives {
        let (elements, products) = match *receive {
            Receive::Outputs { operator, input: Input::Data, count, .. } => {
                let elements = program.operators[operator].shape.d_out * count * samples;
                tally.work.scaled += 2 * (elements * members) as u64;
                (elements, 0)
            }
            Receive::Outputs { operator, count, .. } => {
                let shape = program.operators[operator].shape;
                let elements = shape.d_out * count * samples;
                (elements, 2 * elements * shape.d_in)
            }
            Receive::Bias { operator } => (program.operators[operator].shape.d_out * samples, 0),
            Receive::Update { .. } => (program.gru.map_or(0, |gru| gru.hidden) * samples, 0),
        };
        for server in SERVERS {
            tally.send_about_unit(server, to, Kind::OutputShare, packed(elements));
        }
        tally.work.shared += 2 * elements as u64;
        tally.work.word_products += products as u64;
    }
    Ok(())
}

/// What the client of a step shares, with what it deals for the product that follows.
fn hand_on(tally: &mut Tally<'_>, context: &UnitContext, step: usize) -> Result<(), Error> {
    let (program, samples) = (tally.session.program(), context.places().len());
    let client = context.client(program.steps[step].slot)?;
    if step + 1 == program.steps.len() {
        predicted(tally, context, client);
        return Ok(());
    }
    let elements = program.shared_size(step) * samples;
    let dealt = program.steps[step].feeds.map_or(0, |operator| {
        let operator = &program.operators[operator];
        let outputs = operator.shape.d_out * operator.positions * samples;
        tally.work.word_products += (outputs * operator.shape.d_in) as u64;
        tally.work.shared += (operator.shape.d_out * operator.shape.d_in) as u64;
        outputs
    });
    tally.share(client, Kind::Shared, elements + dealt, packed(elements) + packed(dealt));
    Ok(())
}

//! SecretSV: models and test data shared modulo 2^64.

use std::{collections::BTreeSet, sync::Arc};

use secsv_algebra::Ring64;
use secsv_federation::{Coalition, RoundId};

use super::{
    EngineCosts, SEED,
    secsv::{labels, predicted},
    tally::Tally,
};
use crate::{
    Error, PartyId,
    codec::packed_len,
    message::{DealtProduct, Kind, MaskedFirstLayer, ModelShare, StepAddress, TestPlan},
    program::{Input, Receive},
    scheduler::max_tests,
    session::Session,
    unit::{UnitContext, products_of, updates_of},
};

const SERVERS: [PartyId; 2] = [PartyId::Principal, PartyId::Auxiliary];

fn packed(elements: usize) -> usize {
    packed_len(Ring64, elements)
}

/// SecretSV's costs.
pub(super) struct SecretSvCosts(pub Arc<Session>);

impl EngineCosts for SecretSvCosts {
    fn prepare(&self, tally: &mut Tally<'_>) -> Result<(), Error> {
        prepare(tally);
        Ok(())
    }

    /// Owners deal for the first layer of every round.
    fn concerned(&self, session: &Session, round: RoundId) -> Coalition {
        let participants = session.federation.participants(round);
        session.groups.iter().fold(participants, |all, group| all.union(group.owners))
    }

    fn round(&self, tally: &mut Tally<'_>, of: RoundId) -> Result<(), Error> {
        round(tally, of);
        Ok(())
    }

    fn test(&self, tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
        UnitContext::of(tally.session, plan)?.iter().for_each(|context| unit(tally, context));
        Ok(())
    }

    fn memory(&self) -> usize {
        max_tests(&self.0) * 4 * 8 * self.0.program().model_size()
    }
}

/// Seeds of masks, and shares of samples.
fn prepare(tally: &mut Tally<'_>) {
    let session = tally.session;
    for (client, hello) in session.hellos.iter().enumerate() {
        let client = PartyId::Client(client);
        for server in SERVERS {
            tally.send(client, server, Kind::MaskSeed, SEED);
        }
        let elements = session.program().input_size * hello.samples as usize;
        if elements > 0 {
            tally.send(client, PartyId::Principal, Kind::DataShare, SEED);
            tally.send(client, PartyId::Auxiliary, Kind::DataShare, packed(elements));
            tally.work.shared += elements as u64;
        }
    }
}

/// Models of a round, and their first layers on every owner's samples.
pub(super) fn round(tally: &mut Tally<'_>, round: RoundId) {
    let session = tally.session;
    let size = session.program().model_size();
    for client in session.federation.participants(round).members() {
        let client = PartyId::Client(client);
        let head = ModelShare::HEAD;
        tally.send(client, PartyId::Principal, Kind::ModelShare, head + SEED);
        tally.send(client, PartyId::Auxiliary, Kind::ModelShare, head + packed(size));
        tally.work.shared += size as u64;
    }
    let (rows, d_in) = (session.stacked_rows(round), session.program().operators[0].shape.d_in);
    for (owner, _) in session.hellos.iter().enumerate().filter(|(_, hello)| hello.samples > 0) {
        let outputs = rows * session.first_columns(owner);
        let dealt = DealtProduct::HEAD + packed(outputs);
        tally.send(PartyId::Client(owner), PartyId::Auxiliary, Kind::DealtProduct, dealt);
        both_ways(tally, Kind::MaskedFirstLayer, MaskedFirstLayer::HEAD + packed(rows * d_in));
        tally.work.shared += (2 * rows * d_in + outputs) as u64;
        // Once by the owner, once by each server.
        tally.work.word_products += 3 * (outputs * d_in) as u64;
    }
}

fn both_ways(tally: &mut Tally<'_>, kind: Kind, content: usize) {
    tally.send(SERVERS[0], SERVERS[1], kind, content);
    tally.send(SERVERS[1], SERVERS[0], kind, content);
}

fn unit(tally: &mut Tally<'_>, context: &UnitContext) {
    let (session, samples) = (tally.session, context.places().len());
    let members = context.members(session, 0);
    let program = session.program();
    labels(tally, context);
    let operators: BTreeSet<usize> = products_of(session).map(|product| product.operator).collect();
    for operator in operators {
        let shape = program.operators[operator].shape;
        let weights = shape.d_out * shape.d_in;
        both_ways(tally, Kind::MaskedLayer, StepAddress::LENGTH + packed(weights));
        // Masks and their opening, and the members' weights added up.
        tally.work.shared += (2 * weights) as u64;
        tally.work.scaled += (2 * weights * members) as u64;
    }
    let hidden = program.hidden() * samples;
    for _ in updates_of(session) {
        if let Some(dealer) = context.plan.dealer {
            tally.share(dealer, Kind::Triple, 6 * hidden, SEED + packed(hidden));
        }
        both_ways(tally, Kind::MaskedFactors, StepAddress::LENGTH + packed(2 * hidden));
    }
    for step in 0..program.steps.len() {
        outputs(tally, context, step, members);
        hand_on(tally, context, step);
    }
}

/// Both servers' shares of what a step receives.
fn outputs(tally: &mut Tally<'_>, context: &UnitContext, step: usize, members: usize) {
    let (program, samples) = (tally.session.program(), context.places().len());
    let to = PartyId::Client(context.decryptor(step));
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
            Receive::Update { .. } => (program.hidden() * samples, 0),
            Receive::Vector { operator } => (program.operators[operator].shape.d_out, 0),
            Receive::Sum { ref parts } => (program.sum_size(parts) * samples, 0),
        };
        for server in SERVERS {
            tally.send_about_unit(server, to, Kind::OutputShare, packed(elements));
        }
        tally.work.shared += 2 * elements as u64;
        tally.work.word_products += products as u64;
    }
}

/// What the client of a step shares, with what it deals for the product that follows.
fn hand_on(tally: &mut Tally<'_>, context: &UnitContext, step: usize) {
    let (program, samples) = (tally.session.program(), context.places().len());
    let client = context.decryptor(step);
    if step + 1 == program.steps.len() {
        predicted(tally, context, client);
        return;
    }
    let elements = program.shared_size(step) * samples;
    let mut dealt = 0;
    for (operator, _) in program.fed(step) {
        let operator = &program.operators[operator];
        let outputs = operator.shape.d_out * operator.positions * samples;
        tally.work.word_products += (outputs * operator.shape.d_in) as u64;
        tally.work.shared += (operator.shape.d_out * operator.shape.d_in) as u64;
        dealt += outputs;
    }
    tally.share(client, Kind::ActivationShare, elements + dealt, packed(elements) + packed(dealt));
}

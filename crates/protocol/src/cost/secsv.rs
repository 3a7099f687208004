//! SecSV: models encrypted, test data shared.

use secsv_federation::{RoundId, SampleSet};
use secsv_he::{
    PublicKey,
    linear::{EncryptedBias, EncryptedMatrix, Layout},
};

use super::{EngineCosts, SEED, memory::labels as labels_memory, tally::Tally};
use crate::{
    Error, PartyId,
    codec::packed_len,
    comparison::labelled,
    first_layer_batch::may_gather,
    message::{FirstLayerBatchId, FirstLayerHalf, Kind, Model, TestPlan},
    program::{Input, Receive},
    round_memory::first_batches,
    scheduler::max_tests,
    secsv::keeps_encoded_samples,
    session::EncryptedSession,
    unit::{Product, UnitContext, Update, products_of, updates_of},
};

/// SecSV's costs.
pub(super) struct SecSvCosts(pub EncryptedSession);

impl EngineCosts for SecSvCosts {
    fn prepare(&self, tally: &mut Tally<'_>) -> Result<(), Error> {
        prepare(tally, &self.0);
        Ok(())
    }

    fn round(&self, tally: &mut Tally<'_>, of: RoundId) -> Result<(), Error> {
        round(tally, &self.0, of);
        Ok(())
    }

    fn test(&self, tally: &mut Tally<'_>, plan: &TestPlan) -> Result<(), Error> {
        test(tally, &self.0, plan)
    }

    fn gather(&self, plan: &mut TestPlan) {
        for unit in plan.units.iter_mut().filter(|unit| may_gather(&self.0, unit.group)) {
            unit.gathered = Some(SampleSet::all(self.0.groups[unit.group].size));
        }
    }

    fn memory(&self) -> usize {
        let (session, active) = (&self.0, max_tests(&self.0));
        let later: usize =
            session.encryption.layouts.iter().skip(1).map(|layout| layout.prepared_bytes()).sum();
        let encoded = if keeps_encoded_samples(session) {
            2 * first_batches(session) * session.layout(0).encoded_bytes()
        } else {
            0
        };
        encoded + active * 2 * later + labels_memory(session.shared(), active)
    }
}

/// Keys and shares of samples.
fn prepare(tally: &mut Tally<'_>, session: &EncryptedSession) {
    let key = PublicKey::encoded_len(session.parameters());
    for server in [PartyId::Principal, PartyId::Auxiliary] {
        tally.send(PartyId::Client(session.leader), server, Kind::ServerKeys, key);
    }
    tally.tell_key(key);
    for (client, hello) in session.hellos.iter().enumerate().filter(|(_, hello)| hello.samples > 0) {
        let elements = session.program().input_size * hello.samples as usize;
        let rest = packed_len(session.field(), elements);
        tally.send(PartyId::Client(client), PartyId::Principal, Kind::DataShare, SEED);
        tally.send(PartyId::Client(client), PartyId::Auxiliary, Kind::DataShare, rest);
        tally.work.shared += elements as u64;
    }
}

/// Models of a round, and first-layer outputs of all of them.
fn round(tally: &mut Tally<'_>, session: &EncryptedSession, round: RoundId) {
    models(tally, session, round, &[PartyId::Principal, PartyId::Auxiliary]);
    let models = session.federation.participants(round).len() as u64;
    let layout = session.layout(0);
    let encoded = tally.samples_encoded;
    tally.samples_encoded = keeps_encoded_samples(session);
    let layer_batches = (0..=tally.gathered)
        .flat_map(|layer_batch| session.chunks.iter().map(move |chunk| (layer_batch, chunk)));
    for (layer_batch, chunk) in
        layer_batches.filter(|(layer_batch, chunk)| *layer_batch == 0 || may_gather(session, chunk.group))
    {
        let columns = session.program().operators[0].positions * chunk.places.len();
        let batches = layout.batches(columns) as u64;
        if layer_batch > 0 || !encoded {
            encode(tally, session, 0, batches);
        }
        half_products(tally, session, 0, models, batches);
        let outputs = tally.rerandomise(session, models * batches * layout.rows() as u64);
        let gathered = FirstLayerBatchId::Gathered([0; 32]);
        let head = FirstLayerHalf::head(if layer_batch == 0 { FirstLayerBatchId::All } else { gathered });
        tally.send(PartyId::Auxiliary, PartyId::Principal, Kind::FirstLayerHalf, head + outputs);
    }
}

/// Every participant's encrypted model, for the servers.
pub(super) fn models(tally: &mut Tally<'_>, session: &EncryptedSession, round: RoundId, servers: &[PartyId]) {
    let layouts = &session.encryption.layouts;
    for client in session.federation.participants(round).members() {
        for layout in layouts {
            let (weights, biases) = (layout.weight_ciphertexts() as u64, layout.rows() as u64);
            tally.encrypt(session, layout.packing(), weights + biases);
            if servers.len() > 1 {
                tally.work.prepared += weights * servers.len() as u64;
            }
            tally.work.expanded += biases;
            tally.carry(EncryptedMatrix::encoded_len(layout), servers.len() as u64);
            tally.carry(EncryptedBias::encoded_len(layout), 1);
        }
        let parts =
            layouts.iter().flat_map(|l| [EncryptedMatrix::encoded_len(l), EncryptedBias::encoded_len(l)]);
        let model = Model::length(parts);
        for &server in servers {
            tally.send(PartyId::Client(client), server, Kind::Model, model);
        }
    }
}

/// Both servers' products.
fn half_products(
    tally: &mut Tally<'_>,
    session: &EncryptedSession,
    operator: usize,
    models: u64,
    batches: u64,
) {
    let layout = session.layout(operator);
    tally.operations += layout.half_operations(models, batches) * 2;
    tally.work.layers[operator].multiplied += 2 * models * batches;
}

/// Both servers' encodings.
fn encode(tally: &mut Tally<'_>, session: &EncryptedSession, operator: usize, batches: u64) {
    tally.operations += session.layout(operator).encoding_operations(batches) * 2;
    tally.work.layers[operator].encoded += 2 * batches;
}

/// A test's units.
fn test(tally: &mut Tally<'_>, session: &EncryptedSession, plan: &TestPlan) -> Result<(), Error> {
    let contexts = UnitContext::of(session, plan)?;
    // Later layers: whoever has them tests one coalition at a time.
    let members = contexts.first().map_or(0, |context| context.members(session, 0)) as u64;
    for layout in session.encryption.layouts.iter().skip(1) {
        tally.work.weighed += 2 * members * layout.weight_ciphertexts() as u64;
    }
    contexts.iter().for_each(|context| unit(tally, session, context));
    Ok(())
}

fn unit(tally: &mut Tally<'_>, session: &EncryptedSession, context: &UnitContext) {
    let samples = context.places().len();
    let layouts = &session.encryption.layouts;
    labels(tally, context);
    for Product { operator, .. } in products_of(session) {
        let layout = &layouts[operator];
        let batches = layout.batches(session.program().operators[operator].positions * samples) as u64;
        encode(tally, session, operator, batches);
        half_products(tally, session, operator, 1, batches);
        let halves = tally.rerandomise(session, batches * layout.rows() as u64);
        tally.send_about_unit(PartyId::Auxiliary, PartyId::Principal, Kind::LayerHalf, halves);
    }
    replies(tally, session, context);
    for Update { step, .. } in updates_of(session) {
        update(tally, session, context, step);
    }
    let last = session.program().steps.len() - 1;
    for step in 0..=last {
        let client = context.decryptor(step);
        if step == last {
            predicted(tally, context, client);
        } else {
            let elements = session.program().shared_size(step) * samples;
            tally.share(client, Kind::ActivationShare, elements, packed_len(session.field(), elements));
        }
    }
}

/// Shares of labels, and what comes of them.
pub(super) fn labels(tally: &mut Tally<'_>, context: &UnitContext) {
    let session = tally.session;
    for owner in context.owners(session) {
        let places = session.groups[context.plan.group].places(owner);
        let lengths =
            context.shared_truths(session, owner).map(|(_, n)| context.selections[n].within(&places).len());
        tally.share_labels(owner, Kind::LabelShare, lengths.sum(), context.truth_bytes(session, owner));
    }
    let differences = context.label_bytes(session);
    tally.send_about_unit(PartyId::Auxiliary, PartyId::Principal, Kind::DifferenceShare, differences);
    let seeds = SEED * labelled(session, context).len();
    tally.send_about_unit(PartyId::Principal, PartyId::Auxiliary, Kind::OpenedSeeds, seeds);
}

/// Shares of what the last decryptor found.
pub(super) fn predicted(tally: &mut Tally<'_>, context: &UnitContext, client: usize) {
    let bytes = context.label_bytes(tally.session);
    tally.share_labels(client, Kind::PredictionShare, context.labels(), bytes);
}

/// Replies with layers' outputs, or biases alone.
pub(super) fn replies(tally: &mut Tally<'_>, session: &EncryptedSession, context: &UnitContext) {
    let layouts = &session.encryption.layouts;
    for (step, decryption) in session.program().steps.iter().enumerate() {
        let to = PartyId::Client(context.decryptor(step));
        for receive in &decryption.receives {
            // By batch, how many of its columns are wanted.
            let mut reply = |operator: usize, number: usize, wanted: &[usize]| {
                let layout = &layouts[operator];
                let rows = 0..layout.rows();
                let carried = wanted
                    .iter()
                    .flat_map(|&columns| rows.clone().map(move |row| layout.carried(row, columns)));
                let list = tally.reply(session, layout.packing(), carried);
                let members = context.members(session, number);
                tally.work.weighed += (wanted.len() * layout.rows() * members) as u64;
                tally.send_about_unit(PartyId::Principal, to, Kind::Reply, list);
            };
            match *receive {
                Receive::Outputs { operator, input: Input::Data, first, count } => {
                    for &number in &context.combinations(session).sent {
                        let samples = &context.selections[number].samples;
                        for chunk in context.layer_batch.wanted_chunks(samples) {
                            let columns = session.program().operators[operator].positions
                                * context.layer_batch.length(chunk);
                            let wants = context.layer_batch.wants(samples, chunk, (first, count));
                            let mut wanted = vec![0; layouts[operator].batches(columns)];
                            let batch = layouts[operator].batch();
                            (0..columns)
                                .filter(|&column| wants(column))
                                .for_each(|column| wanted[column / batch] += 1);
                            wanted.retain(|&columns| columns > 0);
                            reply(operator, number, &wanted);
                        }
                    }
                }
                Receive::Outputs { operator, count, .. } => {
                    reply(operator, 0, &full(&layouts[operator], count * context.places().len()));
                }
                Receive::Bias { operator } => {
                    reply(operator, 0, &full(&layouts[operator], context.places().len()));
                }
                Receive::Update { .. } | Receive::Vector { .. } | Receive::Sum { .. } => {}
            }
        }
    }
}

/// How many columns each batch has.
fn full(layout: &Layout, columns: usize) -> Vec<usize> {
    let batches = 0..layout.batches(columns);
    batches.map(|batch| (columns - batch * layout.batch()).min(layout.batch())).collect()
}

/// A gated sum: the dealer's triple, masked factors both ways, shares for the re-sharer.
fn update(tally: &mut Tally<'_>, session: &EncryptedSession, context: &UnitContext, step: usize) {
    let hidden = session.program().hidden() * context.places().len();
    let packed = |elements| packed_len(session.field(), elements);
    if let Some(dealer) = context.plan.dealer {
        tally.share(dealer, Kind::Triple, 6 * hidden, SEED + packed(hidden));
    }
    let to = PartyId::Client(context.decryptor(step));
    let servers = [PartyId::Principal, PartyId::Auxiliary];
    for (from, other) in [(servers[0], servers[1]), (servers[1], servers[0])] {
        tally.send_about_unit(from, other, Kind::MaskedFactors, packed(2 * hidden));
        tally.send_about_unit(from, to, Kind::OutputShare, packed(hidden));
    }
}

//! What both servers do alike: keep shares and encrypted models, and multiply them.

mod gated_sums;
pub(crate) mod recount;
mod unit;

pub(crate) use gated_sums::{Opening, Triple, gated_sum, masked_factors, updates_of};
use recount::Labelled;
pub(crate) use unit::UnitContext;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use secsv_algebra::{Field, Matrix, Ring, Seed, Share};
use secsv_federation::{Coalition, RoundId};
use secsv_he::{
    Ciphertext,
    linear::{EncodedBatch, EncryptedBias, Layout, PreparedMatrix, multiply, multiply_samples},
};

use crate::{
    Error, PartyId,
    error::CodecError,
    first_layer_batch::FirstLayerBatch,
    labels::Packed,
    message::{
        COMMITMENT, FirstLayerBatchId, Kind, Message, Model, Parts, Recount, StepAddress, TestPlan, UnitId,
    },
    program::Receive,
    role::{Digest, Effects, Incoming, Meter, Outgoing, Phase},
    session::Session,
};

/// Batches that meet a model in one first-layer batch, so that its weights are read from memory once for all of them.
const BATCHES_AT_ONCE: usize = 4;

/// A client's model of a round, or its models of a round batch, ready to multiply.
pub(crate) struct LocalModel {
    pub weights: Vec<PreparedMatrix>,
    /// Biases, at the principal alone.
    pub biases: Vec<Vec<Ciphertext>>,
    /// Of the message it came in.
    pub digest: Digest,
}

impl LocalModel {
    /// Decodes what a client sent: weights and biases, operator by operator.
    pub(crate) fn decode(
        session: &Session,
        with_biases: bool,
        message: &Incoming,
        meter: &mut Meter<'_>,
    ) -> Result<Self, Error> {
        let malformed = |why| message.malformed(why);
        let Model { layers: Parts(parts), .. } = message.read(&())?;
        let layouts = &session.encryption()?.layouts;
        if parts.len() != 2 * layouts.len() {
            return Err(malformed(CodecError::Value { what: "layers" }));
        }
        let mut model = Self { weights: Vec::new(), biases: Vec::new(), digest: message.digest };
        meter.enter(Phase::Codec);
        for (layout, part) in layouts.iter().zip(parts.chunks_exact(2)) {
            let weights = PreparedMatrix::from_bytes(layout, part[0]).map_err(|e| malformed(e.into()))?;
            model.weights.push(weights);
            if with_biases {
                let bias = EncryptedBias::from_bytes(layout, part[1]).map_err(|e| malformed(e.into()))?;
                model.biases.push(layout.expand_bias(&bias)?);
            }
        }
        Ok(model)
    }
}

/// Shares of all clients' samples and the models of open rounds.
#[derive(Default)]
pub(crate) struct Store {
    pub data: BTreeMap<usize, Arc<Share<Field>>>,
    /// Of what came for the whole session: keys and samples, by sender and, in HESV, chunk.
    pub digests: BTreeMap<(Kind, usize), Digest>,
    pub models: BTreeMap<RoundId, BTreeMap<usize, Arc<LocalModel>>>,
    /// Models of coalitions, by test and operator, while the test runs.
    pub coalitions: BTreeMap<(u64, usize), Option<Arc<PreparedMatrix>>>,
    /// Its share of the samples as the first layer needs it.
    pub encoded: Arc<EncodedChunks>,
}

impl Store {
    /// All shares, once every owner's has come.
    pub(crate) fn all_data(&self, session: &Session) -> Option<BTreeMap<usize, Arc<Share<Field>>>> {
        let owners = session.groups.iter().flat_map(|group| group.owners.members());
        owners.map(|owner| self.data.get(&owner).map(|share| (owner, share.clone()))).collect()
    }

    /// All models of a round in the order of their clients, once everybody's has come.
    pub(crate) fn all_models(
        &self,
        session: &Session,
        round: RoundId,
    ) -> Option<Vec<(usize, Arc<LocalModel>)>> {
        let models = self.models.get(&round)?;
        session
            .federation
            .participants(round)
            .members()
            .map(|i| models.get(&i).map(|m| (i, m.clone())))
            .collect()
    }

    /// A digest of everything that outputs of a round are computed from: keys, samples, models. Randomness that covers such
    /// outputs depends on it. The same at any time, because nothing is computed before all of it is there.
    pub(crate) fn digest(&self, round: RoundId) -> Digest {
        let mut hash = blake3::Hasher::new();
        for ((kind, number), digest) in &self.digests {
            hash.update(&[*kind as u8]).update(&(*number as u64).to_le_bytes()).update(digest);
        }
        for (client, model) in self.models.get(&round).into_iter().flatten() {
            hash.update(&(*client as u64).to_le_bytes()).update(&model.digest);
        }
        *hash.finalize().as_bytes()
    }

    pub(crate) fn forget_round(&mut self, round: RoundId) {
        self.models.remove(&round);
    }

    pub(crate) fn forget_test(&mut self, test: u64) {
        self.coalitions.retain(|(of, _), _| *of != test);
    }
}

/// The model of a coalition: the sum of its members', each times its share (Algorithm 3, "aggregation under HE").
pub(crate) fn coalition_model(
    session: &Session,
    operator: usize,
    round: RoundId,
    coalition: Coalition,
    models: &[(usize, Arc<LocalModel>)],
    meter: &mut Meter<'_>,
) -> Result<PreparedMatrix, Error> {
    meter.enter(Phase::Linear);
    let members = session.members(round, coalition);
    let of =
        |i: &usize| models.iter().find(|(client, _)| client == i).map(|(_, m)| (1, &m.weights[operator]));
    let terms: Vec<(u32, &PreparedMatrix)> = members.iter().filter_map(|(i, _)| of(i)).collect();
    Ok(PreparedMatrix::weighted_sum(&session.encryption()?.layouts[operator], &terms)?)
}

/// One server's share of a chunk's samples, arranged for the first operator.
fn chunk_columns(
    session: &Session,
    layer_batch: &FirstLayerBatch,
    chunk: usize,
    data: &BTreeMap<usize, Arc<Share<Field>>>,
) -> Result<Matrix<Field>, Error> {
    let group = &session.groups[layer_batch.group];
    let (field, rows) = (session.field(), session.program().input_size);
    let columns = layer_batch.length(chunk);
    let places: Vec<usize> = layer_batch.places(chunk).collect();
    let mut elements = vec![0; rows * columns];
    for &(owner, first, count) in &group.parts {
        // Places ascend, and so do the parts of owners.
        let from = places.partition_point(|&place| place < first);
        let to = places.partition_point(|&place| place < first + count);
        if from == to {
            continue;
        }
        let share = data.get(&owner).ok_or(Error::Local { what: "an owner's share" })?.expose();
        for row in 0..rows {
            let (source, target) = (share.row(row), &mut elements[row * columns..][from..to]);
            target.iter_mut().zip(&places[from..to]).for_each(|(to, place)| *to = source[place - first]);
        }
    }
    session.program().operators[0].arrange(&Matrix::new(field, rows, columns, elements)?)
}

/// Bytes of encoded samples that a server keeps from round to round: all of them or none.
const ENCODED_KEPT: usize = 256 << 20;

/// Whether a server keeps its share of all samples as the first layer needs it: they meet every round's models.
pub(crate) fn keeps_encoded_samples(session: &Session) -> bool {
    let Some(layout) = session.encryption.as_ref().and_then(|encryption| encryption.layouts.first()) else {
        return false;
    };
    if session.round_batches.len() < 2 {
        return false;
    }
    let positions = session.program().operators[0].positions;
    let batches: usize =
        session.chunks.iter().map(|chunk| layout.batches(positions * chunk.places.len())).sum();
    batches * layout.encoded_bytes() <= ENCODED_KEPT
}

/// One chunk, once it is encoded.
type EncodedChunk = Mutex<Option<Arc<Vec<EncodedBatch>>>>;

/// A server's share of the samples, encoded, chunk by chunk: made by who needs a chunk first.
#[derive(Default)]
pub(crate) struct EncodedChunks(Mutex<BTreeMap<usize, Arc<EncodedChunk>>>);

impl EncodedChunks {
    fn get(
        &self,
        chunk: usize,
        encode: impl FnOnce() -> Result<Vec<EncodedBatch>, Error>,
    ) -> Result<Arc<Vec<EncodedBatch>>, Error> {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(chunk).or_default().clone();
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batches) = &*kept {
            return Ok(batches.clone());
        }
        Ok(kept.insert(Arc::new(encode()?)).clone())
    }
}

/// One server's first-layer outputs of a chunk: for each model, batch after batch, row after row.
pub(crate) fn first_products(
    session: &Session,
    layer_batch: &FirstLayerBatch,
    chunk: usize,
    data: &BTreeMap<usize, Arc<Share<Field>>>,
    models: &[(usize, Arc<LocalModel>)],
    kept: &EncodedChunks,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<Ciphertext>>, Error> {
    meter.enter(Phase::Linear);
    let layout = &session.encryption()?.layouts[0];
    let weights: Vec<_> = models.iter().map(|(_, model)| &model.weights[0]).collect();
    if layer_batch.id != FirstLayerBatchId::All || !keeps_encoded_samples(session) {
        return products(layout, &weights, &chunk_columns(session, layer_batch, chunk, data)?, meter);
    }
    let batches = kept.get(chunk, || {
        Ok(layout.encode(&chunk_columns(session, layer_batch, chunk, data)?, &mut meter.operations)?)
    })?;
    let mut outputs: Vec<Vec<Ciphertext>> = weights.iter().map(|_| Vec::new()).collect();
    for batches in batches.chunks(BATCHES_AT_ONCE) {
        let batches: Vec<_> = batches.iter().collect();
        let found = multiply(layout, &weights, &batches, None, &mut meter.operations)?;
        for (i, rows) in found.into_iter().enumerate() {
            outputs[i / batches.len()].extend(rows);
        }
    }
    Ok(outputs)
}

/// Products of models and columns: for each model, batch after batch, row after row.
pub(crate) fn products(
    layout: &Layout,
    models: &[&PreparedMatrix],
    columns: &Matrix<Field>,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<Ciphertext>>, Error> {
    meter.enter(Phase::Linear);
    let batches = layout.batches(columns.columns());
    let mut outputs: Vec<Vec<Ciphertext>> =
        models.iter().map(|_| Vec::with_capacity(batches * layout.rows())).collect();
    for first in (0..batches).step_by(BATCHES_AT_ONCE) {
        let count = BATCHES_AT_ONCE.min(batches - first);
        let found = multiply_samples(layout, models, columns, first..first + count, &mut meter.operations)?;
        for (i, rows) in found.into_iter().enumerate() {
            outputs[i / count].extend(rows);
        }
    }
    Ok(outputs)
}

/// One unit's state at a server.
#[derive(Default)]
pub(crate) struct UnitState {
    pub plan: Option<Arc<UnitContext>>,
    /// What clients shared, by step, and digests of the messages.
    pub inputs: BTreeMap<usize, Arc<Share<Field>>>,
    pub input_digests: BTreeMap<usize, Digest>,
    /// Which receives are under way: step, item and chunk.
    pub started: BTreeSet<(usize, usize, usize)>,
    pub triples: BTreeMap<usize, Triple>,
    pub openings: BTreeMap<usize, Opening>,
    pub predicted: Option<Packed>,
    pub truths: BTreeMap<usize, Packed>,
    /// Whether all labels have come: a job has them.
    pub judged: bool,
    /// Of the principal's shares of labels, at the principal.
    pub seeds: BTreeMap<Labelled, Seed>,
    /// To the same, at the auxiliary.
    pub commitments: BTreeMap<Labelled, [u8; COMMITMENT]>,
    /// The auxiliary's share of the differences, as it was sent, until it has counted.
    pub differences: Option<Arc<Vec<u8>>>,
    /// What the auxiliary counted.
    pub counted: Option<Recount>,
}

/// Some rows of a matrix.
pub(crate) fn rows_of<R: Ring>(matrix: &Matrix<R>, first: usize, count: usize) -> Result<Matrix<R>, Error> {
    let columns = matrix.columns();
    let elements = matrix.elements()[first * columns..(first + count) * columns].to_vec();
    Ok(Matrix::new(matrix.ring(), count, columns, elements)?)
}

/// The batches of so many columns that hold a wanted one.
pub(crate) fn wanted_batches(layout: &Layout, columns: usize, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let batch = layout.batch();
    (0..layout.batches(columns)).filter(|b| (b * batch..columns.min((b + 1) * batch)).any(&wanted)).collect()
}

/// Whether a column of a batch is wanted, counted within the batch.
pub(crate) fn wanted_of(
    layout: &Layout,
    columns: usize,
    batch: usize,
    wanted: impl Fn(usize) -> bool,
) -> impl Fn(usize) -> bool {
    let start = batch * layout.batch();
    move |column| start + column < columns && wanted(start + column)
}

/// Tells clients which public key a server holds; the leader made it.
pub(crate) fn tell_key<'a, R, M: Message<'a>>(session: &Session, key: &M) -> Effects<R> {
    let mut effects = Effects::default();
    let key = Arc::new(key.encode());
    let others = (0..session.federation.clients).filter(|&client| client != session.leader);
    let told = others.map(|to| Outgoing::new(PartyId::Client(to), M::KIND, key.clone()));
    effects.outbox.extend(told);
    effects
}

/// Checks that an announced test fits the session.
pub(crate) fn check_plan(session: &Session, plan: &TestPlan) -> Result<(), CodecError> {
    let bad = |what| Err(CodecError::Value { what });
    let program = session.program();
    if session.rounds_of(plan.round).is_empty() {
        return bad("round");
    }
    let participants = session.federation.participants(plan.round);
    let most = session.most_together();
    let (mut parts, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for unit in &plan.units {
        let Some(group) = session.groups.get(unit.group) else { return bad("group") };
        if !parts.insert((unit.group, unit.part)) || !(1..=most).contains(&unit.coalitions.len()) {
            return bad("units");
        }
        let is_new = |&coalition: &Coalition| tested.insert((unit.group, coalition));
        let is_known = |coalition: &Coalition| !coalition.is_empty() && coalition.is_subset_of(participants);
        if !unit.coalitions.iter().all(is_known) || !unit.coalitions.iter().all(is_new) {
            return bad("coalitions");
        }
        if unit.samples.total() != group.size || unit.samples.is_empty() {
            return bad("samples");
        }
        let gathered = unit.gathered.as_ref();
        if gathered.is_some_and(|g| g.total() != group.size || !unit.samples.difference(g).is_empty()) {
            return bad("gathered samples");
        }
        let decryptors = unit.chain.iter().copied().chain(unit.gru.into_iter().flat_map(|(a, b)| [a, b]));
        let decryptors = decryptors.chain(unit.dealer).chain(unit.counter);
        if unit.chain.len() != program.chain() || unit.gru.is_some() != program.gru.is_some() {
            return bad("decryptors");
        }
        if decryptors.into_iter().any(|client| client >= session.federation.clients) {
            return bad("decryptors");
        }
    }
    Ok(())
}

/// Receives of a program that are products with what a client shared at a step.
pub(crate) fn products_of(session: &Session) -> impl Iterator<Item = (usize, usize, usize, usize)> + '_ {
    let steps = session.program().steps.iter().enumerate();
    steps
        .flat_map(|(step, decryption)| {
            decryption.receives.iter().enumerate().map(move |(item, receive)| (step, item, receive))
        })
        .filter_map(|(step, item, receive)| match receive {
            Receive::Outputs { operator, input: crate::program::Input::Step(from), .. } => {
                Some((step, item, *operator, *from))
            }
            _ => None,
        })
}

/// What a unit lacks, and from whom: for the message when nothing moves any more.
pub(crate) fn missing(session: &Session, id: UnitId, state: &UnitState) -> Vec<String> {
    let UnitId { test, group, .. } = id;
    let Some(context) = &state.plan else {
        return vec![format!("the announcement of test {test} from principal")];
    };
    let from = |kind: Kind, client: usize, of: String| {
        format!("{kind} of test {test} group {group}{of} from {}", PartyId::Client(client))
    };
    let owners = context.owners(session).filter(|owner| !state.truths.contains_key(owner));
    let mut missing: Vec<String> = owners.map(|owner| from(Kind::LabelShare, owner, String::new())).collect();
    let last = session.program().steps.len() - 1;
    let open = (0..=last).find(|step| match step {
        step if *step == last => state.predicted.is_none(),
        step => !state.inputs.contains_key(step),
    });
    if let Some(step) = open
        && let Ok(client) = context.client(session.program().steps[step].slot)
    {
        let kind = if step == last { Kind::PredictionShare } else { Kind::ActivationShare };
        missing.push(from(kind, client, format!(" step {step}")));
    }
    let dealt = updates_of(session).find(|(step, item, ..)| {
        !state.triples.contains_key(step) && !state.started.contains(&(*step, *item, 0))
    });
    if let (Some((step, ..)), Some(dealer)) = (dealt, context.plan.dealer) {
        missing.push(from(Kind::Triple, dealer, format!(" step {step}")));
    }
    let openings = state.openings.iter().filter(|(_, opening)| opening.other.is_none());
    missing.extend(openings.map(|(step, _)| {
        format!("{} of test {test} group {group} step {step} from the other server", Kind::MaskedFactors)
    }));
    missing
}

/// Models and shares of samples that have not come.
pub(crate) fn missing_inputs(session: &Session, store: &Store, rounds: &[RoundId]) -> Vec<String> {
    let owners = session.groups.iter().flat_map(|group| group.owners.members());
    let data = owners
        .filter(|owner| !store.data.contains_key(owner))
        .map(|owner| format!("{} from {}", Kind::DataShare, PartyId::Client(owner)));
    let mut missing: Vec<String> = data.collect();
    for round in rounds {
        let there =
            |client: &usize| store.models.get(round).is_some_and(|models| models.contains_key(client));
        let absent = session.federation.participants(*round).members().filter(|client| !there(client));
        missing.extend(
            absent.map(|client| format!("{} of round {round} from {}", Kind::Model, PartyId::Client(client))),
        );
    }
    missing
}

/// The first few of what a party waits for, in words.
pub(crate) fn waits_for(party: PartyId, missing: &[String]) -> String {
    match missing.len() {
        0 => format!("{party}: nothing"),
        count if count > 4 => format!("{party}: {} and {} more", missing[..4].join(", "), count - 4),
        _ => format!("{party}: {}", missing.join(", ")),
    }
}

/// Whether a client is the one to send this, the one at the step's slot, an owner, the dealer, and whether there is such an address: of
/// each step a client fills one.
pub(crate) fn may_send(
    session: &Session,
    context: &UnitContext,
    client: usize,
    kind: Kind,
    address: StepAddress,
) -> bool {
    let (step, last) = (address.step, session.program().steps.len() - 1);
    let slot = |step: usize| {
        session.program().steps.get(step).and_then(|decryption| context.client(decryption.slot).ok())
    };
    address == StepAddress::new(context.id, step)
        && match kind {
            Kind::ActivationShare | Kind::EncryptedActivations => slot(step) == Some(client) && step < last,
            Kind::PredictionShare | Kind::EncryptedPredictions => slot(step) == Some(client) && step == last,
            Kind::LabelShare | Kind::EncryptedLabels => {
                step == 0 && context.owners(session).any(|owner| owner == client)
            }
            Kind::Triple => {
                context.plan.dealer == Some(client) && updates_of(session).any(|(dealt, ..)| dealt == step)
            }
            Kind::Count => step == 0 && context.plan.counter == Some(client),
            _ => false,
        }
}

//! What both servers of SecSV do alike: keep shares of samples and encrypted models, and multiply them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use secsv_algebra::{Field, Matrix, Share};
use secsv_federation::RoundId;
use secsv_he::{
    Ciphertext,
    linear::{EncodedBatch, Layout, PreparedMatrix, multiply, multiply_samples},
};

use crate::{
    Error, PartyId,
    encrypted::{LocalModel, Models, member_terms},
    first_layer_batch::FirstLayerBatch,
    message::{FirstLayerBatchId, Kind, UnitId},
    role::{Digest, Effects, Incoming, Meter, Phase},
    session::{EncryptedSession, Session},
    test_id::TestId,
    unit::UnitContext,
};

/// Batches that meet a model in one first-layer batch, so that its weights are read from memory once for all of them.
const BATCHES_AT_ONCE: usize = 4;

/// One server's share of every owner's samples.
pub(crate) type DataShares = BTreeMap<usize, Arc<Share<Field>>>;

/// Shares of all clients' samples and the models of open rounds.
#[derive(Default)]
pub(crate) struct Store {
    data: DataShares,
    pub models: Models<PreparedMatrix>,
    /// Models of coalitions, by test and operator, while the test runs; none while one is computed.
    coalitions: BTreeMap<(TestId, usize), Option<Arc<PreparedMatrix>>>,
    /// Its share of the samples as the first layer needs it.
    pub encoded: Arc<EncodedChunks>,
}

impl Store {
    /// Takes a share of an owner's samples.
    pub(crate) fn take_data(&mut self, owner: usize, share: Share<Field>, message: &Incoming) {
        self.models.note(message.kind, owner, message.digest);
        self.data.insert(owner, Arc::new(share));
    }

    /// All shares, once every owner's has come.
    pub(crate) fn all_data(&self, session: &Session) -> Option<DataShares> {
        let owners = session.groups.iter().flat_map(|group| group.owners.members());
        owners.map(|owner| self.data.get(&owner).map(|share| (owner, share.clone()))).collect()
    }

    pub(crate) fn forget_test(&mut self, test: TestId) {
        self.coalitions.retain(|(of, _), _| *of != test);
    }

    /// Shares of samples and models of some rounds that have not come, in words.
    pub(crate) fn missing(&self, session: &Session, rounds: impl Iterator<Item = RoundId>) -> Vec<String> {
        let owners = session.groups.iter().flat_map(|group| group.owners.members());
        let absent = owners.filter(|owner| !self.data.contains_key(owner));
        let data = absent.map(|owner| format!("{} from {}", Kind::DataShare, PartyId::Client(owner)));
        data.chain(self.models.missing(session, rounds)).collect()
    }
}

/// Something that a client shared at a step: a server's share, and the digest of the message.
#[derive(Clone)]
pub(crate) struct SharedInput {
    pub share: Arc<Share<Field>>,
    pub digest: Digest,
}

/// Inputs of later layers, by the step that they were shared at.
pub(crate) type SharedInputs = BTreeMap<usize, SharedInput>;

/// A server of SecSV, as its work on coalitions' models needs it.
pub(crate) trait ModelHost: Sized + 'static {
    fn store(&mut self) -> &mut Store;
    /// Starts whatever some units have everything for.
    fn resume(&mut self, of: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error>;
}

/// The model of a unit's coalition, if it is computed; else `effects` get the job that does, unless it is under way.
pub(crate) fn coalition_model<H: ModelHost>(
    store: &mut Store,
    session: &EncryptedSession,
    context: &UnitContext,
    operator: usize,
    effects: &mut Effects<H>,
) -> Option<Arc<PreparedMatrix>> {
    let test = context.id.test;
    if let Some(known) = store.coalitions.get(&(test, operator)) {
        return known.clone();
    }
    let models = store.models.all(session, context.round)?;
    store.coalitions.insert((test, operator), None);
    let (session, model) = (session.clone(), context.model());
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let terms = member_terms(&session, model, &models, |member| &member.weights[operator]);
        let sum = PreparedMatrix::weighted_sum(session.layout(operator), &terms)?;
        Ok(move |host: &mut H| {
            // Unless the test is over.
            if let Some(room) = host.store().coalitions.get_mut(&(test, operator)) {
                *room = Some(Arc::new(sum));
            }
            host.resume(|unit| unit.test == test)
        })
    });
    None
}

/// One server's share of a chunk's samples, arranged for the first operator.
fn chunk_columns(
    session: &EncryptedSession,
    layer_batch: &FirstLayerBatch,
    chunk: usize,
    data: &DataShares,
) -> Result<Matrix<Field>, Error> {
    let group = &session.groups[layer_batch.group];
    let (field, rows) = (session.field(), session.program().input_size);
    let columns = layer_batch.length(chunk);
    let places: Vec<usize> = layer_batch.places(chunk).collect();
    let mut elements = vec![0; rows * columns];
    for part in &group.parts {
        // Places ascend, and so do the parts of owners.
        let first = part.places.start;
        let from = places.partition_point(|&place| place < first);
        let to = places.partition_point(|&place| place < part.places.end);
        if from == to {
            continue;
        }
        // Nobody multiplies before every owner's share has come.
        let share = data[&part.owner].expose();
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
pub(crate) fn keeps_encoded_samples(session: &EncryptedSession) -> bool {
    let layout = session.layout(0);
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
    session: &EncryptedSession,
    layer_batch: &FirstLayerBatch,
    chunk: usize,
    data: &DataShares,
    models: &[(usize, Arc<LocalModel<PreparedMatrix>>)],
    kept: &EncodedChunks,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<Ciphertext>>, Error> {
    meter.enter(Phase::Linear);
    let layout = session.layout(0);
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

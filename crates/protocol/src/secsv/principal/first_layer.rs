//! The first layer: local models meet the test data once a round batch, and every coalition's outputs are sums of
//! theirs.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::repeat_n,
    sync::Arc,
};

use secsv_federation::RoundId;
use secsv_he::Ciphertext;

use super::{PendingHalves, SecSvPrincipal};
use crate::{
    Error, check,
    encrypted::{FirstOutputs, LocalModel, Models, RoundOutputs, ciphertexts},
    error::CodecError,
    first_layer_batch::FirstLayerBatch,
    message::{FirstLayerBatchId, FirstLayerHalf, Parts},
    role::{Effects, Incoming, Phase},
    scheduler::Scheduler,
    secsv::server::first_products,
    session::EncryptedSession,
};

/// A chunk of a first-layer batch.
type ChunkId = (FirstLayerBatchId, usize);

/// The first layer of an open round.
#[derive(Default)]
pub(crate) struct FirstLayerRound {
    /// Samples that were gathered.
    gathered: BTreeMap<FirstLayerBatchId, Arc<FirstLayerBatch>>,
    /// Batches whose products are computed.
    begun: BTreeSet<FirstLayerBatchId>,
    halves: PendingHalves<ChunkId, Vec<Vec<Ciphertext>>>,
    /// First-layer outputs of every model, chunk by chunk.
    pub(super) outputs: RoundOutputs,
}

impl FirstLayerRound {
    /// Chunks whose other half has not come.
    pub(super) fn awaited_chunks(&self) -> impl Iterator<Item = usize> + '_ {
        self.halves.own.keys().map(|(_, chunk)| *chunk)
    }
}

impl Scheduler<SecSvPrincipal> {
    pub(super) fn take_model(&mut self, owner: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let session = self.engine.session.clone();
        let round = Models::<()>::check(&session, owner, &message)?;
        if !self.rounds.contains_key(&round) {
            return Err(message.malformed(CodecError::Value { what: "round" }));
        }
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let model = LocalModel::decode(&session, true, &message, meter)?;
            Ok(move |role: &mut Self| {
                role.engine.store.models.insert(round, owner, model);
                role.first_layer(round)
            })
        });
        Ok(effects)
    }

    /// The auxiliary's half of a chunk of first-layer outputs.
    pub(super) fn take_first_half(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let session = &self.engine.session;
        let FirstLayerHalf { round, batch: layer_batch, chunk, ciphertexts } = message.read(&())?;
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(Effects::default()) };
        let layout = session.layout(0);
        let models = session.federation.participants(round).len();
        let positions = session.program().operators[0].positions;
        let count = |samples: usize| models * layout.batches(positions * samples) * layout.rows();
        let chunks = || session.chunks.iter().map(|chunk| chunk.places.len());
        let samples = match state.gathered.get(&layer_batch) {
            Some(gathered) => gathered.numbers().contains(&chunk).then(|| gathered.length(chunk)),
            None if layer_batch == FirstLayerBatchId::All => chunks().nth(chunk),
            // After a restart, outputs may come before the test that they are for, or after the last one: they are judged when
            // it is known what they should be.
            None => {
                let length = Parts::length(ciphertexts.0.iter().map(|part| part.len()));
                let most = chunks().map(count).max().unwrap_or(0);
                let most = Parts::length(repeat_n(Ciphertext::encoded_len(layout.parameters()), most));
                let is_room = state.halves.other.len() < 4 * session.chunks.len();
                if chunk >= session.chunks.len() || !is_room || length > most {
                    return Err(malformed(CodecError::Value { what: "chunk" }));
                }
                let both = state.halves.take_other((layer_batch, chunk), message);
                return Ok(self.combine(round, (layer_batch, chunk), both));
            }
        };
        let samples = samples.ok_or(CodecError::Value { what: "chunk" }).map_err(malformed)?;
        check::ciphertexts(session, count(samples), &ciphertexts).map_err(malformed)?;
        let both = state.halves.take_other((layer_batch, chunk), message);
        Ok(self.combine(round, (layer_batch, chunk), both))
    }

    /// Takes note of samples that units of a round have gathered.
    pub(super) fn gather(&mut self, round: RoundId) {
        let Some(state) = self.rounds.get_mut(&round) else { return };
        let batches = self.units.values().filter(|unit| unit.context.round == round);
        let batches = batches.map(|unit| &unit.context.layer_batch);
        for batch in batches.filter(|batch| batch.id != FirstLayerBatchId::All) {
            if state.gathered.insert(batch.id, batch.clone()).is_none() {
                // Halves that came before it was known what they should be are judged now.
                let session = &self.engine.session;
                state.halves.other.retain(|(id, chunk), half| {
                    *id != batch.id || is_half_of(session, round, batch, *chunk, half)
                });
            }
        }
    }

    /// Starts the first layer of a round whose models are all there (Algorithm 4, step 5, for local models: outputs of
    /// coalitions are sums of theirs, PROTOCOL.md 2).
    pub(super) fn first_layer(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (session, store) = (&self.engine.session, &self.engine.store);
        let (Some(models), Some(data)) = (store.models.all(session, round), store.all_data(session)) else {
            return Ok(effects);
        };
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(effects) };
        let mut layer_batches: Vec<Arc<FirstLayerBatch>> = Vec::new();
        if state.begun.insert(FirstLayerBatchId::All) {
            let groups = 0..session.groups.len();
            layer_batches.extend(groups.map(|group| Arc::new(FirstLayerBatch::everything(session, group))));
        }
        let gathered = state.gathered.values().filter(|layer_batch| state.begun.insert(layer_batch.id));
        layer_batches.extend(gathered.cloned());
        if layer_batches.is_empty() {
            return Ok(effects);
        }
        let chunks = layer_batches.iter().flat_map(|batch| batch.numbers().map(move |chunk| (batch, chunk)));
        for (layer_batch, chunk) in chunks {
            let (session, data, models) = (session.clone(), data.clone(), models.clone());
            let (encoded, layer_batch) = (store.encoded.clone(), layer_batch.clone());
            effects.job(move |meter| {
                let outputs = first_products(&session, &layer_batch, chunk, &data, &models, &encoded, meter)?;
                Ok(move |role: &mut Self| {
                    let id = (layer_batch.id, chunk);
                    let both =
                        role.rounds.get_mut(&round).and_then(|state| state.halves.take_own(id, outputs));
                    Ok(role.combine(round, id, both))
                })
            });
        }
        // Biases alone need no product.
        effects.and(self.advance_all(|_| true)?);
        Ok(effects)
    }

    /// Adds both servers' halves of a chunk and the biases (Algorithm 4, step 6), if both are there.
    fn combine(
        &mut self,
        round: RoundId,
        chunk: ChunkId,
        both: Option<(Vec<Vec<Ciphertext>>, Incoming)>,
    ) -> Effects<Self> {
        let mut effects = Effects::default();
        let session = self.engine.session.clone();
        let models = self.engine.store.models.all(&session, round);
        let (Some((mut own, other)), Some(models)) = (both, models) else { return effects };
        effects.job(move |meter| {
            let layout = session.layout(0);
            let half = other.digest;
            let expected = own.iter().map(Vec::len).sum();
            let FirstLayerHalf { ciphertexts: halves, .. } = other.read(&())?;
            let parts = ciphertexts(&session, &other, halves, expected, meter)?;
            meter.enter(Phase::Linear);
            let limbs = layout.parameters().limbs();
            let outputs = own.iter_mut().zip(&models).flat_map(|(outputs, (_, model))| {
                outputs
                    .iter_mut()
                    .enumerate()
                    .map(|(i, output)| (output, &model.biases[0][i % layout.rows()]))
            });
            for ((output, bias), other) in outputs.zip(parts) {
                output.add_assign(limbs, &other?)?;
                output.add_assign(limbs, bias)?;
            }
            Ok(move |role: &mut Self| {
                if let Some(state) = role.rounds.get_mut(&round) {
                    state.outputs.insert(chunk, Arc::new(FirstOutputs { ciphertexts: own, half }));
                }
                role.advance_all(|_| true)
            })
        });
        effects
    }
}

/// Whether a message has the ciphertexts that a chunk of a first-layer batch takes.
fn is_half_of(
    session: &EncryptedSession,
    round: RoundId,
    batch: &FirstLayerBatch,
    chunk: usize,
    half: &Incoming,
) -> bool {
    let models = session.federation.participants(round).len();
    let columns = session.program().operators[0].positions * batch.length(chunk);
    let count = models * session.layout(0).batches(columns) * session.layout(0).rows();
    let ciphertexts = half.read(&()).map(|FirstLayerHalf { ciphertexts, .. }| ciphertexts);
    batch.numbers().contains(&chunk)
        && ciphertexts.is_ok_and(|parts| check::ciphertexts(session, count, &parts).is_ok())
}

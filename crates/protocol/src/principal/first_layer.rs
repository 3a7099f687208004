//! The first layer: local models meet the test data once a round batch, and every coalition's outputs are sums of
//! theirs.

use std::sync::Arc;

use secsv_federation::RoundId;
use secsv_he::Ciphertext;

use super::{
    FirstOutputs, Principal,
    replies::{Replies, biases, ciphertexts},
};
use crate::{
    Error, PartyId, check,
    codec::Reader,
    error::CodecError,
    first_layer_batch::{self, EVERYTHING, FirstLayerBatch, FirstLayerBatchId},
    message::{Kind, Place, UnitId},
    program::{Input, Receive},
    role::{Effects, Incoming, Phase},
    server::{LocalModel, UnitContext, first_products, wanted_batches, wanted_of},
    session::Session,
};

impl Principal {
    pub(super) fn model(
        &mut self,
        session: Arc<Session>,
        owner: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let mut r = Reader::new(&message.content);
        let round = RoundId(r.u32().map_err(malformed)?);
        if !session.federation.participants(round).contains(owner) || !self.rounds.contains_key(&round) {
            return Err(malformed(CodecError::Value { what: "round" }));
        }
        check::model(&session, r.rest()).map_err(malformed)?;
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let model = LocalModel::decode(&session, true, &message, meter)?;
            Ok(move |role: &mut Self| {
                role.store.models.entry(round).or_default().insert(owner, Arc::new(model));
                role.first_layer(round)
            })
        });
        Ok(effects)
    }

    /// The auxiliary's half of a chunk of first-layer outputs.
    pub(super) fn first_half(
        &mut self,
        session: &Session,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let mut r = Reader::new(&message.content);
        let round = RoundId(r.u32().map_err(malformed)?);
        let layer_batch: FirstLayerBatchId = r.array().map_err(malformed)?;
        let (chunk, bytes) = (r.u32().map_err(malformed)? as usize, r.rest());
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(Effects::default()) };
        let layout = &session.encryption()?.layouts[0];
        let models = session.federation.participants(round).len();
        let positions = session.program().operators[0].positions;
        let count = |samples: usize| models * layout.batches(positions * samples) * layout.rows();
        let chunks = || session.chunks.iter().map(|chunk| chunk.places.len());
        let samples = match state.gathered.get(&layer_batch) {
            Some((gathered, _)) => gathered.numbers().contains(&chunk).then(|| gathered.length(chunk)),
            None if layer_batch == EVERYTHING => chunks().nth(chunk),
            // After a restart, outputs may come before the test that they are for, or after the last one: they are judged when
            // it is known what they should be.
            None => {
                let most = chunks().map(count).max().unwrap_or(0);
                let most = 8 + most * (8 + Ciphertext::encoded_len(layout.parameters()));
                let is_room = state.other.len() < 4 * session.chunks.len();
                if chunk >= session.chunks.len() || !is_room || bytes.len() > most {
                    return Err(malformed(CodecError::Value { what: "chunk" }));
                }
                state.other.insert((layer_batch, chunk), message);
                return self.combine(round, (layer_batch, chunk));
            }
        };
        let samples = samples.ok_or(CodecError::Value { what: "chunk" }).map_err(malformed)?;
        check::ciphertexts(session, count(samples), bytes).map_err(malformed)?;
        state.other.insert((layer_batch, chunk), message);
        self.combine(round, (layer_batch, chunk))
    }

    /// Starts the first layer of a round whose models are all there (Algorithm 4, step 5, for local models: outputs of
    /// coalitions are sums of theirs, PROTOCOL.md 2).
    pub(super) fn first_layer(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let session = self.agreed()?;
        let (Some(models), Some(data)) =
            (self.store.all_models(&session, round), self.store.all_data(&session))
        else {
            return Ok(effects);
        };
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(effects) };
        let mut layer_batches: Vec<Arc<FirstLayerBatch>> = Vec::new();
        if !std::mem::replace(&mut state.started, true) {
            layer_batches.extend(
                (0..session.groups.len()).map(|group| Arc::new(FirstLayerBatch::everything(&session, group))),
            );
        }
        for (layer_batch, begun) in state.gathered.values_mut() {
            if !std::mem::replace(begun, true) {
                layer_batches.push(layer_batch.clone());
            }
        }
        if layer_batches.is_empty() {
            return Ok(effects);
        }
        for (layer_batch, chunk) in layer_batches
            .iter()
            .flat_map(|layer_batch| layer_batch.numbers().map(move |chunk| (layer_batch, chunk)))
        {
            let (session, data, models) = (session.clone(), data.clone(), models.clone());
            let (encoded, layer_batch) = (self.store.encoded.clone(), layer_batch.clone());
            effects.job(move |meter| {
                let outputs = first_products(&session, &layer_batch, chunk, &data, &models, &encoded, meter)?;
                Ok(move |role: &mut Self| {
                    if let Some(state) = role.rounds.get_mut(&round) {
                        state.own.insert((layer_batch.id, chunk), outputs);
                    }
                    role.combine(round, (layer_batch.id, chunk))
                })
            });
        }
        // Biases alone need no product.
        let units: Vec<UnitId> = self.units.keys().copied().collect();
        for unit in units {
            effects.and(self.advance(unit)?);
        }
        Ok(effects)
    }

    /// Adds both servers' halves of a chunk and the biases (Algorithm 4, step 6).
    pub(super) fn combine(
        &mut self,
        round: RoundId,
        chunk: (FirstLayerBatchId, usize),
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let session = self.agreed()?;
        let Some(state) = self.rounds.get_mut(&round) else { return Ok(effects) };
        if !(state.own.contains_key(&chunk) && state.other.contains_key(&chunk)) {
            return Ok(effects);
        }
        let (Some(mut own), Some(other)) = (state.own.remove(&chunk), state.other.remove(&chunk)) else {
            return Ok(effects);
        };
        let models =
            self.store.all_models(&session, round).ok_or(Error::Local { what: "models of a round" })?;
        effects.job(move |meter| {
            let layout = &session.encryption()?.layouts[0];
            let half = other.digest;
            let expected = own.iter().map(Vec::len).sum();
            let bytes = other.content.get(first_layer_batch::HEAD..).unwrap_or_default();
            let mut parts = ciphertexts(&session, Kind::FirstLayer, bytes, expected, meter)?;
            meter.enter(Phase::Linear);
            let limbs = layout.parameters().limbs();
            for (outputs, (_, model)) in own.iter_mut().zip(&models) {
                for (i, output) in outputs.iter_mut().enumerate() {
                    let other = parts.next().ok_or(Error::Local { what: "halves" })??;
                    output.add_assign(limbs, &other)?;
                    output.add_assign(limbs, &model.biases[0][i % layout.rows()])?;
                }
            }
            drop(parts);
            Ok(move |role: &mut Self| {
                if let Some(state) = role.rounds.get_mut(&round) {
                    state.outputs.insert(chunk, Arc::new(FirstOutputs { ciphertexts: own, half }));
                }
                let units: Vec<UnitId> = role.units.keys().copied().collect();
                let mut effects = Effects::default();
                for unit in units {
                    effects.and(role.advance(unit)?);
                }
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Replies with first-layer outputs, chunk by chunk.
    pub(super) fn first_replies(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let Some(round) = self.rounds.get(&context.round) else { return Ok(effects) };
        let sent = &context.combinations(session).sent;
        for (step, decryption) in session.program().steps.iter().enumerate() {
            let items =
                decryption.receives.iter().flat_map(|receive| sent.iter().map(move |&sent| (receive, sent)));
            for (item, (receive, sent)) in items.enumerate() {
                let &Receive::Outputs { operator, input: Input::Data, first, count } = receive else {
                    continue;
                };
                for chunk in context.layer_batch.wanted_chunks(&context.selections[sent].samples) {
                    let place = Place { unit: context.id, step, item, chunk };
                    let Some(state) = self.units.get_mut(&context.id) else { break };
                    let Some(outputs) = round.outputs.get(&(context.layer_batch.id, chunk)).cloned() else {
                        continue;
                    };
                    if !state.started.insert((step, item, chunk)) {
                        continue;
                    }
                    let to = PartyId::Client(context.client(decryption.slot)?);
                    let public = self.public.clone().ok_or(Error::Local { what: "the public key" })?;
                    let seed = self.seed.derive("reply", context.id.test).derive("reply", place.number());
                    let covered = [context.digest, self.store.digest(context.round), outputs.half];
                    let seed = seed.covering(covered.as_flattened());
                    let (session, context) = (session.clone(), context.clone());
                    effects.job(move |meter| {
                        let layout = &session.encryption()?.layouts[operator];
                        let members = session.members(context.round, context.plan.coalitions[sent]);
                        let samples = &context.selections[sent].samples;
                        let order: Vec<usize> =
                            session.federation.participants(context.round).members().collect();
                        let wants = context.layer_batch.wants(samples, chunk, (first, count));
                        let columns = session.program().operators[operator].positions
                            * context.layer_batch.length(chunk);
                        let mut replies = Replies::new(&session, operator, public, &seed)?;
                        for batch in wanted_batches(layout, columns, &wants) {
                            for row in 0..layout.rows() {
                                let terms: Vec<(u32, &Ciphertext)> = members
                                    .iter()
                                    .filter_map(|(i, _)| {
                                        let model = order.iter().position(|client| client == i)?;
                                        let of_model = outputs.ciphertexts.get(model)?;
                                        of_model.get(batch * layout.rows() + row).map(|c| (1, c))
                                    })
                                    .collect();
                                replies.add(&terms, row, wanted_of(layout, columns, batch, &wants), meter)?;
                            }
                        }
                        let content = place.encode_parts(&replies.parts);
                        Ok(move |role: &mut Self| Ok(role.send(to, Kind::Reply, content)))
                    });
                }
            }
        }
        Ok(effects)
    }

    /// Replies with biases alone: the hidden gates of a zero state.
    pub(super) fn bias_replies(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        for (step, decryption) in session.program().steps.iter().enumerate() {
            for (item, receive) in decryption.receives.iter().enumerate() {
                let &Receive::Bias { operator } = receive else { continue };
                let Some(models) = self.store.all_models(session, context.round) else { continue };
                let Some(state) = self.units.get_mut(&context.id) else { break };
                if !state.started.insert((step, item, 0)) {
                    continue;
                }
                let place = Place { item, ..Place::new(context.id, step) };
                let to = PartyId::Client(context.client(decryption.slot)?);
                let public = self.public.clone().ok_or(Error::Local { what: "the public key" })?;
                let seed = self.seed.derive("bias reply", context.id.test).derive("reply", place.number());
                let covered = [context.digest, self.store.digest(context.round)];
                let seed = seed.covering(covered.as_flattened());
                let (session, context) = (session.clone(), context.clone());
                effects.job(move |meter| {
                    let layout = &session.encryption()?.layouts[operator];
                    let columns = context.places().len();
                    let mut replies = Replies::new(&session, operator, public, &seed)?;
                    for batch in 0..layout.batches(columns) {
                        for row in 0..layout.rows() {
                            let terms = biases(&session, &context, operator, row, &models);
                            replies.add(&terms, row, wanted_of(layout, columns, batch, |_| true), meter)?;
                        }
                    }
                    let content = place.encode_parts(&replies.parts);
                    Ok(move |role: &mut Self| Ok(role.send(to, Kind::Reply, content)))
                });
            }
        }
        Ok(effects)
    }
}

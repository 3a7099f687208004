//! The one server of HESV: multiplies encrypted models with encrypted data and learns how many predictions are right,
//! not which.

mod counting;
mod products;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use secsv_federation::{Coalition, RoundId};
use secsv_he::{
    EncryptedSlots, EvaluationKey, PublicKey,
    linear::{EncryptedBatch, EncryptedBias, EncryptedMatrix, ExtendedMatrix, Layout, MatrixTerms},
};

use super::{FirstOutputs, Principal, base_test, schedule::MAX_ACTIVE};
use crate::{
    Error, PartyId, check,
    error::CodecError,
    hesv::{KEPT, Upload, decode_batches, rotation_steps},
    message::{
        EncryptedActivations, EncryptedData, EncryptedLabels, EncryptedPredictions, EvaluationKeys,
        FirstLayerBatchId, Head, Kind, Model, Parts, ServerPublicKey, UnitId,
    },
    role::{Digest, Effects, Incoming, Phase},
    server::{LocalModel, UnitContext, may_send, tell_key},
    session::Session,
};

/// Bytes of such weights and of what clients encrypt again, over all tests under way.
const KEPT_BY_ALL: usize = 4 << 30;
/// How often what a client encrypts again is in memory: as it is sent, as it came, and decoded.
const COPIES: usize = 3;

/// Missing messages that are named when nothing moves any more.
const MAX_NAMED: usize = 6;

/// What only HESV has a server remember.
#[derive(Default)]
pub(super) struct HesvServer {
    evaluation: Option<Arc<EvaluationKey>>,
    /// Encrypted samples, by chunk.
    data: BTreeMap<usize, Arc<Vec<EncryptedBatch>>>,
    /// Weights of local models, operator by operator.
    models: BTreeMap<RoundId, BTreeMap<usize, Arc<Vec<EncryptedMatrix>>>>,
    /// Weights of coalitions' models, by test and operator.
    coalitions: BTreeMap<(u64, usize), Option<Arc<ExtendedMatrix>>>,
    units: BTreeMap<UnitId, Uploads>,
}

/// What clients sent about a unit.
#[derive(Default)]
struct Uploads {
    /// By step; none while it is decoded.
    steps: BTreeMap<usize, Option<Uploaded>>,
    truth: Option<Incoming>,
    predicted: Option<Incoming>,
    /// Differences are on their way to the counting client.
    compared: bool,
}

/// What a client made of a step.
struct Uploaded {
    /// Gone once they are multiplied: one operator takes them, once.
    batches: Option<Vec<EncryptedBatch>>,
    slots: Arc<Vec<EncryptedSlots>>,
    /// Of the message.
    digest: Digest,
}

impl HesvServer {
    pub(super) fn forget_round(&mut self, round: RoundId) {
        self.models.remove(&round);
    }

    pub(super) fn forget_test(&mut self, test: u64) {
        self.coalitions.retain(|(of, _), _| *of != test);
        self.units.retain(|id, _| id.test != test);
    }
}

/// Bytes that one test takes: the weights of its model that are kept, and what clients encrypt again.
pub(crate) fn bytes_of_test(session: &Session) -> usize {
    let layouts = || session.encryption.iter().flat_map(|e| e.layouts.iter().enumerate().skip(1));
    let kept = layouts().filter_map(|(_, layout)| layout.extended_bytes().ok()).filter(|b| *b <= KEPT);
    let upload = |(operator, layout): (usize, &Layout)| {
        let columns = session.samples() * session.program().operators[operator].positions;
        let batches = layout.batches(columns).max(session.groups.len());
        COPIES * batches * EncryptedBatch::encoded_len(layout)
    };
    kept.sum::<usize>() + layouts().map(upload).max().unwrap_or(0)
}

/// How many tests run at the same time.
pub(crate) fn most_active(session: &Session) -> usize {
    (KEPT_BY_ALL / bytes_of_test(session).max(1)).clamp(1, MAX_ACTIVE)
}

impl Principal {
    pub(super) fn is_hesv(&self) -> bool {
        self.federation.settings.protocol == crate::decryptors::Protocol::Hesv
    }

    /// The other server, where there is one.
    pub(super) fn auxiliary(&self) -> Option<PartyId> {
        (!self.is_hesv()).then_some(PartyId::Auxiliary)
    }

    /// Whether keys and samples are there.
    pub(super) fn hesv_ready(&self, session: &Session) -> bool {
        self.hesv.evaluation.is_some() && (0..session.chunks.len()).all(|c| self.hesv.data.contains_key(&c))
    }

    /// Tests that run at the same time.
    pub(super) fn most_active(&self, session: &Session) -> usize {
        if self.is_hesv() { most_active(session) } else { super::most_active(session) }
    }

    /// Takes a message of a session under way.
    pub(super) fn take_hesv(
        &mut self,
        session: &Arc<Session>,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let PartyId::Client(client) = message.from else { return Err(message.unexpected("testing")) };
        match message.kind {
            Kind::EvaluationKeys if client == session.leader && self.hesv.evaluation.is_none() => {
                self.server_keys(session, &message)
            }
            Kind::EncryptedData => self.encrypted_data(session, client, message),
            Kind::Model => self.encrypted_model(session, client, message),
            Kind::EncryptedActivations | Kind::EncryptedLabels | Kind::EncryptedPredictions => {
                self.encrypted_upload(session, client, message)
            }
            Kind::OwnResultCounts => {
                let counted = self.own_count(session, client, &message.content);
                counted.map_err(|why| message.malformed(why))?
            }
            Kind::Count => self.count(session, client, &message),
            _ => Err(message.unexpected("testing")),
        }
    }

    fn server_keys(&mut self, session: &Session, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why: CodecError| message.malformed(why);
        let parameters = &session.encryption()?.parameters;
        let EvaluationKeys { public: key, evaluation } = message.read(&())?;
        let public = PublicKey::from_bytes(parameters, key).map_err(|e| malformed(e.into()))?;
        let evaluation = EvaluationKey::from_bytes(parameters, &rotation_steps(session)?, evaluation);
        let evaluation = evaluation.map_err(|error| match error {
            secsv_he::HeError::Wire(why) => malformed(why.into()),
            other => other.into(),
        })?;
        self.public = Some(Arc::new(public));
        self.hesv.evaluation = Some(Arc::new(evaluation));
        self.store.digests.insert((Kind::EvaluationKeys, session.leader), message.digest);
        let mut effects = tell_key(session, &ServerPublicKey { public: key });
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// An owner's samples, one chunk of them.
    fn encrypted_data(
        &mut self,
        session: &Arc<Session>,
        owner: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let Incoming { from, kind, digest, .. } = message;
        let malformed = move |why| Error::Malformed { from, kind, why };
        let EncryptedData { chunk: number, batches } = message.read(&())?;
        let own = |chunk: &crate::session::Chunk| {
            session.groups[chunk.group].owners == Coalition::EMPTY.with(owner)
        };
        if !session.chunks.get(number).is_some_and(own) || self.hesv.data.contains_key(&number) {
            return Err(malformed(CodecError::Value { what: "chunk" }));
        }
        let columns = session.program().operators[0].positions * session.chunks[number].places.len();
        check::batches(session, 0, columns, &batches.0).map_err(malformed)?;
        let mut effects = Effects::default();
        let session = session.clone();
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let EncryptedData { batches, .. } = message.read(&())?;
            let batches = decode_batches(&session, 0, columns, &batches.0)?.map_err(malformed)?;
            Ok(move |role: &mut Self| {
                role.store.digests.insert((Kind::EncryptedData, number), digest);
                role.hesv.data.insert(number, Arc::new(batches));
                role.pump()
            })
        });
        Ok(effects)
    }

    /// A client's model of a round.
    fn encrypted_model(
        &mut self,
        session: &Arc<Session>,
        owner: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let Incoming { from, kind, digest, .. } = message;
        let malformed = move |why| Error::Malformed { from, kind, why };
        let Model { round, layers } = message.read(&())?;
        if !session.federation.participants(round).contains(owner) || !self.rounds.contains_key(&round) {
            return Err(malformed(CodecError::Value { what: "round" }));
        }
        check::model(session, &layers).map_err(malformed)?;
        let mut effects = Effects::default();
        let session = session.clone();
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let Model { layers: Parts(parts), .. } = message.read(&())?;
            let layouts = &session.encryption()?.layouts;
            if parts.len() != 2 * layouts.len() {
                return Err(malformed(CodecError::Value { what: "layers" }));
            }
            let mut weights = Vec::with_capacity(layouts.len());
            let mut model = LocalModel { weights: Vec::new(), biases: Vec::new(), digest };
            for (layout, part) in layouts.iter().zip(parts.chunks_exact(2)) {
                let wire = |e: secsv_he::WireError| malformed(e.into());
                weights.push(EncryptedMatrix::from_bytes(layout, part[0]).map_err(wire)?);
                let bias = EncryptedBias::from_bytes(layout, part[1]).map_err(wire)?;
                model.biases.push(layout.expand_bias(&bias)?);
            }
            Ok(move |role: &mut Self| {
                role.hesv.models.entry(round).or_default().insert(owner, Arc::new(weights));
                role.store.models.entry(round).or_default().insert(owner, Arc::new(model));
                role.encrypted_first_layer(round)
            })
        });
        Ok(effects)
    }

    /// Weights of a round's models in the order of their clients, once everybody's are there.
    fn weights(&self, session: &Session, round: RoundId) -> Option<Vec<(usize, Arc<Vec<EncryptedMatrix>>)>> {
        let models = self.hesv.models.get(&round)?;
        let participants = session.federation.participants(round);
        participants.members().map(|i| models.get(&i).map(|m| (i, m.clone()))).collect()
    }

    /// First-layer outputs of every local model, chunk by chunk: those of coalitions are sums of theirs
    /// (PROTOCOL.md 2).
    fn encrypted_first_layer(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let session = self.agreed()?;
        let (Some(weights), Some(models)) =
            (self.weights(&session, round), self.store.all_models(&session, round))
        else {
            return Ok(effects);
        };
        match self.rounds.get_mut(&round) {
            Some(state) if !state.started => state.started = true,
            _ => return Ok(effects),
        }
        let evaluation = self.evaluation()?;
        for (&chunk, batches) in &self.hesv.data {
            let (session, weights, models) = (session.clone(), weights.clone(), models.clone());
            let (batches, evaluation) = (batches.clone(), evaluation.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let layout = &session.encryption()?.layouts[0];
                let terms: Vec<[(u32, &EncryptedMatrix); 1]> =
                    weights.iter().map(|(_, weights)| [(1, &weights[0])]).collect();
                let terms: Vec<&MatrixTerms<'_>> = terms.iter().map(|terms| &terms[..]).collect();
                let mut outputs =
                    layout.multiply_sums(&terms, &batches, &evaluation, &mut meter.operations)?;
                let limbs = layout.parameters().limbs();
                for (outputs, (_, model)) in outputs.iter_mut().zip(&models) {
                    for (i, output) in outputs.iter_mut().enumerate() {
                        output.add_assign(limbs, &model.biases[0][i % layout.rows()])?;
                    }
                }
                Ok(move |role: &mut Self| {
                    if let Some(state) = role.rounds.get_mut(&round) {
                        let outputs = FirstOutputs { ciphertexts: outputs, half: Digest::default() };
                        state.outputs.insert((FirstLayerBatchId::All, chunk), Arc::new(outputs));
                    }
                    role.advance_all(|_| true)
                })
            });
        }
        // Biases alone need no product.
        effects.and(self.advance_all(|_| true)?);
        Ok(effects)
    }

    fn advance_all(&mut self, wanted: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error> {
        let units: Vec<UnitId> = self.units.keys().filter(|&id| wanted(id)).copied().collect();
        let mut effects = Effects::default();
        for unit in units {
            effects.and(self.advance(unit)?);
        }
        Ok(effects)
    }

    fn evaluation(&self) -> Result<Arc<EvaluationKey>, Error> {
        self.hesv.evaluation.clone().ok_or(Error::Local { what: "the evaluation key" })
    }

    fn public_key(&self) -> Result<Arc<PublicKey>, Error> {
        self.public.clone().ok_or(Error::Local { what: "the public key" })
    }

    /// What a client has to say about a unit.
    fn encrypted_upload(
        &mut self,
        session: &Arc<Session>,
        client: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let (kind, digest) = (message.kind, message.digest);
        let malformed = |why| message.malformed(why);
        let unexpected = message.unexpected("somebody else's part, or no such test");
        let address = Head::step(kind, &message.content).ok_or(malformed(CodecError::Truncated))?;
        let (id, step) = (address.unit, address.step);
        let context = self.units.get(&id).and_then(|state| state.plan.clone());
        let Some(context) = context.filter(|c| may_send(session, c, client, kind, address)) else {
            return Err(unexpected);
        };
        let samples = context.places().len();
        let uploads = self.hesv.units.entry(id).or_default();
        let known = match kind {
            Kind::EncryptedActivations => uploads.steps.contains_key(&step),
            Kind::EncryptedLabels => uploads.truth.is_some(),
            _ => uploads.predicted.is_some(),
        };
        if known {
            return Err(unexpected);
        }
        match kind {
            Kind::EncryptedActivations => {
                let EncryptedActivations { parts, .. } = message.read(&())?;
                check::upload(session, step, samples, &parts).map_err(malformed)?;
                uploads.steps.insert(step, None);
            }
            _ => {
                check::slots(session, samples, label_slots(&message)?).map_err(malformed)?;
                let target =
                    if kind == Kind::EncryptedLabels { &mut uploads.truth } else { &mut uploads.predicted };
                *target = Some(message);
                return self.advance(id);
            }
        }
        let mut effects = Effects::default();
        let session = session.clone();
        effects.job(move |meter| {
            let upload = Upload::decode(&session, samples, &message, meter)?;
            Ok(move |role: &mut Self| {
                if let Some(uploads) = role.hesv.units.get_mut(&id) {
                    let Upload { batches, slots } = upload;
                    let uploaded = Uploaded { batches: Some(batches), slots: Arc::new(slots), digest };
                    uploads.steps.insert(step, Some(uploaded));
                }
                role.advance(id)
            })
        });
        Ok(effects)
    }

    /// Starts whatever a unit has everything for.
    pub(super) fn advance_hesv(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = self.first_replies(session, context)?;
        effects.and(self.bias_replies(session, context)?);
        effects.and(self.full_products(session, context)?);
        effects.and(self.gated_sums(session, context)?);
        effects.and(self.compare(session, context)?);
        Ok(effects)
    }

    fn uploaded(&mut self, unit: UnitId, step: usize) -> Option<&mut Uploaded> {
        self.hesv.units.get_mut(&unit)?.steps.get_mut(&step)?.as_mut()
    }

    fn slots(&mut self, unit: UnitId, step: usize) -> Option<(Arc<Vec<EncryptedSlots>>, Digest)> {
        self.uploaded(unit, step).map(|uploaded| (uploaded.slots.clone(), uploaded.digest))
    }

    fn is_started(&self, unit: UnitId, key: (usize, usize)) -> bool {
        self.units.get(&unit).is_none_or(|state| state.started.contains(&(key.0, key.1, 0)))
    }

    fn set_started(&mut self, unit: UnitId, key: (usize, usize)) {
        if let Some(state) = self.units.get_mut(&unit) {
            state.started.insert((key.0, key.1, 0));
        }
    }

    /// What is missing, and from whom.
    pub(super) fn awaiting_hesv(&self, session: &Session) -> String {
        let mut missing = Vec::new();
        let mut miss =
            |kind: Kind, client: usize| missing.push(format!("{kind} from {}", PartyId::Client(client)));
        if self.hesv.evaluation.is_none() {
            miss(Kind::EvaluationKeys, session.leader);
        }
        for (_, chunk) in session.chunks.iter().enumerate().filter(|(i, _)| !self.hesv.data.contains_key(i)) {
            session.groups[chunk.group].owners.members().for_each(|owner| miss(Kind::EncryptedData, owner));
        }
        for (round, _) in self.rounds.iter().filter(|(_, state)| !state.started) {
            let models = self.hesv.models.get(round);
            let absent = |i: &usize| models.is_none_or(|models| !models.contains_key(i));
            session
                .federation
                .participants(*round)
                .members()
                .filter(absent)
                .for_each(|i| miss(Kind::Model, i));
        }
        for (id, state) in &self.units {
            let Some(context) = &state.plan else { continue };
            let nothing = Uploads::default();
            let uploads = self.hesv.units.get(id).unwrap_or(&nothing);
            if uploads.compared {
                context.plan.counter.into_iter().for_each(|client| miss(Kind::Count, client));
                continue;
            }
            if uploads.truth.is_none() {
                context.owners(session).for_each(|owner| miss(Kind::EncryptedLabels, owner));
            }
            let steps = session.program().steps.iter().enumerate();
            if let Some((step, decryption)) =
                steps.into_iter().find(|(step, _)| !uploads.steps.contains_key(step))
                && let Ok(client) = context.client(decryption.slot)
            {
                let last = step + 1 == session.program().steps.len();
                if !last || uploads.predicted.is_none() {
                    miss(if last { Kind::EncryptedPredictions } else { Kind::EncryptedActivations }, client);
                }
            }
        }
        let more = missing.len().saturating_sub(MAX_NAMED);
        missing.truncate(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("principal: {}{more}", missing.join(", "))
    }
}

/// True or predicted labels in slots, as they came.
fn label_slots(message: &Incoming) -> Result<&[u8], Error> {
    if message.kind == Kind::EncryptedLabels {
        message.read(&()).map(|EncryptedLabels { slots, .. }| slots)
    } else {
        message.read(&()).map(|EncryptedPredictions { slots, .. }| slots)
    }
}

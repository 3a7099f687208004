//! The one server of HESV: multiplies encrypted models with encrypted data and learns how many predictions are right,
//! not which.

mod counting;
mod products;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};
use secsv_he::{
    EncryptedSlots, EvaluationKey, HeError, PublicKey,
    linear::{EncryptedBatch, EncryptedMatrix, ExtendedMatrix, Layout, MatrixTerms},
};

use super::{KEPT, Upload, decode_batches, rotation_steps};
use crate::{
    Error, PartyId, check,
    encrypted::{FirstOutputs, LocalModel, Models, RoundOutputs, UnitReplies, tell_key},
    error::CodecError,
    message::{
        EncryptedActivations, EncryptedData, EncryptedLabels, EncryptedPredictions, EvaluationKeys,
        FirstLayerBatchId, Head, Kind, ServerPublicKey, StepAddress, UnitId,
    },
    role::{Digest, Effects, Incoming, Phase},
    scheduler::{Engine, MAX_ACTIVE, PrincipalUnit, Scheduler, TestResult},
    session::{EncryptedSession, Session},
    test_id::{RequestId, TestId},
    unit::{UnitContext, may_send},
};

/// Bytes of coalitions' weights that are kept, and of what clients encrypt again, over all tests under way.
const KEPT_BY_ALL: usize = 4 << 30;
/// How often what a client encrypts again is in memory: as it is sent, as it came, and decoded.
const COPIES: usize = 3;

/// The leader's keys.
#[derive(Clone)]
struct Keys {
    public: Arc<PublicKey>,
    evaluation: Arc<EvaluationKey>,
}

/// Keys, samples and models at the server.
pub(crate) struct HesvPrincipal {
    session: EncryptedSession,
    keys: Option<Keys>,
    /// Encrypted samples, by chunk.
    data: BTreeMap<usize, Arc<Vec<EncryptedBatch>>>,
    models: Models<EncryptedMatrix>,
    /// Weights of coalitions' models, by test and operator; none while they are computed.
    coalitions: BTreeMap<(RequestId, usize), Option<Arc<ExtendedMatrix>>>,
}

/// The first layer of an open round.
#[derive(Default)]
pub(crate) struct HesvRound {
    is_begun: bool,
    outputs: RoundOutputs,
}

/// A unit at the server.
pub(crate) struct HesvUnit {
    context: Arc<UnitContext>,
    /// Replies that are on their way.
    begun: BTreeSet<StepAddress>,
    /// What clients made of each step; none while it is decoded.
    steps: BTreeMap<usize, Option<UploadedStep>>,
    labels: EncryptedComparison,
}

/// Labels of a unit, by what they wait for.
enum EncryptedComparison {
    /// True or predicted labels.
    Labels { truth: Option<Incoming>, predicted: Option<Incoming> },
    /// The counting client.
    Count,
}

/// What a client made of a step.
struct UploadedStep {
    /// Gone once they are multiplied: one operator takes them, once.
    batches: Option<Vec<EncryptedBatch>>,
    slots: Arc<Vec<EncryptedSlots>>,
    /// Of the message.
    digest: Digest,
}

impl PrincipalUnit for HesvUnit {
    fn context(&self) -> &Arc<UnitContext> {
        &self.context
    }

    fn is_whole(&self) -> bool {
        false
    }
}

/// Bytes that one test takes: the weights of its model that are kept, and what clients encrypt again.
pub(crate) fn bytes_of_test(session: &EncryptedSession) -> usize {
    let layouts = || session.encryption.layouts.iter().enumerate().skip(1);
    let kept = layouts().filter_map(|(_, layout)| layout.extended_bytes().ok()).filter(|b| *b <= KEPT);
    let upload = |(operator, layout): (usize, &Layout)| {
        let columns = session.samples() * session.program().operators[operator].positions;
        let batches = layout.batches(columns).max(session.groups.len());
        COPIES * batches * EncryptedBatch::encoded_len(layout)
    };
    kept.sum::<usize>() + layouts().map(upload).max().unwrap_or(0)
}

/// How many tests run at the same time.
pub(crate) fn most_active(session: &EncryptedSession) -> usize {
    (KEPT_BY_ALL / bytes_of_test(session).max(1)).clamp(1, MAX_ACTIVE)
}

impl HesvPrincipal {
    pub(crate) fn new(session: EncryptedSession) -> Self {
        let (data, models, coalitions) = (BTreeMap::new(), Models::default(), BTreeMap::new());
        Self { session, keys: None, data, models, coalitions }
    }

    /// What replies of a unit are made from.
    fn replies<'a>(
        &'a self,
        context: &'a Arc<UnitContext>,
        keys: &'a Keys,
        seed: &'a Seed,
    ) -> UnitReplies<'a> {
        let inputs = self.models.digest(context.round);
        UnitReplies { session: &self.session, context, public: &keys.public, seed, inputs }
    }
}

impl Engine for HesvPrincipal {
    type Unit = HesvUnit;
    type Round = HesvRound;
    const AUXILIARY: Option<PartyId> = None;

    fn session(&self) -> &Arc<Session> {
        self.session.shared()
    }

    fn is_ready(&self) -> bool {
        self.keys.is_some() && (0..self.session.chunks.len()).all(|chunk| self.data.contains_key(&chunk))
    }

    fn max_active(&self) -> usize {
        most_active(&self.session)
    }

    fn unit(&self, context: Arc<UnitContext>) -> HesvUnit {
        let labels = EncryptedComparison::Labels { truth: None, predicted: None };
        HesvUnit { context, begun: BTreeSet::new(), steps: BTreeMap::new(), labels }
    }

    fn nothing_found(_samples: usize) -> TestResult {
        TestResult::of_count(0)
    }

    fn on_message(
        scheduler: &mut Scheduler<Self>,
        message: Incoming,
    ) -> Result<Effects<Scheduler<Self>>, Error> {
        let PartyId::Client(client) = message.from else { return Err(message.unexpected("testing")) };
        match message.kind {
            Kind::EvaluationKeys if client == scheduler.session.leader && scheduler.engine.keys.is_none() => {
                scheduler.take_keys(&message)
            }
            Kind::EncryptedData => scheduler.take_data(client, message),
            Kind::Model => scheduler.take_encrypted_model(client, message),
            Kind::EncryptedActivations | Kind::EncryptedLabels | Kind::EncryptedPredictions => {
                scheduler.take_upload(client, message)
            }
            Kind::Count => scheduler.take_count(client, &message),
            _ => Err(message.unexpected("testing")),
        }
    }

    fn advance(scheduler: &mut Scheduler<Self>, id: UnitId) -> Result<Effects<Scheduler<Self>>, Error> {
        let mut effects = Effects::default();
        let Scheduler { engine, units, rounds, seed, .. } = scheduler;
        let (Some(unit), Some(keys)) = (units.get_mut(&id), engine.keys.clone()) else { return Ok(effects) };
        let context = unit.context.clone();
        let replies = engine.replies(&context, &keys, seed);
        if let Some(round) = rounds.get(&context.round) {
            effects.and(replies.first_layer(&round.outputs, &mut unit.begun));
        }
        if let Some(models) = engine.models.all(&engine.session, context.round) {
            effects.and(replies.biases(&models, &mut unit.begun));
            effects.and(scheduler.full_products(&context, &keys, &models)?);
        }
        effects.and(scheduler.gated_sums(&context, &keys));
        effects.and(scheduler.compare_encrypted(&context, &keys));
        Ok(effects)
    }

    fn forget_round(&mut self, round: RoundId) {
        self.models.forget_round(round);
    }

    fn forget_test(&mut self, test: TestId) {
        self.coalitions.retain(|(of, _), _| *of != test.request);
    }

    fn missing(scheduler: &Scheduler<Self>) -> Vec<String> {
        let (engine, session) = (&scheduler.engine, &scheduler.session);
        let mut missing = Vec::new();
        let mut miss =
            |kind: Kind, client: usize| missing.push(format!("{kind} from {}", PartyId::Client(client)));
        if engine.keys.is_none() {
            miss(Kind::EvaluationKeys, session.leader);
        }
        for (_, chunk) in session.chunks.iter().enumerate().filter(|(i, _)| !engine.data.contains_key(i)) {
            session.groups[chunk.group].owners.members().for_each(|owner| miss(Kind::EncryptedData, owner));
        }
        for unit in scheduler.units.values() {
            unit.missing(session, &mut miss);
        }
        let begun = scheduler.rounds.iter().filter(|(_, state)| !state.is_begun);
        missing.extend(engine.models.missing(session, begun.map(|(round, _)| *round)));
        missing
    }
}

impl HesvUnit {
    /// Tells `miss` what has not come, and from whom.
    fn missing(&self, session: &Session, miss: &mut impl FnMut(Kind, usize)) {
        let context = &self.context;
        let EncryptedComparison::Labels { truth, predicted } = &self.labels else {
            if let Some(counter) = context.plan.counter {
                miss(Kind::Count, counter);
            }
            return;
        };
        if truth.is_none() {
            context.owners(session).for_each(|owner| miss(Kind::EncryptedLabels, owner));
        }
        let last = session.program().steps.len() - 1;
        match (0..last).find(|step| !self.steps.contains_key(step)) {
            Some(step) => miss(Kind::EncryptedActivations, context.decryptor(step)),
            None if predicted.is_none() => miss(Kind::EncryptedPredictions, context.decryptor(last)),
            None => {}
        }
    }

    /// What a client made of a step, once it is decoded.
    fn uploaded(&mut self, step: usize) -> Option<&mut UploadedStep> {
        self.steps.get_mut(&step)?.as_mut()
    }

    fn slots(&mut self, step: usize) -> Option<(Arc<Vec<EncryptedSlots>>, Digest)> {
        self.uploaded(step).map(|uploaded| (uploaded.slots.clone(), uploaded.digest))
    }
}

impl Scheduler<HesvPrincipal> {
    fn take_keys(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why: CodecError| message.malformed(why);
        let engine = &mut self.engine;
        let parameters = engine.session.parameters();
        let EvaluationKeys { public: key, evaluation } = message.read(&())?;
        let public = PublicKey::from_bytes(parameters, key).map_err(|e| malformed(e.into()))?;
        let evaluation =
            EvaluationKey::from_bytes(parameters, &rotation_steps(&engine.session.encryption), evaluation);
        let evaluation = evaluation.map_err(|error| match error {
            HeError::Wire(why) => malformed(why.into()),
            other => other.into(),
        })?;
        engine.keys = Some(Keys { public: Arc::new(public), evaluation: Arc::new(evaluation) });
        engine.models.note(Kind::EvaluationKeys, self.session.leader, message.digest);
        let mut effects = tell_key(&self.session, &ServerPublicKey { public: key });
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// An owner's samples, one chunk of them.
    fn take_data(&mut self, owner: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let session = self.engine.session.clone();
        let malformed = |why| message.malformed(why);
        let EncryptedData { chunk: number, batches } = message.read(&())?;
        let own = |chunk: &crate::session::Chunk| {
            session.groups[chunk.group].owners == Coalition::EMPTY.with(owner)
        };
        if !session.chunks.get(number).is_some_and(own) || self.engine.data.contains_key(&number) {
            return Err(malformed(CodecError::Value { what: "chunk" }));
        }
        let columns = session.program().operators[0].positions * session.chunks[number].places.len();
        check::batches(&session, 0, columns, &batches.0).map_err(malformed)?;
        let mut effects = Effects::default();
        effects.job(move |meter| {
            meter.enter(Phase::Codec);
            let EncryptedData { batches, .. } = message.read(&())?;
            let batches = decode_batches(&session, 0, columns, &batches.0);
            let batches = batches.map_err(|why| message.malformed(why))?;
            Ok(move |role: &mut Self| {
                role.engine.models.note(Kind::EncryptedData, number, message.digest);
                role.engine.data.insert(number, Arc::new(batches));
                role.pump()
            })
        });
        Ok(effects)
    }

    /// A client's model of a round.
    fn take_encrypted_model(&mut self, owner: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let session = self.engine.session.clone();
        let round = Models::<()>::check(&session, owner, &message)?;
        if !self.rounds.contains_key(&round) {
            return Err(message.malformed(CodecError::Value { what: "round" }));
        }
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let model = LocalModel::decode(&session, true, &message, meter)?;
            Ok(move |role: &mut Self| {
                role.engine.models.insert(round, owner, model);
                role.encrypted_first_layer(round)
            })
        });
        Ok(effects)
    }

    /// First-layer outputs of every local model, chunk by chunk: those of coalitions are sums of theirs
    /// (PROTOCOL.md 2).
    fn encrypted_first_layer(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let engine = &self.engine;
        let (Some(models), Some(keys)) = (engine.models.all(&engine.session, round), &engine.keys) else {
            return Ok(effects);
        };
        match self.rounds.get_mut(&round) {
            Some(state) if !state.is_begun => state.is_begun = true,
            _ => return Ok(effects),
        }
        for (&chunk, batches) in &engine.data {
            let (session, models) = (engine.session.clone(), models.clone());
            let (batches, evaluation) = (batches.clone(), keys.evaluation.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Linear);
                let layout = session.layout(0);
                let terms: Vec<[(u32, &EncryptedMatrix); 1]> =
                    models.iter().map(|(_, model)| [(1, &model.weights[0])]).collect();
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

    /// What a client has to say about a unit.
    fn take_upload(&mut self, client: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let (kind, session) = (message.kind, self.engine.session.clone());
        let malformed = |why| message.malformed(why);
        let address = Head::step(kind, &message.content).ok_or(malformed(CodecError::Truncated))?;
        let (id, step) = (address.unit, address.step);
        let unit = self.units.get_mut(&id);
        let unit = unit.filter(|unit| may_send(&session, &unit.context, client, kind, address));
        let Some(unit) = unit else {
            return Err(message.unexpected("somebody else's part, or no such test"));
        };
        let samples = unit.context.places().len();
        if kind == Kind::EncryptedActivations {
            if unit.steps.contains_key(&step) {
                return Err(message.unexpected("it has come"));
            }
            let EncryptedActivations { parts, .. } = message.read(&())?;
            check::upload(&session, step, samples, &parts).map_err(malformed)?;
            unit.steps.insert(step, None);
            return Ok(decode_upload(session, (id, step), samples, message));
        }
        check::slots(&session, samples, label_slots(&message)?).map_err(malformed)?;
        let place = match &mut unit.labels {
            EncryptedComparison::Labels { truth, .. } if kind == Kind::EncryptedLabels => truth,
            EncryptedComparison::Labels { predicted, .. } => predicted,
            EncryptedComparison::Count => return Err(message.unexpected("labels are compared")),
        };
        if place.is_some() {
            return Err(message.unexpected("it has come"));
        }
        *place = Some(message);
        HesvPrincipal::advance(self, id)
    }
}

/// Decodes what a client made of a step.
fn decode_upload(
    session: EncryptedSession,
    (id, step): (UnitId, usize),
    samples: usize,
    message: Incoming,
) -> Effects<Scheduler<HesvPrincipal>> {
    let mut effects = Effects::default();
    effects.job(move |meter| {
        let Upload { batches, slots } = Upload::decode(&session, samples, &message, meter)?;
        let digest = message.digest;
        Ok(move |role: &mut Scheduler<HesvPrincipal>| {
            if let Some(unit) = role.units.get_mut(&id) {
                let uploaded = UploadedStep { batches: Some(batches), slots: Arc::new(slots), digest };
                unit.steps.insert(step, Some(uploaded));
            }
            HesvPrincipal::advance(role, id)
        })
    });
    effects
}

/// True or predicted labels in slots, as they came.
fn label_slots(message: &Incoming) -> Result<&[u8], Error> {
    if message.kind == Kind::EncryptedLabels {
        message.read(&()).map(|EncryptedLabels { slots, .. }| slots)
    } else {
        message.read(&()).map(|EncryptedPredictions { slots, .. }| slots)
    }
}

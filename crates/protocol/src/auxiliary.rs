//! The second server (the paper's A): holds one share of everything, multiplies, and hands its re-randomised halves to
//! the principal. It learns who is tested when and, after each test, which predictions are right.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Prg, Seed, Share};
use secsv_federation::{Coalition, RoundId};
use secsv_he::PublicKey;

use crate::{
    Error, PartyId, check,
    codec::unpack_matrix,
    decryptors::knowing,
    early::Early,
    error::CodecError,
    first_layer_batch::FirstLayerBatch,
    labels,
    message::{
        ActivationShare, CommonSeed, Counted, DataShare, DifferenceShare, FirstLayerBatchId, FirstLayerHalf,
        Head, Kind, LabelBody, LabelShare, LayerHalf, MaskedFactors, Message as _, Model, OpenedSeeds,
        OwnCount, Parts, PredictionShare, PublicKeyDigest, PublishedResult, Recount, RoundFinished, Server,
        ServerKeys, ShareBody, StepAddress, TestFinished, TestPlan, TripleShare, UnitId,
    },
    role::{Effects, Incoming, Outgoing, Phase, Role},
    scope::Scope,
    secret::{self, SecretServer},
    server::{
        LocalModel, Store, Triple, UnitContext, UnitState, check_plan, coalition_model, first_products,
        may_send, missing, missing_inputs, products, products_of, recount, tell_key, waits_for,
    },
    session::{Federation, Session},
    views::{SeenMessage, View, server_view},
};

/// The auxiliary server.
pub struct Auxiliary {
    federation: Arc<Federation>,
    seed: Seed,
    session: Option<Arc<Session>>,
    public: Option<Arc<PublicKey>>,
    store: Store,
    secret: SecretServer,
    units: BTreeMap<UnitId, UnitState>,
    /// Messages that came before the session or a test was announced.
    early: Early,
    /// Rounds whose first layers have not begun.
    first_layers: BTreeSet<RoundId>,
    /// Samples that were gathered in a round; with the first-layer batch while it has not begun.
    gathered: BTreeMap<(RoundId, FirstLayerBatchId), Option<Arc<FirstLayerBatch>>>,
    finished: Vec<Scope>,
    values: Option<Vec<u8>>,
    /// What it counted in tests that have ended, and what of it was not told yet to whoever keeps it.
    recount: Recount,
    counted: Vec<(u64, Vec<u8>)>,
    /// What owners counted themselves, by owner and test.
    own_counts: BTreeMap<(usize, u64), Recount>,
}

impl Auxiliary {
    /// An auxiliary whose randomness follows from a seed.
    pub fn new(federation: Arc<Federation>, seed: Seed) -> Self {
        Self {
            federation,
            seed,
            session: None,
            public: None,
            store: Store::default(),
            secret: SecretServer::default(),
            units: BTreeMap::new(),
            early: Early::default(),
            first_layers: BTreeSet::new(),
            gathered: BTreeMap::new(),
            finished: Vec::new(),
            values: None,
            recount: Recount::default(),
            counted: Vec::new(),
            own_counts: BTreeMap::new(),
        }
    }

    /// What it counted so far.
    pub fn recount(&self) -> Recount {
        let mut all = self.recount.clone();
        self.own_counts.values().for_each(|own| all.merge(own));
        all
    }

    /// What it counted in tests that have ended since this was last asked, by test, to be kept.
    pub fn take_counted(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.counted)
    }

    /// Takes over what an earlier process counted.
    pub fn remember_counted(&mut self, counted: &[u8]) -> Result<(), CodecError> {
        self.recount.merge(&Recount::decode(counted)?);
        Ok(())
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// What it saw, from the messages it received and sent.
    pub fn view(&self, received: &[SeenMessage], sent: &[SeenMessage]) -> Result<View, Error> {
        let protocol = self.federation.settings.protocol;
        server_view(self.session.as_deref(), protocol, PartyId::Auxiliary, received, sent)
    }

    fn agreed(&self) -> Result<Arc<Session>, Error> {
        self.session.clone().ok_or(Error::Local { what: "the session" })
    }

    fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let (from, kind) = (message.from, message.kind);
        let malformed = |why: CodecError| Error::Malformed { from, kind, why };
        if kind == Kind::Session && from == PartyId::Principal && self.session.is_none() {
            return self.begin(&message);
        }
        if kind == Kind::Values && from == PartyId::Principal && self.values.is_none() {
            let PublishedResult { values } = message.read(&())?;
            self.values = Some(values.to_vec());
            return Ok(Effects::default());
        }
        let Some(session) = self.session.clone() else {
            self.early.keep(message, "the session has not begun")?;
            return Ok(Effects::default());
        };
        if !kind.is_of(session.federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        if secret::takes(&session, from, kind) {
            return secret::take(self, &session, message);
        }
        match (kind, from) {
            // Once: clients were told which one it is.
            (Kind::ServerKeys, PartyId::Client(leader))
                if leader == session.leader && self.public.is_none() =>
            {
                self.take_server_keys(&session, &message)
            }
            (Kind::DataShare, PartyId::Client(owner)) if owner < session.hellos.len() => {
                self.data(&session, owner, &message)
            }
            (Kind::Model, PartyId::Client(owner)) => self.model(session, owner, message),
            (Kind::Test, PartyId::Principal) => self.join_test(&session, &message),
            (Kind::TestFinished, PartyId::Principal) => {
                self.end_test(message.read(&())?);
                Ok(Effects::default())
            }
            (Kind::RoundFinished, PartyId::Principal) => {
                self.end_round(message.read(&())?);
                Ok(Effects::default())
            }
            (
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple,
                PartyId::Client(client),
            ) => self.client_share(session, client, message),
            (Kind::OpenedSeeds, PartyId::Principal) => self.count(&session, &message),
            (Kind::OwnCount, PartyId::Client(owner)) => {
                self.own_count(&session, owner, message.read(&())?).map_err(malformed)?;
                Ok(Effects::default())
            }
            (Kind::MaskedFactors, PartyId::Principal) => {
                let factors: MaskedFactors<'_> = message.read(&())?;
                let unit = factors.address.unit;
                let state = self.units.get_mut(&unit).ok_or_else(|| message.unexpected("no such test"))?;
                state.take_masked(&session, factors).map_err(malformed)?;
                self.advance(unit)
            }
            _ => Err(message.unexpected("testing")),
        }
    }

    /// The session, and what came before it.
    fn begin(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let session = Session::accept(&self.federation, &message.content);
        self.session = Some(Arc::new(session.map_err(|why| message.malformed(why))??));
        let seed = self.seed.derive("zero sharing", 0);
        let mut effects = Effects::send(Outgoing::of(PartyId::Principal, &CommonSeed { seed }));
        for message in self.early.take(|_| true) {
            effects.and(self.take_early(message)?);
        }
        Ok(effects)
    }

    /// The leader's public key.
    fn take_server_keys(&mut self, session: &Session, message: &Incoming) -> Result<Effects<Self>, Error> {
        let ServerKeys { public } = message.read(&())?;
        let key = PublicKey::from_bytes(&session.encryption()?.parameters, public);
        self.public = Some(Arc::new(key.map_err(|e| message.malformed(e.into()))?));
        self.store.digests.insert((message.kind, session.leader), message.digest);
        let digest = *blake3::hash(public).as_bytes();
        let mut effects = tell_key(session, &PublicKeyDigest { digest });
        effects.and(self.first_layers()?);
        Ok(effects)
    }

    /// A test has ended.
    fn end_test(&mut self, TestFinished { test }: TestFinished) {
        self.keep_counts(test);
        self.store.forget_test(test);
        self.secret.forget_test(test);
        self.units.retain(|id, _| id.test != test);
        self.finished.push(Scope::Test(test));
    }

    /// A round has ended.
    fn end_round(&mut self, RoundFinished { round }: RoundFinished) {
        self.store.forget_round(round);
        self.gathered.retain(|(of, _), _| *of != round);
        self.secret.forget_round(round);
        self.finished.push(Scope::Round(round));
    }

    /// A test, as the principal announces it.
    fn join_test(&mut self, session: &Arc<Session>, message: &Incoming) -> Result<Effects<Self>, Error> {
        let plan: TestPlan = message.read(&())?;
        check_plan(session, &plan).map_err(|why| message.malformed(why))?;
        let mut effects = Effects::default();
        let contexts = UnitContext::of(session, &plan);
        let is_another = |context: &UnitContext| {
            let known = self.units.get(&context.id).and_then(|state| state.plan.as_ref());
            known.is_some_and(|known| known.digest != context.digest)
        };
        if contexts.iter().any(is_another) {
            return Err(Error::Second { from: message.from, kind: message.kind });
        }
        for context in contexts {
            let (id, layer_batch) = (context.id, context.layer_batch.clone());
            if layer_batch.id != FirstLayerBatchId::All {
                self.gathered.entry((plan.round, layer_batch.id)).or_insert(Some(layer_batch));
            }
            self.units.entry(id).or_default().plan = Some(Arc::new(context));
            effects.and(self.advance(id)?);
        }
        if session.encryption.is_some() {
            effects.and(self.first_layers()?);
        }
        Ok(effects)
    }

    /// Takes a message that had to wait. It was kept before it could be judged: if it is at fault, it has no effect.
    fn take_early(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        self.on_message(message).or_else(Error::unless_of_peer)
    }

    fn data(&mut self, session: &Session, owner: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let rows = session.program().input_size;
        let columns = session.hellos[owner].samples as usize;
        let DataShare { share: ShareBody::Elements(elements) } = message.read(&Server::Auxiliary)? else {
            return Err(message.unexpected("a share of elements"));
        };
        let matrix = unpack_matrix(session.field(), rows, columns, elements);
        let matrix = matrix.map_err(|why| message.malformed(why))?;
        self.store.data.insert(owner, Arc::new(Share::new(matrix)));
        self.store.digests.insert((Kind::DataShare, owner), message.digest);
        self.first_layers()
    }

    fn model(
        &mut self,
        session: Arc<Session>,
        owner: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let Model { round, layers } = message.read(&())?;
        let is_known = !session.rounds_of(round).is_empty();
        if !is_known || !session.federation.participants(round).contains(owner) {
            return Err(malformed(CodecError::Value { what: "round" }));
        }
        check::model(&session, &layers).map_err(malformed)?;
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let model = LocalModel::decode(&session, false, &message, meter)?;
            Ok(move |role: &mut Self| {
                role.store.models.entry(round).or_default().insert(owner, Arc::new(model));
                role.first_layers.insert(round);
                role.first_layers()
            })
        });
        Ok(effects)
    }

    /// Starts the first layers of rounds whose models are all there.
    fn first_layers(&mut self) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let session = self.agreed()?;
        let (Some(public), Some(data)) = (self.public.clone(), self.store.all_data(&session)) else {
            return Ok(effects);
        };
        let mut layer_batches: Vec<(RoundId, Arc<FirstLayerBatch>)> = Vec::new();
        self.first_layers.retain(|&round| {
            let is_ready = self.store.all_models(&session, round).is_some();
            let groups = 0..if is_ready { session.groups.len() } else { 0 };
            layer_batches
                .extend(groups.map(|group| (round, Arc::new(FirstLayerBatch::everything(&session, group)))));
            !is_ready
        });
        for ((round, _), layer_batch) in &mut self.gathered {
            if self.store.all_models(&session, *round).is_some() {
                layer_batches.extend(layer_batch.take().map(|layer_batch| (*round, layer_batch)));
            }
        }
        for (round, layer_batch) in layer_batches {
            let Some(models) = self.store.all_models(&session, round) else { continue };
            for chunk in layer_batch.numbers() {
                let (session, data, models, public) =
                    (session.clone(), data.clone(), models.clone(), public.clone());
                let seed = layer_batch.seed(&self.seed, round, chunk).covering(&self.store.digest(round));
                let layer_batch = layer_batch.clone();
                let encoded = self.store.encoded.clone();
                effects.job(move |meter| {
                    let encryption = session.encryption()?;
                    let outputs =
                        first_products(&session, &layer_batch, chunk, &data, &models, &encoded, meter)?;
                    meter.enter(Phase::Sanitise);
                    let mut rng = Prg::new(&seed);
                    let mut parts = Vec::new();
                    for mut output in outputs.into_iter().flatten() {
                        public.rerandomise(&mut output, &mut rng, &mut meter.operations)?;
                        parts.push(output.to_bytes(&encryption.parameters));
                    }
                    let (batch, ciphertexts) = (layer_batch.id, Parts::from(&parts[..]));
                    let half = FirstLayerHalf { round, batch, chunk, ciphertexts };
                    let message = Outgoing::of(PartyId::Principal, &half);
                    Ok(move |_: &mut Self| Ok(Effects::send(message)))
                });
            }
        }
        Ok(effects)
    }

    fn client_share(
        &mut self,
        session: Arc<Session>,
        client: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let kind = message.kind;
        let address = Head::step(kind, &message.content);
        let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
        let plan = self.units.get(&address.unit).and_then(|state| state.plan.clone());
        let Some(context) = plan else {
            // The principal's announcement is still on its way: the client could not have known without one.
            self.early.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        if !may_send(&session, &context, client, kind, address) {
            return Err(message.unexpected("somebody else's part"));
        }
        match kind {
            Kind::ActivationShare if session.encryption.is_none() => {
                return secret::take_shared(self, &session, &context, message);
            }
            Kind::Triple if session.encryption.is_none() => {
                return secret::take_triple(self, &session, &context, &message);
            }
            Kind::ActivationShare => self.activation_share(&session, &context, &message)?,
            Kind::Triple => self.triple(&session, &context, &message)?,
            _ => self.label_share(&session, &context, client, &message)?,
        }
        self.advance(address.unit)
    }

    /// Its share of what a decryptor made of outputs.
    fn activation_share(
        &mut self,
        session: &Session,
        context: &UnitContext,
        message: &Incoming,
    ) -> Result<(), Error> {
        let ActivationShare { address, share: ShareBody::Elements(elements) } =
            message.read(&Server::Auxiliary)?
        else {
            return Err(message.unexpected("a share of elements"));
        };
        let (rows, count) = (session.program().shared_size(address.step), context.places().len());
        let matrix = unpack_matrix(session.field(), rows, count, elements);
        let matrix = matrix.map_err(|why| message.malformed(why))?;
        let state = self.units.entry(address.unit).or_default();
        state.inputs.insert(address.step, Arc::new(Share::new(matrix)));
        state.input_digests.insert(address.step, message.digest);
        Ok(())
    }

    /// Its share of true or predicted labels, with the commitment to the principal's.
    fn label_share(
        &mut self,
        session: &Session,
        context: &UnitContext,
        client: usize,
        message: &Incoming,
    ) -> Result<(), Error> {
        let malformed = |why| message.malformed(why);
        let is_prediction = message.kind == Kind::PredictionShare;
        let share = if is_prediction {
            message.read::<PredictionShare<'_>>(&Server::Auxiliary)?.share
        } else {
            message.read::<LabelShare<'_>>(&Server::Auxiliary)?.share
        };
        let LabelBody::Committed { commitment, labels } = share else {
            return Err(message.unexpected("a share of labels"));
        };
        let state = self.units.entry(context.id).or_default();
        if is_prediction {
            let labels = labels::received(context.label_bytes(session), labels).map_err(malformed)?;
            state.predicted = Some(labels);
        } else {
            let labels = labels::received(context.truth_bytes(session, client), labels).map_err(malformed)?;
            state.truths.insert(client, labels);
        }
        state.commitments.insert((message.kind, client), commitment);
        Ok(())
    }

    /// Its share of a multiplication triple.
    fn triple(&mut self, session: &Session, context: &UnitContext, message: &Incoming) -> Result<(), Error> {
        let TripleShare { address, seed, product } = message.read(&Server::Auxiliary)?;
        let (field, count) = (session.field(), context.places().len());
        let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
        let c = unpack_matrix(field, hidden, count, product.unwrap_or_default());
        let c = c.map_err(|why| message.malformed(why))?;
        let mut prg = Prg::new(&seed);
        let mut draw = || Share::new(secsv_algebra::Matrix::uniform(field, hidden, count, &mut prg));
        let triple = Triple { a: draw(), b: draw(), c: Share::new(c) };
        self.units.entry(address.unit).or_default().triples.insert(address.step, triple);
        Ok(())
    }

    /// Starts whatever a unit has everything for.
    fn advance(&mut self, id: UnitId) -> Result<Effects<Self>, Error> {
        let session = self.agreed()?;
        let mut effects = Effects::default();
        let waiting = self.early.take(|Incoming { kind, content, .. }| {
            matches!(kind, Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple)
                && Head::step(*kind, content).is_some_and(|address| address.unit == id)
        });
        for message in waiting {
            effects.and(self.take_early(message)?);
        }
        let Some(context) = self.units.get(&id).and_then(|state| state.plan.clone()) else {
            return Ok(effects);
        };
        if session.encryption.is_none() {
            effects.and(secret::advance(self, &session, &context)?);
            effects.and(self.verdict(&session, &context)?);
            return Ok(effects);
        }
        effects.and(self.halves(&session, &context)?);
        effects.and(self.updates(&session, &context)?);
        effects.and(self.verdict(&session, &context)?);
        Ok(effects)
    }

    /// Halves of later layers (Algorithm 4, step 4).
    fn halves(&mut self, session: &Arc<Session>, context: &Arc<UnitContext>) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        for (step, item, operator, from) in products_of(session) {
            let id = context.id;
            let Some(state) = self.units.get_mut(&id) else { break };
            let Some(input) = state.inputs.get(&from).cloned() else { continue };
            let Some(input_digest) = state.input_digests.get(&from).copied() else { continue };
            if state.started.contains(&(step, item, 0)) {
                continue;
            }
            let model = match self.store.coalitions.get(&(id.test, operator)) {
                Some(Some(model)) => model.clone(),
                Some(None) => continue,
                None => {
                    effects.and(self.coalition(session, context, operator)?);
                    continue;
                }
            };
            state.started.insert((step, item, 0));
            let public = self.public.clone().ok_or(Error::Local { what: "the public key" })?;
            let address = StepAddress { item, ..StepAddress::new(id, step) };
            let seed = address.seed(&self.seed, "half");
            let covered = [context.digest, self.store.digest(context.round), input_digest];
            let seed = seed.covering(covered.as_flattened());
            let session = session.clone();
            effects.job(move |meter| {
                let encryption = session.encryption()?;
                let columns = session.program().operators[operator].arrange(input.expose())?;
                let outputs = products(&encryption.layouts[operator], &[&model], &columns, meter)?;
                meter.enter(Phase::Sanitise);
                let mut rng = Prg::new(&seed);
                let mut parts = Vec::new();
                for mut output in outputs.into_iter().flatten() {
                    public.rerandomise(&mut output, &mut rng, &mut meter.operations)?;
                    parts.push(output.to_bytes(&encryption.parameters));
                }
                let half = LayerHalf { address, ciphertexts: Parts::from(&parts[..]) };
                let message = Outgoing::of(PartyId::Principal, &half);
                Ok(move |_: &mut Self| Ok(Effects::send(message)))
            });
        }
        Ok(effects)
    }

    fn coalition(
        &mut self,
        session: &Arc<Session>,
        context: &UnitContext,
        operator: usize,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (round, coalition, test) = (context.round, context.coalition(), context.id.test);
        let Some(models) = self.store.all_models(session, round) else { return Ok(effects) };
        self.store.coalitions.insert((test, operator), None);
        let session = session.clone();
        effects.job(move |meter| {
            let model = coalition_model(&session, operator, round, coalition, &models, meter)?;
            Ok(move |role: &mut Self| {
                role.store.coalitions.insert((test, operator), Some(Arc::new(model)));
                let units: Vec<UnitId> = role.units.keys().filter(|id| id.test == test).copied().collect();
                let mut effects = Effects::default();
                for unit in units {
                    effects.and(role.advance(unit)?);
                }
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Shares of gated sums for the re-sharer (PROTOCOL.md, the recurrent unit).
    fn updates(&mut self, session: &Session, context: &UnitContext) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let common = self.seed.derive("zero sharing", 0);
        if let Some(state) = self.units.get_mut(&context.id) {
            effects.outbox = state.gated_sums(session, context, false, &common)?;
        }
        Ok(effects)
    }

    /// The share of predicted minus true labels (Algorithm 4, step 12).
    fn verdict(
        &mut self,
        session: &Arc<Session>,
        context: &Arc<UnitContext>,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let Some(state) = self.units.get_mut(&context.id).filter(|state| !state.judged) else {
            return Ok(effects);
        };
        let is_whole = context.owners(session).all(|owner| state.truths.contains_key(&owner));
        let Some(predicted) = is_whole.then(|| state.predicted.take()).flatten() else { return Ok(effects) };
        state.judged = true;
        let truths = std::mem::take(&mut state.truths);
        let (session, context) = (session.clone(), context.clone());
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let differences = context.arranged(&session, &truths);
            let mut differences = differences.ok_or(Error::Local { what: "labels to compare" })?;
            labels::subtract(&mut differences, predicted.expose());
            let share =
                DifferenceShare { address: StepAddress::new(context.id, 0), labels: differences.expose() };
            let message = Outgoing::of(PartyId::Principal, &share);
            Ok(move |role: &mut Self| {
                if let Some(state) = role.units.get_mut(&context.id) {
                    state.differences = Some(message.content.clone());
                }
                Ok(Effects::send(message))
            })
        });
        Ok(effects)
    }
}

/// Counting for itself.
impl Auxiliary {
    /// Counts what is right in a unit, once the principal has opened the seeds of its shares.
    fn count(&mut self, session: &Session, message: &Incoming) -> Result<Effects<Self>, Error> {
        let OpenedSeeds { address, seeds: opened } = message.read(&())?;
        let state = self.units.get_mut(&address.unit);
        if state.as_ref().is_some_and(|state| state.counted.is_some()) {
            return Ok(Effects::default());
        }
        let Some((state, context)) = state.and_then(|state| state.plan.clone().map(|plan| (state, plan)))
        else {
            return Err(message.unexpected("no such test"));
        };
        let Some(differences) = state.differences.clone() else {
            return Err(message.unexpected("labels are on their way"));
        };
        let (mut seeds, mut found) = (BTreeMap::new(), Recount::default());
        let labelled = recount::labelled(session, &context);
        if labelled.len() != opened.len() {
            return Err(message.malformed(CodecError::Value { what: "number of seeds" }));
        }
        for ((kind, client), seed) in labelled.into_iter().zip(opened) {
            let address = recount::address_of(session, &context, kind);
            let expected = recount::commitment(PartyId::Client(client), kind, address, &seed);
            if state.commitments.remove(&(kind, client)) != Some(expected) {
                found.disputed.insert(client);
            }
            seeds.insert((kind, client), seed);
        }
        if found.disputed.is_empty() {
            let own = DifferenceShare::decode(&differences, &()).map_err(|why| message.malformed(why))?;
            let counted = recount::count(session, &context, own.labels, &seeds);
            found = counted.ok_or(Error::Local { what: "labels to count" })?;
        }
        (state.differences, state.counted) = (None, Some(found));
        Ok(Effects::default())
    }

    /// What an owner says of models that it knows.
    fn own_count(&mut self, session: &Session, owner: usize, message: OwnCount) -> Result<(), CodecError> {
        let OwnCount { test, counted: found } = message;
        let own = Coalition::EMPTY.with(owner);
        let samples = session.hellos.get(owner).map_or(0, |hello| hello.samples as usize);
        let is_its_own = |(&(round, coalition), found): (&(RoundId, Coalition), &Counted)| {
            let participants = session.federation.participants(round);
            found.tested <= samples && !knowing(own, coalition, participants).is_empty()
        };
        // Of each round it knows four models, and may be asked about each twice: nobody has this party keep more.
        let known = self.own_counts.range((owner, 0)..=(owner, u64::MAX)).map(|(_, own)| own.counts.len());
        let is_too_much = known.sum::<usize>() + found.counts.len() > 8 * session.federation.rounds.len();
        if is_too_much || !found.disputed.is_empty() || !found.counts.iter().all(is_its_own) {
            return Err(CodecError::Value { what: "models" });
        }
        self.own_counts.entry((owner, test)).or_insert(found);
        Ok(())
    }

    /// A test has ended: what was counted in it stays.
    fn keep_counts(&mut self, test: u64) {
        let mut found = Recount::default();
        let units = self.units.iter_mut().filter(|(id, _)| id.test == test);
        units.filter_map(|(_, state)| state.counted.take()).for_each(|counted| found.merge(&counted));
        if !found.is_empty() {
            self.counted.push((test, found.encode()));
            self.recount.merge(&found);
        }
    }
}

impl secret::Host for Auxiliary {
    const SIDE: PartyId = PartyId::Auxiliary;

    fn secret(&mut self) -> &mut SecretServer {
        &mut self.secret
    }

    fn common(&self) -> Option<Seed> {
        Some(self.seed.derive("zero sharing", 0))
    }

    fn units(&self) -> &BTreeMap<UnitId, UnitState> {
        &self.units
    }

    fn resume(&mut self, unit: UnitId) -> Result<Effects<Self>, Error> {
        self.advance(unit)
    }

    fn prepared(&mut self) -> Result<Effects<Self>, Error> {
        Ok(Effects::default())
    }
}

impl Role for Auxiliary {
    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        self.on_message(message)
    }

    fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    fn awaiting(&self) -> String {
        match &self.session {
            None => "auxiliary: the session from principal".to_owned(),
            Some(session) if session.encryption.is_none() => {
                let units = self.units.values().filter(|unit| !unit.judged);
                let units = units.filter_map(|state| state.plan.as_ref());
                let side = PartyId::Auxiliary;
                waits_for(side, &self.secret.missing(session, side, units))
            }
            Some(session) => {
                let leader = PartyId::Client(session.leader);
                let mut all = Vec::new();
                all.extend(self.public.is_none().then(|| format!("{} from {leader}", Kind::ServerKeys)));
                let rounds: Vec<RoundId> = self.first_layers.iter().copied().collect();
                all.extend(missing_inputs(session, &self.store, &rounds));
                for (id, state) in self.units.iter().filter(|(_, state)| !state.judged) {
                    all.extend(missing(session, *id, state));
                }
                waits_for(PartyId::Auxiliary, &all)
            }
        }
    }
}

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
    codec::{Reader, Writer, unpack_matrix},
    decryptors::knowing,
    early::Early,
    error::CodecError,
    first_layer_batch::{EVERYTHING, FirstLayerBatch, FirstLayerBatchId},
    labels,
    message::{Kind, Place, TestPlan, UnitId, join_after},
    role::{Effects, Incoming, Outgoing, Phase, Role},
    scope::Scope,
    secret::{self, SecretServer},
    server::{
        Counted, LocalModel, Recount, Store, Triple, UnitContext, UnitState, check_plan, coalition_model,
        first_products, may_send, missing, missing_inputs, products, products_of,
        recount::{self, COMMITMENT},
        tell_key, waits_for,
    },
    session::{Federation, Session},
    views::{Message, View, server_view},
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
        let mut r = Reader::new(counted);
        let recount = Recount::read(&mut r)?;
        r.end()?;
        self.recount.merge(&recount);
        Ok(())
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// What it saw, from the messages it received and sent.
    pub fn view(&self, received: &[Message], sent: &[Message]) -> Result<View, Error> {
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
            let session = Session::decode(&self.federation, &message.content).map_err(malformed)??;
            let session = Arc::new(session);
            self.session = Some(session);
            let mut effects = Effects::default();
            let common = self.seed.derive("zero sharing", 0);
            effects.outbox.push(Outgoing::new(PartyId::Principal, Kind::Common, common.expose().to_vec()));
            for message in self.early.take(|_| true) {
                effects.and(self.take_early(message)?);
            }
            return Ok(effects);
        }
        if kind == Kind::Values && from == PartyId::Principal && self.values.is_none() {
            self.values = Some(message.content);
            return Ok(Effects::default());
        }
        let Some(session) = self.session.clone() else {
            self.early.keep(message, "the session has not begun")?;
            return Ok(Effects::default());
        };
        if secret::takes(&session, from, kind) {
            return secret::take(self, &session, message);
        }
        match (kind, from) {
            // Once: clients were told which one it is.
            (Kind::ServerKeys, PartyId::Client(leader))
                if leader == session.leader && self.public.is_none() =>
            {
                let parameters = &session.encryption()?.parameters;
                let key = PublicKey::from_bytes(parameters, &message.content);
                self.public = Some(Arc::new(key.map_err(|e| malformed(e.into()))?));
                self.store.digests.insert((kind, leader), message.digest);
                let mut effects = tell_key(&session, message.digest.to_vec());
                effects.and(self.first_layers()?);
                Ok(effects)
            }
            (Kind::Data, PartyId::Client(owner)) if owner < session.hellos.len() => {
                self.data(&session, owner, &message)
            }
            (Kind::Model, PartyId::Client(owner)) => self.model(session, owner, message),
            (Kind::Test, PartyId::Principal) => {
                let plan = TestPlan::decode(&message.content).map_err(malformed)?;
                check_plan(&session, &plan).map_err(malformed)?;
                let mut effects = Effects::default();
                let contexts = UnitContext::of(&session, &plan);
                let is_another = |context: &UnitContext| {
                    let known = self.units.get(&context.id).and_then(|state| state.plan.as_ref());
                    known.is_some_and(|known| known.digest != context.digest)
                };
                if contexts.iter().any(is_another) {
                    return Err(Error::Second { from, kind });
                }
                for context in contexts {
                    let (id, layer_batch) = (context.id, context.layer_batch.clone());
                    if layer_batch.id != EVERYTHING {
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
            (Kind::Done, PartyId::Principal) => {
                let mut r = Reader::new(&message.content);
                match (r.u8().map_err(malformed)?, r.u64().map_err(malformed)?) {
                    (0, test) => {
                        self.keep_counts(test);
                        self.store.forget_test(test);
                        self.secret.forget_test(test);
                        self.units.retain(|id, _| id.test != test);
                        self.finished.push(Scope::Test(test));
                    }
                    (_, round) => {
                        self.store.forget_round(RoundId(round as u32));
                        self.gathered.retain(|(of, _), _| of.0 as u64 != round);
                        self.secret.forget_round(RoundId(round as u32));
                        self.finished.push(Scope::Round(RoundId(round as u32)));
                    }
                }
                Ok(Effects::default())
            }
            (Kind::Shared | Kind::Truth | Kind::Predicted | Kind::Triple, PartyId::Client(client)) => {
                self.client_share(session, client, message)
            }
            (Kind::Opened, PartyId::Principal) => self.count(&session, &message.content),
            (Kind::OwnCount, PartyId::Client(owner)) => {
                self.own_count(&session, owner, &message.content).map_err(malformed)?;
                Ok(Effects::default())
            }
            (Kind::Opening, PartyId::Principal) => {
                let (place, rest) = Place::decode(&message.content).map_err(malformed)?;
                let state =
                    self.units.get_mut(&place.unit).ok_or_else(|| message.unexpected("no such test"))?;
                state.take_opening(&session, place, rest).map_err(malformed)?;
                self.advance(place.unit)
            }
            _ => Err(message.unexpected("testing")),
        }
    }

    /// Takes a message that had to wait. It was kept before it could be judged: if it is at fault, it has no effect.
    fn take_early(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        self.on_message(message).or_else(Error::unless_of_peer)
    }

    fn data(&mut self, session: &Session, owner: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let rows = session.program().input_size;
        let columns = session.hellos[owner].samples as usize;
        let matrix = unpack_matrix(session.field(), rows, columns, &message.content);
        let matrix = matrix.map_err(|why| message.malformed(why))?;
        self.store.data.insert(owner, Arc::new(Share::new(matrix)));
        self.store.digests.insert((Kind::Data, owner), message.digest);
        self.first_layers()
    }

    fn model(
        &mut self,
        session: Arc<Session>,
        owner: usize,
        message: Incoming,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let mut r = Reader::new(&message.content);
        let round = RoundId(r.u32().map_err(malformed)?);
        let is_known = !session.rounds_of(round).is_empty();
        if !is_known || !session.federation.participants(round).contains(owner) {
            return Err(malformed(CodecError::Value { what: "round" }));
        }
        check::model(&session, r.rest()).map_err(malformed)?;
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
                    let mut w = Writer::default();
                    w.u32(round.0).raw(&layer_batch.id).u32(chunk as u32);
                    let content = join_after(w, &parts);
                    Ok(move |_: &mut Self| {
                        let mut effects = Effects::default();
                        effects.outbox.push(Outgoing::new(PartyId::Principal, Kind::FirstLayer, content));
                        Ok(effects)
                    })
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
        let malformed = |why| message.malformed(why);
        let (place, rest) = Place::decode(&message.content).map_err(malformed)?;
        let plan = self.units.get(&place.unit).and_then(|state| state.plan.clone());
        let Some(context) = plan else {
            // The principal's announcement is still on its way: the client could not have known without one.
            self.early.keep(message, "no such test")?;
            return Ok(Effects::default());
        };
        if !may_send(&session, &context, client, kind, place.step) {
            return Err(message.unexpected("somebody else's part"));
        }
        if session.encryption.is_none() && matches!(kind, Kind::Shared | Kind::Triple) {
            return secret::take_shared(self, &session, &context, &message, place, rest);
        }
        let (field, count) = (session.field(), context.places().len());
        let state = self.units.entry(place.unit).or_default();
        match kind {
            Kind::Shared => {
                let rows = session.program().shared_size(place.step);
                let matrix = unpack_matrix(field, rows, count, rest).map_err(malformed)?;
                state.inputs.insert(place.step, Arc::new(Share::new(matrix)));
                state.input_digests.insert(place.step, message.digest);
            }
            Kind::Predicted => {
                let (committed, rest) = committed(rest).map_err(malformed)?;
                let labels = labels::received(context.label_bytes(&session), rest);
                state.predicted = Some(labels.map_err(malformed)?);
                state.commitments.insert((kind, client), committed);
            }
            Kind::Truth => {
                let (committed, rest) = committed(rest).map_err(malformed)?;
                let labels = labels::received(context.truth_bytes(&session, client), rest);
                state.truths.insert(client, labels.map_err(malformed)?);
                state.commitments.insert((kind, client), committed);
            }
            _ => {
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let mut r = Reader::new(rest);
                let seed = r.seed().map_err(malformed)?;
                let c = unpack_matrix(field, hidden, count, r.rest()).map_err(malformed)?;
                let mut prg = Prg::new(&seed);
                let mut draw = || Share::new(secsv_algebra::Matrix::uniform(field, hidden, count, &mut prg));
                state.triples.insert(place.step, Triple { a: draw(), b: draw(), c: Share::new(c) });
            }
        }
        self.advance(place.unit)
    }

    /// Starts whatever a unit has everything for.
    fn advance(&mut self, id: UnitId) -> Result<Effects<Self>, Error> {
        let session = self.agreed()?;
        let mut effects = Effects::default();
        let waiting = self.early.take(|Incoming { kind, content, .. }| {
            matches!(kind, Kind::Shared | Kind::Truth | Kind::Predicted | Kind::Triple)
                && Place::decode(content).is_ok_and(|(place, _)| place.unit == id)
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
            let place = Place { item, ..Place::new(id, step) };
            let seed = self.seed.derive("half", id.test).derive("half", place.number());
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
                let content = place.encode_parts(&parts);
                Ok(move |_: &mut Self| {
                    let mut effects = Effects::default();
                    effects.outbox.push(Outgoing::new(PartyId::Principal, Kind::Half, content));
                    Ok(effects)
                })
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
            let content = Arc::new(Place::new(context.id, 0).encode(differences.expose()));
            Ok(move |role: &mut Self| {
                let mut effects = Effects::default();
                if let Some(state) = role.units.get_mut(&context.id) {
                    state.differences = Some(content.clone());
                }
                effects.outbox.push(Outgoing::new(PartyId::Principal, Kind::Verdict, content));
                Ok(effects)
            })
        });
        Ok(effects)
    }
}

/// The commitment to a seed before a share of labels.
fn committed(rest: &[u8]) -> Result<([u8; COMMITMENT], &[u8]), CodecError> {
    rest.split_first_chunk().map(|(committed, rest)| (*committed, rest)).ok_or(CodecError::Truncated)
}

/// Counting for itself.
impl Auxiliary {
    /// Counts what is right in a unit, once the principal has opened the seeds of its shares.
    fn count(&mut self, session: &Session, content: &[u8]) -> Result<Effects<Self>, Error> {
        let (from, kind) = (PartyId::Principal, Kind::Opened);
        let malformed = |why| Error::Malformed { from, kind, why };
        let (place, rest) = Place::decode(content).map_err(malformed)?;
        let state = self.units.get_mut(&place.unit);
        if state.as_ref().is_some_and(|state| state.counted.is_some()) {
            return Ok(Effects::default());
        }
        let Some((state, context)) = state.and_then(|state| state.plan.clone().map(|plan| (state, plan)))
        else {
            return Err(Error::Unexpected { from, kind, state: "no such test" });
        };
        let Some(differences) = state.differences.clone() else {
            return Err(Error::Unexpected { from, kind, state: "labels are on their way" });
        };
        let (mut r, mut seeds, mut found) = (Reader::new(rest), BTreeMap::new(), Recount::default());
        for (kind, client) in recount::labelled(session, &context) {
            let seed = r.seed().map_err(malformed)?;
            let place = recount::place_of(session, &context, kind);
            let expected = recount::commitment(PartyId::Client(client), kind, place, &seed);
            if state.commitments.remove(&(kind, client)) != Some(expected) {
                found.disputed.insert(client);
            }
            seeds.insert((kind, client), seed);
        }
        r.end().map_err(malformed)?;
        if found.disputed.is_empty() {
            let own = differences.get(Place::LENGTH..).unwrap_or_default();
            let counted = recount::count(session, &context, own, &seeds);
            found = counted.ok_or(Error::Local { what: "labels to count" })?;
        }
        (state.differences, state.counted) = (None, Some(found));
        Ok(Effects::default())
    }

    /// What an owner says of models that it knows.
    fn own_count(&mut self, session: &Session, owner: usize, content: &[u8]) -> Result<(), CodecError> {
        let mut r = Reader::new(content);
        let (test, found) = (r.u64()?, Recount::read(&mut r)?);
        r.end()?;
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
            let mut w = Writer::default();
            found.write(&mut w);
            self.counted.push((test, w.finish()));
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

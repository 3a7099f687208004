//! SecSV at the principal: adds both servers' halves up and sanitises replies.

mod first_layer;
mod later_layers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Field, Seed, SeedShare};
use secsv_federation::{RoundId, SampleSet};
use secsv_he::{Ciphertext, PublicKey};

use super::server::{ModelHost, SharedInput, SharedInputs, Store};
use crate::{
    Error, PartyId,
    comparison::PrincipalLabels,
    encrypted::{UnitReplies, tell_key},
    error::CodecError,
    first_layer_batch::to_gather,
    gated_sums::GatedSums,
    message::{
        ActivationShare, CommonSeed, DataShare, Head, Kind, Server, ServerKeys, ServerPublicKey, ShareBody,
        StepAddress, UnitId,
    },
    program::DecryptorSlot,
    role::{Digest, Effects, Incoming},
    scheduler::{Engine, PrincipalUnit, Scheduler, max_tests},
    session::{EncryptedSession, Session},
    test_id::TestId,
    unit::{UnitContext, may_send, missing_input, server_address},
};
use first_layer::FirstLayerRound;

/// Keys, shares and models at the principal.
pub(crate) struct SecSvPrincipal {
    session: EncryptedSession,
    public: Option<Arc<PublicKey>>,
    /// The seed of the servers' sharings of zero.
    common: Option<Seed>,
    store: Store,
}

/// A unit at the principal.
pub(crate) struct PrincipalHalf {
    context: Arc<UnitContext>,
    inputs: SharedInputs,
    /// Replies and own halves that are computed.
    begun: BTreeSet<StepAddress>,
    /// Halves of later layers.
    halves: PendingHalves<StepAddress, Vec<Ciphertext>>,
    sums: GatedSums<Field>,
    labels: PrincipalLabels,
}

impl PrincipalUnit for PrincipalHalf {
    fn context(&self) -> &Arc<UnitContext> {
        &self.context
    }

    fn is_whole(&self) -> bool {
        self.labels.is_comparing()
    }
}

/// Halves of outputs, until the other server's come.
struct PendingHalves<K, T> {
    own: BTreeMap<K, T>,
    /// The auxiliary's messages as they came.
    other: BTreeMap<K, Incoming>,
}

impl<K, T> Default for PendingHalves<K, T> {
    fn default() -> Self {
        Self { own: BTreeMap::new(), other: BTreeMap::new() }
    }
}

impl<K: Ord, T> PendingHalves<K, T> {
    /// Takes the principal's half; both, once they are there.
    fn take_own(&mut self, key: K, own: T) -> Option<(T, Incoming)> {
        match self.other.remove(&key) {
            Some(other) => Some((own, other)),
            None => {
                self.own.insert(key, own);
                None
            }
        }
    }

    /// Takes the auxiliary's half; both, once they are there.
    fn take_other(&mut self, key: K, other: Incoming) -> Option<(T, Incoming)> {
        match self.own.remove(&key) {
            Some(own) => Some((own, other)),
            None => {
                self.other.insert(key, other);
                None
            }
        }
    }
}

impl SecSvPrincipal {
    pub(crate) fn new(session: EncryptedSession) -> Self {
        Self { session, public: None, common: None, store: Store::default() }
    }

    /// What replies of a unit are made from, once there is a key.
    fn replies<'a>(&'a self, context: &'a Arc<UnitContext>, seed: &'a Seed) -> Option<UnitReplies<'a>> {
        let inputs: Digest = self.store.models.digest(context.round);
        Some(UnitReplies { session: &self.session, context, public: self.public.as_ref()?, seed, inputs })
    }
}

impl ModelHost for Scheduler<SecSvPrincipal> {
    fn store(&mut self) -> &mut Store {
        &mut self.engine.store
    }

    fn resume(&mut self, of: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error> {
        self.advance_all(of)
    }
}

impl Engine for SecSvPrincipal {
    type Unit = PrincipalHalf;
    type Round = FirstLayerRound;

    fn session(&self) -> &Arc<Session> {
        self.session.shared()
    }

    fn is_ready(&self) -> bool {
        self.public.is_some() && self.common.is_some() && self.store.all_data(&self.session).is_some()
    }

    fn max_active(&self) -> usize {
        max_tests(&self.session)
    }

    fn unit(&self, context: Arc<UnitContext>) -> PrincipalHalf {
        PrincipalHalf {
            context,
            inputs: SharedInputs::new(),
            begun: BTreeSet::new(),
            halves: PendingHalves::default(),
            sums: GatedSums::new(self.session.field(), Server::Principal, "gated sum"),
            labels: PrincipalLabels::default(),
        }
    }

    fn to_gather(&self, group: usize, candidates: &SampleSet, participants: usize) -> Option<SampleSet> {
        to_gather(&self.session, group, candidates, participants)
    }

    fn stages_sent(&self, unit: &PrincipalHalf) -> usize {
        let program = self.session.program();
        let before = usize::from(program.gru.is_some());
        let stage = |step: usize| match program.steps.get(step).map(|decryption| decryption.slot) {
            Some(DecryptorSlot::Layer(place)) => place + before + 1,
            _ => 1,
        };
        unit.begun.iter().map(|address| stage(address.step)).max().unwrap_or(0)
    }

    fn on_message(
        scheduler: &mut Scheduler<Self>,
        message: Incoming,
    ) -> Result<Effects<Scheduler<Self>>, Error> {
        let session = scheduler.engine.session.clone();
        match (message.kind, message.from) {
            // Once: clients were told which one it is.
            (Kind::ServerKeys, PartyId::Client(leader))
                if leader == session.leader && scheduler.engine.public.is_none() =>
            {
                scheduler.take_server_keys(&message)
            }
            (Kind::CommonSeed, PartyId::Auxiliary) => {
                let CommonSeed { seed } = message.read(&())?;
                scheduler.engine.common = Some(seed);
                scheduler.pump()
            }
            (Kind::DataShare, PartyId::Client(owner)) if owner < session.hellos.len() => {
                scheduler.take_data_share(owner, &message)
            }
            (Kind::Model, PartyId::Client(owner)) => scheduler.take_model(owner, message),
            (Kind::FirstLayerHalf, PartyId::Auxiliary) => scheduler.take_first_half(message),
            (Kind::LayerHalf, PartyId::Auxiliary) => scheduler.take_layer_half(message),
            (Kind::MaskedFactors | Kind::DifferenceShare, PartyId::Auxiliary) => {
                let (address, _) = server_address(&session, &message, |id| scheduler.context(id))?;
                let unit = scheduler.unit(address.unit, &message)?;
                if message.kind == Kind::DifferenceShare {
                    unit.labels.take_differences(&session, &unit.context, &message)?;
                } else {
                    let taken = unit.sums.take_masked(&session, &unit.context, message.read(&())?);
                    taken.map_err(|why| message.malformed(why))?;
                }
                Self::advance(scheduler, address.unit)
            }
            (
                Kind::ActivationShare | Kind::LabelShare | Kind::PredictionShare | Kind::Triple,
                PartyId::Client(client),
            ) => scheduler.take_client_share(client, &message),
            _ => Err(message.unexpected("testing")),
        }
    }

    fn advance(scheduler: &mut Scheduler<Self>, id: UnitId) -> Result<Effects<Scheduler<Self>>, Error> {
        let mut effects = Effects::default();
        let Scheduler { engine, units, rounds, seed, .. } = scheduler;
        let Some(unit) = units.get_mut(&id) else { return Ok(effects) };
        let context = unit.context.clone();
        if let Some(replies) = engine.replies(&context, seed) {
            if let Some(round) = rounds.get(&context.round) {
                effects.and(replies.first_layer(&round.outputs, &mut unit.begun));
            }
            if let Some(models) = engine.store.models.all(&engine.session, context.round) {
                effects.and(replies.biases(&models, &mut unit.begun));
            }
        }
        if let Some(common) = &engine.common {
            let inputs = |step: usize| unit.inputs.get(&step).map(|input| &*input.share);
            effects.outbox.extend(unit.sums.advance(&engine.session, &context, common, inputs)?);
        }
        let labels = unit.labels.take_whole(&engine.session, &context);
        effects.and(scheduler.own_halves(&context)?);
        if let Some(labels) = labels {
            effects.and(scheduler.compare(&context, labels));
        }
        Ok(effects)
    }

    fn on_announced(
        scheduler: &mut Scheduler<Self>,
        round: RoundId,
    ) -> Result<Effects<Scheduler<Self>>, Error> {
        scheduler.gather(round);
        scheduler.first_layer(round)
    }

    fn forget_round(&mut self, round: RoundId) {
        self.store.models.forget_round(round);
    }

    fn forget_test(&mut self, test: TestId) {
        self.store.forget_test(test);
    }

    fn missing(scheduler: &Scheduler<Self>) -> Vec<String> {
        let (engine, session) = (&scheduler.engine, &scheduler.session);
        let leader = PartyId::Client(session.leader);
        let mut all = Vec::new();
        all.extend(engine.public.is_none().then(|| format!("{} from {leader}", Kind::ServerKeys)));
        all.extend(engine.common.is_none().then(|| format!("{} from auxiliary", Kind::CommonSeed)));
        all.extend(engine.store.missing(session, scheduler.rounds.keys().copied()));
        for (round, state) in &scheduler.rounds {
            let name = |chunk| format!("{} {chunk} of round {round} from auxiliary", Kind::FirstLayerHalf);
            all.extend(state.awaited_chunks().map(name));
        }
        for unit in scheduler.units.values() {
            all.extend(unit.missing(session));
        }
        all
    }
}

impl PrincipalHalf {
    /// What has not come, and from whom, in words.
    fn missing(&self, session: &Session) -> Vec<String> {
        let (test, group) = (self.context.id.test, self.context.id.group);
        let halves = self.halves.own.keys().map(|StepAddress { step, .. }| {
            format!("{} of test {test} group {group} step {step} from auxiliary", Kind::LayerHalf)
        });
        let mut missing: Vec<String> = halves.collect();
        missing.extend(missing_input(session, &self.context, |step| self.inputs.contains_key(&step)));
        missing.extend(self.sums.missing(session, &self.context));
        missing.extend(self.labels.missing(session, &self.context));
        missing
    }
}

impl Scheduler<SecSvPrincipal> {
    /// The leader's public key.
    fn take_server_keys(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let ServerKeys { public } = message.read(&())?;
        let engine = &mut self.engine;
        let key = PublicKey::from_bytes(engine.session.parameters(), public);
        engine.public = Some(Arc::new(key.map_err(|e| message.malformed(e.into()))?));
        engine.store.models.note(message.kind, self.session.leader, message.digest);
        let mut effects = tell_key(&self.session, &ServerPublicKey { public });
        effects.and(self.pump()?);
        Ok(effects)
    }

    /// The principal's share of an owner's samples.
    fn take_data_share(&mut self, owner: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let DataShare { share: ShareBody::Seed(seed) } = message.read(&Server::Principal)? else {
            return Err(message.unexpected("a seed"));
        };
        let session = &self.engine.session;
        let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
        let share = SeedShare::new(session.field(), rows, columns, seed).expand();
        self.engine.store.take_data(owner, share, message);
        let mut effects = self.pump()?;
        let open: Vec<RoundId> = self.rounds.keys().copied().collect();
        for round in open {
            effects.and(self.first_layer(round)?);
        }
        Ok(effects)
    }

    /// The principal's share of what a client shares in a unit: all of it the stream of a seed.
    fn take_client_share(&mut self, client: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let address = Head::step(message.kind, &message.content);
        let address = address.ok_or_else(|| message.malformed(CodecError::Truncated))?;
        let session = &self.engine.session;
        let unit = self.units.get_mut(&address.unit);
        let unit = unit.filter(|unit| may_send(session, &unit.context, client, message.kind, address));
        let Some(unit) = unit else {
            return Err(message.unexpected("somebody else's part, or no such test"));
        };
        match message.kind {
            Kind::ActivationShare => {
                let ActivationShare { share: ShareBody::Seed(seed), .. } =
                    message.read(&Server::Principal)?
                else {
                    return Err(message.unexpected("a seed"));
                };
                let rows = session.program().shared_size(address.step);
                let share = SeedShare::new(session.field(), rows, unit.context.places().len(), seed);
                let share = Arc::new(share.expand());
                unit.inputs.insert(address.step, SharedInput { share, digest: message.digest });
            }
            Kind::Triple => {
                let triple = message.read(&Server::Principal)?;
                let taken = unit.sums.take_triple(session, &unit.context, triple);
                taken.map_err(|why| message.malformed(why))?;
            }
            _ => unit.labels.take_share(client, message)?,
        }
        SecSvPrincipal::advance(self, address.unit)
    }
}

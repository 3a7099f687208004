//! SecSV at the auxiliary: multiplies its shares, and hands its re-randomised halves to the principal.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use secsv_algebra::{Field, Prg, Seed, Share};
use secsv_federation::RoundId;
use secsv_he::{Ciphertext, PublicKey};

use super::server::{ModelHost, SharedInput, SharedInputs, Store, coalition_model, first_products, products};
use crate::{
    Error, PartyId,
    codec::unpack_matrix,
    comparison::AuxiliaryLabels,
    encrypted::{LocalModel, Models, tell_key},
    first_layer_batch::FirstLayerBatch,
    follower::{AuxiliaryEngine, AuxiliaryUnit, Follower},
    gated_sums::GatedSums,
    message::{
        ActivationShare, DataShare, FirstLayerBatchId, FirstLayerHalf, Kind, LayerHalf, Parts,
        PublicKeyDigest, Server, ServerKeys, ShareBody, StepAddress, UnitId,
    },
    role::{Effects, Incoming, Meter, Outgoing, Phase},
    session::{EncryptedSession, Session},
    test_id::TestId,
    unit::{Product, UnitContext, missing_input, products_of, server_address},
};

/// Keys, shares and models at the auxiliary.
pub(crate) struct SecSvAuxiliary {
    session: EncryptedSession,
    public: Option<Arc<PublicKey>>,
    /// The seed of the servers' sharings of zero.
    common: Seed,
    store: Store,
    /// Rounds whose first layers have not begun.
    waiting: BTreeSet<RoundId>,
    /// Samples that were gathered in a round; with the first-layer batch while it has not begun.
    gathered: BTreeMap<(RoundId, FirstLayerBatchId), Option<Arc<FirstLayerBatch>>>,
}

/// A unit at the auxiliary.
pub(crate) struct AuxiliaryHalf {
    context: Arc<UnitContext>,
    inputs: SharedInputs,
    /// Halves that are computed.
    begun: BTreeSet<StepAddress>,
    sums: GatedSums<Field>,
    labels: AuxiliaryLabels,
}

impl AuxiliaryUnit for AuxiliaryHalf {
    fn context(&self) -> &Arc<UnitContext> {
        &self.context
    }

    fn labels(&mut self) -> &mut AuxiliaryLabels {
        &mut self.labels
    }

    fn missing(&self, session: &Session) -> Vec<String> {
        let input = missing_input(session, &self.context, |step| self.inputs.contains_key(&step));
        let sums = self.sums.missing(session, &self.context);
        input.into_iter().chain(sums).chain(self.labels.missing(session, &self.context)).collect()
    }
}

impl ModelHost for Follower<SecSvAuxiliary> {
    fn store(&mut self) -> &mut Store {
        &mut self.engine.store
    }

    fn resume(&mut self, of: impl Fn(&UnitId) -> bool) -> Result<Effects<Self>, Error> {
        self.advance_all(of)
    }
}

impl SecSvAuxiliary {
    pub(crate) fn new(session: EncryptedSession, common: Seed) -> Self {
        let (store, waiting, gathered) = (Store::default(), BTreeSet::new(), BTreeMap::new());
        Self { session, public: None, common, store, waiting, gathered }
    }
}

impl AuxiliaryEngine for SecSvAuxiliary {
    type Unit = AuxiliaryHalf;

    fn session(&self) -> &Arc<Session> {
        self.session.shared()
    }

    fn unit(&self, context: Arc<UnitContext>) -> AuxiliaryHalf {
        AuxiliaryHalf {
            context,
            inputs: SharedInputs::new(),
            begun: BTreeSet::new(),
            sums: GatedSums::new(self.session.field(), Server::Auxiliary, "gated sum"),
            labels: AuxiliaryLabels::default(),
        }
    }

    fn on_message(
        follower: &mut Follower<Self>,
        message: Incoming,
    ) -> Result<Effects<Follower<Self>>, Error> {
        let session = follower.session.clone();
        match (message.kind, message.from) {
            // Once: clients were told which one it is.
            (Kind::ServerKeys, PartyId::Client(leader))
                if leader == session.leader && follower.engine.public.is_none() =>
            {
                follower.take_server_keys(&message)
            }
            (Kind::DataShare, PartyId::Client(owner)) if owner < session.hellos.len() => {
                follower.take_data_share(owner, &message)
            }
            (Kind::Model, PartyId::Client(owner)) => follower.take_model(owner, message),
            (Kind::MaskedFactors, PartyId::Principal) => {
                let (address, context) = server_address(&session, &message, |id| follower.context(id))?;
                let unit = follower.unit(address.unit, &message)?;
                let taken = unit.sums.take_masked(&session, &context, message.read(&())?);
                taken.map_err(|why| message.malformed(why))?;
                follower.advance(address.unit)
            }
            _ => Err(message.unexpected("testing")),
        }
    }

    fn take_share(
        follower: &mut Follower<Self>,
        id: UnitId,
        message: Incoming,
    ) -> Result<Effects<Follower<Self>>, Error> {
        let session = follower.engine.session.clone();
        let malformed = |why| message.malformed(why);
        let unit = follower.unit(id, &message)?;
        if message.kind == Kind::Triple {
            let triple = message.read(&Server::Auxiliary)?;
            unit.sums.take_triple(&session, &unit.context, triple).map_err(malformed)?;
            return follower.advance(id);
        }
        let ActivationShare { address, share: ShareBody::Elements(elements) } =
            message.read(&Server::Auxiliary)?
        else {
            return Err(message.unexpected("a share of elements"));
        };
        let (rows, count) = (session.program().shared_size(address.step), unit.context.places().len());
        let matrix = unpack_matrix(session.field(), rows, count, elements).map_err(malformed)?;
        let share = Arc::new(Share::new(matrix));
        unit.inputs.insert(address.step, SharedInput { share, digest: message.digest });
        follower.advance(id)
    }

    /// Halves of later layers (Algorithm 4, step 4), and shares of gated sums.
    fn advance(follower: &mut Follower<Self>, id: UnitId) -> Result<Effects<Follower<Self>>, Error> {
        let mut effects = Effects::default();
        let Follower { engine, units, seed, .. } = follower;
        let SecSvAuxiliary { session, public, store, common, .. } = engine;
        let (Some(unit), Some(public)) = (units.get_mut(&id), public) else { return Ok(effects) };
        for product in products_of(session) {
            let (address, Product { operator, from, .. }) = (product.address(id), product);
            let Some(input) = unit.inputs.get(&from).cloned() else { continue };
            if unit.begun.contains(&address) {
                continue;
            }
            let model = coalition_model(store, session, &unit.context, operator, &mut effects);
            let Some(model) = model else { continue };
            unit.begun.insert(address);
            let covered = [unit.context.digest, store.models.digest(unit.context.round), input.digest];
            let seed = address.seed(seed, "half").covering(covered.as_flattened());
            let (session, public) = (session.clone(), public.clone());
            effects.job(move |meter| {
                let columns = session.program().operators[operator].arrange(input.share.expose())?;
                let outputs = products(session.layout(operator), &[&model], &columns, meter)?;
                let parts = rerandomised(&session, &public, outputs, &seed, meter)?;
                let half = LayerHalf { address, ciphertexts: Parts::from(&parts[..]) };
                let message = Outgoing::of(PartyId::Principal, &half);
                Ok(move |_: &mut Follower<Self>| Ok(Effects::send(message)))
            });
        }
        let inputs = |step: usize| unit.inputs.get(&step).map(|input| &*input.share);
        effects.outbox.extend(unit.sums.advance(session, &unit.context, common, inputs)?);
        Ok(effects)
    }

    fn on_announced(
        follower: &mut Follower<Self>,
        context: &UnitContext,
    ) -> Result<Effects<Follower<Self>>, Error> {
        let batch = &context.layer_batch;
        if batch.id != FirstLayerBatchId::All {
            let gathered = &mut follower.engine.gathered;
            gathered.entry((context.round, batch.id)).or_insert_with(|| Some(batch.clone()));
        }
        Ok(follower.first_layers())
    }

    fn forget_round(&mut self, round: RoundId) {
        self.store.models.forget_round(round);
        self.gathered.retain(|(of, _), _| *of != round);
    }

    fn forget_test(&mut self, test: TestId) {
        self.store.forget_test(test);
    }

    fn missing(follower: &Follower<Self>) -> Vec<String> {
        let (engine, session) = (&follower.engine, &follower.session);
        let leader = PartyId::Client(session.leader);
        let key = engine.public.is_none().then(|| format!("{} from {leader}", Kind::ServerKeys));
        let inputs = engine.store.missing(session, engine.waiting.iter().copied());
        key.into_iter().chain(inputs).collect()
    }
}

impl Follower<SecSvAuxiliary> {
    /// The leader's public key.
    fn take_server_keys(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let ServerKeys { public } = message.read(&())?;
        let engine = &mut self.engine;
        let key = PublicKey::from_bytes(engine.session.parameters(), public);
        engine.public = Some(Arc::new(key.map_err(|e| message.malformed(e.into()))?));
        engine.store.models.note(message.kind, self.session.leader, message.digest);
        let digest = *blake3::hash(public).as_bytes();
        let mut effects = tell_key(&self.session, &PublicKeyDigest { digest });
        effects.and(self.first_layers());
        effects.and(self.advance_all(|_| true)?);
        Ok(effects)
    }

    fn take_data_share(&mut self, owner: usize, message: &Incoming) -> Result<Effects<Self>, Error> {
        let session = &self.engine.session;
        let (rows, columns) = (session.program().input_size, session.hellos[owner].samples as usize);
        let DataShare { share: ShareBody::Elements(elements) } = message.read(&Server::Auxiliary)? else {
            return Err(message.unexpected("a share of elements"));
        };
        let matrix = unpack_matrix(session.field(), rows, columns, elements);
        let matrix = matrix.map_err(|why| message.malformed(why))?;
        self.engine.store.take_data(owner, Share::new(matrix), message);
        Ok(self.first_layers())
    }

    fn take_model(&mut self, owner: usize, message: Incoming) -> Result<Effects<Self>, Error> {
        let session = self.engine.session.clone();
        let round = Models::<()>::check(&session, owner, &message)?;
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let model = LocalModel::decode(&session, false, &message, meter)?;
            Ok(move |role: &mut Self| {
                role.engine.store.models.insert(round, owner, model);
                role.engine.waiting.insert(round);
                let mut effects = role.first_layers();
                effects.and(role.advance_all(|_| true)?);
                Ok(effects)
            })
        });
        Ok(effects)
    }

    /// Starts the first layers of rounds whose models are all there.
    fn first_layers(&mut self) -> Effects<Self> {
        let mut effects = Effects::default();
        let SecSvAuxiliary { session, public, store, waiting, gathered, .. } = &mut self.engine;
        let (Some(public), Some(data)) = (public, store.all_data(session)) else { return effects };
        let mut layer_batches: Vec<(RoundId, Arc<FirstLayerBatch>)> = Vec::new();
        waiting.retain(|&round| {
            let is_ready = store.models.all(session, round).is_some();
            let groups = 0..if is_ready { session.groups.len() } else { 0 };
            layer_batches
                .extend(groups.map(|group| (round, Arc::new(FirstLayerBatch::everything(session, group)))));
            !is_ready
        });
        for ((round, _), layer_batch) in gathered {
            if store.models.all(session, *round).is_some() {
                layer_batches.extend(layer_batch.take().map(|layer_batch| (*round, layer_batch)));
            }
        }
        for (round, layer_batch) in layer_batches {
            let Some(models) = store.models.all(session, round) else { continue };
            for chunk in layer_batch.numbers() {
                let seed = layer_batch.seed(&self.seed, round, chunk).covering(&store.models.digest(round));
                let (session, data, models) = (session.clone(), data.clone(), models.clone());
                let (public, encoded) = (public.clone(), store.encoded.clone());
                let layer_batch = layer_batch.clone();
                effects.job(move |meter| {
                    let outputs =
                        first_products(&session, &layer_batch, chunk, &data, &models, &encoded, meter)?;
                    let parts = rerandomised(&session, &public, outputs, &seed, meter)?;
                    let (batch, ciphertexts) = (layer_batch.id, Parts::from(&parts[..]));
                    let half = FirstLayerHalf { round, batch, chunk, ciphertexts };
                    let message = Outgoing::of(PartyId::Principal, &half);
                    Ok(move |_: &mut Self| Ok(Effects::send(message)))
                });
            }
        }
        effects
    }
}

/// Outputs re-randomised for the principal, as they travel.
fn rerandomised(
    session: &EncryptedSession,
    public: &PublicKey,
    outputs: Vec<Vec<Ciphertext>>,
    seed: &Seed,
    meter: &mut Meter<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    meter.enter(Phase::Sanitise);
    let mut rng = Prg::new(seed);
    let mut parts = Vec::new();
    for mut output in outputs.into_iter().flatten() {
        public.rerandomise(&mut output, &mut rng, &mut meter.operations)?;
        parts.push(output.to_bytes(session.parameters()));
    }
    Ok(parts)
}

//! HESV at a client: it encrypts its samples and labels as well as its models, encrypts again what it makes of layers' outputs, and
//! counts zeros among blinded differences.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::{Field, Matrix, Prg, Secret, Seed};
use secsv_federation::{Coalition, RoundId, SampleSet};
use secsv_he::{PublicKey, SecretKey};

use super::{Upload, encrypt_batches, open_slots, rotation_steps};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    check,
    disclosure::Disclosure,
    encrypted::{check_key, check_reply, expected_parts, receive, upload_models},
    error::CodecError,
    ideal::columns_of,
    message::{
        BlindedDifferences, Count, EncryptedData, EncryptedLabels, EvaluationKeys, Kind, Message as _,
        OutputReply, OwnResultCounts, Parts, Recount, StepAddress, UnitId,
    },
    model::sample_values,
    opening::Opening,
    participant::{
        ClientEngine, ClientReading, ClientSecrets, Identity, KeyCheck, KeyHolder, Matrices, PartId,
        ReceivedParts, Source, Testing, part_of,
    },
    role::{Effects, Incoming, Meter, Outgoing, Phase},
    session::{EncryptedSession, Session},
    test_id::{RequestId, TestId},
    unit::UnitContext,
};

/// The clients' secrets under HESV, and units whose right answers this client counts.
pub(crate) struct HesvClient {
    session: EncryptedSession,
    key: Arc<SecretKey>,
    labels: Seed,
    counting: BTreeMap<UnitId, Arc<UnitContext>>,
}

impl KeyHolder for HesvClient {
    type Session = EncryptedSession;
    const KEY_CHECK: KeyCheck = KeyCheck::Principal;

    /// The leader's keys for the server: to re-randomise, to multiply and to rotate (Algorithm 1, step 2).
    fn leader_keys(session: &EncryptedSession, key: &Seed, own: &Seed) -> Vec<Outgoing> {
        let secret = SecretKey::from_seed(session.parameters(), key.clone());
        let public = &secret.public_key(&mut Prg::new(&own.derive("public key", 0))).to_bytes();
        let mut rng = Prg::new(&own.derive("evaluation key", 0));
        let evaluation = secret.evaluation_key(&rotation_steps(&session.encryption), &mut rng);
        let evaluation = &evaluation.to_bytes(secret.parameters());
        vec![Outgoing::of(PartyId::Principal, &EvaluationKeys { public, evaluation })]
    }

    fn check_key_bytes(session: &EncryptedSession, public: &[u8]) -> Result<(), CodecError> {
        PublicKey::from_bytes(session.parameters(), public)?;
        Ok(())
    }

    fn check_public_key(
        session: &EncryptedSession,
        secrets: &ClientSecrets,
        public: &[u8],
    ) -> Result<(), Error> {
        check_key(session, &secrets.key, public)
    }
}

impl ClientEngine for HesvClient {
    type Ring = Field;
    const SECRETS: &'static [&'static str] = &["clients' key", "clients' label secret"];

    fn new(session: EncryptedSession, secrets: &ClientSecrets) -> Self {
        let key = Arc::new(SecretKey::from_seed(session.parameters(), secrets.key.clone()));
        Self { session, key, labels: secrets.labels.clone(), counting: BTreeMap::new() }
    }

    fn session(&self) -> &EncryptedSession {
        &self.session
    }

    fn shared(session: &EncryptedSession) -> &Arc<Session> {
        session.shared()
    }

    fn ring(&self) -> Field {
        self.session.field()
    }

    fn label_secret(&self) -> &Seed {
        &self.labels
    }

    /// Encrypts the samples, chunk by chunk (Algorithm 1, step 3).
    fn share_data(testing: &Testing<Self>) -> Effects<Testing<Self>> {
        let mut effects = Effects::default();
        let HesvClient { session, key, .. } = &testing.engine;
        let own = Coalition::EMPTY.with(testing.identity.position);
        let chunks = session.groups.iter().filter(|group| group.owners == own);
        for chunk in chunks.flat_map(|group| group.chunks.clone()) {
            let (session, key) = (session.clone(), key.clone());
            let (input, seed) = (testing.identity.input.clone(), &testing.identity.seed);
            let seed = seed.derive("encrypted data", chunk as u64);
            effects.job(move |meter| {
                meter.enter(Phase::Encrypt);
                let values = sample_values(session.program(), &input.test_set);
                let format = session.precision.operators[0].input;
                let samples = Secret::new(values.encode(session.field(), format, 1)?);
                let places = &session.chunks[chunk].places;
                let columns = Secret::new(columns_of(samples.expose(), places.start, places.len()));
                let columns = Secret::new(session.program().operators[0].arrange(columns.expose())?);
                let mut rng = Prg::new(&seed.covering_words([columns.expose().elements()]));
                let parts = encrypt_batches(&session, 0, columns.expose(), &key, &mut rng, meter)?;
                let data = EncryptedData { chunk, batches: Parts::from(&parts[..]) };
                let message = Outgoing::of(PartyId::Principal, &data);
                Ok(move |_: &mut Testing<Self>| Ok(Effects::send(message)))
            });
        }
        effects
    }

    fn begin_round(testing: &Testing<Self>, round: RoundId) -> Result<Effects<Testing<Self>>, CodecError> {
        upload_models(testing, &testing.engine.key, round, &[PartyId::Principal])
    }

    /// Encrypts the labels of a unit's samples, sample by sample.
    fn share_labels(testing: &Testing<Self>, context: &Arc<UnitContext>) -> Effects<Testing<Self>> {
        let mut effects = Effects::default();
        let address = StepAddress::new(context.id, 0);
        let (session, key) = (testing.engine.session.clone(), testing.engine.key.clone());
        let (context, identity) = (context.clone(), testing.identity.clone());
        effects.job(move |meter| {
            meter.enter(Phase::Encrypt);
            let places = session.groups[context.plan.group].places(identity.position);
            let own = context.places().iter().filter(|place| places.contains(place));
            let labels = own.map(|place| identity.input.test_set.labels()[place - places.start] as u64);
            let labels = Secret::new(labels.collect::<Vec<u64>>());
            let seed = address.seed(&identity.seed, "encrypted truth").covering(&context.digest);
            let seed = seed.covering_words([labels.expose().as_slice()]);
            let slots = key.encrypt_slots(labels.expose(), &mut Prg::new(&seed), &mut meter.operations)?;
            let labels = EncryptedLabels { address, slots: &slots.to_bytes(key.parameters()) };
            let message = Outgoing::of(PartyId::Principal, &labels);
            Ok(move |_: &mut Testing<Self>| Ok(Effects::send(message)))
        });
        effects
    }

    /// Remembers a unit whose right answers this client counts.
    fn on_announced(&mut self, identity: &Identity, context: &Arc<UnitContext>) {
        if context.plan.counter == Some(identity.position) {
            self.counting.insert(context.id, context.clone());
        }
    }

    fn on_message(testing: &mut Testing<Self>, message: Incoming) -> Result<Effects<Testing<Self>>, Error> {
        match (message.kind, message.from) {
            (Kind::BlindedDifferences, PartyId::Principal) => testing.engine.count_right(message),
            _ => Err(message.unexpected("testing")),
        }
    }

    fn own_result(request: RequestId, right: Vec<SampleSet>, _: Recount) -> Vec<Outgoing> {
        let right = right.iter().map(|right| right.len() as u64).collect();
        vec![Outgoing::of(PartyId::Principal, &OwnResultCounts { request, right })]
    }

    fn expected_parts(&self, context: &UnitContext, step: usize) -> Vec<PartId> {
        expected_parts(&self.session, context, step, |item| vec![(item, Source::Chunk(0))])
    }

    fn check_part(
        &self,
        context: &UnitContext,
        step: usize,
        (item, source): PartId,
        content: &[u8],
    ) -> Result<(), CodecError> {
        let Source::Chunk(chunk) = source else { return Err(CodecError::Value { what: "item or chunk" }) };
        check_reply(&self.session, context, step, (item, chunk), content)
    }

    fn receive(
        &self,
        context: &UnitContext,
        step: usize,
        parts: &ReceivedParts,
        meter: &mut Meter<'_>,
    ) -> Result<Secret<Matrices<Field>>, Error> {
        let sum = |opening: Opening, item: usize, meter: &mut Meter<'_>| {
            let malformed = |why| Error::Malformed { from: PartyId::Principal, kind: Kind::Reply, why };
            let reply = part_of(parts, (item, Source::Chunk(0)))?;
            let OutputReply { replies, .. } = OutputReply::decode(reply, &()).map_err(malformed)?;
            let (hidden, samples) = (self.session.program().hidden(), context.places().len());
            let (session, elements) = (&self.session, hidden * samples);
            let opened = open_slots(&opening, session, elements, &self.key, Kind::Reply, &replies, meter)?;
            Ok(Matrix::new(self.session.field(), hidden, samples, opened.expose().clone())?)
        };
        receive(&self.session, context, step, &self.key, parts, sum, meter)
    }

    /// Decrypts what a step received, activates it and encrypts it again.
    fn hand_on(
        testing: &Testing<Self>,
        context: Arc<UnitContext>,
        step: usize,
        mut activator: Activator,
        parts: ReceivedParts,
    ) -> Effects<Testing<Self>> {
        let mut effects = Effects::default();
        let engine = testing.engine.without_units();
        let address = StepAddress::new(context.id, step);
        let seed = address.seed(&testing.identity.seed, "shared");
        effects.job(move |meter| {
            let received = engine.receive(&context, step, &parts, meter)?;
            meter.enter(Phase::Activate);
            let session = &engine.session;
            let total = session.total_share(context.round, context.coalition());
            let received = &received.expose().0;
            let handed = activator.step(session.program(), &session.precision, step, total, received)?;
            let mut rng = Prg::new(&covering(&seed.derive("encrypted", 0), &handed));
            let message = Upload::encrypt(session, address, &handed, &engine.key, &mut rng, meter)?;
            Ok(move |role: &mut Testing<Self>| {
                let mut effects = Effects::send(message);
                effects.and(role.after_step(context.id, step, activator));
                Ok(effects)
            })
        });
        effects
    }

    fn forget_test(&mut self, test: TestId) {
        self.counting.retain(|id, _| id.test != test);
    }

    fn view(
        &self,
        reading: &mut ClientReading<'_, Self>,
        contexts: &BTreeMap<UnitId, UnitContext>,
    ) -> Result<(), Error> {
        reading.differences(contexts, |replies, count, meter| {
            let (session, kind, key) = (&self.session, Kind::BlindedDifferences, &self.key);
            let opening = session.opening(Disclosure::SlotsRightOrWrong)?;
            let opened = open_slots(&opening, session, count, key, kind, replies, meter)?;
            Ok(Matrix::new(self.session.field(), 1, count, opened.expose().clone())?)
        })
    }
}

impl HesvClient {
    /// The secrets alone, for a job.
    fn without_units(&self) -> Self {
        let (session, key, labels) = (self.session.clone(), self.key.clone(), self.labels.clone());
        Self { session, key, labels, counting: BTreeMap::new() }
    }

    /// Counts zeros (Algorithm 2, step 11). The others are random: the server multiplied them (PROTOCOL.md 2).
    fn count_right(&mut self, message: Incoming) -> Result<Effects<Testing<Self>>, Error> {
        let malformed = |why| message.malformed(why);
        let BlindedDifferences { address, replies } = message.read(&())?;
        let last = self.session.program().steps.len() - 1;
        let context = self.counting.get(&address.unit).cloned();
        let Some(context) = context.filter(|_| address == StepAddress::new(address.unit, last)) else {
            return Err(malformed(CodecError::Value { what: "unit to count" }));
        };
        check::slot_replies(&self.session, context.places().len(), &replies).map_err(malformed)?;
        self.counting.remove(&address.unit);
        let mut effects = Effects::default();
        let (session, key) = (self.session.clone(), self.key.clone());
        effects.job(move |meter| {
            let samples = context.places().len();
            let BlindedDifferences { replies, .. } = message.read(&())?;
            let opening = session.opening(Disclosure::SlotsRightOrWrong)?;
            let differences = open_slots(&opening, &session, samples, &key, message.kind, &replies, meter)?;
            let right = differences.expose().iter().filter(|&&difference| difference == 0).count();
            let count = Count { address: StepAddress::new(context.id, 0), right: right as u64 };
            let message = Outgoing::of(PartyId::Principal, &count);
            Ok(move |_: &mut Testing<Self>| Ok(Effects::send(message)))
        });
        Ok(effects)
    }
}

/// A seed that depends on what is encrypted under it.
fn covering(seed: &Seed, handed: &Handed<Field>) -> Seed {
    match handed {
        Handed::Shared(matrix) => seed.covering_words([matrix.elements()]),
        Handed::Labels(labels) => {
            let labels = Secret::new(labels.iter().map(|&label| label.into()).collect::<Vec<u64>>());
            seed.covering_words([labels.expose().as_slice()])
        }
    }
}

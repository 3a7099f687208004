//! SecSV at a client: encrypted models, shared samples, and replies that it decrypts, activates and shares again.

use std::sync::Arc;

use secsv_algebra::{Field, Prg, Secret, Seed};
use secsv_federation::{RoundId, SampleSet};
use secsv_he::{PublicKey, SecretKey};

use super::together::{DecryptorSecrets, hand_on_together, view_together};
use crate::{
    Error, PartyId,
    activation::Activator,
    encrypted::{check_key, check_reply, expected_parts, receive, upload_models},
    error::CodecError,
    message::{OwnCount, OwnResult, Recount, ServerKeys, StepAddress},
    opening::Opening,
    participant::{
        ClientEngine, ClientReading, ClientSecrets, KeyCheck, KeyHolder, Matrices, PartId, ReceivedParts,
        Source, StepParts, Testing, check_output_share,
        labels::{Resharer, share_labels},
        open_shares, share_samples,
    },
    role::{Effects, Meter, Outgoing, Phase},
    session::{EncryptedSession, Session},
    test_id::RequestId,
    unit::UnitContext,
};

/// The clients' secrets under SecSV.
#[derive(Clone)]
pub(crate) struct SecSvClient(DecryptorSecrets);

impl KeyHolder for SecSvClient {
    type Session = EncryptedSession;
    const KEY_CHECK: KeyCheck = KeyCheck::BothServers;

    fn leader_keys(session: &EncryptedSession, key: &Seed, own: &Seed) -> Vec<Outgoing> {
        let secret = SecretKey::from_seed(session.parameters(), key.clone());
        let public = secret.public_key(&mut Prg::new(&own.derive("public key", 0))).to_bytes();
        let servers = [PartyId::Principal, PartyId::Auxiliary];
        servers.iter().map(|&to| Outgoing::of(to, &ServerKeys { public: &public })).collect()
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

impl ClientEngine for SecSvClient {
    type Ring = Field;
    const SECRETS: &'static [&'static str] = &["clients' key", "clients' label secret"];

    fn new(session: EncryptedSession, secrets: &ClientSecrets) -> Self {
        let key = Arc::new(SecretKey::from_seed(session.parameters(), secrets.key.clone()));
        Self(DecryptorSecrets { session, key, labels: secrets.labels.clone() })
    }

    fn session(&self) -> &EncryptedSession {
        &self.0.session
    }

    fn shared(session: &EncryptedSession) -> &Arc<Session> {
        session.shared()
    }

    fn ring(&self) -> Field {
        self.0.session.field()
    }

    fn label_secret(&self) -> &Seed {
        &self.0.labels
    }

    fn share_data(testing: &Testing<Self>) -> Effects<Testing<Self>> {
        share_samples(testing)
    }

    fn begin_round(testing: &Testing<Self>, round: RoundId) -> Result<Effects<Testing<Self>>, CodecError> {
        upload_models(testing, &testing.engine.0.key, round, &[PartyId::Principal, PartyId::Auxiliary])
    }

    fn share_labels(testing: &Testing<Self>, context: &Arc<UnitContext>) -> Effects<Testing<Self>> {
        share_labels(testing, context)
    }

    fn own_result(request: RequestId, right: Vec<SampleSet>, counted: Recount) -> Vec<Outgoing> {
        let result = Outgoing::of(PartyId::Principal, &OwnResult { request, right });
        vec![result, Outgoing::of(PartyId::Auxiliary, &OwnCount { request, counted })]
    }

    fn expected_parts(&self, context: &UnitContext, step: usize) -> Vec<PartId> {
        expected_parts(&self.0.session, context, step, |item| Source::shares(item).to_vec())
    }

    fn check_part(
        &self,
        context: &UnitContext,
        step: usize,
        (item, source): PartId,
        content: &[u8],
    ) -> Result<(), CodecError> {
        let Source::Chunk(chunk) = source else {
            return check_output_share(self.ring(), &self.0.session, context, (step, item), content);
        };
        check_reply(&self.0.session, context, step, (item, chunk), content)
    }

    fn receive(
        &self,
        context: &UnitContext,
        step: usize,
        parts: &ReceivedParts,
        meter: &mut Meter<'_>,
    ) -> Result<Secret<Matrices<Field>>, Error> {
        let shape = (self.0.session.program().hidden(), context.places().len());
        let sum = |opening: Opening, item: usize, _: &mut Meter<'_>| {
            open_shares(opening, self.ring(), shape, item, parts)
        };
        receive(&self.0.session, context, step, &self.0.key, parts, sum, meter)
    }

    fn hand_on(
        testing: &Testing<Self>,
        context: Arc<UnitContext>,
        step: usize,
        mut activator: Activator,
        parts: ReceivedParts,
    ) -> Effects<Testing<Self>> {
        let mut effects = Effects::default();
        let (identity, engine) = (testing.identity.clone(), testing.engine.clone());
        let address = StepAddress::new(context.id, step);
        let seed = address.seed(&identity.seed, "shared");
        if engine.0.session.federation.tests_together() {
            return hand_on_together(engine.0, identity.party(), context, address, seed, parts);
        }
        effects.job(move |meter| {
            let received = engine.receive(&context, step, &parts, meter)?;
            meter.enter(Phase::Activate);
            let session = &engine.0.session;
            let total = session.total_share(context.round, context.coalition());
            let received = &received.expose().0;
            let handed = activator.step(session.program(), &session.precision, step, total, received)?;
            meter.enter(Phase::Share);
            let (context, own) = (&context, identity.party());
            let resharer = Resharer { session, context, address, own, seed: &seed, secret: &engine.0.labels };
            let outbox = resharer.share(handed, |_| Ok::<_, Error>(Vec::new()))?;
            let id = context.id;
            Ok(move |role: &mut Testing<Self>| {
                let mut effects = Effects { outbox, jobs: Vec::new() };
                effects.and(role.after_step(id, step, activator));
                Ok(effects)
            })
        });
        effects
    }

    fn view_step(
        &self,
        reading: &mut ClientReading<'_, Self>,
        context: &UnitContext,
        step: usize,
        parts: &StepParts,
        activator: &mut Activator,
    ) -> Result<(), Error> {
        if self.0.session.federation.tests_together() {
            return view_together(&self.0, reading, context, parts);
        }
        reading.step(context, step, parts, activator)
    }
}

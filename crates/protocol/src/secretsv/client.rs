//! SecretSV at a client: everything is shared, and whoever shares something deals for the product that follows.

use std::sync::Arc;

use secsv_algebra::{Ring64, Secret, Seed};
use secsv_federation::{RoundId, SampleSet};

use super::{
    Masks,
    dealer::{deal_first_layer, deal_product, masks, share_model},
};
use crate::{
    Error, PartyId,
    activation::Activator,
    disclosure::Disclosure,
    error::CodecError,
    message::{MaskSeed, OwnCount, OwnResult, Recount, StepAddress},
    participant::{
        ClientEngine, ClientSecrets, Identity, KeyCheck, KeyHolder, Matrices, PartId, ReceivedParts, Source,
        Testing, check_output_share,
        labels::{Resharer, share_labels},
        open_shares, output_shape, share_samples,
    },
    role::{Effects, Meter, Outgoing, Phase},
    session::Session,
    test_id::RequestId,
    unit::UnitContext,
};

/// The clients' secret under SecretSV.
#[derive(Clone)]
pub(crate) struct SecretSvClient {
    session: Arc<Session>,
    labels: Seed,
}

/// What a client deals to the servers: for its samples and no others.
fn own_masks(identity: &Identity) -> [Masks; 2] {
    masks(&identity.seed.covering(&identity.samples))
}

impl KeyHolder for SecretSvClient {
    type Session = Arc<Session>;
    const KEY_CHECK: KeyCheck = KeyCheck::None;

    fn leader_keys(_: &Arc<Session>, _: &Seed, _: &Seed) -> Vec<Outgoing> {
        Vec::new()
    }

    fn check_key_bytes(_: &Arc<Session>, _: &[u8]) -> Result<(), CodecError> {
        Ok(())
    }

    fn check_public_key(_: &Arc<Session>, _: &ClientSecrets, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

impl ClientEngine for SecretSvClient {
    type Ring = Ring64;
    const SECRETS: &'static [&'static str] = &["clients' label secret"];

    fn new(session: Arc<Session>, secrets: &ClientSecrets) -> Self {
        Self { session, labels: secrets.labels.clone() }
    }

    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn shared(session: &Arc<Session>) -> &Arc<Session> {
        session
    }

    fn ring(&self) -> Ring64 {
        Ring64
    }

    fn label_secret(&self) -> &Seed {
        &self.labels
    }

    /// Gives the servers the seeds of what this client deals, and shares the samples.
    fn share_data(testing: &Testing<Self>) -> Effects<Testing<Self>> {
        let [principal, auxiliary] = own_masks(&testing.identity);
        let seed = |to, masks: &Masks| Outgoing::of(to, &MaskSeed { seed: masks.seed().clone() });
        let mut effects = Effects::send(seed(PartyId::Principal, &principal));
        effects.outbox.push(seed(PartyId::Auxiliary, &auxiliary));
        effects.and(share_samples(testing));
        effects
    }

    /// The shared model if this client took part, masks for its samples if it has any.
    fn begin_round(testing: &Testing<Self>, round: RoundId) -> Result<Effects<Testing<Self>>, CodecError> {
        let mut effects = Effects::default();
        let (session, identity) = (&testing.engine.session, &testing.identity);
        let participants = session.federation.participants(round);
        let weights = identity.input.local.get(&round).filter(|_| participants.contains(identity.position));
        let owns = !identity.input.test_set.is_empty() && !participants.is_empty();
        if weights.is_none() && !owns {
            return Err(CodecError::Value { what: "round" });
        }
        if weights.is_some() {
            let (session, identity) = (session.clone(), identity.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let share = session.share(round, identity.position);
                let seed = identity.seed.derive("model", round.0.into());
                let weights = identity.input.local.get(&round);
                let outbox = match weights {
                    Some(weights) => share_model(&session, round, weights, share, seed)?,
                    None => Vec::new(),
                };
                Ok(move |_: &mut Testing<Self>| Ok(Effects { outbox, jobs: Vec::new() }))
            });
        }
        if owns {
            let (session, identity) = (session.clone(), identity.clone());
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let (masks, test_set) = (own_masks(&identity), &identity.input.test_set);
                let message = deal_first_layer(&session, identity.position, test_set, round, &masks)?;
                Ok(move |_: &mut Testing<Self>| Ok(Effects::send(message)))
            });
        }
        Ok(effects)
    }

    fn share_labels(testing: &Testing<Self>, context: &Arc<UnitContext>) -> Effects<Testing<Self>> {
        share_labels(testing, context)
    }

    fn own_result(request: RequestId, right: Vec<SampleSet>, counted: Recount) -> Vec<Outgoing> {
        let result = Outgoing::of(PartyId::Principal, &OwnResult { request, right });
        vec![result, Outgoing::of(PartyId::Auxiliary, &OwnCount { request, counted })]
    }

    fn expected_parts(&self, _: &UnitContext, step: usize) -> Vec<PartId> {
        (0..self.session.program().steps[step].receives.len()).flat_map(Source::shares).collect()
    }

    fn check_part(
        &self,
        context: &UnitContext,
        step: usize,
        (item, _): PartId,
        content: &[u8],
    ) -> Result<(), CodecError> {
        check_output_share(Ring64, &self.session, context, (step, item), content)
    }

    fn receive(
        &self,
        context: &UnitContext,
        step: usize,
        parts: &ReceivedParts,
        meter: &mut Meter<'_>,
    ) -> Result<Secret<Matrices<Ring64>>, Error> {
        meter.enter(Phase::Share);
        let (program, samples) = (self.session.program(), context.places().len());
        let mut received = Secret::new(Matrices(Vec::new()));
        for (item, receive) in program.steps[step].receives.iter().enumerate() {
            let opening = self.session.opening(Disclosure::of_receive(&program.steps[step], receive))?;
            let shape = output_shape(program, receive, samples);
            received.expose_mut().0.push(open_shares(opening, Ring64, shape, item, parts)?);
        }
        Ok(received)
    }

    /// Adds up what a step received, activates, shares and deals for the product that follows.
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
        effects.job(move |meter| {
            let received = engine.receive(&context, step, &parts, meter)?;
            meter.enter(Phase::Activate);
            let session = &engine.session;
            let total = session.total_share(context.round, context.coalition());
            let received = &received.expose().0;
            let handed = activator.step(session.program(), &session.precision, step, total, received)?;
            meter.enter(Phase::Share);
            let (masks, seed) = (own_masks(&identity), address.seed(&identity.seed, "shared"));
            let (context, own) = (&context, identity.party());
            let resharer = Resharer { session, context, address, own, seed: &seed, secret: &engine.labels };
            let outbox = resharer.share(handed, |matrix| deal_product(session, address, matrix, &masks))?;
            let id = context.id;
            Ok(move |role: &mut Testing<Self>| {
                let mut effects = Effects { outbox, jobs: Vec::new() };
                effects.and(role.after_step(id, step, activator));
                Ok(effects)
            })
        });
        effects
    }
}

//! The client in SecretSV: what it sends, and when.

use std::sync::Arc;

use secsv_algebra::{Ring64, Secret, share::split as share};
use secsv_federation::RoundId;

use super::{
    Client,
    received::{ReceivedParts, Source},
    testing::{activation_shares, blinded, label_shares},
};
use crate::{
    Error, PartyId,
    activation::{Activator, Handed},
    codec::pack,
    error::CodecError,
    message::{Kind, MaskSeed, StepAddress},
    role::{Effects, Outgoing, Phase},
    secret,
    server::UnitContext,
    session::Session,
};

impl Client {
    /// What this client deals to the servers: for these samples and no others.
    fn masks(&self) -> [secret::Masks; 2] {
        secret::masks(&self.seed.covering(&self.samples))
    }

    /// Gives the servers the seeds of what this client deals, and shares the samples.
    pub(super) fn secret_data(&self, session: &Arc<Session>) -> Effects<Self> {
        let [principal, auxiliary] = self.masks();
        let seed = |to, masks: &secret::Masks| Outgoing::of(to, &MaskSeed { seed: masks.seed().clone() });
        let mut effects = Effects::send(seed(PartyId::Principal, &principal));
        effects.outbox.push(seed(PartyId::Auxiliary, &auxiliary));
        effects.and(self.share_samples(session, Ring64));
        effects
    }

    /// What a round takes: the shared model if this client took part, masks for its samples if it has any. A round that
    /// opens again gets the same bytes again.
    pub(super) fn secret_round(
        &mut self,
        session: &Arc<Session>,
        round: RoundId,
    ) -> Result<Effects<Self>, CodecError> {
        let mut effects = Effects::default();
        let took_part = self.input.local.contains_key(&round)
            && session.federation.participants(round).contains(self.position);
        let owns = !self.input.test_set.is_empty() && !session.federation.participants(round).is_empty();
        if !took_part && !owns {
            return Err(CodecError::Value { what: "round" });
        }
        if took_part {
            let (session, input) = (session.clone(), self.input.clone());
            let seed = self.seed.derive("model", round.0.into());
            let share = session.share(round, self.position);
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let weights = input.local.get(&round).ok_or(Error::Local { what: "the model of a round" })?;
                let [principal, auxiliary] = secret::share_model(&session, round, weights, share, seed)?;
                Ok(move |role: &mut Self| {
                    let mut effects = role.send(PartyId::Principal, Kind::ModelShare, principal);
                    effects.and(role.send(PartyId::Auxiliary, Kind::ModelShare, auxiliary));
                    Ok(effects)
                })
            });
        }
        if owns {
            let (session, input, position) = (session.clone(), self.input.clone(), self.position);
            let masks = self.masks();
            effects.job(move |meter| {
                meter.enter(Phase::Share);
                let rest = secret::deal_first_layer(&session, position, &input.test_set, round, &masks)?;
                Ok(move |role: &mut Self| Ok(role.send(PartyId::Auxiliary, Kind::DealtProduct, rest)))
            });
        }
        Ok(effects)
    }

    /// Adds up what a step received, activates, shares and deals for the product that follows.
    pub(super) fn hand_on_secret(
        &mut self,
        session: &Arc<Session>,
        context: Arc<UnitContext>,
        step: usize,
        mut activator: Activator,
        parts: ReceivedParts,
    ) -> Result<Effects<Self>, Error> {
        let labels = self.label_secret.clone().ok_or(Error::Local { what: "the label secret" })?;
        let address = StepAddress::new(context.id, step);
        let seed = address.seed(&self.seed, "shared");
        let (masks, own) = (self.masks(), self.id());
        let session = session.clone();
        let mut effects = Effects::default();
        effects.job(move |meter| {
            let part = |item, server| parts.get(&(item, Source::Share(server))).map(Vec::as_slice);
            let received = secret::receive(&session, &context, step, part, meter)?;
            meter.enter(Phase::Activate);
            let total = session.total_share(context.round, context.coalition());
            let received = &received.expose().0;
            let handed = activator.step(session.program(), &session.precision, step, total, received)?;
            meter.enter(Phase::Share);
            let outbox = match handed {
                Handed::Shared(matrix) => {
                    let matrix = Secret::new(matrix);
                    let seed = seed.covering(&context.digest).covering_words([matrix.expose().elements()]);
                    let (seeded, rest) = share(matrix.expose(), seed);
                    let mut rest = pack(Ring64, rest.expose().elements());
                    rest.extend(secret::deal_product(&session, address, matrix.expose(), &masks)?);
                    activation_shares(address, seeded.seed(), &rest)
                }
                Handed::Labels(classes) => {
                    let (seed, rest) = blinded(&session, &labels, &context, classes, &seed);
                    label_shares(own, Kind::PredictionShare, address, &seed, &rest)
                }
            };
            Ok(move |role: &mut Self| {
                let mut effects = Effects { outbox, jobs: Vec::new() };
                effects.and(role.after_step(&session, &context, step, activator)?);
                Ok(effects)
            })
        });
        Ok(effects)
    }
}

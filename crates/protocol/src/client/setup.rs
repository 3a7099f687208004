//! Before tests: the leader's secrets, shares of the samples, encrypted models.

use std::sync::Arc;

use secsv_algebra::{Prg, Ring, Secret, Seed, share::split as share};
use secsv_federation::RoundId;
use secsv_he::{
    SecretKey,
    linear::{EncryptedBias, EncryptedMatrix},
};

use super::Client;
use crate::{
    Error, PartyId,
    codec::{Writer, pack},
    message::Kind,
    model::{EncodedModel, sample_values},
    role::{Effects, Phase},
    session::Session,
};

impl Client {
    /// The leader makes the clients' key and their common secret (Algorithm 3, step 2).
    pub(super) fn lead(&mut self, session: &Arc<Session>) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (key, labels) =
            (self.seed.derive("clients' key", 0), self.seed.derive("clients' label secret", 0));
        let secrets = Secret::new([*key.expose(), *labels.expose()].concat());
        let info = envelope_info(session);
        let position = self.position;
        for client in (0..self.federation.clients).filter(|&c| c != position) {
            let (from, to) = (self.id(), PartyId::Client(client));
            let receiver = &session.hellos[client].public_key;
            let covered = Secret::new([secrets.expose(), &receiver[..], &info].concat());
            let seed = self.seed.derive("envelope", client as u64).covering(covered.expose());
            let mut rng = Prg::new(&seed);
            let sealed = self.envelopes.seal(from, to, receiver, &info, secrets.expose(), &mut rng)?;
            let mut w = Writer::default();
            w.u16(client).raw(&sealed);
            effects.and(self.send(PartyId::Principal, Kind::ClientKeys, w.finish()));
        }
        if let Some(encryption) = &session.encryption {
            let secret = SecretKey::from_seed(&encryption.parameters, key.clone());
            let public = secret.public_key(&mut Prg::new(&self.seed.derive("public key", 0))).to_bytes();
            if self.is_hesv() {
                let keys = self.evaluation_keys(session, &secret, &public)?;
                effects.and(self.send(PartyId::Principal, Kind::ServerKeys, keys));
            } else {
                let public = Arc::new(public);
                effects.and(self.send(PartyId::Principal, Kind::ServerKeys, public.clone()));
                effects.and(self.send(PartyId::Auxiliary, Kind::ServerKeys, public));
            }
        }
        effects.and(self.adopt(session, key, labels)?);
        Ok(effects)
    }

    /// Takes the clients' secrets over, shares the samples (Algorithm 3, step 3; HESV encrypts them), and turns to what
    /// came too early.
    pub(super) fn adopt(
        &mut self,
        session: &Arc<Session>,
        key: Seed,
        labels: Seed,
    ) -> Result<Effects<Self>, Error> {
        self.label_secret = Some(labels);
        let mut effects = match &session.encryption {
            None => self.secret_data(session),
            Some(encryption) => {
                self.key = Some(Arc::new(SecretKey::from_seed(&encryption.parameters, key)));
                if self.is_hesv() {
                    self.upload_data(session)?
                } else {
                    self.share_samples(session, session.field())
                }
            }
        };
        for message in self.early.take(|_| true) {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(self.on_message(message).or_else(Error::unless_of_peer)?);
        }
        Ok(effects)
    }

    /// The samples in two shares: the principal's a seed, the auxiliary's what is left.
    pub(super) fn share_samples<R: Ring>(&self, session: &Arc<Session>, ring: R) -> Effects<Self> {
        let mut effects = Effects::default();
        if self.input.test_set.is_empty() {
            return effects;
        }
        let (session, input, seed) = (session.clone(), self.input.clone(), self.seed.derive("data share", 0));
        effects.job(move |meter| {
            meter.enter(Phase::Share);
            let values = sample_values(session.program(), &input.test_set);
            let samples = Secret::new(values.encode(ring, session.precision.operators[0].input, 1)?);
            let seed = seed.covering_words([samples.expose().elements()]);
            let (seeded, rest) = share(samples.expose(), seed);
            let rest = pack(ring, rest.expose().elements());
            Ok(move |role: &mut Self| {
                let mut effects = role.send(PartyId::Principal, Kind::Data, seeded.seed().expose().to_vec());
                effects.and(role.send(PartyId::Auxiliary, Kind::Data, rest));
                Ok(effects)
            })
        });
        effects
    }

    /// Encrypts the models of a round batch for the servers.
    pub(super) fn upload_models(
        &mut self,
        session: &Arc<Session>,
        round_batch: RoundId,
    ) -> Result<Effects<Self>, Error> {
        let mut effects = Effects::default();
        let (session, input, position) = (session.clone(), self.input.clone(), self.position);
        let key = self.key.clone().ok_or(Error::Local { what: "the clients' key" })?;
        let seed = self.seed.derive("model", round_batch.0.into());
        effects.job(move |meter| {
            meter.enter(Phase::Encrypt);
            let encryption = session.encryption()?;
            let mut models = Secret::new(Vec::new());
            for round in session.rounds_of(round_batch) {
                let weights = input.local.get(round).ok_or(Error::Local { what: "the model of a round" })?;
                models.expose_mut().push(EncodedModel::new(
                    session.program(),
                    &session.precision,
                    session.field(),
                    weights,
                    session.share(*round, position),
                )?);
            }
            let heights = encryption.layouts.iter().map(|layout| layout.shape().d_out);
            let model = Secret::new(EncodedModel::stack(models.expose(), heights)?);
            drop(models);
            let operators = &model.expose().operators;
            let numbers = operators.iter().flat_map(|o| [o.weight.elements(), &o.bias]);
            let mut rng = Prg::new(&seed.covering_words(numbers));
            let lengths = encryption.layouts.iter().map(|layout| {
                8 + EncryptedMatrix::encoded_len(layout) + 8 + EncryptedBias::encoded_len(layout)
            });
            let mut w = Writer::default();
            w.make_room(4 + 8 + lengths.sum::<usize>());
            w.u32(round_batch.0).u64(2 * encryption.layouts.len() as u64);
            for (layout, operator) in encryption.layouts.iter().zip(&model.expose().operators) {
                // Written where it will stand: a copy of all of it would be new memory.
                w.u64(EncryptedMatrix::encoded_len(layout) as u64);
                let bytes = std::mem::take(&mut w).finish();
                let ops = &mut meter.operations;
                w = Writer::from(layout.encrypt_onto(bytes, &key, &operator.weight, &mut rng, ops)?);
                let bias = layout.encrypt_bias(&key, &operator.bias, &mut rng, &mut meter.operations)?;
                w.counted(&bias.to_bytes(&encryption.parameters));
            }
            let content = Arc::new(w.finish());
            Ok(move |role: &mut Self| {
                let mut effects = role.send(PartyId::Principal, Kind::Model, content.clone());
                if !role.is_hesv() {
                    effects.and(role.send(PartyId::Auxiliary, Kind::Model, content));
                }
                Ok(effects)
            })
        });
        Ok(effects)
    }
}

/// What an envelope is bound to.
pub(super) fn envelope_info(session: &Session) -> Vec<u8> {
    [&session.federation.digest()[..], &(session.leader as u16).to_le_bytes()].concat()
}

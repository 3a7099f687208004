//! Clients under encryption: their models as servers get them, and the public key that servers hold.

use std::sync::Arc;

use secsv_algebra::{Prg, Secret, Seed};
use secsv_federation::{RoundId, Weights};
use secsv_he::{
    PublicKey, SecretKey, WireError,
    linear::{EncryptedBias, EncryptedMatrix},
};

use crate::{
    Error, PartyId,
    error::{CodecError, KeyDefect},
    message::{Kind, ModelBuilder},
    model::EncodedModel,
    participant::{ClientEngine, Testing},
    role::{Effects, Meter, Outgoing, Phase},
    session::EncryptedSession,
};

/// Encrypts the models of a round batch for some servers.
pub(crate) fn upload_models<E: ClientEngine<Session = EncryptedSession>>(
    testing: &Testing<E>,
    key: &Arc<SecretKey>,
    round_batch: RoundId,
    servers: &'static [PartyId],
) -> Result<Effects<Testing<E>>, CodecError> {
    let (session, identity) = (testing.engine.session(), &testing.identity);
    let rounds = session.rounds_of(round_batch);
    if rounds.is_empty() || rounds.iter().any(|round| !identity.input.local.contains_key(round)) {
        return Err(CodecError::Value { what: "round" });
    }
    let mut effects = Effects::default();
    let (session, identity, key) = (session.clone(), identity.clone(), key.clone());
    effects.job(move |meter| {
        let own = identity.input.local.iter();
        let models = own.filter(|(round, _)| session.rounds_of(round_batch).contains(round));
        let models = models.map(|(&round, weights)| (session.share(round, identity.position), weights));
        let seed = identity.seed.derive("model", round_batch.0.into());
        let content = Arc::new(encrypt_models(&session, round_batch, models, &key, &seed, meter)?);
        let outbox = servers.iter().map(|&to| Outgoing::new(to, Kind::Model, content.clone())).collect();
        Ok(move |_: &mut Testing<E>| Ok(Effects { outbox, jobs: Vec::new() }))
    });
    Ok(effects)
}

/// Encrypts models, each with its client's share of the round's training data, one below the other. Randomness depends on
/// `seed` and on the numbers that it covers.
fn encrypt_models<'a>(
    session: &EncryptedSession,
    round_batch: RoundId,
    models: impl Iterator<Item = (f64, &'a Weights)>,
    key: &SecretKey,
    seed: &Seed,
    meter: &mut Meter<'_>,
) -> Result<Vec<u8>, Error> {
    meter.enter(Phase::Encrypt);
    let (program, precision, field) = (session.program(), &session.precision, session.field());
    let mut encoded = Secret::new(Vec::new());
    for (share, weights) in models {
        encoded.expose_mut().push(EncodedModel::new(program, precision, field, weights, share)?);
    }
    let layouts = &session.encryption.layouts;
    let heights = layouts.iter().map(|layout| layout.shape().d_out);
    let model = Secret::new(EncodedModel::stack(encoded.expose(), heights)?);
    drop(encoded);
    let operators = &model.expose().operators;
    let numbers = operators.iter().flat_map(|o| [o.weight.elements(), &o.bias]);
    let mut rng = Prg::new(&seed.covering_words(numbers));
    let lengths = |layout| [EncryptedMatrix::encoded_len(layout), EncryptedBias::encoded_len(layout)];
    let parts: Vec<usize> = layouts.iter().flat_map(lengths).collect();
    let mut message = ModelBuilder::new(round_batch, &parts);
    for (layout, operator) in layouts.iter().zip(operators) {
        let ops = &mut meter.operations;
        message.append(EncryptedMatrix::encoded_len(layout), |bytes| {
            layout.encrypt_onto(bytes, key, &operator.weight, &mut rng, ops)
        })?;
        let bias = layout.encrypt_bias(key, &operator.bias, &mut rng, &mut meter.operations)?;
        message.add(&bias.to_bytes(session.parameters()));
    }
    Ok(message.finish())
}

/// Checks that a public key that servers hold is that of the clients' key, whose seed is `key`.
pub(crate) fn check_key(session: &EncryptedSession, key: &Seed, public: &[u8]) -> Result<(), Error> {
    let leader = PartyId::Client(session.leader);
    let malformed = |why: WireError| Error::Malformed {
        from: PartyId::Principal,
        kind: Kind::PublicKey,
        why: why.into(),
    };
    let public = PublicKey::from_bytes(session.parameters(), public).map_err(malformed)?;
    let secret = SecretKey::from_seed(session.parameters(), key.clone());
    secret.check_public_key(&public).map_err(|_| Error::BadKey { leader, why: KeyDefect::Another })
}

//! What the protocols that encrypt have in common encrypted models, keys, and replies to decryptors.

mod models;
mod received;
mod replies;
mod upload;

pub(crate) use models::{LocalModel, Models, RoundModels, member_terms};
pub(crate) use received::{check_reply, expected_parts, first_outputs, receive};
pub(crate) use replies::{FirstOutputs, Replies, RoundOutputs, UnitReplies, ciphertexts};
pub(crate) use upload::upload_models;

use std::sync::Arc;

use secsv_algebra::Seed;
use secsv_he::{PublicKey, SecretKey, WireError};

use crate::{
    Error, PartyId,
    error::KeyDefect,
    message::{Kind, Message},
    role::{Effects, Outgoing},
    session::{EncryptedSession, Session},
};

/// Tells clients which public key a server holds; the leader made it.
pub(crate) fn tell_key<'a, R, M: Message<'a>>(session: &Session, key: &M) -> Effects<R> {
    let mut effects = Effects::default();
    let key = Arc::new(key.encode());
    let others = (0..session.federation.clients).filter(|&client| client != session.leader);
    let told = others.map(|to| Outgoing::new(PartyId::Client(to), M::KIND, key.clone()));
    effects.outbox.extend(told);
    effects
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

//! What the protocols that encrypt have in common: encrypted models, keys, and replies to decryptors.

mod models;
mod received;
mod replies;
mod upload;

pub(crate) use models::{LocalModel, Models, RoundModels, member_terms};
pub(crate) use received::{check_reply, expected_parts, first_outputs, receive};
pub(crate) use replies::{FirstOutputs, Replies, RoundOutputs, UnitReplies, ciphertexts};
pub(crate) use upload::{check_key, upload_models};

use std::sync::Arc;

use crate::{
    PartyId,
    message::Message,
    role::{Effects, Outgoing},
    session::Session,
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

//! Keys before anything is shared: the leader's envelope, and what both servers say of the public key they hold. Whoever has the secret
//! key can tell an honest public key from any other; under another one servers would hide nothing.

use secsv_algebra::Seed;
use secsv_he::{PublicKey, SecretKey};

use std::sync::Arc;

use super::{Client, setup::envelope_info};
use crate::{
    Error, PartyId,
    error::{CodecError, KeyDefect},
    hesv::is_hesv,
    message::{Kind, PublicKeyDigest, SealedClientKeys, ServerPublicKey},
    role::{Effects, Incoming},
    session::Session,
};

/// What has come of the keys.
#[derive(Default)]
pub(super) struct Keys {
    /// Of the encryption and of labels.
    secrets: Option<(Seed, Seed)>,
    /// The principal's public key.
    public: Option<Vec<u8>>,
    /// The digest of the auxiliary's.
    digest: Option<[u8; 32]>,
}

impl Keys {
    /// Whether the leader's envelope has come.
    pub(super) fn has_secrets(&self) -> bool {
        self.secrets.is_some()
    }

    /// The digest of the auxiliary's public key. It may come before the session does, which is the principal's to tell.
    pub(super) fn take_digest(&mut self, message: &Incoming) -> Result<(), Error> {
        if self.digest.is_some() {
            return Err(message.unexpected("its public key is known"));
        }
        let PublicKeyDigest { digest } = message.read(&())?;
        self.digest = Some(digest);
        Ok(())
    }

    /// What has not come, and from whom.
    pub(super) fn missing(&self, session: &Session) -> Vec<String> {
        let mut missing = Vec::new();
        missing.extend(self.secrets.is_none().then(|| "the leader's envelope".to_owned()));
        if session.encryption.is_some() {
            let from = |kind: Kind, server: PartyId| format!("{kind} from {server}");
            missing.extend(self.public.is_none().then(|| from(Kind::PublicKey, PartyId::Principal)));
            let awaits = self.digest.is_none() && !is_hesv(session);
            missing.extend(awaits.then(|| from(Kind::PublicKeyDigest, PartyId::Auxiliary)));
        }
        missing
    }
}

impl Client {
    /// The clients' secrets, from the leader.
    pub(super) fn open_envelope(
        &mut self,
        session: &Arc<Session>,
        message: &Incoming,
    ) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let SealedClientKeys { client, envelope } = message.read(&())?;
        if client != self.position {
            return Err(malformed(CodecError::Value { what: "addressee" }));
        }
        let leader = PartyId::Client(session.leader);
        let sender = &session.hellos[session.leader].public_key;
        let info = envelope_info(session);
        let opened = self.envelopes.open(leader, self.id(), sender, &info, envelope)?;
        let Some((key, labels)) = opened.expose().split_first_chunk::<32>() else {
            return Err(malformed(CodecError::Truncated));
        };
        let labels: [u8; 32] = labels.try_into().map_err(|_| malformed(CodecError::Truncated))?;
        self.keys.secrets = Some((Seed::from_bytes(*key), Seed::from_bytes(labels)));
        self.adopt_if_sound(session)
    }

    /// What a server holds: the principal's public key, the digest of the auxiliary's.
    pub(super) fn take_public_key(
        &mut self,
        session: &Arc<Session>,
        message: &Incoming,
    ) -> Result<Effects<Self>, Error> {
        let unexpected = |state| Err(message.unexpected(state));
        if session.encryption.is_none() || session.leader == self.position {
            return unexpected("there is none to check");
        }
        match message.kind {
            Kind::PublicKey if self.keys.public.is_none() => {
                let ServerPublicKey { public } = message.read(&())?;
                self.keys.public = Some(public.to_vec());
            }
            Kind::PublicKeyDigest if self.keys.digest.is_none() => self.keys.take_digest(message)?,
            _ => return unexpected("its public key is known"),
        }
        self.adopt_if_sound(session)
    }

    /// Takes the secrets over once the servers' public key is known to be theirs, and both servers' to be the same.
    fn adopt_if_sound(&mut self, session: &Arc<Session>) -> Result<Effects<Self>, Error> {
        if self.label_secret.is_some() || !self.keys.missing(session).is_empty() {
            return Ok(Effects::default());
        }
        let Some((key, labels)) = self.keys.secrets.clone() else { return Ok(Effects::default()) };
        let leader = PartyId::Client(session.leader);
        if let (Some(encryption), Some(content)) = (&session.encryption, self.keys.public.take()) {
            let bad = |why| Error::BadKey { leader, why };
            if self.keys.digest.is_some_and(|digest| blake3::hash(&content) != digest) {
                return Err(bad(KeyDefect::Different));
            }
            let public = PublicKey::from_bytes(&encryption.parameters, &content).map_err(|why| {
                Error::Malformed { from: PartyId::Principal, kind: Kind::PublicKey, why: why.into() }
            })?;
            let secret = SecretKey::from_seed(&encryption.parameters, key.clone());
            secret.check_public_key(&public).map_err(|_| bad(KeyDefect::Another))?;
        }
        self.adopt(session, key, labels)
    }
}

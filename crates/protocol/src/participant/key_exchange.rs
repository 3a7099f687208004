//! Keys before anything is shared: the leader's envelope, and what servers say of the public key they hold. Whoever has the secret key
//! can tell an honest public key from any other; under another one servers would hide nothing.

use secsv_algebra::{Prg, Secret, Seed};

use super::{Identity, KeyHolder};
use crate::{
    Error, PartyId,
    early::Early,
    error::{CodecError, KeyDefect},
    message::{Kind, PublicKeyDigest, SealedClientKeys, ServerPublicKey},
    role::{Digest, Incoming, Outgoing, waits_for},
    sealed::EnvelopeKeys,
    session::Session,
};

/// What servers tell clients of the leader's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// Nothing: there is none.
    None,
    /// The principal tells the key.
    Principal,
    /// The principal tells the key, the auxiliary its digest.
    BothServers,
}

/// The clients' common secrets.
#[derive(Clone)]
pub(crate) struct ClientSecrets {
    /// The seed of their key.
    pub key: Seed,
    /// The secret that labels are hidden with.
    pub labels: Seed,
}

/// A client that waits for keys.
pub(crate) struct KeyExchange<E: KeyHolder> {
    pub identity: Identity,
    envelopes: EnvelopeKeys,
    pub session: E::Session,
    secrets: Option<ClientSecrets>,
    /// The principal's public key.
    public: Option<Vec<u8>>,
    /// The digest of the auxiliary's.
    digest: Option<Digest>,
    early: Early,
}

/// The leader makes the clients' key and their common secret (Algorithm 3, step 2): what others are sent of them.
pub(crate) fn lead<E: KeyHolder>(
    identity: &Identity,
    envelopes: &EnvelopeKeys,
    session: &E::Session,
) -> Result<(ClientSecrets, Vec<Outgoing>), Error> {
    // Under this agreement: another round, or other weights, are other secrets.
    let own = &identity.seed.covering(&session.federation.digest());
    let (key, labels) = (own.derive("clients' key", 0), own.derive("clients' label secret", 0));
    let secrets = Secret::new([*key.expose(), *labels.expose()].concat());
    let info = envelope_info(session);
    let mut outbox = Vec::new();
    for client in (0..session.federation.clients).filter(|&client| client != identity.position) {
        let (from, to) = (identity.party(), PartyId::Client(client));
        let receiver = &session.hellos[client].public_key;
        let covered = Secret::new([secrets.expose(), &receiver[..], &info].concat());
        let seed = own.derive("envelope", client as u64).covering(covered.expose());
        let mut rng = Prg::new(&seed);
        let sealed = envelopes.seal(from, to, receiver, &info, secrets.expose(), &mut rng)?;
        let envelope = sealed[..].try_into().map_err(|_| Error::Envelope { from, to })?;
        outbox.push(Outgoing::of(PartyId::Principal, &SealedClientKeys { client, envelope }));
    }
    outbox.extend(E::leader_keys(session, &key, own));
    Ok((ClientSecrets { key, labels }, outbox))
}

impl<E: KeyHolder> KeyExchange<E> {
    pub(crate) fn new(
        identity: Identity,
        envelopes: EnvelopeKeys,
        session: E::Session,
        digest: Option<Digest>,
    ) -> Self {
        Self { identity, envelopes, session, secrets: None, public: None, digest, early: Early::default() }
    }

    /// Takes a message; the secrets, once the servers' public key is known to be theirs.
    pub(crate) fn take(&mut self, message: Incoming) -> Result<Option<ClientSecrets>, Error> {
        match (message.kind, message.from) {
            (Kind::SealedClientKeys, PartyId::Principal) if self.secrets.is_none() => {
                self.secrets = Some(self.open_envelope(&message)?);
            }
            (Kind::PublicKey, PartyId::Principal) if E::KEY_CHECK != KeyCheck::None => {
                if self.public.is_some() {
                    return Err(message.unexpected("its public key is known"));
                }
                let ServerPublicKey { public } = message.read(&())?;
                E::check_key_bytes(&self.session, public).map_err(|why| message.malformed(why))?;
                self.public = Some(public.to_vec());
            }
            (Kind::PublicKeyDigest, PartyId::Auxiliary) if E::KEY_CHECK == KeyCheck::BothServers => {
                if self.digest.is_some() {
                    return Err(message.unexpected("its public key is known"));
                }
                let PublicKeyDigest { digest } = message.read(&())?;
                self.digest = Some(digest);
            }
            (Kind::Session | Kind::SealedClientKeys | Kind::PublicKey | Kind::PublicKeyDigest, _) => {
                return Err(message.unexpected("keys are exchanged once"));
            }
            _ => {
                self.early.keep(message, "the clients' key has not come")?;
                return Ok(None);
            }
        }
        self.sound_secrets()
    }

    /// Messages that came before the keys.
    pub(crate) fn take_early(&mut self) -> Vec<Incoming> {
        self.early.take(|_| true)
    }

    /// The clients' secrets, from the leader.
    fn open_envelope(&self, message: &Incoming) -> Result<ClientSecrets, Error> {
        let malformed = |why| message.malformed(why);
        let SealedClientKeys { client, envelope } = message.read(&())?;
        if client != self.identity.position {
            return Err(malformed(CodecError::Value { what: "addressee" }));
        }
        let leader = PartyId::Client(self.session.leader);
        let sender = &self.session.hellos[self.session.leader].public_key;
        let info = envelope_info(&self.session);
        let opened = self.envelopes.open(leader, self.identity.party(), sender, &info, envelope)?;
        let Some((key, labels)) = opened.expose().split_first_chunk::<32>() else {
            return Err(malformed(CodecError::Truncated));
        };
        let labels: [u8; 32] = labels.try_into().map_err(|_| malformed(CodecError::Truncated))?;
        Ok(ClientSecrets { key: Seed::from_bytes(*key), labels: Seed::from_bytes(labels) })
    }

    /// The secrets, once the servers' public key is known to be theirs, and both servers' to be the same.
    fn sound_secrets(&self) -> Result<Option<ClientSecrets>, Error> {
        let (true, Some(secrets)) = (self.missing().is_empty(), &self.secrets) else { return Ok(None) };
        let leader = PartyId::Client(self.session.leader);
        if let Some(public) = &self.public {
            let is_another = |digest: Digest| blake3::hash(public) != digest;
            if E::KEY_CHECK == KeyCheck::BothServers && self.digest.is_some_and(is_another) {
                return Err(Error::BadKey { leader, why: KeyDefect::Different });
            }
            E::check_public_key(&self.session, secrets, public)?;
        }
        Ok(Some(secrets.clone()))
    }

    /// What has not come, in words.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        missing.extend(self.secrets.is_none().then(|| "the leader's envelope".to_owned()));
        let from = |kind: Kind, server: PartyId| format!("{kind} from {server}");
        if E::KEY_CHECK != KeyCheck::None && self.public.is_none() {
            missing.push(from(Kind::PublicKey, PartyId::Principal));
        }
        if E::KEY_CHECK == KeyCheck::BothServers && self.digest.is_none() {
            missing.push(from(Kind::PublicKeyDigest, PartyId::Auxiliary));
        }
        missing
    }

    pub(crate) fn awaiting(&self) -> String {
        waits_for(self.identity.party(), &self.missing())
    }
}

/// What an envelope is bound to.
fn envelope_info(session: &Session) -> Vec<u8> {
    [&session.federation.digest()[..], &(session.leader as u16).to_le_bytes()].concat()
}

//! A client (silo): encrypts its models, shares its samples, decrypts what it is assigned to, activates and shares
//! again. One of them, the leader, makes the secrets all clients have in common.

mod hesv;
mod input;
mod keys;
mod known_models;
mod received;
mod secret;
mod setup;
mod testing;
mod view;

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::Weights;
use secsv_he::SecretKey;

use crate::{
    Error, PartyId, Scope,
    early::Early,
    error::CodecError,
    message::{ClientHello, Kind, Message as _, PublishedResult, RoundStart, TestPlan, UnitId},
    model::ranges,
    role::{Digest, Effects, Incoming, Outgoing, Phase, Role},
    sealed::EnvelopeKeys,
    server::{check_plan, waits_for},
    session::{Federation, Session},
};
pub use input::{ClientInput, model_digest, test_set_digest};
use keys::Keys;
pub use known_models::own_right;
use testing::DecryptorUnit;

/// A client.
pub struct Client {
    federation: Arc<Federation>,
    position: usize,
    input: Arc<ClientInput>,
    seed: Seed,
    envelopes: EnvelopeKeys,
    session: Option<Arc<Session>>,
    key: Option<Arc<SecretKey>>,
    label_secret: Option<Seed>,
    keys: Keys,
    units: BTreeMap<UnitId, DecryptorUnit>,
    early: Early,
    /// Parts of units that were not announced yet.
    early_parts: Early,
    /// Of the samples: what is dealt for them depends on it.
    samples: Digest,
    values: Option<Vec<u8>>,
    hesv: hesv::HesvClient,
}

impl Client {
    /// A client whose randomness follows from a seed, its envelope keys too.
    pub fn new(federation: Arc<Federation>, position: usize, input: ClientInput, seed: Seed) -> Self {
        let envelopes = EnvelopeKeys::derive(&seed.derive("envelopes", 0));
        Self::with_envelope_keys(federation, position, input, seed, envelopes)
    }

    /// A client whose envelope keys the others know already (see [`Federation::with_identities`]).
    pub fn with_envelope_keys(
        federation: Arc<Federation>,
        position: usize,
        input: ClientInput,
        seed: Seed,
        envelopes: EnvelopeKeys,
    ) -> Self {
        Self {
            federation,
            position,
            samples: test_set_digest(&input.test_set),
            input: Arc::new(input),
            seed,
            envelopes,
            session: None,
            key: None,
            label_secret: None,
            keys: Keys::default(),
            units: BTreeMap::new(),
            early: Early::default(),
            early_parts: Early::default(),
            values: None,
            hesv: hesv::HesvClient::default(),
        }
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// What it brought.
    pub fn input(&self) -> &ClientInput {
        &self.input
    }

    /// Publishes what the others need to know (PROTOCOL.md 1).
    pub fn start(&mut self) -> Effects<Self> {
        let mut effects = Effects::default();
        let (federation, input, public_key) =
            (self.federation.clone(), self.input.clone(), self.envelopes.public());
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let own: Vec<&Weights> = input.local.values().collect();
            let known: Vec<&Weights> = input.global.values().chain([&input.initial]).collect();
            let ranges = ranges(&federation.program, &own, &known, &input.test_set);
            let hello = ClientHello { samples: input.test_set.len() as u64, ranges, public_key };
            Ok(move |role: &mut Self| Ok(role.send(PartyId::Principal, ClientHello::KIND, hello.encode())))
        });
        effects
    }

    fn send(&self, to: PartyId, kind: Kind, content: impl Into<Arc<Vec<u8>>>) -> Effects<Self> {
        let mut effects = Effects::default();
        effects.outbox.push(Outgoing::new(to, kind, content));
        effects
    }

    fn id(&self) -> PartyId {
        PartyId::Client(self.position)
    }

    /// The session.
    fn begin(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let session = Arc::new(Session::accept(&self.federation, &message.content).map_err(malformed)??);
        let own = session.hellos.get(self.position).map(|hello| hello.samples);
        if own != Some(self.input.test_set.len() as u64) {
            return Err(malformed(CodecError::Value { what: "samples" }));
        }
        self.session = Some(session.clone());
        if session.leader == self.position { self.lead(&session) } else { Ok(Effects::default()) }
    }

    fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let Incoming { from, kind, ref content, .. } = message;
        let malformed = |why: CodecError| Error::Malformed { from, kind, why };
        let unexpected = |state| Error::Unexpected { from, kind, state };
        match (kind, from) {
            (Kind::Session, PartyId::Principal) if self.session.is_none() => {
                return self.begin(&message);
            }
            _ if self.session.is_none() => return Err(unexpected("the session has not begun")),
            _ => {}
        }
        let session = self.session.clone().ok_or(Error::Local { what: "the session" })?;
        if !kind.is_of(session.federation.settings.protocol) {
            return Err(unexpected("another protocol"));
        }
        match (kind, from) {
            (Kind::SealedClientKeys, PartyId::Principal) if !self.keys.has_secrets() => {
                self.open_envelope(&session, &message)
            }
            (Kind::PublicKey, PartyId::Principal) | (Kind::PublicKeyDigest, PartyId::Auxiliary) => {
                self.take_public_key(&session, &message)
            }
            (Kind::RoundStart, PartyId::Principal) => {
                let RoundStart { round } = message.read(&())?;
                if session.encryption.is_none() {
                    return self.secret_round(&session, round).map_err(malformed);
                }
                let rounds = session.rounds_of(round);
                if rounds.is_empty() || rounds.iter().any(|round| !self.input.local.contains_key(round)) {
                    return Err(malformed(CodecError::Value { what: "round" }));
                }
                self.upload_models(&session, round)
            }
            (Kind::Test, PartyId::Principal) => {
                let plan: TestPlan = message.read(&())?;
                check_plan(&session, &plan).map_err(malformed)?;
                self.join_test(&session, &plan)
            }
            (Kind::Values, PartyId::Principal) if self.values.is_none() => {
                let PublishedResult { values } = message.read(&())?;
                self.values = Some(values.to_vec());
                Ok(Effects::default())
            }
            (Kind::OwnTest, PartyId::Principal) => self.own_test(content).map_err(malformed),
            (Kind::Reply, PartyId::Principal)
            | (Kind::OutputShare, PartyId::Principal | PartyId::Auxiliary) => self.part(&session, message),
            (Kind::BlindedDifferences, PartyId::Principal) => {
                self.count_right(&session, message.content).map_err(malformed)
            }
            _ => Err(unexpected("testing")),
        }
    }
}

impl Role for Client {
    /// Others may have taken over from this client, so that it never does its part.
    fn end(&mut self, scope: Scope) {
        let Scope::Test(test) = scope else { return };
        let first = UnitId { test, group: 0, part: 0 };
        let units = first..=UnitId { test, group: usize::MAX, part: usize::MAX };
        self.units.extract_if(units.clone(), |_, _| true).for_each(drop);
        self.hesv.forget(units);
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let is_digest = (message.kind, message.from) == (Kind::PublicKeyDigest, PartyId::Auxiliary);
        if self.session.is_none() && is_digest {
            return self.keys.take_digest(&message).map(|()| Effects::default());
        }
        let needs_key = match message.kind {
            Kind::Session | Kind::SealedClientKeys | Kind::PublicKey | Kind::PublicKeyDigest => false,
            Kind::OwnTest => self.session.as_ref().is_some_and(|session| session.encryption.is_some()),
            _ => true,
        };
        if needs_key && self.label_secret.is_none() && self.session.is_some() {
            // The leader's envelope is still on its way, or what the servers say of its public key.
            self.early.keep(message, "the clients' key has not come")?;
            return Ok(Effects::default());
        }
        self.on_message(message)
    }

    fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    fn awaiting(&self) -> String {
        let own = self.id();
        match (&self.session, &self.label_secret) {
            (None, _) => format!("{own}: the session from principal"),
            (Some(session), None) => waits_for(own, &self.keys.missing(session)),
            (Some(session), Some(_)) => {
                let all: Vec<String> =
                    self.units.iter().flat_map(|(id, state)| state.missing(session, *id, own)).collect();
                waits_for(own, &all)
            }
        }
    }
}

//! A client (silo): encrypts or shares its models and samples, decrypts what it is assigned to, activates and shares again. One of
//! them, the leader, makes the secrets all clients have in common.

use std::{any::Any, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::Weights;

use crate::{
    Agreement, Error, PartyId, Scope,
    blindsv::client::{BlindKeys, BlindTesting},
    error::CodecError,
    hesv::client::HesvClient,
    message::{ClientHello, Kind, PublicKeyDigest, PublishedResult},
    model::{check_limits, ranges},
    participant::{ClientEngine, ClientInput, Identity, KeyExchange, Testing, lead, test_set_digest},
    role::{Digest, Effects, Incoming, Outgoing, Phase, Role},
    sealed::EnvelopeKeys,
    secretsv::client::SecretSvClient,
    secsv::client::SecSvClient,
    session::{Agreed, BlindSession, Federation, Session},
    test_id::TestId,
    views::{SeenMessage, View},
};

/// A client.
pub struct Client {
    identity: Identity,
    envelopes: EnvelopeKeys,
    stage: ClientStage,
    values: Option<Vec<u8>>,
}

/// A client, by what it waits for.
enum ClientStage {
    /// The session. The auxiliary may tell the digest of its public key before the principal tells the session.
    Proposal { digest: Option<Digest> },
    /// Keys, or tests.
    Session(Box<dyn AnyParticipant>),
}

/// A participant in a session, whatever its engine.
trait AnyParticipant: Any + Send {
    fn session(&self) -> &Session;
    fn shared(&self) -> &Arc<Session>;
    fn handle(&mut self, message: Incoming) -> Result<Effects<Client>, Error>;
    fn end_test(&mut self, test: TestId);
    fn awaiting(&self) -> String;
    fn view(&self, received: &[SeenMessage]) -> Result<View, Error>;
    /// Whether nobody needs it until the values come.
    fn has_dealt_all(&self) -> bool {
        false
    }
}

/// A client in a session, by what it waits for.
enum Participant<E: ClientEngine> {
    Keys(Box<KeyExchange<E>>),
    Tests(Box<Testing<E>>),
}

/// A client in a session of BlindSV, by what it waits for.
enum BlindParticipant {
    Keys(Box<KeyExchange<BlindKeys>>),
    Tests(Box<BlindTesting>),
}

/// Effects of tests of BlindSV as effects of their client.
fn lift_blind(effects: Effects<BlindTesting>) -> Effects<Client> {
    effects.lift(|client: &mut Client| {
        let ClientStage::Session(running) = &mut client.stage else { return None };
        match (&mut **running as &mut dyn Any).downcast_mut::<BlindParticipant>()? {
            BlindParticipant::Keys(_) => None,
            BlindParticipant::Tests(testing) => Some(&mut **testing),
        }
    })
}

impl BlindParticipant {
    /// Begins with a session that was just agreed on.
    fn begin(
        identity: Identity,
        envelopes: &EnvelopeKeys,
        session: BlindSession,
    ) -> Result<(Self, Effects<Client>), Error> {
        if session.leader != identity.position {
            let exchange = KeyExchange::new(identity, envelopes.clone(), session, None);
            return Ok((Self::Keys(Box::new(exchange)), Effects::default()));
        }
        let (secrets, outbox) = lead::<BlindKeys>(&identity, envelopes, &session)?;
        let mut effects = Effects { outbox, jobs: Vec::new() };
        let (testing, begun) = BlindTesting::begin(identity, session, &secrets)?;
        effects.and(lift_blind(begun));
        Ok((Self::Tests(Box::new(testing)), effects))
    }

    fn on_message(&mut self, message: Incoming) -> Result<Effects<Client>, Error> {
        let exchange = match self {
            Self::Tests(testing) => return testing.on_message(&message).map(lift_blind),
            Self::Keys(exchange) => exchange,
        };
        let Some(secrets) = exchange.take(message)? else { return Ok(Effects::default()) };
        let early = exchange.take_early();
        let (identity, session) = (exchange.identity.clone(), exchange.session.clone());
        let (mut testing, mut effects) = BlindTesting::begin(identity, session, &secrets)?;
        for message in early {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(testing.on_message(&message).or_else(Error::unless_of_peer)?);
        }
        *self = Self::Tests(Box::new(testing));
        Ok(lift_blind(effects))
    }
}

impl AnyParticipant for BlindParticipant {
    fn session(&self) -> &Session {
        self.shared()
    }

    fn shared(&self) -> &Arc<Session> {
        match self {
            Self::Keys(exchange) => exchange.session.shared(),
            Self::Tests(testing) => testing.session(),
        }
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Client>, Error> {
        if !message.kind.is_of(self.shared().federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        self.on_message(message)
    }

    fn end_test(&mut self, _: TestId) {}

    fn awaiting(&self) -> String {
        match self {
            Self::Keys(exchange) => exchange.awaiting(),
            Self::Tests(testing) => testing.awaiting(),
        }
    }

    fn has_dealt_all(&self) -> bool {
        matches!(self, Self::Tests(testing) if testing.has_dealt_all())
    }

    /// What came, and nothing that could be read of it.
    fn view(&self, received: &[SeenMessage]) -> Result<View, Error> {
        let party = match self {
            Self::Keys(exchange) => exchange.identity.party(),
            Self::Tests(testing) => testing.identity().party(),
        };
        let mut view = View::new(party, received, Vec::new(), Vec::new());
        view.secrets.extend(["both servers' masks of models", "both servers' masks of its own numbers"]);
        Ok(view)
    }
}

/// Effects of tests as effects of their client.
fn lift<E: ClientEngine>(effects: Effects<Testing<E>>) -> Effects<Client> {
    effects.lift(|client: &mut Client| {
        let ClientStage::Session(running) = &mut client.stage else { return None };
        match (&mut **running as &mut dyn Any).downcast_mut::<Participant<E>>()? {
            Participant::Keys(_) => None,
            Participant::Tests(testing) => Some(&mut **testing),
        }
    })
}

impl<E: ClientEngine> Participant<E> {
    /// Begins with a session that was just agreed on.
    fn begin(
        identity: Identity,
        envelopes: &EnvelopeKeys,
        session: E::Session,
        digest: Option<Digest>,
    ) -> Result<(Self, Effects<Client>), Error> {
        if session.leader != identity.position {
            let exchange = KeyExchange::new(identity, envelopes.clone(), session, digest);
            return Ok((Self::Keys(Box::new(exchange)), Effects::default()));
        }
        let (secrets, outbox) = lead::<E>(&identity, envelopes, &session)?;
        let testing = Testing::new(identity, E::new(session, &secrets));
        let mut effects = Effects { outbox, jobs: Vec::new() };
        effects.and(lift(E::share_data(&testing)));
        Ok((Self::Tests(Box::new(testing)), effects))
    }

    fn on_message(&mut self, message: Incoming) -> Result<Effects<Client>, Error> {
        let exchange = match self {
            Self::Tests(testing) => return testing.on_message(message).map(lift),
            Self::Keys(exchange) => exchange,
        };
        let Some(secrets) = exchange.take(message)? else { return Ok(Effects::default()) };
        let early = exchange.take_early();
        let engine = E::new(exchange.session.clone(), &secrets);
        let mut testing = Testing::new(exchange.identity.clone(), engine);
        let mut effects = E::share_data(&testing);
        for message in early {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(testing.on_message(message).or_else(Error::unless_of_peer)?);
        }
        *self = Self::Tests(Box::new(testing));
        Ok(lift(effects))
    }
}

impl<E: ClientEngine> AnyParticipant for Participant<E> {
    fn session(&self) -> &Session {
        match self {
            Self::Keys(exchange) => &exchange.session,
            Self::Tests(testing) => testing.session(),
        }
    }

    fn shared(&self) -> &Arc<Session> {
        match self {
            Self::Keys(exchange) => E::shared(&exchange.session),
            Self::Tests(testing) => E::shared(testing.engine.session()),
        }
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Client>, Error> {
        if !message.kind.is_of(self.session().federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        self.on_message(message)
    }

    fn end_test(&mut self, test: TestId) {
        if let Self::Tests(testing) = self {
            testing.forget_test(test);
        }
    }

    fn awaiting(&self) -> String {
        match self {
            Self::Keys(exchange) => exchange.awaiting(),
            Self::Tests(testing) => testing.awaiting(),
        }
    }

    fn view(&self, received: &[SeenMessage]) -> Result<View, Error> {
        match self {
            Self::Keys(exchange) => {
                Ok(View::new(exchange.identity.party(), received, Vec::new(), Vec::new()))
            }
            Self::Tests(testing) => testing.view(received),
        }
    }
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
        let samples = test_set_digest(&input.test_set);
        let identity = Identity { federation, position, input: Arc::new(input), seed, samples };
        Self { identity, envelopes, stage: ClientStage::Proposal { digest: None }, values: None }
    }

    /// Whether it has dealt for every coalition of every round: nobody needs it until the values come.
    pub fn has_dealt_all(&self) -> bool {
        matches!(&self.stage, ClientStage::Session(running) if running.has_dealt_all())
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// What it brought.
    pub fn input(&self) -> &ClientInput {
        &self.identity.input
    }

    /// What it saw, from the messages it received.
    pub fn view(&self, received: &[SeenMessage]) -> Result<View, Error> {
        match &self.stage {
            ClientStage::Proposal { .. } => {
                Ok(View::new(self.identity.party(), received, Vec::new(), Vec::new()))
            }
            ClientStage::Session(running) => running.view(received),
        }
    }

    /// Publishes what the others need to know (PROTOCOL.md 1).
    pub fn start(&mut self) -> Effects<Self> {
        let mut effects = Effects::default();
        let (federation, input) = (self.identity.federation.clone(), self.identity.input.clone());
        let public_key = self.envelopes.public();
        effects.job(move |meter| {
            meter.enter(Phase::Clear);
            let own: Vec<&Weights> = input.local.values().collect();
            let known = input.global.values().chain([&input.initial]);
            let known: Vec<&Weights> = known.filter(|weights| !weights.is_empty()).collect();
            let mut ranges = ranges(&federation, &own, &known, &input.test_set);
            if let Some(limits) = federation.limits() {
                check_limits(&ranges, limits)?;
                ranges = limits.clone();
            }
            let all: Vec<&Weights> = own.iter().chain(&known).copied().collect();
            let hello = ClientHello {
                samples: input.test_set.len() as u64,
                ranges,
                public_key,
                accepts_few: input.accepts_few,
                agreement: Agreement::measure(&federation, &all, &input.test_set)?,
            };
            let message = Outgoing::of(PartyId::Principal, &hello);
            Ok(move |_: &mut Self| Ok(Effects::send(message)))
        });
        effects
    }

    /// Takes the session: this is where the engine of its protocol is chosen.
    fn begin(&mut self, message: &Incoming, digest: Option<Digest>) -> Result<Effects<Self>, Error> {
        let malformed = |why| message.malformed(why);
        let session = Session::accept(&self.identity.federation, &message.content).map_err(malformed)??;
        let own = session.hellos.get(self.identity.position).map(|hello| hello.samples);
        if own != Some(self.identity.input.test_set.len() as u64) {
            return Err(malformed(CodecError::Value { what: "samples" }));
        }
        let identity = self.identity.clone();
        let (running, effects): (Box<dyn AnyParticipant>, _) = match Arc::new(session).agreed() {
            Agreed::SecSv(session) => {
                let begun = Participant::<SecSvClient>::begin(identity, &self.envelopes, session, digest)?;
                (Box::new(begun.0), begun.1)
            }
            Agreed::SecretSv(session) => {
                let begun = Participant::<SecretSvClient>::begin(identity, &self.envelopes, session, digest)?;
                (Box::new(begun.0), begun.1)
            }
            Agreed::BlindSv(session) => {
                let begun = BlindParticipant::begin(identity, &self.envelopes, session)?;
                (Box::new(begun.0), begun.1)
            }
            Agreed::Hesv(session) => {
                let begun = Participant::<HesvClient>::begin(identity, &self.envelopes, session, digest)?;
                (Box::new(begun.0), begun.1)
            }
        };
        self.stage = ClientStage::Session(running);
        Ok(effects)
    }
}

impl Role for Client {
    /// Others may have taken over from this client, so that it never does its part.
    fn end(&mut self, scope: Scope) {
        if let (Scope::Test(test), ClientStage::Session(running)) = (scope, &mut self.stage) {
            running.end_test(test);
        }
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        match (&mut self.stage, message.kind, message.from) {
            (ClientStage::Proposal { digest }, Kind::Session, PartyId::Principal) => {
                let digest = *digest;
                self.begin(&message, digest)
            }
            (ClientStage::Proposal { digest }, Kind::PublicKeyDigest, PartyId::Auxiliary)
                if digest.is_none() =>
            {
                let PublicKeyDigest { digest: told } = message.read(&())?;
                *digest = Some(told);
                Ok(Effects::default())
            }
            (ClientStage::Proposal { .. }, ..) => Err(message.unexpected("the session has not begun")),
            (ClientStage::Session(_), Kind::Values, PartyId::Principal) if self.values.is_none() => {
                let PublishedResult { values } = message.read(&())?;
                self.values = Some(values.to_vec());
                Ok(Effects::default())
            }
            (ClientStage::Session(running), ..) => running.handle(message),
        }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match &self.stage {
            ClientStage::Proposal { .. } => None,
            ClientStage::Session(running) => Some(running.shared()),
        }
    }

    fn awaiting(&self) -> String {
        match &self.stage {
            ClientStage::Proposal { .. } => format!("{}: the session from principal", self.identity.party()),
            ClientStage::Session(running) => running.awaiting(),
        }
    }
}

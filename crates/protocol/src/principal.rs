//! The first server (the paper's P): plans every test, drives the engine of the protocol, and learns which predictions are right, or
//! how many. It sees shares and ciphertexts, no data, no models, no labels.

mod introductions;

use std::{any::Any, sync::Arc};

use introductions::Introductions;
use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};
use secsv_he::UnitCosts;

use crate::{
    Error, PartyId,
    blindsv::{principal::BlindPrincipal, view::server_view as blind_view},
    decryptors::Planner,
    hesv::HesvPrincipal,
    message::{Kind, Message as _, PublishedResult, Server},
    role::{Effects, Incoming, Outgoing, Role},
    scheduler::{Assignment, Engine, Scheduler, TestRequest, TestResult},
    scope::Scope,
    secretsv::SecretSvPrincipal,
    secsv::SecSvPrincipal,
    session::{Agreed, Federation, Session},
    test_id::RequestId,
    views::{SeenMessage, View, server_view},
};

/// The principal server.
pub struct Principal {
    federation: Arc<Federation>,
    stage: PrincipalStage,
    has_published: bool,
}

/// A principal, by what it waits for.
enum PrincipalStage {
    /// What every client publishes.
    Introductions(Box<Introductions>),
    /// Tests.
    Session(Box<dyn AnyScheduler>),
}

/// A scheduler, whatever its engine.
trait AnyScheduler: Any + Send {
    fn session(&self) -> &Arc<Session>;
    fn planner(&self) -> Option<&Planner>;
    fn handle(&mut self, message: Incoming) -> Result<Effects<Principal>, Error>;
    fn request_as(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Principal>, Error>;
    fn next_request(&self) -> RequestId;
    fn take_results(&mut self) -> Vec<(RequestId, Vec<TestResult>)>;
    fn end_round(&mut self, round: RoundId) -> Result<Effects<Principal>, Error>;
    fn is_open(&self, scope: Scope) -> bool;
    /// Bytes of one sender's messages of a kind that may wait, if such a message is about something that has not begun.
    fn ahead(&self, _: Kind, _: Scope) -> Option<u64> {
        None
    }
    fn set_away(&mut self, away: Coalition) -> Result<Effects<Principal>, Error>;
    fn awaited(&self) -> Coalition;
    fn take_assigned(&mut self) -> Vec<Assignment>;
    fn drain_finished(&mut self) -> Vec<Scope>;
    fn awaiting(&self) -> String;

    /// The session was told: tests that need nobody's keys begin.
    fn begin(&mut self) -> Result<Effects<Principal>, Error> {
        Ok(Effects::default())
    }
}

/// Effects of a scheduler as effects of its principal.
fn lift<S: 'static>(effects: Result<Effects<S>, Error>) -> Result<Effects<Principal>, Error> {
    Ok(effects?.lift(|principal: &mut Principal| match &mut principal.stage {
        PrincipalStage::Session(running) => (&mut **running as &mut dyn Any).downcast_mut(),
        PrincipalStage::Introductions(_) => None,
    }))
}

impl<E: Engine> AnyScheduler for Scheduler<E> {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn planner(&self) -> Option<&Planner> {
        Some(&self.planner)
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Principal>, Error> {
        lift(self.on_message(message))
    }

    fn request_as(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Principal>, Error> {
        lift(self.enqueue(id, request))
    }

    fn next_request(&self) -> RequestId {
        self.next_request
    }

    fn take_results(&mut self) -> Vec<(RequestId, Vec<TestResult>)> {
        std::mem::take(&mut self.results)
    }

    fn end_round(&mut self, round: RoundId) -> Result<Effects<Principal>, Error> {
        lift(self.close_round(round))
    }

    fn is_open(&self, scope: Scope) -> bool {
        self.knows(scope)
    }

    fn set_away(&mut self, away: Coalition) -> Result<Effects<Principal>, Error> {
        lift(self.replace_all(away))
    }

    fn awaited(&self) -> Coalition {
        self.awaited
    }

    fn take_assigned(&mut self) -> Vec<Assignment> {
        std::mem::take(&mut self.assigned)
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    fn awaiting(&self) -> String {
        self.missing()
    }
}

impl AnyScheduler for BlindPrincipal {
    fn session(&self) -> &Arc<Session> {
        self.session().shared()
    }

    fn planner(&self) -> Option<&Planner> {
        None
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Principal>, Error> {
        lift(self.on_message(message))
    }

    fn request_as(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Principal>, Error> {
        lift(self.enqueue(id, request))
    }

    fn next_request(&self) -> RequestId {
        self.next_request()
    }

    fn take_results(&mut self) -> Vec<(RequestId, Vec<TestResult>)> {
        self.take_results()
    }

    fn end_round(&mut self, round: RoundId) -> Result<Effects<Principal>, Error> {
        lift(self.close_round(round))
    }

    fn is_open(&self, scope: Scope) -> bool {
        self.is_open(scope)
    }

    fn ahead(&self, kind: Kind, scope: Scope) -> Option<u64> {
        self.ahead(kind, scope)
    }

    fn set_away(&mut self, away: Coalition) -> Result<Effects<Principal>, Error> {
        self.set_away(away);
        Ok(Effects::default())
    }

    fn awaited(&self) -> Coalition {
        self.awaited()
    }

    fn take_assigned(&mut self) -> Vec<Assignment> {
        Vec::new()
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        self.drain_finished()
    }

    fn awaiting(&self) -> String {
        self.awaiting()
    }

    fn begin(&mut self) -> Result<Effects<Principal>, Error> {
        lift(self.pump())
    }
}

impl Principal {
    /// A principal whose randomness follows from a seed. `costs` are this machine's, to choose packings by; needed
    /// wherever something is encrypted.
    pub fn new(federation: Arc<Federation>, costs: Option<UnitCosts>, seed: Seed) -> Self {
        let stage =
            PrincipalStage::Introductions(Box::new(Introductions::new(federation.clone(), costs, seed)));
        Self { federation, stage, has_published: false }
    }

    /// Has owners deal for tests before these start, where they deal at all. The auxiliary's host must keep what comes early.
    pub fn deal_ahead(&mut self) {
        if let PrincipalStage::Introductions(introductions) = &mut self.stage {
            introductions.deals_ahead = true;
        }
    }

    /// What it saw, from the messages it received and sent.
    pub fn view(&self, received: &[SeenMessage], sent: &[SeenMessage]) -> Result<View, Error> {
        if let Some(Agreed::BlindSv(session)) = self.session().map(Session::agreed) {
            return blind_view(&session, Server::Principal, received, sent);
        }
        let protocol = self.federation.settings.protocol;
        server_view(self.session().map(|session| &**session), protocol, PartyId::Principal, received, sent)
    }

    fn running(&self) -> Option<&dyn AnyScheduler> {
        match &self.stage {
            PrincipalStage::Introductions(_) => None,
            PrincipalStage::Session(running) => Some(&**running),
        }
    }

    /// The agreement, once everybody has published.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.running().map(AnyScheduler::session)
    }

    /// Who decrypts what, and what that leaves to be known; none where nobody does.
    pub fn planner(&self) -> Option<&Planner> {
        self.running().and_then(AnyScheduler::planner)
    }

    /// Asks for a test; returns its number.
    pub fn request(&mut self, request: TestRequest) -> Result<(RequestId, Effects<Self>), Error> {
        let id = match &self.stage {
            PrincipalStage::Introductions(introductions) => introductions.next_request(),
            PrincipalStage::Session(running) => running.next_request(),
        };
        Ok((id, self.request_as(id, request)?))
    }

    /// Asks for a test under a number that an earlier process gave it, or the next one.
    pub fn request_as(&mut self, id: RequestId, request: TestRequest) -> Result<Effects<Self>, Error> {
        match &mut self.stage {
            PrincipalStage::Introductions(introductions) => {
                introductions.enqueue(id, request)?;
                Ok(Effects::default())
            }
            PrincipalStage::Session(running) => running.request_as(id, request),
        }
    }

    /// Tests that ended, with what they found for each coalition.
    pub fn take_results(&mut self) -> Vec<(RequestId, Vec<TestResult>)> {
        match &mut self.stage {
            PrincipalStage::Introductions(_) => Vec::new(),
            PrincipalStage::Session(running) => running.take_results(),
        }
    }

    /// Says that the models and outputs of a round that is open are not needed any more.
    pub fn close_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        if self.is_open(Scope::Round(round)) { self.end_round(round) } else { Ok(Effects::default()) }
    }

    /// The same whether it is open or not: an earlier process may have opened it and not said so.
    pub fn end_round(&mut self, round: RoundId) -> Result<Effects<Self>, Error> {
        match &mut self.stage {
            PrincipalStage::Introductions(introductions) => Ok(introductions.end_round(round)),
            PrincipalStage::Session(running) => running.end_round(round),
        }
    }

    /// Bytes of one sender's messages of a kind that may wait, if such a message is about something that has not begun.
    pub fn ahead(&self, kind: Kind, scope: Scope) -> Option<u64> {
        self.running().and_then(|running| running.ahead(kind, scope))
    }

    /// Whether messages about this can be understood by now.
    pub fn is_open(&self, scope: Scope) -> bool {
        self.running().map_or(scope == Scope::Session, |running| running.is_open(scope))
    }

    /// Says which clients stay away. What they were to do is given to others where the rules leave somebody.
    pub fn set_away(&mut self, away: Coalition) -> Result<Effects<Self>, Error> {
        match &mut self.stage {
            PrincipalStage::Introductions(introductions) => {
                introductions.set_away(away);
                Ok(Effects::default())
            }
            PrincipalStage::Session(running) => running.set_away(away),
        }
    }

    /// Clients without whom something cannot go on, although others were looked for.
    pub fn awaited(&self) -> Coalition {
        self.running().map_or(Coalition::EMPTY, AnyScheduler::awaited)
    }

    /// Takes up what an earlier process had assigned, and its count of tests, before anything else happens.
    pub fn remember(&mut self, assignments: Vec<Assignment>, next: RequestId) {
        if let PrincipalStage::Introductions(introductions) = &mut self.stage {
            introductions.remember(assignments, next);
        }
    }

    /// Assignments since this was last called: to be stored before anything that follows from them is sent.
    pub fn take_assigned(&mut self) -> Vec<Assignment> {
        match &mut self.stage {
            PrincipalStage::Introductions(_) => Vec::new(),
            PrincipalStage::Session(running) => running.take_assigned(),
        }
    }

    /// Tells everybody the values.
    pub fn publish(&mut self, values: Vec<u8>) -> Effects<Self> {
        let values = Arc::new(PublishedResult { values: &values }.encode());
        self.has_published = true;
        let everybody = (0..self.federation.clients).map(PartyId::Client).chain([PartyId::Auxiliary]);
        let outbox = everybody.map(|to| Outgoing::new(to, Kind::Values, values.clone())).collect();
        Effects { outbox, ..Effects::default() }
    }

    /// Whether everybody was told the values.
    pub fn has_published(&self) -> bool {
        self.has_published
    }

    /// Takes an introduction. The last one begins the session: this is where the engine of its protocol is chosen.
    fn introduce(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let PrincipalStage::Introductions(introductions) = &mut self.stage else {
            return Err(message.unexpected("testing"));
        };
        introductions.take(message)?;
        if !introductions.are_whole() {
            return Ok(Effects::default());
        }
        let (session, proposal) = introductions.propose()?;
        let running: Box<dyn AnyScheduler> = match session.agreed() {
            Agreed::SecSv(session) => Box::new(introductions.begin(SecSvPrincipal::new(session))?),
            Agreed::SecretSv(session) => Box::new(introductions.begin(SecretSvPrincipal::new(session))?),
            Agreed::Hesv(session) => Box::new(introductions.begin(HesvPrincipal::new(session))?),
            Agreed::BlindSv(session) => Box::new(introductions.begin_blind(session)),
        };
        self.stage = PrincipalStage::Session(running);
        let clients = (0..self.federation.clients).map(PartyId::Client);
        let proposal = Arc::new(proposal);
        let everybody = clients.chain(auxiliary(&self.federation));
        let outbox = everybody.map(|to| Outgoing::new(to, Kind::Session, proposal.clone())).collect();
        let mut effects = Effects { outbox, ..Effects::default() };
        if let PrincipalStage::Session(running) = &mut self.stage {
            effects.and(running.begin()?);
        }
        Ok(effects)
    }
}

/// The other server, where there is one.
fn auxiliary(federation: &Federation) -> Option<PartyId> {
    federation.settings.protocol.rules().has_auxiliary().then_some(PartyId::Auxiliary)
}

impl Role for Principal {
    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        match &mut self.stage {
            PrincipalStage::Introductions(_) => self.introduce(&message),
            PrincipalStage::Session(running) => running.handle(message),
        }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        self.session()
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        match &mut self.stage {
            PrincipalStage::Introductions(introductions) => introductions.drain_finished(),
            PrincipalStage::Session(running) => running.drain_finished(),
        }
    }

    fn awaiting(&self) -> String {
        match &self.stage {
            PrincipalStage::Introductions(introductions) => introductions.awaiting(),
            PrincipalStage::Session(running) => running.awaiting(),
        }
    }
}

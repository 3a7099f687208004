//! The second server (the paper's A): holds one share of everything, does its half of the work, and hands it to the principal. It
//! learns who is tested when and, once the principal opens its shares of labels, which predictions are right.

use std::{any::Any, sync::Arc};

use secsv_algebra::Seed;

use crate::{
    Error, PartyId,
    blindsv::{auxiliary::BlindAuxiliary, view::server_view as blind_view},
    early::Early,
    error::CodecError,
    follower::{AuxiliaryEngine, Follower},
    message::{CommonSeed, Kind, PublishedResult, Recount, Server},
    role::{Effects, Incoming, Outgoing, Role},
    scope::Scope,
    secretsv::SecretSvAuxiliary,
    secsv::SecSvAuxiliary,
    session::{Agreed, Federation, Session},
    test_id::TestId,
    views::{SeenMessage, View, server_view},
};

/// The auxiliary server.
pub struct Auxiliary {
    federation: Arc<Federation>,
    seed: Seed,
    stage: AuxiliaryStage,
    values: Option<Vec<u8>>,
    /// What an earlier process counted.
    remembered: Recount,
}

/// An auxiliary, by what it waits for.
enum AuxiliaryStage {
    /// The session. Messages that came before it are kept.
    Proposal(Early),
    /// Tests.
    Session(Box<dyn AnyFollower>),
}

/// A follower, whatever its engine.
trait AnyFollower: Any + Send {
    fn session(&self) -> &Arc<Session>;
    fn handle(&mut self, message: Incoming) -> Result<Effects<Auxiliary>, Error>;
    fn recount(&self) -> Recount;
    fn take_counted(&mut self) -> Vec<(TestId, Vec<u8>)>;
    fn drain_finished(&mut self) -> Vec<Scope>;
    fn awaiting(&self) -> String;
    /// Bytes of one sender's messages of a kind that may wait, if such a message is about something that has not begun.
    fn ahead(&self, _: PartyId, _: Kind, _: Scope) -> Option<u64> {
        None
    }
}

/// Effects of a follower as effects of its auxiliary.
fn lift<S: 'static>(effects: Effects<S>) -> Effects<Auxiliary> {
    effects.lift(|auxiliary: &mut Auxiliary| match &mut auxiliary.stage {
        AuxiliaryStage::Session(running) => (&mut **running as &mut dyn Any).downcast_mut(),
        AuxiliaryStage::Proposal(_) => None,
    })
}

impl AnyFollower for BlindAuxiliary {
    fn session(&self) -> &Arc<Session> {
        self.session().shared()
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Auxiliary>, Error> {
        self.on_message(message).map(lift)
    }

    /// It learns no count.
    fn recount(&self) -> Recount {
        Recount::default()
    }

    fn take_counted(&mut self) -> Vec<(TestId, Vec<u8>)> {
        Vec::new()
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        self.drain_finished()
    }

    fn awaiting(&self) -> String {
        self.awaiting()
    }

    fn ahead(&self, from: PartyId, kind: Kind, scope: Scope) -> Option<u64> {
        self.ahead(from, kind, scope)
    }
}

impl<E: AuxiliaryEngine> AnyFollower for Follower<E> {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn handle(&mut self, message: Incoming) -> Result<Effects<Auxiliary>, Error> {
        self.on_message(message).map(lift)
    }

    fn recount(&self) -> Recount {
        self.counts.all()
    }

    fn take_counted(&mut self) -> Vec<(TestId, Vec<u8>)> {
        std::mem::take(&mut self.counts.new)
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    fn awaiting(&self) -> String {
        self.missing()
    }
}

impl Auxiliary {
    /// An auxiliary whose randomness follows from a seed.
    pub fn new(federation: Arc<Federation>, seed: Seed) -> Self {
        let (stage, remembered) = (AuxiliaryStage::Proposal(Early::default()), Recount::default());
        Self { federation, seed, stage, values: None, remembered }
    }

    /// What it counted so far.
    pub fn recount(&self) -> Recount {
        let mut all = self.remembered.clone();
        if let AuxiliaryStage::Session(running) = &self.stage {
            all.merge(&running.recount());
        }
        all
    }

    /// What it counted in tests that have ended since this was last called, by test, to be stored.
    pub fn take_counted(&mut self) -> Vec<(TestId, Vec<u8>)> {
        match &mut self.stage {
            AuxiliaryStage::Proposal(_) => Vec::new(),
            AuxiliaryStage::Session(running) => running.take_counted(),
        }
    }

    /// Takes over what an earlier process counted.
    pub fn remember_counted(&mut self, counted: &[u8]) -> Result<(), CodecError> {
        self.remembered.merge(&Recount::decode(counted)?);
        Ok(())
    }

    /// Bytes of one sender's messages of a kind that may wait, if such a message is about something that has not begun: whoever
    /// hosts the role may keep it until then.
    pub fn ahead(&self, from: PartyId, kind: Kind, scope: Scope) -> Option<u64> {
        match &self.stage {
            AuxiliaryStage::Proposal(_) => None,
            AuxiliaryStage::Session(running) => running.ahead(from, kind, scope),
        }
    }

    /// The values, once the principal has told them.
    pub fn values(&self) -> Option<&[u8]> {
        self.values.as_deref()
    }

    /// What it saw, from the messages it received and sent.
    pub fn view(&self, received: &[SeenMessage], sent: &[SeenMessage]) -> Result<View, Error> {
        if let Some(Agreed::BlindSv(session)) = self.session().map(Session::agreed) {
            return blind_view(&session, Server::Auxiliary, received, sent);
        }
        let protocol = self.federation.settings.protocol;
        server_view(self.session().map(|session| &**session), protocol, PartyId::Auxiliary, received, sent)
    }

    /// Takes the session, and what came before it: this is where the engine of its protocol is chosen.
    fn begin(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let session = Session::accept(&self.federation, &message.content);
        let session = Arc::new(session.map_err(|why| message.malformed(why))??);
        let common = self.seed.derive("zero sharing", 0);
        let told = Outgoing::of(PartyId::Principal, &CommonSeed { seed: common.clone() });
        let is_told = Kind::CommonSeed.is_of(self.federation.settings.protocol);
        let seed = self.seed.clone();
        let running: Box<dyn AnyFollower> = match session.agreed() {
            Agreed::SecSv(session) => Box::new(Follower::new(SecSvAuxiliary::new(session, common), seed)),
            Agreed::SecretSv(session) => {
                Box::new(Follower::new(SecretSvAuxiliary::new(session, common), seed))
            }
            Agreed::BlindSv(session) => Box::new(BlindAuxiliary::new(session)),
            Agreed::Hesv(_) => return Err(message.unexpected("there is one server")),
        };
        let before = std::mem::replace(&mut self.stage, AuxiliaryStage::Session(running));
        let mut effects = Effects { outbox: is_told.then_some(told).into_iter().collect(), jobs: Vec::new() };
        let AuxiliaryStage::Proposal(mut early) = before else { return Ok(effects) };
        for message in early.take(|_| true) {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(self.handle(message).or_else(Error::unless_of_peer)?);
        }
        Ok(effects)
    }
}

impl Role for Auxiliary {
    fn handle(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        let is_of_principal = message.from == PartyId::Principal;
        if message.kind == Kind::Values && is_of_principal && self.values.is_none() {
            let PublishedResult { values } = message.read(&())?;
            self.values = Some(values.to_vec());
            return Ok(Effects::default());
        }
        match &mut self.stage {
            AuxiliaryStage::Proposal(_) if message.kind == Kind::Session && is_of_principal => {
                self.begin(&message)
            }
            AuxiliaryStage::Proposal(early) => {
                early.keep(message, "the session has not begun")?;
                Ok(Effects::default())
            }
            AuxiliaryStage::Session(running) => running.handle(message),
        }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match &self.stage {
            AuxiliaryStage::Proposal(_) => None,
            AuxiliaryStage::Session(running) => Some(running.session()),
        }
    }

    fn drain_finished(&mut self) -> Vec<Scope> {
        match &mut self.stage {
            AuxiliaryStage::Proposal(_) => Vec::new(),
            AuxiliaryStage::Session(running) => running.drain_finished(),
        }
    }

    fn awaiting(&self) -> String {
        match &self.stage {
            AuxiliaryStage::Proposal(_) => "auxiliary: the session from principal".to_owned(),
            AuxiliaryStage::Session(running) => running.awaiting(),
        }
    }
}

//! BlindSV at the auxiliary: does its half of every test, and hands the principal its shares of totals over all owners.

use std::collections::BTreeSet;

use secsv_federation::RoundId;

use super::{
    principal::max_ahead_bytes,
    server::{BlindHost, BlindServer, advance_all, take_dealing, take_opening, take_upload},
    words::pack,
};
use crate::{
    Error, PartyId,
    early::Early,
    message::{BlindTest, Head, Kind, OutcomeShare, RoundFinished, Server, TestFinished},
    role::{Effects, Incoming, Outgoing, waits_for},
    scope::Scope,
    session::BlindSession,
    test_id::RequestId,
};

/// Tests under way at the auxiliary.
pub(crate) struct BlindAuxiliary {
    server: BlindServer,
    /// What owners dealt before their test was announced, where nobody else keeps it.
    early: Early,
    /// Rounds with tests since they were last closed.
    rounds: BTreeSet<RoundId>,
    finished: Vec<Scope>,
}

impl BlindHost for BlindAuxiliary {
    const SERVER: Server = Server::Auxiliary;

    fn server(&mut self) -> &mut BlindServer {
        &mut self.server
    }

    fn counted(&mut self, request: RequestId) -> Result<Effects<Self>, Error> {
        let Some(test) = self.server.tests.get(&request) else { return Ok(Effects::default()) };
        let mut found = Vec::new();
        pack(test.found.iter().copied(), self.server.session.outcome_bytes(), &mut found);
        let bytes = self.server.session.overflow_bytes();
        pack(test.overflows.iter().copied(), bytes, &mut found);
        Ok(Effects::send(Outgoing::of(PartyId::Principal, &OutcomeShare { request, found: &found })))
    }
}

impl BlindAuxiliary {
    pub(crate) fn new(session: BlindSession) -> Self {
        let (server, early) = (BlindServer::new(session), Early::default());
        Self { server, early, rounds: BTreeSet::new(), finished: Vec::new() }
    }

    pub(crate) fn session(&self) -> &BlindSession {
        &self.server.session
    }

    pub(crate) fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    pub(crate) fn awaiting(&self) -> String {
        waits_for(PartyId::Auxiliary, &self.server.missing(Server::Auxiliary))
    }

    /// Bytes of one sender's messages of a kind that may wait, if such a message is about a test or round that has not begun. A
    /// round takes one of each kind.
    pub(crate) fn ahead(&self, from: PartyId, kind: Kind, scope: Scope) -> Option<u64> {
        match (kind, scope, from) {
            (Kind::Dealing, Scope::Test(test), PartyId::Client(owner))
                if !self.server.tests.contains_key(&test.request) && owner < self.session().hellos.len() =>
            {
                Some(max_ahead_bytes(self.session(), owner))
            }
            (Kind::MaskedModel | Kind::DealtProduct, Scope::Round(round), _)
                if !self.rounds.contains(&round) =>
            {
                Some(u64::MAX)
            }
            _ => None,
        }
    }

    /// Takes a message of a session under way.
    pub(crate) fn on_message(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        if !message.kind.is_of(self.session().federation.settings.protocol) {
            return Err(message.unexpected("another protocol"));
        }
        match (message.kind, message.from) {
            (Kind::BlindTest, PartyId::Principal) => self.begin(&message),
            (Kind::MaskedOpening, PartyId::Principal) => take_opening(self, message),
            (Kind::Dealing, PartyId::Client(_)) => self.take_dealing(message),
            (Kind::TestFinished, PartyId::Principal) => {
                let TestFinished { test } = message.read(&())?;
                self.server.tests.remove(&test.request);
                self.finished.push(Scope::Test(test));
                Ok(Effects::default())
            }
            (Kind::RoundFinished, PartyId::Principal) => {
                let RoundFinished { round } = message.read(&())?;
                self.server.forget_round(round);
                self.rounds.remove(&round);
                self.finished.push(Scope::Round(round));
                Ok(Effects::default())
            }
            (_, PartyId::Client(_)) => take_upload(self, &message),
            _ => Err(message.unexpected("testing")),
        }
    }

    /// Begins a test, as the principal announces it, with what owners dealt for it before.
    fn begin(&mut self, message: &Incoming) -> Result<Effects<Self>, Error> {
        let test: BlindTest = message.read(&())?;
        if self.server.tests.contains_key(&test.request) {
            return Err(Error::Second { from: message.from, kind: message.kind });
        }
        self.server.begin(&test).map_err(|why| message.malformed(why))?;
        self.rounds.insert(test.round);
        let mut effects = Effects::default();
        for message in self.early.take(|message| request_of(message) == Some(test.request)) {
            // It was kept before it could be judged: if it is at fault, it has no effect.
            effects.and(self.take_dealing(message).or_else(Error::unless_of_peer)?);
        }
        effects.and(advance_all(self)?);
        if self.session().owners().next().is_none() {
            effects.and(self.counted(test.request)?);
        }
        Ok(effects)
    }

    fn take_dealing(&mut self, message: Incoming) -> Result<Effects<Self>, Error> {
        match request_of(&message).filter(|request| self.server.tests.contains_key(request)) {
            Some(request) => take_dealing(self, request, message),
            None => {
                // The principal's announcement is still on its way: the owner could not have known without one.
                self.early.keep(message, "no such test")?;
                Ok(Effects::default())
            }
        }
    }
}

/// The test that an owner deals for.
fn request_of(message: &Incoming) -> Option<RequestId> {
    match Head::of(message.kind, &message.content) {
        Ok((Head::Request(request), _)) => Some(request),
        _ => None,
    }
}

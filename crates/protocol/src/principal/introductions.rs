//! Before there is a session: clients publish what the others need to know.

use std::{collections::BTreeMap, sync::Arc};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};
use secsv_he::UnitCosts;

use super::{Principal, auxiliary};
use crate::{
    Error, PartyId,
    blindsv::principal::BlindPrincipal,
    error::CodecError,
    message::{ClientHello, Kind, RoundFinished},
    precision::Ranges,
    role::{Effects, Incoming, Outgoing},
    scheduler::{Assignment, Engine, Scheduler, TestRequest},
    scope::Scope,
    session::{BlindSession, Federation, Session, formats},
    test_id::RequestId,
};

/// Numbers that the samples of one client may have in all, 2 GiB as words: a seed stands for as many at the principal.
const MAX_SAMPLE_ELEMENTS: u64 = 1 << 28;

/// What clients published so far, and what waits for the session.
pub(super) struct Introductions {
    pub federation: Arc<Federation>,
    pub seed: Seed,
    costs: Option<UnitCosts>,
    hellos: BTreeMap<usize, ClientHello>,
    /// Tests that were asked for.
    pub queue: BTreeMap<(RoundId, RequestId), TestRequest>,
    pub next_request: RequestId,
    /// Assignments of an earlier process.
    pub earlier: Vec<Assignment>,
    pub away: Coalition,
    /// Whether owners may deal for tests before these start.
    pub deals_ahead: bool,
    pub finished: Vec<Scope>,
}

impl Introductions {
    pub(super) fn new(federation: Arc<Federation>, costs: Option<UnitCosts>, seed: Seed) -> Self {
        Self {
            federation,
            seed,
            costs,
            hellos: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_request: RequestId::FIRST,
            earlier: Vec::new(),
            away: Coalition::EMPTY,
            deals_ahead: false,
            finished: Vec::new(),
        }
    }

    pub(super) fn next_request(&self) -> RequestId {
        self.next_request
    }

    pub(super) fn enqueue(&mut self, id: RequestId, request: TestRequest) -> Result<(), Error> {
        self.next_request = self.next_request.max(id.next()?);
        self.queue.insert((request.round, id), request);
        Ok(())
    }

    pub(super) fn remember(&mut self, assignments: Vec<Assignment>, next: RequestId) {
        self.earlier = assignments;
        self.next_request = next;
    }

    pub(super) fn set_away(&mut self, away: Coalition) {
        self.away = away;
    }

    pub(super) fn end_round(&mut self, round: RoundId) -> Effects<Principal> {
        self.finished.push(Scope::Round(round));
        let finished = auxiliary(&self.federation).map(|to| Outgoing::of(to, &RoundFinished { round }));
        Effects { outbox: finished.into_iter().collect(), ..Effects::default() }
    }

    pub(super) fn drain_finished(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn awaiting(&self) -> String {
        let missing = (0..self.federation.clients).filter(|c| !self.hellos.contains_key(c));
        let names: Vec<String> = missing.map(|c| PartyId::Client(c).to_string()).collect();
        format!("principal: introductions of {}", names.join(", "))
    }

    /// Takes what a client publishes.
    pub(super) fn take(&mut self, message: &Incoming) -> Result<(), Error> {
        let client = match (message.kind, message.from) {
            (Kind::ClientHello, PartyId::Client(client)) if client < self.federation.clients => client,
            _ => return Err(message.unexpected("clients introduce themselves")),
        };
        let hello: ClientHello = message.read(&self.federation.program.published())?;
        if !self.federation.is_envelope_key(client, &hello.public_key) {
            return Err(message.malformed(CodecError::Value { what: "envelope key" }));
        }
        let elements = hello.samples.saturating_mul(self.federation.program.input_size as u64);
        if elements > MAX_SAMPLE_ELEMENTS {
            let (expected, found) = (MAX_SAMPLE_ELEMENTS, elements);
            let why = CodecError::TooLarge { what: "numbers of all samples", expected, found };
            return Err(message.malformed(why));
        }
        self.check_ranges(client, &hello)?;
        self.hellos.insert(client, hello);
        Ok(())
    }

    /// Refuses numbers that leave no format beside those of clients that came before.
    fn check_ranges(&self, client: usize, hello: &ClientHello) -> Result<(), Error> {
        let others = self.hellos.iter().filter(|(other, _)| **other != client).map(|(_, hello)| hello);
        let ranges = Ranges::union(others.chain([hello]).map(|hello| &hello.ranges));
        let from = PartyId::Client(client);
        match ranges.map(|ranges| formats(&self.federation, &ranges)) {
            Some(Err(Error::Precision { layer, needed, available })) => {
                Err(Error::Ranges { from, layer, needed, available })
            }
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether everybody has published.
    pub(super) fn are_whole(&self) -> bool {
        self.hellos.len() == self.federation.clients
    }

    /// The session of those who have published, and its proposal.
    pub(super) fn propose(&self) -> Result<(Arc<Session>, Vec<u8>), Error> {
        let hellos: Vec<ClientHello> = self.hellos.values().cloned().collect();
        let leader = self.federation.leader();
        let (session, proposal) = Session::propose(&self.federation, leader, &hellos, self.costs.as_ref())?;
        Ok((Arc::new(session), proposal))
    }

    /// The same where nobody decrypts.
    pub(super) fn begin_blind(&mut self, session: BlindSession) -> BlindPrincipal {
        let (queue, finished) = (std::mem::take(&mut self.queue), std::mem::take(&mut self.finished));
        BlindPrincipal::new(session, self.next_request, self.away, queue, finished, self.deals_ahead)
    }

    /// A scheduler with what waited for the session.
    pub(super) fn begin<E: Engine>(&mut self, engine: E) -> Result<Scheduler<E>, Error> {
        let mut scheduler = Scheduler::new(engine, self.seed.clone())?;
        scheduler.next_request = self.next_request;
        scheduler.queue = std::mem::take(&mut self.queue);
        scheduler.away = self.away;
        scheduler.finished = std::mem::take(&mut self.finished);
        scheduler.repeat(std::mem::take(&mut self.earlier))?;
        Ok(scheduler)
    }
}

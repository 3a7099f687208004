//! A role on a network: whatever it does is given to the journal's writer before anybody else.

mod arrivals;
mod effects;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc::Sender},
};

use secsv_evaluation::{
    Accounts,
    executor::{HostedRole, RoleHost, RunningRole},
    with_ids,
};
use secsv_protocol::{
    Error as RoleError, PartyId, RequestId, Scope, TestId, TestRequest,
    message::Kind,
    role::{Continuation, Effects, Job},
    session::{Federation, Session},
};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::journal_writer::JournalCommand;
use crate::{
    Error,
    journal::{
        Batch, BlobStore, ContentSlots, Digest, Filled, Inbound, Journal, TestRecord, Way,
        content_slots::ContentSlot,
    },
    kit::Kit,
    status::Board,
    transport::{Arrival, FinishedTests, PeerLink},
};

/// Bytes of a message that comes before the session, at most: the role says why it is refused.
const MAX_BEFORE_SESSION: u64 = 4 << 10;
/// ... and of one that comes after it has ended.
const MAX_AFTER_SESSION: u64 = 16 << 20;

/// Something that the role is to do: what follows, and tests to be remembered.
pub(crate) type Act<R> = Box<dyn FnOnce(&mut R) -> Result<(Effects<R>, Vec<TestRecord>), RoleError> + Send>;

/// Something that a role on a network takes.
pub(crate) enum NodeEvent<R> {
    /// A message from a peer.
    Arrival(Arrival),
    /// A message from the journal.
    Replay(Inbound),
    Act(Act<R>),
    /// A peer says that these are finished. It takes room in the inbox until it is stored.
    Finished(Vec<Scope>, Option<OwnedSemaphorePermit>),
}

/// What goes with the role.
pub(crate) struct NodeState {
    /// The number due from each peer.
    pub due: BTreeMap<PartyId, u64>,
    pub finished: BTreeSet<TestId>,
    /// What an earlier process had open and this one has not yet.
    pub resuming: BTreeSet<Scope>,
    /// Messages for then, or for what has not begun: the journal has them.
    pub held: Vec<Inbound>,
    /// Requests of tests under way.
    pub requests: BTreeMap<RequestId, Vec<u8>>,
    /// The traffic.
    pub accounts: Accounts,
    /// What fills the content slots of the session.
    pub slots: ContentSlots,
}

/// What stands around the role of a process.
pub(crate) struct NodeHost {
    /// Whose clients are called by their ids.
    pub kit: Arc<Kit>,
    pub own: PartyId,
    pub federation: Arc<Federation>,
    pub writer: Sender<JournalCommand>,
    pub blobs: BlobStore,
    pub peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    pub finished_tests: FinishedTests,
    /// The session, once the role knows it.
    pub session: watch::Sender<Option<Arc<Session>>>,
    pub board: Arc<Board>,
}

type NodeRole<R> = RunningRole<R, NodeState>;

/// An event's consequences for the journal.
#[derive(Default)]
struct JournalEntry {
    batch: Batch,
    /// Room that is taken until the batch is stored.
    room: Option<OwnedSemaphorePermit>,
}

impl<R: HostedRole> RoleHost<R> for NodeHost {
    type State = NodeState;
    type Event = NodeEvent<R>;
    type Output = ();
    type Error = Error;

    fn on_event(&self, running: &mut NodeRole<R>, event: NodeEvent<R>) -> Result<(Vec<Job<R>>, ()), Error> {
        let mut entry = JournalEntry::default();
        let effects = match event {
            NodeEvent::Arrival(arrival) => match self.on_arrival(running, arrival, &mut entry)? {
                Some(effects) => effects,
                None => return Ok((Vec::new(), ())),
            },
            NodeEvent::Replay(message) if is_early(&running.role, &running.state.resuming, &message) => {
                running.state.held.push(message);
                return Ok((Vec::new(), ()));
            }
            NodeEvent::Replay(message) => self.on_replay(running, &message)?,
            NodeEvent::Act(act) => {
                let (effects, tests) = act(&mut running.role)?;
                let requests = tests.iter().map(|test| (test.test.request, test.request.clone()));
                running.state.requests.extend(requests);
                entry.batch.tests = tests;
                effects
            }
            NodeEvent::Finished(scopes, room) => {
                // They are sent again on every stream.
                let is_new = |scope: &Scope| !running.state.is_finished(*scope);
                entry.batch.over = scopes.into_iter().filter(is_new).collect();
                entry.batch.over.iter().for_each(|scope| running.role.end(*scope));
                entry.room = room;
                Effects::default()
            }
        };
        Ok((self.settle(running, effects, entry)?, ()))
    }

    fn on_found(
        &self,
        running: &mut NodeRole<R>,
        found: Continuation<R>,
    ) -> Result<(Vec<Job<R>>, ()), Error> {
        let effects = match found(&mut running.role) {
            Ok(effects) => effects,
            Err(error) => {
                RoleHost::<R>::on_job_error(self, error)?;
                Effects::default()
            }
        };
        Ok((self.settle(running, effects, JournalEntry::default())?, ()))
    }

    /// What a peer is to blame for is found before a job begins. Should a job find it, the peer is cut off, what depends on its
    /// message waits, and everybody else goes on.
    fn on_job_error(&self, error: RoleError) -> Result<(), Error> {
        let (from, kind, error) = error.or_blamed()?;
        self.blame(from, kind, &error);
        Ok(())
    }

    fn ready(&self, running: &mut NodeRole<R>) -> Vec<NodeEvent<R>> {
        let NodeRole { role, state } = running;
        if self.session.borrow().is_none() && role.session().is_some() {
            self.session.send_replace(role.session().cloned());
        }
        let NodeState { resuming, held, .. } = state;
        resuming.retain(|scope| !role.is_open(*scope));
        let is_early = |message: &Inbound| is_early(role, resuming, message);
        held.extract_if(.., |message| !is_early(message)).map(NodeEvent::Replay).collect()
    }
}

/// Whether a message is about something that an earlier process had open and this one has not yet, or that has not begun.
fn is_early<R: HostedRole>(role: &R, resuming: &BTreeSet<Scope>, message: &Inbound) -> bool {
    let Inbound { from, kind, scope, .. } = *message;
    resuming.contains(&scope.whole()) || role.ahead(from, kind, scope).is_some()
}

impl NodeState {
    /// The state that a journal has; `resuming` is what an earlier process had open.
    pub fn new<'a>(
        journal: &Journal,
        peers: impl Iterator<Item = &'a PartyId>,
        resuming: BTreeSet<Scope>,
    ) -> Result<Self, Error> {
        Ok(Self {
            due: peers.map(|&peer| (peer, journal.next_in(peer))).collect(),
            finished: journal.finished().clone(),
            resuming,
            held: Vec::new(),
            requests: BTreeMap::new(),
            accounts: Accounts::default(),
            slots: journal.content_slots()?,
        })
    }

    fn is_finished(&self, scope: Scope) -> bool {
        matches!(scope, Scope::Test(test) if self.finished.contains(&test))
    }
}

impl NodeHost {
    /// The most bytes that a message may have: before the session is known, whoever sends what depends on it waits.
    pub async fn max_len(&self, has_session: bool, from: PartyId, kind: Kind) -> u64 {
        if let Some(known) = self.federation.max_len(from, kind) {
            return known;
        }
        if !has_session {
            return MAX_AFTER_SESSION;
        }
        // The principal is asked to introduce nobody but clients, and says so.
        if self.own == PartyId::Principal && self.session.borrow().is_none() {
            return MAX_BEFORE_SESSION;
        }
        let mut session = self.session.subscribe();
        let Ok(session) = session.wait_for(Option::is_some).await else { return 0 };
        session.as_ref().map_or(0, |session| session.max_len(from, self.own, kind))
    }

    /// Refuses a message: its sender is named, cut off for a while, and shown to operators.
    fn blame(&self, from: PartyId, kind: Kind, error: &RoleError) {
        let peer = self.peers.get(&from);
        let error = with_ids(&error.to_string(), &self.kit.federation.federation);
        let refusals = peer.map_or(0, |peer| peer.refuse(error.clone()));
        // Whoever goes on for ever does not fill the log.
        if refusals < 16 || refusals.is_power_of_two() {
            tracing::warn!(peer = peer.map(|p| p.name.as_str()), %kind, refusals, error, "message refused");
        }
    }

    /// What a message would be to its slots. The principal remembers once, for the auxiliary, what it announces to all.
    fn filled(
        &self,
        way: Way,
        peer: PartyId,
        kind: Kind,
        scope: Scope,
        (content, digest): (&[u8], Digest),
    ) -> Vec<Filled> {
        let slots = self.federation.content_slots(kind, content).into_iter();
        let is_own = |about: Scope| way == Way::In || peer == PartyId::Auxiliary || about == scope;
        let filled = |(scope, head)| Filled { scope, slot: ContentSlot { way, peer, kind, head }, digest };
        slots.filter(|(about, _)| is_own(*about)).map(filled).collect()
    }

    /// Has clients hear what is finished.
    pub fn send_finished(&self, scopes: &[Scope]) {
        let (tests, rounds): (Vec<Scope>, Vec<Scope>) =
            scopes.iter().partition(|scope| matches!(scope, Scope::Test(_)));
        self.finished_tests.add(&tests);
        let clients = self.peers.values().filter(|peer| matches!(peer.id, PartyId::Client(_)));
        clients.for_each(|peer| peer.finish_rounds(&rounds));
    }
}

/// A request as it is remembered.
pub(crate) fn record(id: RequestId, request: &TestRequest) -> TestRecord {
    TestRecord { test: TestId::first(id), request: request.encode(), result: None }
}

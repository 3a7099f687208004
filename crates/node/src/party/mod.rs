//! One party as a process: a role and its executor, a thread that writes the journal, links to the others.

mod journal_writer;
mod role_host;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use rand::{TryRngCore as _, rngs::OsRng};
use secsv_evaluation::{
    Accounts, EvaluationSettings,
    executor::{HostedRole, RoleExecutor, Signal},
    with_ids,
};
use secsv_protocol::{
    Error as RoleError, PartyId, RequestId, Scope, TestResult, message::Kind, role::Effects,
    session::Federation,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

pub(crate) use role_host::{Act, record};

use crate::{
    Error, Fingerprint,
    audit::{Direction, Log},
    journal::{Digest, Inbound, Journal, Outbound, Owner},
    kit::{Kit, RoundNotice},
    status::Board,
    transport::{Arrival, FinishedTests, PeerLink, StreamError, StreamHost},
};
use journal_writer::{AuditSink, JournalCommand, JournalWriter};
use role_host::{NodeEvent, NodeHost, NodeState};

/// Messages that wait for the role, in KiB.
const MAX_INBOX: usize = 16 << 10;

/// One party.
pub(crate) struct Party<R: HostedRole> {
    kit: Arc<Kit>,
    instance: [u8; 16],
    executor: Arc<RoleExecutor<R, NodeHost>>,
    peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    writer: Sender<JournalCommand>,
    room: Arc<Semaphore>,
    has_goodbye: AtomicBool,
    /// Whether the values are there, so that others may leave.
    is_over: AtomicBool,
    replies: Arc<AtomicU64>,
    audit: Arc<Mutex<Log>>,
    board: Arc<Board>,
    /// The thread that writes the journal.
    writing: Mutex<Option<JoinHandle<()>>>,
}

/// A role as it begins, what it wants done then, and what an earlier process had open.
pub(crate) type Begun<R> = (R, Effects<R>, Vec<Scope>);

impl<R: HostedRole> Party<R> {
    /// Opens the state directory, builds the role, and has it take what an earlier process received. `files` are digests of
    /// everything that the party will ever encode; none if it encodes nothing any more.
    pub fn open(
        kit: Arc<Kit>,
        state: &Path,
        files: Option<BTreeMap<String, Digest>>,
        results: Option<Sender<(RequestId, Vec<TestResult>)>>,
        build: impl FnOnce(&Arc<Federation>, &Journal) -> Result<Begun<R>, Error>,
    ) -> Result<Arc<Self>, Error> {
        let federation = Arc::new(kit.session()?);
        // Before anybody waits for it.
        federation.prepare()?;
        let owner = Owner { party: kit.own, federation: kit.digest, files };
        let random = draw()?;
        let journal = Journal::open(state, &owner, || random)?;
        let (role, first, open) = build(&federation, &journal)?;
        let (replay, waiting) = (journal.replay()?, journal.unacknowledged()?);
        let board = Arc::new(Board::new(&kit));
        let (log, _) = Log::open(state, &kit)?;
        let auditor = Auditor::catch_up(log, &kit, &journal, (&replay, &waiting), &board)?;
        let finished_tests = FinishedTests::default();
        let peers = Arc::new(peers(&kit, &journal, &board, waiting, &finished_tests));
        let (writer, commands) = mpsc::channel();
        let about = replay.iter().map(|message| message.scope.whole()).chain(open);
        let resuming = about.filter(|scope| !role.is_open(*scope)).collect();
        let state = NodeState::new(&journal, peers.keys(), resuming)?;
        let host = NodeHost {
            kit: kit.clone(),
            own: kit.own,
            federation,
            writer: writer.clone(),
            blobs: journal.blobs().clone(),
            peers: peers.clone(),
            finished_tests,
            session: watch::Sender::new(None),
            board: board.clone(),
        };
        let replies = Arc::new(AtomicU64::new(journal.replies()));
        let party = Arc::new(Self {
            kit,
            instance: journal.instance(),
            executor: Arc::new(RoleExecutor::new(role, state, host, Arc::<Signal>::default())),
            peers: peers.clone(),
            writer,
            room: Arc::new(Semaphore::new(MAX_INBOX)),
            has_goodbye: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            replies: replies.clone(),
            audit: auditor.log.clone(),
            board,
            writing: Mutex::new(None),
        });
        let audit: Option<Box<dyn AuditSink>> = Some(Box::new(auditor));
        party.spawn_threads(JournalWriter { journal, peers, audit, results, replies }, commands)?;
        party.act(Box::new(move |_| Ok((first, Vec::new()))));
        replay.into_iter().for_each(|message| party.executor.replay(NodeEvent::Replay(message)));
        Ok(party)
    }

    fn spawn_threads(
        &self,
        writer: JournalWriter,
        commands: mpsc::Receiver<JournalCommand>,
    ) -> Result<(), Error> {
        let failed = |source| Error::System { what: "a thread", source };
        let executor = self.executor.clone();
        let writing = move || {
            if let Err(error) = writer.run(&commands) {
                executor.fail(error);
            }
        };
        let writing = std::thread::Builder::new().name("journal".into()).spawn(writing).map_err(failed)?;
        *self.writing.lock().unwrap_or_else(PoisonError::into_inner) = Some(writing);
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let executor = self.executor.clone();
            let worker = std::thread::Builder::new().name("worker".into()).spawn(move || executor.work());
            worker.map_err(failed)?;
        }
        Ok(())
    }

    /// Has the role do something.
    pub fn act(&self, act: Act<R>) {
        self.executor.push(NodeEvent::Act(act));
    }

    /// Looks at the role as soon as it is at rest.
    pub fn look<T>(&self, look: impl Fn(&R) -> T) -> T {
        self.executor.look(|role, _| look(role))
    }

    /// Looks at the role until there is something to see, the time is over or work has ended.
    pub fn wait_for<T>(&self, time: Duration, look: impl Fn(&R) -> Option<T>) -> Result<Option<T>, Error> {
        self.executor.wait_for(time, look)
    }

    /// What this process's work and messages have cost so far.
    pub fn accounts(&self) -> Accounts {
        let traffic = self.executor.look(|_, state| state.accounts.traffic.clone());
        Accounts { traffic, ..self.executor.accounts() }
    }

    /// Has clients hear what is finished.
    pub fn send_finished(&self, scopes: &[Scope]) {
        self.executor.host.send_finished(scopes);
    }

    /// The links.
    pub fn peers(&self) -> &BTreeMap<PartyId, Arc<PeerLink>> {
        &self.peers
    }

    /// Whether the principal has said that all is done.
    pub fn has_goodbye(&self) -> bool {
        self.has_goodbye.load(Ordering::Relaxed)
    }

    /// The values are there: whoever leaves from now on is not lost.
    pub fn set_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Requests whose tests are through, as far as this party has heard.
    pub fn tests_finished(&self) -> usize {
        let count = |state: &NodeState| {
            state.finished.iter().map(|test| test.request).collect::<BTreeSet<RequestId>>().len()
        };
        self.executor.look(|_, state| count(state))
    }

    /// How values are computed, as the kit says.
    pub fn evaluation(&self) -> Option<EvaluationSettings> {
        self.kit.evaluation().ok()
    }

    /// A sentence with the clients' ids instead of their numbers.
    pub fn named(&self, text: &str) -> String {
        with_ids(text, &self.kit.federation.federation)
    }

    /// Ciphertexts that others were to decrypt, whichever process asked them to.
    pub fn replies(&self) -> u64 {
        self.flush();
        self.replies.load(Ordering::Relaxed)
    }

    /// The audit log.
    pub fn audit(&self) -> std::sync::MutexGuard<'_, Log> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What operators see.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Has the disk keep everything so far.
    pub fn flush(&self) {
        let (reply, kept) = mpsc::sync_channel(1);
        if self.writer.send(JournalCommand::Flush(reply)).is_ok() {
            // The writer has failed: that is told elsewhere.
            let _ = kept.recv();
        }
    }

    /// Has the disk keep everything so far, and ends the threads that work. The state directory is free then.
    pub fn stop(&self) {
        self.flush();
        self.executor.stop();
        // It may have ended by itself: that is told elsewhere.
        let _ = self.writer.send(JournalCommand::End);
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writing) = writing {
            let _ = writing.join();
        }
    }
}

fn draw() -> Result<[u8; 48], Error> {
    let mut random = [0; 48];
    let failed = |_| Error::System {
        what: "randomness from the operating system",
        source: std::io::ErrorKind::Unsupported.into(),
    };
    OsRng.try_fill_bytes(&mut random).map_err(failed)?;
    Ok(random)
}

/// With whom a party has a link: servers with everybody, clients with the servers.
fn peers(
    kit: &Kit,
    journal: &Journal,
    board: &Arc<Board>,
    waiting: Vec<Outbound>,
    finished: &FinishedTests,
) -> BTreeMap<PartyId, Arc<PeerLink>> {
    let mut waiting_for: BTreeMap<PartyId, Vec<Outbound>> = BTreeMap::new();
    for message in waiting {
        waiting_for.entry(message.to).or_default().push(message);
    }
    let is_client = |party: PartyId| matches!(party, PartyId::Client(_));
    let all = kit.federation.party_ids();
    all.filter(|&id| id != kit.own && !(is_client(id) && is_client(kit.own)))
        .map(|id| {
            let waiting = waiting_for.remove(&id).unwrap_or_default();
            let numbers = (journal.next_in(id), journal.acknowledged_by(id), journal.next_out(id));
            // Clients are told by the principal.
            let finished = if is_client(id) { finished.clone() } else { FinishedTests::default() };
            let peer = PeerLink::new(id, board, kit.name(id), numbers, waiting, finished);
            (id, Arc::new(peer))
        })
        .collect()
}

/// Peers of whose messages the log does not have all.
fn gaps(audit: &Mutex<Log>, kit: &Kit, journal: &Journal) -> Vec<String> {
    let audit = audit.lock().unwrap_or_else(PoisonError::into_inner);
    let has_all = |peer: PartyId| {
        audit.has_all(Direction::Received, peer, journal.next_in(peer))
            && audit.has_all(Direction::Sent, peer, journal.next_out(peer))
    };
    kit.names().into_iter().filter(|(peer, _)| !has_all(*peer)).map(|(_, name)| name).collect()
}

/// Writes the audit log, and counts what is new on the board.
struct Auditor {
    log: Arc<Mutex<Log>>,
    board: Option<Arc<Board>>,
}

impl Auditor {
    /// Enters what the journal has and the log may lack.
    fn catch_up(
        log: Log,
        kit: &Kit,
        journal: &Journal,
        (received, sent): (&[Inbound], &[Outbound]),
        board: &Arc<Board>,
    ) -> Result<Self, Error> {
        let mut auditor = Self { log: Arc::new(Mutex::new(log)), board: None };
        received.iter().try_for_each(|message| auditor.received(message))?;
        sent.iter().try_for_each(|message| auditor.sent(message))?;
        auditor.write_out()?;
        for peer in gaps(&auditor.log, kit, journal) {
            tracing::error!(
                peer,
                "the audit log lacks messages that the journal knows: `secsv verify` will say so"
            );
        }
        auditor.stored(&|peer| journal.next_in(peer));
        auditor.board = Some(board.clone());
        Ok(auditor)
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditSink for Auditor {
    fn received(&mut self, message: &Inbound) -> Result<(), Error> {
        let Inbound { from, number, kind, length, digest, .. } = *message;
        if let Some(board) = &self.board {
            board.received(from, length);
        }
        Ok(self.log().append(Direction::Received, from, kind, number, length, Fingerprint(digest))?)
    }

    fn sent(&mut self, message: &Outbound) -> Result<(), Error> {
        let Outbound { to, number, kind, length, digest, .. } = *message;
        if let Some(board) = &self.board {
            board.sent(to, length);
        }
        Ok(self.log().append(Direction::Sent, to, kind, number, length, Fingerprint(digest))?)
    }

    fn write_out(&mut self) -> Result<(), Error> {
        Ok(self.log().write_out()?)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(self.log().sync()?)
    }

    fn stored(&mut self, due: &dyn Fn(PartyId) -> u64) {
        self.log().kept(due);
    }
}

impl<R: HostedRole> StreamHost for Party<R> {
    fn federation(&self) -> [u8; 32] {
        self.kit.digest
    }

    fn instance(&self) -> [u8; 16] {
        self.instance
    }

    fn link(&self, id: PartyId) -> Option<Arc<PeerLink>> {
        self.peers.get(&id).cloned()
    }

    async fn first_instance(&self, id: PartyId, instance: [u8; 16]) -> Option<[u8; 16]> {
        let (reply, known) = oneshot::channel();
        self.writer.send(JournalCommand::FirstInstance(id, instance, reply)).ok()?;
        known.await.ok()
    }

    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let share = (bytes / 1024 + 1).min(MAX_INBOX);
        self.room.clone().acquire_many_owned(share as u32).await.ok()
    }

    async fn max_len(&self, from: PartyId, kind: Kind) -> u64 {
        self.executor.host.max_len(R::HAS_SESSION, from, kind).await
    }

    fn arrive(&self, arrival: Arrival) {
        self.executor.push(NodeEvent::Arrival(arrival));
    }

    fn acknowledged(&self, peer: PartyId, number: u64) {
        let batch = crate::journal::Batch { acknowledged: vec![(peer, number)], ..Default::default() };
        // The writer has failed: that is told elsewhere.
        let _ = self.writer.send(JournalCommand::Store(batch, None));
    }

    fn finished(&self, peer: PartyId, scopes: Vec<Scope>, room: Option<OwnedSemaphorePermit>) {
        if peer == PartyId::Principal {
            self.executor.push(NodeEvent::Finished(scopes, room));
        }
    }

    fn goodbye(&self, peer: PartyId) {
        if peer == PartyId::Principal {
            self.has_goodbye.store(true, Ordering::Relaxed);
            self.set_over();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn give_up(&self, peer: PartyId, reason: String) {
        self.executor.fail(Error::NoLink { peer: self.kit.name(peer), reason });
    }

    fn notice(&self) -> Option<&RoundNotice> {
        self.kit.notice()
    }

    /// The principal says which round is on: whoever is in another one leaves it.
    fn other_round(&self, peer: PartyId, other: &RoundNotice) -> StreamError {
        let Some(own) = self.kit.notice() else { return StreamError::Unreadable };
        let why = own.difference(other, self.kit.whole());
        if !own.is_of_another_round(other) {
            return StreamError::RoundDiffers(why);
        }
        if peer == PartyId::Principal {
            self.executor.fail(Error::OtherRound { round: other.round });
        }
        StreamError::OtherRound(why)
    }
}

/// What nothing but a fault of this program brings about.
pub(crate) fn local(what: &'static str) -> Error {
    Error::Role(RoleError::Local { what })
}

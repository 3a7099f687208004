//! One party as a process: a role at its desk, a scribe that keeps the journal, links to the others.

mod desk;
mod scribe;
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
};

use rand::{TryRngCore as _, rngs::OsRng};
use secsv_protocol::{
    Error as RoleError, PartyId, Scope, TestResult, message::Kind, role::Effects, session::Federation,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub(crate) use desk::{Act, Hosted, record};

use crate::{
    Error, Fingerprint,
    audit::{Direction, Log},
    journal::{Digest, Inbound, Journal, Outbound, Owner},
    kit::Kit,
    status::Board,
    transport::{Arrival, FinishedTests, Host, PeerLink},
};
use desk::{Beginning, Desk};
use scribe::{Order, Scribe, Witness};

/// Messages that wait for the role, in KiB.
const INBOX: usize = 16 << 10;

/// One party.
pub(crate) struct Party<R> {
    kit: Arc<Kit>,
    instance: [u8; 16],
    desk: Arc<Desk<R>>,
    peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    scribe: Sender<Order>,
    room: Arc<Semaphore>,
    parted: AtomicBool,
    replies: Arc<AtomicU64>,
    audit: Arc<Mutex<Log>>,
    board: Arc<Board>,
    /// The scribe's thread.
    writing: Mutex<Option<JoinHandle<()>>>,
}

/// A role as it begins, what it wants done then, and what an earlier process had open.
pub(crate) type Begun<R> = (R, Effects<R>, Vec<Scope>);

impl<R: Hosted> Party<R> {
    /// Opens the state directory, builds the role, and has it take what an earlier process received. `files` are digests of
    /// everything that the party will ever encode; none if it encodes nothing any more.
    pub fn open(
        kit: Arc<Kit>,
        state: &Path,
        files: Option<BTreeMap<String, Digest>>,
        results: Option<Sender<(u64, Vec<TestResult>)>>,
        build: impl FnOnce(&Arc<Federation>, &Journal) -> Result<Begun<R>, Error>,
    ) -> Result<Arc<Self>, Error> {
        let federation = Arc::new(kit.session()?);
        // Before anybody waits for it.
        federation.prepare().map_err(Error::Role)?;
        let owner = Owner { party: kit.own, federation: kit.digest, files };
        let random = draw()?;
        let journal = Journal::open(state, &owner, || random)?;
        let (audit, _) = Log::open(state, &kit)?;
        let audit = Arc::new(Mutex::new(audit));
        let (role, first, open) = build(&federation, &journal)?;
        let (replay, waiting) = (journal.replay()?, journal.unacknowledged()?);
        let board = Arc::new(Board::new(&kit));
        let mut witness = Auditor { log: audit.clone(), board: None };
        replay.iter().try_for_each(|message| witness.received(message))?;
        waiting.iter().try_for_each(|message| witness.sent(message))?;
        witness.write_out()?;
        for peer in gaps(&audit, &kit, &journal) {
            tracing::error!(
                peer,
                "the audit log lacks messages that the journal knows: `secsv verify` will say so"
            );
        }
        witness.kept(&|peer| journal.next_in(peer));
        witness.board = Some(board.clone());
        let finished_tests = FinishedTests::default();
        let peers = Arc::new(peers(&kit, &journal, &board, waiting, &finished_tests));
        let (scribe, orders) = mpsc::channel();
        let about = replay.iter().map(|message| message.scope.whole()).chain(open);
        let resuming: BTreeSet<Scope> = about.filter(|scope| !role.is_open(*scope)).collect();
        let desk = Arc::new(Desk::new(Beginning {
            own: kit.own,
            federation,
            role,
            due: peers.keys().map(|&peer| (peer, journal.next_in(peer))).collect(),
            finished: journal.finished().clone(),
            resuming,
            scribe: scribe.clone(),
            shelf: journal.shelf().clone(),
            peers: peers.clone(),
            finished_tests,
            places: journal.places()?,
            board: board.clone(),
        }));
        let instance = journal.instance();
        let witness: Option<Box<dyn Witness>> = Some(Box::new(witness));
        let replies = Arc::new(AtomicU64::new(journal.replies()));
        let scribe_work =
            Scribe { journal, peers: peers.clone(), witness, results, replies: replies.clone() };
        let party = Arc::new(Self {
            kit,
            instance,
            desk,
            peers,
            scribe,
            room: Arc::new(Semaphore::new(INBOX)),
            parted: AtomicBool::new(false),
            replies,
            audit,
            board,
            writing: Mutex::new(None),
        });
        party.spawn_threads(scribe_work, orders)?;
        party.desk.act(Box::new(move |_| Ok((first, Vec::new()))));
        replay.into_iter().for_each(|message| party.desk.replay(message));
        Ok(party)
    }

    fn spawn_threads(&self, scribe: Scribe, orders: mpsc::Receiver<Order>) -> Result<(), Error> {
        let failed = |source| Error::System { what: "a thread", source };
        let desk = self.desk.clone();
        let writing = move || {
            if let Err(error) = scribe.run(&orders) {
                desk.fail(error);
            }
        };
        let writing = std::thread::Builder::new().name("scribe".into()).spawn(writing).map_err(failed)?;
        *self.writing.lock().unwrap_or_else(PoisonError::into_inner) = Some(writing);
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let desk = self.desk.clone();
            let worker = std::thread::Builder::new().name("worker".into()).spawn(move || desk.work());
            worker.map_err(failed)?;
        }
        Ok(())
    }

    /// Has the role do something.
    pub fn act(&self, act: Act<R>) {
        self.desk.act(act);
    }

    /// The role's desk.
    pub fn desk(&self) -> &Desk<R> {
        &self.desk
    }

    /// The links.
    pub fn peers(&self) -> &BTreeMap<PartyId, Arc<PeerLink>> {
        &self.peers
    }

    /// Whether the principal has said that all is done.
    pub fn is_parted(&self) -> bool {
        self.parted.load(Ordering::Relaxed)
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
        if self.scribe.send(Order::Flush(reply)).is_ok() {
            // The scribe has failed: that is told elsewhere.
            let _ = kept.recv();
        }
    }

    /// Has the disk keep everything so far, and ends the threads that work. The state directory is free then.
    pub fn stop(&self) {
        self.flush();
        self.desk.stop();
        // It may have ended by itself: that is told elsewhere.
        let _ = self.scribe.send(Order::End);
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        writing.into_iter().for_each(|writing| {
            let _ = writing.join();
        });
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
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Auditor {
    fn received(&mut self, message: &Inbound) -> Result<(), Error> {
        let Inbound { from, number, kind, length, digest, .. } = *message;
        self.board.iter().for_each(|board| board.received(from, length));
        Ok(self.log().append(Direction::Received, from, kind, number, length, Fingerprint(digest))?)
    }

    fn sent(&mut self, message: &Outbound) -> Result<(), Error> {
        let Outbound { to, number, kind, length, digest, .. } = *message;
        self.board.iter().for_each(|board| board.sent(to, length));
        Ok(self.log().append(Direction::Sent, to, kind, number, length, Fingerprint(digest))?)
    }

    fn write_out(&mut self) -> Result<(), Error> {
        Ok(self.log().write_out()?)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(self.log().sync()?)
    }

    fn kept(&mut self, due: &dyn Fn(PartyId) -> u64) {
        self.log().kept(due);
    }
}

impl<R: Hosted> Host for Party<R> {
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
        self.scribe.send(Order::Meet(id, instance, reply)).ok()?;
        known.await.ok()
    }

    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let share = (bytes / 1024 + 1).min(INBOX);
        self.room.clone().acquire_many_owned(share as u32).await.ok()
    }

    async fn max_len(&self, from: PartyId, kind: Kind) -> u64 {
        self.desk.max_len(from, kind).await
    }

    fn arrive(&self, arrival: Arrival) {
        self.desk.arrive(arrival);
    }

    fn acknowledged(&self, peer: PartyId, number: u64) {
        let batch = crate::journal::Batch { acknowledged: vec![(peer, number)], ..Default::default() };
        // The scribe has failed: that is told elsewhere.
        let _ = self.scribe.send(Order::Keep(batch, None));
    }

    fn finished(&self, peer: PartyId, scopes: Vec<Scope>, room: Option<OwnedSemaphorePermit>) {
        if peer == PartyId::Principal {
            self.desk.finished(scopes, room);
        }
    }

    fn goodbye(&self, peer: PartyId) {
        if peer == PartyId::Principal {
            self.parted.store(true, Ordering::Relaxed);
        }
    }
}

/// What nothing but a fault of this program brings about.
pub(crate) fn local(what: &'static str) -> Error {
    Error::Role(RoleError::Local { what })
}

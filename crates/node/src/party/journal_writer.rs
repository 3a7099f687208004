//! The one thread that writes the journal. Many things are kept in one go, because the disk takes as long for one as for
//! many; nothing is sent or acknowledged before the disk has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use secsv_protocol::{PartyId, RequestId, TestResult};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    Error,
    journal::{Batch, Inbound, Journal, Outbound},
    transport::PeerLink,
};

/// What comes within some time is kept in one go: as long as it took to keep what came before, but no longer than this.
/// So a slow disk is asked rarely, and a fast one is not waited for.
const MAX_GATHERING: Duration = Duration::from_millis(20);
/// ... and no shorter than this: what belongs together comes within it.
const MIN_GATHERING: Duration = Duration::from_millis(1);
/// Batches that are kept in one go at most.
const MAX_BATCHES: usize = 256;

/// A command for the journal's writer.
pub(crate) enum JournalCommand {
    /// Store this, which takes room until then.
    Store(Batch, Option<OwnedSemaphorePermit>),
    /// Say which instance of a peer was seen first: this one, if there was none before.
    FirstInstance(PartyId, [u8; 16], oneshot::Sender<[u8; 16]>),
    /// Store everything so far, and say so.
    Flush(SyncSender<()>),
    /// End.
    End,
}

/// Hears of every message that is stored.
pub(crate) trait AuditSink: Send {
    fn received(&mut self, message: &Inbound) -> Result<(), Error>;
    fn sent(&mut self, message: &Outbound) -> Result<(), Error>;
    /// A kill from now on must not take what was told.
    fn write_out(&mut self) -> Result<(), Error>;
    /// Nor a power cut.
    fn sync(&mut self) -> Result<(), Error>;
    /// The journal has what was told: nothing below the number that is due from a peer comes again.
    fn stored(&mut self, due: &dyn Fn(PartyId) -> u64);
}

/// Writes the journal and passes on what may be passed on then.
pub(crate) struct JournalWriter {
    pub journal: Journal,
    pub peers: Arc<BTreeMap<PartyId, Arc<PeerLink>>>,
    pub audit: Option<Box<dyn AuditSink>>,
    pub results: Option<Sender<(RequestId, Vec<TestResult>)>>,
    /// Ciphertexts that others were to decrypt, as the journal counts them.
    pub replies: Arc<AtomicU64>,
}

impl JournalWriter {
    /// Works until told to end.
    pub fn run(mut self, commands: &Receiver<JournalCommand>) -> Result<(), Error> {
        // What was acknowledged saves room and nothing else: it is kept when something else is.
        let mut acknowledged = Vec::new();
        let mut gathering = MIN_GATHERING;
        while let Ok(first) = commands.recv() {
            let mut batches = Vec::new();
            let mut flushed = Vec::new();
            let mut met = Vec::new();
            let mut room = Vec::new();
            let mut has_ended = false;
            let until = Instant::now() + gathering;
            let more = std::iter::from_fn(|| {
                commands.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
            });
            for command in [first].into_iter().chain(more.take(MAX_BATCHES)) {
                match command {
                    JournalCommand::Store(mut batch, taken) => {
                        acknowledged.append(&mut batch.acknowledged);
                        batches.push(batch);
                        room.extend(taken);
                    }
                    JournalCommand::FirstInstance(peer, instance, reply) => met.push((peer, instance, reply)),
                    JournalCommand::Flush(reply) => flushed.push(reply),
                    JournalCommand::End => has_ended = true,
                }
            }
            batches.retain(|batch| !batch.is_empty());
            if !batches.is_empty() || acknowledged.len() > MAX_BATCHES || !flushed.is_empty() {
                let acknowledged = std::mem::take(&mut acknowledged);
                batches.push(Batch { acknowledged, ..Batch::default() });
                let begun = Instant::now();
                self.store(batches)?;
                gathering = begun.elapsed().clamp(MIN_GATHERING, MAX_GATHERING);
            }
            drop(room);
            for (peer, instance, reply) in met {
                // Whoever asked may have gone.
                let _ = reply.send(self.journal.meet(peer, instance)?);
            }
            flushed.into_iter().for_each(|reply| {
                let _ = reply.send(());
            });
            if has_ended {
                break;
            }
        }
        Ok(())
    }

    fn store(&mut self, batches: Vec<Batch>) -> Result<(), Error> {
        let received = batches.iter().flat_map(|batch| batch.received.iter().chain(&batch.skipped).cloned());
        let received: Vec<Inbound> = received.collect();
        let due: BTreeSet<PartyId> = received.iter().map(|message| message.from).collect();
        let tests = batches.iter().flat_map(|batch| &batch.tests);
        let ended: Vec<(RequestId, Vec<u8>)> =
            tests.filter_map(|test| Some((test.test.request, test.result.clone()?))).collect();
        // What was received is audited first: should this process be killed now, it comes again, and is known. What is
        // sent has no number before it is kept, and nobody has it before it is audited.
        // What the journal lets go of it cannot tell the audit again.
        let lets_go = batches.iter().any(|batch| {
            !(batch.acknowledged.is_empty() && batch.over.is_empty() && batch.skipped.is_empty())
        });
        if let Some(audit) = &mut self.audit {
            received.iter().try_for_each(|message| audit.received(message))?;
            if lets_go { audit.sync()? } else { audit.write_out()? }
        }
        let outbound = self.journal.commit(batches)?;
        self.replies.store(self.journal.replies(), Ordering::Relaxed);
        if let Some(audit) = &mut self.audit {
            outbound.iter().try_for_each(|message| audit.sent(message))?;
            audit.write_out()?;
            audit.stored(&|peer| self.journal.next_in(peer));
        }
        for from in due {
            if let Some(peer) = self.peers.get(&from) {
                peer.stored(self.journal.next_in(from));
            }
        }
        for message in outbound {
            if let Some(peer) = self.peers.get(&message.to) {
                peer.post(message);
            }
        }
        for (request, result) in ended {
            let what = "a test's result that decodes";
            let local = |_| Error::Role(secsv_protocol::Error::Local { what });
            let result = TestResult::decode(&result).map_err(local)?;
            if let Some(results) = &self.results {
                // The evaluation may have ended.
                let _ = results.send((request, result));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use secsv_protocol::{Scope, TestId, message::Kind};

    use super::*;
    use crate::journal::{Body, Owner};

    /// Writes down what it is asked for.
    struct Note(Arc<Mutex<Vec<&'static str>>>);

    impl Note {
        fn down(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl AuditSink for Note {
        fn received(&mut self, _: &Inbound) -> Result<(), Error> {
            self.down("received");
            Ok(())
        }

        fn sent(&mut self, _: &Outbound) -> Result<(), Error> {
            self.down("sent");
            Ok(())
        }

        fn write_out(&mut self) -> Result<(), Error> {
            self.down("write out");
            Ok(())
        }

        fn sync(&mut self) -> Result<(), Error> {
            self.down("sync");
            Ok(())
        }

        fn stored(&mut self, due: &dyn Fn(PartyId) -> u64) {
            self.down(if due(PartyId::Principal) == 0 { "kept before" } else { "kept after" });
        }
    }

    /// After a power cut the journal tells the audit again what it still has: so what it lets go of must be on the disk.
    #[test]
    fn the_audit_log_is_synced_before_the_journal_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let owner = Owner { party: PartyId::Client(0), federation: [1; 32], files: None };
        let journal = Journal::open(directory.path(), &owner, || [2; 48]).unwrap();
        let notes = Arc::new(Mutex::new(Vec::new()));
        let audit: Option<Box<dyn AuditSink>> = Some(Box::new(Note(notes.clone())));
        let mut writer =
            JournalWriter { journal, peers: Arc::default(), audit, results: None, replies: Arc::default() };
        let message = |number| {
            let (from, kind, scope) = (PartyId::Principal, Kind::TestFinished, Scope::Session);
            let body = Body::Inline(Arc::new(vec![1]));
            Inbound { from, number, kind, scope, digest: [0; 32], length: 1, body }
        };
        let mut asked = |batch: Batch| {
            writer.store(vec![batch]).unwrap();
            std::mem::take(&mut *notes.lock().unwrap())
        };
        let received = vec![message(0)];
        let kept = ["received", "write out", "write out", "kept after"];
        assert_eq!(asked(Batch { received, ..Batch::default() }), kept);
        let lets_go = [
            Batch { over: vec![Scope::Test(TestId::first(1u32))], ..Batch::default() },
            Batch { acknowledged: vec![(PartyId::Principal, 0)], ..Batch::default() },
            Batch { skipped: vec![message(1)], ..Batch::default() },
        ];
        for batch in lets_go {
            let asked = asked(batch);
            assert_eq!(asked[asked.len() - 3..], ["sync", "write out", "kept after"]);
        }
    }
}

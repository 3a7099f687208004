//! What a party must not forget: its seed, what it received, what it sends, what it has finished. A process may be killed
//! at any moment; the next one goes on from here.
//!
//! A party's role is rebuilt by giving it again what it received. Everything it says then it has said before, in the same
//! words, because its randomness follows from the seed by purpose: so what the journal has already is not sent twice, and
//! what was not acknowledged is sent again as it was stored.

mod blob_store;
pub(crate) mod content_slots;
mod ended;
mod error;
mod private_files;
mod store;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use secsv_protocol::{PartyId, Scope, Seed, TestId, message::Kind};

pub use blob_store::{BlobRef, BlobStore};
pub use content_slots::{Claim, ContentSlots, Filled, Way};
pub(crate) use ended::has_ended;
pub use ended::{end, ended, give_up};
pub use error::JournalError;
pub(crate) use private_files::private_directory;
use private_files::private_file;
pub use secsv_protocol::role::Digest;
use store::JournalStore;
use tables::Tables;

/// Contents up to this size are kept in the store itself.
const INLINE: usize = 2 << 10;

/// Who a state directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The party.
    pub party: PartyId,
    /// The federation's digest.
    pub federation: [u8; 32],
    /// Digests of everything that the party will ever encode, by file; none for whoever encodes nothing any more.
    pub files: Option<BTreeMap<String, Digest>>,
}

/// Content, in memory or on the blobs.
#[derive(Clone, Debug)]
pub enum Body {
    /// Small enough to be at hand.
    Inline(Arc<Vec<u8>>),
    /// On the blobs, and perhaps still in memory.
    Stored(Arc<BlobRef>, Option<Arc<Vec<u8>>>),
}

impl Body {
    /// Content on its way to the journal.
    fn put(room: &Arc<blob_store::BlobFile>, content: &Arc<Vec<u8>>) -> Result<Self, JournalError> {
        Ok(if content.len() > INLINE {
            Self::Stored(room.put(content)?, Some(content.clone()))
        } else {
            Self::Inline(content.clone())
        })
    }

    /// Content that was received: it must last. Whoever has it in memory keeps it there.
    pub fn received(blobs: &BlobStore, content: &Arc<Vec<u8>>) -> Result<Self, JournalError> {
        Ok(match Self::put(blobs.received(), content)? {
            Self::Stored(place, _) => Self::Stored(place, None),
            inline => inline,
        })
    }

    /// Content to be sent.
    pub fn sent(blobs: &BlobStore, content: &Arc<Vec<u8>>) -> Result<Self, JournalError> {
        Self::put(blobs.sent(), content)
    }

    fn place(&self) -> Option<Arc<BlobRef>> {
        match self {
            Self::Inline(_) => None,
            Self::Stored(place, _) => Some(place.clone()),
        }
    }
}

/// A message that was received and understood.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// From whom.
    pub from: PartyId,
    /// Its number on the link.
    pub number: u64,
    /// What it holds.
    pub kind: Kind,
    /// What it is about.
    pub scope: Scope,
    /// Of its content.
    pub digest: Digest,
    /// Bytes of its content.
    pub length: u64,
    /// The content.
    pub body: Body,
}

/// A message on its way out, with its number on the link.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// To whom.
    pub to: PartyId,
    /// Its number on the link.
    pub number: u64,
    /// What it holds.
    pub kind: Kind,
    /// Of its content.
    pub digest: Digest,
    /// Bytes of its content.
    pub length: u64,
    /// The content.
    pub body: Body,
}

/// A test the principal was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRecord {
    /// Which.
    pub test: TestId,
    /// What was asked, in the principal's words.
    pub request: Vec<u8>,
    /// What was found, if it has ended.
    pub result: Option<Vec<u8>>,
}

/// What is to be kept together.
#[derive(Default)]
pub struct Batch {
    /// Messages received: they may be acknowledged afterwards.
    pub received: Vec<Inbound>,
    /// Messages received about something that is over: their contents are not kept.
    pub skipped: Vec<Inbound>,
    /// Messages that the role wants to send.
    pub sent: Vec<Emission>,
    /// How far peers have acknowledged: the number of the first message they do not have.
    pub acknowledged: Vec<(PartyId, u64)>,
    /// Assignments of the principal's planner.
    pub assigned: Vec<Vec<u8>>,
    /// Tests asked for, and results.
    pub tests: Vec<TestRecord>,
    /// What has ended.
    pub over: Vec<Scope>,
    /// ContentSlots that are filled from now on.
    pub filled: Vec<Filled>,
}

impl Batch {
    /// Whether nothing is to be kept.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
            && self.skipped.is_empty()
            && self.sent.is_empty()
            && self.acknowledged.is_empty()
            && self.assigned.is_empty()
            && self.tests.is_empty()
            && self.over.is_empty()
            && self.filled.is_empty()
    }
}

/// A message that a role wants to send.
#[derive(Debug)]
pub struct Emission {
    /// To whom.
    pub to: PartyId,
    /// What it holds.
    pub kind: Kind,
    /// What it is about.
    pub scope: Scope,
    /// Of the content.
    pub digest: Digest,
    /// Bytes of the content.
    pub length: u64,
    /// The content.
    pub body: Body,
    /// Ciphertexts in it that the receiver is to decrypt.
    pub replies: u64,
}

/// A party's journal.
pub struct Journal {
    path: PathBuf,
    store: Arc<JournalStore>,
    blobs: BlobStore,
    /// Held as long as the process lives.
    _lock: File,
    seed: Seed,
    instance: [u8; 16],
    /// Numbers of the next messages, by peer.
    next_out: BTreeMap<PartyId, u64>,
    next_in: BTreeMap<PartyId, u64>,
    acknowledged: BTreeMap<PartyId, u64>,
    /// Where what is about something stands.
    inbound: BTreeMap<Scope, BTreeMap<u64, Option<Arc<BlobRef>>>>,
    emitted: BTreeMap<Scope, BTreeSet<u64>>,
    /// What an earlier process said, and how often: not to be said again.
    said: BTreeMap<(PartyId, Kind, Digest), (Scope, usize)>,
    outbound: BTreeMap<(PartyId, u64), Option<Arc<BlobRef>>>,
    finished: BTreeSet<TestId>,
    /// Ciphertexts that others were to decrypt, those of earlier processes included.
    replies: u64,
    next_row: u64,
}

impl Journal {
    /// Opens a state directory, or begins one with a seed that `draw` makes.
    pub fn open(path: &Path, owner: &Owner, draw: impl FnOnce() -> [u8; 48]) -> Result<Self, JournalError> {
        let lock = lock(path)?;
        let (store, random) = JournalStore::open(path, owner, draw)?;
        let (seed, instance) = random.split_at(32);
        let blobs = BlobStore::open(path)?;
        let mut journal = Self {
            path: path.to_owned(),
            store: Arc::new(store),
            blobs,
            _lock: lock,
            seed: Seed::from_bytes(seed.try_into().unwrap_or_default()),
            instance: instance.try_into().unwrap_or_default(),
            next_out: BTreeMap::new(),
            next_in: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            inbound: BTreeMap::new(),
            emitted: BTreeMap::new(),
            said: BTreeMap::new(),
            outbound: BTreeMap::new(),
            finished: BTreeSet::new(),
            replies: 0,
            next_row: 0,
        };
        journal.load()?;
        journal.blobs.trim()?;
        Ok(journal)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The party's randomness.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Drawn once for a state directory: peers tell one that was lost and begun again by it.
    pub fn instance(&self) -> [u8; 16] {
        self.instance
    }

    /// The number of the message that is due from a peer.
    pub fn next_in(&self, from: PartyId) -> u64 {
        self.next_in.get(&from).copied().unwrap_or(0)
    }

    /// The number of the next message to a peer.
    pub fn next_out(&self, to: PartyId) -> u64 {
        self.next_out.get(&to).copied().unwrap_or(0)
    }

    /// Ciphertexts that others were to decrypt, whichever process asked them to.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Tests that are over.
    pub fn finished(&self) -> &BTreeSet<TestId> {
        &self.finished
    }

    /// Whether a test is over: messages about it are not needed.
    pub fn is_finished(&self, scope: Scope) -> bool {
        matches!(scope, Scope::Test(test) if self.finished.contains(&test))
    }

    /// The instance of a peer that was met first; it is remembered.
    pub fn meet(&self, peer: PartyId, instance: [u8; 16]) -> Result<[u8; 16], JournalError> {
        self.store.meet(peer, instance)
    }

    /// Messages received and still of use, in the order in which they were understood.
    pub fn replay(&self) -> Result<Vec<Inbound>, JournalError> {
        self.store.inbound(&self.blobs)
    }

    /// Messages that their receivers have not acknowledged.
    pub fn unacknowledged(&self) -> Result<Vec<Outbound>, JournalError> {
        self.store.outbound(&self.blobs)
    }

    /// Messages below this number the peer has.
    pub fn acknowledged_by(&self, peer: PartyId) -> u64 {
        self.acknowledged.get(&peer).copied().unwrap_or(0)
    }

    /// Which places are filled.
    pub fn content_slots(&self) -> Result<ContentSlots, JournalError> {
        self.store.content_slots()
    }

    /// Assignments, in order.
    pub fn assignments(&self) -> Result<Vec<Vec<u8>>, JournalError> {
        self.store.assignments()
    }

    /// Tests asked for.
    pub fn tests(&self) -> Result<Vec<TestRecord>, JournalError> {
        self.store.tests()
    }

    /// Keeps batches in this order, all or none. When this returns, the disk has them. Returns what is to be sent:
    /// emissions that no earlier process made.
    pub fn commit(
        &mut self,
        batches: impl IntoIterator<Item = Batch>,
    ) -> Result<Vec<Outbound>, JournalError> {
        let (mut outbound, mut released) = (Vec::new(), Vec::new());
        let done = self.store.clone().transact(|tables| {
            for batch in batches {
                self.enter(tables, batch, &mut outbound, &mut released)?;
            }
            self.blobs.sync()
        });
        if done.is_err() {
            self.blobs.close();
        }
        // Not before: until then the store refers to what stands there.
        drop(released);
        done.map(|()| outbound)
    }

    fn enter(
        &mut self,
        write: &mut Tables<'_>,
        batch: Batch,
        outbound: &mut Vec<Outbound>,
        released: &mut Vec<Arc<BlobRef>>,
    ) -> Result<(), JournalError> {
        for message in batch.received {
            self.expect(message.from, message.number)?;
            write.received(self.next_row, &message)?;
            self.inbound.entry(message.scope).or_default().insert(self.next_row, message.body.place());
            self.next_in.insert(message.from, message.number + 1);
            self.next_row += 1;
        }
        for Inbound { from, number, .. } in batch.skipped {
            self.expect(from, number)?;
            write.due(from, number + 1);
            self.next_in.insert(from, number + 1);
        }
        for filled in &batch.filled {
            write.filled(filled)?;
        }
        for bytes in &batch.assigned {
            write.assigned(self.next_row, bytes)?;
            self.next_row += 1;
        }
        for test in &batch.tests {
            write.test(test)?;
        }
        for emission in batch.sent {
            // A role that takes its messages again may end a test before a job has said once more what belongs to it.
            if self.was_said(&emission) || self.is_finished(emission.scope) {
                continue;
            }
            let scope = emission.scope;
            if emission.replies > 0 {
                self.replies += emission.replies;
                write.replies(self.replies);
            }
            let message = self.numbered(emission);
            write.sent(self.next_row, &message, scope)?;
            self.emitted.entry(scope).or_default().insert(self.next_row);
            self.next_row += 1;
            outbound.push(message);
        }
        for (peer, number) in batch.acknowledged {
            let known = self.acknowledged.entry(peer).or_insert(0);
            *known = number.max(*known);
            write.acknowledged(peer, *known);
            let gone = self.outbound.extract_if((peer, 0)..(peer, *known), |_, _| true);
            for (key, place) in gone {
                released.extend(place);
                write.forget_outbound(key)?;
            }
        }
        for scope in batch.over {
            self.forget(write, scope, released)?;
        }
        Ok(())
    }

    /// Nothing may be acknowledged that comes behind a message which is not here.
    fn expect(&self, from: PartyId, found: u64) -> Result<(), JournalError> {
        let expected = self.next_in(from);
        if found == expected { Ok(()) } else { Err(JournalError::OutOfTurn { from, expected, found }) }
    }

    /// Whether an earlier process said this; each time it did counts once.
    fn was_said(&mut self, emission: &Emission) -> bool {
        let key = (emission.to, emission.kind, emission.digest);
        let Some((_, times)) = self.said.get_mut(&key) else { return false };
        *times -= 1;
        if *times == 0 {
            self.said.remove(&key);
        }
        true
    }

    fn numbered(&mut self, emission: Emission) -> Outbound {
        let Emission { to, kind, digest, length, body, .. } = emission;
        let next = self.next_out.entry(to).or_insert(0);
        let number = *next;
        *next += 1;
        self.outbound.insert((to, number), body.place());
        Outbound { to, number, kind, digest, length, body }
    }

    /// Lets go of everything about something, and releases the contents that go with it.
    fn forget(
        &mut self,
        write: &mut Tables<'_>,
        scope: Scope,
        released: &mut Vec<Arc<BlobRef>>,
    ) -> Result<(), JournalError> {
        if let Scope::Test(test) = scope {
            self.finished.insert(test);
            write.finished(test)?;
            write.forget_places(test)?;
        }
        // All of it first: should the store fail, nothing may be written where the contents stand.
        let rows = self.inbound.remove(&scope).unwrap_or_default();
        released.extend(rows.values().flatten().cloned());
        rows.keys().try_for_each(|&row| write.forget_inbound(row))?;
        for row in self.emitted.remove(&scope).unwrap_or_default() {
            write.forget_emitted(row)?;
        }
        self.said.retain(|_, (about, _)| *about != scope);
        Ok(())
    }

    /// Where contents are written.
    pub fn blobs(&self) -> &BlobStore {
        &self.blobs
    }

    fn load(&mut self) -> Result<(), JournalError> {
        let loaded = self.store.load()?;
        (self.next_in, self.next_out, self.acknowledged) =
            (loaded.next_in, loaded.next_out, loaded.acknowledged);
        (self.finished, self.replies, self.next_row) = (loaded.finished, loaded.replies, loaded.next_row);
        for message in self.store.inbound(&self.blobs)?.iter().zip(&loaded.inbound_rows) {
            let (message, &row) = message;
            self.inbound.entry(message.scope).or_default().insert(row, message.body.place());
        }
        for message in self.store.outbound(&self.blobs)? {
            self.outbound.insert((message.to, message.number), message.body.place());
        }
        for (row, key, scope) in loaded.emitted {
            self.emitted.entry(scope).or_default().insert(row);
            self.said.entry(key).or_insert((scope, 0)).1 += 1;
        }
        Ok(())
    }
}

/// A state directory for this process alone, as long as this is there.
fn lock(path: &Path) -> Result<File, JournalError> {
    private_directory(path)?;
    let lock_path = path.join("lock");
    let lock = private_file(&lock_path).map_err(JournalError::system(&lock_path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(JournalError::InUse { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(JournalError::System { path: lock_path, source }),
    }
}

impl Drop for Journal {
    /// BlobFile that nothing uses is given back. What a killed process leaves of it is given back when the next one opens.
    fn drop(&mut self) {
        let _ = self.blobs.trim();
        // Others may still have the blobs, and nobody tells any more what must stay.
        self.blobs.close();
    }
}

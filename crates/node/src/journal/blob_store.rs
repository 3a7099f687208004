//! Larger contents, in two files whose room is used again: a file of one's own for every message cost more than the network
//! did. They go to the disk past the system's cache where it allows that: nobody reads them unless a process was killed, and
//! new pages of the cache cost more than anything else about them.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use secsv_protocol::role::Digest;

use super::{
    Body, JournalError,
    private_files::{no_follow, private_file},
};

/// BlobFile is given out in pages.
const PAGE: u64 = 4096;

/// Where contents are written: any thread may.
#[derive(Clone, Debug)]
pub struct BlobStore {
    received: Arc<BlobFile>,
    sent: Arc<BlobFile>,
}

impl BlobStore {
    pub(super) fn open(state: &Path) -> Result<Self, JournalError> {
        let room = |name| BlobFile::open(state.join(name)).map(Arc::new);
        let blobs = Self { received: room("received.contents")?, sent: room("sent.contents")? };
        // The files themselves must outlast a power cut.
        File::open(state).and_then(|d| d.sync_all()).map_err(JournalError::system(state))?;
        Ok(blobs)
    }

    /// The room of what was received.
    pub(super) fn received(&self) -> &Arc<BlobFile> {
        &self.received
    }

    /// The room of what is sent.
    pub(super) fn sent(&self) -> &Arc<BlobFile> {
        &self.sent
    }

    /// Content of a message.
    pub fn read(&self, body: &Body, digest: &Digest) -> Result<Vec<u8>, JournalError> {
        let place = match body {
            Body::Inline(content) => return Ok(content.to_vec()),
            Body::Stored(place, _) => place,
        };
        let path = &place.room.path;
        let content = place.read(0, place.length as usize).map_err(JournalError::system(path))?;
        if blake3::hash(&content) != *digest {
            let (path, what) = (path.clone(), "content that does not fit its digest");
            return Err(JournalError::Damaged { path, what });
        }
        Ok(content)
    }

    /// Contents that stand on it.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        [&self.received, &self.sent].into_iter().map(|room| room.places().len()).sum()
    }

    /// Has the disk keep what was written so far.
    pub(super) fn sync(&self) -> Result<(), JournalError> {
        [&self.received, &self.sent].into_iter().try_for_each(|room| room.sync())
    }

    /// Gives back what lies behind the last content.
    pub(super) fn trim(&self) -> Result<(), JournalError> {
        [&self.received, &self.sent].into_iter().try_for_each(|room| room.trim())
    }

    /// Nothing is written any more: the store may refer to places that nobody here holds.
    pub(super) fn close(&self) {
        [&self.received, &self.sent].into_iter().for_each(|room| room.closed.store(true, Ordering::SeqCst));
    }
}

/// A file of contents.
#[derive(Debug)]
pub(super) struct BlobFile {
    path: PathBuf,
    file: File,
    /// The same, past the system's cache, where there is such a thing.
    direct: Option<Direct>,
    /// By their first pages.
    places: Mutex<BTreeMap<u64, Taken>>,
    closed: AtomicBool,
    /// Something was written that the disk may not keep yet.
    unsynced: AtomicBool,
}

#[derive(Debug)]
struct Taken {
    pages: u64,
    place: Weak<BlobRef>,
}

/// Where content stands. When the last one who knows lets go, other content may be written there.
#[derive(Debug)]
pub struct BlobRef {
    room: Arc<BlobFile>,
    page: u64,
    length: u64,
}

impl Drop for BlobRef {
    fn drop(&mut self) {
        self.room.places().remove(&self.page);
    }
}

impl BlobRef {
    /// Its first page, by which it is found again.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// A part of the content.
    pub fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; size];
        self.room.file.read_exact_at(&mut data, self.page * PAGE + at)?;
        Ok(data)
    }
}

impl BlobFile {
    fn open(path: PathBuf) -> Result<Self, JournalError> {
        let file = private_file(&path).map_err(JournalError::system(&path))?;
        let direct = Direct::open(&path);
        let (closed, unsynced) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { path, file, direct, places: Mutex::default(), closed, unsynced })
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u64, Taken>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes content where there is room.
    pub fn put(self: &Arc<Self>, content: &[u8]) -> Result<Arc<BlobRef>, JournalError> {
        let length = content.len() as u64;
        let place = {
            let mut places = self.places();
            if self.closed.load(Ordering::SeqCst) {
                return Err(JournalError::Closed { path: self.path.clone() });
            }
            let (pages, mut page) = (length.div_ceil(PAGE), 0);
            for (&taken, Taken { pages: of, .. }) in &*places {
                if page + pages <= taken {
                    break;
                }
                page = taken + of;
            }
            self.take(&mut places, page, length)
        };
        // The lock is free: others write beside.
        let at = place.page * PAGE;
        // Refused by some systems only when something is written.
        let is_written = self.direct.as_ref().is_some_and(|direct| direct.write(content, at).is_ok());
        let written = if is_written { Ok(()) } else { self.file.write_all_at(content, at) };
        self.unsynced.store(true, Ordering::SeqCst);
        written.map_err(JournalError::system(&self.path)).map(|()| place)
    }

    /// Content that an earlier process wrote; it may be that of several messages.
    pub fn find(self: &Arc<Self>, page: u64, length: u64) -> Result<Arc<BlobRef>, JournalError> {
        let damaged = || JournalError::Damaged { path: self.path.clone(), what: "contents that overlap" };
        let mut places = self.places();
        if let Some(place) = places.get(&page).and_then(|taken| taken.place.upgrade()) {
            // Whoever lets go of a place needs the lock.
            drop(places);
            return if place.length == length { Ok(place) } else { Err(damaged()) };
        }
        let end = page.saturating_add(length.div_ceil(PAGE));
        let before = places.range(..page).next_back().map_or(0, |(first, taken)| first + taken.pages);
        let after = places.range(page..).next().map_or(u64::MAX, |(&first, _)| first);
        if before > page || after < end {
            return Err(damaged());
        }
        Ok(self.take(&mut places, page, length))
    }

    fn take(self: &Arc<Self>, places: &mut BTreeMap<u64, Taken>, page: u64, length: u64) -> Arc<BlobRef> {
        let place = Arc::new(BlobRef { room: self.clone(), page, length });
        let taken = Taken { pages: length.div_ceil(PAGE), place: Arc::downgrade(&place) };
        places.insert(page, taken);
        place
    }

    /// Has the disk keep what was written.
    pub fn sync(&self) -> Result<(), JournalError> {
        // Before: what is written from now on is for the next time.
        if !self.unsynced.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.file.sync_data().map_err(JournalError::system(&self.path))
    }

    fn trim(&self) -> Result<(), JournalError> {
        let places = self.places();
        if self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let end = places.last_key_value().map_or(0, |(page, taken)| page + taken.pages);
        self.file.set_len(end * PAGE).map_err(JournalError::system(&self.path))
    }
}

/// A file that is written past the system's cache: whole pages, from memory that begins at one.
#[derive(Debug)]
struct Direct {
    file: File,
    /// Memory to write from.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Direct {
    /// Bytes that are written at a time.
    const PIECE: usize = 1 << 20;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn open(path: &Path) -> Option<Self> {
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32 | no_follow();
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
        Some(Self { file, spare: Mutex::default() })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn open(_: &Path) -> Option<Self> {
        None
    }

    /// Writes content from the beginning of a page on; the rest of its last page is zero.
    fn write(&self, content: &[u8], at: u64) -> io::Result<()> {
        if content.as_ptr().align_offset(PAGE as usize) > 0 {
            return self.write_copied(content, at);
        }
        let (whole, rest) = content.split_at(content.len() - content.len() % PAGE as usize);
        self.file.write_all_at(whole, at)?;
        self.write_copied(rest, at + whole.len() as u64)
    }

    /// The same of content that lies anywhere.
    fn write_copied(&self, content: &[u8], at: u64) -> io::Result<()> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let known = spare().pop();
        let mut memory = known.unwrap_or_else(|| vec![0; Self::PIECE + PAGE as usize]);
        let first = memory.as_ptr().align_offset(PAGE as usize);
        let mut outcome = Ok(());
        for (k, piece) in content.chunks(Self::PIECE).enumerate() {
            let pages = &mut memory[first..][..piece.len().next_multiple_of(PAGE as usize)];
            pages[..piece.len()].copy_from_slice(piece);
            pages[piece.len()..].fill(0);
            outcome = self.file.write_all_at(pages, at + (k * Self::PIECE) as u64);
            if outcome.is_err() {
                break;
            }
        }
        spare().push(memory);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::journal::private_files::new_private_file;

    /// Whole pages and parts of them, more than one piece, from wherever they lie: with the system's cache and past it.
    #[test]
    fn contents_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut room = BlobFile::open(directory.path().join("contents")).unwrap();
        println!("past the cache: {}", room.direct.is_some());
        for direct in [room.direct.take(), None] {
            room.direct = direct;
            let shared = Arc::new(room);
            let lengths = [1, 4095, 4096, 4097, Direct::PIECE - 1, Direct::PIECE, 3 * Direct::PIECE + 123];
            let bytes: Vec<u8> = (0..4 * Direct::PIECE).map(|i| (i * i / 7) as u8).collect();
            let contents: Vec<&[u8]> =
                lengths.iter().zip([0, 1, 64, 4096, 7, 8192, 9]).map(|(&n, at)| &bytes[at..at + n]).collect();
            let places: Vec<Arc<BlobRef>> =
                contents.iter().map(|content| shared.put(content).unwrap()).collect();
            assert!(shared.unsynced.load(Ordering::SeqCst));
            shared.sync().unwrap();
            assert!(!shared.unsynced.load(Ordering::SeqCst));
            for (content, place) in contents.iter().zip(&places) {
                assert!(place.read(0, content.len()).unwrap() == *content, "{} bytes", content.len());
            }
            drop(places);
            room = Arc::try_unwrap(shared).unwrap();
        }
    }

    /// What a link points at keeps its bytes: a lock or contents are not written through it.
    #[test]
    fn links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("lock"));
        fs::write(&victim, b"precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(private_file(&link).is_err(), "a link was followed");
        assert!(BlobFile::open(link.clone()).is_err(), "a link was followed");
        new_private_file(&link).unwrap();
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        // One that is there keeps its bytes too.
        private_file(&victim).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    /// Should the system refuse, contents go through its cache.
    #[test]
    fn a_refusal_does_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contents");
        let mut room = BlobFile::open(path.clone()).unwrap();
        // A file that cannot be written to refuses.
        room.direct = Some(Direct { file: File::open(&path).unwrap(), spare: Mutex::default() });
        let room = Arc::new(room);
        let content = vec![5; 9000];
        assert!(room.put(&content).unwrap().read(0, 9000).unwrap() == content);
    }
}

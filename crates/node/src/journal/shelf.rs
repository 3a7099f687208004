//! Larger contents, in two files whose room is used again: a file of one's own for every message cost more than the network
//! did. They go to the disk past the system's cache where it allows that: nobody reads them unless a process was killed, and
//! new pages of the cache cost more than anything else about them.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{
        DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Body, JournalError,
    store::{ENDED, JOURNAL},
};

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// Room is given out in pages.
const PAGE: u64 = 4096;

/// A directory that its owner alone can look into, and that outlasts a power cut. One that is there already and is another user's is
/// refused; one that others can look into is tightened if it is empty or a state nobody else could write to, and refused otherwise.
pub(super) fn private_directory(path: &Path) -> Result<(), JournalError> {
    if path.is_dir() {
        return tighten(path);
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kept = made.and_then(|()| File::open(parent)).and_then(|parent| parent.sync_all());
    kept.map_err(JournalError::system(path))
}

fn tighten(path: &Path) -> Result<(), JournalError> {
    let found = fs::metadata(path).map_err(JournalError::system(path))?;
    let (mode, uid, own) = (found.mode() & 0o7777, found.uid(), rustix::process::geteuid().as_raw());
    if uid == own && mode & 0o077 == 0 {
        return Ok(());
    }
    let is_empty = fs::read_dir(path).map_err(JournalError::system(path))?.next().is_none();
    let is_state = mode & 0o022 == 0 && [JOURNAL, ENDED].iter().any(|name| path.join(name).is_file());
    if uid != own || !(is_empty || is_state) {
        return Err(JournalError::NotPrivate { path: path.to_owned(), mode, uid, own });
    }
    tracing::warn!(path = %path.display(), "the state directory was open to others: it is its owner's alone now");
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(JournalError::system(path))
}

/// A file that its owner alone can read, as it is or new. A link in its place is refused: what it points at is somebody else's.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)
}

/// An empty file that its owner alone can read. Whatever had its name before is gone, not written to.
pub(super) fn new_private_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// A link in the place of a file is not followed.
pub(super) fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

/// Where contents are written: any thread may.
#[derive(Clone, Debug)]
pub struct Shelf {
    received: Arc<Room>,
    sent: Arc<Room>,
}

impl Shelf {
    pub(super) fn open(state: &Path) -> Result<Self, JournalError> {
        let room = |name| Room::open(state.join(name)).map(Arc::new);
        let shelf = Self { received: room("received.contents")?, sent: room("sent.contents")? };
        // The files themselves must outlast a power cut.
        File::open(state).and_then(|d| d.sync_all()).map_err(JournalError::system(state))?;
        Ok(shelf)
    }

    /// The room of what was received.
    pub(super) fn received(&self) -> &Arc<Room> {
        &self.received
    }

    /// The room of what is sent.
    pub(super) fn sent(&self) -> &Arc<Room> {
        &self.sent
    }

    /// Content of a message.
    pub fn read(&self, body: &Body, digest: &Digest) -> Result<Vec<u8>, JournalError> {
        let place = match body {
            Body::Inline(content) => return Ok(content.to_vec()),
            Body::Shelved(place, _) => place,
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
pub(super) struct Room {
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
    place: Weak<Place>,
}

/// Where content stands. When the last one who knows lets go, other content may be written there.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    page: u64,
    length: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.places().remove(&self.page);
    }
}

impl Place {
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

impl Room {
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
    pub fn put(self: &Arc<Self>, content: &[u8]) -> Result<Arc<Place>, JournalError> {
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
    pub fn find(self: &Arc<Self>, page: u64, length: u64) -> Result<Arc<Place>, JournalError> {
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

    fn take(self: &Arc<Self>, places: &mut BTreeMap<u64, Taken>, page: u64, length: u64) -> Arc<Place> {
        let place = Arc::new(Place { room: self.clone(), page, length });
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
    use super::*;

    /// Whole pages and parts of them, more than one piece, from wherever they lie: with the system's cache and past it.
    #[test]
    fn contents_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut room = Room::open(directory.path().join("contents")).unwrap();
        println!("past the cache: {}", room.direct.is_some());
        for direct in [room.direct.take(), None] {
            room.direct = direct;
            let shared = Arc::new(room);
            let lengths = [1, 4095, 4096, 4097, Direct::PIECE - 1, Direct::PIECE, 3 * Direct::PIECE + 123];
            let bytes: Vec<u8> = (0..4 * Direct::PIECE).map(|i| (i * i / 7) as u8).collect();
            let contents: Vec<&[u8]> =
                lengths.iter().zip([0, 1, 64, 4096, 7, 8192, 9]).map(|(&n, at)| &bytes[at..at + n]).collect();
            let places: Vec<Arc<Place>> =
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
        assert!(Room::open(link.clone()).is_err(), "a link was followed");
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
        let mut room = Room::open(path.clone()).unwrap();
        // A file that cannot be written to refuses.
        room.direct = Some(Direct { file: File::open(&path).unwrap(), spare: Mutex::default() });
        let room = Arc::new(room);
        let content = vec![5; 9000];
        assert!(room.put(&content).unwrap().read(0, 9000).unwrap() == content);
    }
}

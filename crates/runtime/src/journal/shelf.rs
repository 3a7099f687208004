//! Larger contents, in two files whose room is used again: what lets go of its pages leaves them to what comes next. Pages
//! that the system has at hand cost a fifteenth of new ones, and a file of one's own for every message cost more than the
//! network did.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{Body, JournalError};

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// Room is given out in pages.
const PAGE: u64 = 4096;

/// A directory that its owner alone can look into.
pub(super) fn private_directory(path: &Path) -> Result<(), JournalError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(JournalError::system(path))
}

/// An empty file that its owner alone can read.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
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

    /// The room of what was received, which must last.
    pub(super) fn received(&self) -> &Arc<Room> {
        &self.received
    }

    /// The room of what is sent: the role can say it again, in the same words, should the disk not have it after a power cut.
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
    /// By their first pages.
    places: Mutex<BTreeMap<u64, Taken>>,
    closed: AtomicBool,
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
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(JournalError::system(&path))?;
        Ok(Self { path, file, places: Mutex::default(), closed: AtomicBool::new(false) })
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
        let written = self.file.write_all_at(content, place.page * PAGE);
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

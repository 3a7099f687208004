//! Large contents as files named by their digests. A file of that name is whole: it was written under another name, told
//! to the disk and then renamed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Body, JournalError};

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// A directory that its owner alone can look into.
pub(super) fn private_directory(path: &Path) -> Result<(), JournalError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(JournalError::system(path))
}

/// A file that its owner alone can read.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Content written to a file that has not its name yet. Dropped, it is gone.
#[derive(Debug)]
pub struct Fresh {
    partial: PathBuf,
    file: File,
    digest: Digest,
    /// Whether the disk must have it before anything is said about it.
    must_last: bool,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // After it got its name there is nothing under the other one.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Where contents are written: any thread may.
#[derive(Clone, Debug)]
pub struct Shelf(PathBuf);

/// No two files are written under one name.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

impl Shelf {
    /// Where content of this digest is once it is kept.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.0.join(blake3::Hash::from(*digest).to_hex().as_str())
    }

    /// Content of a message.
    pub fn read(&self, body: &Body, digest: &Digest) -> Result<Vec<u8>, JournalError> {
        let path = match body {
            Body::Inline(content) => return Ok(content.to_vec()),
            Body::File(path, _) => path,
        };
        let content = fs::read(path).map_err(JournalError::system(path))?;
        if blake3::hash(&content) != *digest {
            let (path, what) = (path.clone(), "its content is not what its name says");
            return Err(JournalError::Damaged { path, what });
        }
        Ok(content)
    }

    /// Writes content, to be kept later.
    pub fn write(&self, digest: Digest, content: &[u8], must_last: bool) -> Result<Fresh, JournalError> {
        let extension = format!("{}.partial", WRITTEN.fetch_add(1, Ordering::Relaxed));
        let partial = self.path(&digest).with_extension(extension);
        let mut file = private_file(&partial).map_err(JournalError::system(&partial))?;
        file.write_all(content).map_err(JournalError::system(&partial))?;
        Ok(Fresh { partial, file, digest, must_last })
    }
}

/// The disk takes hardly longer for several files than for one, if it is asked at the same time.
fn sync_all(files: &[Fresh]) -> Result<(), JournalError> {
    const AT_ONCE: usize = 8;
    let sync = |fresh: &Fresh| fresh.file.sync_data().map_err(JournalError::system(&fresh.partial));
    if let [only] = files {
        return sync(only);
    }
    std::thread::scope(|scope| {
        let share = files.len().div_ceil(AT_ONCE).max(1);
        let threads: Vec<_> =
            files.chunks(share).map(|files| scope.spawn(move || files.iter().try_for_each(sync))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// The blobs of a state directory, with how often each is referred to.
pub(super) struct Blobs {
    shelf: Shelf,
    references: BTreeMap<Digest, usize>,
    /// Taken over since the last commit.
    fresh: Vec<Fresh>,
}

impl Blobs {
    pub fn open(directory: PathBuf) -> Result<Self, JournalError> {
        private_directory(&directory)?;
        Ok(Self { shelf: Shelf(directory), references: BTreeMap::new(), fresh: Vec::new() })
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.shelf.path(digest)
    }

    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.references.contains_key(digest)
    }

    /// One more reference.
    pub fn refer(&mut self, digest: Digest) {
        *self.references.entry(digest).or_default() += 1;
    }

    /// Keeps content and counts the reference. What need not last gets its name at once.
    pub fn keep(&mut self, fresh: Fresh) -> Result<(), JournalError> {
        let is_known = self.references.contains_key(&fresh.digest);
        self.refer(fresh.digest);
        if fresh.must_last {
            self.fresh.push(fresh);
        } else if !is_known {
            let path = self.path(&fresh.digest);
            fs::rename(&fresh.partial, path).map_err(JournalError::system(&fresh.partial))?;
        }
        Ok(())
    }

    /// Has the disk keep what was written, under its name.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let fresh = std::mem::take(&mut self.fresh);
        sync_all(&fresh)?;
        for fresh in fresh {
            fs::rename(&fresh.partial, self.path(&fresh.digest))
                .map_err(JournalError::system(&fresh.partial))?;
        }
        let directory = &self.shelf.0;
        File::open(directory).and_then(|d| d.sync_all()).map_err(JournalError::system(directory))
    }

    /// One reference less; the last one takes the file with it.
    pub fn release(&mut self, digest: &Digest) {
        let Some(count) = self.references.get_mut(digest) else { return };
        *count -= 1;
        if *count == 0 {
            self.references.remove(digest);
            // What stays behind is removed when the directory is opened next.
            let _ = fs::remove_file(self.path(digest));
        }
    }

    /// Removes files that nothing refers to: an earlier process was killed before or after it needed them.
    pub fn sweep(&self) -> Result<(), JournalError> {
        let wanted: BTreeSet<PathBuf> = self.references.keys().map(|digest| self.path(digest)).collect();
        let entries = fs::read_dir(&self.shelf.0).map_err(JournalError::system(&self.shelf.0))?;
        for entry in entries.flatten().filter(|entry| !wanted.contains(&entry.path())) {
            fs::remove_file(entry.path()).map_err(JournalError::system(&entry.path()))?;
        }
        Ok(())
    }
}

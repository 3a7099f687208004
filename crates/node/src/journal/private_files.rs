//! Files and directories that their owner alone can look into.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use super::JournalError;

/// The store's file, and its file once the run has ended.
pub(super) const JOURNAL: &str = "journal.redb";
pub(super) const ENDED: &str = "ended.redb";

/// A directory that its owner alone can look into, and that outlasts a power cut. One that is there already and is another user's is
/// refused; one that others can look into is tightened if it is empty or a state nobody else could write to, and refused otherwise.
pub(crate) fn private_directory(path: &Path) -> Result<(), JournalError> {
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

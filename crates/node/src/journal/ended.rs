//! The end of a state directory. What is secret is overwritten and removed: seed, shares, models, replies, and whatever else was sent or
//! received. What stays lets a party that is started again say that it has ended: the values, and how far its links had come.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use super::{
    JournalError, Owner, lock,
    private_files::{ENDED, JOURNAL, no_follow},
    store::JournalStore,
};

/// Files of a run, besides the journal itself.
const CONTENTS: [&str; 4] = ["received.contents", "sent.contents", "journal.new", "ended.new"];
/// Bytes that are overwritten at a time.
const PIECE: usize = 1 << 20;

/// Ends a state directory that nobody uses any more: keeps the values, overwrites and removes everything secret.
pub fn end(state: &Path, owner: &Owner, values: &[u8]) -> Result<(), JournalError> {
    let _lock = lock(state)?;
    if !is_ended(state)? {
        // It gets its name when it is whole: from then on it counts, whoever is killed meanwhile.
        JournalStore::open(state, owner, || [0; 48])?.0.write_ended(state, owner, values)?;
    }
    wipe(state)
}

/// The values of a run that has ended in this state directory; whoever was killed while it was wiped goes on with that.
pub fn ended(state: &Path, owner: &Owner) -> Result<Option<Vec<u8>>, JournalError> {
    if !state.is_dir() || !is_ended(state)? {
        return Ok(None);
    }
    let _lock = lock(state)?;
    wipe(state)?;
    let (store, _) = JournalStore::open(state, owner, || [0; 48])?;
    store.values()
}

/// Overwrites and removes everything secret of a run that will never end.
pub fn give_up(state: &Path) -> Result<(), JournalError> {
    let _lock = lock(state)?;
    wipe(state)
}

/// Whether the run of a state directory has ended with values.
pub(crate) fn has_ended(state: &Path) -> Result<bool, JournalError> {
    is_ended(state)
}

fn is_ended(state: &Path) -> Result<bool, JournalError> {
    let path = state.join(ENDED);
    path.try_exists().map_err(JournalError::system(&path))
}

fn wipe(state: &Path) -> Result<(), JournalError> {
    for name in CONTENTS.into_iter().chain([JOURNAL]) {
        let path = state.join(name);
        overwrite(&path).map_err(JournalError::system(&path))?;
    }
    File::open(state).and_then(|d| d.sync_all()).map_err(JournalError::system(state))
}

/// Zeros in place of all bytes of a file, on the disk before its name goes. What the disk keeps of them elsewhere is beyond reach.
fn overwrite(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().write(true).custom_flags(no_follow()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut left = file.metadata()?.len();
    let zeros = vec![0; PIECE];
    while left > 0 {
        let piece = left.min(PIECE as u64);
        file.write_all(&zeros[..piece as usize])?;
        left -= piece;
    }
    file.sync_all()?;
    fs::remove_file(path)
}

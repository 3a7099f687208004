//! Why a state directory cannot be used.

use std::path::{Path, PathBuf};

use secsv_protocol::PartyId;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has it.
    #[error("{}: another process of this party is at work with this state directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It belongs to another party, federation or version.
    #[error("{}: {field}: expected {expected}, found {found}: use another state directory", path.display())]
    Another {
        /// The directory.
        path: PathBuf,
        /// What differs.
        field: &'static str,
        /// Of the kit and the program.
        expected: String,
        /// Of the state directory.
        found: String,
    },
    /// Others have rights in it.
    #[error(
        "{}: expected a directory of user {own} with mode 700, found user {uid}, mode {mode:o}: \
         it holds a seed and shares; chmod 700 it, or use another",
        path.display()
    )]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// This process's user.
        own: u32,
    },
    /// The party has other files than this state was begun with.
    #[error(
        "{}: {file}: these are not the files this state was begun with. What a party encodes is covered by randomness that serves \
         once: put the file back, or begin a new session with a new state directory",
        path.display()
    )]
    OtherFile {
        /// The directory.
        path: PathBuf,
        /// The file that differs, is new or is gone.
        file: String,
    },
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds other bytes than were written.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A message that is not the next on its link: a fault of this program.
    #[error("a message from {from} out of turn: expected number {expected}, found {found}")]
    OutOfTurn {
        /// The sender.
        from: PartyId,
        /// The number that is due.
        expected: u64,
        /// The message's.
        found: u64,
    },
    /// The journal has failed or ended.
    #[error("{}: nothing is written any more: the journal has ended", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// The store.
    #[error("the journal's store: {0}")]
    Store(Box<redb::Error>),
}

impl JournalError {
    pub(super) fn system(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }

    /// Whether the state directory is at fault, and somebody can mend that.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::InUse { .. } | Self::Another { .. } | Self::NotPrivate { .. } | Self::OtherFile { .. }
        )
    }
}

/// The store has an error type for every call.
pub(super) fn store(error: impl Into<redb::Error>) -> JournalError {
    JournalError::Store(Box::new(error.into()))
}

//! Why a log cannot be kept.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::Fingerprint;

/// A log that cannot be read, continued or written.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {defect}", file.display(), line.map_or(String::new(), |line| format!(", line {line}")))]
pub struct AuditError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub defect: AuditDefect,
}

/// What is wrong with a log, or with what it is told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditDefect {
    /// The system could not read it.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The system could not write it.
    #[error("cannot be written: {0}")]
    Unwritable(io::Error),
    /// A line that does not follow from the one before.
    #[error(
        "expected a line that continues the chain, found one that was changed, moved or follows a missing one"
    )]
    Broken,
    /// A line that does not end: the writer was stopped in its middle.
    #[error("expected a whole line, found {bytes} bytes of one")]
    Torn {
        /// How many bytes of it are there.
        bytes: usize,
    },
    /// A line that continues the chain but says nothing that is known.
    #[error("expected an entry, found something else: {found}")]
    NotAnEntry {
        /// What the parser objected to.
        found: String,
    },
    /// The log of another party or federation.
    #[error("expected the log of {expected}, found that of {found}")]
    AnothersLog {
        /// Party and federation that belong here.
        expected: String,
        /// Party and federation in the first line.
        found: String,
    },
    /// A result that is not the one that was found.
    #[error("expected the values that were found, found others: it was changed")]
    AnothersResult,
    /// A federation file that is not the kit's.
    #[error("expected the federation file of the kit, found another: use another state directory")]
    AnothersFederation,
    /// The same frame with other bytes: what was sent must be sent again unchanged.
    #[error("frame {number} {direction} {peer} has the digest {found}, but was {expected} before")]
    Changed {
        /// Which way.
        direction: &'static str,
        /// The other party.
        peer: String,
        /// Its number on the link.
        number: u64,
        /// The digest in the log.
        expected: Fingerprint,
        /// The digest now.
        found: Fingerprint,
    },
}

impl AuditError {
    pub(crate) fn new(file: &Path, line: Option<usize>, defect: AuditDefect) -> Self {
        Self { file: file.to_owned(), line, defect }
    }

    /// Whether the files are at fault, not the machine or this program.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self.defect,
            AuditDefect::Broken
                | AuditDefect::Torn { .. }
                | AuditDefect::NotAnEntry { .. }
                | AuditDefect::AnothersLog { .. }
                | AuditDefect::AnothersFederation
                | AuditDefect::AnothersResult
        )
    }
}

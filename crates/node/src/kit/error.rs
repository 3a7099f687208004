//! What can be wrong with a kit, said so that its owner can mend it.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a kit, or a request for one, cannot be used or made.
#[derive(Debug, thiserror::Error)]
#[error("{}: {field}: {defect}", file.display())]
pub struct KitError {
    /// The file or directory.
    pub file: PathBuf,
    /// The field in it, or `file` for all of it.
    pub field: String,
    /// What was expected there and what was found.
    pub defect: KitDefect,
}

/// What was expected in a field and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitDefect {
    /// The file is not there.
    #[error("expected this file, found none")]
    Missing,
    /// The system could not read a file that is there.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The system could not write.
    #[error("cannot be written: {0}")]
    Unwritable(io::Error),
    /// A file that would be overwritten.
    #[error("expected no file here, found one; it is not overwritten")]
    Exists,
    /// A directory that must be absent or empty is not.
    #[error("expected an absent or empty directory, found files in it")]
    NotEmpty,
    /// More bytes than such a file can have.
    #[error("expected at most {most} bytes, found {found}")]
    TooLarge {
        /// The bound.
        most: u64,
        /// The size.
        found: u64,
    },
    /// A private key that others can read.
    #[error("expected a file that its owner alone can read (chmod 600), found mode {mode:o}")]
    OpenToOthers {
        /// Its permissions.
        mode: u32,
    },
    /// Text that is not in the right form.
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    /// A value that does not belong there.
    #[error("expected {expected}, found {found}")]
    Invalid {
        /// What belongs there.
        expected: String,
        /// What is there; never part of a private key.
        found: String,
    },
    /// Bytes that whoever is said to have signed them did not sign.
    #[error(
        "expected the signature of {signer} over {what}, found another: one of the two files was changed"
    )]
    Signature {
        /// Whose signature.
        signer: &'static str,
        /// Over what.
        what: &'static str,
    },
    /// A private key that belongs to something else.
    #[error("expected the private key of {of}, found that of somebody or something else")]
    AnothersKey {
        /// Whose key belongs there.
        of: String,
    },
    /// A certificate whose time is over.
    #[error("expected a certificate that is valid now ({now}), found one that ended {until}")]
    Expired {
        /// Its end.
        until: String,
        /// The clock.
        now: String,
    },
    /// A certificate whose time has not come.
    #[error("expected a certificate that is valid now ({now}), found one that begins {from}")]
    NotYetValid {
        /// Its beginning.
        from: String,
        /// The clock.
        now: String,
    },
    /// The federation cannot be evaluated in this way.
    #[error(transparent)]
    Session(#[from] secsv_protocol::Error),
    /// The description of the federation contradicts itself.
    #[error(transparent)]
    Federation(#[from] secsv_federation::Error),
    /// An estimator cannot be set up in this way.
    #[error(transparent)]
    Estimator(#[from] secsv_shapley::Error),
}

impl KitError {
    pub(super) fn new(file: &Path, field: impl Into<String>, defect: KitDefect) -> Self {
        Self { file: file.to_owned(), field: field.into(), defect }
    }

    pub(super) fn invalid(
        file: &Path,
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::new(file, field, KitDefect::Invalid { expected: expected.into(), found: found.into() })
    }

    pub(super) fn reading(file: &Path, error: io::Error) -> Self {
        let defect = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => KitDefect::Missing,
            _ => KitDefect::Unreadable(error),
        };
        Self::new(file, "file", defect)
    }

    pub(super) fn writing(file: &Path, error: io::Error) -> Self {
        let defect = match error.kind() {
            io::ErrorKind::AlreadyExists => KitDefect::Exists,
            _ => KitDefect::Unwritable(error),
        };
        Self::new(file, "file", defect)
    }

    /// Whether the files are at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self.defect, KitDefect::Unreadable(_) | KitDefect::Unwritable(_))
    }
}

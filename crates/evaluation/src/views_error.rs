//! Why there are no views.

use std::path::PathBuf;

/// Why views cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewsError {
    /// The target has something in it.
    #[error("{}: expected an empty directory or none, found something in it", directory.display())]
    NotEmpty {
        /// The target.
        directory: PathBuf,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", file.display())]
    Writing {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Parties never agreed on a session.
    #[error("the parties have not agreed on a session")]
    NoSession,
    /// A party is not at rest.
    #[error("a party is at work: views are read when a run is over")]
    AtWork,
    /// Messages were not recorded.
    #[error("the messages of this run were not recorded")]
    NotRecorded,
}

impl ViewsError {
    /// Whether the input is at fault.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::NotEmpty { .. })
    }
}

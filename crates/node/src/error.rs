//! Why a party ends without values.

use secsv_federation::RoundId;

/// Why a party cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The evaluation cannot go on.
    #[error(transparent)]
    Evaluation(#[from] secsv_evaluation::Error),
    /// The silo's data cannot be read or are defective.
    #[error(transparent)]
    Federation(#[from] secsv_federation::Error),
    /// A party of a secure protocol cannot go on.
    #[error(transparent)]
    Role(#[from] secsv_protocol::Error),
    /// A kit cannot be used.
    #[error(transparent)]
    Kit(#[from] crate::kit::KitError),
    /// An audit log cannot be kept.
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
    /// A state directory cannot be used.
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
    /// There can be no connection.
    #[error(transparent)]
    Tls(#[from] crate::transport::TlsError),
    /// A silo's data are not those of the federation.
    #[error("{field}: expected {expected}, found {found}")]
    Data {
        /// What differs.
        field: &'static str,
        /// Of the kit.
        expected: String,
        /// Of the data.
        found: String,
    },
    /// A silo has not accepted what it must accept to take part.
    #[error(transparent)]
    Consent(#[from] crate::consent::ConsentError),
    /// The record of sessions cannot be kept.
    #[error("{}: {why}", file.display())]
    Record {
        /// The record.
        file: std::path::PathBuf,
        /// Why not.
        why: String,
    },
    /// The system refuses something that every process needs.
    #[error("{what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A peer will not take this party in, and dialling again does not change that.
    #[error("{peer}: no link: {reason}")]
    NoLink {
        /// The peer.
        peer: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The principal is in another round.
    #[error("the principal is in round {round}")]
    OtherRound {
        /// That round.
        round: RoundId,
    },
    /// A round that was waited for long enough.
    #[error("waited {seconds} s without anything new for {awaited}")]
    Late {
        /// For whom, or for what.
        awaited: String,
        /// As long as was told.
        seconds: u64,
    },
    /// The process was told to stop.
    #[error("stopped before the values were there: start again to go on")]
    Stopped,
}

impl Error {
    pub(crate) fn data(field: &'static str, expected: &str, found: impl Into<String>) -> Self {
        Self::Data { field, expected: expected.to_owned(), found: found.into() }
    }

    /// Whether the input is at fault, not the machine or this program.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Evaluation(error) => error.is_bad_input(),
            Self::Federation(error) => error.is_bad_input(),
            Self::Role(error) => error.is_bad_input(),
            Self::Kit(error) => error.is_bad_input(),
            Self::Audit(error) => error.is_bad_input(),
            Self::Journal(error) => error.is_bad_input(),
            Self::Consent(error) => error.is_bad_input(),
            Self::Data { .. } | Self::Record { .. } | Self::NoLink { .. } => true,
            Self::OtherRound { .. } | Self::Late { .. } => false,
            Self::Tls(_) | Self::System { .. } | Self::Stopped => false,
        }
    }
}

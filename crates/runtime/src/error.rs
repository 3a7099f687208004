//! Why an evaluation ends without values.

use secsv_federation::RoundId;

/// Why an evaluation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run directory cannot be read or is defective.
    #[error(transparent)]
    Federation(#[from] secsv_federation::Error),
    /// The estimator cannot value this federation.
    #[error(transparent)]
    Values(#[from] secsv_shapley::Error),
    /// An evaluator was asked about a round it does not have.
    #[error("expected a round of the federation, found round {found}")]
    UnknownRound {
        /// The round.
        found: RoundId,
    },
    /// A party of a secure protocol cannot go on.
    #[error(transparent)]
    Role(secsv_protocol::Error),
    /// Nothing moves any more and tests are open: a message was lost.
    #[error("nothing moves any more: {awaiting}")]
    Stalled {
        /// What each party waits for.
        awaiting: String,
    },
    /// Samples cannot be skipped where nobody learns which were predicted right.
    #[error(
        "skip: expected off, because under {protocol} the server learns how many samples a model predicts right and \
         not which, so it cannot tell what may be skipped"
    )]
    CannotSkip {
        /// The protocol.
        protocol: &'static str,
    },
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
    Tls(#[from] crate::tls::TlsError),
    /// What parties saw cannot be read or written.
    #[error(transparent)]
    Views(#[from] crate::views::ViewsError),
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
    #[error("{}{question}", said(given.as_deref(), question))]
    Unaccepted {
        /// What was given instead of the word.
        given: Option<String>,
        /// What it is asked.
        question: Box<crate::consent::Question>,
    },
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
    /// The process was told to stop.
    #[error("stopped before the values were there: start again to go on")]
    Stopped,
    /// The principal tells a count that the auxiliary found to be another.
    #[error(
        "round {round}, coalition {coalition}: the principal told {told} samples right, the auxiliary counted {counted} \
         ({others} more counts differ): the values do not stand"
    )]
    Recount {
        /// Which round.
        round: RoundId,
        /// Its members.
        coalition: String,
        /// As the principal tells.
        told: usize,
        /// As the auxiliary counted.
        counted: usize,
        /// How many more differ.
        others: usize,
    },
    /// What the principal opened is not what clients committed to.
    #[error(
        "the principal opened other seeds than {clients} committed to: it or they do not tell the truth, and counts cannot be \
         confirmed"
    )]
    Disputed {
        /// The clients.
        clients: String,
    },
    /// An evaluator gave another number of answers than it was asked for.
    #[error("expected the results of {expected} tests, found {found}")]
    Answers {
        /// How many tests there were.
        expected: usize,
        /// How many results came back.
        found: usize,
    },
}

impl Error {
    /// Whether the input is at fault, not the machine or this program.
    pub fn is_bad_input(&self) -> bool {
        use secsv_shapley::Error as Values;
        match self {
            Self::Federation(error) => error.is_bad_input(),
            Self::Values(error) => matches!(
                error,
                Values::TooManyClients { .. }
                    | Values::Budget { .. }
                    | Values::Undetermined { .. }
                    | Values::Setting { .. }
                    | Values::NoTime { .. }
                    | Values::UnknownMethod { .. }
                    | Values::NeedsCumulativeModels { .. }
            ),
            Self::Role(error) => error.is_bad_input(),
            Self::CannotSkip { .. } => true,
            Self::Kit(error) => error.is_bad_input(),
            Self::Audit(error) => error.is_bad_input(),
            Self::Journal(error) => error.is_bad_input(),
            Self::Views(error) => error.is_bad_input(),
            Self::Data { .. } | Self::Unaccepted { .. } | Self::Record { .. } => true,
            Self::Tls(_) | Self::System { .. } | Self::Stopped => false,
            Self::Recount { .. } | Self::Disputed { .. } => false,
            Self::UnknownRound { .. } | Self::Answers { .. } | Self::Stalled { .. } => false,
        }
    }
}

/// How a question begins, after a wrong answer or none.
fn said(given: Option<&str>, question: &crate::consent::Question) -> String {
    match given {
        None => "this client was not told that its owner accepts this:\n".to_owned(),
        Some(given) => {
            format!("{}: expected the word for what follows, found {given:?}:\n", question.argument)
        }
    }
}

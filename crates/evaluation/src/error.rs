//! Why an evaluation ends without values.

use secsv_federation::RoundId;
use secsv_protocol::{PartyId, message::Kind};

use crate::{Utility, packet::PacketError, partial_message::MessageDefect};

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
    Role(#[from] secsv_protocol::Error),
    /// A message was damaged on its way.
    #[error("{from} to {to}: {kind} damaged on the way: {why}")]
    Damaged {
        /// The sender.
        from: PartyId,
        /// The receiver.
        to: PartyId,
        /// Kind of the message, as whoever carried it says.
        kind: Kind,
        /// What is wrong.
        why: LinkDefect,
    },
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
    /// A utility that these samples do not have.
    #[error("utility {utility}: expected {expected}")]
    Utility {
        /// The utility.
        utility: Utility,
        /// What it takes.
        expected: String,
    },
    /// A utility that asks for more than the protocol tells.
    #[error(
        "utility {utility}: expected accuracy, because under {protocol} nobody learns of which class the samples are that a model \
         predicts right; blindsv and nssv can"
    )]
    HiddenClasses {
        /// The utility.
        utility: Utility,
        /// The protocol.
        protocol: &'static str,
    },
    /// A utility that asks for classes where it is learned which samples are right and not of which class.
    #[error(
        "skip: expected off with utility {utility}, because under {protocol} skipping learns which samples are right and not of which \
         class they are"
    )]
    SkipsClasses {
        /// The utility.
        utility: Utility,
        /// The protocol.
        protocol: &'static str,
    },
    /// Counts of classes that do not fit together: somebody has dealt wrongly.
    #[error(
        "counts of classes: expected {expected}, found {found}: a silo has dealt for other samples than before"
    )]
    ClassCounts {
        /// What there should be.
        expected: String,
        /// What there is.
        found: String,
    },
    /// What parties saw cannot be read or written.
    #[error(transparent)]
    Views(#[from] crate::views_error::ViewsError),
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
    /// Somebody ended it.
    #[error("the evaluation was stopped")]
    Stopped,
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
            Self::CannotSkip { .. }
            | Self::Utility { .. }
            | Self::HiddenClasses { .. }
            | Self::SkipsClasses { .. } => true,
            Self::Views(error) => error.is_bad_input(),
            Self::Recount { .. } | Self::Disputed { .. } => false,
            Self::Stopped
            | Self::UnknownRound { .. }
            | Self::Answers { .. }
            | Self::Stalled { .. }
            | Self::ClassCounts { .. }
            | Self::Damaged { .. } => false,
        }
    }
}

/// What is wrong with a message on a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkDefect {
    /// Its packet is none.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// It is not the message that it says.
    #[error(transparent)]
    Message(#[from] MessageDefect),
}

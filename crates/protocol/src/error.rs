//! Whose fault it is when a session ends without values.

use secsv_algebra::AlgebraError;
use secsv_he::{HeError, WireError};

use crate::{PartyId, disclosure::Disclosure, kind::Kind};

/// Why a role cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A message whose content does not decode.
    #[error("{kind} from {from}: {why}")]
    Malformed {
        /// Who sent it.
        from: PartyId,
        /// Which message.
        kind: Kind,
        /// What is wrong.
        why: CodecError,
    },
    /// A message that nobody waits for.
    #[error("{kind} from {from} is not expected: {state}")]
    Unexpected {
        /// Who sent it.
        from: PartyId,
        /// Which message.
        kind: Kind,
        /// What the receiver is doing.
        state: &'static str,
    },
    /// A message for a place that is filled with other content.
    #[error("a second {kind} from {from} for one place, with other content: what is one-time is used once")]
    Second {
        /// Who sent it.
        from: PartyId,
        /// Which message.
        kind: Kind,
    },
    /// A number outside the range that was agreed on for a layer.
    #[error(
        "layer {layer}: a value is outside its range (expected at most 2^{expected_exponent}, found about 2^{found_exponent})"
    )]
    OutOfRange {
        /// The linear layer, counted from 1, whose input it is.
        layer: usize,
        /// Largest power of two allowed.
        expected_exponent: i32,
        /// The power of two below the value.
        found_exponent: i32,
    },
    /// Weights whose norm exceeds what was published.
    #[error("layer {layer}: weights do not fit the published norm")]
    Norm {
        /// The linear layer, counted from 1.
        layer: usize,
    },
    /// Numbers beyond a limit that was agreed on before training ended.
    #[error(
        "layer {layer}: expected {what} within the limit that everybody agreed on, which stands for 2^{limit}, found up to 2^{found}"
    )]
    Limit {
        /// Which numbers.
        what: &'static str,
        /// The linear layer, counted from 1.
        layer: usize,
        /// The power of two that the limit stands for.
        limit: i32,
        /// The power of two that is not below them.
        found: i32,
    },
    /// No fixed-point format fits the numbers of a layer.
    #[error("layer {layer}: its numbers need {needed} bits, the field has {available}")]
    Precision {
        /// The linear layer, counted from 1.
        layer: usize,
        /// Bits without a single fractional one.
        needed: i32,
        /// Bits there are.
        available: i32,
    },
    /// Functions by straight pieces give other labels than the exact ones too often.
    #[error(
        "functions by straight pieces give the exact model's label for {:.2} % of owners' samples under models they know, expected {:.2} % or more (--agreement): take another protocol for this model, and read what clients can do under it",
        f64::from(*found) / 100.0,
        f64::from(*expected) / 100.0
    )]
    Agreement {
        /// Equal labels of ten thousand.
        found: u16,
        /// The fewest there may be.
        expected: u16,
    },
    /// A client's numbers, beside those of clients that came before it, leave no fixed-point format for a layer.
    #[error("numbers of {from}: layer {layer} needs {needed} bits with them, the field has {available}")]
    Ranges {
        /// Whose numbers.
        from: PartyId,
        /// The linear layer, counted from 1.
        layer: usize,
        /// Bits without a single fractional one.
        needed: i32,
        /// Bits there are.
        available: i32,
    },
    /// Something this model or protocol cannot do.
    #[error("{what}")]
    Unsupported {
        /// What, and why.
        what: &'static str,
    },
    /// A layer that the protocol cannot compute.
    #[error(
        "model.layers[{index}]: the protocol cannot compute {kind}{}: {why}; {instead}",
        name.as_ref().map_or(String::new(), |name| format!(" {name:?}"))
    )]
    Layer {
        /// Its place in federation.toml.
        index: usize,
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: Option<String>,
        /// Why not.
        why: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// Who decrypts what cannot be planned.
    #[error(transparent)]
    Plan(#[from] crate::decryptors::PlanError),
    /// The encryption layer.
    #[error(transparent)]
    Encryption(#[from] HeError),
    /// Arithmetic on shares.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
    /// A sealed envelope that does not open, or cannot be made.
    #[error("the envelope between {from} and {to} cannot be sealed or opened")]
    Envelope {
        /// Who sealed it.
        from: PartyId,
        /// Who opens it.
        to: PartyId,
    },
    /// A leader whose public key does not fit: nothing was shared under it.
    #[error("the public key of {leader}, who leads, {why}: nothing was shared")]
    BadKey {
        /// Who made it.
        leader: PartyId,
        /// What does not fit.
        why: KeyDefect,
    },
    /// Something that the session's protocol does not list as read by anybody.
    #[error("nothing of the kind {disclosure:?} is read under this protocol")]
    Undisclosed {
        /// The disclosure it would stand on.
        disclosure: Disclosure,
    },
    /// The party's own state is not what its own steps left.
    #[error("internal: {what}")]
    Local {
        /// What is missing.
        what: &'static str,
    },
}

impl Error {
    /// Whether a message was at fault, and whoever sent it.
    pub fn is_of_peer(&self) -> bool {
        matches!(
            self,
            Self::Malformed { .. }
                | Self::Unexpected { .. }
                | Self::Second { .. }
                | Self::Ranges { .. }
                | Self::Envelope { .. }
        )
    }

    /// Whose message was at fault, and which, with the error.
    pub fn blamed(self) -> Option<(PartyId, Kind, Self)> {
        match self {
            Self::Malformed { from, kind, .. }
            | Self::Unexpected { from, kind, .. }
            | Self::Second { from, kind } => Some((from, kind, self)),
            Self::Ranges { from, .. } => Some((from, Kind::ClientHello, self)),
            Self::Envelope { from, .. } => Some((from, Kind::SealedClientKeys, self)),
            _ => None,
        }
    }

    /// The same where a message was at fault, and otherwise the error.
    pub fn or_blamed(self) -> Result<(PartyId, Kind, Self), Self> {
        if self.is_of_peer() { self.clone().blamed().ok_or(self) } else { Err(self) }
    }

    /// Nothing, where a message was at fault that cannot be refused any more; otherwise the error.
    pub(crate) fn unless_of_peer<T: Default>(self) -> Result<T, Self> {
        if self.is_of_peer() { Ok(T::default()) } else { Err(self) }
    }

    /// Whether the input is at fault: the federation or the settings, not a peer or the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Precision { .. }
                | Self::Ranges { .. }
                | Self::Agreement { .. }
                | Self::Unsupported { .. }
                | Self::Layer { .. }
                | Self::Plan(_)
                | Self::OutOfRange { .. }
                | Self::Norm { .. }
                | Self::Limit { .. }
        )
    }
}

/// What is wrong with a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyDefect {
    /// It is no encryption of zero under the clients' key.
    #[error("is none of the key that it gave to this client")]
    Another,
    /// The servers hold different ones.
    #[error("is not the same at both servers")]
    Different,
}

/// Why content does not decode.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// It ends early.
    #[error("truncated")]
    Truncated,
    /// Bytes are left over.
    #[error("{found} bytes too many")]
    Trailing {
        /// How many.
        found: usize,
    },
    /// It is of another length than its place takes.
    #[error("expected {expected} bytes, found {found}")]
    Length {
        /// What the session says.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// A count or a size beyond what was agreed on.
    #[error("{what}: expected at most {expected}, found {found}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The bound.
        expected: u64,
        /// What it says.
        found: u64,
    },
    /// A value that its type does not have.
    #[error("{what}: not a valid value")]
    Value {
        /// Of what.
        what: &'static str,
    },
    /// A field element that is not reduced.
    #[error("element {index} is not reduced")]
    Unreduced {
        /// Which.
        index: usize,
    },
    /// An object of the encryption layer.
    #[error(transparent)]
    Wire(#[from] WireError),
}

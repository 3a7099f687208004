//! Who takes part in a session.

use std::fmt;

/// A party. Clients go by their position in the federation's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartyId {
    /// The server that plans, adds up and learns which predictions are right (the paper's P).
    Principal,
    /// The second server (the paper's A).
    Auxiliary,
    /// A client.
    Client(usize),
}

impl PartyId {
    /// As two bytes.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Principal => 0xffff,
            Self::Auxiliary => 0xfffe,
            Self::Client(position) => position as u16,
        }
    }

    /// From two bytes.
    pub fn from_wire(word: u16) -> Self {
        match word {
            0xffff => Self::Principal,
            0xfffe => Self::Auxiliary,
            position => Self::Client(position.into()),
        }
    }
}

impl fmt::Display for PartyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal => f.write_str("principal"),
            Self::Auxiliary => f.write_str("auxiliary"),
            Self::Client(position) => write!(f, "client {}", position + 1),
        }
    }
}

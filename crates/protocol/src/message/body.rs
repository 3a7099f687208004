//! What several messages hold: lists of byte strings, and shares, which the two servers get in different forms.

use secsv_algebra::Seed;

use crate::{
    PartyId,
    codec::{Reader, Writer},
    error::CodecError,
};

use super::COMMITMENT;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Server {
    /// The first.
    Principal,
    /// The second.
    Auxiliary,
}

impl Server {
    /// The server that a party is.
    pub(crate) fn of(party: PartyId) -> Option<Self> {
        match party {
            PartyId::Principal => Some(Self::Principal),
            PartyId::Auxiliary => Some(Self::Auxiliary),
            PartyId::Client(_) => None,
        }
    }

    /// The server beside it.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Principal => Self::Auxiliary,
            Self::Auxiliary => Self::Principal,
        }
    }

    /// It, as a party.
    pub(crate) fn party(self) -> PartyId {
        match self {
            Self::Principal => PartyId::Principal,
            Self::Auxiliary => PartyId::Auxiliary,
        }
    }
}

/// Byte strings one after the other, each with its length before it, all with their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a>(pub Vec<&'a [u8]>);

impl<'a> From<&'a [Vec<u8>]> for Parts<'a> {
    fn from(parts: &'a [Vec<u8>]) -> Self {
        Self(parts.iter().map(Vec::as_slice).collect())
    }
}

impl<'a> Parts<'a> {
    /// Bytes of so many parts of these lengths.
    pub(crate) fn length(parts: impl Iterator<Item = usize>) -> usize {
        size_of::<u64>() + parts.map(|length| size_of::<u64>() + length).sum::<usize>()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn room(&self) -> usize {
        Self::length(self.0.iter().map(|part| part.len()))
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u64(self.0.len() as u64);
        self.0.iter().for_each(|part| {
            w.counted(part);
        });
    }

    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, CodecError> {
        let count = r.count("parts", size_of::<u64>())?;
        (0..count).map(|_| r.counted()).collect::<Result<_, _>>().map(Self)
    }
}

/// A share: the principal's is the stream of a seed, the auxiliary's what is left, packed.
#[derive(Clone)]
pub(crate) enum ShareBody<'a> {
    /// The principal's.
    Seed(Seed),
    /// The auxiliary's.
    Elements(&'a [u8]),
}

impl<'a> ShareBody<'a> {
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Seed(_) => 0,
            Self::Elements(elements) => elements.len(),
        }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        match self {
            Self::Seed(seed) => w.seed(seed),
            Self::Elements(elements) => w.raw(elements),
        };
    }

    pub(super) fn read(r: &mut Reader<'a>, to: Server) -> Result<Self, CodecError> {
        Ok(match to {
            Server::Principal => Self::Seed(r.seed()?),
            Server::Auxiliary => Self::Elements(r.rest()),
        })
    }
}

/// A share of labels: the auxiliary's comes behind a commitment to the principal's seed.
#[derive(Clone)]
pub(crate) enum LabelBody<'a> {
    /// The principal's.
    Seed(Seed),
    /// The auxiliary's.
    Committed { commitment: [u8; COMMITMENT], labels: &'a [u8] },
}

impl<'a> LabelBody<'a> {
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Seed(_) => 0,
            Self::Committed { labels, .. } => COMMITMENT + labels.len(),
        }
    }

    pub(super) fn write(&self, w: &mut Writer) {
        match self {
            Self::Seed(seed) => w.seed(seed),
            Self::Committed { commitment, labels } => w.raw(commitment).raw(labels),
        };
    }

    pub(super) fn read(r: &mut Reader<'a>, to: Server) -> Result<Self, CodecError> {
        Ok(match to {
            Server::Principal => Self::Seed(r.seed()?),
            Server::Auxiliary => Self::Committed { commitment: r.array()?, labels: r.rest() },
        })
    }
}

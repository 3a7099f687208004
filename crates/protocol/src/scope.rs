//! What a message is about. Whoever keeps messages may let go of them when that is over.

use secsv_federation::RoundId;

use crate::{codec::Reader, decryptors::Protocol, error::CodecError, message::Kind, session::Federation};

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole session: keys, samples, values.
    Session,
    /// A round, until it is closed. It may be opened again.
    Round(RoundId),
    /// A test, by its number. No number is given twice.
    Test(u64),
}

/// Where the attempt stands in a test's number.
pub(crate) const ATTEMPT: u32 = 40;

impl Scope {
    /// The test that was asked for, whatever the attempt at it.
    pub fn whole(self) -> Self {
        match self {
            Self::Test(test) => Self::Test(test & ((1 << ATTEMPT) - 1)),
            other => other,
        }
    }
}

impl Federation {
    /// What a message is about.
    pub fn scope(&self, kind: Kind, content: &[u8]) -> Result<Scope, CodecError> {
        let mut r = Reader::new(content);
        Ok(match kind {
            Kind::Hello
            | Kind::Session
            | Kind::ServerKeys
            | Kind::ClientKeys
            | Kind::Data
            | Kind::Common
            | Kind::PublicKey
            // It may come after the test has ended elsewhere.
            | Kind::OwnCount
            | Kind::Values => Scope::Session,
            Kind::RoundStart | Kind::Model | Kind::FirstLayer => Scope::Round(RoundId(r.u32()?)),
            Kind::Done => match (r.u8()?, r.u64()?) {
                (0, test) => Scope::Test(test),
                (_, round) => Scope::Round(RoundId(round as u32)),
            },
            // The first layer's openings are a round's, all others a test's.
            Kind::Opening if self.settings.protocol == Protocol::SecretSv => match r.u8()? {
                0 => Scope::Round(RoundId(r.u32()?)),
                _ => Scope::Test(r.u64()?),
            },
            Kind::Test
            | Kind::OwnTest
            | Kind::OwnResult
            | Kind::Half
            | Kind::Reply
            | Kind::Shared
            | Kind::Truth
            | Kind::Predicted
            | Kind::Verdict
            | Kind::Opened
            | Kind::Triple
            | Kind::Opening
            | Kind::OutputShare
            | Kind::Differences
            | Kind::Count => Scope::Test(r.u64()?),
        })
    }
}

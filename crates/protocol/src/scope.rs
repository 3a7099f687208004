//! What a message is about. Whoever keeps messages may let go of them when that is over.

use secsv_federation::RoundId;

use crate::{
    PartyId,
    codec::Reader,
    decryptors::Protocol,
    error::CodecError,
    first_layer_batch,
    message::{Kind, Place, TestPlan},
    session::Federation,
};

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
    /// The part of a message that says which place of the session it fills, beside its sender and kind. **A place is filled
    /// once**: with other content under the same randomness, the two together would tell what each hides. None for a message
    /// that brings nothing.
    pub fn place(&self, from: PartyId, kind: Kind, content: &[u8]) -> Option<Vec<u8>> {
        let is_secret = self.settings.protocol == Protocol::SecretSv;
        let length = match kind {
            Kind::Hello
            | Kind::Session
            | Kind::ServerKeys
            | Kind::PublicKey
            | Kind::Common
            | Kind::Values => 0,
            Kind::ClientKeys if from == PartyId::Principal => 0,
            Kind::ClientKeys => size_of::<u16>(),
            Kind::Data if self.settings.protocol == Protocol::Hesv => size_of::<u32>(),
            Kind::Data => 0,
            Kind::FirstLayer if from == PartyId::Auxiliary => first_layer_batch::HEAD,
            Kind::RoundStart | Kind::Model | Kind::FirstLayer => size_of::<u32>(),
            // A test's units may be announced one by one: roles see to it that none is announced twice.
            Kind::Test => {
                let plan = TestPlan::decode(content).ok()?;
                let units = plan.units.iter().flat_map(|unit| [unit.group, unit.part]);
                let units = units.flat_map(|number| (number as u16).to_le_bytes());
                return Some(plan.test.to_le_bytes().into_iter().chain(units).collect());
            }
            Kind::OwnTest | Kind::OwnResult | Kind::OwnCount => size_of::<u64>(),
            // Of the first layer: round and owner.
            Kind::Opening if is_secret && content.first() == Some(&0) => {
                1 + size_of::<u32>() + size_of::<u16>()
            }
            Kind::Opening if is_secret => 1 + Place::LENGTH,
            Kind::Half
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
            | Kind::Count => Place::LENGTH,
            Kind::Done => return None,
        };
        content.get(..length).map(<[u8]>::to_vec)
    }

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

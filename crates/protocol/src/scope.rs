//! What a message is about. Whoever keeps messages may let go of them when that is over.

use secsv_federation::RoundId;

use crate::{
    error::CodecError,
    message::{Head, Kind, Message, TestPlan},
    session::Federation,
    test_id::TestId,
};

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole session: keys, samples, values.
    Session,
    /// A round, until it is closed. It may be opened again.
    Round(RoundId),
    /// An attempt at a test.
    Test(TestId),
}

impl Scope {
    /// The same at the first attempt.
    pub fn whole(self) -> Self {
        match self {
            Self::Test(test) => Self::Test(TestId::first(test.request)),
            other => other,
        }
    }
}

impl Federation {
    /// The slot of the session that a message fills, beside its sender and kind: the head of its content. **A slot is
    /// filled once**: with other content under the same randomness, the two together would tell what each hides. None for a
    /// message that brings nothing.
    pub fn content_slot(&self, kind: Kind, content: &[u8]) -> Option<Vec<u8>> {
        match kind {
            Kind::TestFinished | Kind::RoundFinished => None,
            // A test's units may be announced one by one: roles see to it that none is announced twice.
            Kind::Test => {
                let plan = TestPlan::decode(content, &()).ok()?;
                let units = plan.units.iter().flat_map(|unit| [unit.group, unit.part.to_wire()]);
                let units = units.flat_map(|number| (number as u64).to_le_bytes());
                Some(plan.test.to_wire().to_le_bytes().into_iter().chain(units).collect())
            }
            _ => Head::of(kind, content).ok().map(|(_, bytes)| bytes.to_vec()),
        }
    }

    /// What a message is about.
    pub fn scope(&self, kind: Kind, content: &[u8]) -> Result<Scope, CodecError> {
        Ok(match Head::of(kind, content)?.0 {
            Head::Session | Head::Client(_) | Head::Chunk(_) => Scope::Session,
            // It may come after the test has ended elsewhere.
            Head::Request(_) if kind == Kind::OwnCount => Scope::Session,
            Head::Round(round) | Head::FirstLayer { round, .. } | Head::Owner { round, .. } => {
                Scope::Round(round)
            }
            Head::Request(request) | Head::Opening { request, .. } => Scope::Test(TestId::first(request)),
            Head::Test(test) | Head::Plan { test, .. } => Scope::Test(test),
            Head::Step(address) => Scope::Test(address.unit.test),
        })
    }
}

//! What a message is about. Whoever keeps messages may let go of them when that is over.

use secsv_federation::{Coalition, RoundId};

use crate::{
    error::CodecError,
    message::{BlindTest, Head, Kind, Message, TestPlan},
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
    /// The slots of the session that a message fills, beside its sender and kind: what each is about, and the head of the content.
    /// **A slot is filled once**: with other content under the same randomness, the two together would tell what each hides. None
    /// for a message that brings nothing.
    pub fn content_slots(&self, kind: Kind, content: &[u8]) -> Vec<(Scope, Vec<u8>)> {
        let head = match kind {
            Kind::TestFinished | Kind::RoundFinished => None,
            // A test's units may be announced one by one: roles see to it that none is announced twice.
            Kind::Test => TestPlan::decode(content, &()).ok().map(|plan| {
                let units = plan.units.iter().flat_map(|unit| [unit.group, unit.part.to_wire()]);
                let units = units.flat_map(|number| (number as u64).to_le_bytes());
                plan.test.to_wire().to_le_bytes().into_iter().chain(units).collect()
            }),
            _ => Head::of(kind, content).ok().map(|(_, bytes)| bytes.to_vec()),
        };
        let whole = self.scope(kind, content).ok().zip(head);
        let models = match kind {
            Kind::BlindTest => BlindTest::decode(content, &()).ok(),
            _ => None,
        };
        // Masks are named by round and coalition: no other test may use them, whenever this one has ended.
        let model =
            |round, coalition: &Coalition| (Scope::Round(round), coalition.bits().to_le_bytes().to_vec());
        let models = models.into_iter().flat_map(|BlindTest { round, coalitions, .. }| {
            coalitions.iter().map(|coalition| model(round, coalition)).collect::<Vec<_>>()
        });
        whole.into_iter().chain(models).collect()
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

#[cfg(test)]
mod tests {
    use secsv_federation::{Coalition, RoundId};

    use super::*;
    use crate::{decryptors::Protocol, rules::Matmul, session::tests::federation};

    /// Whatever test a model is announced for, and whoever does it, it fills the same slot of its round.
    #[test]
    fn a_model_fills_one_slot_whichever_test_it_is_announced_for() {
        let federation = federation(Protocol::BlindSv, Matmul::Packed);
        let slots = |request: u32, round, members: &[usize]| {
            let coalitions = members.iter().map(|&member| Coalition::EMPTY.with(member)).collect();
            let test =
                BlindTest { request: request.into(), round: RoundId(round), coalitions, samples: None };
            federation.content_slots(Kind::BlindTest, &test.encode())
        };
        let (first, second) = (slots(0, 1, &[0, 1]), slots(1, 1, &[1, 2]));
        let common: Vec<_> = first.iter().filter(|slot| second.contains(slot)).collect();
        assert_eq!((first.len(), common.len()), (3, 1), "{common:?}");
        assert!(common.iter().all(|(scope, _)| *scope == Scope::Round(RoundId(1))), "a test's are let go of");
        assert!(slots(2, 2, &[0, 1]).iter().all(|slot| !first.contains(slot)), "another round's model");
    }
}

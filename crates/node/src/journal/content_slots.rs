//! Which slots of a session are filled, and with what: a slot is filled once, in either direction, by whichever process.

use std::collections::BTreeMap;

use secsv_protocol::{PartyId, Scope, message::Kind};

use super::Digest;

/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From a peer.
    In,
    /// To a peer.
    Out,
}

/// A slot: which way, the other party, the kind, and the head of the content that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentSlot {
    /// Which way.
    pub way: Way,
    /// The other party.
    pub peer: PartyId,
    /// The kind of message.
    pub kind: Kind,
    /// The head of the content.
    pub head: Vec<u8>,
}

/// A slot that was filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// What the message is about.
    pub scope: Scope,
    /// The slot.
    pub slot: ContentSlot,
    /// Of the content.
    pub digest: Digest,
}

/// ContentSlots and the digests of what fills them.
#[derive(Debug, Default)]
pub struct ContentSlots(BTreeMap<Scope, BTreeMap<ContentSlot, Digest>>);

/// What a message is to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The first.
    New,
    /// The same again.
    Same,
    /// Another than the first.
    Other,
}

impl ContentSlots {
    /// What content would be to a slot.
    pub fn claim(&self, filled: &Filled) -> Claim {
        match self.0.get(&filled.scope).and_then(|slots| slots.get(&filled.slot)) {
            None => Claim::New,
            Some(digest) if *digest == filled.digest => Claim::Same,
            Some(_) => Claim::Other,
        }
    }

    /// Remembers what fills a slot.
    pub fn fill(&mut self, filled: &Filled) {
        self.0.entry(filled.scope).or_default().insert(filled.slot.clone(), filled.digest);
    }

    /// Lets go of a test's slots: no message about it is taken any more. Those of a round stay, because it may be opened again.
    pub fn forget(&mut self, scope: Scope) {
        if matches!(scope, Scope::Test(_)) {
            self.0.remove(&scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use secsv_federation::RoundId;
    use secsv_protocol::TestId;

    use super::*;

    #[test]
    fn a_slot_is_filled_once_and_a_rounds_stays_filled() {
        let filled = |scope, way, kind, head: &[u8], digest| Filled {
            scope,
            slot: ContentSlot { way, peer: PartyId::Client(1), kind, head: head.to_vec() },
            digest: [digest; 32],
        };
        let (test, round) = (Scope::Test(TestId::first(7u32)), Scope::Round(RoundId(2)));
        let mut slots = ContentSlots::default();
        let share = |digest| filled(test, Way::In, Kind::ActivationShare, &[7], digest);
        let model = |digest| filled(round, Way::In, Kind::Model, &[2], digest);
        assert_eq!(slots.claim(&share(1)), Claim::New);
        [share(1), model(3)].iter().for_each(|filled| slots.fill(filled));
        assert_eq!((slots.claim(&share(1)), slots.claim(&share(2))), (Claim::Same, Claim::Other));
        assert_eq!(slots.claim(&filled(test, Way::Out, Kind::ActivationShare, &[7], 2)), Claim::New);
        assert_eq!(slots.claim(&filled(test, Way::In, Kind::ActivationShare, &[8], 2)), Claim::New);
        [test, round].into_iter().for_each(|scope| slots.forget(scope));
        assert_eq!((slots.claim(&share(2)), slots.claim(&model(4))), (Claim::New, Claim::Other));
    }
}

//! Messages that came before what they refer to: kept for then, of each sender only so many bytes.

use std::collections::BTreeMap;

use crate::{Error, PartyId, role::Incoming};

/// Bytes of early messages that a party keeps of one sender. Beyond that a sender is refused, and comes again later.
pub const MAX_EARLY_BYTES: usize = 64 << 20;
/// What a message takes beside its content, however short it is.
const OVERHEAD: usize = 256;

/// Messages that came too early.
#[derive(Default)]
pub(crate) struct Early {
    messages: Vec<Incoming>,
    bytes: BTreeMap<PartyId, usize>,
}

impl Early {
    /// Keeps a message, or refuses it: `state` says what it came before.
    pub(crate) fn keep(&mut self, message: Incoming, state: &'static str) -> Result<(), Error> {
        let (from, kind) = (message.from, message.kind);
        let bytes = self.bytes.entry(from).or_default();
        let total = *bytes + message.content.len() + OVERHEAD;
        if total > MAX_EARLY_BYTES {
            return Err(Error::Unexpected { from, kind, state });
        }
        *bytes = total;
        self.messages.push(message);
        Ok(())
    }

    /// Takes those that are due, in the order in which they came.
    pub(crate) fn take(&mut self, is_due: impl Fn(&Incoming) -> bool) -> Vec<Incoming> {
        let taken: Vec<Incoming> = self.messages.extract_if(.., |message| is_due(message)).collect();
        for message in &taken {
            if let Some(bytes) = self.bytes.get_mut(&message.from) {
                *bytes = bytes.saturating_sub(message.content.len() + OVERHEAD);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Kind;

    #[test]
    fn a_sender_takes_no_more_than_its_room_and_gets_it_back() {
        let mut early = Early::default();
        let message =
            |client| Incoming::new(PartyId::Client(client), Kind::ActivationShare, vec![0; 16 << 20]);
        (0..3).for_each(|_| early.keep(message(0), "no such test").unwrap());
        let refused = early.keep(message(0), "no such test");
        assert!(matches!(refused, Err(Error::Unexpected { from: PartyId::Client(0), .. })));
        early.keep(message(1), "no such test").unwrap();
        assert_eq!(early.take(|message| message.from == PartyId::Client(0)).len(), 3);
        early.keep(message(0), "no such test").unwrap();
        let empty = || Incoming::new(PartyId::Client(2), Kind::ActivationShare, Vec::new());
        let kept = (0..1 << 20).take_while(|_| early.keep(empty(), "no such test").is_ok()).count();
        assert_eq!(kept, MAX_EARLY_BYTES / OVERHEAD);
    }
}

//! A message as it comes, piece by piece.

use secsv_protocol::{message::Kind, role::Digest};

use crate::packet::MessageHead;

/// Bytes that are set aside on a peer's word: addresses, which cost nothing before something has come.
const MAX_RESERVED: usize = 64 << 20;

/// A message of which a part has come.
pub struct PartialMessage {
    /// Kind of the message.
    pub kind: Kind,
    head: MessageHead,
    content: Vec<u8>,
    /// Of the content so far.
    hasher: blake3::Hasher,
}

/// What is wrong with a message, or with a piece of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageDefect {
    /// The number is not that of the message that is due.
    #[error("number: expected {expected}, found {found}")]
    Number {
        /// The number that is due.
        expected: u64,
        /// The message's.
        found: u64,
    },
    /// There is no such kind.
    #[error("kind: found {0}, which is none")]
    NoKind(u8),
    /// It is of another kind than the one that was announced.
    #[error("kind: expected {expected}, found {found}")]
    OtherKind {
        /// The kind that was announced.
        expected: Kind,
        /// The message's.
        found: Kind,
    },
    /// It is longer than a message of its kind may be.
    #[error("length of {kind}: expected at most {most}, found {found}")]
    TooLong {
        /// Its kind.
        kind: Kind,
        /// The most that is allowed.
        most: u64,
        /// Its length.
        found: u64,
    },
    /// It begins elsewhere than where it was cut off.
    #[error("offset: expected 0 or {expected}, found {found}")]
    Offset {
        /// Bytes that have come.
        expected: u64,
        /// Where it begins.
        found: u64,
    },
    /// There is more of it than it says, or less.
    #[error("length: expected {expected}, found {found} bytes or more")]
    Length {
        /// Its length.
        expected: u64,
        /// Bytes that have come.
        found: u64,
    },
    /// The content is not that of the digest.
    #[error("message {number} does not fit its digest")]
    Digest {
        /// Its number.
        number: u64,
    },
}

impl PartialMessage {
    /// A message of at most `most` bytes that begins with a head; `stored` is what an earlier stream has left of a message.
    pub fn begin(head: &MessageHead, most: u64, stored: Option<Self>) -> Result<Self, MessageDefect> {
        let kind = Kind::from_wire(head.kind).ok_or(MessageDefect::NoKind(head.kind))?;
        if head.length > most {
            return Err(MessageDefect::TooLong { kind, most, found: head.length });
        }
        // From the start, or from where it was cut off.
        let same = |stored: &Self| (stored.head.number, stored.head.digest) == (head.number, head.digest);
        let stored = stored.filter(|stored| head.offset > 0 && same(stored));
        let (mut content, hasher) =
            stored.map_or_else(Default::default, |stored| (stored.content, stored.hasher));
        let expected = content.len() as u64;
        if head.offset != expected || head.offset > head.length {
            return Err(MessageDefect::Offset { expected, found: head.offset });
        }
        // Room for what most messages need, whatever is announced.
        content.reserve((head.length as usize - content.len()).min(MAX_RESERVED));
        Ok(Self { kind, head: *head, content, hasher })
    }

    /// A message that is there as a whole: its content stays where it is.
    pub fn whole(head: &MessageHead, content: Vec<u8>) -> Result<Self, MessageDefect> {
        let kind = Kind::from_wire(head.kind).ok_or(MessageDefect::NoKind(head.kind))?;
        if head.offset != 0 {
            return Err(MessageDefect::Offset { expected: 0, found: head.offset });
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&content);
        let message = Self { kind, head: *head, content, hasher };
        if message.is_whole() { Ok(message) } else { Err(message.other_length(0)) }
    }

    /// Adds the next bytes.
    pub fn add(&mut self, data: &[u8]) -> Result<(), MessageDefect> {
        if (self.content.len() + data.len()) as u64 > self.head.length {
            return Err(self.other_length(data.len()));
        }
        self.content.extend_from_slice(data);
        // While it is at hand.
        self.hasher.update(data);
        Ok(())
    }

    fn other_length(&self, more: usize) -> MessageDefect {
        MessageDefect::Length { expected: self.head.length, found: (self.content.len() + more) as u64 }
    }

    /// Whether all of it has come.
    pub fn is_whole(&self) -> bool {
        self.content.len() as u64 == self.head.length
    }

    /// Number of the message on its link.
    pub fn number(&self) -> u64 {
        self.head.number
    }

    /// Digest that the message should have, and how many of its bytes have come.
    pub fn progress(&self) -> (Digest, u64) {
        (self.head.digest, self.content.len() as u64)
    }

    /// The content and its digest, if they fit each other.
    pub fn finish(self) -> Result<(Vec<u8>, Digest), MessageDefect> {
        if self.hasher.finalize() != self.head.digest {
            return Err(MessageDefect::Digest { number: self.head.number });
        }
        Ok((self.content, self.head.digest))
    }
}

//! Links between parties in one process. A message travels as the packet that TLS would carry: its label is made and read by the
//! same functions, and its content stays where it lies.

use std::{collections::BTreeMap, sync::Arc};

use secsv_protocol::{
    PartyId,
    message::Kind,
    role::{Incoming, Outgoing},
};

use crate::{
    Error,
    error::LinkDefect,
    packet::{MessageHead, PREFIX, Packet, PacketError},
    partial_message::{MessageDefect, PartialMessage},
};

/// Messages that may arrive before the one that is due.
const MAX_EARLY: u64 = 4096;

/// One message on its way: a packet in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub from: PartyId,
    /// The receiver.
    pub to: PartyId,
    /// Kind of the message, as whoever carries it says.
    pub kind: Kind,
    /// The packet up to the content: its length, its type and the [`MessageHead`].
    pub label: Vec<u8>,
    /// The content.
    pub content: Vec<u8>,
}

impl Envelope {
    /// A message with its number on the link.
    pub fn new(from: PartyId, to: PartyId, kind: Kind, number: u64, content: Vec<u8>) -> Self {
        let digest = *blake3::hash(&content).as_bytes();
        let head = MessageHead { number, kind: kind as u8, length: content.len() as u64, digest, offset: 0 };
        let mut label = Vec::new();
        Packet::Head(head).encode(content.len(), &mut label);
        Self { from, to, kind, label, content }
    }

    /// The label, if it is one, and fits the content.
    pub fn head(&self) -> Result<MessageHead, PacketError> {
        let (prefix, label) = self.label.split_first_chunk::<PREFIX>().ok_or(PacketError::Cut)?;
        if u32::from_le_bytes(*prefix) as usize != label.len() + self.content.len() {
            return Err(PacketError::OtherLength);
        }
        match Packet::decode(label)? {
            (Packet::Head(head), []) => Ok(head),
            (Packet::Head(_), rest) => Err(PacketError::Trailing(rest.len())),
            _ => Err(PacketError::Type(label[0])),
        }
    }

    /// The message, and its number. Whether the content fits its digest `is_checked`.
    fn open(self, is_checked: bool) -> Result<(u64, Incoming), LinkDefect> {
        let head = self.head()?;
        let (content, digest) = if is_checked {
            let message = PartialMessage::whole(&head, self.content)?;
            if message.kind != self.kind {
                return Err(MessageDefect::OtherKind { expected: self.kind, found: message.kind }.into());
            }
            message.finish()?
        } else {
            (self.content, head.digest)
        };
        Ok((head.number, Incoming { from: self.from, kind: self.kind, content, digest }))
    }
}

/// One party's ends of all its links.
pub(crate) struct MemoryLinks {
    own: PartyId,
    /// Whether what comes is checked against its digest.
    is_checked: bool,
    sent: BTreeMap<PartyId, u64>,
    received: BTreeMap<PartyId, IncomingEnd>,
}

#[derive(Default)]
struct IncomingEnd {
    due: u64,
    /// Messages whose predecessors are missing.
    early: BTreeMap<u64, Incoming>,
}

impl MemoryLinks {
    /// The links of a party. Whether what comes is checked against its digest `is_checked`.
    pub fn new(own: PartyId, is_checked: bool) -> Self {
        Self { own, is_checked, sent: BTreeMap::new(), received: BTreeMap::new() }
    }

    /// A message as it travels.
    pub fn seal(&mut self, message: Outgoing) -> Envelope {
        let Outgoing { to, kind, content } = message;
        let number = self.sent.entry(to).or_insert(0);
        let envelope = Envelope::new(self.own, to, kind, *number, Arc::unwrap_or_clone(content));
        *number += 1;
        envelope
    }

    /// Takes a message; returns those that are due, in order. A message that has come before gives nothing.
    pub fn open(&mut self, envelope: Envelope) -> Result<Vec<Incoming>, Error> {
        let (from, to, kind) = (envelope.from, self.own, envelope.kind);
        let damaged = |why| Error::Damaged { from, to, kind, why };
        let (number, message) = envelope.open(self.is_checked).map_err(damaged)?;
        let received = self.received.entry(from).or_default();
        if number >= received.due.saturating_add(MAX_EARLY) {
            let why = MessageDefect::Number { expected: received.due, found: number };
            return Err(damaged(why.into()));
        }
        if number >= received.due {
            received.early.entry(number).or_insert(message);
        }
        let mut due = Vec::new();
        while let Some(message) = received.early.remove(&received.due) {
            received.due += 1;
            due.push(message);
        }
        Ok(due)
    }

    /// Parties of which messages arrived whose predecessors did not.
    pub fn gaps(&self) -> Vec<PartyId> {
        self.received
            .iter()
            .filter(|(_, received)| !received.early.is_empty())
            .map(|(from, _)| *from)
            .collect()
    }
}

/// One message's way between two parties, to be timed by whoever has a clock.
pub fn rehearse_message(content: Vec<u8>) -> Result<usize, Error> {
    let (from, to) = (PartyId::Client(0), PartyId::Principal);
    let envelope = MemoryLinks::new(from, true).seal(Outgoing::new(to, Kind::ClientHello, content));
    Ok(MemoryLinks::new(to, true).open(envelope)?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: PartyId = PartyId::Client(0);

    fn pair() -> (MemoryLinks, MemoryLinks) {
        (MemoryLinks::new(FROM, true), MemoryLinks::new(PartyId::Principal, true))
    }

    fn message(content: Vec<u8>) -> Outgoing {
        Outgoing::new(PartyId::Principal, Kind::ClientHello, content)
    }

    #[test]
    fn messages_come_out_once_and_in_order() {
        let (mut client, mut principal) = pair();
        let sent: Vec<_> = (0..4u8).map(|i| client.seal(message(vec![i; 3]))).collect();
        assert!(principal.open(sent[2].clone()).unwrap().is_empty());
        assert_eq!(principal.gaps(), [FROM]);
        let first = Incoming::new(FROM, Kind::ClientHello, vec![0; 3]);
        assert_eq!(principal.open(sent[0].clone()).unwrap(), [first]);
        assert!(principal.open(sent[0].clone()).unwrap().is_empty(), "doubled");
        assert_eq!(principal.open(sent[1].clone()).unwrap().len(), 2);
        assert_eq!(principal.open(sent[3].clone()).unwrap().len(), 1);
        assert!(principal.gaps().is_empty());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed_or_leaves_a_gap() {
        let (mut client, _) = pair();
        let sent = client.seal(message(b"content".to_vec()));
        let is_noticed = |damaged: Envelope| {
            let mut principal = MemoryLinks::new(PartyId::Principal, true);
            // A number is nobody's but TLS's to protect: the message is not taken for another one, and one is missing.
            principal.open(damaged).map_or(true, |due| due.is_empty() && !principal.gaps().is_empty())
        };
        for bit in 0..sent.label.len() * 8 {
            let mut damaged = sent.clone();
            damaged.label[bit / 8] ^= 1 << (bit % 8);
            assert!(is_noticed(damaged), "bit {bit} of the label");
        }
        for bit in 0..sent.content.len() * 8 {
            let mut damaged = sent.clone();
            damaged.content[bit / 8] ^= 1 << (bit % 8);
            assert!(is_noticed(damaged), "bit {bit} of the content");
        }
        for length in 0..sent.label.len() {
            assert!(is_noticed(Envelope { label: sent.label[..length].to_vec(), ..sent.clone() }));
        }
        for length in 0..sent.content.len() {
            assert!(is_noticed(Envelope { content: sent.content[..length].to_vec(), ..sent.clone() }));
        }
        assert!(is_noticed(Envelope { kind: Kind::Session, ..sent }), "another kind");
    }
}

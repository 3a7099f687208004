//! Frames: what travels. Each has a session, a sender, a receiver, a number on its link and a tag over all of it, so
//! what is damaged, misdirected, doubled or missing is noticed. All that stands behind the content, so a frame is made
//! and opened where its content lies.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Error, PartyId,
    codec::FRAME_ROOM,
    error::FrameDefect,
    kind::Kind,
    role::{Digest, Incoming},
};

const MAGIC: [u8; 4] = *b"svf3";
const LABEL: usize = 4 + 16 + 2 + 2 + 1 + 8 + 8;
/// Where the kind stands.
const KIND: usize = 24;
const TAG: usize = 32;
/// Bytes of a frame beside its content.
pub(crate) const OVERHEAD: usize = LABEL + TAG;
const _: () = assert!(OVERHEAD <= FRAME_ROOM);
/// Frames that may arrive before the one that is due.
const WINDOW: u64 = 4096;

/// One frame on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub from: PartyId,
    /// The receiver.
    pub to: PartyId,
    /// What it holds, as whoever carries it says.
    pub kind: Kind,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// One party's ends of all its links.
pub struct Links {
    own: PartyId,
    session: [u8; 16],
    sent: BTreeMap<PartyId, u64>,
    received: BTreeMap<PartyId, Arrived>,
}

#[derive(Default)]
struct Arrived {
    next: u64,
    early: BTreeMap<u64, Incoming>,
}

/// The tag of a frame: of its content, by its digest, and of its label.
fn tag(digest: &Digest, label: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(digest).update(label).finalize()
}

impl Links {
    /// The links of a party in a session.
    pub fn new(own: PartyId, session: [u8; 16]) -> Self {
        Self { own, session, sent: BTreeMap::new(), received: BTreeMap::new() }
    }

    /// Puts content into the next frame to a party.
    pub fn seal(&mut self, to: PartyId, kind: Kind, content: impl Into<Arc<Vec<u8>>>) -> Envelope {
        let number = self.sent.entry(to).or_insert(0);
        let mut bytes = Arc::try_unwrap(content.into()).unwrap_or_else(|shared| {
            let mut bytes = Vec::with_capacity(shared.len() + OVERHEAD);
            bytes.extend_from_slice(&shared);
            bytes
        });
        let (length, digest) = (bytes.len(), *blake3::hash(&bytes).as_bytes());
        bytes.reserve_exact(OVERHEAD);
        bytes.extend(MAGIC);
        bytes.extend(self.session);
        bytes.extend(self.own.to_wire().to_le_bytes());
        bytes.extend(to.to_wire().to_le_bytes());
        bytes.push(kind as u8);
        bytes.extend(number.to_le_bytes());
        bytes.extend((length as u64).to_le_bytes());
        let tag = *tag(&digest, &bytes[length..]).as_bytes();
        bytes.extend(tag);
        *number += 1;
        Envelope { from: self.own, to, kind, bytes }
    }

    /// Takes a frame; returns the messages that are due, in order. A frame seen before gives nothing.
    pub fn open(&mut self, envelope: Envelope) -> Result<Vec<Incoming>, Error> {
        let (own, session) = (self.own, self.session);
        let Envelope { from, kind, mut bytes, .. } = envelope;
        let parts = bytes.split_last_chunk::<TAG>().and_then(|(tagged, found)| {
            let (content, label) = tagged.split_last_chunk::<LABEL>()?;
            let digest = *blake3::hash(content).as_bytes();
            Some((content.len(), *label, digest, tag(&digest, label) == *found))
        });
        let damaged = |why| Error::Damaged { from, to: own, kind, why };
        let Some((length, label, digest, is_whole)) = parts else {
            return Err(damaged(FrameDefect::Length));
        };
        if !is_whole {
            return Err(damaged(FrameDefect::Tag));
        }
        let field = |at: usize| u64::from_le_bytes(label[at..at + 8].try_into().unwrap_or_default());
        if label[..4] != MAGIC || label[4..20] != session {
            return Err(Error::Incompatible { from });
        }
        let party = |at: usize| PartyId::from_wire(u16::from_le_bytes([label[at], label[at + 1]]));
        if (party(20), party(22)) != (from, own) {
            return Err(damaged(FrameDefect::Link));
        }
        if label[KIND] != kind as u8 {
            return Err(damaged(FrameDefect::Kind));
        }
        if field(33) != length as u64 {
            return Err(damaged(FrameDefect::Length));
        }
        let arrived = self.received.entry(from).or_default();
        let number = field(25);
        if number >= arrived.next + WINDOW {
            return Err(damaged(FrameDefect::Gap));
        }
        if number >= arrived.next {
            bytes.truncate(length);
            arrived.early.entry(number).or_insert(Incoming { from, kind, content: bytes, digest });
        }
        let mut due = Vec::new();
        while let Some(message) = arrived.early.remove(&arrived.next) {
            arrived.next += 1;
            due.push(message);
        }
        Ok(due)
    }

    /// Whether frames arrived whose predecessors did not, and from whom.
    pub fn gaps(&self) -> Vec<PartyId> {
        self.received.iter().filter(|(_, arrived)| !arrived.early.is_empty()).map(|(from, _)| *from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Links, Links) {
        (Links::new(PartyId::Client(0), [1; 16]), Links::new(PartyId::Principal, [1; 16]))
    }

    #[test]
    fn frames_come_out_once_and_in_order() {
        let (mut client, mut principal) = pair();
        let frames: Vec<_> =
            (0..4u8).map(|i| client.seal(PartyId::Principal, Kind::LabelShare, vec![i; 3])).collect();
        let from = PartyId::Client(0);
        assert!(principal.open(frames[2].clone()).unwrap().is_empty());
        assert_eq!(principal.gaps(), [from]);
        let first = Incoming::new(from, Kind::LabelShare, vec![0; 3]);
        assert_eq!(principal.open(frames[0].clone()).unwrap(), [first]);
        assert!(principal.open(frames[0].clone()).unwrap().is_empty(), "doubled");
        assert_eq!(principal.open(frames[1].clone()).unwrap().len(), 2);
        assert_eq!(principal.open(frames[3].clone()).unwrap().len(), 1);
        assert!(principal.gaps().is_empty());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (mut client, mut principal) = pair();
        let frame = client.seal(PartyId::Principal, Kind::LabelShare, b"content".to_vec());
        let with = |bytes: Vec<u8>| Envelope { bytes, ..frame.clone() };
        for bit in 0..frame.bytes.len() * 8 {
            let mut flipped = frame.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(principal.open(with(flipped)).is_err(), "bit {bit}");
        }
        for length in 0..frame.bytes.len() {
            assert!(principal.open(with(frame.bytes[..length].to_vec())).is_err());
        }
        let other = Envelope { from: PartyId::Client(1), ..frame.clone() };
        assert!(principal.open(other).is_err(), "another link");
        let other = Envelope { kind: Kind::ActivationShare, ..frame.clone() };
        assert!(principal.open(other).is_err(), "another kind");
        let mut other = Links::new(PartyId::Principal, [2; 16]);
        assert_eq!(other.open(frame), Err(Error::Incompatible { from: PartyId::Client(0) }));
    }
}

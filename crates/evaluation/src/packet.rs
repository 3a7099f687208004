//! Packets: the bytes that travel between two parties, on TLS and in one process. A packet is its length (4 bytes, little
//! endian, of what follows), a byte for its type, fields of fixed length, and the data of a message as far as it has any.
//!
//! A message is a [`MessageHead`] with its first bytes, and chunks with the others. Its number and its digest are in the head, so
//! a message that is missing, doubled or damaged is noticed. docs/PROTOCOL.md has the table of the fields.

use secsv_federation::RoundId;
use secsv_protocol::{Scope, TestId, role::Digest};

/// The version that this build speaks.
pub const VERSION: u32 = 4;
/// Bytes of a message in a packet, at most, on a network.
pub const CHUNK: usize = 64 << 10;
/// Bytes of a packet behind its length, at most, on a network: a chunk and what is around it.
pub const MAX_PACKET: usize = CHUNK + (64 << 10);
/// Finished tests and rounds in a packet, at most.
pub const MAX_SCOPES: usize = 4096;
/// Bytes of a refusal's reason, at most.
const MAX_REASON: usize = 4 << 10;
/// Bytes of a packet's length.
pub const PREFIX: usize = 4;

/// One packet, without the bytes of a message behind a [`MessageHead`] or a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The first packet each way.
    Handshake(Handshake),
    /// The beginning of a message, or of its rest where it was cut off; bytes of the message follow.
    Head(MessageHead),
    /// The next bytes of the message.
    Chunk,
    /// Messages below this number are on the receiver's disk.
    Acknowledged(u64),
    /// Finished tests and rounds: messages about them are not needed any more.
    Finished(Vec<Scope>),
    /// Nothing will be sent any more: all is done.
    Goodbye,
    /// The reason why the stream is closed.
    Refused(String),
    /// A sign of life.
    KeepAlive,
}

/// Who this is, as far as the certificate does not say, and how far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// Version of this format.
    pub version: u32,
    /// Digest of the federation file.
    pub federation: Digest,
    /// Drawn once for a state directory.
    pub instance: [u8; 16],
    /// Number of the message that is due.
    pub due: u64,
    /// Digest of that message, if a part of it has come.
    pub partial_digest: Digest,
    /// Bytes of it that have come.
    pub partial_length: u64,
    /// The clock.
    pub unix_milliseconds: u64,
}

/// A message's label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHead {
    /// Number of the message on its link.
    pub number: u64,
    /// Kind of the message, as it travels.
    pub kind: u8,
    /// Bytes of its content.
    pub length: u64,
    /// Digest of its content.
    pub digest: Digest,
    /// Bytes that the receiver has already.
    pub offset: u64,
}

/// Why bytes are no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Fields are missing.
    #[error("a packet that is cut off")]
    Cut,
    /// There is more than the fields.
    #[error("a packet with {0} bytes too many")]
    Trailing(usize),
    /// The type is unknown.
    #[error("type of a packet: found {0}, which is none")]
    Type(u8),
    /// The length is too large.
    #[error("length of a packet: expected at most {MAX_PACKET}, found {0}")]
    Length(usize),
    /// A test's number is too large.
    #[error("number of a test: found {0}, which none has")]
    Test(u64),
    /// The length is not that of the bytes behind it.
    #[error("a packet of another length than it says")]
    OtherLength,
}

const HANDSHAKE: u8 = 0;
const HEAD: u8 = 1;
const CHUNK_TYPE: u8 = 2;
const ACKNOWLEDGED: u8 = 3;
const FINISHED: u8 = 4;
const GOODBYE: u8 = 5;
const REFUSED: u8 = 6;
const KEEP_ALIVE: u8 = 7;

impl Packet {
    /// Appends the packet up to the `data` bytes of a message that will follow it.
    pub fn encode(&self, data: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend([0; PREFIX]);
        match self {
            Self::Handshake(handshake) => {
                out.push(HANDSHAKE);
                out.extend(handshake.version.to_le_bytes());
                out.extend(handshake.federation);
                out.extend(handshake.instance);
                out.extend(handshake.due.to_le_bytes());
                out.extend(handshake.partial_digest);
                out.extend(handshake.partial_length.to_le_bytes());
                out.extend(handshake.unix_milliseconds.to_le_bytes());
            }
            Self::Head(head) => {
                out.push(HEAD);
                out.extend(head.number.to_le_bytes());
                out.push(head.kind);
                out.extend(head.length.to_le_bytes());
                out.extend(head.digest);
                out.extend(head.offset.to_le_bytes());
            }
            Self::Chunk => out.push(CHUNK_TYPE),
            Self::Acknowledged(number) => {
                out.push(ACKNOWLEDGED);
                out.extend(number.to_le_bytes());
            }
            Self::Finished(scopes) => {
                out.push(FINISHED);
                scopes.iter().for_each(|scope| encode_scope(*scope, out));
            }
            Self::Goodbye => out.push(GOODBYE),
            Self::Refused(reason) => {
                out.push(REFUSED);
                out.extend(&reason.as_bytes()[..reason.floor_char_boundary(MAX_REASON)]);
            }
            Self::KeepAlive => out.push(KEEP_ALIVE),
        }
        let length = out.len() - begin - PREFIX + data;
        out[begin..begin + PREFIX].copy_from_slice(&(length as u32).to_le_bytes());
    }

    /// Reads a packet without its length; the message's bytes in it are handed back.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let mut fields = Fields(bytes);
        let [packet_type] = fields.take()?;
        let packet = match packet_type {
            HANDSHAKE => Self::Handshake(Handshake {
                version: u32::from_le_bytes(fields.take()?),
                federation: fields.take()?,
                instance: fields.take()?,
                due: fields.number()?,
                partial_digest: fields.take()?,
                partial_length: fields.number()?,
                unix_milliseconds: fields.number()?,
            }),
            HEAD => {
                let (number, [kind], length) = (fields.number()?, fields.take()?, fields.number()?);
                let (digest, offset) = (fields.take()?, fields.number()?);
                return Ok((Self::Head(MessageHead { number, kind, length, digest, offset }), fields.0));
            }
            CHUNK_TYPE => return Ok((Self::Chunk, fields.0)),
            ACKNOWLEDGED => Self::Acknowledged(fields.number()?),
            FINISHED => {
                let mut scopes = Vec::new();
                while !fields.0.is_empty() {
                    scopes.push(fields.scope()?);
                }
                Self::Finished(scopes)
            }
            GOODBYE => Self::Goodbye,
            REFUSED => {
                let (reason, rest) = fields.0.split_at(fields.0.len().min(MAX_REASON));
                fields.0 = rest;
                Self::Refused(String::from_utf8_lossy(reason).into_owned())
            }
            KEEP_ALIVE => Self::KeepAlive,
            other => return Err(PacketError::Type(other)),
        };
        if fields.0.is_empty() { Ok((packet, &[])) } else { Err(PacketError::Trailing(fields.0.len())) }
    }

    /// Bytes behind the length that a packet begins with.
    pub fn length(prefix: [u8; PREFIX]) -> Result<usize, PacketError> {
        let length = u32::from_le_bytes(prefix) as usize;
        if length > MAX_PACKET { Err(PacketError::Length(length)) } else { Ok(length) }
    }
}

/// Tests and rounds are told apart by a byte.
fn encode_scope(scope: Scope, out: &mut Vec<u8>) {
    match scope {
        Scope::Test(test) => {
            out.push(0);
            out.extend(test.to_wire().to_le_bytes());
        }
        Scope::Round(round) => {
            out.push(1);
            out.extend(round.0.to_le_bytes());
        }
        Scope::Session => {}
    }
}

/// Fields that are still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(PacketError::Cut)?;
        self.0 = rest;
        Ok(*field)
    }

    fn number(&mut self) -> Result<u64, PacketError> {
        self.take().map(u64::from_le_bytes)
    }

    fn scope(&mut self) -> Result<Scope, PacketError> {
        match self.take()? {
            [0] => {
                let number = self.number()?;
                TestId::from_wire(number).map(Scope::Test).map_err(|_| PacketError::Test(number))
            }
            [1] => self.take().map(|round| Scope::Round(RoundId(u32::from_le_bytes(round)))),
            [other] => Err(PacketError::Type(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn packet() -> impl Strategy<Value = (Packet, Vec<u8>)> {
        let handshake = any::<(u32, Digest, [u8; 16], u64, Digest, u64, u64)>().prop_map(
            |(version, federation, instance, due, partial_digest, partial_length, unix_milliseconds)| {
                Packet::Handshake(Handshake {
                    version,
                    federation,
                    instance,
                    due,
                    partial_digest,
                    partial_length,
                    unix_milliseconds,
                })
            },
        );
        let head = any::<(u64, u8, u64, Digest, u64)>().prop_map(|(number, kind, length, digest, offset)| {
            Packet::Head(MessageHead { number, kind, length, digest, offset })
        });
        let scope = prop_oneof![
            (0u64..1 << 56).prop_map(|number| Scope::Test(TestId::from_wire(number).unwrap())),
            any::<u32>().prop_map(|round| Scope::Round(RoundId(round))),
        ];
        let without_data = prop_oneof![
            handshake,
            any::<u64>().prop_map(Packet::Acknowledged),
            vec(scope, 0..300).prop_map(Packet::Finished),
            "\\PC{0,40}".prop_map(Packet::Refused),
            Just(Packet::Goodbye),
            Just(Packet::KeepAlive),
        ];
        prop_oneof![
            without_data.prop_map(|packet| (packet, Vec::new())),
            (prop_oneof![head, Just(Packet::Chunk)], vec(any::<u8>(), 0..300)),
        ]
    }

    proptest! {
        #[test]
        fn a_packet_is_read_as_it_was_written((packet, data) in packet()) {
            let mut bytes = Vec::new();
            packet.encode(data.len(), &mut bytes);
            bytes.extend(&data);
            let (prefix, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(Packet::length(*prefix), Ok(rest.len()));
            prop_assert_eq!(Packet::decode(rest), Ok((packet, &data[..])));
        }

        #[test]
        fn bytes_that_are_accepted_are_written_again_the_same(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok((packet, data)) = Packet::decode(&bytes)
                && !matches!(packet, Packet::Refused(_))
            {
                let mut again = Vec::new();
                packet.encode(data.len(), &mut again);
                again.extend(data);
                prop_assert_eq!(&again[PREFIX..], &bytes);
            }
        }
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused_by_its_length() {
        assert_eq!(Packet::length((MAX_PACKET as u32).to_le_bytes()), Ok(MAX_PACKET));
        assert_eq!(Packet::length(u32::MAX.to_le_bytes()), Err(PacketError::Length(u32::MAX as usize)));
    }

    #[test]
    fn a_packet_that_is_cut_off_or_too_long_for_its_type_is_refused() {
        let mut bytes = Vec::new();
        Packet::Acknowledged(7).encode(0, &mut bytes);
        for end in PREFIX..bytes.len() {
            assert_eq!(Packet::decode(&bytes[PREFIX..end]), Err(PacketError::Cut));
        }
        bytes.push(0);
        assert_eq!(Packet::decode(&bytes[PREFIX..]), Err(PacketError::Trailing(1)));
        assert_eq!(Packet::decode(&[99]), Err(PacketError::Type(99)));
    }

    #[test]
    fn a_reason_that_is_too_long_is_cut_off() {
        let mut bytes = Vec::new();
        Packet::Refused("ü".repeat(MAX_REASON)).encode(0, &mut bytes);
        assert_eq!(bytes.len(), PREFIX + 1 + MAX_REASON);
        assert_eq!(Packet::decode(&bytes[PREFIX..]).unwrap().0, Packet::Refused("ü".repeat(MAX_REASON / 2)));
    }
}

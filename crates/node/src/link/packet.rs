//! What travels on a stream between two parties. Also as a protocol buffer definition, for other languages:
//!
//! ```proto
//! syntax = "proto3";
//! package secsv;
//! service Link { rpc Meet(stream Packet) returns (stream Packet); }
//! message Packet {
//!   oneof body {
//!     Greeting greeting = 1; Head head = 2; Chunk chunk = 3; uint64 acknowledged = 4; Over over = 5; Farewell farewell = 6;
//!   }
//! }
//! message Greeting {
//!   uint32 version = 1; bytes federation = 2; bytes instance = 3; uint64 due = 4;
//!   bytes partial_digest = 5; uint64 partial_length = 6; uint64 unix_milliseconds = 7;
//! }
//! message Head { uint64 number = 1; uint32 kind = 2; uint64 length = 3; bytes digest = 4; uint64 offset = 5; bytes data = 6; }
//! message Chunk { bytes data = 1; }
//! message Over { repeated uint64 tests = 1; repeated uint32 rounds = 2; }
//! message Farewell {}
//! ```

use bytes::Bytes;

/// The version that this build speaks.
pub const VERSION: u32 = 2;

/// One packet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Packet {
    /// What it is.
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6")]
    pub body: Option<Body>,
}

/// What a packet is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// The first packet each way.
    #[prost(message, tag = "1")]
    Greeting(Greeting),
    /// A message begins, or goes on where it was cut off.
    #[prost(message, tag = "2")]
    Head(Head),
    /// The next bytes of the message.
    #[prost(message, tag = "3")]
    Chunk(Chunk),
    /// Messages below this number are on the receiver's disk.
    #[prost(uint64, tag = "4")]
    Acknowledged(u64),
    /// What has ended: messages about it are not needed any more.
    #[prost(message, tag = "5")]
    Over(Over),
    /// All is done.
    #[prost(message, tag = "6")]
    Farewell(Farewell),
}

impl From<Body> for Packet {
    fn from(body: Body) -> Self {
        Self { body: Some(body) }
    }
}

/// Who this is, as far as the certificate does not say, and how far it has come.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Greeting {
    /// Of this format.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The federation's digest.
    #[prost(bytes = "bytes", tag = "2")]
    pub federation: Bytes,
    /// Drawn once for a state directory.
    #[prost(bytes = "bytes", tag = "3")]
    pub instance: Bytes,
    /// The number of the message that is due.
    #[prost(uint64, tag = "4")]
    pub due: u64,
    /// The digest of that message, if a part of it has come.
    #[prost(bytes = "bytes", tag = "5")]
    pub partial_digest: Bytes,
    /// How much has come.
    #[prost(uint64, tag = "6")]
    pub partial_length: u64,
    /// The clock.
    #[prost(uint64, tag = "7")]
    pub unix_milliseconds: u64,
}

/// A message begins.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Head {
    /// Its number on the link.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// What it holds.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Bytes of its content.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// Of its content.
    #[prost(bytes = "bytes", tag = "4")]
    pub digest: Bytes,
    /// Bytes that the receiver has already.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
    /// The first bytes behind those: most messages are one packet.
    #[prost(bytes = "bytes", tag = "6")]
    pub data: Bytes,
}

/// Bytes of a message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// The bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// What has ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Over {
    /// Tests.
    #[prost(uint64, repeated, tag = "1")]
    pub tests: Vec<u64>,
    /// Rounds.
    #[prost(uint32, repeated, tag = "2")]
    pub rounds: Vec<u32>,
}

/// All is done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Farewell {}

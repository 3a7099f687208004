//! Streams of packets between two parties, over TLS 1.3: both sides are authenticated by the kits' certificates, and there is
//! no other way in. One connection carries one stream, the same on both ends, whoever dialled: handshakes, then messages in
//! pieces, acknowledgements and signs of life. A stream that is lost is resumed by the next one, by the numbers of messages.

mod dial;
mod identity;
mod lasting;
mod listen;
mod packets;
mod peer_link;
mod receive;
mod send;
mod stream;

use std::{io, time::Duration};

use secsv_evaluation::{packet::PacketError, partial_message::MessageDefect};

pub(crate) use dial::dial;
pub(crate) use identity::Identity;
pub use identity::{ALPN, TlsError, client_config, server_config};
pub(crate) use lasting::OTHER_FILES;
pub(crate) use listen::{Listening, listen};
pub use packets::{PacketReader, PacketWriter};
pub(crate) use peer_link::{FinishedTests, LinkState, PeerLink};
pub(crate) use receive::Arrival;
pub(crate) use stream::StreamHost;
#[cfg(test)]
pub(crate) use stream::unix_milliseconds;

/// Time for the handshake of TLS, and again for that of the stream.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever has sent nothing for this long sends a sign of life.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A peer from which nothing has come for this long beyond the interval is gone.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for the other side to read why a stream is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a stream has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other side is refused, and is sent the reason.
    #[error("{0}")]
    Refused(String),
    /// The other side has refused this one.
    #[error("{0}")]
    ByPeer(String),
    /// The other side is in another round.
    #[error("{0}")]
    OtherRound(String),
    /// Another file describes the round there.
    #[error("{0}")]
    RoundDiffers(String),
    /// The connection is lost.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// Nothing has come for too long.
    #[error("nothing has come in time")]
    Silent,
    /// A stored message cannot be read.
    #[error("a stored message cannot be read")]
    Unreadable,
}

impl From<PacketError> for StreamError {
    fn from(error: PacketError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<MessageDefect> for StreamError {
    fn from(defect: MessageDefect) -> Self {
        Self::Refused(defect.to_string())
    }
}

/// A refusal with its reason.
fn refuse<T>(reason: impl Into<String>) -> Result<T, StreamError> {
    Err(StreamError::Refused(reason.into()))
}

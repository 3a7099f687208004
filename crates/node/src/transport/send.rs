//! The sending half of a stream.

use std::sync::Arc;

use bytes::Bytes;
use secsv_evaluation::packet::{CHUNK, Handshake, MessageHead, Packet};
use secsv_protocol::Scope;
use tokio::{io::AsyncWrite, sync::oneshot, time::timeout};

use super::{
    KEEPALIVE_INTERVAL, PacketWriter, PeerLink, StreamError,
    peer_link::{OutboundItem, Sent},
    refuse,
};
use crate::journal::{self, BlobRef, Outbound};

/// Sends whatever there is to send, until the other side is to be refused. A message is read in pieces as the other side takes
/// them.
pub(super) async fn run<S: AsyncWrite + Unpin>(
    link: &PeerLink,
    writer: &mut PacketWriter<S>,
    handshake: &Handshake,
    mut refusal: oneshot::Receiver<String>,
) -> Result<(), StreamError> {
    // An acknowledgement may have been lost with the stream before: sent again.
    let mut sent = Sent { next: handshake.due, ..Sent::default() };
    let mut resumed = Some((handshake.partial_digest, handshake.partial_length));
    loop {
        let item = tokio::select! {
            biased;
            Ok(reason) = &mut refusal => OutboundItem::Refused(reason),
            item = next(link, writer, sent) => item?,
        };
        match item {
            OutboundItem::Message(message) => {
                let partial = resumed.take().filter(|(digest, _)| *digest == message.digest);
                let offset = partial.map_or(0, |(_, length)| length.min(message.length));
                send_message(writer, &message, offset).await?;
                sent.next = message.number + 1;
            }
            OutboundItem::Acknowledged(number) => {
                writer.send(&Packet::Acknowledged(number), &[]).await?;
                sent.acknowledged = number;
            }
            OutboundItem::Finished(scopes) => {
                sent.finished += scopes.iter().filter(|scope| matches!(scope, Scope::Test(_))).count();
                writer.send(&Packet::Finished(scopes), &[]).await?;
            }
            OutboundItem::Goodbye => {
                writer.send(&Packet::Goodbye, &[]).await?;
                sent.goodbye = true;
            }
            OutboundItem::Refused(reason) => {
                writer.send(&Packet::Refused(reason.clone()), &[]).await?;
                return refuse(reason);
            }
        }
    }
}

/// Waits for something to send; the other side hears a sign of life meanwhile.
async fn next<S: AsyncWrite + Unpin>(
    link: &PeerLink,
    writer: &mut PacketWriter<S>,
    sent: Sent,
) -> Result<OutboundItem, StreamError> {
    if let Some(item) = link.try_next_outbound(sent) {
        return Ok(item);
    }
    loop {
        writer.flush().await?;
        match timeout(KEEPALIVE_INTERVAL, link.next_outbound(sent)).await {
            Ok(item) => return Ok(item),
            Err(_) => writer.send(&Packet::KeepAlive, &[]).await?,
        }
    }
}

async fn send_message<S: AsyncWrite + Unpin>(
    writer: &mut PacketWriter<S>,
    message: &Outbound,
    offset: u64,
) -> Result<(), StreamError> {
    let source = ContentSource::of(&message.body);
    let Outbound { number, length, digest, .. } = *message;
    let mut packet = Packet::Head(MessageHead { number, kind: message.kind as u8, length, digest, offset });
    let mut at = offset;
    loop {
        let size = CHUNK.min((length - at) as usize);
        writer.send(&packet, &source.read(at, size)?).await?;
        at += size as u64;
        if at == length {
            return Ok(());
        }
        packet = Packet::Chunk;
    }
}

/// Where content comes from, a piece at a time. It was written moments ago: reading a piece takes microseconds.
enum ContentSource {
    Memory(Bytes),
    BlobStore(Arc<BlobRef>),
}

/// Content that several senders share.
struct SharedContent(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedContent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl ContentSource {
    fn of(body: &journal::Body) -> Self {
        match body {
            journal::Body::Inline(content) | journal::Body::Stored(_, Some(content)) => {
                Self::Memory(Bytes::from_owner(SharedContent(content.clone())))
            }
            journal::Body::Stored(place, None) => Self::BlobStore(place.clone()),
        }
    }

    fn read(&self, at: u64, size: usize) -> Result<Bytes, StreamError> {
        match self {
            Self::Memory(content) => Ok(content.slice(at as usize..at as usize + size)),
            Self::BlobStore(place) => {
                place.read(at, size).map(Bytes::from).map_err(|_| StreamError::Unreadable)
            }
        }
    }
}

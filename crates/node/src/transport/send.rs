//! The sending half of a stream.

use std::borrow::Cow;

use secsv_evaluation::packet::{CHUNK, Handshake, MessageHead, Packet};
use secsv_protocol::Scope;
use tokio::{io::AsyncWrite, sync::oneshot, time::timeout};

use super::{
    KEEPALIVE_INTERVAL, PacketWriter, PeerLink, StreamError,
    peer_link::{OutboundItem, Sent},
    refuse,
};
use crate::journal::{Body, Outbound};

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
    let Outbound { number, length, digest, .. } = *message;
    let mut packet = Packet::Head(MessageHead { number, kind: message.kind as u8, length, digest, offset });
    let mut at = offset;
    loop {
        let size = CHUNK.min((length - at) as usize);
        writer.send(&packet, &content(&message.body, at, size)?).await?;
        at += size as u64;
        if at == length {
            return Ok(());
        }
        packet = Packet::Chunk;
    }
}

/// A part of a message's content: from memory where it lies there, else from the disk.
fn content(body: &Body, at: u64, size: usize) -> Result<Cow<'_, [u8]>, StreamError> {
    match body {
        Body::Inline(content) | Body::Stored(_, Some(content)) => Ok(content[at as usize..][..size].into()),
        Body::Stored(place, None) => place.read(at, size).map(Cow::from).map_err(|_| StreamError::Unreadable),
    }
}

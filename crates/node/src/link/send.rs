//! The sending half of a stream.

use std::sync::Arc;

use bytes::Bytes;
use secsv_protocol::Scope;
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    CHUNK,
    packet::{Body, Chunk, Farewell, Greeting, Head, Over, Packet},
    send_to,
};
use crate::{
    journal::{self, Outbound, Place},
    party::{Peer, Sent, Turn},
};

type Outgoing = mpsc::Sender<Result<Packet, Status>>;

/// Sends whatever there is to send, for ever. A message is read in pieces as the other side takes them.
pub(super) async fn run(peer: Arc<Peer>, outgoing: Outgoing, greeting: &Greeting) -> Result<(), Status> {
    // An acknowledgement may have been lost with the stream before: said again.
    let mut sent = Sent { next: greeting.due, ..Sent::default() };
    let mut resumed = Some((greeting.partial_digest.clone(), greeting.partial_length));
    loop {
        match peer.turn(sent).await {
            Turn::Message(message) => {
                let partial = resumed.take().filter(|(digest, _)| digest[..] == message.digest);
                let offset = partial.map_or(0, |(_, length)| length.min(message.length));
                send_message(&outgoing, &message, offset).await?;
                peer.count(0, message.length - offset);
                sent.next = message.number + 1;
            }
            Turn::Acknowledge(number) => {
                send_to(&outgoing, Body::Acknowledged(number)).await?;
                sent.acknowledged = number;
            }
            Turn::Over(scopes) => {
                send_to(&outgoing, Body::Over(over(&scopes))).await?;
                sent.ends += scopes.iter().filter(|scope| matches!(scope, Scope::Test(_))).count();
            }
            Turn::Farewell => {
                send_to(&outgoing, Body::Farewell(Farewell {})).await?;
                sent.farewell = true;
            }
            Turn::Refused(reason) => return Err(Status::invalid_argument(reason)),
        }
    }
}

fn over(scopes: &[Scope]) -> Over {
    let mut over = Over::default();
    for scope in scopes {
        match scope {
            Scope::Test(test) => over.tests.push(*test),
            Scope::Round(round) => over.rounds.push(round.0),
            Scope::Session => {}
        }
    }
    over
}

async fn send_message(outgoing: &Outgoing, message: &Outbound, offset: u64) -> Result<(), Status> {
    let source = Source::of(&message.body);
    let mut at = offset;
    let mut next = || {
        let size = CHUNK.min((message.length - at) as usize);
        let data = source.read(at, size)?;
        at += size as u64;
        Ok::<_, Status>(data)
    };
    let head = Head {
        number: message.number,
        kind: message.kind as u32,
        length: message.length,
        digest: Bytes::copy_from_slice(&message.digest),
        offset,
        data: next()?,
    };
    let mut left = (message.length - offset) - head.data.len() as u64;
    send_to(outgoing, Body::Head(head)).await?;
    while left > 0 {
        let data = next()?;
        left -= data.len() as u64;
        send_to(outgoing, Body::Chunk(Chunk { data })).await?;
    }
    Ok(())
}

/// Where content comes from, a piece at a time. It was written moments ago: reading a piece takes microseconds.
enum Source {
    Memory(Bytes),
    Shelf(Arc<Place>),
}

/// Content that several senders share.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Source {
    fn of(body: &journal::Body) -> Self {
        match body {
            journal::Body::Inline(content) | journal::Body::Shelved(_, Some(content)) => {
                Self::Memory(Bytes::from_owner(Shared(content.clone())))
            }
            journal::Body::Shelved(place, None) => Self::Shelf(place.clone()),
        }
    }

    fn read(&self, at: u64, size: usize) -> Result<Bytes, Status> {
        match self {
            Self::Memory(content) => Ok(content.slice(at as usize..at as usize + size)),
            Self::Shelf(place) => place.read(at, size).map(Bytes::from).map_err(unreadable),
        }
    }
}

fn unreadable(_: std::io::Error) -> Status {
    Status::internal("a stored message cannot be read")
}

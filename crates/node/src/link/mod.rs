//! Two parties on a stream: who they are, which messages the other has, messages in pieces, acknowledgements. The same
//! on both ends, whoever dialled.

pub mod packet;
mod receive;
mod send;
pub(crate) mod wire;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use secsv_protocol::{PartyId, Scope, message::Kind};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::party::{Arrival, Peer};
use packet::{Body, Greeting, Packet, VERSION};

/// Time to greet.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes in a packet.
pub const CHUNK: usize = 64 << 10;
/// Packets under way inside a process.
pub const PACKETS: usize = 8;
/// Ends of tests and rounds in a packet.
pub(crate) const SCOPES: usize = 4096;

/// What a stream needs of the party it belongs to.
pub(crate) trait Host: Send + Sync + 'static {
    /// The federation's digest.
    fn federation(&self) -> [u8; 32];
    /// Drawn once for the state directory.
    fn instance(&self) -> [u8; 16];
    /// The other end of a link, if there is one between the two.
    fn peer(&self, id: PartyId) -> Option<Arc<Peer>>;
    /// The instance of a peer that was met first.
    fn meet(&self, id: PartyId, instance: [u8; 16]) -> impl Future<Output = Option<[u8; 16]>> + Send;
    /// Room for so many bytes in the inbox.
    fn room(&self, bytes: usize) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send;
    /// The most bytes that a message of a kind from a peer may have. Where that follows from the session, this waits for it.
    fn max_len(&self, from: PartyId, kind: Kind) -> impl Future<Output = u64> + Send;
    /// A message has come.
    fn arrive(&self, arrival: Arrival);
    /// The other side has the messages below this number.
    fn acknowledged(&self, peer: PartyId, number: u64);
    /// The other side says that this has ended.
    fn over(&self, peer: PartyId, scopes: Vec<Scope>, room: Option<OwnedSemaphorePermit>);
    /// The other side has nothing more to say.
    fn farewell(&self, peer: PartyId);
}

/// Speaks with a peer until the stream ends. Errors say why it was refused.
pub(crate) async fn converse<H: Host, S>(
    host: Arc<H>,
    id: PartyId,
    mut incoming: S,
    outgoing: mpsc::Sender<Result<Packet, Status>>,
) -> Result<(), Status>
where
    S: Stream<Item = Result<Packet, Status>> + Send + Unpin + 'static,
{
    let peer = host.peer(id).ok_or_else(|| Status::permission_denied("these two parties have no link"))?;
    // A peer whose message was refused is cut off for a while.
    tokio::time::sleep_until(peer.cut_off_until()).await;
    let (due, partial) = peer.progress();
    let (partial_digest, partial_length) =
        partial.map_or((Bytes::new(), 0), |(digest, length)| (Bytes::copy_from_slice(&digest), length));
    let own = Greeting {
        version: VERSION,
        federation: Bytes::copy_from_slice(&host.federation()),
        instance: Bytes::copy_from_slice(&host.instance()),
        due,
        partial_digest,
        partial_length,
        unix_milliseconds: unix_milliseconds(),
    };
    send_to(&outgoing, Body::Greeting(own)).await?;
    let first = tokio::time::timeout(PATIENCE, incoming.next()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("expected a greeting, found nothing"))?;
    let Some(Body::Greeting(greeting)) = first.transpose()?.and_then(|packet| packet.body) else {
        return Err(Status::invalid_argument("expected a greeting, found something else"));
    };
    check(&*host, &peer, &greeting).await?;
    let mut stream = peer.begin();
    tracing::info!(peer = peer.name, due = greeting.due, "link is up");
    let sender = send::run(peer.clone(), outgoing.clone(), &greeting);
    let receiver = receive::run(host, peer.clone(), incoming, due);
    let ended = tokio::select! {
        // What the other side says tells more than that nothing can be sent to it.
        biased;
        _ = stream.changed() => Err(Status::aborted("another stream of this party took over")),
        ended = receiver => ended,
        ended = sender => ended,
    };
    peer.finish(&stream);
    let why = ended.as_ref().err().map(Status::message);
    tracing::info!(peer = peer.name, why, "link is down");
    ended
}

async fn check<H: Host>(host: &H, peer: &Peer, greeting: &Greeting) -> Result<(), Status> {
    if greeting.version != VERSION {
        let text = format!("version: expected {VERSION}, found {}", greeting.version);
        return Err(Status::failed_precondition(text));
    }
    if greeting.federation[..] != host.federation() {
        return Err(Status::failed_precondition("the federation files differ: the kits are of two sets"));
    }
    let malformed = |_| Status::invalid_argument("instance: expected 16 bytes");
    let instance: [u8; 16] = greeting.instance[..].try_into().map_err(malformed)?;
    let known = host.meet(peer.id, instance).await;
    if known.ok_or_else(|| Status::unavailable("shutting down"))? != instance {
        return Err(Status::already_exists(format!(
            "{} takes part with another state directory: a second process, or a directory that was lost",
            peer.name
        )));
    }
    let (first, next) = peer.range();
    if !(first..=next).contains(&greeting.due) {
        let text = format!("due: expected {first} to {next}, found {}: one side lost messages", greeting.due);
        return Err(Status::data_loss(text));
    }
    Ok(())
}

async fn send_to(outgoing: &mpsc::Sender<Result<Packet, Status>>, body: Body) -> Result<(), Status> {
    let gone = |_| Status::cancelled("the stream has ended");
    outgoing.send(Ok(body.into())).await.map_err(gone)
}

/// The clock, as greetings tell it.
pub fn unix_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

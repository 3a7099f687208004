//! One stream between two parties, from the handshake to the end.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use secsv_evaluation::packet::{Handshake, Packet, VERSION};
use secsv_protocol::{PartyId, Scope, message::Kind};
use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    sync::{OwnedSemaphorePermit, oneshot},
    time::{sleep_until, timeout},
};

use super::{
    Arrival, CLOSE_TIMEOUT, HANDSHAKE_TIMEOUT, PacketReader, PacketWriter, PeerLink, StreamError,
    lasting::{LOST_HERE, OTHER_DIRECTORY, OTHER_FILES, VERSIONS},
    receive, refuse, send,
};
use crate::kit::RoundNotice;

/// What a stream needs of the party it belongs to.
pub(crate) trait StreamHost: Send + Sync + 'static {
    /// Digest of the federation file.
    fn federation(&self) -> [u8; 32];
    /// Drawn once for the state directory.
    fn instance(&self) -> [u8; 16];
    /// The link to a party, if there is one between the two.
    fn link(&self, peer: PartyId) -> Option<Arc<PeerLink>>;
    /// The instance of a peer that was seen first: this one, if there was none before.
    fn first_instance(
        &self,
        peer: PartyId,
        instance: [u8; 16],
    ) -> impl Future<Output = Option<[u8; 16]>> + Send;
    /// Room for `bytes` in the inbox.
    fn room(&self, bytes: usize) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send;
    /// The most bytes that a message of a kind from a peer may have. Where that follows from the session, this waits for it.
    fn max_len(&self, from: PartyId, kind: Kind) -> impl Future<Output = u64> + Send;
    /// A message has come.
    fn arrive(&self, arrival: Arrival);
    /// The other side has stored the messages below this number.
    fn acknowledged(&self, peer: PartyId, number: u64);
    /// The other side says that these are finished.
    fn finished(&self, peer: PartyId, scopes: Vec<Scope>, room: Option<OwnedSemaphorePermit>);
    /// The other side will send nothing more.
    fn goodbye(&self, peer: PartyId);
    /// Whether the values are there, so that the other side may leave.
    fn is_over(&self) -> bool;
    /// There can be no link, and no people elsewhere will mend that.
    fn give_up(&self, peer: PartyId, reason: String);
    /// What is said of the round, where the run is of one round that came later.
    fn notice(&self) -> Option<&RoundNotice> {
        None
    }
    /// The other side says this of its round: why there is no stream.
    fn other_round(&self, _: PartyId, _: &RoundNotice) -> StreamError {
        StreamError::RoundDiffers(OTHER_FILES.to_owned())
    }
}

/// Runs a stream with a party until it ends. Whoever is refused is sent the reason.
pub(super) async fn run_stream<H: StreamHost, S>(
    host: Arc<H>,
    peer: Option<PartyId>,
    stream: S,
) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (reader, writer) = split(stream);
    let (mut reader, mut writer) = (PacketReader::new(reader), PacketWriter::new(writer));
    let ended = match shake_hands(&*host, peer, &mut reader, &mut writer).await {
        Ok((link, own, other)) => exchange(host, link, (&own, &other), &mut reader, &mut writer).await,
        Err(StreamError::Refused(reason)) => {
            let reason = Packet::Refused(reason);
            // The other side may take nothing any more.
            let _ = timeout(CLOSE_TIMEOUT, writer.send(&reason, &[])).await;
            let Packet::Refused(reason) = reason else { return Ok(()) };
            refuse(reason)
        }
        Err(error) => Err(error),
    };
    let closing = async {
        writer.close().await;
        if matches!(ended, Err(StreamError::Refused(_))) {
            reader.drain().await;
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
    ended
}

/// Exchanges handshakes: the link, and what both sides said.
async fn shake_hands<H: StreamHost, S>(
    host: &H,
    peer: Option<PartyId>,
    reader: &mut PacketReader<tokio::io::ReadHalf<S>>,
    writer: &mut PacketWriter<tokio::io::WriteHalf<S>>,
) -> Result<(Arc<PeerLink>, Handshake, Handshake), StreamError>
where
    S: AsyncRead + AsyncWrite,
{
    let Some(peer) = peer else { return refuse("the certificate is of no party in the federation file") };
    let Some(link) = host.link(peer) else { return refuse("these two parties have no link") };
    // A peer whose message was refused is cut off for a while.
    sleep_until(link.cut_off_until()).await;
    let (due, partial) = link.progress();
    let (partial_digest, partial_length) = partial.unwrap_or_default();
    let own = Handshake {
        version: VERSION,
        federation: host.federation(),
        instance: host.instance(),
        due,
        partial_digest,
        partial_length,
        unix_milliseconds: unix_milliseconds(),
    };
    let first = async {
        writer.send(&Packet::Handshake(own.clone()), &[]).await?;
        writer.flush().await?;
        reader.next().await
    };
    let Ok(first) = timeout(HANDSHAKE_TIMEOUT, first).await else {
        return refuse("expected a handshake, found nothing");
    };
    match first? {
        Some((Packet::Handshake(other), _)) => {
            if let Some(notice) = host.notice().filter(|_| other.federation != host.federation()) {
                return compare_rounds(host, &link, notice, reader, writer).await;
            }
            check(host, &link, &other).await?;
            Ok((link, own, other))
        }
        Some((Packet::Refused(reason), _)) => Err(StreamError::ByPeer(reason)),
        _ => refuse("expected a handshake, found something else"),
    }
}

/// Tells the other side which round this one is in, hears which round that one is in, and ends.
async fn compare_rounds<H: StreamHost, S, T>(
    host: &H,
    link: &PeerLink,
    own: &RoundNotice,
    reader: &mut PacketReader<tokio::io::ReadHalf<S>>,
    writer: &mut PacketWriter<tokio::io::WriteHalf<S>>,
) -> Result<T, StreamError>
where
    S: AsyncRead + AsyncWrite,
{
    let exchange = async {
        writer.send(&Packet::Refused(own.to_string()), &[]).await?;
        writer.flush().await?;
        reader.next().await
    };
    let other = match timeout(CLOSE_TIMEOUT, exchange).await {
        Ok(Ok(Some((Packet::Refused(said), _)))) => RoundNotice::parse(&said),
        _ => None,
    };
    match other {
        Some(other) => Err(host.other_round(link.id, &other)),
        None => refuse(OTHER_FILES),
    }
}

async fn check<H: StreamHost>(host: &H, link: &PeerLink, other: &Handshake) -> Result<(), StreamError> {
    if other.version != VERSION {
        return refuse(format!("{VERSIONS} {VERSION}, found {}", other.version));
    }
    if other.federation != host.federation() {
        return refuse(OTHER_FILES);
    }
    match host.first_instance(link.id, other.instance).await {
        None => return refuse("shutting down"),
        Some(known) if known != other.instance => {
            return refuse(format!("{} {OTHER_DIRECTORY}", link.name));
        }
        Some(_) => {}
    }
    let (first, next) = link.range();
    match other.due {
        due if due > next => {
            let name = &link.name;
            return refuse(format!("{LOST_HERE}: {name} has {due} messages of it, and it knows of {next}"));
        }
        due if due < first => {
            let name = &link.name;
            return refuse(format!(
                "{name} has lost messages: it had {first} of this party, and now expects {due}"
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Sends and receives until the stream ends.
async fn exchange<H: StreamHost, S>(
    host: Arc<H>,
    link: Arc<PeerLink>,
    (own, other): (&Handshake, &Handshake),
    reader: &mut PacketReader<tokio::io::ReadHalf<S>>,
    writer: &mut PacketWriter<tokio::io::WriteHalf<S>>,
) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite,
{
    let (number, mut later) = link.begin();
    tracing::info!(peer = link.name, due = other.due, "link is up");
    let (refuse, refusal) = oneshot::channel();
    let mut sender = std::pin::pin!(send::run(&link, writer, other, refusal));
    let ended = tokio::select! {
        // What the other side says tells more than that nothing can be sent to it.
        biased;
        _ = later.changed() => {
            Err(StreamError::Refused("another stream of this party took over".to_owned()))
        }
        ended = receive::run(host, link.clone(), reader, own.due) => ended,
        ended = &mut sender => ended,
    };
    if let Err(StreamError::Refused(reason)) = &ended
        && refuse.send(reason.clone()).is_ok()
    {
        // Behind the packet that is on its way, unless the other side takes nothing any more.
        let _ = timeout(CLOSE_TIMEOUT, sender).await;
    }
    link.finish(number);
    let why = ended.as_ref().err().map(ToString::to_string);
    tracing::info!(peer = link.name, why, "link is down");
    ended
}

/// The clock, as handshakes tell it.
pub(crate) fn unix_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

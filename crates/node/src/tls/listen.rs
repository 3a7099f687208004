//! Connections that come in.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use secsv_protocol::PartyId;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    task::{AbortHandle, JoinHandle},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Server, server::Connected};

use super::{
    ANSWER, FRAME, HANDSHAKE, Identity, SILENCE, TlsError, WINDOW,
    held::{Held, Hold},
    service::LinkService,
};
use crate::link::{Host, PATIENCE};

/// Handshakes at a time. One more ends the oldest of the source that has most under way: strangers who never finish theirs keep nobody
/// out who comes from elsewhere.
const HANDSHAKES: usize = 256;
/// Connections of a party at a time. One more ends the oldest.
const CONNECTIONS: usize = 4;

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(super) struct Caller {
    pub party: Option<PartyId>,
    pub address: SocketAddr,
    /// Streams under way on the connection.
    streams: watch::Sender<usize>,
}

impl Caller {
    /// The connection is put to use, until this is dropped.
    pub(super) fn begin(&self) -> Use {
        self.streams.send_modify(|streams| *streams += 1);
        Use(self.streams.clone())
    }
}

/// A stream under way.
pub(super) struct Use(watch::Sender<usize>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.send_modify(|streams| *streams -= 1);
    }
}

/// Holds on to a connection while it is put to use, and a while longer.
async fn watch_over(_hold: Hold, mut streams: watch::Receiver<usize>, address: SocketAddr) {
    loop {
        match tokio::time::timeout(PATIENCE, streams.wait_for(|&streams| streams > 0)).await {
            Ok(Ok(_)) => {}
            // The connection has ended.
            Ok(Err(_)) => return,
            Err(_) => {
                tracing::warn!(%address, "connection put to no use: closed");
                return;
            }
        }
        if streams.wait_for(|&streams| streams == 0).await.is_err() {
            return;
        }
    }
}

/// A connection of somebody with a certificate.
type Secured = Held<TlsStream<TcpStream>, Caller>;

impl Connected for Secured {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.known.clone()
    }
}

/// A server that takes connections until this is dropped.
pub(crate) struct Listening {
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Takes connections of parties.
pub(crate) async fn listen<H: Host>(
    host: Arc<H>,
    identity: Arc<Identity>,
    address: &str,
) -> Result<Listening, TlsError> {
    let failed = |source| TlsError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let (secured, connections) = mpsc::channel(16);
    let accepting = tokio::spawn(accept(listener, identity, secured));
    let server = Server::builder()
        .http2_keepalive_interval(Some(SILENCE))
        .http2_keepalive_timeout(Some(ANSWER))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(Some(FRAME))
        .max_concurrent_streams(4)
        .http2_max_header_list_size(16 << 10)
        .tcp_nodelay(true)
        .add_service(LinkService(host))
        .serve_with_incoming(ReceiverStream::new(connections));
    let serving = tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the server has ended");
        }
    });
    tracing::info!(address = %local, "listening");
    Ok(Listening { tasks: [accepting, serving] })
}

async fn accept(
    listener: TcpListener,
    identity: Arc<Identity>,
    secured: mpsc::Sender<Result<Secured, io::Error>>,
) {
    let acceptor = TlsAcceptor::from(identity.server());
    let connections = Arc::new(Mutex::new(BTreeMap::new()));
    let mut handshakes = VecDeque::new();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, identity, secured) = (acceptor.clone(), identity.clone(), secured.clone());
        let connections = connections.clone();
        let handshake = tokio::spawn(async move {
            // Small messages must not wait for large ones' acknowledgements.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Err(_) => tracing::warn!(%address, reason = "no handshake in time", "connection refused"),
                Ok(Err(reason)) => tracing::warn!(%address, %reason, "connection refused"),
                Ok(Ok(stream)) => {
                    let connection = name(stream, &identity, address, &connections);
                    // The server has ended: nobody takes it.
                    let _ = secured.send(Ok(connection)).await;
                }
            }
        });
        if handshakes.len() >= HANDSHAKES {
            handshakes.retain(|(_, handshake): &Handshake| !handshake.is_finished());
        }
        handshakes.push_back((source(address.ip()), handshake.abort_handle()));
        if handshakes.len() > HANDSHAKES {
            give_way(&mut handshakes);
        }
    }
}

/// Where a handshake under way comes from, and its task.
type Handshake = (IpAddr, AbortHandle);

/// Whom an address stands for: in IPv6 one site has all addresses with the same 64 bits in front.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Ends the oldest handshake of the source that has most under way.
fn give_way(handshakes: &mut VecDeque<Handshake>) {
    let mut under_way: BTreeMap<IpAddr, usize> = BTreeMap::new();
    handshakes.iter().for_each(|(source, _)| *under_way.entry(*source).or_default() += 1);
    let most = under_way.values().copied().max();
    let oldest = handshakes.iter().position(|(source, _)| under_way.get(source).copied() == most);
    if let Some((_, handshake)) = oldest.and_then(|oldest| handshakes.remove(oldest)) {
        handshake.abort();
    }
}

/// Watchers of connections by party, the oldest first. Some may have ended.
type Connections = Mutex<BTreeMap<Option<PartyId>, VecDeque<AbortHandle>>>;

fn name(
    stream: TlsStream<TcpStream>,
    identity: &Identity,
    address: SocketAddr,
    connections: &Connections,
) -> Secured {
    let certificates = stream.get_ref().1.peer_certificates();
    let party = certificates.and_then(|chain| chain.first()).and_then(|own| identity.party_of(own));
    let (hold, held) = oneshot::channel();
    let streams = watch::Sender::new(0);
    let watcher = tokio::spawn(watch_over(hold, streams.subscribe(), address));
    let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
    keep(connections.entry(party).or_default(), watcher.abort_handle(), CONNECTIONS);
    Held::new(stream, held, Caller { party, address, streams })
}

/// Adds one; the oldest ends if they are more than that.
fn keep(tasks: &mut VecDeque<AbortHandle>, task: AbortHandle, most: usize) {
    tasks.push_back(task);
    if tasks.len() > most {
        tasks.pop_front().iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::sleep,
    };

    use super::*;

    fn connection() -> (Held<DuplexStream, Caller>, DuplexStream) {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (hold, held) = oneshot::channel();
        let streams = watch::Sender::new(0);
        tokio::spawn(watch_over(hold, streams.subscribe(), address));
        let (own, other) = duplex(8);
        (Held::new(own, held, Caller { party: None, address, streams }), other)
    }

    const MOMENT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_connection_lasts_while_it_is_used_and_a_while_longer() {
        let (mut held, mut other) = connection();
        sleep(PATIENCE - MOMENT).await;
        let (first, second) = (held.known.begin(), held.known.begin());
        sleep(10 * PATIENCE).await;
        drop(first);
        sleep(10 * PATIENCE).await;
        drop(second);
        sleep(PATIENCE - MOMENT).await;
        other.write_all(b"a").await.unwrap();
        assert_eq!(held.read_u8().await.unwrap(), b'a');
        // Somebody waits for bytes when it ends.
        assert_eq!(held.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(held.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    /// The other side takes nothing: whoever writes is told too.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_full_ends_too() {
        let (mut held, _other) = connection();
        assert_eq!(held.write_all(&[0; 9]).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(held.shutdown().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    /// One source with any number of handshakes ends its own, the oldest first; whoever comes from elsewhere is left alone.
    #[tokio::test]
    async fn a_flood_from_one_source_keeps_nobody_else_out() {
        let flood: IpAddr = [192, 0, 2, 1].into();
        let honest: Vec<IpAddr> = (1..5).map(|k| [198, 51, 100, k].into()).collect();
        let mut handshakes = VecDeque::new();
        let mut begin = |from| {
            let task: JoinHandle<()> = tokio::spawn(std::future::pending());
            handshakes.push_back((source(from), task.abort_handle()));
            if handshakes.len() > HANDSHAKES {
                give_way(&mut handshakes);
            }
            task
        };
        let waiting: Vec<JoinHandle<()>> = honest.iter().map(|&from| begin(from)).collect();
        let flooding: Vec<JoinHandle<()>> = (0..3 * HANDSHAKES).map(|_| begin(flood)).collect();
        sleep(Duration::from_millis(50)).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "an honest handshake gave way");
        let ended = flooding.iter().filter(|task| task.is_finished()).count();
        assert_eq!(ended, flooding.len() - (HANDSHAKES - waiting.len()));
        assert!(flooding[..ended].iter().all(JoinHandle::is_finished), "the oldest first");
        assert_eq!(handshakes.len(), HANDSHAKES);
    }

    #[test]
    fn one_site_is_one_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[tokio::test]
    async fn the_oldest_ends_for_a_new_one() {
        let mut tasks = VecDeque::new();
        let spawned: Vec<JoinHandle<()>> = (0..5).map(|_| tokio::spawn(std::future::pending())).collect();
        spawned.iter().for_each(|task| keep(&mut tasks, task.abort_handle(), 3));
        assert_eq!(tasks.len(), 3);
        tokio::task::yield_now().await;
        assert_eq!(
            spawned.iter().map(JoinHandle::is_finished).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
    }
}

//! Connections that come in.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secsv_protocol::PartyId;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinHandle},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{HANDSHAKE_TIMEOUT, Identity, StreamError, StreamHost, TlsError, stream::run_stream};

/// Handshakes at a time. One more ends the oldest of the source that has most under way: strangers who never finish theirs keep nobody
/// out who comes from elsewhere.
const MAX_HANDSHAKES: usize = 256;
/// Connections of a party at a time. One more ends the oldest.
const MAX_CONNECTIONS: usize = 4;

/// A server that takes connections until this is dropped.
pub(crate) struct Listening {
    accepting: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Takes connections of parties.
pub(crate) async fn listen<H: StreamHost>(
    host: Arc<H>,
    identity: Arc<Identity>,
    address: &str,
) -> Result<Listening, TlsError> {
    let failed = |source| TlsError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let connections = Connections { host, identity, tasks: Mutex::default() };
    let accepting = tokio::spawn(accept(listener, Arc::new(connections)));
    tracing::info!(address = %local, "listening");
    Ok(Listening { accepting })
}

async fn accept<H: StreamHost>(listener: TcpListener, connections: Arc<Connections<H>>) {
    let acceptor = TlsAcceptor::from(connections.identity.server());
    let mut handshakes = VecDeque::new();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        let handshake = tokio::spawn(async move {
            // Small messages must not wait for large ones' acknowledgements.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Err(_) => tracing::warn!(%address, reason = "no handshake in time", "connection refused"),
                Ok(Err(reason)) => tracing::warn!(%address, %reason, "connection refused"),
                Ok(Ok(stream)) => connections.begin(stream, address),
            }
        });
        if handshakes.len() >= MAX_HANDSHAKES {
            handshakes.retain(|(_, handshake): &PendingHandshake| !handshake.is_finished());
        }
        handshakes.push_back((source(address.ip()), handshake.abort_handle()));
        if handshakes.len() > MAX_HANDSHAKES {
            give_way(&mut handshakes);
        }
    }
}

/// Connections whose certificate is the authority's.
struct Connections<H> {
    host: Arc<H>,
    identity: Arc<Identity>,
    /// Their tasks by party, the oldest first. Some may have ended.
    tasks: Mutex<BTreeMap<Option<PartyId>, VecDeque<AbortHandle>>>,
}

impl<H: StreamHost> Connections<H> {
    /// Runs a connection's stream.
    fn begin(&self, stream: TlsStream<TcpStream>, address: SocketAddr) {
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(|chain| chain.first());
        let party = certificate.and_then(|certificate| self.identity.party_of(certificate));
        let host = self.host.clone();
        let peer = party.map(|party| self.identity.name(party));
        let task = tokio::spawn(async move {
            let Err(reason) = run_stream(host.clone(), party, stream).await else { return };
            party
                .and_then(|party| host.link(party))
                .iter()
                .for_each(|link| link.trouble(&reason.to_string()));
            if matches!(reason, StreamError::OtherRound(_)) {
                tracing::debug!(%address, peer, %reason, "in another round");
            } else if matches!(reason, StreamError::Lost(_)) && host.is_over() {
                tracing::debug!(%address, peer, %reason, "left");
            } else {
                tracing::warn!(%address, peer, %reason, "stream refused or lost");
            }
        });
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        add(tasks.entry(party).or_default(), task.abort_handle(), MAX_CONNECTIONS);
    }
}

/// Where a handshake under way comes from, and its task.
type PendingHandshake = (IpAddr, AbortHandle);

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
fn give_way(handshakes: &mut VecDeque<PendingHandshake>) {
    let mut under_way: BTreeMap<IpAddr, usize> = BTreeMap::new();
    handshakes.iter().for_each(|(source, _)| *under_way.entry(*source).or_default() += 1);
    let most = under_way.values().copied().max();
    let oldest = handshakes.iter().position(|(source, _)| under_way.get(source).copied() == most);
    if let Some((_, handshake)) = oldest.and_then(|oldest| handshakes.remove(oldest)) {
        handshake.abort();
    }
}

/// Adds one; the oldest ends if they are more than that.
fn add(tasks: &mut VecDeque<AbortHandle>, task: AbortHandle, most: usize) {
    tasks.push_back(task);
    if tasks.len() > most
        && let Some(oldest) = tasks.pop_front()
    {
        oldest.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// One source with any number of handshakes ends its own, the oldest first; whoever comes from elsewhere is left alone.
    #[tokio::test]
    async fn a_flood_from_one_source_keeps_nobody_else_out() {
        let flood: IpAddr = [192, 0, 2, 1].into();
        let honest: Vec<IpAddr> = (1..5).map(|k| [198, 51, 100, k].into()).collect();
        let mut handshakes = VecDeque::new();
        let mut begin = |from| {
            let task: JoinHandle<()> = tokio::spawn(std::future::pending());
            handshakes.push_back((source(from), task.abort_handle()));
            if handshakes.len() > MAX_HANDSHAKES {
                give_way(&mut handshakes);
            }
            task
        };
        let waiting: Vec<JoinHandle<()>> = honest.iter().map(|&from| begin(from)).collect();
        let flooding: Vec<JoinHandle<()>> = (0..3 * MAX_HANDSHAKES).map(|_| begin(flood)).collect();
        sleep(Duration::from_millis(50)).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "an honest handshake gave way");
        let ended = flooding.iter().filter(|task| task.is_finished()).count();
        assert_eq!(ended, flooding.len() - (MAX_HANDSHAKES - waiting.len()));
        assert!(flooding[..ended].iter().all(JoinHandle::is_finished), "the oldest first");
        assert_eq!(handshakes.len(), MAX_HANDSHAKES);
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
        spawned.iter().for_each(|task| add(&mut tasks, task.abort_handle(), 3));
        assert_eq!(tasks.len(), 3);
        tokio::task::yield_now().await;
        assert_eq!(
            spawned.iter().map(JoinHandle::is_finished).collect::<Vec<_>>(),
            [true, true, false, false, false]
        );
    }
}

//! Connections that go out: dialled again and again, until the party has ended.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::pki_types::ServerName;
use secsv_protocol::PartyId;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{HANDSHAKE_TIMEOUT, Identity, StreamError, StreamHost, lasting::Refusals, stream::run_stream};

/// The first wait after a connection was lost ...
const MIN_WAIT: Duration = Duration::from_millis(50);
/// ... and the longest.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The same while rounds come one by one: their values are wanted soon.
const MAX_WAIT_OF_ROUNDS: Duration = Duration::from_millis(250);
/// A server that stays away is told of again.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// Keeps a link to a server up, for ever.
pub(crate) async fn dial<H: StreamHost>(host: Arc<H>, identity: Arc<Identity>, server: PartyId) {
    let name = identity.name(server);
    let most_wait = if host.notice().is_some() { MAX_WAIT_OF_ROUNDS } else { MAX_WAIT };
    let mut wait = MIN_WAIT;
    let mut logged = String::new();
    let mut said = Instant::now();
    let mut refusals = Refusals::default();
    loop {
        let begun = tokio::time::Instant::now();
        let ended = once(&host, &identity, server).await;
        if let Some(reason) = refusals.take(ended.as_ref(), Instant::now())
            && !host.is_over()
        {
            host.give_up(server, reason);
            return;
        }
        if said.elapsed() > SAY_AGAIN {
            logged.clear();
        }
        match ended {
            Ok(()) => tracing::info!(peer = name, "stream ended"),
            Err(error) => {
                let reason = error.to_string();
                host.link(server).iter().for_each(|link| link.trouble(&reason));
                if reason == logged || host.is_over() {
                    tracing::debug!(peer = name, reason, "no link");
                } else {
                    tracing::warn!(peer = name, reason, "no link; dialling again");
                    said = Instant::now();
                }
                logged = reason;
            }
        }
        if begun.elapsed() > MAX_WAIT {
            wait = MIN_WAIT;
            logged.clear();
        }
        tokio::time::sleep(wait).await;
        wait = most_wait.min(wait * 2);
    }
}

async fn once<H: StreamHost>(
    host: &Arc<H>,
    identity: &Arc<Identity>,
    server: PartyId,
) -> Result<(), StreamError> {
    let stream = connect(identity, server).await?;
    run_stream(host.clone(), Some(server), stream).await
}

/// A connection to the server that the federation file names, and to no other.
pub(crate) async fn connect(identity: &Identity, server: PartyId) -> io::Result<TlsStream<TcpStream>> {
    let address = identity.address(server).ok_or_else(|| io::Error::other("clients are not dialled"))?;
    let tcp = TcpStream::connect((address.host.as_str(), address.port));
    let tcp = tokio::time::timeout(HANDSHAKE_TIMEOUT, tcp).await??;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let handshake = TlsConnector::from(identity.client()).connect(name, tcp);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await??;
    let certificates = stream.get_ref().1.peer_certificates();
    let found = certificates.and_then(|chain| chain.first()).and_then(|own| identity.party_of(own));
    if found != Some(server) {
        return Err(io::Error::other(format!("the certificate at {address} is not that of {server}")));
    }
    Ok(stream)
}

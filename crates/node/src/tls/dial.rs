//! Connections that go out: dialled again and again, until the party has ended.

use std::{io, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use secsv_protocol::PartyId;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::{Status, codegen::http::Uri, transport::Endpoint};
use tower::{Service as _, ServiceExt as _};

use super::{ANSWER, FRAME, HANDSHAKE, Identity, SILENCE, WINDOW, held::Held, service};
use crate::link::{Host, PACKETS, PATIENCE, converse};

/// The first wait after a connection was lost ...
const SHORTEST: Duration = Duration::from_millis(50);
/// ... and the longest.
const LONGEST: Duration = Duration::from_secs(5);

/// Keeps a link to a server up, for ever.
pub(crate) async fn dial<H: Host>(host: Arc<H>, identity: Arc<Identity>, server: PartyId) {
    let name = identity.name(server);
    let mut wait = SHORTEST;
    let mut said = String::new();
    loop {
        let begun = tokio::time::Instant::now();
        match once(&host, &identity, server).await {
            Ok(()) => tracing::info!(peer = name, "stream ended"),
            Err(error) => {
                let reason = error.to_string();
                if reason == said {
                    tracing::debug!(peer = name, reason, "no link");
                } else {
                    tracing::warn!(peer = name, reason, "no link; dialling again");
                }
                said = reason;
            }
        }
        if begun.elapsed() > LONGEST {
            wait = SHORTEST;
            said.clear();
        }
        tokio::time::sleep(wait).await;
        wait = LONGEST.min(wait * 2);
    }
}

/// Why a link could not be had, or was lost.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("{0}")]
    Connect(String),
    #[error("{}", .0.message())]
    Refused(Box<Status>),
}

async fn once<H: Host>(host: &Arc<H>, identity: &Arc<Identity>, server: PartyId) -> Result<(), DialError> {
    let uri = Uri::from_static("http://party");
    let endpoint = Endpoint::from(uri)
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(ANSWER)
        .keep_alive_while_idle(true)
        .max_frame_size(FRAME)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .connect_timeout(2 * HANDSHAKE);
    // Whatever the server has not taken by the end is not waited for.
    let (_hold, held) = oneshot::channel();
    let (of, mut held) = (identity.clone(), Some(held));
    let connector = tower::service_fn(move |_: Uri| {
        let (of, held) = (of.clone(), held.take());
        async move {
            let held = held.ok_or_else(|| io::Error::other("the connection is lost"))?;
            connect(&of, server).await.map(|stream| TokioIo::new(Held::new(stream, held, ())))
        }
    });
    let channel = endpoint.connect_with_connector(connector).await;
    let mut channel = channel.map_err(|error| DialError::Connect(innermost(&error)))?;
    let ready = channel.ready().await.map_err(|error| DialError::Connect(innermost(&error)))?;
    let (outgoing, packets) = mpsc::channel(PACKETS);
    let refused = |status| DialError::Refused(Box::new(status));
    let response = tokio::time::timeout(PATIENCE, ready.call(service::request(packets))).await;
    let response = response.map_err(|_| DialError::Connect("no answer in time".to_owned()))?;
    let response = response.map_err(|error| refused(Status::from_error(error.into())))?;
    let incoming = service::answered(response).map_err(refused)?;
    converse(host.clone(), server, incoming, outgoing).await.map_err(refused)
}

/// A connection to the server that the federation file names, and to no other.
pub(crate) async fn connect(identity: &Identity, server: PartyId) -> io::Result<TlsStream<TcpStream>> {
    let address = identity.address(server).ok_or_else(|| io::Error::other("clients are not dialled"))?;
    let tcp = TcpStream::connect((address.host.as_str(), address.port));
    let tcp = tokio::time::timeout(HANDSHAKE, tcp).await??;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let handshake = TlsConnector::from(identity.client()).connect(name, tcp);
    let stream = tokio::time::timeout(HANDSHAKE, handshake).await??;
    let certificates = stream.get_ref().1.peer_certificates();
    let found = certificates.and_then(|chain| chain.first()).and_then(|own| identity.party_of(own));
    if found != Some(server) {
        return Err(io::Error::other(format!("the certificate at {address} is not that of {server}")));
    }
    Ok(stream)
}

/// What is at the bottom of an error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

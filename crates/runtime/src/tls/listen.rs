//! Connections that come in.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use secsv_protocol::PartyId;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::Sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Server, server::Connected};

use super::{ANSWER, FRAME, HANDSHAKE, Identity, SILENCE, TlsError, WINDOW, service::LinkService};
use crate::link::{Host, PATIENCE};

/// Handshakes at a time: strangers who never finish theirs keep nobody else out for long.
const HANDSHAKES: usize = 256;

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(super) struct Caller {
    pub party: Option<PartyId>,
    pub address: SocketAddr,
    met: Arc<AtomicBool>,
}

impl Caller {
    /// The connection is put to use.
    pub(super) fn has_met(&self) {
        self.met.store(true, Ordering::Relaxed);
    }
}

/// A connection of somebody with a certificate. It ends by itself if it is not put to use.
struct Secured {
    stream: TlsStream<TcpStream>,
    caller: Caller,
    patience: Pin<Box<Sleep>>,
}

impl Connected for Secured {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.caller.met.load(Ordering::Relaxed) && self.patience.as_mut().poll(cx).is_ready() {
            tracing::warn!(address = %self.caller.address, "connection put to no use: closed");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    /// A frame's head and its bytes go into the same record.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
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
    let room = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, identity, secured) = (acceptor.clone(), identity.clone(), secured.clone());
        tokio::spawn(async move {
            let _permit = permit;
            // Small messages must not wait for large ones' acknowledgements.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Err(_) => tracing::warn!(%address, reason = "no handshake in time", "connection refused"),
                Ok(Err(reason)) => tracing::warn!(%address, %reason, "connection refused"),
                Ok(Ok(stream)) => {
                    let connection = name(stream, &identity, address);
                    // The server has ended: nobody takes it.
                    let _ = secured.send(Ok(connection)).await;
                }
            }
        });
    }
}

fn name(stream: TlsStream<TcpStream>, identity: &Identity, address: SocketAddr) -> Secured {
    let certificates = stream.get_ref().1.peer_certificates();
    let party = certificates.and_then(|chain| chain.first()).and_then(|own| identity.party_of(own));
    let caller = Caller { party, address, met: Arc::new(AtomicBool::new(false)) };
    Secured { stream, caller, patience: Box::pin(tokio::time::sleep(PATIENCE)) }
}

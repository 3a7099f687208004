//! Somebody with a server's kit who answers what they like.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::StreamBody;
use hyper::{Response, body::Frame, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use secsv_node::{
    kit::{Address, Kit},
    link::packet::{Body, Packet},
    tls::server_config,
};
use tokio::{net::TcpListener, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::{StreamExt as _, iter, pending};

/// How long whoever dialled may take to come and to leave: less than the time to greet.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server.
pub struct Impostor {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Impostor {
    /// In the name of a kit's owner.
    pub async fn new(address: &Address, kit: &Kit) -> Self {
        let listener = TcpListener::bind((address.host.as_str(), address.port)).await.unwrap();
        let config = server_config(kit.tls_authority(), kit.tls_certificate(), kit.tls_key()).unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    /// Takes the next connection and so many bytes, says this and no more: whether the other side hangs up.
    pub async fn is_left(&self, window: u32, packets: Vec<Body>) -> bool {
        let (tcp, _) = timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
        let tls = self.acceptor.accept(tcp).await.unwrap();
        let frames: Vec<Bytes> = packets.into_iter().map(frame).collect();
        let service = service_fn(move |_| {
            let frames = iter(frames.clone()).chain(pending());
            let body = StreamBody::new(frames.map(|frame| Ok::<_, Infallible>(Frame::data(frame))));
            async { Response::builder().header("content-type", "application/grpc").body(body) }
        });
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.initial_stream_window_size(window);
        timeout(PATIENCE, server.serve_connection(TokioIo::new(tls), service)).await.is_ok()
    }
}

fn frame(body: Body) -> Bytes {
    let packet = Packet::from(body);
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(packet.encoded_len() as u32);
    packet.encode(&mut frame).unwrap();
    frame.freeze()
}

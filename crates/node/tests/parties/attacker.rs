//! Somebody with some certificate who says what they like.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use secsv_node::{
    kit::{Address, Kit},
    link::{
        CHUNK,
        packet::{Body, Chunk, Greeting, Head, Packet, VERSION},
    },
    tls::client_config,
};
use secsv_protocol::message::Kind;
use tokio::{io::AsyncReadExt as _, net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Status, Streaming, client::Grpc, codegen::http::Uri, transport::Endpoint};
use tonic_prost::ProstCodec;

/// How long an answer is waited for: some take the disk's word, which takes long while others write to it.
const PATIENCE: Duration = Duration::from_secs(180);

/// TLS as a party with this kit would do it.
pub fn honest_tls(kit: &Kit) -> ClientConfig {
    client_config(kit.tls_authority(), kit.tls_certificate(), kit.tls_key()).unwrap()
}

/// A greeting as a party with this kit and some state directory would say it.
pub fn greeting(kit: &Kit, instance: [u8; 16]) -> Greeting {
    Greeting {
        version: VERSION,
        federation: Bytes::copy_from_slice(&kit.digest),
        instance: Bytes::copy_from_slice(&instance),
        ..Greeting::default()
    }
}

/// A message's head.
pub fn head(number: u64, kind: Kind, length: u64, digest: [u8; 32]) -> Body {
    let digest = Bytes::copy_from_slice(&digest);
    Body::Head(Head { number, kind: kind as u32, length, digest, offset: 0, data: Bytes::new() })
}

/// A whole message, in pieces.
pub fn message(number: u64, kind: Kind, content: &[u8]) -> Vec<Body> {
    let digest = *blake3::hash(content).as_bytes();
    let chunk = |data| Body::Chunk(Chunk { data: Bytes::copy_from_slice(data) });
    let head = head(number, kind, content.len() as u64, digest);
    std::iter::once(head).chain(content.chunks(CHUNK).map(chunk)).collect()
}

/// Shakes hands and says nothing: what the other side makes of that.
pub async fn handshake(address: &Address, config: ClientConfig) -> String {
    let attempt = async {
        let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
        let name = ServerName::try_from(address.host.clone()).map_err(std::io::Error::other)?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        // A certificate is refused after the client believes that all is well.
        loop {
            if stream.read(&mut [0; 256]).await? == 0 {
                return Err(std::io::Error::other("closed without a word"));
            }
        }
    };
    let found: Result<Result<(), std::io::Error>, _> = timeout(PATIENCE, attempt).await;
    found
        .map_or_else(|_| "let in".to_owned(), |found| found.err().map_or_else(String::new, |e| e.to_string()))
}

/// A stream that the other side has opened.
pub struct Attack {
    outgoing: mpsc::Sender<Packet>,
    incoming: Streaming<Packet>,
}

impl Attack {
    /// Dials; the error says at which step it was refused.
    pub async fn dial(address: &Address, config: ClientConfig) -> Result<Self, String> {
        let config = Arc::new(config);
        let (host, port) = (address.host.clone(), address.port);
        let connector = tower::service_fn(move |_: Uri| {
            let (config, host) = (config.clone(), host.clone());
            async move {
                let tcp = TcpStream::connect((host.as_str(), port)).await?;
                let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
                TlsConnector::from(config).connect(name, tcp).await.map(TokioIo::new)
            }
        });
        let uri = Uri::from_static("http://party");
        let endpoint = Endpoint::from(uri.clone());
        let channel = endpoint.connect_with_connector(connector);
        let channel = timeout(PATIENCE, channel).await.map_err(|_| "no connection in time")?;
        let channel = channel.map_err(|error| chain(&error))?;
        let mut grpc = Grpc::with_origin(channel, uri);
        grpc.ready().await.map_err(|error| chain(&error))?;
        let (outgoing, packets) = mpsc::channel(8);
        let codec = ProstCodec::<Packet, Packet>::default();
        let path = "/secsv.Link/Meet".parse().map_err(|_| "path")?;
        let response = grpc.streaming(Request::new(ReceiverStream::new(packets)), path, codec);
        let response = timeout(PATIENCE, response).await.map_err(|_| "no answer in time")?;
        let incoming = response.map_err(|status| chain(&status))?.into_inner();
        Ok(Self { outgoing, incoming })
    }

    /// Says something.
    pub async fn say(&self, body: Body) {
        // If the other side has hung up, the answer tells.
        let _ = self.outgoing.send(body.into()).await;
    }

    /// The next packet, or why there is none.
    pub async fn hear(&mut self) -> Result<Packet, Status> {
        match timeout(PATIENCE, self.incoming.next()).await {
            Err(_) => Err(Status::deadline_exceeded("nothing was heard")),
            Ok(None) => Err(Status::ok("the stream ended without a word")),
            Ok(Some(packet)) => packet,
        }
    }

    /// Listens until the stream is refused; returns the reason.
    pub async fn refusal(&mut self) -> String {
        loop {
            if let Err(status) = self.hear().await {
                return format!("{:?}: {}", status.code(), status.message());
            }
        }
    }

    /// Greets and hears the other's greeting.
    pub async fn meet(&mut self, greeting: Greeting) -> Greeting {
        self.say(Body::Greeting(greeting)).await;
        match self.hear().await.unwrap().body {
            Some(Body::Greeting(greeting)) => greeting,
            other => panic!("expected a greeting, found {other:?}"),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

//! Somebody with some certificate who says what they like.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use rustls::{ClientConfig, pki_types::ServerName};
use secsv_evaluation::packet::{CHUNK, Handshake, MessageHead, Packet, VERSION};
use secsv_node::{
    kit::{Address, Kit},
    transport::{PacketReader, PacketWriter, client_config},
};
use secsv_protocol::message::Kind;
use tokio::{
    io::{AsyncReadExt as _, ReadHalf, WriteHalf, split},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long an answer is waited for: some take the disk's word, which takes long while others write to it.
const PATIENCE: Duration = Duration::from_secs(180);

/// TLS as a party with this kit would do it.
pub fn honest_tls(kit: &Kit) -> ClientConfig {
    client_config(kit.tls_authority(), kit.tls_certificate(), kit.tls_key()).unwrap()
}

/// A packet and the message's bytes in it.
pub type Said = (Packet, Vec<u8>);

/// A packet without bytes of a message.
pub fn bare(packet: Packet) -> Said {
    (packet, Vec::new())
}

/// A handshake as a party with this kit and some state directory would say it.
pub fn greeting(kit: &Kit, instance: [u8; 16]) -> Handshake {
    Handshake { version: VERSION, federation: kit.digest, instance, ..Handshake::default() }
}

/// A message's head.
pub fn head(number: u64, kind: Kind, length: u64, digest: [u8; 32]) -> Said {
    bare(Packet::Head(MessageHead { number, kind: kind as u8, length, digest, offset: 0 }))
}

/// Bytes of a message.
pub fn chunk(data: &[u8]) -> Said {
    (Packet::Chunk, data.to_vec())
}

/// A whole message, in pieces.
pub fn message(number: u64, kind: Kind, content: &[u8]) -> Vec<Said> {
    let digest = *blake3::hash(content).as_bytes();
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
    writer: PacketWriter<WriteHalf<TlsStream<TcpStream>>>,
    reader: PacketReader<ReadHalf<TlsStream<TcpStream>>>,
}

impl Attack {
    /// Dials; the error says at which step it was refused.
    pub async fn dial(address: &Address, config: ClientConfig) -> Result<Self, String> {
        let dialling = async {
            let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
            let name = ServerName::try_from(address.host.clone()).map_err(std::io::Error::other)?;
            TlsConnector::from(Arc::new(config)).connect(name, tcp).await
        };
        let stream = timeout(PATIENCE, dialling).await.map_err(|_| "no connection in time")?;
        let (reader, writer) = split(stream.map_err(|error| error.to_string())?);
        Ok(Self { writer: PacketWriter::new(writer), reader: PacketReader::new(reader) })
    }

    /// Says something.
    pub async fn say(&mut self, (packet, data): Said) {
        // If the other side has hung up, the answer tells.
        let _ = self.writer.send(&packet, &data).await;
        let _ = self.writer.flush().await;
    }

    /// The next packet but for signs of life, or why there is none.
    pub async fn hear(&mut self) -> Result<(Packet, Bytes), String> {
        loop {
            match timeout(PATIENCE, self.reader.next()).await {
                Err(_) => return Err("nothing was heard".to_owned()),
                Ok(Ok(None)) => return Err("the stream ended without a word".to_owned()),
                Ok(Ok(Some((Packet::Refused(reason), _)))) => return Err(reason),
                Ok(Ok(Some((Packet::KeepAlive, _)))) => {}
                Ok(Ok(Some(packet))) => return Ok(packet),
                Ok(Err(error)) => return Err(format!("lost: {error}")),
            }
        }
    }

    /// Listens until the stream is refused; returns the reason.
    pub async fn refusal(&mut self) -> String {
        loop {
            if let Err(reason) = self.hear().await {
                return reason;
            }
        }
    }

    /// Greets and hears the other's greeting.
    pub async fn meet(&mut self, greeting: Handshake) -> Handshake {
        self.say(bare(Packet::Handshake(greeting))).await;
        match self.hear().await.unwrap().0 {
            Packet::Handshake(greeting) => greeting,
            other => panic!("expected a handshake, found {other:?}"),
        }
    }
}

//! Somebody with a server's kit who answers what they like.

use std::{sync::Arc, time::Duration};

use secsv_evaluation::packet::Packet;
use secsv_node::{
    kit::{Address, Kit},
    transport::{PacketReader, PacketWriter, server_config},
};
use tokio::{
    io::split,
    net::TcpListener,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

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

    /// Takes the next connection and so many packets, says this and then gives no more than signs of life: whether the other side
    /// hangs up.
    pub async fn is_left(&self, takes: usize, packets: Vec<Packet>) -> bool {
        let (tcp, _) = timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
        let (reader, writer) = split(self.acceptor.accept(tcp).await.unwrap());
        let (mut reader, mut writer) = (PacketReader::new(reader), PacketWriter::new(writer));
        for packet in &packets {
            writer.send(packet, &[]).await.unwrap();
            writer.flush().await.unwrap();
        }
        for _ in 0..takes {
            let heard = timeout(PATIENCE, reader.next()).await.unwrap();
            if !matches!(heard, Ok(Some((packet, _))) if !matches!(packet, Packet::Refused(_))) {
                return true;
            }
        }
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let said = async {
                writer.send(&Packet::KeepAlive, &[]).await?;
                writer.flush().await
            };
            if said.await.is_err() {
                return true;
            }
            sleep(Duration::from_millis(50)).await;
        }
        false
    }
}

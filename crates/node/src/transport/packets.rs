//! Packets on a stream of bytes. Large data is written from where it lies, and read into one buffer that is used again.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use secsv_evaluation::packet::{PREFIX, Packet};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, StreamError, refuse};

/// Bytes that are asked for at a time, at least.
const READ: usize = 32 << 10;

/// The receiving half of a stream.
pub struct PacketReader<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + Unpin> PacketReader<S> {
    /// Reads from a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The next packet and the message's bytes in it; nothing if the stream has ended behind a packet.
    pub async fn next(&mut self) -> Result<Option<(Packet, Bytes)>, StreamError> {
        if !self.fill(PREFIX).await? {
            return if self.buffer.is_empty() { Ok(None) } else { cut() };
        }
        let prefix = [self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]];
        let length = PREFIX + Packet::length(prefix)?;
        if !self.fill(length).await? {
            return cut();
        }
        let mut bytes = self.buffer.split_to(length).freeze();
        bytes.advance(PREFIX);
        let (packet, data) = Packet::decode(&bytes)?;
        let data = bytes.slice_ref(data);
        Ok(Some((packet, data)))
    }

    /// Reads until the buffer has this many bytes: whether they have come.
    async fn fill(&mut self, length: usize) -> Result<bool, StreamError> {
        const SILENCE: Duration = KEEPALIVE_INTERVAL.saturating_add(KEEPALIVE_TIMEOUT);
        while self.buffer.len() < length {
            self.buffer.reserve((length - self.buffer.len()).max(READ));
            let read = timeout(SILENCE, self.stream.read_buf(&mut self.buffer)).await;
            if read.map_err(|_| StreamError::Silent)?? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads and forgets what still comes: a connection that is closed while bytes wait in it takes with it what was sent.
    pub(super) async fn drain(&mut self) {
        loop {
            self.buffer.clear();
            self.buffer.reserve(READ);
            if !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(read) if read > 0) {
                return;
            }
        }
    }
}

fn cut<T>() -> Result<T, StreamError> {
    refuse("the stream ended within a packet")
}

/// The sending half of a stream.
pub struct PacketWriter<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: AsyncWrite + Unpin> PacketWriter<S> {
    /// Writes to a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Sends a packet and the message's bytes in it, in one write if the stream takes them.
    pub async fn send(&mut self, packet: &Packet, data: &[u8]) -> Result<(), StreamError> {
        self.buffer.clear();
        packet.encode(data.len(), &mut self.buffer);
        let mut bytes = bytes::Buf::chain(&self.buffer[..], data);
        Ok(self.stream.write_all_buf(&mut bytes).await?)
    }

    /// Has everything go out that was sent.
    pub async fn flush(&mut self) -> Result<(), StreamError> {
        Ok(self.stream.flush().await?)
    }

    /// Says that nothing more will come.
    pub(super) async fn close(&mut self) {
        // Whoever has gone already need not hear it.
        let _ = self.stream.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use secsv_evaluation::packet::{CHUNK, MAX_PACKET};
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn packets_come_back_however_small_the_line() {
        for line in [1, 7, 5000, 1 << 20] {
            let (near, far) = duplex(line);
            let data: Vec<u8> = (0..CHUNK).map(|at| at as u8).collect();
            let sent = data.clone();
            let sending = tokio::spawn(async move {
                let mut writer = PacketWriter::new(near);
                for packet in [Packet::Acknowledged(7), Packet::Chunk, Packet::Goodbye] {
                    let data = if packet == Packet::Chunk { &sent[..] } else { &[] };
                    writer.send(&packet, data).await.unwrap();
                }
            });
            let mut reader = PacketReader::new(far);
            assert_eq!(reader.next().await.unwrap().unwrap(), (Packet::Acknowledged(7), Bytes::new()));
            assert_eq!(reader.next().await.unwrap().unwrap(), (Packet::Chunk, data.into()));
            assert_eq!(reader.next().await.unwrap().unwrap(), (Packet::Goodbye, Bytes::new()));
            assert!(reader.next().await.unwrap().is_none());
            sending.await.unwrap();
        }
    }

    async fn refusal(bytes: &[u8]) -> String {
        let error = PacketReader::new(bytes).next().await.unwrap_err();
        assert!(matches!(error, StreamError::Refused(_)), "{error:?}");
        error.to_string()
    }

    #[tokio::test]
    async fn a_packet_that_is_too_long_is_refused_before_it_has_come() {
        let prefix = (MAX_PACKET as u32 + 1).to_le_bytes();
        assert!(refusal(&prefix).await.contains("expected at most 131072, found 131073"));
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_packet_is_refused() {
        let mut bytes = Vec::new();
        Packet::Acknowledged(7).encode(0, &mut bytes);
        for end in 1..bytes.len() {
            assert_eq!(refusal(&bytes[..end]).await, "the stream ended within a packet");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_is_given_up_on() {
        let (_near, far) = duplex(8);
        let begun = tokio::time::Instant::now();
        assert!(matches!(PacketReader::new(far).next().await, Err(StreamError::Silent)));
        assert_eq!(begun.elapsed(), KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT);
    }
}

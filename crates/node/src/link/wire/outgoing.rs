//! The body that is sent.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::{EncodeError, Message, encode_length_delimiter, length_delimiter_len};
use tokio::sync::mpsc;
use tonic::{Status, codegen::http::HeaderMap};

use super::{MOST_PACKET, PREFIX, SMALL, Side};
use crate::link::packet::{self, Chunk, Packet};

/// Keys of the fields that large data is in, see `packet`: the number, and that a length follows.
const HEAD: u8 = 2 << 3 | 2;
const HEAD_DATA: u8 = 6 << 3 | 2;
const CHUNK: u8 = 3 << 3 | 2;
const CHUNK_DATA: u8 = 1 << 3 | 2;

/// Small packets that are ready go together, up to so many bytes.
const TOGETHER: usize = 8 << 10;

/// Packets, as the body of a request or of an answer.
pub(crate) struct Outgoing {
    packets: mpsc::Receiver<Result<Packet, Status>>,
    side: Side,
    /// All but large data.
    buffer: BytesMut,
    /// What follows the buffer.
    data: Bytes,
    end: Option<Status>,
    done: bool,
}

impl Outgoing {
    pub(crate) fn new(packets: mpsc::Receiver<Result<Packet, Status>>, side: Side) -> Self {
        let buffer = BytesMut::with_capacity(TOGETHER);
        Self { packets, side, buffer, data: Bytes::new(), end: None, done: false }
    }

    /// Takes what is ready; pending if that is nothing.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.end.is_none() && self.data.is_empty() && self.buffer.len() < TOGETHER {
            match self.packets.poll_recv(cx) {
                Poll::Ready(Some(Ok(packet))) => match encode(packet, &mut self.buffer) {
                    Ok(data) => self.data = data,
                    Err(status) => self.end = Some(status),
                },
                Poll::Ready(Some(Err(status))) => self.end = Some(status),
                Poll::Ready(None) => self.end = Some(Status::ok("")),
                Poll::Pending if self.buffer.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(())
    }

    fn trailers(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        self.done = true;
        let status = self.end.take().filter(|_| self.side == Side::Listener)?;
        let mut trailers = HeaderMap::new();
        Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.done {
            return Poll::Ready(None);
        }
        if self.data.is_empty() && self.fill(cx).is_pending() {
            return Poll::Pending;
        }
        if !self.buffer.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.buffer.split().freeze()))));
        }
        if !self.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.data)))));
        }
        Poll::Ready(self.trailers())
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}

/// Appends a packet without the large data at its end, which is handed back.
pub(super) fn encode(packet: Packet, buffer: &mut BytesMut) -> Result<Bytes, Status> {
    let length = packet.encoded_len();
    let prefix = u32::try_from(length).ok().filter(|_| length <= MOST_PACKET);
    let Some(prefix) = prefix else {
        let text = format!("length of a packet: expected at most {MOST_PACKET}, found {length}");
        return Err(Status::out_of_range(text));
    };
    buffer.reserve(PREFIX + length.min(2 * SMALL));
    buffer.put_u8(0);
    buffer.put_u32(prefix);
    let encoded = match packet.body {
        Some(packet::Body::Head(mut head)) if head.data.len() > SMALL => {
            let data = mem::take(&mut head.data);
            before(HEAD, &head, HEAD_DATA, data.len(), buffer).map(|()| data)
        }
        Some(packet::Body::Chunk(Chunk { data })) if data.len() > SMALL => {
            before(CHUNK, &Chunk::default(), CHUNK_DATA, data.len(), buffer).map(|()| data)
        }
        body => Packet { body }.encode(buffer).map(|()| Bytes::new()),
    };
    encoded.map_err(|error| Status::internal(error.to_string()))
}

/// A field of a packet up to the data that is its last: the length counts what follows.
fn before(
    key: u8,
    fields: &impl Message,
    data_key: u8,
    data: usize,
    buffer: &mut BytesMut,
) -> Result<(), EncodeError> {
    let length = fields.encoded_len() + size_of_val(&data_key) + length_delimiter_len(data) + data;
    buffer.put_u8(key);
    encode_length_delimiter(length, buffer)?;
    fields.encode(buffer)?;
    buffer.put_u8(data_key);
    encode_length_delimiter(data, buffer)
}

//! The body that is received. What is held is less than a packet and a frame, in pieces that are not small: each keeps the
//! buffer in which it came.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::Message as _;
use tokio_stream::Stream;
use tonic::{
    Code, Status,
    codegen::{StdError, http::HeaderMap},
};

use super::{MOST_PACKET, PREFIX, Side, status_of};
use crate::link::packet::Packet;

/// Smaller pieces are copied: whoever sends many of them among frames that mean nothing would have large buffers kept for
/// little. Chunks come whole.
const PIECE: usize = 16 << 10;

/// Packets out of the body of a request or of an answer.
pub(crate) struct Incoming<B> {
    body: B,
    side: Side,
    pieces: Pieces,
    /// Small pieces in one: the last bytes that came. A peer that sends single bytes costs no more than the bytes.
    small: BytesMut,
    /// Of the packet whose prefix has come.
    length: Option<usize>,
    done: bool,
}

impl<B> Incoming<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    pub(crate) fn new(body: B, side: Side) -> Self {
        let (pieces, small) = (Pieces::default(), BytesMut::new());
        Self { body, side, pieces, small, length: None, done: false }
    }

    /// The next packet, if all of it has come.
    fn packet(&mut self) -> Result<Option<Packet>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.held() < PREFIX => return Ok(None),
            None => self.prefix()?,
        };
        if self.held() < length {
            self.length = Some(length);
            return Ok(None);
        }
        self.settle();
        self.length = None;
        let packet = Packet::decode((&mut self.pieces).take(length));
        packet.map(Some).map_err(|error| Status::invalid_argument(format!("a packet that is none: {error}")))
    }

    fn prefix(&mut self) -> Result<usize, Status> {
        self.settle();
        match self.pieces.get_u8() {
            0 => {}
            1 => return Err(Status::unimplemented("packets are not compressed")),
            flag => {
                return Err(Status::invalid_argument(format!("flag of a packet: expected 0, found {flag}")));
            }
        }
        let length = self.pieces.get_u32() as usize;
        if length > MOST_PACKET {
            let text = format!("length of a packet: expected at most {MOST_PACKET}, found {length}");
            return Err(Status::out_of_range(text));
        }
        Ok(length)
    }

    fn held(&self) -> usize {
        self.pieces.remaining() + self.small.len()
    }

    fn add(&mut self, data: Bytes) {
        if data.len() < PIECE {
            self.small.extend_from_slice(&data);
        } else {
            self.settle();
            self.pieces.push(data);
        }
    }

    fn settle(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    /// What comes of a frame: the stream may end with it.
    fn take(&mut self, frame: Option<Result<Frame<Bytes>, B::Error>>) -> Result<(), Status> {
        let frame = match frame {
            None => return self.end(None),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                let status = Status::from_error(error.into());
                self.done = true;
                // A dialler that hangs up has ended the stream in its way.
                let hung_up = self.side == Side::Listener && status.code() == Code::Cancelled;
                return if hung_up { Ok(()) } else { Err(status) };
            }
        };
        match frame.into_data() {
            Ok(data) => self.add(data),
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return self.end(Some(trailers));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), Status> {
        self.done = true;
        let status = trailers.and_then(status_of).filter(|_| self.side == Side::Dialler);
        let said = status.is_some();
        if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
            return Err(status);
        }
        if self.length.is_some() || self.held() > 0 {
            return Err(Status::data_loss("the stream ended within a packet"));
        }
        if self.side == Side::Dialler && !said {
            return Err(Status::unknown("the stream ended without a status"));
        }
        Ok(())
    }
}

impl<B> Stream for Incoming<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Item = Result<Packet, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.done {
            match self.packet() {
                Ok(None) => {}
                Ok(Some(packet)) => return Poll::Ready(Some(Ok(packet))),
                Err(status) => {
                    self.done = true;
                    return Poll::Ready(Some(Err(status)));
                }
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            if let Err(status) = self.take(frame) {
                return Poll::Ready(Some(Err(status)));
            }
        }
        Poll::Ready(None)
    }
}

/// Bytes in the pieces in which they came. No piece is empty.
#[derive(Default)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        self.pieces.push_back(piece);
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(mut piece) = self.pieces.pop_front() else { break };
            let step = left.min(piece.len());
            piece.advance(step);
            left -= step;
            self.length -= step;
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
        }
    }

    /// A part of one piece is handed out as it is.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if let Some(piece) = self.pieces.front().filter(|piece| piece.len() >= count) {
            let part = piece.slice(..count);
            self.advance(count);
            return part;
        }
        let mut copy = BytesMut::with_capacity(count);
        copy.put(self.take(count));
        copy.freeze()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;

    #[test]
    fn pieces_are_as_many_as_the_bytes_are_worth() {
        let mut incoming = Incoming::new(Empty::new(), Side::Listener);
        let mut say = |data: &'static [u8], times: usize| {
            for _ in 0..times {
                incoming.take(Some(Ok(Frame::data(Bytes::from_static(data))))).unwrap();
            }
            (incoming.held(), incoming.pieces.pieces.len())
        };
        assert_eq!(say(&[], 1000), (0, 0));
        assert_eq!(say(&[1], 1000), (1000, 0));
        assert_eq!(say(&[1; PIECE], 4), (1000 + 4 * PIECE, 5));
        assert_eq!(say(&[1; PIECE - 1], 4), (1000 + 8 * PIECE - 4, 5));
    }

    #[test]
    fn bytes_across_pieces_are_put_together() {
        let mut pieces = Pieces::default();
        [&b"abc"[..], b"d", b"efgh"].into_iter().for_each(|piece| pieces.push(Bytes::from_static(piece)));
        pieces.advance(1);
        assert_eq!(pieces.copy_to_bytes(4), "bcde");
        assert_eq!((pieces.remaining(), pieces.chunk()), (3, &b"fgh"[..]));
        assert_eq!(pieces.copy_to_bytes(3), "fgh");
        assert_eq!((pieces.remaining(), pieces.chunk()), (0, &b""[..]));
        assert_eq!(pieces.copy_to_bytes(0), "");
    }
}

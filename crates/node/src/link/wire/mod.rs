//! Packets on HTTP/2, as gRPC frames them. A codec of `tonic` would copy every byte once each way; here large data goes
//! out as it is, and comes out of the frame in which it came.

mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

use tonic::{Status, codegen::http::HeaderMap};

pub(crate) use incoming::Incoming;
pub(crate) use outgoing::Outgoing;

use super::CHUNK;

/// Bytes of a packet, at most: a chunk and what is around it.
pub(crate) const MOST_PACKET: usize = CHUNK + (64 << 10);
/// Bytes before a packet: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// So many bytes are copied sooner than handled by themselves.
const SMALL: usize = 1 << 10;

/// Who opened the stream. Its status comes from the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// This side has dialled.
    Dialler,
    /// This side was dialled.
    Listener,
}

/// The status that headers or trailers carry.
pub(crate) fn status_of(mut headers: HeaderMap) -> Option<Status> {
    // Nobody here sends any, and `tonic` panics on details that are not base64.
    headers.remove(Status::GRPC_STATUS_DETAILS);
    Status::from_header_map(&headers)
}

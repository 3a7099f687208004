//! A connection that lasts as long as somebody holds on to it. Without that, a peer that takes nothing would keep it for ever:
//! HTTP/2 lets a stream wait for room as long as it takes, and a connection lives as long as its streams.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

/// As long as this is there, so is the connection.
pub(super) type Hold = oneshot::Sender<Infallible>;

/// A connection that fails once its [`Hold`] is gone, and what else is known of it.
pub(super) struct Held<S, K = ()> {
    stream: S,
    pub known: K,
    /// None as soon as it is known to be gone.
    hold: Option<oneshot::Receiver<Infallible>>,
}

impl<S: Unpin, K> Held<S, K> {
    pub(super) fn new(stream: S, hold: oneshot::Receiver<Infallible>, known: K) -> Self {
        Self { stream, known, hold: Some(hold) }
    }

    /// The connection, unless it is over. Whatever is waited for, that is heard too.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut S>> {
        let is_held = self.hold.as_mut().is_some_and(|hold| Pin::new(hold).poll(cx).is_pending());
        if !is_held {
            self.hold = None;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for Held<S, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, K: Unpin> AsyncWrite for Held<S, K> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, data)
    }

    /// A frame's head and its bytes go into the same record.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_shutdown(cx)
    }
}

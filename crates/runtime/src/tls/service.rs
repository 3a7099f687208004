//! The one method of the service, by hand: it is smaller than what would generate it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use secsv_protocol::PartyId;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::http,
    server::{Grpc, NamedService, StreamingService},
};
use tonic_prost::ProstCodec;

use super::listen::Caller;
use crate::link::{CHUNK, Host, PACKETS, converse, packet::Packet};

/// Where the method is.
pub(super) const PATH: &str = "/secsv.Link/Meet";
/// A chunk and what is around it.
pub(super) const MOST_PACKET: usize = CHUNK + (64 << 10);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The service.
pub(super) struct LinkService<H>(pub Arc<H>);

impl<H> Clone for LinkService<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> NamedService for LinkService<H> {
    const NAME: &'static str = "secsv.Link";
}

impl<H: Host> tower::Service<http::Request<Body>> for LinkService<H> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let host = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("there is one method: Meet").into_http());
            }
            let codec = ProstCodec::<Packet, Packet>::default();
            let grpc = Grpc::new(codec).apply_max_message_size_config(Some(MOST_PACKET), Some(MOST_PACKET));
            Ok({ grpc }.streaming(Meet(host), request).await)
        })
    }
}

struct Meet<H>(Arc<H>);

impl<H: Host> StreamingService<Packet> for Meet<H> {
    type Response = Packet;
    type ResponseStream = ReceiverStream<Result<Packet, Status>>;
    type Future = Boxed<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Packet>>) -> Self::Future {
        let host = self.0.clone();
        Box::pin(async move {
            let caller = request.extensions().get::<Caller>().cloned();
            let caller = caller.ok_or_else(|| Status::unauthenticated("no certificate"))?;
            let Some(id) = caller.party else {
                let text = "the certificate is of no party in the federation file";
                tracing::warn!(address = %caller.address, "{text}");
                return Err(Status::permission_denied(text));
            };
            caller.has_met();
            let (outgoing, packets) = mpsc::channel(PACKETS);
            tokio::spawn(serve(host, id, request.into_inner(), outgoing));
            Ok(Response::new(ReceiverStream::new(packets)))
        })
    }
}

async fn serve<H: Host>(
    host: Arc<H>,
    id: PartyId,
    incoming: Streaming<Packet>,
    outgoing: mpsc::Sender<Result<Packet, Status>>,
) {
    if let Err(status) = converse(host, id, incoming, outgoing.clone()).await {
        tracing::warn!(peer = %id, reason = status.message(), "stream refused or lost");
        // The other side may be gone already.
        let _ = outgoing.send(Err(status)).await;
    }
}

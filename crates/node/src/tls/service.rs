//! The one method of the service, by hand: it is smaller than what would generate it.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use secsv_protocol::PartyId;
use tokio::sync::mpsc;
use tonic::{
    Code, Status,
    body::Body,
    codegen::http::{
        self, HeaderMap, HeaderValue, Method, StatusCode, Uri, Version,
        header::{CONTENT_TYPE, TE},
    },
    metadata::GRPC_CONTENT_TYPE,
    server::NamedService,
};

use super::listen::Caller;
use crate::link::{
    Host, PACKETS, PATIENCE, converse,
    packet::Packet,
    wire::{Incoming, Outgoing, Side, status_of},
};

/// Where the method is.
const PATH: &str = "/secsv.Link/Meet";

type Packets = mpsc::Receiver<Result<Packet, Status>>;

/// A call of the method.
pub(super) fn request(packets: Packets) -> http::Request<Body> {
    let mut request = http::Request::new(Body::new(Outgoing::new(packets, Side::Dialler)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(PATH);
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    request
}

/// The packets of an answer, unless it is a refusal.
pub(super) fn answered(response: http::Response<Body>) -> Result<Incoming<Body>, Status> {
    let (parts, body) = response.into_parts();
    if let Some(status) = status_of(parts.headers) {
        let ended = status.code() == Code::Ok;
        return Err(if ended { Status::unknown("the stream ended before it began") } else { status });
    }
    if parts.status != StatusCode::OK {
        return Err(Status::unknown(format!("refused by HTTP: {}", parts.status)));
    }
    Ok(Incoming::new(body, Side::Dialler))
}

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
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut response = http::Response::default();
        if !is_grpc(request.headers()) {
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return ready(Ok(response));
        }
        let packets = match meet(self.0.clone(), request) {
            Ok(packets) => packets,
            Err(status) => return ready(Ok(status.into_http())),
        };
        response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        ready(Ok(response.map(|_: Body| Body::new(Outgoing::new(packets, Side::Listener)))))
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(GRPC_CONTENT_TYPE.as_bytes()))
}

/// Begins a stream with a party: what it is told.
fn meet<H: Host>(host: Arc<H>, request: http::Request<Body>) -> Result<Packets, Status> {
    if request.uri().path() != PATH {
        return Err(Status::unimplemented("there is one method: Meet"));
    }
    if request.headers().get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
        return Err(Status::unimplemented("packets are not compressed"));
    }
    let caller = request.extensions().get::<Caller>();
    let caller = caller.ok_or_else(|| Status::unauthenticated("no certificate"))?;
    let Some(id) = caller.party else {
        let text = "the certificate is of no party in the federation file";
        tracing::warn!(address = %caller.address, "{text}");
        return Err(Status::permission_denied(text));
    };
    let (outgoing, packets) = mpsc::channel(PACKETS);
    let stream = caller.begin();
    let incoming = Incoming::new(request.into_body(), Side::Listener);
    tokio::spawn(async move {
        serve(host, id, incoming, outgoing).await;
        drop(stream);
    });
    Ok(packets)
}

async fn serve<H: Host>(
    host: Arc<H>,
    id: PartyId,
    incoming: Incoming<Body>,
    outgoing: mpsc::Sender<Result<Packet, Status>>,
) {
    if let Err(status) = converse(host, id, incoming, outgoing.clone()).await {
        tracing::warn!(peer = %id, reason = status.message(), "stream refused or lost");
        // The other side may be gone already, or take nothing any more.
        let _ = tokio::time::timeout(PATIENCE, outgoing.send(Err(status))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(response: http::Response<Body>) -> Status {
        answered(response).err().unwrap()
    }

    #[test]
    fn an_answer_is_a_stream_or_a_reason() {
        assert!(answered(http::Response::default()).is_ok());
        let status = refused(Status::permission_denied("of no party").into_http());
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "of no party"));
        assert_eq!(refused(Status::ok("").into_http()).code(), Code::Unknown);
        let mut response = http::Response::default();
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let status = refused(response);
        assert_eq!((status.code(), status.message().contains("415")), (Code::Unknown, true));
    }

    #[test]
    fn a_request_says_that_it_is_grpc() {
        let request = request(mpsc::channel(1).1);
        assert!(is_grpc(request.headers()));
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, PATH));
        assert!(!is_grpc(&HeaderMap::new()));
        let other = (CONTENT_TYPE, HeaderValue::from_static("text/html"));
        assert!(!is_grpc(&HeaderMap::from_iter([other])));
    }
}

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use proptest::{collection::vec, prelude::*};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tonic::{
    Code, Status, Streaming,
    codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride},
    codegen::http::HeaderMap,
};
use tonic_prost::ProstCodec;

use super::{Incoming, MOST_PACKET, Outgoing, PREFIX, SMALL, Side, outgoing::encode};
use crate::link::packet::{Body, Chunk, Farewell, Greeting, Head, Over, Packet};

type Codec = ProstCodec<Packet, Packet>;
type Frames = Vec<Result<Frame<Bytes>, Status>>;

/// As `tonic` would frame it.
fn framed(packet: &Packet) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(packet.encoded_len() as u32);
    packet.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn all_framed(packets: &[Packet]) -> Bytes {
    packets.iter().map(framed).collect::<Vec<_>>().concat().into()
}

fn chunk(size: usize) -> Packet {
    let data = (0..size).map(|at| at as u8).collect::<Vec<_>>().into();
    Body::Chunk(Chunk { data }).into()
}

fn data() -> impl Strategy<Value = Bytes> {
    let size = prop_oneof![0..3_usize, SMALL - 2..SMALL + 3, 16_380..16_390_usize, 65_530..65_537_usize];
    (size, any::<u8>())
        .prop_map(|(size, first)| (0..size).map(|at| first.wrapping_add(at as u8)).collect::<Vec<_>>().into())
}

fn packet() -> impl Strategy<Value = Packet> {
    let bytes = || vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let greeting = (any::<(u32, u64, u64, u64)>(), bytes(), bytes(), bytes()).prop_map(
        |((version, due, partial_length, unix_milliseconds), federation, instance, partial_digest)| {
            Body::Greeting(Greeting {
                version,
                federation,
                instance,
                due,
                partial_digest,
                partial_length,
                unix_milliseconds,
            })
        },
    );
    let head = (any::<(u64, u32, u64, u64)>(), bytes(), data()).prop_map(
        |((number, kind, length, offset), digest, data)| {
            Body::Head(Head { number, kind, length, digest, offset, data })
        },
    );
    let over = (vec(any::<u64>(), 0..300), vec(any::<u32>(), 0..300))
        .prop_map(|(tests, rounds)| Body::Over(Over { tests, rounds }));
    let body = prop_oneof![
        greeting,
        head,
        data().prop_map(|data| Body::Chunk(Chunk { data })),
        any::<u64>().prop_map(Body::Acknowledged),
        over,
        Just(Body::Farewell(Farewell {})),
    ];
    prop::option::weighted(0.95, body).prop_map(|body| Packet { body })
}

/// Frames out of bytes; the sizes are taken in turns.
fn cut(mut bytes: Bytes, sizes: &[usize]) -> Frames {
    let mut frames = Frames::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        frames.push(Ok(Frame::data(bytes.split_to(bytes.len().min(*size)))));
    }
    frames
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).unwrap();
    Frame::trailers(trailers)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What comes out of frames: packets, and the error behind them.
fn read(frames: Frames, side: Side) -> (Vec<Packet>, Option<Status>) {
    let mut incoming = Incoming::new(StreamBody::new(tokio_stream::iter(frames)), side);
    let (mut packets, mut error) = (Vec::new(), None);
    run(async {
        while let Some(item) = incoming.next().await {
            assert!(error.is_none(), "nothing comes after an error");
            match item {
                Ok(packet) => packets.push(packet),
                Err(status) => error = Some(status),
            }
        }
    });
    (packets, error)
}

fn refusal(bytes: &[u8]) -> Status {
    let (packets, error) = read(cut(Bytes::copy_from_slice(bytes), &[bytes.len()]), Side::Listener);
    assert_eq!(packets, []);
    error.unwrap()
}

fn outgoing(packets: Vec<Result<Packet, Status>>, side: Side) -> Outgoing {
    let (sender, receiver) = mpsc::channel(packets.len().max(1));
    packets.into_iter().for_each(|packet| sender.try_send(packet).unwrap());
    Outgoing::new(receiver, side)
}

fn sent(packets: Vec<Result<Packet, Status>>, side: Side) -> (Bytes, Option<Status>) {
    let collected = run(outgoing(packets, side).collect()).unwrap();
    let status = collected.trailers().and_then(Status::from_header_map);
    (collected.to_bytes(), status)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_two_parts_are_what_prost_would_write(packet in packet()) {
        let mut buffer = BytesMut::new();
        let data = encode(packet.clone(), &mut buffer).unwrap();
        prop_assert_eq!([buffer.freeze(), data].concat(), framed(&packet));
    }

    #[test]
    fn packets_come_back_however_they_are_cut(
        packets in vec(packet(), 0..6),
        sizes in vec(prop_oneof![1..8_usize, 1..2_000_usize, 1..140_000_usize], 1..20),
    ) {
        let (found, error) = read(cut(all_framed(&packets), &sizes), Side::Listener);
        prop_assert!(error.is_none(), "{error:?}");
        prop_assert_eq!(found, packets);
    }

    #[test]
    fn tonic_reads_what_is_written(packets in vec(packet(), 0..6)) {
        let body = outgoing(packets.iter().cloned().map(Ok).collect(), Side::Dialler);
        let streaming = Streaming::new_request(Codec::default().decoder(), body, None, Some(MOST_PACKET));
        let found: Result<Vec<_>, Status> = run(streaming.collect());
        prop_assert_eq!(found.unwrap(), packets);
    }

    #[test]
    fn what_tonic_writes_is_read(packets in vec(packet(), 0..6)) {
        let source = tokio_stream::iter(packets.clone().into_iter().map(Ok));
        let whole = SingleMessageCompressionOverride::default();
        let body = EncodeBody::new_server(Codec::default().encoder(), source, None, whole, None);
        let incoming = Incoming::new(Box::pin(body), Side::Dialler);
        let found: Result<Vec<_>, Status> = run(incoming.collect());
        prop_assert_eq!(found.unwrap(), packets);
    }

    #[test]
    fn garbage_is_refused_or_read_but_nothing_else(bytes in vec(any::<u8>(), 0..300), size in 1..50_usize) {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(bytes.len() as u32);
        framed.put_slice(&bytes);
        let (found, error) = read(cut(framed.freeze(), &[size]), Side::Listener);
        let expected = Packet::decode(&bytes[..]);
        prop_assert_eq!(error.is_some(), expected.is_err());
        prop_assert_eq!(found, Vec::from_iter(expected.ok()));
    }
}

#[test]
fn single_bytes_and_empty_frames_are_packets_too() {
    let packets = [chunk(3000), Body::Acknowledged(7).into(), chunk(0), chunk(SMALL)];
    let mut frames = Frames::new();
    for frame in cut(all_framed(&packets), &[1]) {
        frames.extend([Ok(Frame::data(Bytes::new())), frame]);
    }
    let (found, error) = read(frames, Side::Listener);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found, packets);
}

#[test]
fn a_frame_of_data_is_not_copied_either_way() {
    let Some(Body::Chunk(Chunk { data })) = chunk(64 << 10).body else { panic!("expected a chunk") };
    let head = Head { number: 1, length: 1 << 20, data: data.clone(), ..Head::default() };
    for body in [Body::Chunk(Chunk { data: data.clone() }), Body::Head(head)] {
        let mut body = outgoing(vec![Ok(Body::Acknowledged(1).into()), Ok(body.into())], Side::Dialler);
        let mut frames = Frames::new();
        while let Some(frame) = run(body.frame()) {
            frames.push(frame);
        }
        assert_eq!(frames.len(), 2, "all but the data, and the data");
        assert_eq!(frames[1].as_ref().unwrap().data_ref().unwrap().as_ptr(), data.as_ptr());
        let (found, error) = read(frames, Side::Listener);
        assert!(error.is_none(), "{error:?}");
        let (Some(Body::Chunk(Chunk { data: read })) | Some(Body::Head(Head { data: read, .. }))) =
            &found[1].body
        else {
            panic!("expected data, found {:?}", found[1].body)
        };
        assert_eq!(read.as_ptr(), data.as_ptr());
    }
}

#[test]
fn a_packet_that_is_too_long_is_refused_by_its_prefix() {
    let mut prefix = vec![0];
    prefix.put_u32(MOST_PACKET as u32 + 1);
    assert_eq!(refusal(&prefix).code(), Code::OutOfRange);
    assert_eq!(refusal(&[0, 255, 255, 255, 255]).code(), Code::OutOfRange);
    let error = encode(chunk(MOST_PACKET), &mut BytesMut::new()).unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
}

#[test]
fn a_flag_that_is_not_zero_is_refused() {
    assert_eq!(refusal(&[1, 0, 0, 0, 0]).code(), Code::Unimplemented);
    assert_eq!(refusal(&[2, 0, 0, 0, 0]).code(), Code::InvalidArgument);
}

#[test]
fn a_body_that_ends_within_a_packet_is_refused() {
    let whole = framed(&chunk(2000));
    for end in [1, PREFIX - 1, PREFIX, PREFIX + 1, whole.len() - 1] {
        assert_eq!(refusal(&whole[..end]).code(), Code::DataLoss, "{end}");
    }
    let frames = vec![Ok(Frame::data(whole.slice(..2))), Ok(trailers(&Status::ok("")))];
    assert_eq!(read(frames, Side::Dialler).1.unwrap().code(), Code::DataLoss);
}

#[test]
fn the_listeners_status_ends_the_stream() {
    let packets = || vec![Ok(chunk(5000)), Err(Status::aborted("why: ü")), Ok(chunk(1))];
    let (bytes, status) = sent(packets(), Side::Listener);
    assert_eq!(bytes, framed(&chunk(5000)));
    let status = status.unwrap();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "why: ü"));
    assert_eq!(sent(vec![], Side::Listener).1.unwrap().code(), Code::Ok);
    let (bytes, status) = sent(packets(), Side::Dialler);
    assert_eq!(bytes, framed(&chunk(5000)));
    assert!(status.is_none());
}

#[test]
fn the_dialler_hears_the_listeners_status() {
    let ends = |end: Option<Result<Frame<Bytes>, Status>>, side| {
        let mut frames = cut(framed(&chunk(9)), &[100]);
        frames.extend(end);
        let (packets, error) = read(frames, side);
        assert_eq!(packets, [chunk(9)]);
        error.map(|status| status.code())
    };
    assert_eq!(ends(Some(Ok(trailers(&Status::ok("")))), Side::Dialler), None);
    assert_eq!(ends(Some(Ok(trailers(&Status::aborted("")))), Side::Dialler), Some(Code::Aborted));
    assert_eq!(ends(Some(Ok(Frame::trailers(HeaderMap::new()))), Side::Dialler), Some(Code::Unknown));
    assert_eq!(ends(None, Side::Dialler), Some(Code::Unknown));
    assert_eq!(ends(Some(Err(Status::cancelled(""))), Side::Dialler), Some(Code::Cancelled));
    assert_eq!(ends(None, Side::Listener), None);
    assert_eq!(ends(Some(Ok(trailers(&Status::aborted("")))), Side::Listener), None);
    assert_eq!(ends(Some(Err(Status::cancelled(""))), Side::Listener), None);
    assert_eq!(ends(Some(Err(Status::internal(""))), Side::Listener), Some(Code::Internal));
}

#[test]
fn details_that_are_not_base64_do_no_harm() {
    let mut headers = HeaderMap::new();
    Status::aborted("why").add_header(&mut headers).unwrap();
    headers.insert("grpc-status-details-bin", "!".parse().unwrap());
    assert_eq!(super::status_of(headers).unwrap().message(), "why");
}

//! The receiving half of a stream. Nothing is allocated on the word of a peer: memory grows with what has come.

use std::sync::Arc;

use secsv_federation::RoundId;
use secsv_protocol::{Scope, message::Kind};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use super::{
    Host, SCOPES,
    packet::{Body, Head, Over, Packet},
};
use crate::party::{Arrival, Partial, Peer};

/// Bytes that are set aside on a peer's word: addresses, which cost nothing before something has come.
const RESERVED: usize = 64 << 20;

/// Takes packets until the stream ends.
pub(super) async fn run<H: Host, S>(
    host: Arc<H>,
    peer: Arc<Peer>,
    mut incoming: S,
    due: u64,
) -> Result<(), Status>
where
    S: Stream<Item = Result<Packet, Status>> + Send + Unpin + 'static,
{
    let mut desk = Assembly { host, peer, due, current: None };
    while let Some(packet) = incoming.next().await {
        let body = packet?.body.ok_or_else(|| Status::invalid_argument("an empty packet"))?;
        match body {
            Body::Head(head) => desk.begin(&head).await?,
            Body::Chunk(chunk) => desk.add(&chunk.data).await?,
            Body::Acknowledged(number) => desk.acknowledged(number)?,
            Body::Over(over) => desk.over(over).await?,
            Body::Farewell(_) => desk.host.farewell(desk.peer.id),
            Body::Greeting(_) => return Err(Status::invalid_argument("a second greeting")),
        }
    }
    if desk.current.is_some() {
        return Err(Status::data_loss("the stream ended within a message"));
    }
    Ok(())
}

/// Messages from pieces.
struct Assembly<H> {
    host: Arc<H>,
    peer: Arc<Peer>,
    due: u64,
    current: Option<Partial>,
}

impl<H> Drop for Assembly<H> {
    /// What has come need not come again.
    fn drop(&mut self) {
        if self.current.is_some() {
            self.peer.keep_partial(self.current.take());
        }
    }
}

impl<H: Host> Assembly<H> {
    async fn begin(&mut self, head: &Head) -> Result<(), Status> {
        let refuse = |text: String| Err(Status::invalid_argument(text));
        if self.current.is_some() {
            return refuse("a message within another".to_owned());
        }
        // What an earlier stream brought may have been taken since this one began: the other side need not send it again.
        if (self.due..=self.peer.progress().0).contains(&head.number) {
            self.due = head.number;
        }
        if head.number != self.due {
            return refuse(format!("number: expected {}, found {}", self.due, head.number));
        }
        let kind = u8::try_from(head.kind).ok().and_then(Kind::from_wire);
        let Some(kind) = kind else { return refuse(format!("kind: found {}, which is none", head.kind)) };
        let most = self.host.max_len(self.peer.id, kind).await;
        if head.length > most {
            let text = format!("length of {kind}: expected at most {most}, found {}", head.length);
            return Err(Status::out_of_range(text));
        }
        let Ok(digest) = head.digest[..].try_into() else {
            return refuse("digest: expected 32 bytes".to_owned());
        };
        let kept =
            self.peer.take_partial().filter(|kept| kept.number == head.number && kept.digest == digest);
        // From the start, or from where it was cut off.
        let kept = kept.filter(|_| head.offset > 0);
        let (mut data, hasher) = kept.map_or_else(Default::default, |kept| (kept.data, kept.hasher));
        if head.offset != data.len() as u64 || head.offset > head.length {
            return refuse(format!("offset: expected 0 or {}, found {}", data.len(), head.offset));
        }
        // Room for what most messages need, whatever is announced.
        data.reserve((head.length as usize - data.len()).min(RESERVED));
        let (number, kind, length) = (head.number, kind as u8, head.length);
        self.current = Some(Partial { number, kind, length, digest, data, hasher });
        self.add(&head.data).await
    }

    async fn add(&mut self, data: &[u8]) -> Result<(), Status> {
        let Some(current) = &mut self.current else {
            return Err(Status::invalid_argument("bytes of no message"));
        };
        let total = current.data.len() as u64 + data.len() as u64;
        if total > current.length {
            let text = format!("length: expected {}, found {total} bytes or more", current.length);
            return Err(Status::out_of_range(text));
        }
        current.data.extend_from_slice(data);
        // While it is at hand.
        current.hasher.update(data);
        self.peer.count(data.len() as u64, 0);
        self.complete().await
    }

    /// Hands a message on that is whole, as soon as there is room.
    async fn complete(&mut self) -> Result<(), Status> {
        if self.current.as_ref().is_none_or(|current| current.data.len() as u64 != current.length) {
            return Ok(());
        }
        let Some(Partial { number, kind, digest, data, hasher, .. }) = self.current.take() else {
            return Ok(());
        };
        if hasher.finalize() != digest {
            return Err(Status::data_loss(format!("message {number} does not fit its digest")));
        }
        let kind = Kind::from_wire(kind).ok_or_else(|| Status::invalid_argument("kind"))?;
        let room = self.host.room(data.len()).await;
        let from = self.peer.id;
        self.host.arrive(Arrival { from, number, kind, content: data, digest, room });
        self.due += 1;
        Ok(())
    }

    async fn over(&self, over: Over) -> Result<(), Status> {
        let count = over.tests.len() + over.rounds.len();
        if count > SCOPES {
            let text = format!("tests and rounds that ended: expected at most {SCOPES}, found {count}");
            return Err(Status::out_of_range(text));
        }
        let room = self.host.room(count * size_of::<Scope>()).await;
        self.host.over(self.peer.id, scopes(over), room);
        Ok(())
    }

    fn acknowledged(&self, number: u64) -> Result<(), Status> {
        if number > self.peer.range().1 {
            return Err(Status::invalid_argument("an acknowledgement of what was not sent"));
        }
        if self.peer.retire(number) {
            self.host.acknowledged(self.peer.id, number);
        }
        Ok(())
    }
}

fn scopes(over: Over) -> Vec<Scope> {
    let rounds = over.rounds.into_iter().map(|round| Scope::Round(RoundId(round)));
    over.tests.into_iter().map(Scope::Test).chain(rounds).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use secsv_protocol::PartyId;
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;
    use crate::{link::packet::Chunk, party::Ends, status::board};

    /// Takes what comes and says nothing.
    #[derive(Default)]
    struct Quiet {
        arrived: std::sync::Mutex<Vec<u64>>,
        over: std::sync::Mutex<usize>,
    }

    impl Host for Quiet {
        fn federation(&self) -> [u8; 32] {
            [0; 32]
        }

        fn instance(&self) -> [u8; 16] {
            [0; 16]
        }

        fn peer(&self, _: PartyId) -> Option<Arc<Peer>> {
            None
        }

        async fn meet(&self, _: PartyId, instance: [u8; 16]) -> Option<[u8; 16]> {
            Some(instance)
        }

        async fn room(&self, _: usize) -> Option<OwnedSemaphorePermit> {
            None
        }

        async fn max_len(&self, _: PartyId, _: Kind) -> u64 {
            100
        }

        fn arrive(&self, arrival: Arrival) {
            self.arrived.lock().unwrap().push(arrival.number);
        }

        fn acknowledged(&self, _: PartyId, _: u64) {}

        fn over(&self, _: PartyId, scopes: Vec<Scope>, _: Option<OwnedSemaphorePermit>) {
            *self.over.lock().unwrap() += scopes.len();
        }

        fn farewell(&self, _: PartyId) {}
    }

    fn message(number: u64) -> [Body; 2] {
        let digest = Bytes::copy_from_slice(blake3::hash(b"abc").as_bytes());
        let kind = Kind::Done as u32;
        let head = Head { number, kind, length: 3, digest, offset: 0, data: Bytes::from_static(b"a") };
        [Body::Head(head), Body::Chunk(Chunk { data: Bytes::from_static(b"bc") })]
    }

    /// What arrives of these on a stream that began with this number due, after messages below another were taken.
    fn arrived(due: u64, taken: u64, bodies: Vec<Body>) -> (Vec<u64>, usize, Option<String>) {
        let host = Arc::new(Quiet::default());
        let peer = Peer::new(
            PartyId::Principal,
            &Arc::new(board()),
            "p".to_owned(),
            (due, 0, 0),
            Vec::new(),
            Ends::default(),
        );
        peer.take(taken);
        let packets = tokio_stream::iter(bodies.into_iter().map(|body| Ok(Packet::from(body))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime.block_on(run(host.clone(), Arc::new(peer), packets, due));
        let (numbers, over) = (host.arrived.lock().unwrap().clone(), *host.over.lock().unwrap());
        (numbers, over, ended.err().map(|status| status.message().to_owned()))
    }

    /// A stream was cut while messages waited for the role; it took and acknowledged them when the next stream had begun. The other
    /// side goes on behind them.
    #[test]
    fn messages_that_were_taken_meanwhile_need_not_come_again() {
        let whole = |numbers: &[u64]| numbers.iter().flat_map(|&number| message(number)).collect::<Vec<_>>();
        assert_eq!(arrived(2, 5, whole(&[2, 3, 4, 5])), (vec![2, 3, 4, 5], 0, None));
        assert_eq!(arrived(2, 5, whole(&[5, 6])), (vec![5, 6], 0, None));
        assert_eq!(arrived(2, 5, whole(&[2, 5, 6])), (vec![2, 5, 6], 0, None));
        for (numbers, expected) in [(vec![6], 2), (vec![1], 2), (vec![4, 3], 5)] {
            let (_, _, error) = arrived(2, 5, whole(&numbers));
            let refusal = format!("number: expected {expected}, found ");
            assert!(error.is_some_and(|error| error.starts_with(&refusal)), "{numbers:?}");
        }
    }

    #[test]
    fn ends_come_in_packets_of_some_size() {
        let over = |tests: u64| Body::Over(Over { tests: (0..tests).collect(), rounds: vec![1] });
        assert_eq!(arrived(0, 0, vec![over(4095), over(1)]), (vec![], 4098, None));
        let (_, count, error) = arrived(0, 0, vec![over(4096)]);
        assert_eq!((count, error.is_some_and(|error| error.contains("at most 4096, found 4097"))), (0, true));
    }
}

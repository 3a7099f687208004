//! The receiving half of a stream. Nothing is allocated on the word of a peer: memory grows with what has come.

use std::sync::Arc;

use secsv_evaluation::{
    packet::{MAX_SCOPES, MessageHead, Packet},
    partial_message::{MessageDefect, PartialMessage},
};
use secsv_protocol::{PartyId, Scope, message::Kind};
use tokio::{io::AsyncRead, sync::OwnedSemaphorePermit};

use super::{PacketReader, PeerLink, StreamError, StreamHost, refuse};
use crate::journal::Digest;

/// A message from a peer, whole.
pub(crate) struct Arrival {
    pub from: PartyId,
    pub number: u64,
    pub kind: Kind,
    pub content: Vec<u8>,
    pub digest: Digest,
    /// Room in the inbox.
    pub room: Option<OwnedSemaphorePermit>,
}

/// Takes packets until the stream ends.
pub(super) async fn run<H: StreamHost, S: AsyncRead + Unpin>(
    host: Arc<H>,
    link: Arc<PeerLink>,
    reader: &mut PacketReader<S>,
    due: u64,
) -> Result<(), StreamError> {
    let mut assembly = Assembly { host, link, due, current: None };
    while let Some((packet, data)) = reader.next().await? {
        match packet {
            Packet::Head(head) => assembly.begin(&head, &data).await?,
            Packet::Chunk => assembly.add(&data).await?,
            Packet::Acknowledged(number) => assembly.acknowledged(number)?,
            Packet::Finished(scopes) => assembly.finished(scopes).await?,
            Packet::Goodbye => assembly.host.goodbye(assembly.link.id),
            Packet::Refused(reason) => return Err(StreamError::ByPeer(reason)),
            Packet::KeepAlive => {}
            Packet::Handshake(_) => return refuse("a second handshake"),
        }
    }
    if assembly.current.is_some() {
        return refuse("the stream ended within a message");
    }
    Ok(())
}

/// Messages from pieces.
struct Assembly<H> {
    host: Arc<H>,
    link: Arc<PeerLink>,
    due: u64,
    current: Option<PartialMessage>,
}

impl<H> Drop for Assembly<H> {
    /// What has come need not come again.
    fn drop(&mut self) {
        if self.current.is_some() {
            self.link.keep_partial(self.current.take());
        }
    }
}

impl<H: StreamHost> Assembly<H> {
    async fn begin(&mut self, head: &MessageHead, data: &[u8]) -> Result<(), StreamError> {
        if self.current.is_some() {
            return refuse("a message within another");
        }
        // What an earlier stream brought may have been taken since this one began: the other side need not send it again.
        if (self.due..=self.link.progress().0).contains(&head.number) {
            self.due = head.number;
        }
        if head.number != self.due {
            return Err(MessageDefect::Number { expected: self.due, found: head.number }.into());
        }
        let Some(kind) = Kind::from_wire(head.kind) else {
            return Err(MessageDefect::NoKind(head.kind).into());
        };
        let most = self.host.max_len(self.link.id, kind).await;
        self.current = Some(PartialMessage::begin(head, most, self.link.take_partial())?);
        self.add(data).await
    }

    async fn add(&mut self, data: &[u8]) -> Result<(), StreamError> {
        let Some(current) = &mut self.current else { return refuse("bytes of no message") };
        current.add(data)?;
        self.complete().await
    }

    /// Hands a message on that is whole, as soon as there is room.
    async fn complete(&mut self) -> Result<(), StreamError> {
        let Some(whole) = self.current.take_if(|current| current.is_whole()) else { return Ok(()) };
        let (from, number, kind) = (self.link.id, whole.number(), whole.kind);
        let (content, digest) = whole.finish()?;
        let room = self.host.room(content.len()).await;
        self.host.arrive(Arrival { from, number, kind, content, digest, room });
        self.due += 1;
        Ok(())
    }

    async fn finished(&self, scopes: Vec<Scope>) -> Result<(), StreamError> {
        let count = scopes.len();
        if count > MAX_SCOPES {
            return refuse(format!(
                "finished tests and rounds: expected at most {MAX_SCOPES}, found {count}"
            ));
        }
        let room = self.host.room(count * size_of::<Scope>()).await;
        self.host.finished(self.link.id, scopes, room);
        Ok(())
    }

    fn acknowledged(&self, number: u64) -> Result<(), StreamError> {
        if number > self.link.range().1 {
            return refuse("an acknowledgement of what was not sent");
        }
        if self.link.acknowledge(number) {
            self.host.acknowledged(self.link.id, number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use secsv_protocol::TestId;

    use super::*;
    use crate::{
        status::board,
        transport::{FinishedTests, PacketWriter},
    };

    /// Takes what comes and says nothing.
    #[derive(Default)]
    struct Quiet {
        arrived: std::sync::Mutex<Vec<u64>>,
        finished: std::sync::Mutex<usize>,
    }

    impl StreamHost for Quiet {
        fn federation(&self) -> [u8; 32] {
            [0; 32]
        }

        fn instance(&self) -> [u8; 16] {
            [0; 16]
        }

        fn link(&self, _: PartyId) -> Option<Arc<PeerLink>> {
            None
        }

        async fn first_instance(&self, _: PartyId, instance: [u8; 16]) -> Option<[u8; 16]> {
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

        fn finished(&self, _: PartyId, scopes: Vec<Scope>, _: Option<OwnedSemaphorePermit>) {
            *self.finished.lock().unwrap() += scopes.len();
        }

        fn goodbye(&self, _: PartyId) {}

        fn give_up(&self, _: PartyId, _: String) {}
        fn is_over(&self) -> bool {
            false
        }
    }

    type Said = (Packet, &'static [u8]);

    fn message(number: u64) -> [Said; 2] {
        let digest = *blake3::hash(b"abc").as_bytes();
        let head = MessageHead { number, kind: Kind::TestFinished as u8, length: 3, digest, offset: 0 };
        [(Packet::Head(head), b"a"), (Packet::Chunk, b"bc")]
    }

    /// What arrives of these on a stream that began with this number due, after messages below another were accepted.
    fn arrived(due: u64, accepted: u64, packets: Vec<Said>) -> (Vec<u64>, usize, Option<String>) {
        let host = Arc::new(Quiet::default());
        let (numbers, board) = ((due, 0, 0), Arc::new(board()));
        let finished = FinishedTests::default();
        let link = PeerLink::new(PartyId::Principal, &board, "p".to_owned(), numbers, Vec::new(), finished);
        link.accepted(accepted);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = runtime.block_on(async {
            let mut bytes = Vec::new();
            let mut writer = PacketWriter::new(&mut bytes);
            for (packet, data) in packets {
                writer.send(&packet, data).await.unwrap();
            }
            run(host.clone(), Arc::new(link), &mut PacketReader::new(&bytes[..]), due).await
        });
        let (numbers, finished) = (host.arrived.lock().unwrap().clone(), *host.finished.lock().unwrap());
        (numbers, finished, ended.err().map(|error| error.to_string()))
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
    fn finished_tests_come_in_packets_of_some_size() {
        let over = |tests: u32| -> Said {
            let round = Scope::Round(secsv_federation::RoundId(1));
            (
                Packet::Finished(
                    (0..tests).map(|test| Scope::Test(TestId::first(test))).chain([round]).collect(),
                ),
                b"",
            )
        };
        assert_eq!(arrived(0, 0, vec![over(4095), over(1)]), (vec![], 4098, None));
        let (_, count, error) = arrived(0, 0, vec![over(4096)]);
        assert_eq!((count, error.is_some_and(|error| error.contains("at most 4096, found 4097"))), (0, true));
    }
}

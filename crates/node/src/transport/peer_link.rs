//! One party's end of a link: what waits to be sent, how far both sides have come, whether somebody is there.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use secsv_evaluation::{packet::MAX_SCOPES, partial_message::PartialMessage};
use secsv_protocol::{PartyId, Scope};
use tokio::sync::{Notify, watch};

use crate::{
    journal::{Body, Digest, Outbound},
    status::Board,
};

/// One party's end of a link.
pub(crate) struct PeerLink {
    /// Who is at the other end.
    pub id: PartyId,
    /// Its name.
    pub name: String,
    state: Mutex<PeerState>,
    finished: FinishedTests,
    /// Told who is there.
    board: Arc<Board>,
    /// There is something to send. All streams are told: which of two counts is found out by them.
    changed: Notify,
    /// Which stream is the one that counts; a later one ends those before it.
    stream: watch::Sender<u64>,
}

#[derive(Default)]
struct PeerState {
    /// Not acknowledged yet, by number.
    waiting: VecDeque<Outbound>,
    /// Numbers below the other side has.
    acknowledged: u64,
    /// Bytes of large messages that are still in memory.
    cached: usize,
    /// The number after the last one.
    next_out: u64,
    /// Numbers below are on our disk.
    stored: u64,
    /// Numbers below were accepted by the role.
    accepted: u64,
    /// Rounds that have ended, told once: they may be begun again.
    rounds: Vec<Scope>,
    goodbye: bool,
    refused: Option<String>,
    /// Until when the peer is cut off, because of a message that was refused.
    cut_off: Option<Instant>,
    /// Messages that were refused.
    refusals: u64,
    partial: Option<PartialMessage>,
    connected: Option<Instant>,
    last_seen: Option<Instant>,
}

/// Tests that have ended, in order: every stream tells all of them, because nobody acknowledges them.
#[derive(Clone, Default)]
pub(crate) struct FinishedTests(Arc<Mutex<Vec<Scope>>>);

impl FinishedTests {
    pub(crate) fn add(&self, scopes: &[Scope]) {
        self.lock().extend_from_slice(scopes);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Scope>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Those behind so many, as far as they fit a packet.
    fn behind(&self, told: usize) -> Option<Vec<Scope>> {
        let ends = self.lock();
        let rest = ends.get(told..).filter(|rest| !rest.is_empty())?;
        Some(rest[..rest.len().min(MAX_SCOPES)].to_vec())
    }
}

/// What a stream has sent so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    /// The number of the next message.
    pub next: u64,
    /// Messages below this number are kept.
    pub acknowledged: u64,
    /// How many tests have ended.
    pub finished: usize,
    /// Nothing will come any more.
    pub goodbye: bool,
}

/// What may be sent next.
pub(crate) enum OutboundItem {
    /// A message.
    Message(Outbound),
    /// How far the other side's messages are kept.
    Acknowledged(u64),
    /// What has ended.
    Finished(Vec<Scope>),
    /// Nothing will come any more.
    Goodbye,
    /// Something the other side sent cannot be understood.
    Refused(String),
}

/// How a link is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkState {
    /// Since when somebody is there.
    pub connected: Option<Instant>,
    /// When somebody was there last.
    pub last_seen: Option<Instant>,
}

impl PeerLink {
    /// A link on which so many messages have been received and kept, and these wait to be sent.
    pub(crate) fn new(
        id: PartyId,
        board: &Arc<Board>,
        name: String,
        (stored, acknowledged, next_out): (u64, u64, u64),
        waiting: Vec<Outbound>,
        finished: FinishedTests,
    ) -> Self {
        let waiting = waiting.into();
        let state =
            PeerState { waiting, acknowledged, next_out, stored, accepted: stored, ..PeerState::default() };
        let state = Mutex::new(state);
        let board = board.clone();
        Self { id, name, state, finished, board, changed: Notify::new(), stream: watch::Sender::new(0) }
    }

    /// There is no stream, for this reason.
    pub(crate) fn trouble(&self, reason: &str) {
        self.board.trouble(self.id, reason);
    }

    fn lock(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A message that is on the disk is to be sent.
    pub(crate) fn post(&self, message: Outbound) {
        let mut state = self.lock();
        state.add(message);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Messages below this number are on the disk.
    pub(crate) fn stored(&self, number: u64) {
        self.lock().stored = number;
        self.changed.notify_waiters();
    }

    /// Messages below this number were accepted by the role.
    pub(crate) fn accepted(&self, number: u64) {
        self.lock().accepted = number;
    }

    /// Tests have ended, and these rounds.
    pub(crate) fn finish_rounds(&self, rounds: &[Scope]) {
        self.lock().rounds.extend_from_slice(rounds);
        self.changed.notify_waiters();
    }

    /// A round is begun, perhaps again: its end is not told behind that.
    pub(crate) fn begin_round(&self, round: Scope) {
        self.lock().rounds.retain(|ended| *ended != round);
    }

    /// Nothing will be sent any more.
    pub(crate) fn say_goodbye(&self) {
        self.lock().goodbye = true;
        self.changed.notify_waiters();
    }

    /// Something that came from the peer is refused: it is named, cut off for a while, and shown to operators. Returns how often
    /// that has happened.
    pub(crate) fn refuse(&self, reason: String) -> u64 {
        self.board.refused(self.id, &reason);
        let mut state = self.lock();
        if state.connected.is_some() {
            state.refused.get_or_insert(reason);
        }
        state.cut_off = Some(Instant::now() + CUT_OFF_TIMEOUT);
        state.refusals += 1;
        let refusals = state.refusals;
        drop(state);
        self.changed.notify_waiters();
        refusals
    }

    /// When the peer may speak again.
    pub(crate) fn cut_off_until(&self) -> tokio::time::Instant {
        self.lock().cut_off.unwrap_or_else(Instant::now).into()
    }

    /// The other side has everything below this number: returns whether that is news.
    pub(crate) fn acknowledge(&self, number: u64) -> bool {
        let mut state = self.lock();
        let is_news = number > state.acknowledged;
        state.acknowledged = number.max(state.acknowledged);
        while let Some(message) = state.waiting.front().filter(|message| message.number < number) {
            state.cached -= cached(message);
            state.waiting.pop_front();
        }
        is_news
    }

    /// Whether the other side has everything.
    pub fn has_sent_all(&self) -> bool {
        let state = self.lock();
        state.acknowledged == state.next_out
    }

    /// The number that is expected next, and what has come of it.
    pub(crate) fn progress(&self) -> (u64, Option<(Digest, u64)>) {
        let state = self.lock();
        let partial = state.partial.as_ref().filter(|partial| partial.number() == state.accepted);
        (state.accepted, partial.map(PartialMessage::progress))
    }

    /// Numbers that can be sent: from the first that is not acknowledged to the one after the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        let state = self.lock();
        (state.acknowledged, state.next_out)
    }

    /// A new stream begins, and ends any other. Returns its number, and who hears that a later one has begun.
    pub(crate) fn begin(&self) -> (u64, watch::Receiver<u64>) {
        let mut state = self.lock();
        state.connected = Some(Instant::now());
        self.board.connected(self.id);
        state.refused = None;
        self.stream.send_modify(|number| *number += 1);
        let later = self.stream.subscribe();
        let number = *later.borrow();
        (number, later)
    }

    /// A stream has ended. If a later one has begun, the link is up.
    pub(crate) fn finish(&self, number: u64) {
        let mut state = self.lock();
        if *self.stream.borrow() == number {
            state.connected = None;
            self.board.disconnected(self.id);
            state.last_seen = Some(Instant::now());
        }
    }

    pub(crate) fn take_partial(&self) -> Option<PartialMessage> {
        self.lock().partial.take()
    }

    pub(crate) fn keep_partial(&self, partial: Option<PartialMessage>) {
        self.lock().partial = partial;
    }

    /// How the link is doing.
    pub fn link_state(&self) -> LinkState {
        let state = self.lock();
        LinkState { connected: state.connected, last_seen: state.last_seen }
    }

    /// Something that a stream has not sent yet, if there is any.
    pub(crate) fn try_next_outbound(&self, sent: Sent) -> Option<OutboundItem> {
        let turn = self.lock().next_item(sent);
        let turn = turn.or_else(|| self.finished.behind(sent.finished).map(OutboundItem::Finished));
        turn.or_else(|| self.lock().last_item(sent))
    }

    /// Waits for something that a stream has not sent yet.
    pub(crate) async fn next_outbound(&self, sent: Sent) -> OutboundItem {
        loop {
            let changed = self.changed.notified();
            if let Some(turn) = self.try_next_outbound(sent) {
                return turn;
            }
            changed.await;
        }
    }
}

/// How long a peer is cut off whose message was refused: it may be mended, and it may not keep others from their work.
const CUT_OFF_TIMEOUT: Duration = Duration::from_millis(50);

/// Bytes of large messages that wait in memory, for one peer: what is beyond is read from the shelf.
const CACHE: usize = 16 << 20;

fn cached(message: &Outbound) -> usize {
    match &message.body {
        Body::Stored(_, Some(content)) => content.len(),
        _ => 0,
    }
}

impl PeerState {
    fn add(&mut self, mut message: Outbound) {
        if let Body::Stored(_, content) = &mut message.body
            && self.cached + message.length as usize > CACHE
        {
            *content = None;
        }
        self.cached += cached(&message);
        self.next_out = self.next_out.max(message.number + 1);
        let place = self.waiting.partition_point(|other| other.number < message.number);
        self.waiting.insert(place, message);
    }

    fn next_item(&mut self, sent: Sent) -> Option<OutboundItem> {
        if let Some(reason) = self.refused.take() {
            return Some(OutboundItem::Refused(reason));
        }
        if self.stored > sent.acknowledged {
            return Some(OutboundItem::Acknowledged(self.stored));
        }
        // What an earlier stream brought may be acknowledged on this one, before it was sent again.
        let next = sent.next.max(self.acknowledged);
        let found = self.waiting.binary_search_by_key(&next, |message| message.number);
        let message = found.ok().and_then(|place| self.waiting.get(place));
        message.map(|message| OutboundItem::Message(message.clone()))
    }

    /// What waits until nothing else does.
    fn last_item(&mut self, sent: Sent) -> Option<OutboundItem> {
        if !self.rounds.is_empty() {
            let most = self.rounds.len().min(MAX_SCOPES);
            return Some(OutboundItem::Finished(self.rounds.drain(..most).collect()));
        }
        (self.goodbye && !sent.goodbye).then_some(OutboundItem::Goodbye)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use secsv_federation::RoundId;
    use secsv_protocol::{TestId, message::Kind};

    use super::*;
    use crate::status::board;

    fn peer() -> PeerLink {
        PeerLink::new(
            PartyId::Client(0),
            &Arc::new(board()),
            "north".to_owned(),
            (0, 0, 0),
            Vec::new(),
            FinishedTests::default(),
        )
    }

    fn message(number: u64) -> Outbound {
        let body = Body::Inline(Arc::new(vec![1]));
        Outbound {
            to: PartyId::Client(0),
            number,
            kind: Kind::TestFinished,
            digest: [0; 32],
            length: 1,
            body,
        }
    }

    /// A stream that is about to end must not be the only one to hear of a message: the one that stays would not send it.
    #[test]
    fn streams_that_overlap_all_hear_what_is_new() {
        let peer = peer();
        let mut context = Context::from_waker(Waker::noop());
        let mut streams = [(); 2].map(|()| Box::pin(peer.next_outbound(Sent::default())));
        for stream in &mut streams {
            assert!(stream.as_mut().poll(&mut context).is_pending());
        }
        peer.post(message(0));
        for stream in &mut streams {
            let Poll::Ready(OutboundItem::Message(found)) = stream.as_mut().poll(&mut context) else {
                panic!("a message")
            };
            assert_eq!(found.number, 0);
        }
    }

    /// Whoever is there must not be taken for absent, and must hear what is refused, because an earlier stream of its ends late.
    #[test]
    fn a_link_is_up_until_its_last_stream_ends() {
        let peer = peer();
        let mut context = Context::from_waker(Waker::noop());
        let (first, mut later) = peer.begin();
        assert!(Box::pin(later.changed()).as_mut().poll(&mut context).is_pending());
        let (second, _) = peer.begin();
        assert!(Box::pin(later.changed()).as_mut().poll(&mut context).is_ready());
        peer.finish(first);
        assert!(peer.link_state().connected.is_some());
        peer.refuse("no".to_owned());
        assert!(
            matches!(peer.try_next_outbound(Sent::default()), Some(OutboundItem::Refused(reason)) if reason == "no")
        );
        peer.finish(second);
        assert!(peer.link_state().connected.is_none());
    }

    /// An earlier stream brought messages that are acknowledged before this one has sent them again.
    #[test]
    fn what_was_acknowledged_is_not_waited_for() {
        let peer = peer();
        (0..3).for_each(|number| peer.post(message(number)));
        assert!(peer.acknowledge(2));
        let Some(OutboundItem::Message(found)) = peer.lock().next_item(Sent::default()) else {
            panic!("a message")
        };
        assert_eq!(found.number, 2);
        assert!(peer.lock().next_item(Sent { next: 3, ..Sent::default() }).is_none());
    }

    /// A stream may be cut off before they have come: the next one tells them again, as many as fit a packet at a time.
    #[test]
    fn what_has_ended_is_told_on_every_stream() {
        let (peer, ends) = (peer(), MAX_SCOPES + 3);
        peer.say_goodbye();
        let tests: Vec<_> = (0..ends as u32).map(|test| Scope::Test(TestId::first(test))).collect();
        peer.finished.add(&tests);
        for _ in 0..2 {
            let (mut sent, mut told) = (Sent::default(), Vec::new());
            while let Some(OutboundItem::Finished(scopes)) = peer.try_next_outbound(sent) {
                sent.finished += scopes.len();
                told.push(scopes);
            }
            assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_SCOPES, 3]);
            assert_eq!(told.concat(), tests);
            assert!(matches!(peer.try_next_outbound(sent), Some(OutboundItem::Goodbye)));
        }
    }

    /// Messages come first: the end of a round that is begun again meanwhile would end it for good.
    #[test]
    fn the_end_of_a_round_is_not_told_behind_its_next_beginning() {
        let (peer, [first, second]) = (peer(), [1, 2].map(|round| Scope::Round(RoundId(round))));
        peer.finish_rounds(&[first, second]);
        peer.begin_round(first);
        let Some(OutboundItem::Finished(told)) = peer.try_next_outbound(Sent::default()) else {
            panic!("an end")
        };
        assert_eq!(told, [second]);
        assert!(peer.try_next_outbound(Sent::default()).is_none());
    }

    /// The stream on which it was said may have been cut off.
    #[test]
    fn a_goodbye_is_said_once_on_every_stream() {
        let peer = peer();
        peer.say_goodbye();
        for _ in 0..2 {
            let turn = |sent| peer.try_next_outbound(sent);
            assert!(matches!(turn(Sent::default()), Some(OutboundItem::Goodbye)));
            assert!(turn(Sent { goodbye: true, ..Sent::default() }).is_none());
        }
    }
}

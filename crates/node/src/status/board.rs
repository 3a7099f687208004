//! What the driver writes down, and what can be read from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use secsv_federation::{ClientId, Coalition, RoundId};
use secsv_protocol::PartyId;
use serde::Serialize;

use crate::{kit::Kit, process::TestProgress};

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessPhase {
    /// It reads its journal, or waits for others to come.
    Starting,
    /// Tests run.
    Running,
    /// Nothing can go on until somebody comes back.
    Paused,
    /// Everything is done.
    Finished,
    /// It cannot go on.
    Failed,
}

impl ProcessPhase {
    pub(super) const ALL: [Self; 5] =
        [Self::Starting, Self::Running, Self::Paused, Self::Finished, Self::Failed];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

/// Written by the driver, read by the pages. Every call is short and takes one lock.
pub struct Board {
    state: Mutex<BoardState>,
    own: String,
    federation: String,
    protocol: String,
    digest: String,
    clients: Vec<String>,
    started: Instant,
    /// Until when this party's certificate is valid.
    certificate_until: Option<SystemTime>,
}

struct BoardState {
    phase: ProcessPhase,
    awaited: Vec<String>,
    peers: BTreeMap<PartyId, PeerStatus>,
    rounds: BTreeMap<RoundId, OpenRound>,
    /// Tests of which a party that asks for none has heard.
    tests: Option<TestProgress>,
    /// Tests done since this process asked for the first, and when that was: what time left is estimated from.
    pace: Option<(Instant, usize)>,
}

#[derive(Default)]
struct OpenRound {
    asked: usize,
    done: usize,
    open: BTreeSet<Coalition>,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Whose process this is.
    pub party: String,
    /// What people call the federation.
    pub federation: String,
    /// How models are tested.
    pub protocol: String,
    /// The digest of the federation file.
    pub digest: String,
    /// What the process does.
    pub phase: ProcessPhase,
    /// Who is awaited, if nothing can go on without.
    pub awaited: Vec<String>,
    /// Until when this party's certificate is valid, in seconds since 1970.
    pub certificate_until: Option<u64>,
    /// Since the process started.
    pub uptime_seconds: f64,
    /// Estimated from the tests done so far.
    pub seconds_left: Option<f64>,
    /// Tests that are through, as far as a party that asks for none has heard ...
    pub tests_finished: Option<usize>,
    /// ... of so many, where that is known.
    pub tests_planned: Option<usize>,
    /// Everybody else.
    pub peers: Vec<PeerStatus>,
    /// Rounds of which tests were asked for.
    pub rounds: Vec<RoundStatus>,
    /// Values of rounds that have ended, where rounds come while training goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveStatus>,
}

/// Rounds that were valued while training goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveStatus {
    /// Rounds that are over, in order.
    pub rounds: Vec<LiveRound>,
    /// What each silo has gained by now: the sum over these rounds, in their order.
    pub totals: BTreeMap<ClientId, f64>,
    /// What is waited for between two rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}

/// A round that is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveRound {
    /// Which round.
    pub round: u32,
    /// Everybody's value in it.
    pub values: BTreeMap<ClientId, f64>,
    /// From the round's file to its values, where this process knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Why there are no values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

/// What pages are about.
pub trait StatusSource: Send + Sync + 'static {
    /// How it is now.
    fn status(&self) -> Status;
}

impl StatusSource for Board {
    fn status(&self) -> Status {
        Self::status(self)
    }
}

/// The link to one party.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// What people call it, if it is not by its name.
    pub label: Option<String>,
    /// Since when it is connected, in seconds since 1970.
    pub connected_since: Option<u64>,
    /// How often it came.
    pub connections: u64,
    /// Frames sent to it.
    pub sent_frames: u64,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Frames received from it.
    pub received_frames: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
    /// Messages of its that were refused: each time it is cut off for a while.
    pub refused: u64,
    /// Why the last one was.
    pub refused_because: Option<String>,
    /// Why it is away, as far as is known.
    pub trouble: Option<String>,
}

/// The tests of one round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundStatus {
    /// Which round.
    pub round: u32,
    /// Tests asked for.
    pub asked: usize,
    /// Tests done.
    pub done: usize,
    /// Coalitions under way.
    pub open: Vec<Vec<String>>,
}

/// Coalitions of a round that are told by name; the rest is a number.
const MAX_OPEN: usize = 64;

impl Board {
    /// An empty board of a kit's owner.
    pub fn new(kit: &Kit) -> Self {
        let file = &kit.federation;
        let names = kit.names().into_iter().filter(|(party, _)| *party != kit.own).collect();
        let clients = file.federation.ids().map(ToString::to_string).collect();
        let (own, federation, protocol) =
            (kit.own_name(), file.federation.name.clone(), file.session.protocol.clone());
        let board = Self::of(own, federation, protocol, names, clients);
        // A kit whose labels cannot be read is told of where it is opened for a result.
        let labels = kit.labels().unwrap_or_default();
        let ids: Vec<_> = file.federation.ids().collect();
        for (party, peer) in &mut board.state().peers {
            if let PartyId::Client(position) = party {
                peer.label = ids.get(*position).and_then(|id| labels.get(id)).map(str::to_owned);
            }
        }
        let digest = crate::Fingerprint(kit.digest).to_string();
        Self { certificate_until: Some(kit.validity.until), ..board.with_digest(digest) }
    }

    fn of(
        own: String,
        federation: String,
        protocol: String,
        names: Vec<(PartyId, String)>,
        clients: Vec<String>,
    ) -> Self {
        let peer = |name| PeerStatus { name, ..PeerStatus::default() };
        let state = BoardState {
            phase: ProcessPhase::Starting,
            awaited: Vec::new(),
            peers: names.into_iter().map(|(party, name)| (party, peer(name))).collect(),
            rounds: BTreeMap::new(),
            tests: None,
            pace: None,
        };
        let (digest, started) = (String::new(), Instant::now());
        let (state, certificate_until) = (Mutex::new(state), None);
        Self { state, own, federation, protocol, digest, clients, started, certificate_until }
    }

    fn with_digest(self, digest: String) -> Self {
        Self { digest, ..self }
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self, party: PartyId, change: impl FnOnce(&mut PeerStatus)) {
        if let Some(peer) = self.state().peers.get_mut(&party) {
            change(peer);
        }
    }

    /// A party is here.
    pub fn connected(&self, party: PartyId) {
        self.peer(party, |peer| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            peer.connected_since = Some(since.unwrap_or_default().as_secs());
            peer.connections += 1;
            peer.trouble = None;
        });
    }

    /// A party is gone.
    pub fn disconnected(&self, party: PartyId) {
        self.peer(party, |peer| peer.connected_since = None);
    }

    /// There is no link to a party, for this reason.
    pub fn trouble(&self, party: PartyId, reason: &str) {
        self.peer(party, |peer| peer.trouble = Some(reason.to_owned()));
    }

    /// A frame went out.
    pub fn sent(&self, party: PartyId, bytes: u64) {
        self.peer(party, |peer| {
            peer.sent_frames += 1;
            peer.sent_bytes += bytes;
        });
    }

    /// A frame came in.
    pub fn received(&self, party: PartyId, bytes: u64) {
        self.peer(party, |peer| {
            peer.received_frames += 1;
            peer.received_bytes += bytes;
        });
    }

    /// A message was refused.
    pub fn refused(&self, party: PartyId, reason: &str) {
        self.peer(party, |peer| {
            peer.refused += 1;
            peer.refused_because = Some(reason.to_owned());
        });
    }

    /// A test was asked for.
    pub fn asked(&self, round: RoundId, coalition: Coalition) {
        let mut state = self.state();
        state.pace.get_or_insert((Instant::now(), 0));
        let of_round = state.rounds.entry(round).or_default();
        of_round.asked += 1;
        of_round.open.insert(coalition);
    }

    /// A test is done.
    pub fn done(&self, round: RoundId, coalition: Coalition) {
        let mut state = self.state();
        if let Some((_, done)) = &mut state.pace {
            *done += 1;
        }
        let of_round = state.rounds.entry(round).or_default();
        of_round.done += 1;
        of_round.open.remove(&coalition);
    }

    /// A test was done before this process was started: it counts, but says nothing about the pace.
    pub fn was_done(&self, round: RoundId, coalition: Coalition) {
        let mut state = self.state();
        let of_round = state.rounds.entry(round).or_default();
        of_round.done += 1;
        if !of_round.open.remove(&coalition) {
            of_round.asked += 1;
        }
    }

    /// How many messages have come.
    pub(crate) fn received_frames(&self) -> u64 {
        self.state().peers.values().map(|peer| peer.received_frames).sum()
    }

    /// So many tests are through.
    pub fn tests(&self, progress: TestProgress) {
        self.state().tests = Some(progress);
    }

    /// What the process does now.
    pub fn phase(&self, phase: ProcessPhase) {
        let mut state = self.state();
        state.phase = phase;
        if phase != ProcessPhase::Paused {
            state.awaited.clear();
        }
    }

    /// Nothing goes on without these.
    pub fn paused_for(&self, parties: &[PartyId]) {
        let mut state = self.state();
        state.awaited = parties
            .iter()
            .map(|party| state.peers.get(party).map_or_else(|| party.to_string(), |peer| peer.name.clone()))
            .collect();
        state.phase = ProcessPhase::Paused;
    }

    /// How it is now.
    pub fn status(&self) -> Status {
        let state = self.state();
        let name = |client: usize| self.clients.get(client).cloned().unwrap_or_default();
        let rounds = state.rounds.iter().map(|(round, tests)| RoundStatus {
            round: round.0,
            asked: tests.asked,
            done: tests.done,
            open: tests.open.iter().take(MAX_OPEN).map(|c| c.members().map(name).collect()).collect(),
        });
        Status {
            party: self.own.clone(),
            federation: self.federation.clone(),
            protocol: self.protocol.clone(),
            digest: self.digest.clone(),
            phase: state.phase,
            awaited: state.awaited(),
            certificate_until: self
                .certificate_until
                .and_then(|until| Some(until.duration_since(UNIX_EPOCH).ok()?.as_secs())),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            seconds_left: state.time_left().map(|left| left.as_secs_f64()),
            tests_finished: state.tests.map(|tests| tests.finished),
            tests_planned: state.tests.and_then(|tests| tests.planned),
            peers: state.peers.values().cloned().collect(),
            rounds: rounds.collect(),
            live: None,
        }
    }
}

impl BoardState {
    /// Who is awaited: nothing begins before everybody has come once.
    fn awaited(&self) -> Vec<String> {
        if self.phase != ProcessPhase::Starting || !self.awaited.is_empty() {
            return self.awaited.clone();
        }
        self.peers.values().filter(|peer| peer.connections == 0).map(|peer| peer.name.clone()).collect()
    }

    fn time_left(&self) -> Option<Duration> {
        let open: usize = self.rounds.values().map(|round| round.asked.saturating_sub(round.done)).sum();
        let (since, done) = self.pace.filter(|(_, done)| *done > 0 && self.phase == ProcessPhase::Running)?;
        Some(since.elapsed().mul_f64(open as f64 / done as f64))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn board() -> Board {
        let names =
            vec![(PartyId::Auxiliary, "auxiliary".to_owned()), (PartyId::Client(0), "north<&\"".to_owned())];
        let board = Board::of(
            "principal".into(),
            "four silos".into(),
            "secsv".into(),
            names,
            vec!["north<&\"".into(), "south".into()],
        );
        board.connected(PartyId::Client(0));
        board.sent(PartyId::Client(0), 10);
        board.sent(PartyId::Client(0), 5);
        board.received(PartyId::Auxiliary, 7);
        board.phase(ProcessPhase::Running);
        for bits in 1..=3 {
            board.asked(RoundId(2), Coalition::from_bits(bits));
        }
        board.done(RoundId(2), Coalition::from_bits(1));
        board
    }

    #[test]
    fn what_is_written_can_be_read() {
        let status = board().status();
        assert_eq!(status.phase, ProcessPhase::Running);
        let [auxiliary, north] = &status.peers[..] else { panic!("two peers") };
        assert_eq!(
            (auxiliary.connected_since, auxiliary.received_bytes, auxiliary.received_frames),
            (None, 7, 1)
        );
        assert!(north.connected_since.is_some());
        assert_eq!((north.sent_frames, north.sent_bytes, north.connections), (2, 15, 1));
        let round = &status.rounds[0];
        assert_eq!((round.round, round.asked, round.done), (2, 3, 1));
        assert_eq!(round.open, [vec!["south"], vec!["north<&\"", "south"]]);
        assert!(status.seconds_left.is_some());
    }

    #[test]
    fn who_is_gone_and_awaited_is_named_until_the_run_goes_on() {
        let board = board();
        board.disconnected(PartyId::Client(0));
        board.paused_for(&[PartyId::Client(0)]);
        let status = board.status();
        assert_eq!(
            (status.phase, &status.awaited[..]),
            (ProcessPhase::Paused, &["north<&\"".to_owned()][..])
        );
        assert_eq!((status.peers[1].connected_since, status.seconds_left), (None, None));
        board.phase(ProcessPhase::Running);
        assert!(board.status().awaited.is_empty());
    }

    #[test]
    fn why_a_party_is_away_is_told_until_it_is_back() {
        let board = board();
        board.trouble(PartyId::Auxiliary, "connection refused");
        assert_eq!(board.status().peers[0].trouble.as_deref(), Some("connection refused"));
        board.connected(PartyId::Auxiliary);
        assert_eq!(board.status().peers[0].trouble, None);
    }

    #[test]
    fn a_silo_sees_how_many_tests_are_through() {
        let board = Board::of("north".into(), "f".into(), "blindsv".into(), vec![], vec![]);
        assert_eq!(board.status().tests_finished, None);
        board.tests(TestProgress { finished: 3, planned: Some(10) });
        let status = board.status();
        assert_eq!((status.tests_finished, status.tests_planned), (Some(3), Some(10)));
        let page = crate::status::page::page(&status).into_string();
        assert!(page.contains("3 of 10 tests are through"), "{page}");
    }

    #[test]
    fn tests_done_before_a_restart_count_but_set_no_pace() {
        let board = Board::of("principal".into(), "f".into(), "secsv".into(), vec![], vec![]);
        board.phase(ProcessPhase::Running);
        board.asked(RoundId(1), Coalition::from_bits(1));
        board.was_done(RoundId(1), Coalition::from_bits(1));
        board.was_done(RoundId(1), Coalition::from_bits(2));
        let round = board.status().rounds.remove(0);
        assert_eq!((round.asked, round.done), (2, 2));
        assert_eq!(board.status().seconds_left, None);
    }
}

//! What one process has in common for all rounds: whether it was told to stop, the values so far, and its pages.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use secsv_federation::ClientId;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::super::{NodeOptions, hear_signals, serve_pages};
use crate::{
    Error,
    kit::Kit,
    status::{Board, LiveRound, LiveStatus, ProcessPhase, Status, StatusPages, StatusSource},
};

/// Something that has happened to a round, for whoever listens.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum LiveEvent {
    /// It has values.
    Round {
        /// Which.
        round: u32,
        /// Everybody's value in it.
        values: BTreeMap<ClientId, f64>,
        /// The sum over the rounds so far.
        totals: BTreeMap<ClientId, f64>,
        /// From the round's file to its values at this process.
        seconds: Option<f64>,
    },
    /// It will have none.
    Missed {
        /// Which.
        round: u32,
        /// Why.
        why: String,
    },
}

/// The board behind the pages.
pub(in super::super) struct LiveBoard {
    clients: Vec<ClientId>,
    state: Mutex<LiveState>,
}

struct LiveState {
    /// Of the round that is on, or of the last one.
    board: Arc<Board>,
    rounds: BTreeMap<u32, LiveRound>,
    waiting: Option<String>,
}

impl LiveBoard {
    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sums over the rounds so far, in their order: the order in which a whole run adds up.
    fn totals(&self, rounds: &BTreeMap<u32, LiveRound>) -> BTreeMap<ClientId, f64> {
        let of =
            |id: &ClientId| rounds.values().map(|round| round.values.get(id).copied().unwrap_or(0.0)).sum();
        self.clients.iter().map(|id| (id.clone(), of(id))).collect()
    }
}

impl StatusSource for LiveBoard {
    fn status(&self) -> Status {
        let state = self.state();
        let (rounds, waiting) = (state.rounds.values().cloned().collect(), state.waiting.clone());
        let live = LiveStatus { rounds, totals: self.totals(&state.rounds), waiting };
        let status = state.board.status();
        // A round that is over is no end of the process.
        let phase = match status.phase {
            _ if state.waiting.is_some() => ProcessPhase::Running,
            ProcessPhase::Finished | ProcessPhase::Failed => ProcessPhase::Running,
            phase => phase,
        };
        Status { live: Some(live), phase, ..status }
    }
}

/// What all rounds of a process have in common.
pub(in super::super) struct Live {
    stop: Arc<AtomicBool>,
    board: Arc<LiveBoard>,
    _pages: Option<StatusPages>,
    _runtime: Runtime,
}

impl Live {
    /// Hears signals from now on, and serves pages if they are wanted.
    pub(super) fn start(kit: &Kit, options: &NodeOptions) -> Result<Arc<Self>, Error> {
        let failed = |source| Error::System { what: "the pages' thread", source };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("pages")
            .enable_all()
            .build()
            .map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        hear_signals(&runtime, &stop);
        let board = Arc::new(Board::new(kit));
        let state = Mutex::new(LiveState { board, rounds: BTreeMap::new(), waiting: None });
        let clients = kit.federation.federation.ids().cloned().collect();
        let board = Arc::new(LiveBoard { clients, state });
        let pages = serve_pages(&runtime, options.status, board.clone())?;
        Ok(Arc::new(Self { stop, board, _pages: pages, _runtime: runtime }))
    }

    /// The word to stop.
    pub(in super::super) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Ends if it was told to.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Shows the board of the round that begins.
    pub(in super::super) fn show(&self, board: &Arc<Board>) {
        let mut state = self.board.state();
        (state.board, state.waiting) = (board.clone(), None);
    }

    /// Shows what is waited for between two rounds; says it once.
    pub(super) fn wait_for(&self, what: &str) {
        let mut state = self.board.state();
        if state.waiting.as_deref() != Some(what) {
            tracing::info!(what, "waiting");
            state.waiting = Some(what.to_owned());
        }
    }

    /// Notes a round that is over; the event that says so.
    pub(super) fn note(&self, round: LiveRound) -> LiveEvent {
        let mut state = self.board.state();
        state.rounds.insert(round.round, round.clone());
        let totals = self.board.totals(&state.rounds);
        match round {
            LiveRound { round, missed: Some(why), .. } => LiveEvent::Missed { round, why },
            LiveRound { round, values, seconds, .. } => LiveEvent::Round { round, values, totals, seconds },
        }
    }
}

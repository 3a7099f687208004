//! How far a run is, for operators: a board that the driver writes on, and pages that show it to people (`/`), Prometheus
//! (`/metrics`), programs (`/status.json`) and whoever restarts processes (`/healthz`). It holds ids, counts, sizes and times, and
//! where rounds are followed their values; nothing that a party keeps from others.

mod board;
mod live_page;
mod metrics;
mod page;
mod serve;

#[cfg(test)]
pub(crate) use board::tests::board;
pub use board::{Board, LiveRound, LiveStatus, PeerStatus, ProcessPhase, RoundStatus, Status, StatusSource};
pub use serve::{StatusPages, serve};

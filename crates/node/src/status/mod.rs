//! How far a run is, for operators: a board that the driver writes on, and pages that show it to people (`/`), Prometheus
//! (`/metrics`), programs (`/status.json`) and whoever restarts processes (`/healthz`). It holds ids, counts, sizes and times;
//! nothing that a party keeps from others.

mod board;
mod metrics;
mod page;
mod serve;

#[cfg(test)]
pub(crate) use board::tests::board;
pub use board::{Board, PeerStatus, ProcessPhase, RoundStatus, Status};
pub use serve::{StatusPages, serve};

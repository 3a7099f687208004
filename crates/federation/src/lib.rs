//! What a federation leaves behind: who took part in which round, their models and test sets.
//!
//! Receives a run directory (or the part of it one silo holds) and hands on checked models, test sets and
//! coalitions, and the floating-point answer that every secure protocol is measured against. It holds no
//! cryptography.

mod ids;

pub use ids::{ClientId, ClientIdError, Coalition, MAX_CLIENTS, RoundId};

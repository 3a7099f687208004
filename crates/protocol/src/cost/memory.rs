//! Memory of all parties in one process, roughly: what servers hold of the rounds and tests under way.

use std::sync::Arc;

use super::EngineCosts;
use crate::{
    round_memory::{largest_round_batch, open_rounds},
    session::Session,
};

/// A process before it holds anything, and what is on its way.
const BASE: usize = 64 << 20;

/// Bytes at the worst moment, estimated.
pub(super) fn estimate(session: &Arc<Session>, engine: &dyn EngineCosts) -> u64 {
    let samples = session.program().input_size * session.samples();
    // As read, as numbers, as elements, and a share at each server.
    let data = samples * (4 + 8 + 8 + 8 + 8);
    let rounds = open_rounds(session).min(session.round_batches.len()) * largest_round_batch(session);
    (BASE + data + rounds + engine.memory()) as u64
}

/// How often a label that is compared is held: its shares and their difference at both servers, at those who share it, and
/// on the way.
const COPIES: usize = 10;

/// Labels of models that are tested together.
pub(super) fn labels(session: &Arc<Session>, active: usize) -> usize {
    let coalitions = 1usize << session.federation.clients.min(32);
    let together = session.most_together().min(coalitions);
    let tests = active.min(open_rounds(session) * coalitions.div_ceil(together));
    let rounds = session.round_batches.values().map(Vec::len).max().unwrap_or(1);
    let packed = rounds * session.label_field().packed_len(session.samples());
    if together > 1 { tests * together * packed * COPIES } else { 0 }
}

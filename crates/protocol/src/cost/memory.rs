//! Memory of all parties in one process, roughly: what servers hold of the rounds and tests under way.

use secsv_he::linear::EncryptedBatch;

use crate::{
    decryptors::Protocol,
    round_memory::{first_batches, of_round_batch, open_rounds},
    secret::SharedModel,
    server::keeps_encoded_samples,
    session::Session,
};

/// A process before it holds anything, and what is on its way.
const BASE: usize = 64 << 20;
/// Bytes at the worst moment, estimated.
pub(super) fn estimate(session: &Session) -> u64 {
    let active = crate::principal::most_active(session);
    let samples = session.program().input_size * session.samples();
    // As read, as numbers, as elements, and a share at each server.
    let data = samples * (4 + 8 + 8 + 8 + 8);
    let round_batches = session.round_batches.keys().map(|round_batch| of_round_batch(session, *round_batch));
    let rounds = open_rounds(session).min(session.round_batches.len()) * round_batches.max().unwrap_or(0);
    let Some(encryption) = &session.encryption else {
        let model = SharedModel::size(session.program());
        return (BASE + data + rounds + active * 4 * 8 * model) as u64;
    };
    let (layouts, batches) = (&encryption.layouts, first_batches(session));
    if session.federation.settings.protocol == Protocol::Hesv {
        let uploaded = batches * EncryptedBatch::encoded_len(&layouts[0]) * 5 / 4;
        let tests =
            crate::principal::hesv::most_active(session) * crate::principal::hesv::bytes_of_test(session);
        return (BASE + data + 2 * uploaded + rounds + tests) as u64;
    }
    let later: usize = layouts.iter().skip(1).map(|layout| layout.prepared_bytes()).sum();
    let encoded = if keeps_encoded_samples(session) { 2 * batches * layouts[0].encoded_bytes() } else { 0 };
    (BASE + data + encoded + rounds + active * 2 * later + labels(session, active)) as u64
}

/// How often a label that is compared is held: its shares and their difference at both servers, at those who share it, and
/// on the way.
const COPIES: usize = 10;

/// Labels of models that are tested together.
fn labels(session: &Session, active: usize) -> usize {
    let coalitions = 1usize << session.federation.clients.min(32);
    let together = session.most_together().min(coalitions);
    let tests = active.min(open_rounds(session) * coalitions.div_ceil(together));
    let rounds = session.round_batches.values().map(Vec::len).max().unwrap_or(1);
    let packed = rounds * session.label_field().packed_len(session.samples());
    if together > 1 { tests * together * packed * COPIES } else { 0 }
}

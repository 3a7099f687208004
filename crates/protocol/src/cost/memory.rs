//! Memory of all parties in one process, roughly: what servers hold of the rounds and tests under way.

use secsv_federation::RoundId;
use secsv_he::linear::{EncryptedBatch, EncryptedMatrix};

use crate::{
    decryptors::Protocol,
    secret::{SharedModel, first_columns, stacked},
    server::keeps_encoded_samples,
    session::Session,
};

/// A process before it holds anything, and what is on its way.
const BASE: usize = 64 << 20;
/// What two round batches may take together.
const ROUNDS_MEMORY: usize = 4 << 30;

/// How many round batches' models and outputs are there together: two, so that one begins while the last tests of the one
/// before end, unless they are too large for that.
pub(crate) fn open_rounds(session: &Session) -> usize {
    let round_batches = session.round_batches.keys();
    let largest = round_batches.map(|round_batch| of_round_batch(session, *round_batch)).max().unwrap_or(0);
    if 2 * largest > ROUNDS_MEMORY { 1 } else { 2 }
}

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

/// Batches of the first layer.
fn first_batches(session: &Session) -> usize {
    let Some(encryption) = &session.encryption else { return 0 };
    let positions = session.program().operators[0].positions;
    session.chunks.iter().map(|chunk| encryption.layouts[0].batches(positions * chunk.places.len())).sum()
}

/// Models and first-layer outputs of one round batch.
fn of_round_batch(session: &Session, round: RoundId) -> usize {
    let models = session.federation.participants(round).len();
    let Some(encryption) = &session.encryption else {
        let columns = (0..session.federation.clients).map(|client| first_columns(session, client));
        let outputs = stacked(session, round) * columns.sum::<usize>();
        // Outputs at both servers, and once on their way.
        return 8 * (3 * outputs + 4 * models * SharedModel::size(session.program()));
    };
    let layouts = &encryption.layouts;
    let ciphertext = 2 * 8 * encryption.parameters.limbs().len() * encryption.parameters.degree();
    let outputs = models * first_batches(session) * layouts[0].rows() * ciphertext;
    if session.federation.settings.protocol == Protocol::Hesv {
        let model: usize = layouts.iter().map(EncryptedMatrix::encoded_len).sum();
        return outputs + models * model * 5 / 4;
    }
    let prepared: usize = layouts.iter().map(|layout| layout.prepared_bytes()).sum();
    // Models at both servers; the auxiliary's outputs arrive beside the principal's.
    2 * models * prepared + 2 * outputs
}

//! Memory of all parties in one process, roughly: what servers hold of the rounds and tests under way.

use secsv_he::linear::{EncryptedBatch, EncryptedMatrix};

use crate::{
    Error,
    decryptors::Protocol,
    secret::{SharedModel, first_columns, stacked},
    server::keeps_encoded_samples,
    session::Session,
};

/// Rounds whose models and outputs are there together: a round begins while the last tests of the one before end.
const OPEN_ROUNDS: usize = 2;
/// A process before it holds anything, and what is on its way.
const BASE: usize = 64 << 20;

/// Bytes at the worst moment, estimated; `active` tests run at once.
pub(super) fn estimate(session: &Session, active: usize) -> Result<u64, Error> {
    let samples = session.program().input_size * session.samples();
    // As read, as numbers, as elements, and a share at each server.
    let data = samples * (4 + 8 + 8 + 8 + 8);
    let most =
        session.federation.rounds.keys().max_by_key(|round| session.federation.participants(**round).len());
    let Some(&round) = most else { return Ok((BASE + data) as u64) };
    let models = session.federation.participants(round).len();
    let Some(encryption) = &session.encryption else {
        let outputs: usize = (0..session.federation.clients)
            .map(|c| stacked(session, round) * first_columns(session, c))
            .sum();
        let model = SharedModel::size(session.program());
        // Outputs at both servers, and once on their way.
        let of_round = 8 * (3 * outputs + 4 * models * model);
        return Ok((BASE + data + OPEN_ROUNDS * of_round + active * 4 * 8 * model) as u64);
    };
    let first = &encryption.layouts[0];
    let positions = session.program().operators[0].positions;
    let batches: usize =
        session.chunks.iter().map(|chunk| first.batches(positions * chunk.places.len())).sum();
    let ciphertext = 2 * 8 * encryption.parameters.limbs().len() * encryption.parameters.degree();
    let outputs = models * batches * first.rows() * ciphertext;
    let layouts = || encryption.layouts.iter();
    if session.federation.settings.protocol == Protocol::Hesv {
        let uploaded = batches * EncryptedBatch::encoded_len(first) * 5 / 4;
        let model: usize = layouts().map(EncryptedMatrix::encoded_len).sum();
        let mut kept = 0;
        for layout in layouts().skip(1) {
            kept += Some(layout.extended_bytes()?).filter(|&bytes| bytes <= crate::hesv::KEPT).unwrap_or(0);
        }
        let of_round = outputs + models * model * 5 / 4;
        return Ok((BASE + data + 2 * uploaded + OPEN_ROUNDS * of_round + active * kept) as u64);
    }
    let prepared: usize = layouts().map(|layout| layout.prepared_bytes()).sum();
    let later: usize = layouts().skip(1).map(|layout| layout.prepared_bytes()).sum();
    // Models at both servers; the auxiliary's outputs arrive beside the principal's.
    let of_round = 2 * models * prepared + 2 * outputs;
    let encoded = if keeps_encoded_samples(session) { 2 * batches * first.encoded_bytes() } else { 0 };
    Ok((BASE + data + encoded + OPEN_ROUNDS * of_round + active * 2 * later) as u64)
}

//! Memory of round batches: how many may be open at the same time.

use secsv_federation::RoundId;
use secsv_he::linear::EncryptedMatrix;

use crate::{
    decryptors::Protocol,
    secret::{SharedModel, first_columns, stacked},
    session::Session,
};

/// Bytes that two round batches may take together.
const ROUNDS_MEMORY: usize = 4 << 30;

/// Round batches whose models and outputs are held at the same time: two, so that one begins while the last tests of the one
/// before end, unless they are too large for that.
pub(crate) fn open_rounds(session: &Session) -> usize {
    let round_batches = session.round_batches.keys();
    let largest = round_batches.map(|round_batch| of_round_batch(session, *round_batch)).max().unwrap_or(0);
    if 2 * largest > ROUNDS_MEMORY { 1 } else { 2 }
}

/// Batches of the first layer.
pub(crate) fn first_batches(session: &Session) -> usize {
    let Some(encryption) = &session.encryption else { return 0 };
    let positions = session.program().operators[0].positions;
    session.chunks.iter().map(|chunk| encryption.layouts[0].batches(positions * chunk.places.len())).sum()
}

/// Models and first-layer outputs of one round batch.
pub(crate) fn of_round_batch(session: &Session, round: RoundId) -> usize {
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

//! Memory of round batches: how many may be open at the same time.

use std::sync::Arc;

use secsv_federation::RoundId;
use secsv_he::linear::EncryptedMatrix;

use crate::{
    blindsv::principal::round_memory,
    session::{Agreed, EncryptedSession, Session},
};

/// Bytes that two round batches may take together.
const ROUNDS_MEMORY: usize = 4 << 30;

/// Round batches whose models and outputs are held at the same time: two, so that one begins while the last tests of the one
/// before end, unless they are too large for that.
pub(crate) fn open_rounds(session: &Arc<Session>) -> usize {
    if 2 * largest_round_batch(session) > ROUNDS_MEMORY { 1 } else { 2 }
}

/// Bytes of the largest round batch.
pub(crate) fn largest_round_batch(session: &Arc<Session>) -> usize {
    let agreed = session.agreed();
    session.round_batches.keys().map(|&round| of_round_batch(&agreed, round)).max().unwrap_or(0)
}

/// Batches of the first layer.
pub(crate) fn first_batches(session: &EncryptedSession) -> usize {
    let positions = session.program().operators[0].positions;
    session.chunks.iter().map(|chunk| session.layout(0).batches(positions * chunk.places.len())).sum()
}

/// Models and first-layer outputs of one round batch.
fn of_round_batch(agreed: &Agreed, round: RoundId) -> usize {
    match agreed {
        Agreed::SecSv(session) => {
            let prepared: usize =
                session.encryption.layouts.iter().map(|layout| layout.prepared_bytes()).sum();
            let models = session.federation.participants(round).len();
            // Models at both servers; the auxiliary's outputs arrive beside the principal's.
            2 * models * prepared + 2 * first_outputs(session, round)
        }
        Agreed::SecretSv(session) => {
            let columns = (0..session.federation.clients).map(|client| session.first_columns(client));
            let outputs = session.stacked_rows(round) * columns.sum::<usize>();
            let models = session.federation.participants(round).len() * session.program().model_size();
            // Outputs at both servers, and once on their way.
            8 * (3 * outputs + 4 * models)
        }
        Agreed::BlindSv(session) => 2 * round_memory(session),
        Agreed::Hesv(session) => {
            let model: usize = session.encryption.layouts.iter().map(EncryptedMatrix::encoded_len).sum();
            let models = session.federation.participants(round).len();
            first_outputs(session, round) + models * model * 5 / 4
        }
    }
}

/// Bytes of all models' first-layer outputs.
fn first_outputs(session: &EncryptedSession, round: RoundId) -> usize {
    let ciphertext = 2 * 8 * session.parameters().limbs().len() * session.parameters().degree();
    let models = session.federation.participants(round).len();
    models * first_batches(session) * session.layout(0).rows() * ciphertext
}

//! Whether content is what its place takes, before anybody acts on it: exact lengths, reduced residues, nothing left over. Jobs
//! decode what passed here, so they find no fault of a peer's.

use secsv_he::{
    Ciphertext, EncryptedSlots, Reply,
    linear::{EncryptedBatch, EncryptedBias, EncryptedMatrix, Layout},
};

use crate::{error::CodecError, message::Parts, session::EncryptedSession, unit::slots_of};

fn exactly<'a>(parts: &'a Parts<'a>, count: usize, what: &'static str) -> Result<&'a [&'a [u8]], CodecError> {
    if parts.len() == count { Ok(&parts.0) } else { Err(CodecError::Value { what }) }
}

/// Checks an encrypted model: weights and biases, operator by operator.
pub(crate) fn model(session: &EncryptedSession, layers: &Parts<'_>) -> Result<(), CodecError> {
    let layouts = &session.encryption.layouts;
    let parts = exactly(layers, 2 * layouts.len(), "layers")?;
    for (layout, part) in layouts.iter().zip(parts.chunks_exact(2)) {
        EncryptedMatrix::check_bytes(layout, part[0])?;
        EncryptedBias::check_bytes(layout, part[1])?;
    }
    Ok(())
}

/// Checks the encrypted batches of so many columns.
pub(crate) fn batches(
    session: &EncryptedSession,
    operator: usize,
    columns: usize,
    parts: &[&[u8]],
) -> Result<(), CodecError> {
    let layout = session.layout(operator);
    if parts.len() != layout.batches(columns) {
        return Err(CodecError::Value { what: "number of batches" });
    }
    Ok(parts.iter().try_for_each(|part| EncryptedBatch::check_bytes(layout, part))?)
}

/// Checks what the client at a step encrypts again for so many samples.
pub(crate) fn upload(
    session: &EncryptedSession,
    step: usize,
    samples: usize,
    parts: &Parts<'_>,
) -> Result<(), CodecError> {
    let parts = &parts.0;
    let (vectors, elements) = slots_of(session, step, samples);
    let Some(first) = parts.len().checked_sub(vectors) else {
        return Err(CodecError::Value { what: "number of vectors" });
    };
    match session.program().steps[step].feeds() {
        Some(operator) => {
            let columns = session.program().operators[operator].positions * samples;
            batches(session, operator, columns, &parts[..first])?;
        }
        None if first == 0 => {}
        None => return Err(CodecError::Value { what: "number of batches" }),
    }
    parts[first..].iter().try_for_each(|part| slots(session, elements, part))
}

/// Checks a vector in slots.
pub(crate) fn slots(session: &EncryptedSession, elements: usize, bytes: &[u8]) -> Result<(), CodecError> {
    Ok(EncryptedSlots::check_bytes(session.parameters(), elements, bytes)?)
}

/// Checks so many ciphertexts.
pub(crate) fn ciphertexts(
    session: &EncryptedSession,
    count: usize,
    parts: &Parts<'_>,
) -> Result<(), CodecError> {
    let parameters = session.parameters();
    let parts = exactly(parts, count, "number of ciphertexts")?;
    Ok(parts.iter().try_for_each(|part| Ciphertext::check_bytes(parameters, part))?)
}

/// Checks replies with the wanted ones of so many columns of an operator's outputs.
pub(crate) fn replies(
    session: &EncryptedSession,
    operator: usize,
    columns: usize,
    wants: impl Fn(usize) -> bool,
    replies: &Parts<'_>,
) -> Result<(), CodecError> {
    let (parameters, layout) = (session.parameters(), session.layout(operator));
    let batches = wanted_batches(layout, columns, &wants);
    let parts = exactly(replies, batches.len() * layout.rows(), "number of replies")?;
    for (i, part) in parts.iter().enumerate() {
        let (row, batch) = (i % layout.rows(), batches[i / layout.rows()]);
        Reply::check_bytes(parameters, carried(layout, columns, &wants, row, batch), part)?;
    }
    Ok(())
}

/// How many coefficients of its first part a reply carries.
pub(crate) fn carried(
    layout: &Layout,
    columns: usize,
    wants: impl Fn(usize) -> bool,
    row: usize,
    batch: usize,
) -> usize {
    let wanted = wanted_of(layout, columns, batch, wants);
    layout.carried(row, (0..layout.batch()).filter(|&column| wanted(column)).count())
}

/// Checks replies with so many elements in slots.
pub(crate) fn slot_replies(
    session: &EncryptedSession,
    elements: usize,
    replies: &Parts<'_>,
) -> Result<(), CodecError> {
    let parameters = session.parameters();
    let degree = parameters.degree();
    let parts = exactly(replies, elements.div_ceil(degree), "number of replies")?;
    Ok(parts.iter().try_for_each(|part| Reply::check_bytes(parameters, degree, part))?)
}

/// The batches of so many columns that hold a wanted one.
pub(crate) fn wanted_batches(layout: &Layout, columns: usize, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let batch = layout.batch();
    (0..layout.batches(columns)).filter(|b| (b * batch..columns.min((b + 1) * batch)).any(&wanted)).collect()
}

/// Whether a column of a batch is wanted, counted within the batch.
pub(crate) fn wanted_of(
    layout: &Layout,
    columns: usize,
    batch: usize,
    wanted: impl Fn(usize) -> bool,
) -> impl Fn(usize) -> bool {
    let start = batch * layout.batch();
    move |column| start + column < columns && wanted(start + column)
}

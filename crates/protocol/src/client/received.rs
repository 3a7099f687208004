//! What a step receives, decrypted or put together from two shares.

use std::collections::BTreeMap;

use secsv_algebra::{Field, Matrix, Ring64, Secret};
use secsv_he::{Reply, SecretKey};

use super::hesv;
use crate::{
    Error, PartyId, check,
    codec::unpack_matrix,
    error::CodecError,
    hesv::is_hesv,
    message::{Kind, split},
    program::{Input, Receive},
    role::{Meter, Phase},
    server::{Selection, UnitContext, wanted_batches, wanted_of},
    session::Session,
};

/// Marks a share from the auxiliary among a step's parts.
pub(super) const FROM_AUXILIARY: usize = usize::MAX;

/// Which parts a step is made of.
pub(super) fn expected_parts(session: &Session, context: &UnitContext, step: usize) -> Vec<(usize, usize)> {
    let receives = session.program().steps[step].receives.iter().enumerate();
    receives
        .flat_map(|(item, receive)| match receive {
            _ if session.encryption.is_none() => vec![(item, 0), (item, FROM_AUXILIARY)],
            Receive::Outputs { input: Input::Data, .. } => {
                let sent = &context.combinations(session).sent;
                let parts = |(k, &number): (usize, &usize)| {
                    let chunks = context.layer_batch.wanted_chunks(&context.selections[number].samples);
                    chunks.map(move |chunk| (item * sent.len() + k, chunk)).collect::<Vec<_>>()
                };
                sent.iter().enumerate().flat_map(parts).collect()
            }
            Receive::Outputs { .. } | Receive::Bias { .. } => vec![(item, 0)],
            Receive::Update { .. } if is_hesv(session) => vec![(item, 0)],
            Receive::Update { .. } => vec![(item, 0), (item, FROM_AUXILIARY)],
        })
        .collect()
}

/// Checks a part of what a step receives: replies, or one server's share of outputs.
pub(super) fn check_part(
    session: &Session,
    context: &UnitContext,
    step: usize,
    (item, part): (usize, usize),
    bytes: &[u8],
) -> Result<(), CodecError> {
    if !expected_parts(session, context, step).contains(&(item, part)) {
        return Err(CodecError::Value { what: "item or chunk" });
    }
    let program = session.program();
    let samples = context.places().len();
    let sent = &context.combinations(session).sent;
    let together = if session.encryption.is_some() { sent.len().max(1) } else { 1 };
    let receive = program.steps[step].receives.get(item / together);
    let receive = receive.ok_or(CodecError::Value { what: "item" })?;
    let hidden = program.gru.map_or(0, |gru| gru.hidden);
    let elements = |operator: Option<usize>, columns: usize| {
        let rows = operator.map_or(hidden, |operator| program.operators[operator].shape.d_out);
        rows.checked_mul(columns)
    };
    match *receive {
        Receive::Outputs { operator, count, .. } if session.encryption.is_none() => {
            check::elements(Ring64, elements(Some(operator), count * samples), bytes)
        }
        Receive::Bias { operator } if session.encryption.is_none() => {
            check::elements(Ring64, elements(Some(operator), samples), bytes)
        }
        Receive::Update { .. } if session.encryption.is_none() => {
            check::elements(Ring64, elements(None, samples), bytes)
        }
        Receive::Outputs { operator, input: Input::Data, first, count } => {
            let selection = &context.selections[sent[item % together]];
            let columns = program.operators[operator].positions * context.layer_batch.length(part);
            let wants = context.layer_batch.wants(&selection.samples, part, (first, count));
            check::replies(session, operator, columns, wants, bytes)
        }
        Receive::Outputs { operator, count, .. } => {
            check::replies(session, operator, count * samples, |_| true, bytes)
        }
        Receive::Bias { operator } => check::replies(session, operator, samples, |_| true, bytes),
        Receive::Update { .. } if is_hesv(session) => check::slot_replies(session, hidden * samples, bytes),
        Receive::Update { .. } => check::elements(session.field(), elements(None, samples), bytes),
    }
}

/// Matrices that are wiped.
pub(super) struct Matrices(pub(super) Vec<Matrix<Field>>);

impl zeroize::Zeroize for Matrices {
    fn zeroize(&mut self) {
        self.0.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
}

/// Decrypts what a unit receives at its only step, where models are tested together: outputs that those of every coalition follow from.
pub(super) fn receive_together(
    session: &Session,
    context: &UnitContext,
    key: &SecretKey,
    parts: &BTreeMap<(usize, usize), Vec<u8>>,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices>, Error> {
    let [decryption] = &session.program().steps[..] else {
        return Err(Error::Local { what: "a single step" });
    };
    let [Receive::Outputs { operator, first, count, .. }] = decryption.receives[..] else {
        return Err(Error::Local { what: "a single layer" });
    };
    let combinations = context.combinations(session);
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, &number) in combinations.sent.iter().enumerate() {
        let selection = &context.selections[number];
        let part = |chunk| parts.get(&(item, chunk)).map(Vec::as_slice);
        let outputs = first_outputs(session, context, operator, (first, count), selection, part, key, meter)?;
        received.expose_mut().0.push(outputs);
    }
    Ok(received)
}

/// First-layer outputs on some samples, column by column of a position after the other.
#[expect(clippy::too_many_arguments, reason = "which outputs, of which samples, and how to read them")]
fn first_outputs<'a>(
    session: &Session,
    context: &UnitContext,
    operator: usize,
    (first, positions): (usize, usize),
    selection: &Selection,
    part: impl Fn(usize) -> Option<&'a [u8]>,
    key: &SecretKey,
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let rows = session.encryption()?.layouts[operator].shape().d_out;
    let count = selection.places.len();
    let mut matrix = Matrix::zero(session.field(), rows, positions * count);
    for chunk in context.layer_batch.wanted_chunks(&selection.samples) {
        let bytes = part(chunk).ok_or(Error::Local { what: "a part of a step" })?;
        let length = context.layer_batch.length(chunk);
        let columns = session.program().operators[operator].positions * length;
        let wants = context.layer_batch.wants(&selection.samples, chunk, (first, positions));
        let outputs = Secret::new(decrypt(session, operator, columns, wants, key, bytes, meter)?);
        // Both ascend.
        let mut wanted = selection.places.iter().enumerate().peekable();
        for (k, place) in context.layer_batch.places(chunk).enumerate() {
            while wanted.next_if(|(_, wanted)| **wanted < place).is_some() {}
            let Some((column, _)) = wanted.next_if(|(_, wanted)| **wanted == place) else {
                continue;
            };
            for (position, row) in (0..positions).flat_map(|p| (0..rows).map(move |r| (p, r))) {
                let source = (first + position) * length + k;
                matrix.set(row, position * count + column, outputs.expose().at(row, source));
            }
        }
    }
    Ok(matrix)
}

/// Decrypts or reconstructs everything a step receives.
pub(super) fn receive(
    session: &Session,
    context: &UnitContext,
    step: usize,
    key: &SecretKey,
    parts: &BTreeMap<(usize, usize), Vec<u8>>,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices>, Error> {
    let field = session.field();
    let count = context.places().len();
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, receive) in session.program().steps[step].receives.iter().enumerate() {
        let part = |chunk: usize| parts.get(&(item, chunk)).ok_or(Error::Local { what: "a part of a step" });
        let matrix = match *receive {
            Receive::Outputs { operator, input: Input::Data, first, count: positions } => {
                let selection = &context.selections[0];
                let part = |chunk| parts.get(&(item, chunk)).map(Vec::as_slice);
                first_outputs(session, context, operator, (first, positions), selection, part, key, meter)?
            }
            Receive::Outputs { operator, count: positions, .. } => {
                decrypt(session, operator, positions * count, |_| true, key, part(0)?, meter)?
            }
            Receive::Bias { operator } => decrypt(session, operator, count, |_| true, key, part(0)?, meter)?,
            Receive::Update { .. } if is_hesv(session) => {
                hesv::opened_sum(session, context, key, part(0)?, meter)?
            }
            Receive::Update { .. } => {
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let open = |from, bytes: &[u8]| {
                    unpack_matrix(field, hidden, count, bytes).map_err(|why| Error::Malformed {
                        from,
                        kind: Kind::OutputShare,
                        why,
                    })
                };
                let own = open(PartyId::Principal, part(0)?)?;
                own.add(&open(PartyId::Auxiliary, part(FROM_AUXILIARY)?)?)?
            }
        };
        received.expose_mut().0.push(matrix);
    }
    Ok(received)
}

/// Decrypts the batches that hold wanted columns.
fn decrypt(
    session: &Session,
    operator: usize,
    columns: usize,
    wants: impl Fn(usize) -> bool,
    key: &SecretKey,
    bytes: &[u8],
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let malformed = |why| Error::Malformed { from: PartyId::Principal, kind: Kind::Reply, why };
    let encryption = session.encryption()?;
    let layout = &encryption.layouts[operator];
    let batches = wanted_batches(layout, columns, &wants);
    let replies = split(bytes).map_err(malformed)?;
    if replies.len() != batches.len() * layout.rows() {
        return Err(malformed(CodecError::Value { what: "number of replies" }));
    }
    let mut product = Matrix::zero(session.field(), layout.shape().d_out, columns);
    for (i, bytes) in replies.iter().enumerate() {
        let (row, batch) = (i % layout.rows(), batches[i / layout.rows()]);
        let wanted = wanted_of(layout, columns, batch, &wants);
        let carried = check::carried(layout, columns, &wants, row, batch);
        meter.enter(Phase::Codec);
        let reply = Reply::from_bytes(&encryption.parameters, carried, bytes);
        let reply = reply.map_err(|e| malformed(e.into()))?;
        meter.enter(Phase::Decrypt);
        let planned = layout.planned(row, &wanted)?;
        let elements = key.decrypt_reply(layout.packing(), &planned, &reply, &mut meter.operations)?;
        layout.read(row, batch, elements.expose(), &mut product)?;
    }
    Ok(product)
}

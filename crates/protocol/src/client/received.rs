//! What a step receives, decrypted or put together from two shares.

use std::collections::BTreeMap;

use secsv_algebra::{Field, Matrix, Ring64, Secret};
use secsv_he::{Reply, SecretKey};

use super::hesv;
use crate::{
    Error, PartyId, check,
    codec::unpack_matrix,
    combinations::Selection,
    error::CodecError,
    hesv::is_hesv,
    message::{self, Kind, Message as _, OutputReply, OutputShare, Server},
    program::{Input, Receive},
    role::{Meter, Phase},
    server::{UnitContext, wanted_batches, wanted_of},
    session::Session,
};

/// Where a part of what a step receives comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Replies about a chunk, from the principal.
    Chunk(usize),
    /// A share of a server.
    Share(Server),
}

/// A part of what a step receives: the item, and where it comes from.
pub(super) type PartId = (usize, Source);

/// The messages with the parts of a step that have come.
pub(super) type ReceivedParts = BTreeMap<PartId, Vec<u8>>;

/// Which parts a step is made of.
pub(super) fn expected_parts(session: &Session, context: &UnitContext, step: usize) -> Vec<PartId> {
    let only = Source::Chunk(0);
    let shares = |item| [Server::Principal, Server::Auxiliary].map(|server| (item, Source::Share(server)));
    let receives = session.program().steps[step].receives.iter().enumerate();
    receives
        .flat_map(|(item, receive)| match receive {
            _ if session.encryption.is_none() => shares(item).to_vec(),
            Receive::Outputs { input: Input::Data, .. } => {
                let sent = &context.combinations(session).sent;
                let parts = |(k, &number): (usize, &usize)| {
                    let chunks = context.layer_batch.wanted_chunks(&context.selections[number].samples);
                    chunks.map(move |chunk| (item * sent.len() + k, Source::Chunk(chunk))).collect::<Vec<_>>()
                };
                sent.iter().enumerate().flat_map(parts).collect()
            }
            Receive::Outputs { .. } | Receive::Bias { .. } => vec![(item, only)],
            Receive::Update { .. } if is_hesv(session) => vec![(item, only)],
            Receive::Update { .. } => shares(item).to_vec(),
        })
        .collect()
}

/// Checks a part of what a step receives: replies, or one server's share of outputs.
pub(super) fn check_part(
    session: &Session,
    context: &UnitContext,
    step: usize,
    (item, source): PartId,
    content: &[u8],
) -> Result<(), CodecError> {
    if !expected_parts(session, context, step).contains(&(item, source)) {
        return Err(CodecError::Value { what: "item or chunk" });
    }
    let program = session.program();
    let samples = context.places().len();
    let sent = &context.combinations(session).sent;
    let together = if session.encryption.is_some() { sent.len().max(1) } else { 1 };
    let receive = program.steps[step].receives.get(item / together);
    let receive = receive.ok_or(CodecError::Value { what: "item" })?;
    let hidden = program.gru.map_or(0, |gru| gru.hidden);
    let chunk = match source {
        Source::Chunk(chunk) => chunk,
        Source::Share(_) => {
            let OutputShare { elements, .. } = OutputShare::decode(content, &())?;
            let (rows, columns) = match *receive {
                Receive::Outputs { operator, count, .. } => (program.operators[operator].shape.d_out, count),
                Receive::Bias { operator } => (program.operators[operator].shape.d_out, 1),
                Receive::Update { .. } => (hidden, 1),
            };
            let count = rows.checked_mul(columns * samples);
            return match session.encryption {
                None => crate::codec::check_elements(Ring64, count, elements),
                Some(_) => crate::codec::check_elements(session.field(), count, elements),
            };
        }
    };
    let OutputReply { replies, .. } = OutputReply::decode(content, &())?;
    match *receive {
        Receive::Outputs { operator, input: Input::Data, first, count } => {
            let selection = &context.selections[sent[item % together]];
            let columns = program.operators[operator].positions * context.layer_batch.length(chunk);
            let wants = context.layer_batch.wants(&selection.samples, chunk, (first, count));
            check::replies(session, operator, columns, wants, &replies)
        }
        Receive::Outputs { operator, count, .. } => {
            check::replies(session, operator, count * samples, |_| true, &replies)
        }
        Receive::Bias { operator } => check::replies(session, operator, samples, |_| true, &replies),
        Receive::Update { .. } => check::slot_replies(session, hidden * samples, &replies),
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
    parts: &ReceivedParts,
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
        let part = |chunk| parts.get(&(item, Source::Chunk(chunk))).map(Vec::as_slice);
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
    parts: &ReceivedParts,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices>, Error> {
    let field = session.field();
    let count = context.places().len();
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, receive) in session.program().steps[step].receives.iter().enumerate() {
        let part = |source| parts.get(&(item, source)).ok_or(Error::Local { what: "a part of a step" });
        let only = Source::Chunk(0);
        let matrix = match *receive {
            Receive::Outputs { operator, input: Input::Data, first, count: positions } => {
                let selection = &context.selections[0];
                let part = |chunk| parts.get(&(item, Source::Chunk(chunk))).map(Vec::as_slice);
                first_outputs(session, context, operator, (first, positions), selection, part, key, meter)?
            }
            Receive::Outputs { operator, count: positions, .. } => {
                decrypt(session, operator, positions * count, |_| true, key, part(only)?, meter)?
            }
            Receive::Bias { operator } => {
                decrypt(session, operator, count, |_| true, key, part(only)?, meter)?
            }
            Receive::Update { .. } if is_hesv(session) => {
                let malformed = |why| Error::Malformed { from: PartyId::Principal, kind: Kind::Reply, why };
                let reply = OutputReply::decode(part(only)?, &()).map_err(malformed)?;
                hesv::opened_sum(session, context, key, &reply, meter)?
            }
            Receive::Update { .. } => {
                let hidden = session.program().gru.map_or(0, |gru| gru.hidden);
                let open = |server: Server| {
                    let (from, kind) = (server.party(), Kind::OutputShare);
                    let malformed = |why| Error::Malformed { from, kind, why };
                    let bytes = part(Source::Share(server))?;
                    let OutputShare { elements, .. } = OutputShare::decode(bytes, &()).map_err(malformed)?;
                    unpack_matrix(field, hidden, count, elements).map_err(malformed)
                };
                open(Server::Principal)?.add(&open(Server::Auxiliary)?)?
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
    let OutputReply { replies: message::Parts(replies), .. } =
        OutputReply::decode(bytes, &()).map_err(malformed)?;
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

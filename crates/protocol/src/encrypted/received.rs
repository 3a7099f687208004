//! What a step receives in replies: which parts, whether they are what they should be, and their decryption.

use secsv_algebra::{Field, Matrix, Secret};
use secsv_he::{Reply, SecretKey};

use crate::{
    Error, PartyId,
    check::{self, wanted_batches, wanted_of},
    combinations::Selection,
    disclosure::Disclosure,
    error::CodecError,
    message::{Kind, Message as _, OutputReply, Parts},
    opening::Opening,
    participant::{Matrices, PartId, ReceivedParts, Source, part_of},
    program::{Input, Receive},
    role::{Meter, Phase},
    session::EncryptedSession,
    unit::UnitContext,
};

/// Which parts a step is made of. `sums` are the parts of a gated sum.
pub(crate) fn expected_parts(
    session: &EncryptedSession,
    context: &UnitContext,
    step: usize,
    sums: impl Fn(usize) -> Vec<PartId>,
) -> Vec<PartId> {
    let sent = &context.combinations(session).sent;
    let receives = session.program().steps[step].receives.iter().enumerate();
    receives
        .flat_map(|(item, receive)| match receive {
            Receive::Outputs { input: Input::Data, .. } => {
                let parts = |(k, &number): (usize, &usize)| {
                    let chunks = context.layer_batch.wanted_chunks(&context.selections[number].samples);
                    chunks.map(move |chunk| (item * sent.len() + k, Source::Chunk(chunk))).collect::<Vec<_>>()
                };
                sent.iter().enumerate().flat_map(parts).collect()
            }
            Receive::Outputs { .. } | Receive::Bias { .. } => vec![(item, Source::Chunk(0))],
            Receive::Update { .. } => sums(item),
            // Programs of protocols that encrypt have none.
            Receive::Vector { .. } | Receive::Sum { .. } => Vec::new(),
        })
        .collect()
}

/// Checks replies about a chunk: outputs of a layer, or a gated sum in slots.
pub(crate) fn check_reply(
    session: &EncryptedSession,
    context: &UnitContext,
    step: usize,
    (item, chunk): (usize, usize),
    content: &[u8],
) -> Result<(), CodecError> {
    let (program, samples) = (session.program(), context.places().len());
    let sent = &context.combinations(session).sent;
    let together = sent.len().max(1);
    let receive = program.steps[step].receives.get(item / together);
    let receive = receive.ok_or(CodecError::Value { what: "item" })?;
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
        Receive::Update { .. } => check::slot_replies(session, program.hidden() * samples, &replies),
        Receive::Vector { .. } | Receive::Sum { .. } => Err(CodecError::Value { what: "item" }),
    }
}

/// Decrypts everything a step receives but for gated sums, which `sum` opens.
pub(crate) fn receive(
    session: &EncryptedSession,
    context: &UnitContext,
    step: usize,
    key: &SecretKey,
    parts: &ReceivedParts,
    sum: impl Fn(Opening, usize, &mut Meter<'_>) -> Result<Matrix<Field>, Error>,
    meter: &mut Meter<'_>,
) -> Result<Secret<Matrices<Field>>, Error> {
    let count = context.places().len();
    let mut received = Secret::new(Matrices(Vec::new()));
    for (item, receive) in session.program().steps[step].receives.iter().enumerate() {
        let opening = session.opening(Disclosure::of_receive(&session.program().steps[step], receive))?;
        let only = || part_of(parts, (item, Source::Chunk(0)));
        let matrix = match *receive {
            Receive::Outputs { operator, input: Input::Data, first, count: positions } => {
                let (selection, outputs) = (&context.selections[0], (operator, (first, positions)));
                first_outputs(&opening, session, context, outputs, (item, selection), parts, key, meter)?
            }
            Receive::Outputs { operator, count: positions, .. } => {
                decrypt(&opening, session, operator, positions * count, |_| true, key, only()?, meter)?
            }
            Receive::Bias { operator } => {
                decrypt(&opening, session, operator, count, |_| true, key, only()?, meter)?
            }
            Receive::Update { .. } => sum(opening, item, meter)?,
            Receive::Vector { .. } | Receive::Sum { .. } => {
                return Err(Error::Local { what: "replies with a vector or a sum" });
            }
        };
        received.expose_mut().0.push(matrix);
    }
    Ok(received)
}

/// First-layer outputs on some samples, column by column of a position after the other: an operator's, at `positions` from `first`.
#[expect(clippy::too_many_arguments, reason = "which outputs, of which samples, and how to read them")]
pub(crate) fn first_outputs(
    opening: &Opening,
    session: &EncryptedSession,
    context: &UnitContext,
    (operator, (first, positions)): (usize, (usize, usize)),
    (item, selection): (usize, &Selection),
    parts: &ReceivedParts,
    key: &SecretKey,
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let rows = session.layout(operator).shape().d_out;
    let count = selection.places.len();
    let mut matrix = Matrix::zero(session.field(), rows, positions * count);
    for chunk in context.layer_batch.wanted_chunks(&selection.samples) {
        let bytes = part_of(parts, (item, Source::Chunk(chunk)))?;
        let length = context.layer_batch.length(chunk);
        let columns = session.program().operators[operator].positions * length;
        let wants = context.layer_batch.wants(&selection.samples, chunk, (first, positions));
        let outputs = Secret::new(decrypt(opening, session, operator, columns, wants, key, bytes, meter)?);
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

/// Decrypts the batches that hold wanted columns.
#[expect(clippy::too_many_arguments, reason = "which outputs, of which samples, and how to read them")]
fn decrypt(
    opening: &Opening,
    session: &EncryptedSession,
    operator: usize,
    columns: usize,
    wants: impl Fn(usize) -> bool,
    key: &SecretKey,
    bytes: &[u8],
    meter: &mut Meter<'_>,
) -> Result<Matrix<Field>, Error> {
    let malformed = |why| Error::Malformed { from: PartyId::Principal, kind: Kind::Reply, why };
    let layout = session.layout(operator);
    let batches = wanted_batches(layout, columns, &wants);
    let OutputReply { replies: Parts(replies), .. } = OutputReply::decode(bytes, &()).map_err(malformed)?;
    if replies.len() != batches.len() * layout.rows() {
        return Err(malformed(CodecError::Value { what: "number of replies" }));
    }
    let mut product = Matrix::zero(session.field(), layout.shape().d_out, columns);
    for (i, bytes) in replies.iter().enumerate() {
        let (row, batch) = (i % layout.rows(), batches[i / layout.rows()]);
        let wanted = wanted_of(layout, columns, batch, &wants);
        let carried = check::carried(layout, columns, &wants, row, batch);
        meter.enter(Phase::Codec);
        let reply = Reply::from_bytes(session.parameters(), carried, bytes);
        let reply = reply.map_err(|e| malformed(e.into()))?;
        meter.enter(Phase::Decrypt);
        let planned = layout.planned(row, &wanted)?;
        let elements = opening.reply(key, layout.packing(), &planned, &reply, &mut meter.operations)?;
        layout.read(row, batch, elements.expose(), &mut product)?;
    }
    Ok(product)
}

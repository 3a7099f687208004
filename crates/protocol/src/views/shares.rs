//! Shares as a server gets them: the principal seeds, the auxiliary what is left.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Prg, Ring, SeedShare, Share};

use super::{Entry, Opened, SeenMessage, by_owner, time_step_of};
use crate::{
    Error,
    codec::{packed_len, unpack_matrix},
    disclosure::Disclosure,
    error::CodecError,
    labels::{self, Packed},
    message::{
        ActivationShare, LabelBody, MaskedFactors, Message as _, Server, ShareBody, TripleShare, UnitId,
    },
    program::Then,
    session::Session,
    unit::{UnitContext, updates_of},
};

/// A server's share of so many numbers.
pub(super) fn server_share<R: Ring>(
    ring: R,
    (rows, columns): (usize, usize),
    share: ShareBody<'_>,
) -> Result<Share<R>, CodecError> {
    match share {
        ShareBody::Seed(seed) => Ok(SeedShare::new(ring, rows, columns, seed).expand()),
        ShareBody::Elements(elements) => Ok(Share::new(unpack_matrix(ring, rows, columns, elements)?)),
    }
}

/// A server's share of labels.
pub(super) fn server_share_of_labels(length: usize, share: &LabelBody<'_>) -> Result<Packed, CodecError> {
    match share {
        LabelBody::Seed(seed) => Ok(labels::expand(seed, length)),
        LabelBody::Committed { labels, .. } => labels::received(length, labels),
    }
}

/// What a client shared at a step: numbers and, where it deals for the operator that takes them, its share of their product.
pub(super) fn shared<R: Ring>(
    session: &Session,
    ring: R,
    server: Server,
    contexts: &BTreeMap<UnitId, UnitContext>,
    (number, message): (usize, &SeenMessage),
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let ActivationShare { address, share } =
        ActivationShare::decode(message.content(), &server).map_err(malformed)?;
    let Some(context) = contexts.get(&address.unit) else { return Ok(Vec::new()) };
    let program = session.program();
    let (rows, samples) = (program.shared_size(address.step), context.places().len());
    // In SecretSV the auxiliary gets its shares of products behind that of the numbers.
    let fed = if ring.modulus() == 0 { program.fed(address.step) } else { Vec::new() };
    let (share, mut rest) = match share {
        ShareBody::Elements(elements) if !fed.is_empty() => {
            let (numbers, rest) = elements.split_at(packed_len(ring, rows * samples).min(elements.len()));
            (ShareBody::Elements(numbers), Some(rest))
        }
        share => (share, None),
    };
    let share = server_share(ring, (rows, samples), share).map_err(malformed)?;
    let entry = at_step(session, context, message, number, address.step, "share");
    let mut arrays = scaled(session, context, address.step, share.expose(), &entry)?;
    for (operator, _) in fed {
        let Some(bytes) = rest else { break };
        let map = &program.operators[operator];
        let shape = (map.shape.d_out, map.positions * samples);
        let (product, later) = bytes.split_at(packed_len(ring, shape.0 * shape.1).min(bytes.len()));
        rest = Some(later);
        let share = server_share(ring, shape, ShareBody::Elements(product)).map_err(malformed)?;
        let mut entry = Entry { what: "share of a dealt product", ..entry.clone() };
        entry.about.operator = Some(operator);
        arrays.extend(by_owner(session, context, 0, share.expose(), &entry));
    }
    Ok(arrays)
}

fn at_step(
    session: &Session,
    context: &UnitContext,
    message: &SeenMessage,
    number: usize,
    step: usize,
    what: &'static str,
) -> Entry {
    let entry = Entry::new(message.kind, what, Some(message.from), vec![number]);
    let mut entry = entry.of_model(context, 0, context.round);
    entry.about.step = Some(step);
    entry.about.time_step = time_step_of(session.program(), step);
    entry.about.operator = session.program().steps[step].feeds();
    entry
}

/// What goes on from a step: activations or states, or the gates z and u, each with its scale.
pub(crate) fn scaled<R: Ring>(
    session: &Session,
    context: &UnitContext,
    step: usize,
    matrix: &Matrix<R>,
    entry: &Entry,
) -> Result<Vec<Opened>, Error> {
    let precision = &session.precision;
    let decryption = &session.program().steps[step];
    let scale = |bits: u32| Some(f64::powi(0.5, bits as i32));
    if let Then::Gates { .. } = decryption.then {
        let half = matrix.rows() / 2;
        let mut arrays = Vec::new();
        for (item, format) in [precision.gate, precision.update].into_iter().enumerate() {
            let rows = matrix.row_range(item * half..(item + 1) * half);
            let mut entry = Entry { scale: scale(format.fractional_bits()), ..entry.clone() };
            entry.about.item = Some(item);
            if entry.what == "gates" {
                entry.what = ["gate z", "gate u"][item];
            }
            arrays.extend(by_owner(session, context, 0, &rows, &entry));
        }
        return Ok(arrays);
    }
    if let Then::Parts(parts) = &decryption.then {
        let mut arrays = Vec::new();
        for (item, part) in parts.iter().enumerate() {
            let format =
                part.operator.map_or(precision.sum(), |operator| precision.operators[operator].input);
            let mut entry = Entry { scale: scale(format.fractional_bits()), ..entry.clone() };
            (entry.about.item, entry.about.operator) = (Some(item), part.operator);
            let rows = matrix.row_range(decryption.rows_of(item));
            arrays.extend(by_owner(session, context, 0, &rows, &entry));
        }
        return Ok(arrays);
    }
    let bits = decryption.feeds().map_or(0, |operator| precision.operators[operator].input.fractional_bits());
    let entry = Entry { scale: scale(bits), ..entry.clone() };
    Ok(by_owner(session, context, 0, matrix, &entry))
}

/// A share of a multiplication triple.
pub(super) fn triple<R: Ring>(
    session: &Session,
    ring: R,
    server: Server,
    contexts: &BTreeMap<UnitId, UnitContext>,
    (number, message): (usize, &SeenMessage),
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let TripleShare { address, seed, product } =
        TripleShare::decode(message.content(), &server).map_err(malformed)?;
    let Some(context) = contexts.get(&address.unit) else { return Ok(Vec::new()) };
    let (rows, columns) = (session.program().hidden(), context.places().len());
    let mut prg = Prg::new(&seed);
    let mut draw = || Share::new(Matrix::uniform(ring, rows, columns, &mut prg));
    let (a, b) = (draw(), draw());
    let c = match product {
        None => draw(),
        Some(product) => Share::new(unpack_matrix(ring, rows, columns, product).map_err(malformed)?),
    };
    let mut arrays = Vec::new();
    for (item, share) in [a, b, c].iter().enumerate() {
        let mut entry = at_step(session, context, message, number, address.step, "share");
        entry.about.item = Some(item);
        entry.about.operator = None;
        arrays.extend(by_owner(session, context, 0, share.expose(), &entry));
    }
    Ok(arrays)
}

/// Masked factors of a gated sum: the other server's share, and the sum with the own.
pub(super) fn gated_factors<R: Ring>(
    session: &Session,
    ring: R,
    contexts: &BTreeMap<UnitId, UnitContext>,
    (number, message): (usize, &SeenMessage),
    own: Option<&[u8]>,
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let read = |content| MaskedFactors::decode(content, &()).map_err(malformed);
    let MaskedFactors { address, elements } = read(message.content())?;
    let Some(context) = contexts.get(&address.unit) else { return Ok(Vec::new()) };
    if !updates_of(session).any(|sum| sum.step == address.step) {
        return Err(malformed(CodecError::Value { what: "step" }));
    }
    let (rows, columns) = (session.program().gru.map_or(0, |gru| 2 * gru.hidden), context.places().len());
    let other = unpack_matrix(ring, rows, columns, elements).map_err(malformed)?;
    let mut entry = at_step(session, context, message, number, address.step, "share");
    entry.about.operator = None;
    let mut arrays = by_owner(session, context, 0, &other, &entry);
    if let Some(own) = own {
        let own = unpack_matrix(ring, rows, columns, read(own)?.elements).map_err(malformed)?;
        let sum = other.add(&own)?;
        let mut entry = entry.derived("masked-factors", "masked factors");
        entry.disclosure = Some(Disclosure::MaskedFactors);
        arrays.extend(by_owner(session, context, 0, &sum, &entry));
    }
    Ok(arrays)
}

//! Shares as a server gets them: the principal seeds, the auxiliary what is left.

use std::collections::BTreeMap;

use secsv_algebra::{Matrix, Prg, Ring, SeedShare, Share};

use super::{Entry, Message, Opened, by_owner, time_step_of};
use crate::{
    Error, PartyId,
    codec::{Reader, packed_len, unpack_matrix},
    disclosure::Disclosure,
    error::CodecError,
    labels::{self, Packed},
    message::{Place, UnitId},
    program::Then,
    server::{UnitContext, recount::COMMITMENT, updates_of},
    session::Session,
};

/// A server's share of so many numbers.
pub(super) fn server_share<R: Ring>(
    ring: R,
    party: PartyId,
    (rows, columns): (usize, usize),
    bytes: &[u8],
) -> Result<Share<R>, CodecError> {
    if party == PartyId::Principal {
        let mut r = Reader::new(bytes);
        let seed = r.seed()?;
        r.end()?;
        Ok(SeedShare::new(ring, rows, columns, seed).expand())
    } else {
        Ok(Share::new(unpack_matrix(ring, rows, columns, bytes)?))
    }
}

/// A server's share of labels.
pub(super) fn server_share_of_labels(
    party: PartyId,
    length: usize,
    bytes: &[u8],
) -> Result<Packed, CodecError> {
    if party == PartyId::Principal {
        let mut r = Reader::new(bytes);
        let seed = r.seed()?;
        r.end()?;
        return Ok(labels::expand(&seed, length));
    }
    // Behind the commitment to the principal's seed.
    labels::received(length, bytes.get(COMMITMENT..).ok_or(CodecError::Truncated)?)
}

/// What a client shared at a step: numbers and, where it deals for the operator that takes them, its share of their product.
pub(super) fn shared<R: Ring>(
    session: &Session,
    ring: R,
    party: PartyId,
    contexts: &BTreeMap<UnitId, UnitContext>,
    (number, message): (usize, &Message),
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let (place, rest) = Place::decode(message.content()).map_err(malformed)?;
    let Some(context) = contexts.get(&place.unit) else { return Ok(Vec::new()) };
    let program = session.program();
    let (rows, samples) = (program.shared_size(place.step), context.places().len());
    // In SecretSV the auxiliary gets its share of a product behind that of the numbers.
    let dealt =
        program.steps[place.step].feeds.filter(|_| ring.modulus() == 0 && party == PartyId::Auxiliary);
    let own = match dealt {
        Some(_) => packed_len(ring, rows * samples).min(rest.len()),
        None => rest.len(),
    };
    let (numbers, product) = rest.split_at(own);
    let share = server_share(ring, party, (rows, samples), numbers).map_err(malformed)?;
    let entry = at_step(session, context, message, number, place.step, "share");
    let mut arrays = scaled(session, context, place.step, share.expose(), &entry)?;
    if let Some(operator) = dealt {
        let operator = &program.operators[operator];
        let shape = (operator.shape.d_out, operator.positions * samples);
        let share = server_share(ring, party, shape, product).map_err(malformed)?;
        let entry = Entry { what: "share of a dealt product", ..entry };
        arrays.extend(by_owner(session, context, 0, share.expose(), &entry));
    }
    Ok(arrays)
}

fn at_step(
    session: &Session,
    context: &UnitContext,
    message: &Message,
    number: usize,
    step: usize,
    what: &'static str,
) -> Entry {
    let entry = Entry::new(message.kind, what, Some(message.from), vec![number]);
    let mut entry = entry.of_model(context, 0, context.round);
    entry.about.step = Some(step);
    entry.about.time_step = time_step_of(session.program(), step);
    entry.about.operator = session.program().steps[step].feeds;
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
            let rows = crate::server::rows_of(matrix, item * half, half)?;
            let mut entry = Entry { scale: scale(format.fractional_bits()), ..entry.clone() };
            entry.about.item = Some(item);
            if entry.what == "gates" {
                entry.what = ["gate z", "gate u"][item];
            }
            arrays.extend(by_owner(session, context, 0, &rows, &entry));
        }
        return Ok(arrays);
    }
    let bits = decryption.feeds.map_or(0, |operator| precision.operators[operator].input.fractional_bits());
    let entry = Entry { scale: scale(bits), ..entry.clone() };
    Ok(by_owner(session, context, 0, matrix, &entry))
}

/// A share of a multiplication triple.
pub(super) fn triple<R: Ring>(
    session: &Session,
    ring: R,
    party: PartyId,
    contexts: &BTreeMap<UnitId, UnitContext>,
    (number, message): (usize, &Message),
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let (place, rest) = Place::decode(message.content()).map_err(malformed)?;
    let Some(context) = contexts.get(&place.unit) else { return Ok(Vec::new()) };
    let (rows, columns) = (session.program().gru.map_or(0, |gru| gru.hidden), context.places().len());
    let mut r = Reader::new(rest);
    let mut prg = Prg::new(&r.seed().map_err(malformed)?);
    let mut draw = || Share::new(Matrix::uniform(ring, rows, columns, &mut prg));
    let (a, b) = (draw(), draw());
    let c = if party == PartyId::Principal {
        draw()
    } else {
        Share::new(unpack_matrix(ring, rows, columns, r.rest()).map_err(malformed)?)
    };
    let mut arrays = Vec::new();
    for (item, share) in [a, b, c].iter().enumerate() {
        let mut entry = at_step(session, context, message, number, place.step, "share");
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
    (number, message): (usize, &Message),
    (content, own): (&[u8], Option<&[u8]>),
) -> Result<Vec<Opened>, Error> {
    let malformed = |why| Error::Malformed { from: message.from, kind: message.kind, why };
    let (place, rest) = Place::decode(content).map_err(malformed)?;
    let Some(context) = contexts.get(&place.unit) else { return Ok(Vec::new()) };
    if !updates_of(session).any(|(step, ..)| step == place.step) {
        return Err(malformed(CodecError::Value { what: "step" }));
    }
    let (rows, columns) = (session.program().gru.map_or(0, |gru| 2 * gru.hidden), context.places().len());
    let other = unpack_matrix(ring, rows, columns, rest).map_err(malformed)?;
    let mut entry = at_step(session, context, message, number, place.step, "share");
    entry.about.operator = None;
    let mut arrays = by_owner(session, context, 0, &other, &entry);
    if let Some(own) = own {
        let (_, own) = Place::decode(own).map_err(malformed)?;
        let sum = other.add(&unpack_matrix(ring, rows, columns, own).map_err(malformed)?)?;
        let mut entry = entry.derived("masked-factors", "masked factors");
        entry.disclosure = Some(Disclosure::MaskedFactors);
        arrays.extend(by_owner(session, context, 0, &sum, &entry));
    }
    Ok(arrays)
}

//! Shares of labels, and what the principal finds by adding them up.

use std::collections::BTreeMap;

use super::{Entry, Numbers, Opened, SeenMessage, shares::server_share_of_labels};
use crate::{
    Error, PartyId,
    comparison::labelled,
    disclosure::Disclosure,
    error::CodecError,
    labels::{self, Packed},
    message::{
        DifferenceShare, Head, Kind, LabelShare, Message as _, OpenedSeeds, PredictionShare, Server, UnitId,
    },
    session::Session,
    unit::UnitContext,
};

/// A server's shares of labels, by unit.
#[derive(Default)]
pub(super) struct LabelShares {
    units: BTreeMap<UnitId, OfUnit>,
}

#[derive(Default)]
struct OfUnit {
    messages: Vec<usize>,
    truths: BTreeMap<usize, Packed>,
    predicted: Option<Packed>,
    verdict: Option<Packed>,
}

impl LabelShares {
    /// Reads a message with shares of labels.
    pub(super) fn take(
        &mut self,
        session: &Session,
        server: Server,
        contexts: &BTreeMap<UnitId, UnitContext>,
        (number, message): (usize, &SeenMessage),
    ) -> Result<Vec<Opened>, Error> {
        let (from, kind) = (message.from, message.kind);
        let malformed = |why| Error::Malformed { from, kind, why };
        let unit = Head::step(kind, message.content()).ok_or(malformed(CodecError::Truncated))?.unit;
        let Some(context) = contexts.get(&unit) else { return Ok(Vec::new()) };
        let content = message.content();
        let entry = Entry::new(kind, "label share", Some(from), vec![number]).of_unit(context);
        let state = self.units.entry(unit).or_default();
        state.messages.push(number);
        match (kind, from) {
            (Kind::OpenedSeeds, _) => {
                let message = OpenedSeeds::decode(content, &()).map_err(malformed)?;
                state.verdict = Some(opened(session, context, &message).map_err(malformed)?);
                Ok(Vec::new())
            }
            (Kind::LabelShare, PartyId::Client(owner)) => {
                let LabelShare { share, .. } = LabelShare::decode(content, &server).map_err(malformed)?;
                let bytes = context.truth_bytes(session, owner);
                let share = server_share_of_labels(bytes, &share).map_err(malformed)?;
                let arrays = truths(session, context, owner, &share, &entry).map_err(malformed)?;
                state.truths.insert(owner, share);
                Ok(arrays)
            }
            (Kind::PredictionShare, _) => {
                let message = PredictionShare::decode(content, &server).map_err(malformed)?;
                let bytes = context.label_bytes(session);
                let share = server_share_of_labels(bytes, &message.share).map_err(malformed)?;
                let arrays = segments(session, context, &share, &entry).map_err(malformed)?;
                state.predicted = Some(share);
                Ok(arrays)
            }
            _ => {
                let message = DifferenceShare::decode(content, &()).map_err(malformed)?;
                let share =
                    labels::received(context.label_bytes(session), message.labels).map_err(malformed)?;
                let arrays = segments(session, context, &share, &entry).map_err(malformed)?;
                state.verdict = Some(share);
                Ok(arrays)
            }
        }
    }

    /// What a server finds once it has the other's share: blinded differences, and which are zero.
    pub(super) fn differences(
        &self,
        session: &Session,
        contexts: &BTreeMap<UnitId, UnitContext>,
    ) -> Result<Vec<Opened>, Error> {
        let mut arrays = Vec::new();
        for (id, state) in &self.units {
            let (Some(context), Some(predicted), Some(verdict)) =
                (contexts.get(id), &state.predicted, &state.verdict)
            else {
                continue;
            };
            let Ok(mut all) = context.arranged(session, &state.truths) else { continue };
            labels::subtract(&mut all, predicted.expose());
            labels::subtract(&mut all, verdict.expose());
            let mut entry =
                Entry::new(Kind::DifferenceShare, "blinded difference", None, state.messages.clone());
            entry.disclosure = Some(Disclosure::RightOrWrong);
            let entry = entry.derived("differences", "blinded difference").of_unit(context);
            let short = |why| Error::Malformed { from: PartyId::Auxiliary, kind: Kind::DifferenceShare, why };
            let differences = segments(session, context, &all, &entry).map_err(short)?;
            let right: Vec<Opened> = differences.iter().map(zeros).collect();
            arrays.extend(differences);
            arrays.extend(right);
        }
        Ok(arrays)
    }
}

/// The principal's share of the differences, from the seeds that it opened to the auxiliary.
fn opened(session: &Session, context: &UnitContext, message: &OpenedSeeds) -> Result<Packed, CodecError> {
    let (mut truths, mut predicted) = (BTreeMap::new(), None);
    let of = labelled(session, context);
    if of.len() != message.seeds.len() {
        return Err(CodecError::Value { what: "number of seeds" });
    }
    for ((kind, client), seed) in of.into_iter().zip(&message.seeds) {
        if kind == Kind::LabelShare {
            truths.insert(client, labels::expand(seed, context.truth_bytes(session, client)));
        } else {
            predicted = Some(labels::expand(seed, context.label_bytes(session)));
        }
    }
    let (all, predicted) =
        context.arranged(session, &truths).ok().zip(predicted).ok_or(CodecError::Truncated)?;
    let mut all = all;
    labels::subtract(&mut all, predicted.expose());
    Ok(all)
}

/// Which of some differences are zero.
pub(crate) fn zeros(differences: &Opened) -> Opened {
    let is_zero = |zero: bool| u8::from(zero);
    let bits = match differences.numbers.expose() {
        Numbers::Signed(numbers) => numbers.iter().map(|&x| is_zero(x == 0)).collect(),
        Numbers::Ring(numbers) => numbers.iter().map(|&x| is_zero(x == 0)).collect(),
        Numbers::Bytes(numbers) => numbers.iter().map(|&x| is_zero(x == 0)).collect(),
        Numbers::Words(numbers) => numbers.iter().map(|&x| is_zero(x == 0)).collect(),
    };
    let entry = Entry {
        file: "derived-right".to_owned(),
        what: "right or wrong",
        kind: differences.kind,
        from: differences.from,
        messages: differences.messages.clone(),
        disclosure: differences.disclosure,
        about: differences.about.clone(),
        scale: None,
        offset: None,
    };
    entry.filled(differences.shape, Numbers::Bytes(bits))
}

/// Segments of labels: round by round, coalition by coalition, owner by owner.
fn segments(
    session: &Session,
    context: &UnitContext,
    packed: &Packed,
    entry: &Entry,
) -> Result<Vec<Opened>, CodecError> {
    let (field, classes) = (session.label_field(), session.program().classes);
    let mut rest = packed.expose().as_slice();
    let mut arrays = Vec::new();
    for &round in &context.rounds {
        for number in 0..context.selections.len() {
            for segment in context.segments(session, number) {
                let count = segment.places.len();
                let (now, later) =
                    rest.split_at_checked(field.packed_len(count)).ok_or(CodecError::Truncated)?;
                rest = later;
                let entry = entry.clone().of_model(context, number, round);
                let entry = entry.of_owner(segment.owner, segment.samples().collect());
                arrays.push(entry.labels(&field.unpack(now, count), classes));
            }
        }
    }
    Ok(arrays)
}

/// An owner's true labels. Without factors they are the same for all models of the unit.
fn truths(
    session: &Session,
    context: &UnitContext,
    owner: usize,
    packed: &Packed,
    entry: &Entry,
) -> Result<Vec<Opened>, CodecError> {
    let (field, classes) = (session.label_field(), session.program().classes);
    let of_owner = session.groups[context.plan.group].places(owner);
    let mut rest = packed.expose().as_slice();
    let mut arrays = Vec::new();
    for (round, number) in context.shared_truths(session, owner) {
        let places = context.selections[number].within(&of_owner);
        let (now, later) =
            rest.split_at_checked(field.packed_len(places.len())).ok_or(CodecError::Truncated)?;
        rest = later;
        let samples = places.iter().map(|place| place - of_owner.start).collect();
        let entry = match field.has_factors() {
            true => entry.clone().of_model(context, number, round),
            false => entry.clone(),
        };
        arrays.push(entry.of_owner(owner, samples).labels(&field.unpack(now, places.len()), classes));
    }
    Ok(arrays)
}

//! Counts that the auxiliary makes for itself. Clients commit to the seeds that the principal's shares of labels follow from; when a unit
//! is judged, the principal opens them, and the auxiliary, which has the other share, counts what is right. So one server alone cannot choose
//! the utilities.

use std::collections::BTreeMap;

use secsv_algebra::Seed;

use super::UnitContext;
use crate::{
    PartyId, labels,
    message::{COMMITMENT, Counted, Kind, Recount, StepAddress},
    session::Session,
};

/// What a client tells the auxiliary of the seed that it gives to the principal. A seed is uniform, so its digest says nothing of it.
pub(crate) fn commitment(from: PartyId, kind: Kind, address: StepAddress, seed: &Seed) -> [u8; COMMITMENT] {
    let mut hash = blake3::Hasher::new_derive_key("secsv commitment to the seed of a share of labels");
    hash.update(&from.to_wire().to_le_bytes()).update(&[kind as u8]);
    hash.update(&address.to_bytes()).update(seed.expose());
    *hash.finalize().as_bytes()
}

/// Whose labels: the last decryptor's predictions, or an owner's.
pub(crate) type Labelled = (Kind, usize);

/// Whose labels a unit compares, in the order in which their seeds are opened.
pub(crate) fn labelled(session: &Session, context: &UnitContext) -> Vec<Labelled> {
    let last = session.program().steps.last().and_then(|step| context.client(step.slot).ok());
    let owners = context.owners(session).map(|owner| (Kind::LabelShare, owner));
    owners.chain(last.map(|client| (Kind::PredictionShare, client))).collect()
}

/// Where a share of labels stands.
pub(crate) fn address_of(session: &Session, context: &UnitContext, kind: Kind) -> StepAddress {
    let step = if kind == Kind::PredictionShare { session.program().steps.len() - 1 } else { 0 };
    StepAddress::new(context.id, step)
}

/// Counts what is right in a unit: the auxiliary's share of the differences, and the principal's from its seeds.
pub(crate) fn count(
    session: &Session,
    context: &UnitContext,
    own: &[u8],
    seeds: &BTreeMap<Labelled, Seed>,
) -> Option<Recount> {
    let mut truths = BTreeMap::new();
    let mut predicted = None;
    for (&(kind, client), seed) in seeds {
        if kind == Kind::LabelShare {
            truths.insert(client, labels::expand(seed, context.truth_bytes(session, client)));
        } else {
            predicted = Some(labels::expand(seed, context.label_bytes(session)));
        }
    }
    let mut differences = context.arranged(session, &truths)?;
    labels::subtract(&mut differences, predicted?.expose());
    labels::subtract(&mut differences, own);
    let (field, mut rest) = (session.label_field(), differences.expose().as_slice());
    let mut recount = Recount::default();
    for &round in &context.rounds {
        for (number, &coalition) in context.plan.coalitions.iter().enumerate() {
            let mut found = Counted::default();
            for (.., places) in context.segments(session, number) {
                let (segment, later) = rest.split_at_checked(field.packed_len(places.len()))?;
                rest = later;
                found.tested += places.len();
                found.right += field
                    .zeros(segment, places.len())
                    .map(|zeros| zeros.count_ones() as usize)
                    .sum::<usize>();
            }
            recount.add((round, coalition), found);
        }
    }
    Some(recount)
}

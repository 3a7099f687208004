//! Counts that the auxiliary makes for itself. Clients commit to the seeds that the principal's shares of labels follow from; when a unit
//! is judged, the principal opens them, and the auxiliary, which has the other share, counts what is right. So one server alone cannot choose
//! the utilities.

use std::collections::{BTreeMap, BTreeSet};

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};

use super::UnitContext;
use crate::{
    PartyId,
    codec::{Reader, Writer},
    error::CodecError,
    labels,
    message::{Kind, Place},
    session::Session,
};

/// Bytes of a commitment.
pub(crate) const COMMITMENT: usize = 32;

/// What a client tells the auxiliary of the seed that it gives to the principal. A seed is uniform, so its digest says nothing of it.
pub(crate) fn commitment(from: PartyId, kind: Kind, place: Place, seed: &Seed) -> [u8; COMMITMENT] {
    let mut hash = blake3::Hasher::new_derive_key("secsv commitment to the seed of a share of labels");
    hash.update(&from.to_wire().to_le_bytes()).update(&[kind as u8]).update(&place.encode(seed.expose()));
    *hash.finalize().as_bytes()
}

/// Whose labels: the last decryptor's predictions, or an owner's.
pub(crate) type Labelled = (Kind, usize);

/// How a coalition's model of a round did on some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Samples that it was tested on.
    pub tested: usize,
    /// Those that it predicts right.
    pub right: usize,
}

/// What the auxiliary counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// By round and coalition.
    pub counts: BTreeMap<(RoundId, Coalition), Counted>,
    /// Clients whose commitments are not to what the principal opened: they or it do not tell the truth.
    pub disputed: BTreeSet<usize>,
}

impl Recount {
    pub(crate) fn add(&mut self, model: (RoundId, Coalition), found: Counted) {
        let sum = self.counts.entry(model).or_default();
        sum.tested += found.tested;
        sum.right += found.right;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|(&model, &found)| self.add(model, found));
        self.disputed.extend(&other.disputed);
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.disputed.is_empty()
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u64(self.counts.len() as u64);
        for (&(round, coalition), found) in &self.counts {
            w.u32(round.0).u128(coalition.bits()).u64(found.tested as u64).u64(found.right as u64);
        }
        w.u64(self.disputed.len() as u64);
        self.disputed.iter().for_each(|&client| {
            w.u16(client);
        });
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut recount = Self::default();
        for _ in 0..r.count("counts", 36)? {
            let model = (RoundId(r.u32()?), Coalition::from_bits(r.u128()?));
            let found = Counted { tested: r.u64()? as usize, right: r.u64()? as usize };
            if found.right > found.tested || recount.counts.insert(model, found).is_some() {
                return Err(CodecError::Value { what: "counts" });
            }
        }
        for _ in 0..r.count("clients", 2)? {
            recount.disputed.insert(r.u16()?);
        }
        Ok(recount)
    }
}

/// Whose labels a unit compares, in the order in which their seeds are opened.
pub(crate) fn labelled(session: &Session, context: &UnitContext) -> Vec<Labelled> {
    let last = session.program().steps.last().and_then(|step| context.client(step.slot).ok());
    let owners = context.owners(session).map(|owner| (Kind::Truth, owner));
    owners.chain(last.map(|client| (Kind::Predicted, client))).collect()
}

/// Where a share of labels stands.
pub(crate) fn place_of(session: &Session, context: &UnitContext, kind: Kind) -> Place {
    let step = if kind == Kind::Predicted { session.program().steps.len() - 1 } else { 0 };
    Place::new(context.id, step)
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
        if kind == Kind::Truth {
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

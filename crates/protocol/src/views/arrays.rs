//! Matrices about the samples of a unit as arrays, owner by owner.

use secsv_algebra::{Matrix, Ring, Secret};
use secsv_federation::{Coalition, RoundId};

use super::{About, Numbers, Opened, file_name};
use crate::{
    PartyId, disclosure::Disclosure, labels::Labels, message::Kind, session::Session, unit::UnitContext,
};

/// An array but for its numbers.
#[derive(Clone)]
pub(crate) struct Entry {
    pub file: String,
    pub what: &'static str,
    pub kind: Kind,
    pub from: Option<PartyId>,
    pub messages: Vec<usize>,
    pub disclosure: Option<Disclosure>,
    pub about: About,
    pub scale: Option<f64>,
    pub offset: Option<i64>,
}

impl Entry {
    /// What messages of a kind hold.
    pub(crate) fn new(kind: Kind, what: &'static str, from: Option<PartyId>, messages: Vec<usize>) -> Self {
        let (file, about) = (file_name(kind), About::default());
        Self { file, what, kind, from, messages, disclosure: None, about, scale: None, offset: None }
    }

    /// In another file, because it was computed.
    pub(crate) fn derived(&self, file: &str, what: &'static str) -> Self {
        Self { file: format!("derived-{file}"), what, ..self.clone() }
    }

    /// About a unit, its coalition of this number and a round.
    pub(crate) fn of_model(mut self, context: &UnitContext, number: usize, round: RoundId) -> Self {
        self = self.of_unit(context);
        self.about.round = Some(round);
        self.about.coalition = context.plan.coalitions.get(number).copied();
        self
    }

    /// About a unit.
    pub(crate) fn of_unit(mut self, context: &UnitContext) -> Self {
        self.about.test = Some(context.id.test.to_wire());
        self.about.group = Some(context.id.group);
        self.about.part = Some(context.id.part);
        self
    }

    /// About some of an owner's samples.
    pub(crate) fn of_owner(mut self, owner: usize, samples: Vec<usize>) -> Self {
        self.about.owner = Some(owner);
        self.about.samples = samples;
        self
    }

    /// With its numbers.
    pub(crate) fn filled(self, shape: (usize, usize), numbers: Numbers) -> Opened {
        let Self { file, what, kind, from, messages, disclosure, about, scale, offset } = self;
        let numbers = Secret::new(numbers);
        Opened { file, what, kind, from, messages, disclosure, about, shape, scale, offset, numbers }
    }

    /// With a matrix of all of its samples: columns position by position, which come to stand one below the other.
    pub(crate) fn matrix<R: Ring>(self, matrix: &Matrix<R>, positions: usize) -> Opened {
        let count = matrix.columns().checked_div(positions).unwrap_or(0);
        let all: Vec<usize> = (0..count).collect();
        let (shape, numbers) = columns(matrix, positions, &all);
        self.filled(shape, numbers)
    }

    /// With labels, or shares of them: bytes where they fit.
    pub(crate) fn labels(self, labels: &Labels, classes: usize) -> Opened {
        let shape = (1, labels.expose().len());
        let numbers = match classes {
            0..=256 => Numbers::Bytes(labels.expose().iter().map(|&label| label as u8).collect()),
            _ => Numbers::Words(labels.expose().to_vec()),
        };
        self.filled(shape, numbers)
    }
}

/// A matrix about the samples of one coalition of a unit, an array for each owner.
pub(crate) fn by_owner<R: Ring>(
    session: &Session,
    context: &UnitContext,
    number: usize,
    matrix: &Matrix<R>,
    entry: &Entry,
) -> Vec<Opened> {
    let count = context.selections.get(number).map_or(0, |selection| selection.places.len());
    let positions = matrix.columns().checked_div(count).unwrap_or(0);
    let mut first = 0;
    let mut arrays = Vec::new();
    for segment in context.segments(session, number) {
        let of_owner: Vec<usize> = (first..first + segment.places.len()).collect();
        first += of_owner.len();
        let (shape, numbers) = columns(matrix, positions, &of_owner);
        let entry = entry.clone().of_owner(segment.owner, segment.samples().collect());
        arrays.push(entry.filled(shape, numbers));
    }
    arrays
}

/// Some samples' columns: the rows of each position below those of the one before.
fn columns<R: Ring>(matrix: &Matrix<R>, positions: usize, samples: &[usize]) -> ((usize, usize), Numbers) {
    let (ring, rows) = (matrix.ring(), matrix.rows());
    let count = matrix.columns().checked_div(positions).unwrap_or(0);
    let elements = (0..positions).flat_map(|position| {
        (0..rows).flat_map(move |row| {
            let numbers = &matrix.row(row)[position * count..][..count];
            samples.iter().map(move |&sample| numbers[sample])
        })
    });
    let numbers = match ring.modulus() {
        0 => Numbers::Ring(elements.collect()),
        _ => Numbers::Signed(elements.map(|x| ring.centre(x)).collect()),
    };
    ((positions * rows, samples.len()), numbers)
}

/// What an operator's outputs are multiplied by to be real numbers.
pub(crate) fn outputs_scale(
    session: &Session,
    operator: usize,
    round: RoundId,
    coalition: Coalition,
) -> Option<f64> {
    let bits = session.precision.operators.get(operator)?.product_bits();
    Some(1.0 / (session.total_share(round, coalition) * f64::powi(2.0, bits as i32)))
}

//! Outputs that follow from others. A first-layer output of a coalition is the sum of its members', and a client
//! may be assigned more coalitions than such sums are independent: then it is sent as many as are, and adds the others up
//! itself. It learns what it would learn from all of them, and no plan has it see more.

mod derivation;

pub(crate) use derivation::Derivation;

use std::{ops::Range, sync::Arc};

use secsv_algebra::{Field, Matrix, Ring, wipe};
use secsv_federation::SampleSet;

use crate::Error;

/// Columns that are added up at a time; in tests so few that there are several.
const BLOCK: usize = if cfg!(test) { 5 } else { 1024 };

/// Which outputs of a unit are sent, and how those of every coalition follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Combinations {
    /// Coalitions whose outputs are sent, by their numbers in the unit.
    pub sent: Vec<usize>,
    /// For each coalition: which of those that are sent, and by how much each counts.
    pub terms: Vec<Vec<(usize, u64)>>,
}

/// Some of a group's samples.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub samples: SampleSet,
    /// The same, ascending.
    pub places: Vec<usize>,
}

impl Selection {
    /// Those of the places that lie in a range.
    pub(crate) fn within(&self, range: &Range<usize>) -> &[usize] {
        let from = self.places.partition_point(|&place| place < range.start);
        let to = self.places.partition_point(|&place| place < range.end);
        &self.places[from..to]
    }
}

/// A vector in echelon form, and what it is made of.
struct BasisRow {
    pivot: usize,
    /// 1 at the pivot, 0 at the pivots of earlier rows.
    vector: Vec<u64>,
    /// By number among those that are sent.
    made_of: Vec<u64>,
}

impl Combinations {
    /// Of each coalition's members, and its samples. Those with the most samples are sent first: others
    /// may follow from them, and only from outputs that were sent on all of their own samples.
    pub(crate) fn new(field: Field, members: &[Vec<usize>], selections: &[Arc<Selection>]) -> Self {
        let clients = members.iter().flatten().map(|client| client + 1).max().unwrap_or(0);
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|&number| std::cmp::Reverse(selections[number].places.len()));
        let mut classes: Vec<(&Arc<Selection>, Vec<BasisRow>)> = Vec::new();
        for selection in selections {
            if !classes.iter().any(|(known, _)| known == &selection) {
                classes.push((selection, Vec::new()));
            }
        }
        let mut sent = Vec::new();
        let mut terms = vec![Vec::new(); members.len()];
        for number in order {
            let mut vector = vec![0; clients];
            members[number].iter().for_each(|&client| vector[client] = 1);
            let rows = classes.iter().find(|(known, _)| known == &&selections[number]).map(|(_, rows)| rows);
            let found = rows.and_then(|rows| reduce(field, rows, vector.clone()).err());
            terms[number] = found.unwrap_or_else(|| {
                for (selection, rows) in &mut classes {
                    if selection.samples.difference(&selections[number].samples).is_empty()
                        && let Ok(row) = reduce(field, rows, vector.clone())
                    {
                        rows.push(row.finished(field, sent.len()));
                    }
                }
                sent.push(number);
                vec![(sent.len() - 1, 1)]
            });
        }
        Self { sent, terms }
    }

    /// The outputs of a coalition on its samples, from those that were sent on theirs: a row for each output, a column for
    /// each sample, position by position of the layer.
    pub(crate) fn outputs(
        &self,
        number: usize,
        selections: &[Arc<Selection>],
        received: &[Outputs],
    ) -> Result<Outputs, Error> {
        let missing = || Error::Local { what: "outputs that others follow from" };
        let (first, sent) = received.first().zip(self.sent.first()).ok_or_else(missing)?;
        let positions = first.columns.checked_div(selections[*sent].places.len()).unwrap_or(0);
        let (field, wanted) = (first.field, &selections[number]);
        let count = wanted.places.len();
        let rows = first.rows();
        let mut sum =
            Outputs { field, columns: positions * count, numbers: vec![0; rows * positions * count] };
        let mut terms = Vec::with_capacity(self.terms[number].len());
        for &(from, factor) in &self.terms[number] {
            let outputs = received.get(from).ok_or_else(missing)?;
            let of = self.sent.get(from).map(|&sent| &selections[sent]).ok_or_else(missing)?;
            let places = match wanted == of {
                true => None,
                false => Some(columns(&wanted.places, &of.places).ok_or_else(missing)?),
            };
            terms.push((factor, &outputs.numbers, of.places.len(), places));
        }
        // A few columns at a time: the sum then stays in the nearest cache.
        for (row, sums) in sum.numbers.chunks_exact_mut(count.max(1)).enumerate() {
            for (block, sums) in sums.chunks_mut(BLOCK).enumerate() {
                let first = block * BLOCK;
                for (factor, numbers, length, places) in &terms {
                    let source = numbers.get(row * length..(row + 1) * length).ok_or_else(missing)?;
                    match places {
                        None => add(field, *factor, sums, source[first..].iter().copied()),
                        Some(places) => {
                            add(field, *factor, sums, places[first..].iter().map(|&place| source[place]));
                        }
                    }
                }
            }
        }
        centre(field, &mut sum.numbers);
        Ok(sum)
    }
}

/// Outputs as whole numbers, row by row. Sums of a few need no reduction where they are those of a coalition: these fit
/// the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outputs {
    field: Field,
    columns: usize,
    numbers: Vec<i64>,
}

impl Drop for Outputs {
    fn drop(&mut self) {
        wipe(&mut self.numbers);
    }
}

impl Outputs {
    pub(crate) fn new(matrix: &Matrix<Field>) -> Self {
        Self::of_rows(matrix, 0..matrix.rows())
    }

    /// Some rows of a matrix.
    pub(crate) fn of_rows(matrix: &Matrix<Field>, rows: Range<usize>) -> Self {
        let (field, columns) = (matrix.ring(), matrix.columns());
        let elements = &matrix.elements()[rows.start * columns..rows.end * columns];
        let numbers = elements.iter().map(|&x| field.centre(x)).collect();
        Self { field, columns, numbers }
    }

    /// As elements again.
    pub(crate) fn matrix(&self) -> Result<Matrix<Field>, Error> {
        let elements = self.numbers.iter().map(|&x| self.field.embed(x)).collect();
        Ok(Matrix::new(self.field, self.rows(), self.columns, elements)?)
    }

    fn rows(&self) -> usize {
        self.numbers.len().checked_div(self.columns).unwrap_or(0)
    }
}

/// Makes numbers those of smallest magnitude, which they are unless they are no coalition's.
fn centre(field: Field, numbers: &mut [i64]) {
    let half = (field.modulus() / 2) as i64;
    // Signs alone, because two words at a time can be added but not compared.
    let signs = numbers.iter().fold(0, |signs, x| signs | (half - x) | (half + x));
    if signs < 0 {
        let centred = |x: i64| field.centre(x.rem_euclid(field.modulus() as i64) as u64);
        numbers.iter_mut().for_each(|x| *x = centred(*x));
    }
}

/// Adds multiples, nearly always by a small number and mostly by 1 or -1.
fn add(field: Field, factor: u64, sums: &mut [i64], terms: impl Iterator<Item = i64>) {
    let terms = sums.iter_mut().zip(terms);
    match field.centre(factor) {
        1 => terms.for_each(|(sum, x)| *sum += x),
        -1 => terms.for_each(|(sum, x)| *sum -= x),
        small @ -256..256 => terms.for_each(|(sum, x)| *sum += small * x),
        _ => terms.for_each(|(sum, x)| *sum += field.centre(field.mul(factor, field.embed(x)))),
    }
}

/// Where each of some ascending numbers stands among others; none if one is not there.
fn columns(wanted: &[usize], candidate_samples: &[usize]) -> Option<Vec<usize>> {
    let mut there = candidate_samples.iter().enumerate();
    wanted.iter().map(|place| there.find(|(_, other)| *other == place).map(|(column, _)| column)).collect()
}

/// Takes what earlier rows are made of away from a vector: what is left of it, as a row, or how it follows from them.
fn reduce(field: Field, rows: &[BasisRow], mut vector: Vec<u64>) -> Result<BasisRow, Vec<(usize, u64)>> {
    let mut made_of = Vec::new();
    for row in rows {
        let factor = vector[row.pivot];
        if factor == 0 {
            continue;
        }
        vector.iter_mut().zip(&row.vector).for_each(|(x, &y)| *x = field.sub(*x, field.mul(factor, y)));
        made_of.resize(made_of.len().max(row.made_of.len()), 0);
        made_of.iter_mut().zip(&row.made_of).for_each(|(x, &y)| *x = field.add(*x, field.mul(factor, y)));
    }
    match vector.iter().position(|&x| x != 0) {
        Some(pivot) => Ok(BasisRow { pivot, vector, made_of }),
        None => Err(made_of.into_iter().enumerate().filter(|(_, factor)| *factor != 0).collect()),
    }
}

impl BasisRow {
    /// The row that a vector leaves which is sent as so many-th.
    fn finished(mut self, field: Field, sent: usize) -> Self {
        let scale = field.arithmetic().inverse(self.vector[self.pivot]);
        self.made_of.resize(sent, 0);
        let rest = |x: &u64| field.mul(scale, field.sub(0, *x));
        self.made_of = self.made_of.iter().map(rest).chain([scale]).collect();
        self.vector.iter_mut().for_each(|x| *x = field.mul(scale, *x));
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Prg, Seed};
    use secsv_federation::SampleSet;

    use super::*;

    fn selection(total: usize, places: Vec<usize>) -> Arc<Selection> {
        let mut samples = SampleSet::none(total);
        places.iter().for_each(|&place| samples.insert(place));
        Arc::new(Selection { samples, places })
    }

    proptest! {
        #[test]
        fn what_is_not_sent_follows(
            clients in 1usize..8,
            coalitions in prop::collection::btree_set(1usize..256, 1..60),
            hidden in prop::collection::vec(0usize..4, 60),
            seed in any::<[u8; 32]>(),
        ) {
            let (field, samples, rows, positions) = (Field::standard(), 12, 2, 3);
            let coalitions: Vec<usize> =
                coalitions.into_iter().filter(|bits| bits % (1 << clients) == *bits).collect();
            let members =
                |bits: &usize| -> Vec<usize> { (0..clients).filter(|i| bits >> i & 1 == 1).collect() };
            let members: Vec<_> = coalitions.iter().map(members).collect();
            let kinds = [0..12, 4..12, 0..8, 0..12].map(|range| selection(samples, range.collect()));
            let selections: Vec<_> =
                hidden.iter().take(members.len()).map(|&kind| kinds[kind].clone()).collect();
            let combinations = Combinations::new(field, &members, &selections);
            let mut prg = Prg::new(&Seed::from_bytes(seed));
            let local: Vec<Matrix<Field>> =
                (0..clients).map(|_| Matrix::uniform(field, rows, positions * samples, &mut prg)).collect();
            let outputs = |number: usize| -> Matrix<Field> {
                let places = &selections[number].places;
                Matrix::from_fn(field, rows, positions * places.len(), |row, column| {
                    let (position, column) = (column / places.len(), places[column % places.len()]);
                    let terms = members[number].iter().map(|&i| local[i].at(row, position * samples + column));
                    terms.fold(0, |sum, x| field.add(sum, x))
                })
            };
            let received: Vec<_> =
                combinations.sent.iter().map(|&number| Outputs::new(&outputs(number))).collect();
            for number in 0..members.len() {
                let found = combinations.outputs(number, &selections, &received).unwrap();
                prop_assert_eq!(&found, &Outputs::new(&outputs(number)));
                prop_assert_eq!(found.matrix().unwrap(), outputs(number));
            }
            // One for each independent sum, and for those that are asked for on fewer samples at most as many again.
            prop_assert!(combinations.sent.len() <= 3 * clients);
            let whole = combinations.sent.iter().filter(|&&n| selections[n].places.len() == samples).count();
            prop_assert!(whole <= clients);
        }
    }

    #[test]
    fn all_coalitions_follow_from_the_local_models() {
        let all = selection(3, vec![0, 1, 2]);
        let members: Vec<Vec<usize>> =
            (1usize..1 << 10).map(|bits| (0..10).filter(|i| bits >> i & 1 == 1).collect()).collect();
        let selections = vec![all; members.len()];
        let combinations = Combinations::new(Field::standard(), &members, &selections);
        assert_eq!(combinations.sent.len(), 10);
        assert!(combinations.terms.iter().flatten().all(|(_, factor)| *factor == 1));
    }
}

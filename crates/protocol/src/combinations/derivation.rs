//! Classes of all coalitions of a unit at once. Nearly every coalition differs from another one by a single term, so its
//! outputs are one addition away from that one's. A few columns at a time, everything stays in the nearest cache.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use secsv_algebra::{Field, Ring, Secret};

use super::{Combinations, Outputs, add, centre, columns};
use crate::{Error, labels::Wiped, server::Selection};

/// Bits of a word: blocks are padded to whole words, with outputs that are 0.
const WORD: usize = u64::BITS as usize;

/// Columns of a block; in tests so few that there are several.
const MOST_COLUMNS: usize = if cfg!(test) { WORD } else { 4 * WORD };

/// Numbers in the blocks of all sums that are kept, as far as there may be that few.
const MOST_NUMBERS: usize = 1 << 15;

/// Sums that are kept while others follow from them.
const MOST_LEVELS: usize = 24;

/// A coalition, when its outputs are added up.
#[derive(Clone, Copy, Debug)]
struct Visit {
    number: usize,
    /// How many others it follows from, one from the other.
    level: usize,
    /// The coalition one level up that it follows from by adding a multiple of what was sent; if there is none, all its
    /// terms are added up.
    after: Option<(usize, (usize, u64))>,
}

/// What was sent, as far as it is about some places.
enum Source {
    /// From this column on.
    From(usize),
    /// One column for each place.
    At(Vec<usize>),
    /// Not on all of the places.
    Elsewhere,
}

/// All coalitions of a unit in the order in which their outputs are added up.
pub(crate) struct Derivation<'a> {
    combinations: &'a Combinations,
    selections: &'a [Arc<Selection>],
    received: &'a [Outputs],
    visits: Vec<Visit>,
    /// Sums that are kept at a time.
    levels: usize,
}

impl<'a> Derivation<'a> {
    /// From what was sent, on the samples of each coalition.
    pub(crate) fn new(
        combinations: &'a Combinations,
        selections: &'a [Arc<Selection>],
        received: &'a [Outputs],
    ) -> Result<Self, Error> {
        let first = received.first().filter(|_| received.len() == combinations.sent.len());
        let visits = combinations.visits(first.ok_or_else(missing)?.field);
        let levels = visits.iter().map(|visit| visit.level + 1).max().unwrap_or(0);
        Ok(Self { combinations, selections, received, visits, levels })
    }

    /// For models with one output for two classes, whose second class is that of outputs below 0: the classes of
    /// each coalition's samples in a range of places. Hands on the coalition's number, how many of these samples come
    /// before, how many follow here, and their classes, one bit each. Where it is called again for a coalition, whole words
    /// were handed on before.
    pub(crate) fn signs(
        &self,
        range: &Range<usize>,
        mut found: impl FnMut(usize, Range<usize>, &[u64]),
    ) -> Result<(), Error> {
        let mut words = Secret::new(Wiped(Vec::<u64>::new()));
        self.each_block(range, |number, columns, outputs| {
            let words = words.expose_mut();
            words.clear();
            words.extend(outputs.as_chunks().0.iter().map(signs));
            found(number, columns, words);
        })
    }

    /// The same for any outputs: the class of the largest output of each sample; the last one's is 0 if it is missing.
    pub(crate) fn labels(
        &self,
        range: &Range<usize>,
        classes: usize,
        mut found: impl FnMut(usize, Range<usize>, &[u16]),
    ) -> Result<(), Error> {
        let mut best = Secret::new(Wiped(Vec::new()));
        let mut labels = Secret::new(Wiped(Vec::new()));
        self.each_block(range, |number, columns, outputs| {
            let (best, labels) = (best.expose_mut(), labels.expose_mut());
            let padded = columns.len().next_multiple_of(WORD);
            largest(outputs, padded, classes, best, labels);
            found(number, columns.clone(), &labels[..columns.len()]);
        })
    }

    /// Hands on the outputs of each coalition, block by block: its number, which of its samples in the range, and the outputs row by row,
    /// padded with 0 to whole words.
    fn each_block(
        &self,
        range: &Range<usize>,
        mut block: impl FnMut(usize, Range<usize>, &[i64]),
    ) -> Result<(), Error> {
        let Self { combinations, selections, received, ref visits, levels } = *self;
        let first = received.first().ok_or_else(missing)?;
        let (field, rows) = (first.field, first.rows());
        let (kinds, kind_of) = kinds(selections, range);
        let room = MOST_NUMBERS / (rows * (levels + received.len())).max(1);
        let most = (room / WORD * WORD).clamp(WORD, MOST_COLUMNS);
        let mut sums = Secret::new(Wiped(vec![0; levels * rows * most]));
        let mut terms = Secret::new(Wiped(vec![0; received.len() * rows * most]));
        for (kind, wanted) in kinds.iter().enumerate().filter(|(_, wanted)| !wanted.is_empty()) {
            let sources: Vec<Source> = combinations
                .sent
                .iter()
                .map(|&sent| {
                    let places = &selections[sent].places;
                    match kind_of[sent] == kind {
                        true => Source::From(places.partition_point(|&place| place < range.start)),
                        false => columns(wanted, places).map_or(Source::Elsewhere, Source::At),
                    }
                })
                .collect();
            let is_there = |from: usize| !matches!(sources.get(from), None | Some(Source::Elsewhere));
            let of_kind: Vec<Visit> =
                visits.iter().filter(|visit| kind_of[visit.number] == kind).copied().collect();
            for begin in (0..wanted.len()).step_by(most) {
                let now = begin..wanted.len().min(begin + most);
                let padded = now.len().next_multiple_of(WORD);
                let size = rows * padded;
                let terms = terms.expose_mut();
                for ((outputs, source), term) in
                    received.iter().zip(&sources).zip(terms.chunks_exact_mut(size))
                {
                    source.read(outputs, &now, padded, term).ok_or_else(missing)?;
                }
                for &Visit { number, level, after } in &of_kind {
                    let (above, sums) = sums.expose_mut().split_at_mut(level * size);
                    let sums = &mut sums[..size];
                    match after.filter(|(other, _)| kind_of[*other] == kind) {
                        Some((_, (from, factor))) => {
                            let before = &above[above.len() - size..];
                            add_to(field, factor, sums, before, &terms[from * size..][..size]);
                        }
                        None => {
                            sums.fill(0);
                            for &(from, factor) in &combinations.terms[number] {
                                if !is_there(from) {
                                    return Err(missing());
                                }
                                add(field, factor, sums, terms[from * size..][..size].iter().copied());
                            }
                        }
                    }
                    centre(field, sums);
                    block(number, now.clone(), sums);
                }
            }
        }
        Ok(())
    }
}

impl Combinations {
    /// All coalitions, each after the one that it follows from, and before others that do not follow from the latter.
    fn visits(&self, field: Field) -> Vec<Visit> {
        let beside = self.beside(field);
        let mut order: Vec<usize> = (0..self.terms.len()).collect();
        order.sort_by_key(|&number| self.terms[number].len());
        let mut level: Vec<Option<usize>> = vec![None; self.terms.len()];
        let mut following = vec![Vec::new(); self.terms.len()];
        let mut visits = Vec::with_capacity(self.terms.len());
        for root in order {
            if level[root].is_some() {
                continue;
            }
            // The nearest first, so that few sums are to be kept.
            level[root] = Some(0);
            let mut queue = VecDeque::from([(root, 0)]);
            while let Some((number, depth)) = queue.pop_front() {
                for &(other, term) in beside[number].iter().filter(|_| depth + 1 < MOST_LEVELS) {
                    if level[other].is_none() {
                        level[other] = Some(depth + 1);
                        following[number].push((other, term));
                        queue.push_back((other, depth + 1));
                    }
                }
            }
            let mut open = vec![Visit { number: root, level: 0, after: None }];
            while let Some(visit) = open.pop() {
                visits.push(visit);
                let (number, level) = (visit.number, visit.level + 1);
                open.extend(following[number].iter().map(|&(other, term)| Visit {
                    number: other,
                    level,
                    after: Some((number, term)),
                }));
            }
        }
        visits
    }

    /// For each coalition those that differ from it by one term, and the term that they have beside its own.
    fn beside(&self, field: Field) -> Vec<Vec<(usize, (usize, u64))>> {
        let sum = |terms: &[(usize, u64)]| terms.iter().fold(0u64, |sum, term| sum.wrapping_add(mark(term)));
        let sums: Vec<u64> = self.terms.iter().map(|terms| sum(terms)).collect();
        let known: HashMap<u64, usize> = sums.iter().copied().zip(0..).collect();
        let mut beside = vec![Vec::new(); self.terms.len()];
        for (number, terms) in self.terms.iter().enumerate() {
            for (place, term) in terms.iter().enumerate() {
                let less = known.get(&sums[number].wrapping_sub(mark(term)));
                let rest = || terms[..place].iter().chain(&terms[place + 1..]);
                // Others might have the same mark.
                if let Some(&less) = less.filter(|&&less| self.terms[less].iter().eq(rest())) {
                    beside[less].push((number, *term));
                    beside[number].push((less, (term.0, field.sub(0, term.1))));
                }
            }
        }
        beside
    }
}

impl Source {
    /// Copies some columns of what was sent, row by row.
    fn read(
        &self,
        outputs: &Outputs,
        columns: &Range<usize>,
        padded: usize,
        block: &mut [i64],
    ) -> Option<()> {
        let rows = outputs.numbers.chunks_exact(outputs.columns.max(1));
        for (row, target) in rows.zip(block.chunks_exact_mut(padded)) {
            let (target, padding) = target.split_at_mut(columns.len());
            padding.fill(0);
            match self {
                Self::From(first) => {
                    target.copy_from_slice(row.get(first + columns.start..first + columns.end)?);
                }
                Self::At(places) => {
                    for (number, &place) in target.iter_mut().zip(places.get(columns.clone())?) {
                        *number = *row.get(place)?;
                    }
                }
                Self::Elsewhere => {}
            }
        }
        Some(())
    }
}

fn missing() -> Error {
    Error::Local { what: "outputs that others follow from" }
}

/// A number for a term, such that sums of them are hardly ever equal where terms are not.
fn mark(&(from, factor): &(usize, u64)) -> u64 {
    let mut mark =
        (from as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ factor.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mark = (mark ^ mark >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    mark ^ mark >> 29
}

/// The places in a range that some coalition is tested on, those of different coalitions once where they are the same, and which are a coalition's.
fn kinds<'a>(selections: &'a [Arc<Selection>], range: &Range<usize>) -> (Vec<&'a [usize]>, Vec<usize>) {
    // Most are one and the same: few are compared place by place.
    let mut known: HashMap<*const Selection, usize> = HashMap::new();
    let mut kinds: Vec<&[usize]> = Vec::new();
    let of = |selection: &'a Arc<Selection>| {
        *known.entry(Arc::as_ptr(selection)).or_insert_with(|| {
            let places = selection.within(range);
            kinds.iter().position(|other| *other == places).unwrap_or_else(|| {
                kinds.push(places);
                kinds.len() - 1
            })
        })
    };
    let of_each = selections.iter().map(of).collect();
    (kinds, of_each)
}

/// Sums of numbers and multiples of others, see [`add`].
fn add_to(field: Field, factor: u64, sums: &mut [i64], before: &[i64], terms: &[i64]) {
    let all = sums.iter_mut().zip(before).zip(terms);
    match field.centre(factor) {
        1 => all.for_each(|((sum, before), x)| *sum = before + x),
        -1 => all.for_each(|((sum, before), x)| *sum = before - x),
        _ => {
            sums.copy_from_slice(before);
            add(field, factor, sums, terms.iter().copied());
        }
    }
}

/// The signs of numbers, one bit each.
fn signs(numbers: &[i64; WORD]) -> u64 {
    // Eight words side by side, each with one sign in every byte: a processor works on several at a time.
    let mut gathered = [0u64; 8];
    for numbers in numbers.as_chunks::<8>().0 {
        for (word, number) in gathered.iter_mut().zip(numbers) {
            *word = *word >> 8 | *number as u64 & 1 << 63;
        }
    }
    gathered.iter().zip(0..).fold(0, |all, (word, place)| all | word >> (7 - place))
}

/// The class of the largest output of each column. Rows that are missing are 0.
fn largest(outputs: &[i64], columns: usize, classes: usize, best: &mut Vec<i64>, labels: &mut Vec<u16>) {
    let mut rows = outputs.chunks_exact(columns);
    best.clear();
    labels.clear();
    best.extend_from_slice(rows.next().unwrap_or(&[]));
    best.resize(columns, 0);
    labels.resize(columns, 0);
    let zero = [0; WORD];
    let given = rows.len();
    for class in 1..classes.min(given + 2) {
        let row = rows.next();
        let blocks = best.as_chunks_mut::<WORD>().0.iter_mut().zip(labels.as_chunks_mut::<WORD>().0);
        for (block, (best, labels)) in blocks.enumerate() {
            let row = row.and_then(|row| row.as_chunks().0.get(block)).unwrap_or(&zero);
            for ((best, label), &score) in best.iter_mut().zip(labels).zip(row) {
                // All ones where the score is larger: the lowest class of those with equal scores. No difference overflows,
                // because both are below half the modulus.
                let is_better = (*best - score) >> 63;
                *best += (score - *best) & is_better;
                *label ^= (*label ^ class as u16) & is_better as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_algebra::{Matrix, Prg, Seed};
    use secsv_federation::SampleSet;

    use super::*;

    fn selection(total: usize, places: impl IntoIterator<Item = usize>) -> Arc<Selection> {
        let mut samples = SampleSet::none(total);
        places.into_iter().for_each(|place| samples.insert(place));
        let places = samples.iter().collect();
        Arc::new(Selection { samples, places })
    }

    /// One coalition after the other, each from everything that was sent, compared sample by sample.
    fn one_by_one(
        combinations: &Combinations,
        selections: &[Arc<Selection>],
        received: &[Outputs],
        range: &Range<usize>,
        classes: usize,
    ) -> Vec<Vec<u16>> {
        let labels = |number: usize| {
            let outputs = combinations.outputs(number, selections, received).unwrap();
            let labels = crate::activation::largest(&outputs.numbers, outputs.columns, classes);
            let pairs = selections[number].places.iter().zip(labels);
            pairs.filter(|(place, _)| range.contains(place)).map(|(_, label)| label).collect()
        };
        (0..selections.len()).map(labels).collect()
    }

    /// Samples of three owners, of whom each tests some models itself, and a few samples that are nobody's business.
    fn shape() -> impl Strategy<Value = ([usize; 3], Vec<(usize, usize)>, Vec<bool>)> {
        let lengths = prop::array::uniform3(prop_oneof![0usize..4, 1usize..200, Just(64), Just(128)]);
        let coalitions = prop::collection::btree_map(1usize..64, 0usize..16, 1..64);
        let coalitions = coalitions.prop_map(|all| all.into_iter().collect());
        (lengths, coalitions, prop::collection::vec(prop::bool::weighted(0.9), 600))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn all_coalitions_get_the_labels_that_each_would_get_by_itself(
            (lengths, coalitions, there) in shape(),
            which in 0usize..6,
            is_small in any::<bool>(),
            seed in any::<[u8; 32]>(),
        ) {
            let (classes, rows) = [(2, 1), (2, 2), (3, 2), (4, 3), (4, 4), (300, 299)][which];
            let field = Field::standard();
            let total = lengths.iter().sum::<usize>();
            let ends = [lengths[0], lengths[0] + lengths[1], total];
            let ranges = [0..ends[0], ends[0]..ends[1], ends[1]..ends[2]];
            let members: Vec<Vec<usize>> = coalitions
                .iter()
                .map(|(bits, _)| (0..6).filter(|i| bits >> i & 1 == 1).collect())
                .collect();
            // Mostly whole owners are left out, as in a test, and sometimes just any samples.
            let kinds: Vec<_> = (0..16).map(|kind| {
                let is_left_out = |place: usize| match kind {
                    ..8 => false,
                    8..14 => ranges[kind % 3].contains(&place),
                    _ => place % kind == 0,
                };
                selection(total, (0..total).filter(|&place| there[place] && !is_left_out(place)))
            }).collect();
            let selections: Vec<_> = coalitions.iter().map(|(_, kind)| kinds[*kind].clone()).collect();
            let combinations = Combinations::new(field, &members, &selections);
            let mut prg = Prg::new(&Seed::from_bytes(seed));
            let received: Vec<Outputs> = combinations.sent.iter().map(|&sent| {
                let mut outputs = Matrix::uniform(field, rows, selections[sent].places.len(), &mut prg);
                if is_small {
                    // Many are equal, and many are 0.
                    outputs = Matrix::from_fn(field, rows, outputs.columns(), |row, column| {
                        field.embed((outputs.at(row, column) % 5) as i64 - 2)
                    });
                }
                Outputs::new(&outputs)
            }).collect();
            let derivation = Derivation::new(&combinations, &selections, &received).unwrap();
            for range in &ranges {
                let expected = one_by_one(&combinations, &selections, &received, range, classes);
                let mut found = vec![Vec::new(); selections.len()];
                derivation.labels(range, classes, |number, samples, labels| {
                    assert_eq!((samples.start, samples.len()), (found[number].len(), labels.len()));
                    found[number].extend_from_slice(labels);
                }).unwrap();
                prop_assert_eq!(&found, &expected);
                if (classes, rows) != (2, 1) {
                    continue;
                }
                found.iter_mut().for_each(Vec::clear);
                derivation.signs(range, |number, samples, words| {
                    assert_eq!((samples.start, samples.len().div_ceil(64)), (found[number].len(), words.len()));
                    let bits = (0..samples.len()).map(|k| (words[k / 64] >> (k % 64) & 1) as u16);
                    found[number].extend(bits);
                    let beyond = (samples.len()..64 * words.len()).filter(|k| words[k / 64] >> (k % 64) & 1 == 1);
                    assert_eq!(beyond.count(), 0);
                }).unwrap();
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn each_of_all_coalitions_is_one_addition_away_from_another() {
        let all = selection(3, 0..3);
        let members: Vec<Vec<usize>> =
            (1usize..1 << 9).map(|bits| (0..9).filter(|i| bits >> i & 1 == 1).collect()).collect();
        let combinations = Combinations::new(Field::standard(), &members, &vec![all; members.len()]);
        let visits = combinations.visits(Field::standard());
        assert_eq!(visits.len(), members.len());
        assert_eq!(visits.iter().filter(|visit| visit.after.is_none()).count(), 1);
        assert!(visits.iter().all(|visit| visit.level < 10));
    }
}

//! Classes of all coalitions of a unit at once. Nearly every coalition differs from another one by a single client, so its
//! outputs are one addition away from that one's. A few columns at a time, everything stays in the nearest cache.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use secsv_algebra::{Field, Ring, Secret};
use secsv_federation::Coalition;

use super::{Combinations, Outputs, Selection, add, centre, columns};
use crate::{Error, labels::Wiped};

/// Bits of a word: blocks are padded to whole words, with outputs that are 0.
const WORD: usize = u64::BITS as usize;

/// Columns of a block; in tests so few that there are several.
const MAX_COLUMNS: usize = if cfg!(test) { WORD } else { 4 * WORD };

/// Numbers in the blocks of all sums that are kept, as far as there may be that few.
const MAX_NUMBERS: usize = 1 << 15;

/// Sums that are kept while others follow from them.
const MAX_LEVELS: usize = 24;

/// Multiples of what was sent, ascending.
type Terms = Vec<(usize, u64)>;

/// A coalition, when its outputs are added up.
#[derive(Clone, Copy, Debug)]
struct Visit {
    number: usize,
    /// How many others it follows from, one from the other.
    level: usize,
    /// The coalition one level up that it follows from; if there is none, all its terms are added up.
    after: Option<(usize, Step)>,
}

/// A client that comes to a coalition or leaves it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Whose outputs, by number among those that are needed.
    of: usize,
    is_added: bool,
}

/// The order in which outputs of coalitions are added up.
struct Order {
    visits: Vec<Visit>,
    /// Clients, and what their own outputs are made of.
    steps: Vec<(usize, Terms)>,
}

/// What was sent, as far as it is about some places.
enum SumSource {
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
    order: Order,
    /// Sums that are kept at a time.
    levels: usize,
}

impl<'a> Derivation<'a> {
    /// From what is sent, on the samples of each coalition.
    pub(crate) fn new(
        field: Field,
        combinations: &'a Combinations,
        coalitions: &[Coalition],
        selections: &'a [Arc<Selection>],
    ) -> Self {
        let order = Order::new(field, coalitions, &combinations.terms);
        let levels = order.visits.iter().map(|visit| visit.level + 1).max().unwrap_or(0);
        Self { combinations, selections, order, levels }
    }

    /// For models with one output for two classes, whose second class is that of outputs below 0: the classes of
    /// each coalition's samples in a range of places. Hands on the coalition's number, how many of these samples come
    /// before, how many follow here, and their classes, one bit each. Where it is called again for a coalition, whole words
    /// were handed on before.
    pub(crate) fn signs(
        &self,
        received: &[Outputs],
        range: &Range<usize>,
        mut found: impl FnMut(usize, Range<usize>, &[u64]),
    ) -> Result<(), Error> {
        let mut words = Secret::new(Wiped(Vec::<u64>::new()));
        self.each_block(received, range, |number, columns, outputs| {
            let words = words.expose_mut();
            words.clear();
            words.extend(outputs.as_chunks().0.iter().map(signs));
            found(number, columns, words);
        })
    }

    /// The same for any outputs: the class of the largest output of each sample; the last one's is 0 if it is missing.
    pub(crate) fn labels(
        &self,
        received: &[Outputs],
        range: &Range<usize>,
        classes: usize,
        mut found: impl FnMut(usize, Range<usize>, &[u16]),
    ) -> Result<(), Error> {
        let mut best = Secret::new(Wiped(Vec::new()));
        let mut labels = Secret::new(Wiped(Vec::new()));
        self.each_block(received, range, |number, columns, outputs| {
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
        received: &[Outputs],
        range: &Range<usize>,
        mut block: impl FnMut(usize, Range<usize>, &[i64]),
    ) -> Result<(), Error> {
        let first = received.first().filter(|_| received.len() == self.combinations.sent.len());
        let first = first.ok_or_else(missing)?;
        let (field, rows) = (first.field, first.rows());
        let (kinds, kind_of) = kinds(self.selections, range);
        let (visits, steps) = (&self.order.visits, &self.order.steps);
        let kept = self.levels + steps.len() + received.len();
        let room = MAX_NUMBERS / (rows * kept).max(1);
        let most = (room / WORD * WORD).clamp(WORD, MAX_COLUMNS);
        let [mut sums, mut terms, mut added] = [self.levels, received.len(), steps.len()]
            .map(|count| Secret::new(Wiped(vec![0; count * rows * most])));
        for (kind, wanted) in kinds.iter().enumerate().filter(|(_, wanted)| !wanted.is_empty()) {
            let sources = self.sources(range, wanted);
            let visits: Vec<&Visit> = visits.iter().filter(|visit| kind_of[visit.number] == kind).collect();
            let after = |visit: &Visit| visit.after.filter(|(other, _)| kind_of[*other] == kind);
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
                let add_up = |made_of: &Terms, sums: &mut [i64]| {
                    let is_there =
                        |from: usize| !matches!(sources.get(from), None | Some(SumSource::Elsewhere));
                    sum_up(field, made_of, is_there, terms, sums)
                };
                // Steps of other coalitions may not be there: these are not taken.
                let steps = steps.iter().zip(added.expose_mut().chunks_exact_mut(size));
                let is_there: Vec<bool> = steps.map(|((_, step), sums)| add_up(step, sums)).collect();
                for visit in &visits {
                    let (above, sums) = sums.expose_mut().split_at_mut(visit.level * size);
                    let sums = &mut sums[..size];
                    let is_found = match after(visit) {
                        Some((_, Step { of, is_added })) => {
                            let before = &above[above.len() - size..];
                            add_step(is_added, sums, before, &added.expose()[of * size..][..size]);
                            centre(field, sums);
                            is_there[of]
                        }
                        None => add_up(&self.combinations.terms[visit.number], sums),
                    };
                    if !is_found {
                        return Err(missing());
                    }
                    block(visit.number, now.clone(), sums);
                }
            }
        }
        Ok(())
    }

    /// Where outputs on some places are, all of those in a range that a coalition is tested on.
    fn sources(&self, range: &Range<usize>, wanted: &[usize]) -> Vec<SumSource> {
        let of = |&sent: &usize| {
            let selection = &self.selections[sent];
            match selection.within(range) == wanted {
                true => SumSource::From(selection.places.partition_point(|&place| place < range.start)),
                false => columns(wanted, &selection.places).map_or(SumSource::Elsewhere, SumSource::At),
            }
        };
        self.combinations.sent.iter().map(of).collect()
    }
}

impl Order {
    /// Each coalition after the one that it follows from, and before others that do not follow from the latter.
    fn new(field: Field, coalitions: &[Coalition], terms: &[Terms]) -> Self {
        let numbers: HashMap<Coalition, usize> = coalitions.iter().copied().zip(0..terms.len()).collect();
        let everybody = coalitions.iter().fold(Coalition::EMPTY, |all, &coalition| all.union(coalition));
        let clients: Vec<usize> = everybody.members().collect();
        let mut order = Self { visits: Vec::with_capacity(terms.len()), steps: Vec::new() };
        let mut is_known = vec![false; terms.len()];
        let mut following: Vec<Vec<(usize, Step)>> = vec![Vec::new(); terms.len()];
        for root in 0..terms.len() {
            if std::mem::replace(&mut is_known[root], true) {
                continue;
            }
            // The nearest first, so that few sums are to be kept.
            let mut queue = VecDeque::from([(root, 1)]);
            while let Some((number, levels)) = queue.pop_front() {
                for &client in clients.iter().filter(|_| levels < MAX_LEVELS) {
                    let (is_added, other) = match coalitions[number].contains(client) {
                        true => (false, coalitions[number].without(client)),
                        false => (true, coalitions[number].with(client)),
                    };
                    let Some(&other) = numbers.get(&other).filter(|&&other| !is_known[other]) else {
                        continue;
                    };
                    let (more, less) = if is_added { (other, number) } else { (number, other) };
                    let difference = difference(field, &terms[more], &terms[less]);
                    let Some(of) = order.step(client, difference, terms.len()) else { continue };
                    is_known[other] = true;
                    following[number].push((other, Step { of, is_added }));
                    queue.push_back((other, levels + 1));
                }
            }
            let mut open = vec![Visit { number: root, level: 0, after: None }];
            while let Some(visit) = open.pop() {
                order.visits.push(visit);
                let follow = |&(number, step): &_| Visit {
                    number,
                    level: visit.level + 1,
                    after: Some((visit.number, step)),
                };
                open.extend(following[visit.number].iter().map(follow));
            }
        }
        order
    }

    /// The number of a step, which may be a new one if there are few beside so many coalitions. What a client adds is
    /// nearly always made of the same.
    fn step(&mut self, client: usize, terms: Terms, coalitions: usize) -> Option<usize> {
        let known = self.steps.iter().position(|(of, known)| *of == client && *known == terms);
        known.or_else(|| {
            let is_room = 8 * self.steps.len() < coalitions;
            is_room.then(|| {
                self.steps.push((client, terms));
                self.steps.len() - 1
            })
        })
    }
}

impl SumSource {
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

/// Adds up terms, all as long as `sums`, by their factors; false where one is not there.
fn sum_up(
    field: Field,
    made_of: &Terms,
    is_there: impl Fn(usize) -> bool,
    terms: &[i64],
    sums: &mut [i64],
) -> bool {
    sums.fill(0);
    for &(from, factor) in made_of {
        if !is_there(from) {
            return false;
        }
        let size = sums.len();
        add(field, factor, sums, terms[from * size..][..size].iter().copied());
    }
    centre(field, sums);
    true
}

fn missing() -> Error {
    Error::Local { what: "outputs that others follow from" }
}

/// What remains of multiples of what was sent without others.
fn difference(field: Field, terms: &Terms, others: &Terms) -> Terms {
    let mut difference = Vec::with_capacity(terms.len() + others.len());
    let (mut terms, mut others) = (terms.iter().copied().peekable(), others.iter().copied().peekable());
    loop {
        let next = match (terms.peek(), others.peek()) {
            (None, None) => return difference,
            (Some((from, _)), Some((other, _))) => *from.min(other),
            (Some((from, _)), None) | (None, Some((from, _))) => *from,
        };
        let factor = terms.next_if(|(from, _)| *from == next).map_or(0, |(_, factor)| factor);
        let other = others.next_if(|(from, _)| *from == next).map_or(0, |(_, factor)| factor);
        let rest = field.sub(factor, other);
        difference.extend((rest != 0).then_some((next, rest)));
    }
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

/// Sums of numbers and others, or what remains without these.
fn add_step(is_added: bool, sums: &mut [i64], before: &[i64], step: &[i64]) {
    let all = sums.iter_mut().zip(before).zip(step);
    match is_added {
        true => all.for_each(|((sum, before), x)| *sum = before + x),
        false => all.for_each(|((sum, before), x)| *sum = before - x),
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
                    _ => place.is_multiple_of(kind),
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
            let coalitions: Vec<Coalition> = members.iter().map(|list| list.iter().copied().collect()).collect();
            let derivation = Derivation::new(field, &combinations, &coalitions, &selections);
            for range in &ranges {
                let expected = one_by_one(&combinations, &selections, &received, range, classes);
                let mut found = vec![Vec::new(); selections.len()];
                derivation.labels(&received, range, classes, |number, samples, labels| {
                    assert_eq!((samples.start, samples.len()), (found[number].len(), labels.len()));
                    found[number].extend_from_slice(labels);
                }).unwrap();
                prop_assert_eq!(&found, &expected);
                if (classes, rows) != (2, 1) {
                    continue;
                }
                found.iter_mut().for_each(Vec::clear);
                derivation.signs(&received, range, |number, samples, words| {
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
    fn nearly_each_coalition_is_one_addition_away_from_another() {
        let all = selection(3, 0..3);
        let field = Field::standard();
        // Those that client 0 takes if it agrees with client 1, and what is left to client 1 that agrees with client 2.
        let of_first = |bits: &u128| bits & 1 == bits >> 1 & 1;
        let of_second = |bits: &u128| !of_first(bits) && bits >> 1 & 1 == bits >> 2 & 1;
        for (is_taken, count) in [(&of_first as &dyn Fn(&u128) -> bool, 511), (&of_second, 256)] {
            let coalitions: Vec<Coalition> =
                (1..1 << 10).filter(is_taken).map(Coalition::from_bits).collect();
            let members: Vec<Vec<usize>> = coalitions.iter().map(|c| c.members().collect()).collect();
            let combinations = Combinations::new(field, &members, &vec![all.clone(); members.len()]);
            let Order { visits, steps } = Order::new(field, &coalitions, &combinations.terms);
            assert_eq!((visits.len(), combinations.sent.len()), (count, 9));
            assert_eq!(visits.iter().filter(|visit| visit.after.is_none()).count(), 2);
            assert!(visits.iter().all(|visit| visit.level < 10) && steps.len() < 10);
        }
    }
}

//! Sign of a number under a mask, 64 samples at a time.
//!
//! Both servers know y = T + v modulo 2^l, the owner knows v. T is at least 0 exactly if
//! 1 ^ top(y) ^ top(v) ^ [v' > y'], where ' leaves out the top bit. The comparison goes by **digits** of at most three bits, the
//! highest first: whether v's is greater and whether it is equal are linear in the products of v's bits, with coefficients that
//! y gives. The owner deals shares of these products. Then neighbouring digits are joined, two or three at a time: greater is
//! g0 ^ e0 g1 ^ e0 e1 g2, equal e0 e1 e2. For that the servers open g and e under masks of the owner, who deals the products of
//! the masks. The lowest digit need not be equal to anything.
//!
//! Many numbers are compared at once: a plane has a word for each 64 of them, and planes stand one behind the other. A server's
//! functions take and return planes of its shares; `one` is its share of the constant 1. "Numbers" are words of a plane.
//!
//! Several numbers may have one mask, as T less each knot of a function has: products of v's bits are dealt once for all of them. What
//! is opened of each has masks of its own.

use super::wide::{Wide, planes_of, vectorised};

/// Bits of a digit, at most. Of 2, 3 and 4 this takes the fewest bytes: 25 for the sign of a number of 40 bits.
const DIGIT: usize = 3;
/// Digits, or results of earlier joins, that are joined, at most.
const JOINED: usize = 3;

/// Where "equal" of the first stands, behind "greater" of all.
const EQUAL: usize = JOINED;
/// Products of masks of what is joined: greater of each is 0, 1 and 2, equal of each 3, 4 and 5.
const PRODUCTS: [&[usize]; 8] =
    [&[3, 1], &[3, 4], &[3, 2], &[4, 2], &[3, 4, 2], &[3, 5], &[4, 5], &[3, 4, 5]];

/// Digits, or results of earlier joins, that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Join {
    size: usize,
    /// Whether "equal" is needed: not where the lowest digit is among them.
    equal: bool,
}

impl Join {
    /// Products of masks that are dealt.
    fn dealt(self) -> usize {
        PRODUCTS.iter().filter(|factors| self.has(factors)).count()
    }

    /// Whether a product is of factors that it has.
    fn has(self, factors: &[usize]) -> bool {
        factors.iter().all(|&factor| self.places()[factor].is_some())
    }

    /// Planes that are opened: greater and equal of each in turn, the last's "equal" where it is needed.
    fn opened(self) -> usize {
        2 * self.size - usize::from(!self.equal)
    }

    /// Where the planes of greater of each and of equal of each stand among what is opened.
    fn places(self) -> [Option<usize>; 2 * JOINED] {
        std::array::from_fn(|factor| {
            let (number, is_equal) = (factor % JOINED, factor / JOINED);
            let place = 2 * number + is_equal;
            (place < self.opened()).then_some(place)
        })
    }

    /// Where each product stands among what is dealt.
    fn dealt_places(self) -> [Option<usize>; PRODUCTS.len()] {
        let mut next = 0..;
        PRODUCTS.map(|factors| if self.has(factors) { next.next() } else { None })
    }

    /// The products that are dealt: the places of their factors among what is opened.
    fn products(self) -> impl Iterator<Item = Vec<usize>> {
        let dealt = PRODUCTS.into_iter().filter(move |factors| self.has(factors));
        dealt.map(move |factors| factors.iter().filter_map(|&factor| self.places()[factor]).collect())
    }
}

/// What is compared at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    /// Words of a plane of v.
    pub words: usize,
    /// How many numbers there are for each v, all of the first ones before all of the second ones.
    pub times: usize,
}

impl Compared {
    /// Numbers that have a mask each, in so many words.
    pub(super) fn once(words: usize) -> Self {
        Self { words, times: 1 }
    }

    /// Words of a plane of all numbers.
    pub(super) fn all(self) -> usize {
        self.words * self.times
    }
}

/// The shape of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Bits of y and v, the top one included.
    bits: usize,
    /// Where each digit ends below, and its size, the highest first.
    digits: Vec<(usize, usize)>,
    /// Joins, level by level.
    levels: Vec<Vec<Join>>,
}

impl Comparison {
    /// A comparison of numbers of so many bits, at least two.
    pub(super) fn new(bits: usize) -> Self {
        let mut digits = Vec::new();
        let mut high = bits - 1;
        while high > 0 {
            let low = high.saturating_sub(DIGIT);
            digits.push((low, high - low));
            high = low;
        }
        let mut levels = Vec::new();
        let mut count = digits.len();
        while count > 1 {
            // Of equal size, as nearly as can be: none is left over.
            let joins = count.div_ceil(JOINED);
            let bound = |k: usize| k * count / joins;
            let join = |k| Join { size: bound(k + 1) - bound(k), equal: k + 1 < joins };
            levels.push((0..joins).map(join).collect());
            count = joins;
        }
        Self { bits, digits, levels }
    }

    /// Steps at which something is opened: before each join, and the sign.
    pub(super) fn steps(&self) -> usize {
        self.levels.len() + 1
    }

    /// Planes that a step opens: greater and equal of everything that is joined next, the lowest without equal; or the sign.
    pub(super) fn opened(&self, step: usize) -> usize {
        let joined = |joins: &Vec<Join>| joins.iter().map(|join| join.opened()).sum();
        self.levels.get(step).map_or(1, joined)
    }

    /// Words that are dealt for a step: products of v's bits or of the masks of the step before; for the sign v's top bit too.
    pub(super) fn dealt(&self, step: usize, compared: Compared) -> usize {
        let products = match step.checked_sub(1) {
            None => self.digits.iter().map(|(_, size)| (1 << size) - 1).sum::<usize>() * compared.words,
            Some(level) => self.levels[level].iter().map(|join| join.dealt()).sum::<usize>() * compared.all(),
        };
        products + if step == self.levels.len() { compared.words } else { 0 }
    }

    /// What the owner deals for a step. `value` are the planes of v; `masks` those of what the step before opened.
    pub(super) fn deal(
        &self,
        step: usize,
        value: &[u64],
        masks: &[u64],
        compared: Compared,
        out: &mut Vec<u64>,
    ) {
        let value = |bit| plane(value, bit, compared.words);
        match step.checked_sub(1) {
            None => {
                for &(low, size) in &self.digits {
                    for subset in 1usize..1 << size {
                        let mut bits = (0..size).filter(|bit| subset >> bit & 1 == 1);
                        let first = bits.next().unwrap_or(0);
                        let begin = out.len();
                        out.extend_from_slice(value(low + first));
                        bits.for_each(|bit| and(&mut out[begin..], value(low + bit)));
                    }
                }
            }
            Some(level) => self.deal_joins(level, masks, compared.all(), out),
        }
        if step == self.levels.len() {
            out.extend_from_slice(value(self.bits - 1));
        }
    }

    /// Products of the masks of what a level joins.
    fn deal_joins(&self, level: usize, masks: &[u64], numbers: usize, out: &mut Vec<u64>) {
        let mut first = 0;
        for join in &self.levels[level] {
            for factors in join.products() {
                let begin = out.len();
                for (index, &factor) in factors.iter().enumerate() {
                    let mask = plane(masks, first + factor, numbers);
                    if index == 0 { out.extend_from_slice(mask) } else { and(&mut out[begin..], mask) }
                }
            }
            first += join.opened();
        }
    }

    /// Shares of what a step opens. `public` are the planes of y; `before` is what the step before opened and the server's shares of
    /// its masks; `dealt` are the server's shares of what was dealt for this step.
    pub(super) fn step(
        &self,
        step: usize,
        public: &[u64],
        before: Before<'_>,
        dealt: &[u64],
        (compared, one): (Compared, u64),
        out: &mut Vec<u64>,
    ) {
        let numbers = compared.all();
        let begin = out.len();
        out.resize(begin + self.opened(step) * numbers, 0);
        let found = &mut out[begin..];
        let is_last = step == self.levels.len();
        vectorised(|| match step.checked_sub(1) {
            None => {
                for time in 0..compared.times {
                    self.digits(public, dealt, (compared, time, one), found);
                }
            }
            Some(level) => self.join(level, before, dealt, (numbers, one), found),
        });
        if is_last {
            let top = plane(public, self.bits - 1, numbers);
            let of_top = &dealt[dealt.len() - compared.words..];
            for (found, top) in found.chunks_mut(compared.words.max(1)).zip(top.chunks(compared.words.max(1)))
            {
                found.iter_mut().zip(top).zip(of_top).for_each(|((sign, y), v)| *sign ^= v ^ (!y & one));
            }
        }
    }

    /// Shares of greater and equal of every digit, of the numbers that stand `time`-th for each v.
    #[inline(always)]
    fn digits(
        &self,
        public: &[u64],
        dealt: &[u64],
        (compared, time, one): (Compared, usize, u64),
        found: &mut [u64],
    ) {
        let (all, numbers) = (compared.all(), compared.words);
        let place = |index: usize| index * all + time * numbers;
        let (mut first, mut to) = (0, 0);
        for (index, &(low, size)) in self.digits.iter().enumerate() {
            let has_equal = index + 1 < self.digits.len();
            // Bits that the digit lacks are equal.
            let y = |bit: usize| (bit < size).then(|| &public[place(low + bit)..][..numbers]);
            let s = |subset: usize| (subset < 1 << size).then(|| plane(dealt, first + subset - 1, numbers));
            let y = [y(0), y(1), y(2)];
            let s = [s(1), s(2), s(3), s(4), s(5), s(6), s(7)];
            planes_of(numbers, |at| {
                let (greater, equal) =
                    digit(y.map(|y| !Wide::load(y, at)), s.map(|s| Wide::load(s, at)), one);
                greater.store(&mut found[place(to)..][..numbers], at);
                if has_equal {
                    equal.store(&mut found[place(to + 1)..][..numbers], at);
                }
            });
            first += (1 << size) - 1;
            to += 1 + usize::from(has_equal);
        }
    }

    /// Shares of what a level's joins give.
    #[inline(always)]
    fn join(
        &self,
        level: usize,
        before: Before<'_>,
        dealt: &[u64],
        (numbers, one): (usize, u64),
        found: &mut [u64],
    ) {
        let (mut first, mut of_join, mut to) = (0, 0, 0);
        for join in &self.levels[level] {
            let places = join.places();
            let factors =
                |planes| places.map(|place: Option<usize>| place.map(|k| plane(planes, first + k, numbers)));
            let (opened, masks) = (factors(before.opened), factors(before.masks));
            let dealt = join.dealt_places().map(|place| place.map(|k| plane(dealt, of_join + k, numbers)));
            planes_of(numbers, |at| {
                let load = |planes: [Option<&[u64]>; 6]| planes.map(|plane| Wide::load(plane, at));
                let mut opened = load(opened);
                if join.size == 2 {
                    // What is not there is equal.
                    opened[EQUAL + 2] = Wide::ONES;
                }
                let dealt = dealt.map(|plane| Wide::load(plane, at));
                let (greater, equal) = joined(opened, load(masks), dealt, one);
                greater.store(&mut found[to * numbers..][..numbers], at);
                if join.equal {
                    equal.store(&mut found[(to + 1) * numbers..][..numbers], at);
                }
            });
            first += join.opened();
            of_join += join.dealt();
            to += 1 + usize::from(join.equal);
        }
    }
}

/// What the step before opened, and the server's shares of its masks.
#[derive(Clone, Copy, Default)]
pub(super) struct Before<'a> {
    pub opened: &'a [u64],
    pub masks: &'a [u64],
}

/// One plane of many numbers.
fn plane(planes: &[u64], index: usize, numbers: usize) -> &[u64] {
    &planes[index * numbers..][..numbers]
}

fn and(planes: &mut [u64], other: &[u64]) {
    planes.iter_mut().zip(other).for_each(|(plane, other)| *plane &= other);
}

/// Shares of greater and equal of a digit of three bits. `unlike` are y's bits turned over, `s` shares of the products of v's bits:
/// of the bits of 1, 2, 3 and so on.
#[inline(always)]
fn digit(unlike: [Wide; 3], s: [Wide; 7], one: u64) -> (Wide, Wide) {
    let [a, b, c] = unlike;
    let [s1, s2, s3, s4, s5, s6, s7] = s;
    let (bc, ac, ab) = (b & c, a & c, a & b);
    // y's bit is 0, v's is 1, and all above are equal.
    let greater = (c & s4) ^ (b & ((s2 & c) ^ s6)) ^ (a & ((s1 & bc) ^ (s3 & c) ^ (s5 & b) ^ s7));
    let ones = Wide::of(one) & a & bc;
    let equal = ones ^ (s1 & bc) ^ (s2 & ac) ^ (s4 & ab) ^ (s3 & c) ^ (s5 & b) ^ (s6 & a) ^ s7;
    (greater, equal)
}

/// Shares of greater and equal of three neighbours. `x` is what was opened and `u` are shares of its masks: greater of each, then
/// equal of each; `d` are shares of products of masks, in the order of [`PRODUCTS`].
#[inline(always)]
fn joined(x: [Wide; 6], u: [Wide; 6], d: [Wide; 8], one: u64) -> (Wide, Wide) {
    let one = Wide::of(one);
    let [xg0, xg1, xg2, x0, x1, x2] = x;
    let [g0, g1, g2, e0, e1, e2] = u;
    let [e0g1, e0e1, e0g2, e1g2, e0e1g2, e0e2, e1e2, e0e1e2] = d;
    let x01 = x0 & x1;
    let both = (one & x01) ^ (e0 & x1) ^ (e1 & x0) ^ e0e1;
    let first = (xg0 & one) ^ g0;
    let second = (x0 & xg1 & one) ^ (xg1 & e0) ^ (x0 & g1) ^ e0g1;
    let third = (xg2 & both) ^ (g2 & x01) ^ (e0g2 & x1) ^ (e1g2 & x0) ^ e0e1g2;
    let equal = (x2 & both) ^ (e2 & x01) ^ (e0e2 & x1) ^ (e1e2 & x0) ^ e0e1e2;
    (first ^ second ^ third, equal)
}

#[cfg(test)]
mod tests;

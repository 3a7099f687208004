//! Sign of a number under a mask, 64 samples at a time.
//!
//! Both servers know y = T + v modulo 2^l, the owner knows v. T is at least 0 exactly if
//! 1 ^ top(y) ^ top(v) ^ [v' > y'], where ' leaves out the top bit. The comparison goes by **digits** of at most three bits, the
//! highest first: whether v's is greater and whether it is equal are linear in the products of v's bits, with coefficients that
//! y gives. The owner deals shares of these products. Then neighbouring digits are joined, two or three at a time: greater is
//! g0 ^ e0 g1 ^ e0 e1 g2, equal e0 e1 e2. For that the servers open g and e under masks of the owner, who deals the products of
//! the masks. The lowest digit need not be equal to anything.
//!
//! A server's functions take and return planes of its shares; `one` is its share of the constant 1.

use super::products::{masked_product, products};

/// Bits of a digit, at most. Of 2, 3 and 4 this takes the fewest bytes: 25 for the sign of a number of 40 bits.
const DIGIT: usize = 3;
/// Digits, or results of earlier joins, that are joined, at most.
const JOINED: usize = 3;

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
        match (self.size, self.equal) {
            (2, false) => 1,
            (2, true) => 2,
            (_, false) => 5,
            (_, true) => 8,
        }
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
        let joined = |joins: &Vec<Join>| 2 * joins.iter().map(|join| join.size).sum::<usize>() - 1;
        self.levels.get(step).map_or(1, joined)
    }

    /// Planes that are dealt for a step: products of v's bits or of the masks of the step before; for the sign v's top bit too.
    pub(super) fn dealt(&self, step: usize) -> usize {
        let products = match step.checked_sub(1) {
            None => self.digits.iter().map(|(_, size)| (1 << size) - 1).sum::<usize>(),
            Some(level) => self.levels[level].iter().map(|join| join.dealt()).sum(),
        };
        products + usize::from(step == self.levels.len())
    }

    /// What the owner deals for a step. `value` are the planes of v; `masks` those of what the step before opened.
    pub(super) fn deal(&self, step: usize, value: &[u64], masks: &[u64], out: &mut Vec<u64>) {
        match step.checked_sub(1) {
            None => {
                for &(low, size) in &self.digits {
                    let bits = products(&value[low..low + size]);
                    out.extend(&bits[1..1 << size]);
                }
            }
            Some(level) => self.deal_joins(level, masks, out),
        }
        if step == self.levels.len() {
            out.push(value[self.bits - 1]);
        }
    }

    /// Products of the masks of what a level joins.
    fn deal_joins(&self, level: usize, masks: &[u64], out: &mut Vec<u64>) {
        let mut masks = masks;
        for join in &self.levels[level] {
            let factors = Factors::take(&mut masks, *join);
            let [g1, g2] = [factors.greater[1], factors.greater[2]];
            let [e0, e1, e2] = factors.equal;
            out.push(e0 & g1);
            match (join.size, join.equal) {
                (2, false) => {}
                (2, true) => out.push(e0 & e1),
                (_, equal) => {
                    out.extend([e0 & e1, e0 & g2, e1 & g2, e0 & e1 & g2]);
                    if equal {
                        out.extend([e0 & e2, e1 & e2, e0 & e1 & e2]);
                    }
                }
            }
        }
    }

    /// Shares of what a step opens. `public` are the planes of y; `opened` is what the step before opened, `masks` the server's
    /// shares of its masks, `dealt` those of what was dealt for this step.
    pub(super) fn step(
        &self,
        step: usize,
        public: &[u64],
        (opened, masks): (&[u64], &[u64]),
        dealt: &[u64],
        one: u64,
        out: &mut Vec<u64>,
    ) {
        match step.checked_sub(1) {
            None => self.digits(public, dealt, one, out),
            Some(level) => self.join(level, (opened, masks), dealt, one, out),
        }
        if step == self.levels.len()
            && let (Some(greater), Some(top)) = (out.last_mut(), dealt.last())
        {
            *greater ^= top ^ (!public[self.bits - 1] & one);
        }
    }

    /// Shares of greater and equal of every digit.
    fn digits(&self, public: &[u64], dealt: &[u64], one: u64, out: &mut Vec<u64>) {
        let mut dealt = dealt;
        for (index, &(low, size)) in self.digits.iter().enumerate() {
            let mut shares = [0; 1 << DIGIT];
            shares[0] = one;
            shares[1..1 << size].copy_from_slice(&dealt[..(1 << size) - 1]);
            dealt = &dealt[(1 << size) - 1..];
            let mut unlike = [0; DIGIT];
            unlike.iter_mut().zip(&public[low..low + size]).for_each(|(unlike, bit)| *unlike = !bit);
            let coefficients = products(&unlike[..size]);
            let mut greater = 0;
            for bit in 0..size {
                // y's bit is 0, v's is 1, and all above are equal.
                let above = ((1 << size) - 1) & !((2 << bit) - 1);
                let mut sum = shares[1 << bit] & coefficients[above];
                let mut part = above;
                while part != 0 {
                    sum ^= shares[part | 1 << bit] & coefficients[above ^ part];
                    part = (part - 1) & above;
                }
                greater ^= sum & unlike[bit];
            }
            out.push(greater);
            if index + 1 < self.digits.len() {
                out.push(masked_product(&coefficients, &shares, size));
            }
        }
    }

    /// Shares of what a level's joins give.
    fn join(
        &self,
        level: usize,
        (opened, masks): (&[u64], &[u64]),
        dealt: &[u64],
        one: u64,
        out: &mut Vec<u64>,
    ) {
        let (mut dealt, mut opened, mut masks) = (dealt, opened, masks);
        for join in &self.levels[level] {
            let (public, mask) = (Factors::take(&mut opened, *join), Factors::take(&mut masks, *join));
            let (x, u) = (public, mask);
            let mut greater = (x.greater[0] & one) ^ u.greater[0];
            let pair = |a: usize, b: usize, product: u64| {
                let (xa, xb) = (x.equal[a], x.greater[b]);
                (xa & xb & one) ^ (xb & u.equal[a]) ^ (xa & u.greater[b]) ^ product
            };
            greater ^= pair(0, 1, dealt[0]);
            let mut equal = 0;
            if join.size == 2 {
                let [x0, x1, _] = x.equal;
                if join.equal {
                    equal = (x0 & x1 & one) ^ (x1 & u.equal[0]) ^ (x0 & u.equal[1]) ^ dealt[1];
                }
            } else {
                let [x0, x1, x2] = x.equal;
                let coefficients = products(&[x0, x1, x.greater[2]]);
                let shares =
                    [one, u.equal[0], u.equal[1], dealt[1], u.greater[2], dealt[2], dealt[3], dealt[4]];
                greater ^= masked_product(&coefficients, &shares, 3);
                if join.equal {
                    let coefficients = products(&[x0, x1, x2]);
                    let shares =
                        [one, u.equal[0], u.equal[1], dealt[1], u.equal[2], dealt[5], dealt[6], dealt[7]];
                    equal = masked_product(&coefficients, &shares, 3);
                }
            }
            dealt = &dealt[join.dealt()..];
            out.push(greater);
            if join.equal {
                out.push(equal);
            }
        }
    }
}

/// Planes of greater and equal of what is joined; zero where there is none.
#[derive(Clone, Copy, Default)]
struct Factors {
    greater: [u64; JOINED],
    equal: [u64; JOINED],
}

impl Factors {
    /// Takes them from the front. Where equal is not needed the last has none.
    fn take(planes: &mut &[u64], join: Join) -> Self {
        let mut factors = Self::default();
        for i in 0..join.size {
            factors.greater[i] = planes[0];
            let both = join.equal || i + 1 < join.size;
            if both {
                factors.equal[i] = planes[1];
            }
            *planes = &planes[if both { 2 } else { 1 }..];
        }
        factors
    }
}

#[cfg(test)]
mod tests;

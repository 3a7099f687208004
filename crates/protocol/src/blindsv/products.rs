//! Products of bits under masks: with x^ = x ^ u, the product of several x is the sum over subsets of the product of the opened x^
//! outside the subset and of the masks u inside it. The owner of the masks deals shares of their products.

use super::comparison::Before;

/// Factors of a product, at most.
const MAX_FACTORS: usize = 4;
/// Subsets of them.
const SUBSETS: usize = 1 << MAX_FACTORS;

/// The product of every subset of some planes, by the subset's bits; that of none is 1.
fn products(planes: &[u64]) -> [u64; SUBSETS] {
    let mut products = [u64::MAX; SUBSETS];
    for (i, plane) in planes.iter().enumerate() {
        for subset in 0..1 << i {
            products[subset | 1 << i] = products[subset] & plane;
        }
    }
    products
}

/// A share of the product of `size` bits. `opened` are products of the opened bits, `shares` shares of products of the masks.
fn masked_product(opened: &[u64; SUBSETS], shares: &[u64], size: usize) -> u64 {
    let all = (1 << size) - 1;
    (0..=all).fold(0, |sum, subset| sum ^ (shares[subset] & opened[all ^ subset]))
}

/// How many planes are joined by "and" so that one is left: groups of at most four, level by level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conjunction {
    levels: Vec<Vec<usize>>,
}

impl Conjunction {
    /// Of so many bits. One bit needs no level.
    pub(super) fn new(bits: usize) -> Self {
        let mut levels = Vec::new();
        let mut count = bits;
        while count > 1 {
            let groups = count.div_ceil(MAX_FACTORS);
            let bound = |k: usize| k * count / groups;
            levels.push((0..groups).map(|k| bound(k + 1) - bound(k)).collect::<Vec<_>>());
            count = groups;
        }
        Self { levels }
    }

    pub(super) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Planes that a level leaves.
    pub(super) fn left(&self, level: usize) -> usize {
        self.levels[level].len()
    }

    /// Products of masks that are dealt for a level.
    pub(super) fn dealt(&self, level: usize) -> usize {
        self.levels[level].iter().map(|&size| (1 << size) - 1 - size).sum()
    }

    /// What the owner deals for a level, for planes of so many words. `masks` are those of the bits that it takes.
    pub(super) fn deal(&self, level: usize, masks: &[u64], words: usize, out: &mut Vec<u64>) {
        let mut first = 0;
        for &size in &self.levels[level] {
            let group = &masks[first * words..(first + size) * words];
            for subset in (1usize..1 << size).filter(|subset| !subset.is_power_of_two()) {
                let product = |word| {
                    let bits = (0..size).filter(|bit| subset >> bit & 1 == 1);
                    bits.fold(u64::MAX, |product, bit| product & group[bit * words + word])
                };
                out.extend((0..words).map(product));
            }
            first += size;
        }
    }

    /// Shares of what a level leaves. `before` are the bits that it takes and the server's shares of their masks; `dealt` are shares
    /// of what was dealt for it.
    pub(super) fn join(
        &self,
        level: usize,
        before: Before<'_>,
        dealt: &[u64],
        (words, one): (usize, u64),
        out: &mut Vec<u64>,
    ) {
        let (mut first, mut of_group) = (0, 0);
        for &size in &self.levels[level] {
            for word in 0..words {
                let mut dealt = (of_group..).map(|place| dealt[place * words + word]);
                let mut opened = [0; MAX_FACTORS];
                let mut shares = [0; SUBSETS];
                shares[0] = one;
                for (subset, share) in shares.iter_mut().enumerate().take(1 << size).skip(1) {
                    let bit = subset.trailing_zeros() as usize;
                    *share = match subset.is_power_of_two() {
                        true => before.masks[(first + bit) * words + word],
                        false => dealt.next().unwrap_or(0),
                    };
                }
                for (bit, opened) in opened[..size].iter_mut().enumerate() {
                    *opened = before.opened[(first + bit) * words + word];
                }
                out.push(masked_product(&products(&opened[..size]), &shares, size));
            }
            first += size;
            of_group += (1 << size) - 1 - size;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Two servers with shares of masks and products find shares of the conjunction.
        #[test]
        fn a_conjunction_is_shared(bits in prop::collection::vec(any::<u64>(), 1..20), seed: u64) {
            let conjunction = Conjunction::new(bits.len());
            let mut state = seed | 1;
            let mut draw = || { state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed | 3); state ^ state >> 29 };
            let count = bits.len() + (0..conjunction.levels()).map(|level| conjunction.left(level)).sum::<usize>();
            let masks: [Vec<u64>; 2] = [(0..count).map(|_| draw()).collect(), (0..count).map(|_| draw()).collect()];
            let sum: Vec<u64> = masks[0].iter().zip(&masks[1]).map(|(a, b)| a ^ b).collect();
            let expected = bits.iter().fold(u64::MAX, |all, bit| all & bit);
            let mut first = 0;
            let mut opened: Vec<u64> = bits.iter().zip(&sum).map(|(bit, mask)| bit ^ mask).collect();
            for level in 0..conjunction.levels() {
                let mut dealt = Vec::new();
                conjunction.deal(level, &sum[first..first + opened.len()], 1, &mut dealt);
                prop_assert_eq!(dealt.len(), conjunction.dealt(level));
                let own: Vec<u64> = dealt.iter().map(|_| draw()).collect();
                let rest: Vec<u64> = dealt.iter().zip(&own).map(|(a, b)| a ^ b).collect();
                let [mut p, mut a] = [Vec::new(), Vec::new()];
                let before = |server: usize| Before { opened: &opened, masks: &masks[server][first..] };
                conjunction.join(level, before(0), &own, (1, u64::MAX), &mut p);
                conjunction.join(level, before(1), &rest, (1, 0), &mut a);
                first += opened.len();
                opened = p.iter().zip(&a).zip(&sum[first..]).map(|((p, a), mask)| p ^ a ^ mask).collect();
            }
            prop_assert_eq!(opened[0] ^ sum[first], expected);
        }
    }
}

//! Products of bits under masks: with x^ = x ^ u, the product of several x is the sum over subsets of the product of the opened x^
//! outside the subset and of the masks u inside it. The owner of the masks deals shares of their products.

/// Factors of a product, at most.
pub(super) const MAX_FACTORS: usize = 4;
/// Subsets of them.
const SUBSETS: usize = 1 << MAX_FACTORS;

/// The product of every subset of some planes, by the subset's bits; that of none is 1.
pub(super) fn products(planes: &[u64]) -> [u64; SUBSETS] {
    let mut products = [u64::MAX; SUBSETS];
    for (i, plane) in planes.iter().enumerate() {
        for subset in 0..1 << i {
            products[subset | 1 << i] = products[subset] & plane;
        }
    }
    products
}

/// A share of the product of `size` bits. `opened` are products of the opened bits, `shares` shares of products of the masks.
pub(super) fn masked_product(opened: &[u64; SUBSETS], shares: &[u64], size: usize) -> u64 {
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

    /// What the owner deals for a level. `masks` are those of the bits that it takes.
    pub(super) fn deal(&self, level: usize, masks: &[u64], out: &mut Vec<u64>) {
        let mut masks = masks;
        for &size in &self.levels[level] {
            let (group, rest) = masks.split_at(size);
            masks = rest;
            let products = products(group);
            out.extend((1usize..1 << size).filter(|subset| !subset.is_power_of_two()).map(|s| products[s]));
        }
    }

    /// Shares of what a level leaves. `opened` are the bits it takes, `masks` the server's shares of their masks, `dealt` those of what
    /// was dealt for it.
    pub(super) fn join(
        &self,
        level: usize,
        (opened, masks): (&[u64], &[u64]),
        dealt: &[u64],
        one: u64,
        out: &mut Vec<u64>,
    ) {
        let mut dealt = dealt.iter().copied();
        let mut first = 0;
        for &size in &self.levels[level] {
            let (opened, masks) = (&opened[first..first + size], &masks[first..first + size]);
            first += size;
            let mut shares = [0; SUBSETS];
            shares[0] = one;
            for (subset, share) in shares.iter_mut().enumerate().take(1 << size).skip(1) {
                *share = match subset.is_power_of_two() {
                    true => masks[subset.trailing_zeros() as usize],
                    false => dealt.next().unwrap_or(0),
                };
            }
            out.push(masked_product(&products(opened), &shares, size));
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
                conjunction.deal(level, &sum[first..first + opened.len()], &mut dealt);
                prop_assert_eq!(dealt.len(), conjunction.dealt(level));
                let own: Vec<u64> = dealt.iter().map(|_| draw()).collect();
                let rest: Vec<u64> = dealt.iter().zip(&own).map(|(a, b)| a ^ b).collect();
                let [mut p, mut a] = [Vec::new(), Vec::new()];
                conjunction.join(level, (&opened, &masks[0][first..]), &own, u64::MAX, &mut p);
                conjunction.join(level, (&opened, &masks[1][first..]), &rest, 0, &mut a);
                first += opened.len();
                opened = p.iter().zip(&a).zip(&sum[first..]).map(|((p, a), mask)| p ^ a ^ mask).collect();
            }
            prop_assert_eq!(opened[0] ^ sum[first], expected);
        }
    }
}

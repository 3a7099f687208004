//! Labels, compared modulo a small prime. Predicted and true ones are multiplied by the same factor, which is not zero, and
//! shared: the difference is zero if they are equal, and otherwise any other residue with the same probability.

use std::ops::{Deref, DerefMut};

use secsv_algebra::{Prg, Secret, Seed, wipe};
use zeroize::Zeroize;

use crate::error::CodecError;

/// Arithmetic modulo the prime that labels are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabelField {
    prime: u16,
    /// 2^48 / prime, rounded up.
    reciprocal: u64,
}

/// One party's share of labels, or labels themselves.
pub(crate) type Labels = Secret<Residues>;

/// Residues that are wiped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residues(pub(crate) Vec<u16>);

impl Zeroize for Residues {
    fn zeroize(&mut self) {
        wipe(&mut self.0);
    }
}

impl Deref for Residues {
    type Target = Vec<u16>;

    fn deref(&self) -> &Vec<u16> {
        &self.0
    }
}

impl DerefMut for Residues {
    fn deref_mut(&mut self) -> &mut Vec<u16> {
        &mut self.0
    }
}

impl LabelField {
    /// As many classes as can be told apart.
    pub(crate) const MOST_CLASSES: usize = 65_521;

    /// The smallest field for so many classes: its elements take a byte, or two.
    pub(crate) fn new(classes: usize) -> Self {
        let prime = if classes <= 251 { 251 } else { 65_521 };
        Self { prime, reciprocal: (1 << 48) / u64::from(prime) + 1 }
    }

    /// Bytes of so many elements.
    pub(crate) fn packed_len(self, count: usize) -> usize {
        count * if self.prime <= u8::MAX.into() { 1 } else { 2 }
    }

    /// Factors other than zero.
    pub(crate) fn factors(self, seed: &Seed, count: usize) -> Labels {
        let mut factors = Secret::new(Residues(vec![0; count]));
        Prg::new(seed).fill_small(self.prime - 1, factors.expose_mut());
        factors.expose_mut().iter_mut().for_each(|factor| *factor += 1);
        factors
    }

    /// The share that a seed stands for.
    pub(crate) fn expand(self, seed: &Seed, count: usize) -> Labels {
        let mut share = Secret::new(Residues(vec![0; count]));
        Prg::new(seed).fill_small(self.prime, share.expose_mut());
        share
    }

    /// What is left of labels without the share that a seed stands for, packed.
    pub(crate) fn rest(self, labels: &Labels, seed: &Seed) -> Vec<u8> {
        self.packed_difference(labels, &self.expand(seed, labels.expose().len()))
    }

    /// Differences of residues, packed.
    pub(crate) fn packed_difference(self, a: &Labels, b: &Labels) -> Vec<u8> {
        let differences = a.expose().iter().zip(b.expose().iter()).map(|(&a, &b)| self.sub(a, b));
        if self.packed_len(1) == 1 {
            differences.map(|x| x as u8).collect()
        } else {
            differences.flat_map(u16::to_le_bytes).collect()
        }
    }

    /// So many residues; the length is checked before anything is allocated, every residue to be reduced.
    pub(crate) fn unpack(self, count: usize, bytes: &[u8]) -> Result<Labels, CodecError> {
        let expected = self.packed_len(count);
        if bytes.len() < expected {
            return Err(CodecError::Truncated);
        }
        if bytes.len() > expected {
            return Err(CodecError::Trailing { found: bytes.len() - expected });
        }
        let elements: Vec<u16> = if expected == count {
            bytes.iter().map(|&byte| byte.into()).collect()
        } else {
            bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
        };
        let elements = Secret::new(Residues(elements));
        match elements.expose().iter().position(|&x| x >= self.prime) {
            Some(index) => Err(CodecError::Unreduced { index }),
            None => Ok(elements),
        }
    }

    /// A difference of residues.
    pub(crate) fn sub(self, a: u16, b: u16) -> u16 {
        let (difference, borrow) = a.overflowing_sub(b);
        difference.wrapping_add(self.prime & u16::from(borrow).wrapping_neg())
    }

    /// A product of residues.
    pub(crate) fn mul(self, a: u16, b: u16) -> u16 {
        let product = u64::from(a) * u64::from(b);
        let quotient = (product * self.reciprocal) >> 48;
        (product - quotient * u64::from(self.prime)) as u16
    }

    /// Whether a difference is zero, from both servers' shares of it.
    pub(crate) fn is_zero(self, predicted: u16, truth: u16, other: u16) -> bool {
        // Both below the prime: their sum is zero only if one is minus the other.
        self.sub(self.sub(truth, predicted), other) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [usize; 4] = [2, 251, 252, LabelField::MOST_CLASSES];

    #[test]
    fn every_class_is_a_residue_of_its_own() {
        for classes in FIELDS {
            let field = LabelField::new(classes);
            assert!(usize::from(field.prime) >= classes);
            let is_prime = (2..256).all(|d| field.prime == d || !field.prime.is_multiple_of(d));
            assert!(is_prime, "{}", field.prime);
        }
        assert_eq!([2, 251, 252].map(|classes| LabelField::new(classes).packed_len(3)), [3, 3, 6]);
    }

    #[test]
    fn products_are_reduced() {
        for field in [2, 1000].map(LabelField::new) {
            let step = usize::from(field.prime / 200).max(1);
            for a in (0..field.prime).step_by(step).chain([field.prime - 1]) {
                for b in (0..field.prime).step_by(step).chain([field.prime - 1]) {
                    let expected = u32::from(a) * u32::from(b) % u32::from(field.prime);
                    assert_eq!(u32::from(field.mul(a, b)), expected, "{a} {b}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn shares_tell_whether_labels_are_equal(
            which in 0usize..4,
            pairs in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 0..40),
            seeds in any::<[[u8; 32]; 3]>(),
        ) {
            let field = LabelField::new(FIELDS[which]);
            let count = pairs.len();
            let seeds = seeds.map(Seed::from_bytes);
            let factors = field.factors(&seeds[0], count);
            let blinded = |label: &dyn Fn(&(u16, u16, bool)) -> u16| -> Labels {
                let labels = pairs.iter().zip(factors.expose().iter());
                let labels = labels.map(|(pair, &f)| field.mul(f, label(pair) % field.prime));
                Secret::new(Residues(labels.collect()))
            };
            let (p, t) = (blinded(&|p| p.0), blinded(&|p| if p.2 { p.0 } else { p.1 }));
            let other = |labels: &Labels, seed: &Seed| field.unpack(count, &field.rest(labels, seed)).unwrap();
            let verdict = field.packed_difference(&other(&p, &seeds[1]), &other(&t, &seeds[2]));
            let verdict = field.unpack(count, &verdict).unwrap();
            let (p, t) = (field.expand(&seeds[1], count), field.expand(&seeds[2], count));
            for (k, pair) in pairs.iter().enumerate() {
                let found = field.is_zero(p.expose()[k], t.expose()[k], verdict.expose()[k]);
                prop_assert_eq!(found, pair.2 || pair.0 % field.prime == pair.1 % field.prime);
            }
        }

        #[test]
        fn what_is_not_labels_is_refused(count in 0usize..20, bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            for field in [2, 1000].map(LabelField::new) {
                match field.unpack(count, &bytes) {
                    Ok(labels) => {
                        prop_assert_eq!(bytes.len(), field.packed_len(count));
                        prop_assert!(labels.expose().iter().all(|&x| x < field.prime));
                    }
                    Err(CodecError::Truncated) => prop_assert!(bytes.len() < field.packed_len(count)),
                    Err(CodecError::Trailing { .. }) => prop_assert!(bytes.len() > field.packed_len(count)),
                    Err(error) => {
                        let is_unreduced = matches!(error, CodecError::Unreduced { .. });
                        prop_assert!(is_unreduced, "{}", error);
                    }
                }
            }
        }
    }
}

//! Labels, compared in a small field of characteristic 2. Predicted and true ones are multiplied by the same factor, which is
//! not zero, and shared: the difference is zero if they are equal, and otherwise any other element with the same probability.
//! Of two classes a difference says no more than that, so there is no factor, and true labels are shared once for all
//! coalitions of a unit: whatever is opened is masked by the share of a prediction.
//!
//! What is shared is **masked** as well, by streams that clients alone know, the same for the predicted and the true label of a
//! sample. Masks leave the difference. So a server that comes to know both shares of either (the auxiliary does, to count for itself)
//! has the differences and no label.
//!
//! Labels travel packed. Those of one owner's samples and one coalition are a **segment**, which begins at a whole byte.

use std::ops::{Deref, DerefMut};

use secsv_algebra::{Prg, Secret, Seed, wipe};
use zeroize::Zeroize;

use crate::error::CodecError;

/// Arithmetic in the field that labels are compared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabelField {
    /// Of an element: 1, 2, 4, 8 or 16.
    bits: u32,
}

/// Numbers that are wiped, many at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wiped<T: Copy + Default>(pub(crate) Vec<T>);

/// Labels or factors, one by one.
pub(crate) type Labels = Secret<Wiped<u16>>;

/// Segments of labels, or one party's share of them.
pub(crate) type Packed = Secret<Wiped<u8>>;

impl<T: Copy + Default> Zeroize for Wiped<T> {
    fn zeroize(&mut self) {
        wipe(&mut self.0);
    }
}

impl<T: Copy + Default> Deref for Wiped<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Copy + Default> DerefMut for Wiped<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

/// Irreducible polynomials, the bit of x^k at k.
const fn modulus(bits: u32) -> u32 {
    match bits {
        2 => 0b111,
        4 => 0b1_0011,
        8 => 0b1_0001_1011,
        _ => 0b1_0001_0000_0000_1011,
    }
}

/// A product in the field of so many bits, in constant time.
fn product<const BITS: u32>(a: u16, b: u16) -> u16 {
    let (a, b) = (u32::from(a), u32::from(b));
    let mut product = 0;
    for k in 0..BITS {
        product ^= a << k & (b >> k & 1).wrapping_neg();
    }
    for k in (0..BITS - 1).rev() {
        product ^= modulus(BITS) << k & (product >> (BITS + k) & 1).wrapping_neg();
    }
    product as u16
}

/// Packs elements of at most 8 bits, so many to a byte.
fn pack_small<const IN_BYTE: usize>(elements: &[u16], packed: &mut [u8]) {
    let byte = |elements: &[u16]| {
        elements
            .iter()
            .rev()
            .fold(0u8, |byte, &element| byte.unbounded_shl(8 / IN_BYTE as u32) | element as u8)
    };
    let (whole, rest) = elements.as_chunks::<IN_BYTE>();
    let (of_whole, of_rest) = packed.split_at_mut(whole.len());
    of_whole.iter_mut().zip(whole).for_each(|(packed, elements)| *packed = byte(elements));
    of_rest.iter_mut().take(rest.len().min(1)).for_each(|packed| *packed = byte(rest));
}

/// The other way round.
fn unpack_small<const IN_BYTE: usize>(packed: &[u8], elements: &mut [u16]) {
    let bits = 8 / IN_BYTE;
    let mask = u8::MAX >> (8 - bits);
    for (elements, byte) in elements.chunks_mut(IN_BYTE).zip(packed) {
        let parts = (0..IN_BYTE).map(|k| u16::from(byte >> (k * bits) & mask));
        elements.iter_mut().zip(parts).for_each(|(element, part)| *element = part);
    }
}

/// Of a word, the lowest bits of elements of so many bits, side by side.
fn lowest_bits(mut word: u64, bits: u32) -> u64 {
    if bits == 1 {
        return word;
    }
    // So many bits at the beginning of a room of as many elements, and twice as many in twice the room: a mask of these
    // is a number that is repeated in every room.
    let mask = |together: u32| {
        let (ones, room) = ((1u64 << together) - 1, together * bits);
        if room >= u64::BITS { ones } else { ones * (u64::MAX / ((1 << room) - 1)) }
    };
    word &= mask(1);
    let mut together = 1;
    while together * bits < u64::BITS {
        word = (word | word >> (together * (bits - 1))) & mask(2 * together);
        together *= 2;
    }
    word
}

impl LabelField {
    /// As many classes as can be told apart.
    pub(crate) const MAX_CLASSES: usize = 1 << 16;

    /// The smallest field for so many classes.
    pub(crate) fn new(classes: usize) -> Self {
        let bits = [1, 2, 4, 8].into_iter().find(|&bits| classes <= 1 << bits).unwrap_or(16);
        Self { bits }
    }

    /// Bits of an element.
    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// Whether there are factors: of one bit, only 1 is not zero.
    pub(crate) fn has_factors(self) -> bool {
        self.bits > 1
    }

    /// All bits of an element set: as many elements are not zero.
    fn mask(self) -> u16 {
        u16::MAX >> (u16::BITS - self.bits)
    }

    /// Bytes of a segment of so many labels.
    pub(crate) fn packed_len(self, count: usize) -> usize {
        (count * self.bits as usize).div_ceil(8)
    }

    /// Factors other than zero.
    pub(crate) fn factors(self, seed: &Seed, count: usize) -> Labels {
        let mut factors = Secret::new(Wiped(vec![0; count]));
        Prg::new(seed).fill_small(self.mask(), factors.expose_mut());
        factors.expose_mut().iter_mut().for_each(|factor| *factor += 1);
        factors
    }

    /// Appends a segment of labels as they are.
    pub(crate) fn pack(self, labels: &[u16], packed: &mut Packed) {
        let packed = packed.expose_mut();
        let begin = packed.len();
        packed.resize(begin + self.packed_len(labels.len()), 0);
        self.pack_into(labels, &mut packed[begin..]);
    }

    /// Writes labels as they are from the beginning of a segment on, or where whole bytes of it were written.
    pub(crate) fn pack_into(self, labels: &[u16], segment: &mut [u8]) {
        match self.bits {
            1 => pack_small::<8>(labels, segment),
            2 => pack_small::<4>(labels, segment),
            4 => pack_small::<2>(labels, segment),
            8 => pack_small::<1>(labels, segment),
            _ => {
                let bytes = segment.as_chunks_mut::<2>().0.iter_mut();
                bytes.zip(labels).for_each(|(bytes, label)| *bytes = label.to_le_bytes());
            }
        }
    }

    /// The same for two classes, of labels that are bits; those beyond the last one are 0.
    pub(crate) fn pack_bits(self, count: usize, words: &[u64], segment: &mut [u8]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        segment.iter_mut().take(count.div_ceil(8)).zip(bytes).for_each(|(packed, byte)| *packed = byte);
    }

    /// So many elements of a segment.
    pub(crate) fn unpack(self, segment: &[u8], count: usize) -> Labels {
        let mut labels = Labels::new(Wiped(vec![0; count]));
        let unpacked = labels.expose_mut();
        match self.bits {
            1 => unpack_small::<8>(segment, unpacked),
            2 => unpack_small::<4>(segment, unpacked),
            4 => unpack_small::<2>(segment, unpacked),
            8 => unpack_small::<1>(segment, unpacked),
            _ => {
                let bytes = segment.as_chunks::<2>().0.iter();
                unpacked.iter_mut().zip(bytes).for_each(|(label, &bytes)| *label = u16::from_le_bytes(bytes));
            }
        }
        labels
    }

    /// Multiplies the labels of a segment by factors, as many as there are.
    pub(crate) fn blind(self, segment: &mut [u8], factors: &[u16]) {
        let mut labels = self.unpack(segment, factors.len());
        self.multiply(labels.expose_mut(), factors);
        self.pack_into(labels.expose(), segment);
    }

    fn multiply(self, labels: &mut [u16], factors: &[u16]) {
        let pairs = labels.iter_mut().zip(factors);
        match self.bits {
            1 => {}
            2 => pairs.for_each(|(label, &factor)| *label = product::<2>(*label, factor)),
            4 => pairs.for_each(|(label, &factor)| *label = product::<4>(*label, factor)),
            8 => pairs.for_each(|(label, &factor)| *label = product::<8>(*label, factor)),
            _ => pairs.for_each(|(label, &factor)| *label = product::<16>(*label, factor)),
        }
    }

    /// Appends a segment of labels times factors.
    pub(crate) fn pack_blinded(self, labels: &[u16], factors: &[u16], packed: &mut Packed) {
        let mut labels = Labels::new(Wiped(labels.to_vec()));
        self.multiply(labels.expose_mut(), factors);
        self.pack(labels.expose(), packed);
    }

    /// Which of so many elements of a segment are zero: one bit each, word after word.
    pub(crate) fn zeros(self, segment: &[u8], count: usize) -> impl Iterator<Item = u64> + '_ {
        let (bits, in_word) = (self.bits, (u64::BITS / self.bits) as usize);
        let zeros_of = move |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            // Of an element that is not zero, some bit comes to its lowest.
            let (mut any, mut shift) = (u64::from_le_bytes(word), bits / 2);
            while shift > 0 {
                any |= any >> shift;
                shift /= 2;
            }
            lowest_bits(!any, bits)
        };
        let bytes = &segment[..self.packed_len(count)];
        bytes.chunks(8 * bits as usize).enumerate().map(move |(number, bytes)| {
            let parts = bytes.chunks(8).enumerate();
            let all = parts.fold(0, |all, (k, bytes)| all | zeros_of(bytes) << (k * in_word));
            let there = (count - 64 * number).min(64) as u32;
            all & u64::MAX >> (u64::BITS - there)
        })
    }
}

/// No labels yet, and room for so many bytes of them.
pub(crate) fn empty(room: usize) -> Packed {
    Secret::new(Wiped(Vec::with_capacity(room)))
}

/// The share that a seed stands for, of so many bytes.
pub(crate) fn expand(seed: &Seed, bytes: usize) -> Packed {
    let mut share = Secret::new(Wiped(vec![0; bytes]));
    rand::RngCore::fill_bytes(&mut Prg::new(seed), share.expose_mut());
    share
}

/// What is left of labels without the share that a seed stands for.
pub(crate) fn rest(mut labels: Packed, seed: &Seed) -> Vec<u8> {
    let share = expand(seed, labels.expose().len());
    subtract(&mut labels, share.expose());
    std::mem::take(labels.expose_mut()).0
}

/// Takes labels away from others; both are as long.
pub(crate) fn subtract(labels: &mut Packed, others: &[u8]) {
    add(labels.expose_mut(), others);
}

/// Adds labels to others, which in characteristic 2 takes them away as well; both are as long.
pub(crate) fn add(labels: &mut [u8], others: &[u8]) {
    labels.iter_mut().zip(others).for_each(|(label, other)| *label ^= other);
}

/// Segments of so many bytes; the length is checked before anything is allocated. Whatever pads a segment is never read.
pub(crate) fn received(expected: usize, bytes: &[u8]) -> Result<Packed, CodecError> {
    check_len(expected, bytes)?;
    Ok(Secret::new(Wiped(bytes.to_vec())))
}

/// Whether these are so many bytes.
pub(crate) fn check_len(expected: usize, bytes: &[u8]) -> Result<(), CodecError> {
    match bytes.len().checked_sub(expected) {
        None => Err(CodecError::Truncated),
        Some(0) => Ok(()),
        Some(found) => Err(CodecError::Trailing { found }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: [usize; 6] = [2, 4, 16, 256, 257, LabelField::MAX_CLASSES];

    fn times(field: LabelField, a: u16, b: u16) -> u16 {
        let mut packed = empty(0);
        field.pack_blinded(&[a], &[b], &mut packed);
        packed.expose().iter().rev().fold(0, |sum, &byte| sum << 8 | u16::from(byte))
    }

    #[test]
    fn every_class_is_an_element_of_its_own() {
        assert_eq!(
            [2, 3, 4, 5, 16, 17, 256, 257].map(|c| LabelField::new(c).bits),
            [1, 2, 2, 4, 4, 8, 8, 16]
        );
        assert_eq!([2, 4, 5, 200, 300].map(|c| LabelField::new(c).packed_len(5)), [1, 2, 3, 5, 10]);
        assert_eq!(LabelField::new(LabelField::MAX_CLASSES).bits, 16);
    }

    #[test]
    fn the_moduli_have_no_divisors() {
        let remainder = |mut a: u32, b: u32| {
            while a != 0 && a.ilog2() >= b.ilog2() {
                a ^= b << (a.ilog2() - b.ilog2());
            }
            a
        };
        for bits in [2, 4, 8, 16] {
            assert_eq!(modulus(bits).ilog2(), bits);
            assert!((2..1 << (bits / 2 + 1)).all(|divisor| remainder(modulus(bits), divisor) != 0), "{bits}");
        }
    }

    #[test]
    fn a_factor_sends_each_element_to_another_and_zero_to_zero() {
        for field in [4, 16, 256].map(LabelField::new) {
            let order = 1u16 << field.bits;
            for a in 1..order {
                let mut products: Vec<u16> = (0..order).map(|b| times(field, a, b)).collect();
                assert_eq!((products[0], products[1]), (0, a));
                products.sort_unstable();
                assert_eq!(products, (0..order).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn factors_are_spread_evenly_and_never_zero() {
        for (field, seed) in [4, 16].map(LabelField::new).into_iter().zip(1u8..) {
            let nonzero = (1usize << field.bits) - 1;
            let factors = field.factors(&Seed::from_bytes([seed; 32]), 3000 * nonzero);
            for value in 0..=nonzero {
                let found = factors.expose().iter().filter(|&&factor| usize::from(factor) == value).count();
                let expected = if value == 0 { 0..=0 } else { 2700..=3300 };
                assert!(expected.contains(&found), "{value} was drawn {found} times");
            }
        }
    }

    proptest! {
        #[test]
        fn products_are_those_of_polynomials(which in 1usize..6, a in any::<u16>(), b in any::<u16>(), c in any::<u16>()) {
            let field = LabelField::new(FIELDS[which]);
            let [a, b, c] = [a, b, c].map(|x| x & field.mask());
            prop_assert_eq!(times(field, a, b ^ c), times(field, a, b) ^ times(field, a, c));
            prop_assert_eq!(times(field, a, times(field, b, c)), times(field, times(field, a, b), c));
            let doubled = u32::from(a) << 1;
            let reduced = doubled ^ if doubled >> field.bits == 1 { modulus(field.bits) } else { 0 };
            prop_assert_eq!(u32::from(times(field, a, 2)), reduced);
        }

        #[test]
        fn shares_tell_whether_labels_are_equal(
            which in 0usize..6,
            pairs in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 0..200),
            seeds in any::<[[u8; 32]; 3]>(),
        ) {
            let field = LabelField::new(FIELDS[which]);
            let count = pairs.len();
            let seeds = seeds.map(Seed::from_bytes);
            let factors = field.factors(&seeds[0], count);
            let mask = field.mask();
            let blinded = |label: &dyn Fn(&(u16, u16, bool)) -> u16| -> Packed {
                let mut packed = empty(0);
                let labels: Vec<u16> = pairs.iter().map(|pair| label(pair) & mask).collect();
                field.pack_blinded(&labels, factors.expose(), &mut packed);
                packed
            };
            let (p, t) = (blinded(&|p| p.0), blinded(&|p| if p.2 { p.0 } else { p.1 }));
            prop_assert_eq!(p.expose().len(), field.packed_len(count));
            let other = |labels: Packed, seed: &Seed| received(field.packed_len(count), &rest(labels, seed)).unwrap();
            let mut difference = other(p, &seeds[1]);
            subtract(&mut difference, other(t, &seeds[2]).expose());
            for seed in &seeds[1..] {
                subtract(&mut difference, expand(seed, field.packed_len(count)).expose());
            }
            let zeros: Vec<u64> = field.zeros(difference.expose(), count).collect();
            prop_assert_eq!(zeros.len(), count.div_ceil(64));
            prop_assert!(zeros.iter().map(|word| word.count_ones() as usize).sum::<usize>() <= count);
            let found: Vec<bool> = (0..count).map(|k| zeros[k / 64] >> (k % 64) & 1 == 1).collect();
            let expected = pairs.iter().map(|pair| pair.2 || (pair.0 ^ pair.1) & mask == 0);
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        #[test]
        fn labels_are_blinded_where_they_are(
            which in 0usize..6,
            labels in prop::collection::vec(any::<u16>(), 0..200),
            seed in any::<[u8; 32]>(),
        ) {
            let field = LabelField::new(FIELDS[which]);
            let labels: Vec<u16> = labels.iter().map(|label| label & field.mask()).collect();
            let factors = field.factors(&Seed::from_bytes(seed), labels.len());
            let (mut plain, mut expected) = (empty(0), empty(0));
            field.pack(&labels, &mut plain);
            field.pack_blinded(&labels, factors.expose(), &mut expected);
            let mut found = plain.clone();
            field.blind(found.expose_mut(), factors.expose());
            prop_assert_eq!(found.expose(), expected.expose());
            // A few at a time, and as bits.
            let mut in_parts = vec![0xff; plain.expose().len()];
            for (number, labels) in labels.chunks(64).enumerate() {
                field.pack_into(labels, &mut in_parts[field.packed_len(64 * number)..]);
            }
            prop_assert_eq!(&in_parts, &plain.expose().0);
            let word = |labels: &[u16]| labels.iter().rev().fold(0, |word, label| word << 1 | u64::from(label & 1));
            let words: Vec<u64> = labels.chunks(64).map(word).collect();
            if field.bits == 1 {
                in_parts.fill(0xff);
                field.pack_bits(labels.len(), &words, &mut in_parts);
                prop_assert_eq!(&in_parts, &plain.expose().0);
            }
        }

        #[test]
        fn what_is_not_as_long_is_refused(expected in 0usize..20, bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            match received(expected, &bytes) {
                Ok(packed) => prop_assert!(packed.expose().0 == bytes && bytes.len() == expected),
                Err(CodecError::Truncated) => prop_assert!(bytes.len() < expected),
                Err(error) => {
                    let is_trailing = matches!(error, CodecError::Trailing { found } if found + expected == bytes.len());
                    prop_assert!(is_trailing, "{}", error);
                }
            }
        }
    }
}

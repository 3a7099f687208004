//! Sets of test samples, one bit each.

/// Some of the samples of a federation's collective test set, by position (the paper's Phi and Psi).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SampleSet {
    words: Vec<u64>,
    total: usize,
}

impl SampleSet {
    /// None of `total` samples.
    pub fn none(total: usize) -> Self {
        Self { words: vec![0; total.div_ceil(64)], total }
    }

    /// All of `total` samples.
    pub fn all(total: usize) -> Self {
        let mut words = vec![u64::MAX; total.div_ceil(64)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), total % 64) {
            *last = (1 << rest) - 1;
        }
        Self { words, total }
    }

    /// The set of `total` samples that [`Self::bytes`] gave these bytes of, if there is one.
    pub fn from_bytes(total: usize, bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> = bytes
            .chunks(8)
            .map(|word| word.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
            .collect();
        let beyond = words.last().is_some_and(|last| !total.is_multiple_of(64) && last >> (total % 64) != 0);
        (bytes.len() == total.div_ceil(8) && !beyond).then_some(Self { words, total })
    }

    /// A bit for each sample, eight to a byte, the lowest first; whatever is beyond the last sample is zero.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.words.iter().flat_map(|word| word.to_le_bytes()).take(self.total.div_ceil(8))
    }

    /// Number of samples there are to choose from (the paper's M).
    pub fn total(&self) -> usize {
        self.total
    }

    /// Number of samples in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no sample is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Whether every sample is in the set.
    pub fn is_all(&self) -> bool {
        self.len() == self.total
    }

    /// Adds a sample.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn insert(&mut self, sample: usize) {
        assert!(sample < self.total, "sample {sample} of {}", self.total);
        self.words[sample / 64] |= 1 << (sample % 64);
    }

    /// Adds the samples whose bits are set, counted from `begin`, a multiple of 64.
    pub(crate) fn insert_words(&mut self, begin: usize, words: &[u64]) {
        for (word, more) in self.words[begin / 64..].iter_mut().zip(words) {
            *word |= more;
        }
    }

    /// Adds the samples whose bits are set, counted from `begin`, word after word.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn insert_bits(&mut self, begin: usize, words: impl IntoIterator<Item = u64>) {
        let (first, shift) = (begin / 64, begin % 64);
        for (place, word) in (first..).zip(words) {
            // Shifted once more by one: a shift by all 64 bits is none.
            for (place, part) in [(place, word << shift), (place + 1, word >> 1 >> (63 - shift))] {
                if part != 0 {
                    let last = place * 64 + part.ilog2() as usize;
                    assert!(last < self.total, "sample {last} of {}", self.total);
                    self.words[place] |= part;
                }
            }
        }
    }

    /// Whether a sample is in the set.
    pub fn contains(&self, sample: usize) -> bool {
        sample < self.total && self.words[sample / 64] >> (sample % 64) & 1 == 1
    }

    /// The samples in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    index * 64 + bit
                })
            })
        })
    }

    /// Adds every sample of the other set. Both must choose from the same samples.
    pub fn union_with(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Adds every sample that is in both of the other sets.
    pub fn insert_common(&mut self, a: &Self, b: &Self) {
        for ((word, a), b) in self.words.iter_mut().zip(&a.words).zip(&b.words) {
            *word |= a & b;
        }
    }

    /// The samples of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(word, other)| word & !other).collect();
        Self { words, total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_written() {
        for total in [0, 1, 7, 8, 9, 63, 64, 65, 130] {
            let mut set = SampleSet::none(total);
            (0..total).filter(|k| k * k % 5 == 1).for_each(|k| set.insert(k));
            let mut bytes: Vec<u8> = set.bytes().collect();
            assert_eq!(SampleSet::from_bytes(total, &bytes), Some(set));
            if !total.is_multiple_of(8) {
                *bytes.last_mut().unwrap() |= 0x80;
                assert_eq!(SampleSet::from_bytes(total, &bytes), None, "beyond the last of {total}");
            }
            bytes.push(0);
            assert_eq!(SampleSet::from_bytes(total, &bytes), None, "too many bytes for {total}");
        }
    }

    #[test]
    fn sample_sets_hold_the_samples_inserted() {
        for total in [0, 1, 63, 64, 65, 130] {
            assert_eq!((SampleSet::all(total).len(), SampleSet::none(total).len()), (total, 0));
            assert_eq!(SampleSet::all(total).iter().collect::<Vec<_>>(), (0..total).collect::<Vec<_>>());
            assert!(SampleSet::all(total).is_all() && SampleSet::none(total).is_empty());
        }
        let (mut a, mut b) = (SampleSet::none(100), SampleSet::none(100));
        [3, 64, 99].into_iter().for_each(|s| a.insert(s));
        [3, 99].into_iter().for_each(|s| b.insert(s));
        assert_eq!(a.difference(&b).iter().collect::<Vec<_>>(), [64]);
        let mut common = SampleSet::none(100);
        common.insert_common(&a, &b);
        assert_eq!(common, b);
        common.union_with(&a);
        assert_eq!(common, a);
        assert!(a.contains(64) && !b.contains(64) && !a.contains(1000));
    }

    #[test]
    fn words_are_inserted_from_anywhere() {
        for begin in [0, 1, 63, 64, 65, 100] {
            let words = [0x8000_0000_0000_0001, 0, 0xf0f0_1234_5678_9abc];
            let (mut found, mut expected) = (SampleSet::none(begin + 192), SampleSet::none(begin + 192));
            let bits = (0..192).filter(|k| words[k / 64] >> (k % 64) & 1 == 1);
            bits.chain([0]).for_each(|k| expected.insert(begin + k));
            found.insert(begin);
            found.insert_bits(begin, words);
            assert_eq!(found, expected);
            SampleSet::none(begin + 1).insert_bits(begin, [1, 0]);
        }
    }

    #[test]
    #[should_panic(expected = "sample 131 of 131")]
    fn words_beyond_the_last_sample_are_refused() {
        SampleSet::none(131).insert_bits(67, [0, 1]);
    }
}

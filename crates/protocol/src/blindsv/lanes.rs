//! Sixty-four samples at a time: bit j of their numbers is one word, a **plane**, with a lane for each sample.

/// Samples of a block.
pub(crate) const LANES: usize = 64;

/// Blocks that so many samples fill, the last one perhaps in part.
pub(super) fn blocks(samples: usize) -> usize {
    samples.div_ceil(LANES)
}

/// The transpose of a square of bits: bit i of word j becomes bit j of word i.
pub(super) fn transpose(square: &mut [u64; LANES]) {
    let mut width = LANES / 2;
    let mut mask = u64::MAX >> width;
    while width > 0 {
        let mut first = 0;
        while first < LANES {
            for i in first..first + width {
                let swapped = ((square[i] >> width) ^ square[i + width]) & mask;
                square[i] ^= swapped << width;
                square[i + width] ^= swapped;
            }
            first += 2 * width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

/// The planes of at most 64 numbers; lanes behind the last are zero.
pub(super) fn planes(numbers: impl Iterator<Item = u64>) -> [u64; LANES] {
    let mut square = [0; LANES];
    square.iter_mut().zip(numbers).for_each(|(word, number)| *word = number);
    transpose(&mut square);
    square
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plane_holds_one_bit_of_every_number(numbers in prop::collection::vec(any::<u64>(), 0..=LANES)) {
            let found = planes(numbers.iter().copied());
            for (bit, plane) in found.into_iter().enumerate() {
                for lane in 0..LANES {
                    let expected = numbers.get(lane).map_or(0, |number| number >> bit & 1);
                    prop_assert_eq!(plane >> lane & 1, expected);
                }
            }
        }
    }
}

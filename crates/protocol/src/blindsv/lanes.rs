//! Sixty-four samples at a time: bit j of their numbers is one word, a **plane**, with a lane for each sample.

use super::wide::vectorised;

/// Samples of a block.
pub(crate) const LANES: usize = 64;

/// Blocks that so many samples fill, the last one perhaps in part.
pub(super) fn blocks(samples: usize) -> usize {
    samples.div_ceil(LANES)
}

/// The transpose of a square of bits: bit i of word j becomes bit j of word i.
#[inline(always)]
fn transpose(square: &mut [u64; LANES]) {
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

/// The lowest planes of numbers, so many: each has a word for every 64 numbers, and lanes behind the last number are zero.
pub(super) fn planes(numbers: &[u64], bits: usize) -> Vec<u64> {
    let words = blocks(numbers.len());
    let mut planes = vec![0; bits * words];
    vectorised(|| {
        for (word, numbers) in numbers.chunks(LANES).enumerate() {
            let mut square = [0; LANES];
            square[..numbers.len()].copy_from_slice(numbers);
            transpose(&mut square);
            for (bit, row) in square[..bits].iter().enumerate() {
                planes[bit * words + word] = *row;
            }
        }
    });
    planes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plane_holds_one_bit_of_every_number(numbers in prop::collection::vec(any::<u64>(), 0..=3 * LANES), bits in 1usize..=64) {
            let (found, words) = (planes(&numbers, bits), blocks(numbers.len()));
            prop_assert_eq!(found.len(), bits * words);
            for (index, plane) in found.into_iter().enumerate() {
                for lane in 0..LANES {
                    let number = numbers.get(index % words * LANES + lane);
                    prop_assert_eq!(plane >> lane & 1, number.map_or(0, |number| number >> (index / words) & 1));
                }
            }
        }
    }
}

//! Products of words in plain Rust: two rows at a time, so that a strip is read half as often.

use super::StripKernel;

/// The implementation for any machine.
#[derive(Clone, Copy)]
pub(super) struct Portable;

const STRIP: usize = 8;

impl StripKernel for Portable {
    const ROWS: usize = 2;
    const STRIP: usize = STRIP;

    fn multiply(self, rows: &[&[u64]], strip: &[u64], sums: &mut [u64]) {
        let mut found = [[0u64; STRIP]; 2];
        let (words, _) = strip.as_chunks::<STRIP>();
        for ((&a, &b), words) in rows[0].iter().zip(rows[1]).zip(words) {
            for j in 0..STRIP {
                found[0][j] = found[0][j].wrapping_add(a.wrapping_mul(words[j]));
                found[1][j] = found[1][j].wrapping_add(b.wrapping_mul(words[j]));
            }
        }
        sums.copy_from_slice(found.as_flattened());
    }
}

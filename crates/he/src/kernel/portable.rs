//! The portable twin: 128-bit sums, one exact reduction. Slow and obvious; the other implementation is
//! compared with it bit for bit.

use std::borrow::BorrowMut;

use secsv_algebra::Modulus;

use super::{
    BLOCK, CipherTiles, Ciphertext, FOLD_AFTER, GroupAddress, PlainRows, TILE, TileGroup, Words, join, split,
};

pub(super) fn group(
    modulus: Modulus,
    group: TileGroup<'_>,
    place: GroupAddress,
    width: usize,
    products: &mut [Ciphertext],
) {
    for (r, row) in group.rows.iter().enumerate() {
        for (c, column) in group.columns.iter().enumerate() {
            for block in place.first_block..place.first_block + place.blocks {
                let total = sum(modulus, group, row, column, (place.limb, block));
                let product = &mut products[(place.row + r) * width + place.column + c];
                for (part, sums) in total.iter().enumerate() {
                    let target = product.block_mut(part, place.limb, block);
                    for (t, &s) in target.iter_mut().zip(sums) {
                        *t = if group.first_tile == 0 { s } else { modulus.add(*t, s) };
                    }
                }
            }
        }
    }
}

/// Both parts of one output at one limb and block.
fn sum(
    modulus: Modulus,
    group: TileGroup<'_>,
    row: &CipherTiles,
    column: &PlainRows,
    at: (usize, usize),
) -> [[u64; BLOCK]; 2] {
    let mut total = [[0u64; BLOCK]; 2];
    let tiles: Vec<usize> = (0..group.inner.div_ceil(TILE)).collect();
    for tiles in tiles.chunks(FOLD_AFTER / TILE) {
        let mut sums = [[0u128; BLOCK]; 2];
        for &tile in tiles {
            let (ciphers, _) = row.block_run(group.first_tile + tile, at.0, at.1, 1);
            for (i, parts) in ciphers.iter().enumerate() {
                let plain = column.block_run(tile * TILE + i, at.0, at.1, 1)[0];
                for (sum, part) in sums.iter_mut().zip(parts) {
                    for (s, (&a, &b)) in sum.iter_mut().zip(part.0.iter().zip(&plain.0)) {
                        *s += u128::from(join(a)) * u128::from(b);
                    }
                }
            }
        }
        for (t, s) in total.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            *t = modulus.add(*t, modulus.reduce_wide(*s));
        }
    }
    total
}

pub(super) fn weighted_sum<B: BorrowMut<[u64; BLOCK]>>(
    modulus: Modulus,
    form: Words,
    terms: &[(u32, &[B])],
    target: &mut [B],
) {
    let read = |word| if form == Words::Split { join(word) } else { word };
    let write = |word| if form == Words::Split { split(word) } else { word };
    for (i, line) in target.iter_mut().enumerate() {
        for (k, word) in line.borrow_mut().iter_mut().enumerate() {
            let sum: u128 = terms
                .iter()
                .map(|(w, source)| u128::from(*w) * u128::from(read(source[i].borrow()[k])))
                .sum();
            *word = write(modulus.reduce_wide(sum));
        }
    }
}

pub(super) fn multiply_add(modulus: Modulus, a: &[u64], b: &[u64], target: &mut [u64]) {
    for (t, (&a, &b)) in target.iter_mut().zip(a.iter().zip(b)) {
        *t = modulus.add(*t, modulus.mul(a, b));
    }
}

pub(super) fn scale(modulus: Modulus, factor: u64, words: &mut [u64]) {
    words.iter_mut().for_each(|w| *w = modulus.mul(*w, factor));
}

pub(super) fn combine(modulus: Modulus, terms: &[(u64, &[u64])], target: &mut [u64]) {
    for (i, t) in target.iter_mut().enumerate() {
        let sum: u128 = terms.iter().map(|(factor, words)| u128::from(*factor) * u128::from(words[i])).sum();
        *t = modulus.reduce_wide(sum);
    }
}

pub(super) fn lift(half: u64, gap: u64, elements: &[u64], target: &mut [u64]) {
    for (t, &x) in target.iter_mut().zip(elements) {
        // The sign bit of half - x tells whether x stands for a negative number.
        *t = x + (gap & (half.wrapping_sub(x) >> 63).wrapping_neg());
    }
}

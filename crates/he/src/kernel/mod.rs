//! The multiply-accumulate kernel: at each NTT point an encrypted layer is a small modular matrix product,
//! rows of ciphertexts by columns of plaintexts.
//!
//! Operands are stored tile by tile so that the innermost loop reads memory in order, words split in two so
//! that 32-bit multipliers do the work, sums are kept unreduced for up to [`FOLD_AFTER`] terms. Nothing is
//! transformed or allocated inside the loop, and no branch or address depends on the data. Two
//! implementations give the same bits: AVX2 where the machine has it, portable Rust elsewhere.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod ciphertext;
#[cfg(target_os = "linux")]
mod large_pages;
mod limb;
mod portable;
mod roots;
mod tiles;
mod transform;

pub use ciphertext::Ciphertext;
pub use limb::Limb;
pub(crate) use limb::product_bits;
pub(crate) use tiles::{CacheLine, join, split};
pub use tiles::{CipherTiles, PlainRows};
pub(crate) use transform::Transform;

use std::borrow::BorrowMut;

use secsv_algebra::Modulus;

use crate::HeError;

/// Inputs in one tile.
pub(crate) const TILE: usize = 8;
/// NTT points in one block: one cache line of words.
pub(crate) const BLOCK: usize = 8;
/// Products that are summed before a reduction: with words split at 27 bits, 128 products of 55-bit
/// residues leave room for the carries of the reduction.
pub(crate) const FOLD_AFTER: usize = 128;
/// Rows and columns that meet while their tiles are in the first-level cache.
const PARTNERS: usize = 4;
/// Unreduced sums, each of one (row, column) pair at one block, that are kept at a time: many, because long
/// runs of memory are read faster.
const SUMS: usize = 128;

/// Which implementation computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Plain Rust.
    Portable,
    /// AVX2 intrinsics; [`Backend::detect`] hands it out only where the machine has them.
    Avx2(Avx2Token),
}

/// Proof that the machine has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2Token(());

impl Backend {
    /// The fastest implementation this machine can run.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self::Avx2(Avx2Token(()));
        }
        Self::Portable
    }
}

/// 2^bits less the prime of that many bits: small, which makes reduction cheap.
const fn complement(prime: Modulus) -> u64 {
    (1 << prime.bits()) - prime.value()
}

/// Runs plain loops compiled for the widest vectors that the machine has.
#[inline(always)]
pub(crate) fn vectorised<T>(work: impl FnOnce() -> T) -> T {
    pulp::Arch::new().dispatch(work)
}

/// Unreduced sums of one (row, column) pair at one block of points: for each part of the ciphertext and each
/// half of the block the sums of low, high and crosswise products, four points each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Sums([[[[u64; 4]; 3]; 2]; 2]);

impl Sums {
    const ZERO: Self = Self([[[[0; 4]; 3]; 2]; 2]);
}

/// Multiplies every row of ciphertexts with every column of plaintexts and writes the sums, reduced, to
/// `products[row * columns.len() + column]`.
pub fn multiply(
    backend: Backend,
    limbs: &[Limb],
    rows: &[&CipherTiles],
    columns: &[&PlainRows],
    products: &mut [Ciphertext],
) -> Result<(), HeError> {
    multiply_part(backend, limbs, rows, columns, 0, products)
}

/// The same for columns that hold only the inputs from tile number `first_tile` on, as many as they have room
/// for: sums of further tiles are added to the products of those before.
pub(crate) fn multiply_part(
    backend: Backend,
    limbs: &[Limb],
    rows: &[&CipherTiles],
    columns: &[&PlainRows],
    first_tile: usize,
    products: &mut [Ciphertext],
) -> Result<(), HeError> {
    let inner = check(limbs, rows, columns, first_tile, products)?;
    let blocks = products.first().map_or(0, |p| p.degree()) / BLOCK;
    // As many blocks at a time as there is room for sums: long runs of memory are read in order.
    let partners = rows.len().min(PARTNERS) * columns.len().min(PARTNERS);
    let run_length = (SUMS / partners.max(1)).clamp(1, blocks.max(1));
    for (l, limb) in limbs.iter().enumerate() {
        for first in (0..blocks).step_by(run_length) {
            for (r, row_group) in rows.chunks(PARTNERS).enumerate() {
                for (c, column_group) in columns.chunks(PARTNERS).enumerate() {
                    let place = GroupAddress {
                        limb: l,
                        first_block: first,
                        blocks: run_length.min(blocks - first),
                        row: r * PARTNERS,
                        column: c * PARTNERS,
                    };
                    let group = TileGroup { rows: row_group, columns: column_group, first_tile, inner };
                    match backend {
                        #[cfg(target_arch = "x86_64")]
                        Backend::Avx2(token) => {
                            avx2::group(token, limb.modulus(), group, place, columns.len(), products)
                        }
                        _ => portable::group(limb.modulus(), group, place, columns.len(), products),
                    }
                }
            }
        }
    }
    Ok(())
}

/// Where a group's sums belong.
#[derive(Clone, Copy)]
struct GroupAddress {
    limb: usize,
    first_block: usize,
    blocks: usize,
    row: usize,
    column: usize,
}

/// Rows and columns that meet in `inner` inputs: those of the rows from tile `first_tile` on.
#[derive(Clone, Copy)]
struct TileGroup<'a> {
    rows: &'a [&'a CipherTiles],
    columns: &'a [&'a PlainRows],
    first_tile: usize,
    inner: usize,
}

fn check(
    limbs: &[Limb],
    rows: &[&CipherTiles],
    columns: &[&PlainRows],
    first_tile: usize,
    products: &[Ciphertext],
) -> Result<usize, HeError> {
    let expected = rows.len() * columns.len();
    if products.len() != expected {
        return Err(HeError::Count { what: "products", expected, found: products.len() });
    }
    let inner = rows.first().map_or(0, |r| r.inner());
    let held = columns.iter().map(|c| c.geometry().0).min().unwrap_or(0);
    let degree = products.first().map_or(0, |p| p.degree());
    if let Some(row) = rows.iter().find(|r| r.inner() != inner) {
        return Err(HeError::Count { what: "row inputs", expected: inner, found: row.inner() });
    }
    // A column may have more inputs than these rows use, or whole tiles of them.
    let left = inner.saturating_sub(first_tile * TILE);
    if left == 0 || (held < left && !held.is_multiple_of(TILE)) {
        return Err(HeError::Count {
            what: "column inputs",
            expected: inner,
            found: first_tile * TILE + held,
        });
    }
    let geometries = rows.iter().map(|r| r.geometry()).chain(columns.iter().map(|c| c.geometry()));
    if geometries.into_iter().any(|(_, l, d)| (l, d) != (limbs.len(), degree))
        || products.iter().any(|p| p.limbs() != limbs.len() || p.degree() != degree)
    {
        return Err(HeError::Mixed { what: "operands" });
    }
    Ok(left.min(held))
}

/// `target += a * b`, entrywise modulo the limb.
pub(crate) fn multiply_add(backend: Backend, limb: &Limb, a: &[u64], b: &[u64], target: &mut [u64]) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(token) => avx2::multiply_add(token, limb.modulus(), a, b, target),
        _ => portable::multiply_add(limb.modulus(), a, b, target),
    }
}

/// Every word, below 2^57, times one residue, modulo the limb.
pub(crate) fn scale(backend: Backend, limb: &Limb, factor: u64, words: &mut [u64]) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(token) => avx2::scale(token, limb.modulus(), factor, words),
        _ => portable::scale(limb.modulus(), factor, words),
    }
}

/// Elements of Z_p to the residues of their centred representatives modulo the limb, which exceeds p.
pub(crate) fn lift(backend: Backend, limb: &Limb, p: u64, elements: &[u64], target: &mut [u64]) {
    let gap = limb.modulus().value() - p;
    match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(token) => avx2::lift(token, p / 2, gap, elements, target),
        _ => portable::lift(p / 2, gap, elements, target),
    }
}

/// The sum of a few products of a residue and words below 2^57, modulo the limb.
pub(crate) fn combine(backend: Backend, limb: &Limb, terms: &[(u64, &[u64])], target: &mut [u64]) {
    debug_assert!(terms.len() <= 16);
    match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(token) => avx2::combine(token, limb.modulus(), terms, target),
        _ => portable::combine(limb.modulus(), terms, target),
    }
}

/// The weighted sum of words of one limb, split or plain; the weights add up to less than 2^32.
pub(crate) fn weighted_sum<B: BorrowMut<[u64; BLOCK]>>(
    backend: Backend,
    limb: &Limb,
    form: Words,
    terms: &[(u32, &[B])],
    target: &mut [B],
) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(token) => avx2::weighted_sum(token, limb.modulus(), form, terms, target),
        _ => portable::weighted_sum(limb.modulus(), form, terms, target),
    }
}

/// How residues are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// In two halves, as the kernel's operands are.
    Split,
    /// As they are.
    Plain,
}

/// The weighted sum of rows of ciphertexts, tile by tile.
pub(crate) fn weighted_tiles(
    backend: Backend,
    limbs: &[Limb],
    terms: &[(u32, &CipherTiles)],
    sum: &mut CipherTiles,
) -> Result<(), HeError> {
    if terms.iter().any(|(_, t)| t.geometry() != sum.geometry()) || sum.geometry().1 != limbs.len() {
        return Err(HeError::Mixed { what: "encrypted matrix" });
    }
    for tile in 0..sum.tiles() {
        for (l, limb) in limbs.iter().enumerate() {
            let sources: Vec<(u32, &[CacheLine])> =
                terms.iter().map(|&(w, t)| (w, t.limb_lines(tile, l))).collect();
            weighted_sum(backend, limb, Words::Split, &sources, sum.limb_lines_mut(tile, l));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

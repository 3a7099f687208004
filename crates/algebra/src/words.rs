//! Matrix products modulo 2^64, at the machine's limit. Every implementation gives the same bits; which one runs is chosen at run time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::{AlgebraError, Matrix, Ring64};

/// An implementation of products of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKernel {
    /// Plain Rust.
    Portable,
    /// AVX2: three products of 32-bit halves for one of words.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2Words),
    /// AVX-512 DQ, which multiplies words.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Words),
}

/// Proof that the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2Words(());

/// Proof that the machine has AVX-512 F and DQ.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512Words(());

impl WordKernel {
    /// All that this machine can run, the fastest first.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected;
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                found.push(Self::Avx512(Avx512Words(())));
            }
            if is_x86_feature_detected!("avx2") {
                found.push(Self::Avx2(Avx2Words(())));
            }
        }
        found.push(Self::Portable);
        found
    }

    /// The fastest that this machine can run.
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
        }
    }
}

impl Matrix<Ring64> {
    /// The matrix product, equal to [`Matrix::multiply`] and faster.
    pub fn product(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.product_by(WordKernel::detect(), other)
    }

    /// The same by one implementation.
    pub fn product_by(&self, kernel: WordKernel, other: &Self) -> Result<Self, AlgebraError> {
        if self.columns() != other.rows() {
            let expected = (self.columns(), other.columns());
            return Err(AlgebraError::Shape { operation: "product", expected, found: other.shape() });
        }
        let product = match kernel {
            WordKernel::Portable => strips(portable::Portable, self, other),
            #[cfg(target_arch = "x86_64")]
            WordKernel::Avx2(token) => strips(token, self, other),
            #[cfg(target_arch = "x86_64")]
            WordKernel::Avx512(token) => strips(token, self, other),
        };
        Matrix::new(Ring64, self.rows(), other.columns(), product)
    }
}

/// Products of some rows with a strip of columns.
trait StripKernel: Copy {
    /// Rows at a time.
    const ROWS: usize;
    /// Columns of a strip.
    const STRIP: usize;

    /// Multiplies `ROWS` rows with a strip, whose words lie row by row. `sums` has `STRIP` words for each row.
    fn multiply(self, rows: &[&[u64]], strip: &[u64], sums: &mut [u64]);
}

/// The product, strip by strip of the right factor: a strip is copied once, so that it is read in order and from the cache.
fn strips<K: StripKernel>(kernel: K, left: &Matrix<Ring64>, right: &Matrix<Ring64>) -> Vec<u64> {
    let columns = right.columns();
    let mut product = vec![0; left.rows() * columns];
    let mut strip = vec![0; right.rows() * K::STRIP];
    let mut sums = vec![0; K::ROWS * K::STRIP];
    let mut rows: Vec<&[u64]> = Vec::with_capacity(K::ROWS);
    for first in (0..columns).step_by(K::STRIP) {
        let width = K::STRIP.min(columns - first);
        for (k, words) in strip.chunks_exact_mut(K::STRIP).enumerate() {
            words[..width].copy_from_slice(&right.row(k)[first..first + width]);
        }
        for row in (0..left.rows()).step_by(K::ROWS) {
            let count = K::ROWS.min(left.rows() - row);
            rows.clear();
            // Rows that are missing at the end are the last one again.
            rows.extend((0..K::ROWS).map(|i| left.row(row + i.min(count - 1))));
            kernel.multiply(&rows, &strip, &mut sums);
            for (i, sums) in sums.chunks_exact(K::STRIP).take(count).enumerate() {
                product[(row + i) * columns + first..][..width].copy_from_slice(&sums[..width]);
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Prg, Seed};

    proptest! {
        #[test]
        fn every_kernel_gives_the_obvious_product(
            rows in 0usize..19, inner in 0usize..150, columns in 0usize..300, seed: [u8; 32],
        ) {
            let mut prg = Prg::new(&Seed::from_bytes(seed));
            let a = Matrix::uniform(Ring64, rows, inner, &mut prg);
            let b = Matrix::uniform(Ring64, inner, columns, &mut prg);
            let expected = a.multiply(&b).unwrap();
            for kernel in WordKernel::available() {
                prop_assert_eq!(&a.product_by(kernel, &b).unwrap(), &expected, "{}", kernel.name());
            }
        }
    }

    #[test]
    fn words_wrap_as_they_should() {
        let (a, b) = (u64::MAX, 0x8000_0001_8000_0001);
        let left = Matrix::new(Ring64, 1, 2, vec![a, b]).unwrap();
        let right = Matrix::new(Ring64, 2, 1, vec![b, b]).unwrap();
        let expected = a.wrapping_mul(b).wrapping_add(b.wrapping_mul(b));
        for kernel in WordKernel::available() {
            assert_eq!(left.product_by(kernel, &right).unwrap().elements(), [expected], "{}", kernel.name());
        }
    }

    #[test]
    fn wrong_shapes_are_named() {
        let a = Matrix::zero(Ring64, 2, 3);
        assert_eq!(a.product(&a).unwrap_err().to_string(), "product: expected a 3x3 matrix, found 2x3");
    }
}

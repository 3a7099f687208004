//! Matrix products modulo 2^64, fast. Vector units multiply 32-bit halves, so a product of words is three of
//! those: low times low, and the two mixed ones, whose sum moves up by 32 bits once, at the end.

use pulp::{Arch, Simd, WithSimd};

use crate::{AlgebraError, Matrix, Ring64};

/// Columns whose sums are kept in registers.
const STRIP: usize = 8;

const LOW: u64 = u32::MAX as u64;

impl Matrix<Ring64> {
    /// The matrix product, equal to [`Matrix::multiply`] and faster.
    pub fn product(&self, other: &Self) -> Result<Self, AlgebraError> {
        if self.columns() != other.rows() {
            let expected = (self.columns(), other.columns());
            return Err(AlgebraError::Shape { operation: "product", expected, found: other.shape() });
        }
        let mut product = vec![0; self.rows() * other.columns()];
        Arch::new().dispatch(RingProduct { left: self, right: other, product: &mut product });
        Matrix::new(Ring64, self.rows(), other.columns(), product)
    }
}

struct RingProduct<'a> {
    left: &'a Matrix<Ring64>,
    right: &'a Matrix<Ring64>,
    product: &'a mut [u64],
}

impl WithSimd for RingProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let columns = self.right.columns();
        let mut strip = vec![[0; STRIP]; self.right.rows()];
        for first in (0..columns).step_by(STRIP) {
            let width = STRIP.min(columns - first);
            for (k, words) in strip.iter_mut().enumerate() {
                words[..width].copy_from_slice(&self.right.row(k)[first..first + width]);
            }
            let mut row = 0;
            while row + 1 < self.left.rows() {
                let sums = two_rows(self.left.row(row), self.left.row(row + 1), &strip);
                for (row, sums) in (row..).zip(&sums) {
                    self.product[row * columns + first..][..width].copy_from_slice(&sums[..width]);
                }
                row += 2;
            }
            if row < self.left.rows() {
                let [sums, _] = two_rows(self.left.row(row), self.left.row(row), &strip);
                self.product[row * columns + first..][..width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// Two rows of factors times a strip.
#[inline(always)]
fn two_rows(first: &[u64], second: &[u64], strip: &[[u64; STRIP]]) -> [[u64; STRIP]; 2] {
    let (mut low, mut mixed) = ([[0u64; STRIP]; 2], [[0u64; STRIP]; 2]);
    for ((&a, &b), words) in first.iter().zip(second).zip(strip) {
        for j in 0..STRIP {
            let (w, x) = (words[j] & LOW, words[j] >> 32);
            for (row, factor) in [(0, a), (1, b)] {
                let (f, g) = (factor & LOW, factor >> 32);
                low[row][j] = low[row][j].wrapping_add(f.wrapping_mul(w));
                mixed[row][j] = mixed[row][j].wrapping_add(f.wrapping_mul(x)).wrapping_add(g.wrapping_mul(w));
            }
        }
    }
    let mut sums = low;
    for row in 0..2 {
        for j in 0..STRIP {
            sums[row][j] = sums[row][j].wrapping_add(mixed[row][j] << 32);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Prg, Seed};

    proptest! {
        #[test]
        fn the_fast_product_is_the_obvious_one(
            rows in 0usize..9, inner in 0usize..150, columns in 0usize..600, seed: [u8; 32],
        ) {
            let mut prg = Prg::new(&Seed::from_bytes(seed));
            let a = Matrix::uniform(Ring64, rows, inner, &mut prg);
            let b = Matrix::uniform(Ring64, inner, columns, &mut prg);
            prop_assert_eq!(a.product(&b).unwrap(), a.multiply(&b).unwrap());
        }
    }

    #[test]
    fn wrong_shapes_are_named() {
        let a = Matrix::zero(Ring64, 2, 3);
        assert_eq!(a.product(&a).unwrap_err().to_string(), "product: expected a 3x3 matrix, found 2x3");
    }

    #[test]
    #[ignore = "prints rates"]
    fn rates() {
        let mut prg = Prg::new(&Seed::from_bytes([1; 32]));
        for (rows, inner, columns) in [(2, 48, 2000), (32, 784, 2000), (100, 100, 2000)] {
            let a = Matrix::uniform(Ring64, rows, inner, &mut prg);
            let b = Matrix::uniform(Ring64, inner, columns, &mut prg);
            let rate = |f: &dyn Fn() -> u64| {
                let start = std::time::Instant::now();
                let sum = (0..5).map(|_| f()).fold(0, u64::wrapping_add);
                let each = start.elapsed().as_secs_f64() / 5.0;
                (sum, (rows * inner * columns) as f64 / each / 1e9)
            };
            let slow = rate(&|| a.multiply(&b).unwrap().at(0, 0));
            let fast = rate(&|| a.product(&b).unwrap().at(0, 0));
            println!("{rows}x{inner}x{columns}: {:.2} and {:.2} giga-products/s", slow.1, fast.1);
        }
    }
}

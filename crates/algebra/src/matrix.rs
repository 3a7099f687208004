//! Matrices over a ring, row by row.

use std::ops::Range;

use zeroize::Zeroize;

use crate::{AlgebraError, Prg, Ring, Seed, wipe};

/// A matrix whose elements belong to `ring`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix<R: Ring> {
    ring: R,
    rows: usize,
    columns: usize,
    elements: Vec<u64>,
}

impl<R: Ring> Matrix<R> {
    /// All zero.
    pub fn zero(ring: R, rows: usize, columns: usize) -> Self {
        Self { ring, rows, columns, elements: vec![0; rows * columns] }
    }

    /// From elements, row by row; each must be reduced.
    pub fn new(ring: R, rows: usize, columns: usize, elements: Vec<u64>) -> Result<Self, AlgebraError> {
        if rows.checked_mul(columns) != Some(elements.len()) {
            let found = (elements.len(), 1);
            return Err(AlgebraError::Shape { operation: "matrix", expected: (rows, columns), found });
        }
        match elements.iter().position(|&x| !ring.contains(x)) {
            Some(index) => Err(AlgebraError::Unreduced { index, modulus: ring.modulus() }),
            None => Ok(Self { ring, rows, columns, elements }),
        }
    }

    /// Element by element.
    ///
    /// # Panics
    /// Panics if `element` returns a word that is no element of the ring.
    pub fn from_fn(ring: R, rows: usize, columns: usize, element: impl Fn(usize, usize) -> u64) -> Self {
        let elements: Vec<u64> =
            (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))).map(|(r, c)| element(r, c)).collect();
        assert!(elements.iter().all(|&x| ring.contains(x)), "elements are reduced");
        Self { ring, rows, columns, elements }
    }

    /// Uniform elements.
    pub fn uniform(ring: R, rows: usize, columns: usize, prg: &mut Prg) -> Self {
        let mut matrix = Self::zero(ring, rows, columns);
        ring.fill_uniform(prg, &mut matrix.elements);
        matrix
    }

    /// The uniform matrix that a seed stands for.
    pub fn seeded(ring: R, rows: usize, columns: usize, seed: &Seed) -> Self {
        let mut matrix = Self::zero(ring, rows, columns);
        ring.fill_seeded(seed, &mut matrix.elements);
        matrix
    }

    /// The ring.
    pub fn ring(&self) -> R {
        self.ring
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The elements, row by row.
    pub fn elements(&self) -> &[u64] {
        &self.elements
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[u64] {
        &self.elements[row * self.columns..(row + 1) * self.columns]
    }

    /// Some of its rows.
    #[must_use]
    pub fn row_range(&self, rows: Range<usize>) -> Self {
        let elements = self.elements[rows.start * self.columns..rows.end * self.columns].to_vec();
        Self { ring: self.ring, rows: rows.len(), columns: self.columns, elements }
    }

    /// One element.
    #[inline(always)]
    pub fn at(&self, row: usize, column: usize) -> u64 {
        self.elements[row * self.columns + column]
    }

    /// Replaces one element.
    ///
    /// # Panics
    /// Panics if the word is no element of the ring.
    pub fn set(&mut self, row: usize, column: usize, element: u64) {
        assert!(self.ring.contains(element), "elements are reduced");
        self.elements[row * self.columns + column] = element;
    }

    /// Entrywise sum.
    pub fn add(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.zip(other, "sum", |a, b| self.ring.add(a, b))
    }

    /// Entrywise difference.
    pub fn sub(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.zip(other, "difference", |a, b| self.ring.sub(a, b))
    }

    /// Every entry times one element.
    #[must_use]
    pub fn scale(&self, factor: u64) -> Self {
        let elements = self.elements.iter().map(|&x| self.ring.mul(x, factor)).collect();
        Self { elements, ..*self }
    }

    /// The matrix product: the slow, obvious answer that every encrypted product is compared with.
    pub fn multiply(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.check_ring(other)?;
        if self.columns != other.rows {
            let expected = (self.columns, other.columns);
            return Err(AlgebraError::Shape { operation: "product", expected, found: other.shape() });
        }
        let mut product = Self::zero(self.ring, self.rows, other.columns);
        for r in 0..self.rows {
            for (i, &a) in self.row(r).iter().enumerate() {
                let target = &mut product.elements[r * other.columns..(r + 1) * other.columns];
                for (t, &b) in target.iter_mut().zip(other.row(i)) {
                    *t = self.ring.add(*t, self.ring.mul(a, b));
                }
            }
        }
        Ok(product)
    }

    fn check_ring(&self, other: &Self) -> Result<(), AlgebraError> {
        if self.ring == other.ring {
            return Ok(());
        }
        Err(AlgebraError::MixedRings { expected: self.ring.modulus(), found: other.ring.modulus() })
    }

    fn zip(
        &self,
        other: &Self,
        operation: &'static str,
        f: impl Fn(u64, u64) -> u64,
    ) -> Result<Self, AlgebraError> {
        self.check_ring(other)?;
        if self.shape() != other.shape() {
            return Err(AlgebraError::Shape { operation, expected: self.shape(), found: other.shape() });
        }
        let elements = self.elements.iter().zip(&other.elements).map(|(&a, &b)| f(a, b)).collect();
        Ok(Self { elements, ..*self })
    }
}

impl<R: Ring> Zeroize for Matrix<R> {
    fn zeroize(&mut self) {
        wipe(&mut self.elements);
        self.elements.clear();
        (self.rows, self.columns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Ring64};

    #[test]
    fn products_are_the_textbook_ones() {
        let a = Matrix::new(Ring64, 2, 3, vec![1, 2, 3, 4, 5, 6]).unwrap();
        let b = Matrix::new(Ring64, 3, 2, vec![7, 8, 9, 10, 11, 12]).unwrap();
        assert_eq!(a.multiply(&b).unwrap().elements(), [58, 64, 139, 154]);
    }

    #[test]
    fn wrong_shapes_rings_and_residues_are_named() {
        let field = Field::standard();
        let a = Matrix::zero(field, 2, 3);
        let error = a.multiply(&Matrix::zero(field, 2, 3)).unwrap_err();
        assert_eq!(error.to_string(), "product: expected a 3x3 matrix, found 2x3");
        assert!(matches!(a.add(&Matrix::zero(Field::compact(), 2, 3)), Err(AlgebraError::MixedRings { .. })));
        let unreduced = Matrix::new(field, 1, 2, vec![0, field.modulus()]).unwrap_err();
        assert_eq!(unreduced, AlgebraError::Unreduced { index: 1, modulus: field.modulus() });
        assert!(Matrix::new(field, usize::MAX, 2, vec![]).is_err());
    }
}

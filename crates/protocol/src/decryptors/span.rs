//! Which vectors are sums of multiples of others.

use secsv_federation::Coalition;

/// 2^61 - 1. The determinant of a square matrix of zeros and ones with up to 36 rows is smaller (Hadamard), so
/// up to 36 clients the ranks below are those over the rationals. Beyond, a rank could only differ where a
/// determinant that is not zero happens to be a multiple of this prime.
const PRIME: u64 = (1 << 61) - 1;

/// A vector with one coordinate per client, modulo [`PRIME`].
pub(super) type Vector = Vec<u64>;

/// One at the members' coordinates, zero elsewhere.
pub(super) fn indicator(members: Coalition, clients: usize) -> Vector {
    (0..clients).map(|client| u64::from(members.contains(client))).collect()
}

/// The span of some vectors, as rows in echelon form: each has a one at its pivot, where all others have zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    rows: Vec<(usize, Vector)>,
}

impl Span {
    /// The vector less its part in the span: zero if and only if the span contains it.
    pub fn reduce(&self, mut vector: Vector) -> Vector {
        for (pivot, row) in &self.rows {
            eliminate(&mut vector, row, *pivot);
        }
        vector
    }

    /// Whether the vector is a sum of multiples of those added.
    pub fn contains(&self, vector: Vector) -> bool {
        self.reduce(vector).iter().all(|&value| value == 0)
    }

    /// Adds a vector; whether it was not in the span already.
    pub fn add(&mut self, vector: Vector) -> bool {
        let mut row = self.reduce(vector);
        let Some(pivot) = row.iter().position(|&value| value != 0) else { return false };
        let scale = inverse(row[pivot]);
        for value in &mut row {
            *value = multiply(*value, scale);
        }
        for (_, other) in &mut self.rows {
            eliminate(other, &row, pivot);
        }
        self.rows.push((pivot, row));
        true
    }

    /// The largest number of independent vectors in it.
    pub fn rank(&self) -> usize {
        self.rows.len()
    }
}

/// Subtracts the multiple of `row` that leaves zero at its pivot.
fn eliminate(vector: &mut [u64], row: &[u64], pivot: usize) {
    let factor = vector[pivot];
    if factor != 0 {
        let negated = PRIME - factor;
        for (value, &other) in vector.iter_mut().zip(row) {
            *value = reduce(u128::from(*value) + u128::from(negated) * u128::from(other));
        }
    }
}

fn multiply(a: u64, b: u64) -> u64 {
    reduce(u128::from(a) * u128::from(b))
}

/// The remainder of a number below 2^122: 2^61 counts as one.
fn reduce(number: u128) -> u64 {
    let sum = (number as u64 & PRIME) + (number >> 61) as u64;
    if sum >= PRIME { sum - PRIME } else { sum }
}

/// Of a number that is not zero, by Fermat's little theorem.
fn inverse(of: u64) -> u64 {
    let (mut power, mut base, mut exponent) = (1, of, PRIME - 2);
    while exponent != 0 {
        if exponent & 1 == 1 {
            power = multiply(power, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[usize]) -> Vector {
        indicator(members.iter().copied().collect(), 4)
    }

    #[test]
    fn differences_are_in_the_span() {
        let mut span = Span::default();
        assert!(span.add(set(&[0, 1, 2])) && span.add(set(&[1, 2])));
        assert!(!span.add(set(&[0])));
        assert!(span.contains(set(&[])) && !span.contains(set(&[1])));
        assert_eq!(span.rank(), 2);
    }

    #[test]
    fn remainders_are_reduced() {
        let largest = u128::from(PRIME - 1);
        for number in [0, 1, largest, largest + 1, largest + 2, largest * largest + largest] {
            assert_eq!(u128::from(reduce(number)), number % u128::from(PRIME));
        }
        assert_eq!(multiply(inverse(PRIME - 5), PRIME - 5), 1);
    }

    #[test]
    fn halves_of_sums_are_in_the_span() {
        let mut span = Span::default();
        for pair in [[0, 1], [1, 2], [0, 2]] {
            assert!(span.add(set(&pair)));
        }
        assert!(span.contains(set(&[1])));
        assert!(!span.contains(set(&[3])));
    }
}

//! Least squares.

use nalgebra::{Cholesky, DMatrix};

/// The X of smallest |matrix X - values|^2 + ridge |X|^2, column by column. The ridge is a part of the
/// largest diagonal element.
pub fn least_squares(matrix: &DMatrix<f64>, values: &DMatrix<f64>, ridge: f64) -> Option<DMatrix<f64>> {
    let mut normal = matrix.tr_mul(matrix);
    let largest = normal.diagonal().iter().copied().fold(0.0, f64::max);
    for i in 0..normal.nrows() {
        normal[(i, i)] += ridge * largest;
    }
    Some(Cholesky::new(normal)?.solve(&matrix.tr_mul(values)))
}

/// The correlation of two lists of numbers.
pub fn correlation<'a>(
    one: impl IntoIterator<Item = &'a f64>,
    other: impl IntoIterator<Item = &'a f64>,
) -> f64 {
    let pairs: Vec<(f64, f64)> = one.into_iter().copied().zip(other.into_iter().copied()).collect();
    let count = pairs.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (a, b) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let both = sum(&|(x, y)| (x - a) * (y - b));
    let squares = sum(&|(x, _)| (x - a).powi(2)) * sum(&|(_, y)| (y - b).powi(2));
    both / squares.sqrt().max(f64::MIN_POSITIVE)
}

/// The median of magnitudes.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().map(f64::abs).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdetermined_system_gives_its_solution() {
        let matrix = DMatrix::from_row_slice(3, 2, &[1.0, 2.0, 0.5, -1.0, 3.0, 1.0]);
        let solution = DMatrix::from_row_slice(2, 1, &[0.25, -2.0]);
        let found = least_squares(&matrix, &(&matrix * &solution), 0.0).unwrap();
        assert!((found - &solution).amax() < 1e-12);
        assert!(least_squares(&matrix.rows(0, 1).into_owned(), &DMatrix::zeros(1, 1), 0.0).is_none());
    }

    #[test]
    fn correlations_and_medians() {
        assert!((correlation(&[1.0, 2.0, 4.0], &[2.0, 4.0, 8.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0, 4.0], &[-1.0, -2.0, -4.0]) + 1.0).abs() < 1e-12);
        assert_eq!(median([-3.0, 1.0, 2.0]), 2.0);
    }
}

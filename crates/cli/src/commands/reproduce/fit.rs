//! Straight lines through measurements.

use serde::Serialize;

use super::table::figure;

/// y = intercept + slope x by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LineFit {
    /// Where it begins.
    pub intercept: f64,
    /// How it grows.
    pub slope: f64,
    /// The share of the variance that it explains.
    pub r_squared: f64,
}

impl LineFit {
    /// The best line; none through fewer than two different x.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
        if spread.is_nan() || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
        let intercept = y - slope * x;
        let total: f64 = points.iter().map(|p| (p.1 - y).powi(2)).sum();
        let left: f64 = points.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
        let r_squared = if total > 0.0 { 1.0 - left / total } else { 1.0 };
        Some(Self { intercept, slope, r_squared })
    }

    /// Its value.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// In words.
    pub fn words(&self, x: &str) -> String {
        let sign = if self.slope < 0.0 { '-' } else { '+' };
        let slope = figure(self.slope.abs());
        format!("{} s {sign} {slope} s per {x}, R^2 = {:.3}", figure(self.intercept), self.r_squared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_a_curve_is_told_apart() {
        let exact: Vec<(f64, f64)> = (1..6).map(|x| (f64::from(x), 2.0 + 3.0 * f64::from(x))).collect();
        let line = LineFit::through(&exact).unwrap();
        assert!((line.intercept - 2.0).abs() < 1e-9 && (line.slope - 3.0).abs() < 1e-9);
        assert!((line.r_squared - 1.0).abs() < 1e-12);
        let curve: Vec<(f64, f64)> = (1..8).map(|x| (f64::from(x), 2f64.powi(x))).collect();
        assert!(LineFit::through(&curve).unwrap().r_squared < 0.85);
        assert_eq!(LineFit::through(&exact[..1]), None);
        assert_eq!(LineFit::through(&[]), None);
    }
}

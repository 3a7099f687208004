//! Running mean and standard error of vectors, one number per client.

use crate::{Error, values::Estimate};

/// Fewer observations than this say too little about their own spread to stop on.
const ENOUGH_TO_TRUST: u64 = 16;

/// Means and squared deviations of independent observations (Welford 1962).
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    count: u64,
    means: Vec<f64>,
    squares: Vec<f64>,
    /// Number of different observations that exist, where they are drawn without repeats.
    population: Option<u64>,
}

impl Spread {
    pub(crate) fn new(clients: usize, population: Option<u64>) -> Self {
        Self { count: 0, means: vec![0.0; clients], squares: vec![0.0; clients], population }
    }

    pub(crate) fn add(&mut self, observation: &[f64]) {
        self.count += 1;
        let count = self.count as f64;
        for ((mean, square), value) in self.means.iter_mut().zip(&mut self.squares).zip(observation) {
            let before = value - *mean;
            *mean += before / count;
            *square += before * (value - *mean);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn means(&self) -> &[f64] {
        &self.means
    }

    /// Whether every observation there is has been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.population.is_some_and(|population| self.count >= population)
    }

    /// Whether there is a mean and a statement about its error.
    pub(crate) fn has_values(&self) -> bool {
        self.count >= 2 || self.is_complete()
    }

    /// The means as values of `method`, if there are any yet.
    pub(crate) fn estimate(&self, method: &'static str) -> Result<Estimate, Error> {
        if self.has_values() {
            Ok(Estimate::sampled(self.means.clone(), self.standard_errors()))
        } else {
            Err(Error::Budget { method, expected: 2, found: self.count as usize })
        }
    }

    /// `None` when the means are exact.
    pub(crate) fn standard_errors(&self) -> Option<Vec<f64>> {
        if self.is_complete() {
            return None;
        }
        let count = self.count as f64;
        let unseen = self.population.map_or(1.0, |population| 1.0 - count / population as f64);
        Some(self.squares.iter().map(|square| (unseen * square / (count - 1.0) / count).sqrt()).collect())
    }

    pub(crate) fn worst_error(&self) -> Option<f64> {
        if self.is_complete() {
            return Some(0.0);
        }
        (self.count >= ENOUGH_TO_TRUST)
            .then(|| self.standard_errors().unwrap_or_default().into_iter().fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_error_are_the_textbook_ones() {
        let mut spread = Spread::new(1, None);
        for value in [1.0, 2.0, 3.0, 6.0] {
            spread.add(&[value]);
        }
        assert_eq!(spread.means(), [3.0]);
        assert!((spread.standard_errors().unwrap()[0] - (14.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
        assert_eq!(spread.worst_error(), None, "four observations are too few to stop on");
    }

    #[test]
    fn drawn_without_repeats_the_error_ends_at_nothing() {
        let mut spread = Spread::new(1, Some(3));
        spread.add(&[1.0]);
        spread.add(&[2.0]);
        assert!((spread.standard_errors().unwrap()[0] - (0.5f64 / 2.0 / 3.0).sqrt()).abs() < 1e-15);
        spread.add(&[3.0]);
        assert_eq!((spread.standard_errors(), spread.worst_error()), (None, Some(0.0)));
    }
}

//! Samples in memory: feature arrays of one shape and their labels.

use crate::seeds::{Purpose, generator};
use rand::seq::SliceRandom;

/// Samples of one shape, row after row, with a class each.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    shape: Vec<usize>,
    features: Vec<f32>,
    labels: Vec<u32>,
}

impl Samples {
    /// Takes rows of `shape`, one after the other, and a label for each.
    ///
    /// # Panics
    /// Panics if the number of features is not the number of labels times the size of the shape.
    pub fn new(shape: Vec<usize>, features: Vec<f32>, labels: Vec<u32>) -> Self {
        assert_eq!(
            features.len(),
            labels.len() * shape.iter().product::<usize>(),
            "features of every sample"
        );
        Self { shape, features, labels }
    }

    /// The shape of one sample, e.g. `[1, 28, 28]`.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Numbers per sample.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// All features, row after row.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// The label of every row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The labels, to plant faults in.
    pub fn labels_mut(&mut self) -> &mut [u32] {
        &mut self.labels
    }

    /// The features of one sample.
    pub fn row(&self, index: usize) -> &[f32] {
        let width = self.width();
        &self.features[index * width..(index + 1) * width]
    }

    /// The chosen rows, in the order given.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let features = rows.iter().flat_map(|&row| self.row(row).iter().copied()).collect();
        let labels = rows.iter().map(|&row| self.labels[row]).collect();
        Self { shape: self.shape.clone(), features, labels }
    }

    /// The same numbers under another shape of the same size.
    ///
    /// # Panics
    /// Panics if the sizes differ.
    #[must_use]
    pub fn reshaped(self, shape: Vec<usize>) -> Self {
        Self::new(shape, self.features, self.labels)
    }

    /// Samples of each class.
    pub fn class_sizes(&self, classes: usize) -> Vec<usize> {
        let mut sizes = vec![0; classes];
        self.labels.iter().for_each(|&label| sizes[label as usize] += 1);
        sizes
    }

    /// Row numbers by class.
    pub fn rows_by_class(&self, classes: usize) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); classes];
        for (row, &label) in self.labels.iter().enumerate() {
            rows[label as usize].push(row);
        }
        rows
    }

    /// Cuts a table in two, class by class: `share` of every class (rounded) becomes the test set. Rows keep
    /// their order. The same seed gives the same cut.
    pub fn hold_out(&self, classes: usize, share: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
        let mut order = generator(seed, Purpose::HoldOut);
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for mut rows in self.rows_by_class(classes) {
            rows.shuffle(&mut order);
            let held = (rows.len() as f64 * share).round() as usize;
            test.extend_from_slice(&rows[..held]);
            train.extend_from_slice(&rows[held..]);
        }
        train.sort_unstable();
        test.sort_unstable();
        (train, test)
    }

    /// At most `limit` rows, drawn without replacement; the rest keep their order.
    pub fn limited_rows(&self, limit: usize, seed: u64) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.len()).collect();
        if limit < rows.len() {
            rows.shuffle(&mut generator(seed, Purpose::Limit));
            rows.truncate(limit);
            rows.sort_unstable();
        }
        rows
    }
}

/// Mean and deviation per column, learnt from training samples and applied to all.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardiser {
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

impl Standardiser {
    /// Population mean and deviation of every column; a constant column keeps its scale.
    pub fn per_column(samples: &Samples) -> Self {
        let (width, count) = (samples.width(), samples.len().max(1) as f64);
        let mut mean = vec![0.0; width];
        for row in samples.features().chunks_exact(width) {
            row.iter().zip(&mut mean).for_each(|(&x, m)| *m += f64::from(x) / count);
        }
        let mut deviation = vec![0.0; width];
        for row in samples.features().chunks_exact(width) {
            for ((&x, m), d) in row.iter().zip(&mean).zip(&mut deviation) {
                *d += (f64::from(x) - m).powi(2) / count;
            }
        }
        deviation.iter_mut().for_each(|d| *d = if *d > 1e-24 { d.sqrt() } else { 1.0 });
        Self { mean, deviation }
    }

    /// One mean and one deviation for all numbers, as is usual for images and sequences.
    pub fn overall(samples: &Samples) -> Self {
        let whole = Samples {
            shape: vec![1],
            features: samples.features.clone(),
            labels: vec![0; samples.features.len()],
        };
        let one = Self::per_column(&whole);
        Self { mean: vec![one.mean[0]; samples.width()], deviation: vec![one.deviation[0]; samples.width()] }
    }

    /// `(x - mean) / deviation` in place.
    pub fn apply(&self, samples: &mut Samples) {
        let width = samples.width();
        for row in samples.features.chunks_exact_mut(width) {
            for ((x, m), d) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
                *x = ((f64::from(*x) - m) / d) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Samples {
        let features = (0..40).map(|i| i as f32).collect();
        Samples::new(vec![2], features, (0..20).map(|i| u32::from(i % 4 == 0)).collect())
    }

    #[test]
    fn hold_out_keeps_classes_in_proportion_and_loses_nothing() {
        let (train, test) = table().hold_out(2, 0.4, 3);
        let mut all = [train.clone(), test.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        assert_eq!(test.len(), 8);
        assert_eq!(test.iter().filter(|&&row| row % 4 == 0).count(), 2);
        assert_eq!(table().hold_out(2, 0.4, 3), (train, test.clone()));
        assert_ne!(table().hold_out(2, 0.4, 4).1, test);
    }

    #[test]
    fn standardised_columns_have_mean_zero_and_deviation_one() {
        let mut samples = table();
        Standardiser::per_column(&samples).apply(&mut samples);
        let column: Vec<f32> = samples.features().iter().step_by(2).copied().collect();
        let mean = column.iter().sum::<f32>() / 20.0;
        let variance = column.iter().map(|x| x * x).sum::<f32>() / 20.0;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean} {variance}");
        let mut constant = Samples::new(vec![1], vec![5.0; 3], vec![0; 3]);
        Standardiser::per_column(&constant).apply(&mut constant);
        assert_eq!(constant.features(), [0.0; 3]);
    }

    #[test]
    fn a_limit_draws_distinct_rows_in_order() {
        let rows = table().limited_rows(5, 1);
        assert_eq!(rows.len(), 5);
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(table().limited_rows(50, 1).len(), 20);
    }
}

//! A client's private test samples.

use crate::{Defect, architecture::stored_order, weights::element_count};

/// Samples and their labels (the paper's D_i = (X_i, Y_i)). It may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSet {
    input: Vec<usize>,
    features: Vec<f32>,
    labels: Vec<i64>,
}

impl TestSet {
    /// Samples of shape `input`, one after the other, and a label for each.
    pub fn new(input: Vec<usize>, features: Vec<f32>, labels: Vec<i64>) -> Result<Self, Defect> {
        let mut shape = vec![labels.len()];
        shape.extend(&input);
        if element_count(&shape)? != features.len() {
            let expected = format!("{shape:?} ({} elements)", features.len());
            return Err(Defect::Shape { expected, found: shape });
        }
        Ok(Self { input, features, labels })
    }

    /// Number of samples (the paper's m_i).
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The shape of one sample.
    pub fn input(&self) -> &[usize] {
        &self.input
    }

    /// All samples, one after the other.
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// The true class of each sample.
    pub fn labels(&self) -> &[i64] {
        &self.labels
    }

    /// Looks for a feature that is no finite number.
    pub fn check_features(&self) -> Result<(), Defect> {
        match self.features.iter().position(|v| !v.is_finite()) {
            Some(position) => Err(Defect::NotFinite { position, found: self.features[position].into() }),
            None => Ok(()),
        }
    }

    /// Images of `[channels, height, width]` from images of `[height, width, channels]`; other samples as they are.
    pub(crate) fn with_channels_first(self) -> Self {
        let &[height, width, channels] = &self.input[..] else { return self };
        let order = stored_order([channels, height, width]);
        let mut features = vec![0.0; self.features.len()];
        let samples =
            features.chunks_exact_mut(order.len().max(1)).zip(self.features.chunks_exact(order.len().max(1)));
        for (sample, stored) in samples {
            order.iter().zip(stored).for_each(|(&place, &number)| sample[place] = number);
        }
        Self { input: vec![channels, height, width], features, labels: self.labels }
    }

    /// Looks for a number that is no row of a table.
    pub fn check_rows(&self, rows: usize) -> Result<(), Defect> {
        let is_row = |number: &f32| *number >= 0.0 && number.fract() == 0.0 && (*number as usize) < rows;
        match self.features.iter().position(|number| !is_row(number)) {
            Some(position) => Err(Defect::Row { rows, position, found: self.features[position] }),
            None => Ok(()),
        }
    }

    /// Looks for a label outside `0..classes`.
    pub fn check_labels(&self, classes: usize) -> Result<(), Defect> {
        let is_class = |label: &i64| usize::try_from(*label).is_ok_and(|l| l < classes);
        match self.labels.iter().position(|label| !is_class(label)) {
            Some(position) => Err(Defect::Label { classes, position, found: self.labels[position] }),
            None => Ok(()),
        }
    }
}

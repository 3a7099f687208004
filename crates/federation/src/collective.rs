//! The union of all clients' test sets, on which every coalition is tested.

use crate::{ClientId, Defect, Error, RunDirectory, TestSet};

/// All clients' samples one after the other, in the order of the clients (the paper's collective test set).
#[derive(Clone, Debug)]
pub struct CollectiveTestSet {
    sample_size: usize,
    features: Vec<f32>,
    labels: Vec<i64>,
    sizes: Vec<usize>,
}

impl CollectiveTestSet {
    /// Joins test sets whose samples all have `sample_size` numbers; `None` if one has not.
    pub fn new<'a>(sample_size: usize, test_sets: impl IntoIterator<Item = &'a TestSet>) -> Option<Self> {
        let mut joined = Self { sample_size, features: Vec::new(), labels: Vec::new(), sizes: Vec::new() };
        for test_set in test_sets {
            joined.push(test_set)?;
        }
        Some(joined)
    }

    /// Reads the test sets of all clients of a run.
    pub fn read(run: &RunDirectory) -> Result<Self, Error> {
        let sample_size = run.architecture().input_size();
        let mut joined = Self { sample_size, features: Vec::new(), labels: Vec::new(), sizes: Vec::new() };
        for client in run.spec().ids() {
            let test_set = run.test_set(client)?;
            joined.push(&test_set).ok_or_else(|| mismatch(run, client, &test_set))?;
        }
        Ok(joined)
    }

    fn push(&mut self, test_set: &TestSet) -> Option<()> {
        (test_set.features().len() == test_set.len() * self.sample_size).then(|| {
            self.features.extend_from_slice(test_set.features());
            self.labels.extend_from_slice(test_set.labels());
            self.sizes.push(test_set.len());
        })
    }

    /// Number of samples (the paper's M).
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of samples that each client brought.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Numbers in one sample.
    pub fn sample_size(&self) -> usize {
        self.sample_size
    }

    /// One sample's numbers.
    pub fn sample(&self, position: usize) -> &[f32] {
        &self.features[position * self.sample_size..][..self.sample_size]
    }

    /// The true classes.
    pub fn labels(&self) -> &[i64] {
        &self.labels
    }
}

fn mismatch(run: &RunDirectory, client: &ClientId, test_set: &TestSet) -> Error {
    let expected = format!("{:?}", run.architecture().input());
    let defect = Defect::Shape { expected, found: test_set.input().to_vec() };
    Error::defect(run.path().join("clients").join(client.as_str()), "x", defect)
}

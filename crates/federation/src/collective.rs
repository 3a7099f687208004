//! The union of all clients' test sets, on which every coalition is tested.

use std::borrow::Cow;

use crate::{ClientId, Defect, Error, RunDirectory, TestSet};

/// All clients' samples one after the other, in the order of the clients (the paper's collective test set).
#[derive(Clone, Debug)]
pub struct CollectiveTestSet<'a> {
    sample_size: usize,
    features: Cow<'a, [f32]>,
    labels: Cow<'a, [i64]>,
    sizes: Vec<usize>,
}

impl<'a> CollectiveTestSet<'a> {
    /// Joins test sets whose samples all have `sample_size` numbers; `None` if one has not. A single one is not copied.
    pub fn new(sample_size: usize, test_sets: impl IntoIterator<Item = &'a TestSet>) -> Option<Self> {
        let mut joined = Self::empty(sample_size);
        for test_set in test_sets {
            joined.push(test_set)?;
        }
        Some(joined)
    }

    fn empty(sample_size: usize) -> Self {
        let (features, labels) = (Cow::Borrowed(&[][..]), Cow::Borrowed(&[][..]));
        Self { sample_size, features, labels, sizes: Vec::new() }
    }

    fn push(&mut self, test_set: &'a TestSet) -> Option<()> {
        let fits = test_set.features().len() == test_set.len() * self.sample_size;
        fits.then(|| {
            if self.sizes.is_empty() {
                self.features = Cow::Borrowed(test_set.features());
                self.labels = Cow::Borrowed(test_set.labels());
            } else {
                self.features.to_mut().extend_from_slice(test_set.features());
                self.labels.to_mut().extend_from_slice(test_set.labels());
            }
            self.sizes.push(test_set.len());
        })
    }
}

impl CollectiveTestSet<'static> {
    /// Reads the test sets of all clients of a run.
    pub fn read(run: &RunDirectory) -> Result<Self, Error> {
        let sample_size = run.architecture().input_size();
        let (mut features, mut labels, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for client in run.spec().ids() {
            let test_set = run.test_set(client)?;
            if test_set.features().len() != test_set.len() * sample_size {
                return Err(mismatch(run, client, &test_set));
            }
            features.extend_from_slice(test_set.features());
            labels.extend_from_slice(test_set.labels());
            sizes.push(test_set.len());
        }
        Ok(Self { sample_size, features: Cow::Owned(features), labels: Cow::Owned(labels), sizes })
    }
}

impl CollectiveTestSet<'_> {
    /// The same samples, copied where they are another's.
    pub fn into_owned(self) -> CollectiveTestSet<'static> {
        let Self { sample_size, features, labels, sizes } = self;
        let (features, labels) = (Cow::Owned(features.into_owned()), Cow::Owned(labels.into_owned()));
        CollectiveTestSet { sample_size, features, labels, sizes }
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

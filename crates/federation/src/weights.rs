//! A model's parameters: named tensors of single-precision numbers.

use std::collections::BTreeMap;

use crate::Defect;

/// Numbers in a box of any dimension, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Tensor {
    /// A tensor of this shape; `values` must hold exactly its elements.
    pub fn new(shape: Vec<usize>, values: Vec<f32>) -> Result<Self, Defect> {
        let elements = element_count(&shape)?;
        if elements != values.len() {
            let expected = format!("of {} elements", values.len());
            return Err(Defect::Shape { expected, found: shape });
        }
        Ok(Self { shape, values })
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The elements, row by row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// The first element that is not a finite number.
    pub fn check_finite(&self) -> Result<(), Defect> {
        match self.values.iter().position(|v| !v.is_finite()) {
            Some(position) => Err(Defect::NotFinite { position, found: self.values[position].into() }),
            None => Ok(()),
        }
    }
}

/// Number of elements of a shape, unless that overflows.
pub(crate) fn element_count(shape: &[usize]) -> Result<usize, Defect> {
    // The limit leaves room for eight bytes an element in an address space of signed size.
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|&n| n <= isize::MAX as usize / 8)
        .ok_or_else(|| Defect::TooLarge { found: shape.to_vec() })
}

/// A model's parameters by tensor name (the paper's theta).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(BTreeMap<String, Tensor>);

impl Weights {
    /// No tensors yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) {
        self.0.insert(name.into(), tensor);
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }

    /// The tensors, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The shape of each tensor.
    pub fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.0.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect()
    }
}

impl FromIterator<(String, Tensor)> for Weights {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

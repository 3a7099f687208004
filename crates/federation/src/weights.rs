//! A model's parameters: named tensors of numbers in single or double precision.

use std::{borrow::Cow, collections::BTreeMap};

use crate::Defect;

/// Numbers in a box of any dimension, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    numbers: Numbers,
}

/// Numbers as precise as the file has them. Half precision is single precision with zeros.
#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Tensor {
    /// A tensor of this shape; `values` must hold exactly its elements.
    pub fn new(shape: Vec<usize>, values: Vec<f32>) -> Result<Self, Defect> {
        check_count(&shape, values.len())?;
        Ok(Self { shape, numbers: Numbers::Single(values) })
    }

    /// The same in double precision.
    pub fn of_doubles(shape: Vec<usize>, values: Vec<f64>) -> Result<Self, Defect> {
        check_count(&shape, values.len())?;
        Ok(Self { shape, numbers: Numbers::Double(values) })
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Single(values) => values.len(),
            Numbers::Double(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, row by row.
    pub fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        let (singles, doubles): (&[f32], &[f64]) = match &self.numbers {
            Numbers::Single(values) => (values, &[]),
            Numbers::Double(values) => (&[], values),
        };
        singles.iter().map(|&v| f64::from(v)).chain(doubles.iter().copied())
    }

    /// The elements, row by row, rounded to single precision where they have more.
    pub fn singles(&self) -> Cow<'_, [f32]> {
        match &self.numbers {
            Numbers::Single(values) => Cow::Borrowed(values),
            Numbers::Double(values) => Cow::Owned(values.iter().map(|&v| v as f32).collect()),
        }
    }

    /// Whether the elements have double precision.
    pub fn is_double(&self) -> bool {
        matches!(self.numbers, Numbers::Double(_))
    }

    /// The bytes of all elements, little-endian, in their own precision.
    pub fn to_le_bytes(&self) -> Vec<u8> {
        match &self.numbers {
            Numbers::Single(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Numbers::Double(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    /// The first element that is not a finite number.
    pub fn check_finite(&self) -> Result<(), Defect> {
        match self.numbers().enumerate().find(|(_, v)| !v.is_finite()) {
            Some((position, found)) => Err(Defect::NotFinite { position, found }),
            None => Ok(()),
        }
    }
}

fn check_count(shape: &[usize], found: usize) -> Result<(), Defect> {
    if element_count(shape)? == found {
        return Ok(());
    }
    Err(Defect::Shape { expected: format!("of {found} elements"), found: shape.to_vec() })
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

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
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

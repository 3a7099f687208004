//! The tensors that layers name, found among those of a model file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::layout::Stored;
use crate::{Defect, Error, Layout};

/// Tensors as layers ask for them.
pub(super) struct Tensors<'a> {
    available: &'a BTreeMap<String, Vec<usize>>,
    file: &'a Path,
    layout: Option<Layout>,
    /// The shapes, as the file has them, of those that layers named.
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
    pub(super) stored: BTreeMap<String, Stored>,
    pub(super) variances: BTreeSet<String>,
    /// The first that fits both as PyTorch and as Keras writes it, by a name that PyTorch does not give.
    pub(super) ambiguous: Option<String>,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(
        available: &'a BTreeMap<String, Vec<usize>>,
        file: &'a Path,
        layout: Option<Layout>,
    ) -> Self {
        Self {
            available,
            file,
            layout,
            shapes: BTreeMap::new(),
            stored: BTreeMap::new(),
            variances: BTreeSet::new(),
            ambiguous: None,
        }
    }

    pub(super) fn is_keras(&self) -> bool {
        self.layout == Some(Layout::Keras)
    }

    pub(super) fn shape_of(&self, name: &str) -> Result<Vec<usize>, Error> {
        self.available.get(name).cloned().ok_or_else(|| {
            let found = self.available.keys().cloned().collect();
            Error::defect(self.file, name, Defect::MissingTensor { found })
        })
    }

    /// A matrix that takes so many inputs: the number of its outputs.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        inputs: usize,
        order: Option<&Vec<usize>>,
    ) -> Result<usize, Error> {
        let found = self.shape_of(name)?;
        let by_rows = matches!(found[..], [outputs, width] if width == inputs && outputs > 0);
        let by_columns = matches!(found[..], [width, outputs] if width == inputs && outputs > 0);
        if self.is_keras() {
            let (true, [_, outputs]) = (by_columns, &found[..]) else {
                return Err(self.wrong(name, format!("[{inputs}, outputs]"), found, false));
            };
            let stored = Stored::Dense { inputs, outputs: *outputs, order: order.cloned() };
            let outputs = *outputs;
            self.add(name, found, Some(stored))?;
            return Ok(outputs);
        }
        let (true, [outputs, _]) = (by_rows, &found[..]) else {
            return Err(self.wrong(name, format!("[outputs, {inputs}]"), found, by_columns));
        };
        let outputs = *outputs;
        self.note_ambiguous(name, by_columns);
        self.add(name, found, None)?;
        Ok(outputs)
    }

    /// A kernel over so many channels in so many groups, of so many dimensions: its outputs, height and width.
    pub(super) fn kernel(
        &mut self,
        name: &str,
        (channels, groups): (usize, usize),
        dimensions: usize,
    ) -> Result<[usize; 3], Error> {
        let found = self.shape_of(name)?;
        let inputs = channels / groups;
        let sides = ["kernel height, kernel width", "kernel length"][2 - dimensions];
        if self.is_keras() {
            let expected = format!("[{sides}, {inputs}, outputs]");
            let &[height, width, depth, last] = &found[..] else {
                return Err(self.wrong(name, expected, found, false));
            };
            let is_depthwise = groups == channels && depth == channels && channels > 1;
            let outputs = if is_depthwise { channels * last } else { last };
            if !is_depthwise && depth != inputs || [outputs, height, width].contains(&0) {
                return Err(self.wrong(name, expected, found, false));
            }
            let shape = [outputs, inputs, height, width];
            let stored = match is_depthwise {
                true => Stored::Depthwise { shape, multiplier: last },
                false => Stored::Kernel(shape),
            };
            self.add(name, found, Some(stored))?;
            return Ok([outputs, height, width]);
        }
        let by_columns = matches!(found[..], [_, _, depth, last] if depth == inputs && last % groups == 0);
        // Channels of the input are counted otherwise where Keras wrote it, so such a kernel need not fit yet.
        let is_image = found.len() == 4;
        let (outputs, depth, height, width) = match (&found[..], dimensions) {
            (&[outputs, depth, height, width], 2) => (outputs, depth, height, width),
            (&[outputs, depth, length], 1) => (outputs, depth, 1, length),
            _ => return Err(self.wrong(name, format!("[outputs, {inputs}, {sides}]"), found, is_image)),
        };
        if depth != inputs || [outputs, height, width].contains(&0) {
            return Err(self.wrong(name, format!("[outputs, {inputs}, {sides}]"), found, is_image));
        }
        self.note_ambiguous(name, by_columns);
        self.add(name, found, None)?;
        Ok([outputs, height, width])
    }

    /// A tensor of one shape, which may be a vector in the order of a flattened image.
    pub(super) fn expect(
        &mut self,
        name: Option<&String>,
        expected: &[usize],
        order: Option<&Vec<usize>>,
    ) -> Result<(), Error> {
        let Some(name) = name else { return Ok(()) };
        let found = self.shape_of(name)?;
        if found != expected {
            return Err(self.wrong(name, format!("{expected:?}"), found, false));
        }
        self.add(name, found, order.map(|order| Stored::Vector(order.clone())))
    }

    fn add(&mut self, name: &str, shape: Vec<usize>, stored: Option<Stored>) -> Result<(), Error> {
        if self.shapes.contains_key(name) && self.stored.get(name) != stored.as_ref() {
            return Err(Error::defect(self.file, name, Defect::TwoOrders));
        }
        self.shapes.insert(name.to_owned(), shape);
        self.stored.extend(stored.map(|stored| (name.to_owned(), stored)));
        Ok(())
    }

    fn note_ambiguous(&mut self, name: &str, fits_both: bool) {
        // PyTorch calls what a layer multiplies with `weight`, `weight_ih_l0` and the like.
        if fits_both && self.layout.is_none() && !name.contains("weight") && self.ambiguous.is_none() {
            self.ambiguous = Some(name.to_owned());
        }
    }

    /// `fits_keras` says whether it is the shape that Keras would write.
    pub(super) fn wrong(&self, name: &str, expected: String, found: Vec<usize>, fits_keras: bool) -> Error {
        let expected = match fits_keras && self.layout.is_none() {
            true => format!("{expected} (or layout = \"keras\" in [model], where Keras wrote it)"),
            false => expected,
        };
        Error::defect(self.file, name, Defect::Shape { expected, found })
    }
}

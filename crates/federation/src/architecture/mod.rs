//! The model as its layers compute it: every size worked out and checked once, before any number is touched.
//!
//! An architecture is a list of layers in an order in which each comes behind those whose outputs it takes. Whoever
//! computes a model walks this list; nothing else says what a layer is.

mod layer;
mod layout;
mod recurrent;
mod tensors;
mod walk;
mod windows;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{Defect, Error, ModelSpec, Tensor, Weights, weights::element_count};

pub use layer::{
    Activation, BatchNorm, Conv2d, Embedding, Gru, Layer, LayerNorm, Linear, Lstm, PlacedLayer, Pool, Source,
    up_to_scores,
};
use layout::Stored;
pub(crate) use layout::stored_order;
use walk::ShapeWalk;

/// A checked architecture: layers with their sizes, and the shape of every tensor they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    input: Vec<usize>,
    classes: usize,
    outputs: usize,
    layers: Vec<PlacedLayer>,
    /// Whether a layer behind the first takes the sample itself.
    keeps_sample: bool,
    tensors: BTreeMap<String, Vec<usize>>,
    /// How those tensors lie in the files that do not lie there as layers take them.
    stored: BTreeMap<String, Stored>,
    /// Tensors of variances.
    variances: BTreeSet<String>,
    /// The first tensor that could lie in the files either way, where the layout is not said.
    ambiguous: Option<String>,
}

impl Architecture {
    /// Follows one sample through the layers. Sizes that only a tensor knows (how many outputs a layer has)
    /// are taken from `shapes`. Errors name `spec_file` for the layers and `model_file` for the tensors.
    pub fn new(
        spec: &ModelSpec,
        shapes: &BTreeMap<String, Vec<usize>>,
        spec_file: &Path,
        model_file: &Path,
    ) -> Result<Self, Error> {
        element_count(&spec.input).map_err(|d| Error::defect(spec_file, "model.input", d))?;
        let mut walk = ShapeWalk::new(spec, shapes, spec_file, model_file);
        for (index, named) in spec.layers.iter().enumerate() {
            walk.place(index, named)?;
        }
        let found = walk.finish()?;
        let outputs = match found.shape[..] {
            [scores] if scores == spec.classes || scores == 1 && spec.classes == 2 => scores,
            _ => {
                let (expected, found) = (after_last(spec.classes, &found.shape), found.shape);
                return Err(Error::defect(spec_file, "model.classes", Defect::Shape { expected, found }));
            }
        };
        let ShapeWalk { input, mut layers, tensors, .. } = walk;
        if tensors.shapes.is_empty() {
            return Err(Error::defect(spec_file, "model.layers", Defect::NoParameters));
        }
        if let Some(extra) = shapes.keys().find(|name| !tensors.shapes.contains_key(*name)) {
            let expected = tensors.shapes.into_keys().collect();
            return Err(Error::defect(model_file, extra, Defect::OtherTensor { expected }));
        }
        if outputs == 1 && !is_one_score(&layers) {
            return Err(Error::defect(spec_file, "model.layers", Defect::OneScore));
        }
        let keeps_sample = mark_kept(&mut layers);
        let tensors::Tensors { shapes: tensors, stored, variances, ambiguous, .. } = tensors;
        let classes = spec.classes;
        Ok(Self { input, classes, outputs, layers, keeps_sample, tensors, stored, variances, ambiguous })
    }

    /// The shape of one sample, as layers take it.
    pub fn input(&self) -> &[usize] {
        &self.input
    }

    /// Numbers in one sample.
    pub fn input_size(&self) -> usize {
        self.input.iter().product()
    }

    /// Number of classes that are told apart.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Numbers that the last layer hands on: one for each class, or one for two classes, of which the second is
    /// predicted where it is above 0.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The layers, each behind those whose outputs it takes.
    pub fn layers(&self) -> &[PlacedLayer] {
        &self.layers
    }

    /// Whether every layer takes what the one before hands on, and the first one the sample.
    pub fn is_chain(&self) -> bool {
        !self.keeps_sample && self.layers.iter().all(|placed| !placed.is_kept)
    }

    /// Whether a layer behind the first takes the sample itself.
    pub(crate) fn keeps_sample(&self) -> bool {
        self.keeps_sample
    }

    /// The shape of every tensor a model of this architecture has, as it is in the files.
    pub fn tensors(&self) -> &BTreeMap<String, Vec<usize>> {
        &self.tensors
    }

    /// Rows of the embedding that takes the sample's numbers, if one does: they are integers below it.
    pub fn vocabulary(&self) -> Option<usize> {
        let rows = self.layers.iter().filter_map(|placed| match &placed.layer {
            Layer::Embedding(embedding) => Some(embedding.rows),
            _ => None,
        });
        rows.min()
    }

    /// A tensor as layers take it, from what a file has; variances below 0 are refused.
    pub(crate) fn tensor_of_file(&self, name: &str, tensor: Tensor) -> Result<Tensor, Defect> {
        if let Some((position, found)) = tensor.numbers().enumerate().find(|(_, number)| *number < 0.0)
            && self.variances.contains(name)
        {
            return Err(Defect::Variance { position, found });
        }
        match self.stored.get(name) {
            None => Ok(tensor),
            Some(stored) => stored.arrange(&tensor),
        }
    }

    /// Refuses an architecture with a tensor that could lie in the files as PyTorch or as Keras writes it, where nothing
    /// says which: shapes fit both ways, and the name is not one that PyTorch gives.
    pub(crate) fn check_layout(&self, file: &Path) -> Result<(), Error> {
        match &self.ambiguous {
            None => Ok(()),
            Some(name) => {
                let found = self.tensors.get(name).cloned().unwrap_or_default();
                Err(Error::defect(file, "model.layout", Defect::Layout { tensor: name.clone(), found }))
            }
        }
    }

    /// Checks that a model has exactly the tensors of this architecture; `file` is named in errors.
    pub fn check(&self, weights: &Weights, file: &Path) -> Result<(), Error> {
        self.check_shapes(&weights.shapes(), file)?;
        for (name, tensor) in weights.iter() {
            tensor.check_finite().map_err(|defect| Error::defect(file, name, defect))?;
        }
        Ok(())
    }

    pub(crate) fn check_shapes(
        &self,
        shapes: &BTreeMap<String, Vec<usize>>,
        file: &Path,
    ) -> Result<(), Error> {
        for (name, expected) in &self.tensors {
            let Some(found) = shapes.get(name) else {
                let found = shapes.keys().cloned().collect();
                return Err(Error::defect(file, name, Defect::MissingTensor { found }));
            };
            if found != expected {
                let defect = Defect::Shape { expected: format!("{expected:?}"), found: found.clone() };
                return Err(Error::defect(file, name, defect));
            }
        }
        match shapes.keys().find(|name| !self.tensors.contains_key(*name)) {
            Some(extra) => {
                let expected = self.tensors.keys().cloned().collect();
                Err(Error::defect(file, extra, Defect::OtherTensor { expected }))
            }
            None => Ok(()),
        }
    }
}

/// The shape that is expected after the last layer.
fn after_last(classes: usize, found: &[usize]) -> String {
    match found {
        [1] => format!("[{classes}] after the last layer (one output tells two classes apart: classes = 2)"),
        [_] if classes == 2 => "[2] or [1] after the last layer".to_owned(),
        _ => format!("[{classes}] after the last layer"),
    }
}

/// Whether nothing follows a model's one score, or one function that keeps the sign or the side of one half.
fn is_one_score(layers: &[PlacedLayer]) -> bool {
    let (scores, behind) = layers.split_at(up_to_scores(layers).len());
    let is_function =
        |placed: &PlacedLayer| matches!(&placed.layer, Layer::Activation(f, _) if f.is_pointwise());
    behind.len() < 2 && behind.iter().all(is_function) && !scores.last().is_some_and(is_function)
}

/// Marks the layers whose outputs are taken by others than the next alone; tells whether the sample is one of them.
fn mark_kept(layers: &mut [PlacedLayer]) -> bool {
    let mut kept = BTreeSet::new();
    for (index, placed) in layers.iter().enumerate() {
        if placed.from != [Source::before(index)] {
            kept.extend(placed.from.iter().copied());
        }
    }
    for (index, placed) in layers.iter_mut().enumerate() {
        placed.is_kept = kept.contains(&Source::Layer(index));
    }
    kept.contains(&Source::Sample)
}

//! One sample's way through the layers of a description, by shapes alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    layer::{Activation, BatchNorm, Layer, LayerNorm, Linear, PlacedLayer, Source},
    layout::stored_order,
    recurrent::RecurrentTensors,
    tensors::Tensors,
};
use crate::{BatchNormSpec, Defect, Error, LayerSpec, Layout, ModelSpec, NamedLayer, weights::element_count};

/// The name of the sample among those that `from` takes.
const SAMPLE: &str = "input";

/// What a layer hands on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shaped {
    pub(super) source: Source,
    pub(super) shape: Vec<usize>,
    /// For a flattened image of a framework that has channels last: where each of its numbers is in ours.
    pub(super) order: Option<Vec<usize>>,
}

impl Shaped {
    /// Of a layer that is not placed yet.
    pub(super) fn new(shape: Vec<usize>) -> Self {
        Self { source: Source::Sample, shape, order: None }
    }

    pub(super) fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The walk: what every layer of the description hands on.
pub(super) struct ShapeWalk<'a> {
    pub(super) spec_file: &'a Path,
    pub(super) tensors: Tensors<'a>,
    /// The shape of a sample, as layers take it.
    pub(super) input: Vec<usize>,
    pub(super) layers: Vec<PlacedLayer>,
    /// The sample, then what each layer of the description hands on.
    values: Vec<Shaped>,
    /// Those of the values that some layer takes.
    taken: BTreeSet<usize>,
    names: BTreeMap<String, usize>,
}

impl<'a> ShapeWalk<'a> {
    pub(super) fn new(
        spec: &ModelSpec,
        shapes: &'a BTreeMap<String, Vec<usize>>,
        spec_file: &'a Path,
        model_file: &'a Path,
    ) -> Self {
        let input = match (spec.layout, &spec.input[..]) {
            (Some(Layout::Keras), &[height, width, channels]) => vec![channels, height, width],
            _ => spec.input.clone(),
        };
        Self {
            spec_file,
            tensors: Tensors::new(shapes, model_file, spec.layout),
            values: vec![Shaped::new(input.clone())],
            input,
            layers: Vec::new(),
            taken: BTreeSet::new(),
            names: BTreeMap::from([(SAMPLE.to_owned(), 0)]),
        }
    }

    /// Places the next layer of the description.
    pub(super) fn place(&mut self, index: usize, named: &NamedLayer) -> Result<(), Error> {
        let field = format!("model.layers[{index}]");
        let inputs = self.inputs(&field, named)?;
        for value in &inputs {
            element_count(&value.shape).map_err(|d| Error::defect(self.spec_file, &field, d))?;
        }
        let (layer, mut value) = self.layer(&field, &inputs, &named.layer)?;
        element_count(&value.shape).map_err(|d| Error::defect(self.spec_file, &field, d))?;
        if let Some(layer) = layer {
            let from = inputs.iter().map(|value| value.source).collect();
            value.source = Source::Layer(self.layers.len());
            self.layers.push(PlacedLayer { index, name: named.name.clone(), layer, from, is_kept: false });
        }
        self.values.push(value);
        if let Some(name) = &named.name
            && self.names.insert(name.clone(), index + 1).is_some()
        {
            let (field, found) = (format!("{field}.name"), name.clone());
            return Err(Error::defect(self.spec_file, field, Defect::DuplicateName { found }));
        }
        Ok(())
    }

    /// What the last layer hands on. Whatever another one hands on is taken by somebody.
    pub(super) fn finish(&mut self) -> Result<Shaped, Error> {
        let last = self.values.len() - 1;
        if let Some(unused) = (1..last).find(|place| !self.taken.contains(place)) {
            let field = format!("model.layers[{}]", unused - 1);
            return Err(Error::defect(self.spec_file, field, Defect::Unused));
        }
        Ok(self.values[last].clone())
    }

    fn inputs(&mut self, field: &str, named: &NamedLayer) -> Result<Vec<Shaped>, Error> {
        let joins = matches!(named.layer, LayerSpec::Add {} | LayerSpec::Concat {});
        let names = &named.from;
        if names.is_empty() && !joins {
            let last = self.values.len() - 1;
            self.taken.insert(last);
            return Ok(vec![self.values[last].clone()]);
        }
        if joins && names.len() < 2 || !joins && names.len() != 1 {
            let defect = Defect::Inputs { layer: named.layer.kind(), joins, found: names.len() };
            return Err(Error::defect(self.spec_file, format!("{field}.from"), defect));
        }
        let mut inputs = Vec::new();
        for name in names {
            let Some(&place) = self.names.get(name) else {
                let expected = self.names.keys().cloned().collect();
                let defect = Defect::UnknownLayer { expected, found: name.clone() };
                return Err(Error::defect(self.spec_file, format!("{field}.from"), defect));
            };
            self.taken.insert(place);
            inputs.push(self.values[place].clone());
        }
        Ok(inputs)
    }

    /// The layer, if it leaves one behind, and what it hands on.
    fn layer(
        &mut self,
        field: &str,
        inputs: &[Shaped],
        spec: &LayerSpec,
    ) -> Result<(Option<Layer>, Shaped), Error> {
        let value = &inputs[0];
        let (layer, value) = match spec {
            LayerSpec::Linear { weight, bias } => self.linear(field, value, weight, bias.as_ref())?,
            LayerSpec::Conv2d(conv) => self.conv2d(field, value, conv)?,
            LayerSpec::Conv1d(conv) => self.conv1d(field, value, conv)?,
            LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh } => {
                let biases = [bias_ih.as_ref(), bias_hh.as_ref()];
                self.gru(field, value, &RecurrentTensors { weights: [weight_ih, weight_hh], biases })?
            }
            LayerSpec::Lstm { weight_ih, weight_hh, bias_ih, bias_hh, sequence } => {
                let biases = [bias_ih.as_ref(), bias_hh.as_ref()];
                let names = RecurrentTensors { weights: [weight_ih, weight_hh], biases };
                self.lstm(field, value, &names, *sequence)?
            }
            LayerSpec::Embedding { weight } => self.embedding(field, value, weight)?,
            LayerSpec::BatchNorm(norm) => self.batch_norm(field, value, norm)?,
            LayerSpec::LayerNorm { weight, bias, epsilon } => {
                self.layer_norm(field, value, [weight.as_ref(), bias.as_ref()], *epsilon)?
            }
            LayerSpec::MaxPool2d(pool) => self.pool(field, (value, 2), pool, Activation::MaxPool)?,
            LayerSpec::AvgPool2d(pool) => self.pool(field, (value, 2), pool, Activation::AveragePool)?,
            LayerSpec::MaxPool1d(pool) => self.pool(field, (value, 1), pool, Activation::MaxPool)?,
            LayerSpec::AvgPool1d(pool) => self.pool(field, (value, 1), pool, Activation::AveragePool)?,
            LayerSpec::GlobalAvgPool {} => self.global_pool(field, value, Activation::AveragePool)?,
            LayerSpec::GlobalMaxPool {} => self.global_pool(field, value, Activation::MaxPool)?,
            LayerSpec::Add {} => self.add(field, inputs)?,
            LayerSpec::Concat {} => self.concat(field, inputs)?,
            LayerSpec::Dropout { .. } | LayerSpec::Identity {} => return Ok((None, value.clone())),
            LayerSpec::Flatten {} => return Ok((None, self.flatten(value))),
            LayerSpec::Reshape { shape } => return Ok((None, self.reshape(field, value, shape)?)),
            LayerSpec::Transpose {} => self.transpose(field, value)?,
            LayerSpec::Softmax {} => {
                if value.shape.len() > 2 {
                    self.refuse_keras(field, "softmax of images", "say it behind a flatten or a pool")?;
                }
                let last = value.shape.last().copied().unwrap_or(1);
                (Layer::Activation(Activation::Softmax(last), value.size()), value.clone())
            }
            other => match self.pointwise(field, other)? {
                Some(activation) => (Layer::Activation(activation, value.size()), value.clone()),
                None => return Ok((None, value.clone())),
            },
        };
        Ok((Some(layer), value))
    }

    fn pointwise(&self, field: &str, spec: &LayerSpec) -> Result<Option<Activation>, Error> {
        Ok(Some(match spec {
            LayerSpec::Relu {} => Activation::Relu,
            LayerSpec::Sigmoid {} => Activation::Sigmoid,
            LayerSpec::Tanh {} => Activation::Tanh,
            LayerSpec::Square {} => Activation::Square,
            LayerSpec::LeakyRelu { slope } => {
                Activation::LeakyRelu(self.said(&format!("{field}.slope"), *slope, 0.01, 0.3)?)
            }
            LayerSpec::Gelu {} => Activation::Gelu,
            LayerSpec::Silu {} => Activation::Silu,
            LayerSpec::Elu { alpha } => Activation::Elu(*alpha),
            LayerSpec::Relu6 {} => Activation::Relu6,
            LayerSpec::HardTanh {} => Activation::HardTanh,
            LayerSpec::HardSigmoid {} => Activation::HardSigmoid,
            _ => return Ok(None),
        }))
    }

    fn linear(
        &mut self,
        field: &str,
        value: &Shaped,
        weight: &str,
        bias: Option<&String>,
    ) -> Result<(Layer, Shaped), Error> {
        let (&inputs, leading) =
            value.shape.split_last().ok_or_else(|| self.input(field, "linear", "[inputs]", &value.shape))?;
        if leading.len() > 1 {
            self.refuse_keras(field, "linear layer on images", "say it as a conv2d with a kernel of 1")?;
        }
        let outputs = self.tensors.matrix(weight, inputs, value.order.as_ref())?;
        self.tensors.expect(bias, &[outputs], None)?;
        let mut shape = leading.to_vec();
        shape.push(outputs);
        let (weight, bias, positions) = (weight.to_owned(), bias.cloned(), leading.iter().product());
        Ok((Layer::Linear(Linear { weight, bias, positions, inputs, outputs }), Shaped::new(shape)))
    }

    fn batch_norm(
        &mut self,
        field: &str,
        value: &Shaped,
        spec: &BatchNormSpec,
    ) -> Result<(Layer, Shaped), Error> {
        let Some((&channels, rest)) = value.shape.split_first() else {
            return Err(self.input(field, "batch-norm", "[channels, ...]", &value.shape));
        };
        if rest.len() == 1 {
            self.refuse_keras(field, "batch-norm of sequences", "say it over images of height 1")?;
        }
        let BatchNormSpec { weight, bias, mean, variance, epsilon } = spec;
        let epsilon = self.said(&format!("{field}.epsilon"), *epsilon, 1e-5, 1e-3)?;
        for name in [weight.as_ref(), bias.as_ref(), Some(mean), Some(variance)] {
            self.tensors.expect(name, &[channels], value.order.as_ref())?;
        }
        self.tensors.variances.insert(variance.clone());
        let layer = BatchNorm {
            weight: weight.clone(),
            bias: bias.clone(),
            mean: mean.clone(),
            variance: variance.clone(),
            epsilon,
            channels,
            positions: rest.iter().product(),
        };
        Ok((Layer::BatchNorm(layer), value.clone()))
    }

    /// Over the dimensions of its weight, or the last one where it has none.
    fn layer_norm(
        &mut self,
        field: &str,
        value: &Shaped,
        names: [Option<&String>; 2],
        epsilon: Option<f64>,
    ) -> Result<(Layer, Shaped), Error> {
        if value.shape.len() > 2 {
            self.refuse_keras(field, "layer-norm of images", "no layer of ours computes it")?;
        }
        let epsilon = self.said(&format!("{field}.epsilon"), epsilon, 1e-5, 1e-3)?;
        let shape = match names[0] {
            Some(weight) => self.tensors.shape_of(weight)?,
            None => value.shape.last().map(|&last| vec![last]).unwrap_or_default(),
        };
        if shape.is_empty() || !value.shape.ends_with(&shape) {
            let expected = format!("[..., the shape of its weight: {shape:?}]");
            return Err(self.input(field, "layer-norm", &expected, &value.shape));
        }
        for name in names {
            self.tensors.expect(name, &shape, value.order.as_ref())?;
        }
        let width: usize = shape.iter().product();
        let positions = value.size() / width.max(1);
        let [weight, bias] = names.map(|name| name.cloned());
        Ok((Layer::LayerNorm(LayerNorm { weight, bias, epsilon, positions, width }), value.clone()))
    }

    fn add(&self, field: &str, inputs: &[Shaped]) -> Result<(Layer, Shaped), Error> {
        let first = &inputs[0];
        for other in inputs {
            if other.shape != first.shape || other.order != first.order {
                let expected = format!("{:?}, as its first input has", first.shape);
                return Err(self.input(field, "add", &expected, &other.shape));
            }
        }
        Ok((Layer::Add { inputs: inputs.len(), size: first.size() }, first.clone()))
    }

    /// Behind each other in the first dimension: channels of images, numbers of vectors.
    fn concat(&self, field: &str, inputs: &[Shaped]) -> Result<(Layer, Shaped), Error> {
        let mut shape = inputs[0].shape.clone();
        if shape.len() == 2 {
            self.refuse_keras(field, "concat of sequences", "say it over images of height 1")?;
        }
        let rest = shape.get(1..).unwrap_or_default().to_vec();
        if let Some(other) = inputs.iter().find(|other| other.shape.get(1..) != Some(&rest)) {
            let expected = format!("[any, {rest:?}], as its first input has");
            return Err(self.input(field, "concat", &expected, &other.shape));
        }
        shape[0] = inputs.iter().map(|value| value.shape[0]).sum();
        let mut order = Vec::new();
        for value in inputs {
            let begin = order.len();
            match &value.order {
                Some(of_value) => order.extend(of_value.iter().map(|place| begin + place)),
                None => order.extend(begin..begin + value.size()),
            }
        }
        let order = inputs.iter().any(|value| value.order.is_some()).then_some(order);
        let widths = inputs.iter().map(Shaped::size).collect();
        Ok((Layer::Concat(widths), Shaped { source: Source::Sample, shape, order }))
    }

    fn flatten(&self, value: &Shaped) -> Shaped {
        let order = match value.shape[..] {
            [channels, height, width] if self.tensors.is_keras() => {
                Some(stored_order([channels, height, width]))
            }
            _ => value.order.clone(),
        };
        Shaped { source: value.source, shape: vec![value.size()], order }
    }

    fn reshape(&self, field: &str, value: &Shaped, shape: &[usize]) -> Result<Shaped, Error> {
        if shape.len() > 2 || value.shape.len() > 2 || value.order.is_some() {
            self.refuse_keras(field, "reshape of images", "save the samples in the shape that layers take")?;
        }
        if element_count(shape).ok() != Some(value.size()) {
            let expected = format!("as many numbers as {shape:?}");
            return Err(self.input(field, "reshape", &expected, &value.shape));
        }
        Ok(Shaped { source: value.source, shape: shape.to_vec(), order: None })
    }

    fn transpose(&self, field: &str, value: &Shaped) -> Result<(Layer, Shaped), Error> {
        let &[rows, columns] = &value.shape[..] else {
            return Err(self.input(field, "transpose", "[rows, columns]", &value.shape));
        };
        let layer = Layer::Activation(Activation::Transpose { rows, columns }, value.size());
        Ok((layer, Shaped::new(vec![columns, rows])))
    }

    /// A number that frameworks have different defaults for: ours is PyTorch's, and Keras's has to be said.
    fn said(&self, field: &str, said: Option<f64>, pytorch: f64, keras: f64) -> Result<f64, Error> {
        match said {
            Some(number) => Ok(number),
            None if self.tensors.is_keras() => {
                Err(Error::defect(self.spec_file, field, Defect::NotSaid { usual: keras }))
            }
            None => Ok(pytorch),
        }
    }

    pub(super) fn refuse_keras(
        &self,
        field: &str,
        what: &'static str,
        instead: &'static str,
    ) -> Result<(), Error> {
        match self.tensors.is_keras() {
            true => Err(Error::defect(self.spec_file, field, Defect::NotInKeras { what, instead })),
            false => Ok(()),
        }
    }

    pub(super) fn input(&self, field: &str, layer: &'static str, expected: &str, found: &[usize]) -> Error {
        let defect = Defect::LayerInput { layer, expected: expected.to_owned(), found: found.to_vec() };
        Error::defect(self.spec_file, field, defect)
    }
}

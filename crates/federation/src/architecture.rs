//! The model as its layers compute it: every size worked out and checked once, before any number is touched.

use std::{collections::BTreeMap, path::Path};

use crate::{ConvolutionSpec, Defect, Error, LayerSpec, ModelSpec, Weights, weights::element_count};

/// A checked architecture: layers with their sizes, and the shape of every tensor they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    input: Vec<usize>,
    classes: usize,
    layers: Vec<Layer>,
    tensors: BTreeMap<String, Vec<usize>>,
}

/// One layer with its sizes. `flatten` leaves no layer behind: data lie row by row anyway.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// `x W^T + b` at each of a number of positions.
    Linear(Linear),
    /// A convolution.
    Conv2d(Conv2d),
    /// A gated recurrent unit.
    Gru(Gru),
    /// A function without parameters, over this many numbers.
    Activation(Activation, usize),
}

/// Sizes of a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Tensor `[outputs, inputs]`.
    pub weight: String,
    /// Tensor `[outputs]`.
    pub bias: Option<String>,
    /// Vectors of one sample (1 unless the layer meets a matrix).
    pub positions: usize,
    /// Numbers in.
    pub inputs: usize,
    /// Numbers out.
    pub outputs: usize,
}

/// Sizes of a convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d {
    /// Tensor `[outputs, channels, kernel height, kernel width]`.
    pub weight: String,
    /// Tensor `[outputs]`.
    pub bias: Option<String>,
    /// Channels, height and width of the input.
    pub input: [usize; 3],
    /// Channels, height and width of the output.
    pub output: [usize; 3],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Step between two positions of the kernel.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
}

/// Sizes of a gated recurrent unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Gru {
    /// Tensor `[3 hidden, features]`.
    pub weight_ih: String,
    /// Tensor `[3 hidden, hidden]`.
    pub weight_hh: String,
    /// Tensor `[3 hidden]`.
    pub bias_ih: Option<String>,
    /// Tensor `[3 hidden]`.
    pub bias_hh: Option<String>,
    /// Steps of one sample.
    pub steps: usize,
    /// Numbers in each step.
    pub features: usize,
    /// Size of the hidden state.
    pub hidden: usize,
}

/// A function without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x * x`.
    Square,
    /// Softmax of every run of this many numbers.
    Softmax(usize),
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
        let mut walk = ShapeWalk {
            shapes,
            spec_file,
            model_file,
            tensors: BTreeMap::new(),
            current: spec.input.clone(),
        };
        element_count(&spec.input).map_err(|d| Error::defect(spec_file, "model.input", d))?;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for (index, named) in spec.layers.iter().enumerate() {
            layers.extend(walk.step(&format!("model.layers[{index}]"), &named.layer)?);
        }
        if walk.current != [spec.classes] {
            let expected = format!("[{}] after the last layer", spec.classes);
            let defect = Defect::Shape { expected, found: walk.current };
            return Err(Error::defect(spec_file, "model.classes", defect));
        }
        if walk.tensors.is_empty() {
            return Err(Error::defect(spec_file, "model.layers", Defect::NoParameters));
        }
        if let Some(extra) = shapes.keys().find(|name| !walk.tensors.contains_key(*name)) {
            let expected = walk.tensors.into_keys().collect();
            return Err(Error::defect(model_file, extra, Defect::ExtraTensor { expected }));
        }
        Ok(Self { input: spec.input.clone(), classes: spec.classes, layers, tensors: walk.tensors })
    }

    /// The shape of one sample.
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

    /// The layers in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The shape of every tensor a model of this architecture has.
    pub fn tensors(&self) -> &BTreeMap<String, Vec<usize>> {
        &self.tensors
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
                Err(Error::defect(file, extra, Defect::ExtraTensor { expected }))
            }
            None => Ok(()),
        }
    }
}

impl Layer {
    /// Numbers one sample has before this layer.
    pub fn input_size(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.inputs,
            Self::Conv2d(c) => c.input.iter().product(),
            Self::Gru(g) => g.steps * g.features,
            Self::Activation(_, size) => *size,
        }
    }

    /// Numbers one sample has after this layer.
    pub fn output_size(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.outputs,
            Self::Conv2d(c) => c.output.iter().product(),
            Self::Gru(g) => g.hidden,
            Self::Activation(_, size) => *size,
        }
    }
}

impl Layer {
    /// Multiplications that one sample costs here, activations counted as one for each number.
    pub fn multiplications(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.inputs * l.outputs,
            Self::Conv2d(c) => self.output_size() * c.input[0] * c.kernel[0] * c.kernel[1],
            Self::Gru(g) => g.steps * 3 * g.hidden * (g.features + g.hidden),
            Self::Activation(_, size) => *size,
        }
    }
}

/// One sample's way through the layers.
struct ShapeWalk<'a> {
    shapes: &'a BTreeMap<String, Vec<usize>>,
    spec_file: &'a Path,
    model_file: &'a Path,
    tensors: BTreeMap<String, Vec<usize>>,
    current: Vec<usize>,
}

impl ShapeWalk<'_> {
    fn step(&mut self, field: &str, layer: &LayerSpec) -> Result<Option<Layer>, Error> {
        let size = element_count(&self.current).map_err(|d| Error::defect(self.spec_file, field, d))?;
        let layer = match layer {
            LayerSpec::Linear { weight, bias } => self.linear(field, weight, bias.as_ref())?,
            LayerSpec::Conv2d(conv) => self.conv2d(field, conv)?,
            LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh } => {
                self.gru(field, [weight_ih, weight_hh], [bias_ih.as_ref(), bias_hh.as_ref()])?
            }
            LayerSpec::Flatten {} => {
                self.current = vec![size];
                return Ok(None);
            }
            LayerSpec::Relu {} => Layer::Activation(Activation::Relu, size),
            LayerSpec::Sigmoid {} => Layer::Activation(Activation::Sigmoid, size),
            LayerSpec::Tanh {} => Layer::Activation(Activation::Tanh, size),
            LayerSpec::Square {} => Layer::Activation(Activation::Square, size),
            LayerSpec::Softmax {} => {
                let last = self.current.last().copied().unwrap_or(1);
                Layer::Activation(Activation::Softmax(last), size)
            }
        };
        Ok(Some(layer))
    }

    fn linear(&mut self, field: &str, weight: &str, bias: Option<&String>) -> Result<Layer, Error> {
        let (&inputs, leading) =
            self.current.split_last().ok_or_else(|| self.input(field, "linear", "[inputs]"))?;
        let positions = leading.iter().product();
        let leading = leading.to_vec();
        let found = self.shape_of(weight)?;
        let &[outputs, width] = &found[..] else {
            return Err(self.tensor(weight, format!("[outputs, {inputs}]"), found));
        };
        if width != inputs || outputs == 0 {
            return Err(self.tensor(weight, format!("[outputs, {inputs}]"), found));
        }
        self.expect(bias, vec![outputs])?;
        self.tensors.insert(weight.to_owned(), found);
        self.current = leading;
        self.current.push(outputs);
        Ok(Layer::Linear(Linear {
            weight: weight.to_owned(),
            bias: bias.cloned(),
            positions,
            inputs,
            outputs,
        }))
    }

    fn conv2d(&mut self, field: &str, conv: &ConvolutionSpec) -> Result<Layer, Error> {
        let ConvolutionSpec { weight, bias, stride, padding } = conv;
        let (bias, stride, padding) = (bias.as_ref(), *stride, *padding);
        let &[channels, height, width] = &self.current[..] else {
            return Err(self.input(field, "conv2d", "[channels, height, width]"));
        };
        let found = self.shape_of(weight)?;
        let expected = || format!("[outputs, {channels}, kernel height, kernel width]");
        let &[outputs, depth, kernel_height, kernel_width] = &found[..] else {
            return Err(self.tensor(weight, expected(), found));
        };
        if depth != channels || outputs == 0 || kernel_height == 0 || kernel_width == 0 {
            return Err(self.tensor(weight, expected(), found));
        }
        let steps = |size: usize, kernel: usize| {
            size.checked_add(2 * padding)?.checked_sub(kernel).map(|room| room / stride + 1)
        };
        let (Some(rows), Some(columns)) = (steps(height, kernel_height), steps(width, kernel_width)) else {
            let least = format!("at least [{channels}, {kernel_height}, {kernel_width}] with its padding");
            return Err(self.input(field, "conv2d", &least));
        };
        self.expect(bias, vec![outputs])?;
        self.tensors.insert(weight.clone(), found);
        self.current = vec![outputs, rows, columns];
        element_count(&self.current).map_err(|d| Error::defect(self.spec_file, field, d))?;
        Ok(Layer::Conv2d(Conv2d {
            weight: weight.clone(),
            bias: bias.cloned(),
            input: [channels, height, width],
            output: [outputs, rows, columns],
            kernel: [kernel_height, kernel_width],
            stride,
            padding,
        }))
    }

    fn gru(
        &mut self,
        field: &str,
        [weight_ih, weight_hh]: [&String; 2],
        [bias_ih, bias_hh]: [Option<&String>; 2],
    ) -> Result<Layer, Error> {
        let &[steps, features] = &self.current[..] else {
            return Err(self.input(field, "gru", "[steps, features]"));
        };
        let found = self.shape_of(weight_ih)?;
        let gates = match &found[..] {
            &[gates, width] if width == features && gates > 0 && gates % 3 == 0 => gates,
            _ => return Err(self.tensor(weight_ih, format!("[3 hidden, {features}]"), found)),
        };
        let hidden = gates / 3;
        self.tensors.insert(weight_ih.clone(), found);
        self.expect(Some(weight_hh), vec![gates, hidden])?;
        self.expect(bias_ih, vec![gates])?;
        self.expect(bias_hh, vec![gates])?;
        self.current = vec![hidden];
        Ok(Layer::Gru(Gru {
            weight_ih: weight_ih.clone(),
            weight_hh: weight_hh.clone(),
            bias_ih: bias_ih.cloned(),
            bias_hh: bias_hh.cloned(),
            steps,
            features,
            hidden,
        }))
    }

    fn shape_of(&self, name: &str) -> Result<Vec<usize>, Error> {
        self.shapes.get(name).cloned().ok_or_else(|| {
            let found = self.shapes.keys().cloned().collect();
            Error::defect(self.model_file, name, Defect::MissingTensor { found })
        })
    }

    fn expect(&mut self, name: Option<&String>, expected: Vec<usize>) -> Result<(), Error> {
        let Some(name) = name else { return Ok(()) };
        let found = self.shape_of(name)?;
        if found != expected {
            return Err(self.tensor(name, format!("{expected:?}"), found));
        }
        self.tensors.insert(name.clone(), found);
        Ok(())
    }

    fn tensor(&self, name: &str, expected: String, found: Vec<usize>) -> Error {
        Error::defect(self.model_file, name, Defect::Shape { expected, found })
    }

    fn input(&self, field: &str, layer: &'static str, expected: &str) -> Error {
        let defect = Defect::LayerInput { layer, expected: expected.to_owned(), found: self.current.clone() };
        Error::defect(self.spec_file, field, defect)
    }
}

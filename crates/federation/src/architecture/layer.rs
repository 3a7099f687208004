//! The kinds of layers, with their sizes.

/// One layer and whose outputs it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedLayer {
    /// Where it is in `model.layers`.
    pub index: usize,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// What it computes.
    pub layer: Layer,
    /// Whose outputs it takes, in order.
    pub from: Vec<Source>,
    /// Whether another layer than the next takes what it hands on, or the next takes more than that.
    pub is_kept: bool,
}

/// Where a layer's input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The sample.
    Sample,
    /// A layer, by its place among the architecture's.
    Layer(usize),
}

impl Source {
    /// What the layer at a place takes if nothing else is said.
    pub fn before(place: usize) -> Self {
        place.checked_sub(1).map_or(Self::Sample, Self::Layer)
    }
}

/// One layer with its sizes. What only changes a shape (`flatten`, `reshape`) or nothing (`dropout`, `identity`)
/// leaves no layer behind: data lie row by row anyway.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// `x W^T + b` at each of a number of positions.
    Linear(Linear),
    /// A convolution; in one dimension it is over images of height 1.
    Conv2d(Conv2d),
    /// A gated recurrent unit.
    Gru(Gru),
    /// A long short-term memory.
    Lstm(Lstm),
    /// Rows of a table.
    Embedding(Embedding),
    /// Normalisation by means and variances of the training.
    BatchNorm(BatchNorm),
    /// Normalisation by mean and variance of the numbers themselves.
    LayerNorm(LayerNorm),
    /// A function without parameters, over this many numbers.
    Activation(Activation, usize),
    /// The sum of so many inputs of so many numbers.
    Add {
        /// How many.
        inputs: usize,
        /// Numbers of each.
        size: usize,
    },
    /// Inputs of so many numbers, one behind the other.
    Concat(Vec<usize>),
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
    /// Tensor `[outputs, channels of a group, kernel height, kernel width]`.
    pub weight: String,
    /// Tensor `[outputs]`.
    pub bias: Option<String>,
    /// Channels, height and width of the input.
    pub input: [usize; 3],
    /// Channels, height and width of the output.
    pub output: [usize; 3],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Steps between two positions of the kernel, down and across.
    pub stride: [usize; 2],
    /// Zeros added above and below, left and right.
    pub padding: [usize; 2],
    /// Steps between two elements of the kernel, down and across.
    pub dilation: [usize; 2],
    /// Parts into which input and output channels are divided, one for one.
    pub groups: usize,
}

impl Conv2d {
    /// Numbers that one output is a sum over.
    pub fn inputs(&self) -> usize {
        self.input[0] / self.groups * self.kernel[0] * self.kernel[1]
    }
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

/// Sizes of a long short-term memory. Gate order i, f, g, o.
#[derive(Clone, Debug, PartialEq)]
pub struct Lstm {
    /// Tensor `[4 hidden, features]`.
    pub weight_ih: String,
    /// Tensor `[4 hidden, hidden]`.
    pub weight_hh: String,
    /// Tensor `[4 hidden]`.
    pub bias_ih: Option<String>,
    /// Tensor `[4 hidden]`.
    pub bias_hh: Option<String>,
    /// Steps of one sample.
    pub steps: usize,
    /// Numbers in each step.
    pub features: usize,
    /// Size of the hidden state.
    pub hidden: usize,
    /// Whether it hands on the hidden states of all steps; otherwise the last one.
    pub sequence: bool,
}

/// Sizes of an embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Tensor `[rows, width]`.
    pub weight: String,
    /// Integers of one sample.
    pub positions: usize,
    /// Rows of the table.
    pub rows: usize,
    /// Numbers in a row.
    pub width: usize,
}

/// Sizes of a normalisation of channels.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Tensor `[channels]`, multiplied with; none: 1.
    pub weight: Option<String>,
    /// Tensor `[channels]`, added; none: 0.
    pub bias: Option<String>,
    /// Tensor `[channels]`, subtracted first.
    pub mean: String,
    /// Tensor `[channels]`, whose root is divided by.
    pub variance: String,
    /// Added to variances.
    pub epsilon: f64,
    /// Channels.
    pub channels: usize,
    /// Numbers of each channel.
    pub positions: usize,
}

/// Sizes of a normalisation of runs of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Tensor of `width` numbers, multiplied with; none: 1.
    pub weight: Option<String>,
    /// Tensor of `width` numbers, added; none: 0.
    pub bias: Option<String>,
    /// Added to variances.
    pub epsilon: f64,
    /// Runs.
    pub positions: usize,
    /// Numbers of a run.
    pub width: usize,
}

/// A function without parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// `x` above 0, this slope times `x` below.
    LeakyRelu(f64),
    /// `x` times the part of a normal distribution below `x`.
    Gelu,
    /// `x` times its sigmoid.
    Silu,
    /// `x` above 0, this factor times `exp(x) - 1` below.
    Elu(f64),
    /// `x` between 0 and 6.
    Relu6,
    /// `x` between -1 and 1.
    HardTanh,
    /// `x / 6 + 1/2` between 0 and 1.
    HardSigmoid,
    /// The largest number of each window.
    MaxPool(Pool),
    /// The mean of each window, padded zeros included.
    AveragePool(Pool),
    /// Columns become rows.
    Transpose {
        /// Rows before.
        rows: usize,
        /// Columns before.
        columns: usize,
    },
}

/// Windows over channels of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Channels, height and width of the input.
    pub input: [usize; 3],
    /// Channels, height and width of the output.
    pub output: [usize; 3],
    /// Height and width of a window.
    pub size: [usize; 2],
    /// Steps between two windows, down and across.
    pub stride: [usize; 2],
    /// Padding above and below, left and right.
    pub padding: [usize; 2],
}

impl Activation {
    /// Numbers that it makes of so many.
    pub fn output_size(&self, size: usize) -> usize {
        match self {
            Self::MaxPool(pool) | Self::AveragePool(pool) => pool.output.iter().product(),
            _ => size,
        }
    }

    /// Whether each number follows from the one in its place.
    pub fn is_pointwise(&self) -> bool {
        !matches!(self, Self::Softmax(_) | Self::MaxPool(_) | Self::AveragePool(_) | Self::Transpose { .. })
    }

    /// The kind as `federation.toml` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Square => "square",
            Self::Softmax(_) => "softmax",
            Self::LeakyRelu(_) => "leaky-relu",
            Self::Gelu => "gelu",
            Self::Silu => "silu",
            Self::Elu(_) => "elu",
            Self::Relu6 => "relu6",
            Self::HardTanh => "hard-tanh",
            Self::HardSigmoid => "hard-sigmoid",
            Self::MaxPool(_) => "max-pool2d",
            Self::AveragePool(_) => "avg-pool2d",
            Self::Transpose { .. } => "transpose",
        }
    }
}

impl Layer {
    /// The kind as `federation.toml` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Linear(_) => "linear",
            Self::Conv2d(_) => "conv2d",
            Self::Gru(_) => "gru",
            Self::Lstm(_) => "lstm",
            Self::Embedding(_) => "embedding",
            Self::BatchNorm(_) => "batch-norm",
            Self::LayerNorm(_) => "layer-norm",
            Self::Activation(activation, _) => activation.kind(),
            Self::Add { .. } => "add",
            Self::Concat(_) => "concat",
        }
    }

    /// Numbers one sample has before this layer, over all its inputs.
    pub fn input_size(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.inputs,
            Self::Conv2d(c) => c.input.iter().product(),
            Self::Gru(g) => g.steps * g.features,
            Self::Lstm(l) => l.steps * l.features,
            Self::Embedding(e) => e.positions,
            Self::BatchNorm(n) => n.channels * n.positions,
            Self::LayerNorm(n) => n.positions * n.width,
            Self::Activation(_, size) => *size,
            Self::Add { inputs, size } => inputs * size,
            Self::Concat(widths) => widths.iter().sum(),
        }
    }

    /// Numbers one sample has after this layer.
    pub fn output_size(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.outputs,
            Self::Conv2d(c) => c.output.iter().product(),
            Self::Gru(g) => g.hidden,
            Self::Lstm(l) => l.hidden * if l.sequence { l.steps } else { 1 },
            Self::Embedding(e) => e.positions * e.width,
            Self::BatchNorm(_) | Self::LayerNorm(_) => self.input_size(),
            Self::Activation(activation, size) => activation.output_size(*size),
            Self::Add { size, .. } => *size,
            Self::Concat(widths) => widths.iter().sum(),
        }
    }

    /// Multiplications that one sample costs here; what is no product counts as one for each number.
    pub fn multiplications(&self) -> usize {
        match self {
            Self::Linear(l) => l.positions * l.inputs * l.outputs,
            Self::Conv2d(c) => self.output_size() * c.inputs(),
            Self::Gru(g) => g.steps * 3 * g.hidden * (g.features + g.hidden),
            Self::Lstm(l) => l.steps * 4 * l.hidden * (l.features + l.hidden),
            _ => self.input_size(),
        }
    }

    /// Whether it has parameters.
    pub fn has_parameters(&self) -> bool {
        !self.tensors().is_empty()
    }

    /// Its tensors: weights first, then biases.
    pub fn tensors(&self) -> Vec<&str> {
        let (weights, biases): (Vec<&String>, Vec<&Option<String>>) = match self {
            Self::Linear(l) => (vec![&l.weight], vec![&l.bias]),
            Self::Conv2d(c) => (vec![&c.weight], vec![&c.bias]),
            Self::Gru(g) => (vec![&g.weight_ih, &g.weight_hh], vec![&g.bias_ih, &g.bias_hh]),
            Self::Lstm(l) => (vec![&l.weight_ih, &l.weight_hh], vec![&l.bias_ih, &l.bias_hh]),
            Self::Embedding(e) => (vec![&e.weight], vec![]),
            Self::BatchNorm(n) => (vec![&n.mean, &n.variance], vec![&n.weight, &n.bias]),
            Self::LayerNorm(n) => (vec![], vec![&n.weight, &n.bias]),
            Self::Activation(..) | Self::Add { .. } | Self::Concat(_) => (vec![], vec![]),
        };
        weights.into_iter().chain(biases.into_iter().flatten()).map(String::as_str).collect()
    }
}

/// The layers up to the numbers whose order decides: what grows strictly with its input cannot change it.
pub fn up_to_scores(layers: &[PlacedLayer]) -> &[PlacedLayer] {
    let keeps_order = |(place, placed): (usize, &PlacedLayer)| match &placed.layer {
        _ if placed.from != [Source::before(place)] => false,
        Layer::Activation(Activation::Sigmoid | Activation::Tanh, _) => true,
        // Of one score it is asked on which side of 0 it is, where this one is on the same side of one half.
        Layer::Activation(Activation::HardSigmoid, size) => *size == 1,
        // Of several softmaxes side by side each has a scale of its own.
        Layer::Activation(Activation::Softmax(width), size) => width == size,
        _ => false,
    };
    let last = (0..layers.len()).rev().find(|&place| !keeps_order((place, &layers[place]))).unwrap_or(0);
    layers.get(..=last).unwrap_or_default()
}

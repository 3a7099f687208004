//! One layer as `federation.toml` describes it.

use serde::{Deserialize, Serialize};

/// A layer and its place in the model: by default it takes what the layer before it hands on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedLayer {
    /// A name by which later layers take what this one hands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose outputs it takes, by name; `input` is the sample. None: what the layer before hands on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// What it computes.
    #[serde(flatten)]
    pub layer: LayerSpec,
}

impl From<LayerSpec> for NamedLayer {
    fn from(layer: LayerSpec) -> Self {
        Self { name: None, from: Vec::new(), layer }
    }
}

/// What a layer computes. Texts are names of tensors in the model files, as the framework writes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LayerSpec {
    /// `x W^T + b` over the last dimension.
    Linear {
        /// `[out, in]`.
        weight: String,
        /// `[out]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias: Option<String>,
    },
    /// Two-dimensional convolution of `[channels, height, width]`.
    #[serde(rename = "conv2d")]
    Conv2d(ConvolutionSpec),
    /// One-dimensional convolution of `[channels, length]`.
    #[serde(rename = "conv1d")]
    Conv1d(ConvolutionSpec),
    /// A gated recurrent unit over `[steps, features]` that hands its last hidden state on. Gate order r, z,
    /// n.
    Gru {
        /// `[3 hidden, features]`.
        weight_ih: String,
        /// `[3 hidden, hidden]`.
        weight_hh: String,
        /// `[3 hidden]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias_ih: Option<String>,
        /// `[3 hidden]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias_hh: Option<String>,
    },
    /// A long short-term memory over `[steps, features]`. Gate order i, f, g, o.
    Lstm {
        /// `[4 hidden, features]`.
        weight_ih: String,
        /// `[4 hidden, hidden]`.
        weight_hh: String,
        /// `[4 hidden]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias_ih: Option<String>,
        /// `[4 hidden]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias_hh: Option<String>,
        /// Whether it hands on the hidden states of all steps, `[steps, hidden]`, instead of the last one.
        #[serde(default, skip_serializing_if = "is_false")]
        sequence: bool,
    },
    /// Rows of a table by the sample's integers.
    Embedding {
        /// `[rows, width]`.
        weight: String,
    },
    /// Normalisation of each channel by mean and variance of the training.
    BatchNorm(BatchNormSpec),
    /// Normalisation by mean and variance of the numbers themselves.
    LayerNorm {
        /// Its shape is that of the last dimensions, which are normalised together; none: the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// The same shape; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias: Option<String>,
        /// Added to variances; 1e-5 if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epsilon: Option<f64>,
    },
    /// The largest number of each window of `[channels, height, width]`.
    #[serde(rename = "max-pool2d")]
    MaxPool2d(PoolSpec),
    /// The mean of each window of `[channels, height, width]`, padded zeros included.
    #[serde(rename = "avg-pool2d")]
    AvgPool2d(PoolSpec),
    /// The largest number of each window of `[channels, length]`.
    #[serde(rename = "max-pool1d")]
    MaxPool1d(PoolSpec),
    /// The mean of each window of `[channels, length]`, padded zeros included.
    #[serde(rename = "avg-pool1d")]
    AvgPool1d(PoolSpec),
    /// The mean of each channel: `[channels]`.
    GlobalAvgPool {},
    /// The largest number of each channel: `[channels]`.
    GlobalMaxPool {},
    /// `max(x, 0)`.
    Relu {},
    /// `x` above 0, `slope` times `x` below.
    LeakyRelu {
        /// 0.01 if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slope: Option<f64>,
    },
    /// `x` times the part of a normal distribution below `x`.
    Gelu {},
    /// `x / (1 + exp(-x))`.
    Silu {},
    /// `x` above 0, `alpha (exp(x) - 1)` below.
    Elu {
        /// 1 if left out.
        #[serde(default = "unit")]
        alpha: f64,
    },
    /// `x` between 0 and 6.
    #[serde(rename = "relu6")]
    Relu6 {},
    /// `x` between -1 and 1.
    HardTanh {},
    /// `x / 6 + 1/2` between 0 and 1.
    HardSigmoid {},
    /// `1 / (1 + exp(-x))`.
    Sigmoid {},
    /// Hyperbolic tangent.
    Tanh {},
    /// `x * x`.
    Square {},
    /// Softmax over the last dimension.
    Softmax {},
    /// One dimension instead of many, row by row.
    Flatten {},
    /// Another shape, row by row.
    Reshape {
        /// The shape of one sample.
        shape: Vec<usize>,
    },
    /// Columns of `[rows, columns]` become rows.
    Transpose {},
    /// Nothing, when testing.
    Dropout {
        /// The part left out while training; nothing depends on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        p: Option<f64>,
    },
    /// Nothing.
    Identity {},
    /// The sum of what the layers in `from` hand on.
    Add {},
    /// What the layers in `from` hand on, behind each other in the first dimension.
    Concat {},
}

/// A convolution's tensors and settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionSpec {
    /// `[out, in / groups, kernel height, kernel width]`, in one dimension `[out, in / groups, kernel length]`.
    pub weight: String,
    /// `[out]`; none means no bias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Step between two positions of the kernel, in every direction.
    #[serde(default = "one")]
    pub stride: usize,
    /// Zeros added on every side.
    #[serde(default)]
    pub padding: usize,
    /// Step between two elements of the kernel, in every direction.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub dilation: usize,
    /// Parts into which input and output channels are divided, one for one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub groups: usize,
}

/// The tensors of a normalisation by numbers of the training, each `[channels]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormSpec {
    /// Multiplied with; none: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Added; none: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Means.
    pub mean: String,
    /// Variances.
    pub variance: String,
    /// Added to variances; 1e-5 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
}

/// Windows of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Side of a window.
    pub size: usize,
    /// Step between two windows; the size if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Padding on every side; at most half the size.
    #[serde(default)]
    pub padding: usize,
}

fn one() -> usize {
    1
}

fn unit() -> f64 {
    1.0
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl LayerSpec {
    /// A convolution of this stride and padding.
    pub fn conv2d(weight: String, bias: Option<String>, stride: usize, padding: usize) -> Self {
        Self::Conv2d(ConvolutionSpec { weight, bias, stride, padding, dilation: 1, groups: 1 })
    }

    /// The kind as `federation.toml` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Conv2d(_) => "conv2d",
            Self::Conv1d(_) => "conv1d",
            Self::Gru { .. } => "gru",
            Self::Lstm { .. } => "lstm",
            Self::Embedding { .. } => "embedding",
            Self::BatchNorm(_) => "batch-norm",
            Self::LayerNorm { .. } => "layer-norm",
            Self::MaxPool2d(_) => "max-pool2d",
            Self::AvgPool2d(_) => "avg-pool2d",
            Self::MaxPool1d(_) => "max-pool1d",
            Self::AvgPool1d(_) => "avg-pool1d",
            Self::GlobalAvgPool {} => "global-avg-pool",
            Self::GlobalMaxPool {} => "global-max-pool",
            Self::Relu {} => "relu",
            Self::LeakyRelu { .. } => "leaky-relu",
            Self::Gelu {} => "gelu",
            Self::Silu {} => "silu",
            Self::Elu { .. } => "elu",
            Self::Relu6 {} => "relu6",
            Self::HardTanh {} => "hard-tanh",
            Self::HardSigmoid {} => "hard-sigmoid",
            Self::Sigmoid {} => "sigmoid",
            Self::Tanh {} => "tanh",
            Self::Square {} => "square",
            Self::Softmax {} => "softmax",
            Self::Flatten {} => "flatten",
            Self::Reshape { .. } => "reshape",
            Self::Transpose {} => "transpose",
            Self::Dropout { .. } => "dropout",
            Self::Identity {} => "identity",
            Self::Add {} => "add",
            Self::Concat {} => "concat",
        }
    }

    /// Its sizes by key, with the least that each may be.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize, usize)> {
        match self {
            Self::Conv2d(conv) | Self::Conv1d(conv) => vec![
                ("stride", 1, conv.stride),
                ("padding", 0, conv.padding),
                ("dilation", 1, conv.dilation),
                ("groups", 1, conv.groups),
            ],
            Self::MaxPool2d(pool) | Self::AvgPool2d(pool) | Self::MaxPool1d(pool) | Self::AvgPool1d(pool) => {
                let stride = pool.stride.unwrap_or(pool.size);
                vec![("size", 1, pool.size), ("stride", 1, stride), ("padding", 0, pool.padding)]
            }
            _ => Vec::new(),
        }
    }

    /// Its real numbers by key, with the least that each may be.
    pub(crate) fn factors(&self) -> Vec<(&'static str, f64, f64)> {
        match self {
            Self::BatchNorm(BatchNormSpec { epsilon: Some(epsilon), .. })
            | Self::LayerNorm { epsilon: Some(epsilon), .. } => vec![("epsilon", 0.0, *epsilon)],
            Self::LeakyRelu { slope: Some(slope) } => vec![("slope", f64::MIN, *slope)],
            Self::Elu { alpha } => vec![("alpha", f64::MIN, *alpha)],
            _ => Vec::new(),
        }
    }
}

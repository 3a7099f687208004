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
    /// `max(x, 0)`.
    Relu {},
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
}

/// A convolution's tensors and settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionSpec {
    /// `[out, in, kernel height, kernel width]`.
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
}

fn one() -> usize {
    1
}

impl LayerSpec {
    /// A convolution of this stride and padding.
    pub fn conv2d(weight: String, bias: Option<String>, stride: usize, padding: usize) -> Self {
        Self::Conv2d(ConvolutionSpec { weight, bias, stride, padding })
    }

    /// The kind as `federation.toml` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Conv2d(_) => "conv2d",
            Self::Gru { .. } => "gru",
            Self::Relu {} => "relu",
            Self::Sigmoid {} => "sigmoid",
            Self::Tanh {} => "tanh",
            Self::Square {} => "square",
            Self::Softmax {} => "softmax",
            Self::Flatten {} => "flatten",
        }
    }
}

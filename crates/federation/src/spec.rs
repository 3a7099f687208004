//! `federation.toml`: who took part, and what the model is made of.

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use crate::{ClientId, Coalition, Defect, Error, MAX_CLIENTS, RoundId};

/// The fewest clients a federation may have. Protocols in which clients decrypt need four, and say so.
pub const MIN_CLIENTS: usize = 2;
/// The most rounds: round numbers have four digits in file names.
pub const MAX_ROUNDS: u32 = 9999;
/// The largest training set: sums over all clients stay exact in a double.
pub const MAX_TRAIN_SIZE: u64 = 1 << 46;

/// A federation as `federation.toml` describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationSpec {
    /// Its name, for people.
    pub name: String,
    /// Number of training rounds (the paper's T).
    pub rounds: u32,
    /// The architecture every client trained.
    pub model: ModelSpec,
    /// The clients (the paper's I), in the order coalitions count them.
    pub clients: Vec<ClientSpec>,
}

/// The architecture: sizes of one input and the layers it passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Shape of one sample, such as `[1, 28, 28]`.
    pub input: Vec<usize>,
    /// Number of classes that are told apart; the last layer hands on one score for each.
    pub classes: usize,
    /// The layers in order.
    pub layers: Vec<LayerSpec>,
}

/// One layer. Names are those of tensors in the model files, as PyTorch writes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
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
    Conv2d {
        /// `[out, in, kernel height, kernel width]`.
        weight: String,
        /// `[out]`; none means no bias.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias: Option<String>,
        /// Step between two positions of the kernel, in both directions.
        #[serde(default = "one")]
        stride: usize,
        /// Zeros added on every side.
        #[serde(default)]
        padding: usize,
    },
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

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSpec {
    /// Its name, and that of its directory.
    pub id: ClientId,
    /// Number of its training samples: its weight in federated averaging.
    pub train_size: u64,
    /// Rounds in which it trained on another number of samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RoundOverride>,
}

/// Facts that were different for one client in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundOverride {
    /// The round.
    pub round: RoundId,
    /// The training samples of that round.
    pub train_size: u64,
}

/// Names of parties that are no clients.
const SERVERS: [&str; 2] = ["principal", "auxiliary"];
/// The longest name for people, in characters.
const MAX_NAME: usize = 200;

/// What people read is one line of text.
pub(crate) fn check_name(field: &str, name: &str, file: &Path) -> Result<(), Error> {
    let is_line = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if is_line && name.chars().count() <= MAX_NAME {
        return Ok(());
    }
    Err(Error::defect(file, field, Defect::Name { most: MAX_NAME, found: name.to_owned() }))
}

fn one() -> usize {
    1
}

impl FederationSpec {
    /// Reads and checks the text of a `federation.toml`; `file` is named in errors.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Error> {
        let spec: Self = toml::from_str(text)
            .map_err(|source| Error::Toml { file: file.to_owned(), source: Box::new(source) })?;
        spec.check(file)?;
        Ok(spec)
    }

    /// The text of a `federation.toml`.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Checks everything that can be checked without a model; `file` is named in errors.
    pub fn check(&self, file: &Path) -> Result<(), Error> {
        let within = |field: &str, least: u64, most: u64, found: u64| {
            if (least..=most).contains(&found) {
                return Ok(());
            }
            Err(Error::defect(file, field, Defect::Range { least, most, found }))
        };
        check_name("name", &self.name, file)?;
        within("rounds", 1, MAX_ROUNDS.into(), self.rounds.into())?;
        within("clients", MIN_CLIENTS as u64, MAX_CLIENTS as u64, self.clients.len() as u64)?;
        within("model.classes", 2, u32::MAX.into(), self.model.classes as u64)?;
        within("model.input", 1, 8, self.model.input.len() as u64)?;
        for &size in &self.model.input {
            within("model.input", 1, u32::MAX.into(), size as u64)?;
        }
        within("model.layers", 1, 1 << 16, self.model.layers.len() as u64)?;
        for (index, layer) in self.model.layers.iter().enumerate() {
            if let LayerSpec::Conv2d { stride, padding, .. } = layer {
                within(&format!("model.layers[{index}].stride"), 1, 1 << 16, *stride as u64)?;
                within(&format!("model.layers[{index}].padding"), 0, 1 << 16, *padding as u64)?;
            }
        }
        self.check_clients(file)
    }

    fn check_clients(&self, file: &Path) -> Result<(), Error> {
        let mut ids = BTreeSet::new();
        for (index, client) in self.clients.iter().enumerate() {
            if !ids.insert(&client.id) {
                let defect = Defect::DuplicateClient { found: client.id.clone() };
                return Err(Error::defect(file, format!("clients[{index}].id"), defect));
            }
            if SERVERS.contains(&client.id.as_str()) {
                let defect = Defect::ServerName { found: client.id.clone() };
                return Err(Error::defect(file, format!("clients[{index}].id"), defect));
            }
            let sizes = client.rounds.iter().map(|o| o.train_size);
            if let Some(found) = sizes.chain([client.train_size]).find(|&size| size > MAX_TRAIN_SIZE) {
                let defect = Defect::Range { least: 0, most: MAX_TRAIN_SIZE, found };
                return Err(Error::defect(file, format!("clients.{}.train_size", client.id), defect));
            }
            let mut seen = BTreeSet::new();
            for RoundOverride { round, .. } in &client.rounds {
                let field = format!("clients.{}.rounds", client.id);
                if !(1..=self.rounds).contains(&round.0) {
                    let defect = Defect::Range { least: 1, most: self.rounds.into(), found: round.0.into() };
                    return Err(Error::defect(file, field, defect));
                }
                if !seen.insert(*round) {
                    return Err(Error::defect(file, field, Defect::DuplicateRound { found: *round }));
                }
            }
        }
        Ok(())
    }

    /// Every client's id, in order.
    pub fn ids(&self) -> impl Iterator<Item = &ClientId> {
        self.clients.iter().map(|client| &client.id)
    }

    /// The rounds in order.
    pub fn round_ids(&self) -> impl Iterator<Item = RoundId> + use<> {
        (1..=self.rounds).map(RoundId)
    }

    /// The ids of a coalition's members, sorted as the results list them.
    pub fn names(&self, coalition: Coalition) -> Vec<ClientId> {
        let mut names: Vec<_> =
            coalition.members().filter_map(|c| self.clients.get(c)).map(|c| c.id.clone()).collect();
        names.sort();
        names
    }
}

impl ClientSpec {
    /// The training samples that weigh this client in a round.
    pub fn train_size_in(&self, round: RoundId) -> u64 {
        self.rounds.iter().find(|o| o.round == round).map_or(self.train_size, |o| o.train_size)
    }
}

impl LayerSpec {
    /// The kind as `federation.toml` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Conv2d { .. } => "conv2d",
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

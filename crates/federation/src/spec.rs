//! `federation.toml`: who took part, and what the model is made of.

use std::{collections::BTreeSet, fmt, path::Path};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Unexpected, Visitor},
};

use crate::{ClientId, Coalition, Defect, Error, Limits, MAX_CLIENTS, NamedLayer, RoundId};

/// The fewest clients a federation may have. Secure protocols need more, and say how many and why.
pub const MIN_CLIENTS: usize = 1;
/// The most rounds: round numbers have four digits in file names.
pub const MAX_ROUNDS: u32 = 9999;
/// The largest aggregation weight: sums of whole numbers over all clients stay exact in a double.
pub const MAX_WEIGHT: f64 = (1u64 << 46) as f64;
/// The smallest one beside 0.
pub const MIN_WEIGHT: f64 = 1e-9;

/// A federation as `federation.toml` describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationSpec {
    /// Its name, for people.
    pub name: String,
    /// The first round that is valued: 1 but where one round is valued alone.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub first: u32,
    /// Number of training rounds (the paper's T); 0 where they come later, within the limits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounds: u32,
    /// What no round exceeds, where that is agreed on beforehand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// How the global models were made from the local ones.
    #[serde(default, skip_serializing_if = "Aggregation::is_mean")]
    pub aggregation: Aggregation,
    /// The architecture every client trained.
    pub model: ModelSpec,
    /// The clients (the paper's I), in the order coalitions count them.
    pub clients: Vec<ClientSpec>,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The architecture: sizes of one input and the layers it passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Shape of one sample, such as `[1, 28, 28]`.
    pub input: Vec<usize>,
    /// Number of classes that are told apart; the last layer hands on one score for each.
    pub classes: usize,
    /// What people call the classes, in order; none where they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// How tensors and samples lie in the files; none where nothing but PyTorch's layout fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Tensors of the model files that the model does not compute with: names, or patterns with one `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// The layers in order.
    pub layers: Vec<NamedLayer>,
}

/// How a framework lays out tensors and samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Dense weights `[out, in]`, kernels `[out, in, height, width]`, images `[channels, height, width]`.
    PyTorch,
    /// Dense weights `[in, out]`, kernels `[height, width, in, out]`, images `[height, width, channels]`.
    Keras,
}

/// What the training made the global model of each round from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// The weighted mean of the local models.
    #[default]
    Mean,
    /// Something else, such as FedAdam, FedAvgM or a median: the global models are in `global/`.
    Other,
}

impl Aggregation {
    fn is_mean(&self) -> bool {
        *self == Self::Mean
    }
}

/// Buffers by which PyTorch counts batches during training.
const COUNTS_BATCHES: &str = "num_batches_tracked";

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ClientTable", into = "ClientTable")]
pub struct ClientSpec {
    /// Its name, and that of its directory.
    pub id: ClientId,
    /// Its weight in federated averaging: `train_size` or `weight`.
    pub weight: f64,
    /// Rounds in which it had another weight.
    pub rounds: Vec<RoundOverride>,
}

/// What was different for one client in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RoundTable", into = "RoundTable")]
pub struct RoundOverride {
    /// The round.
    pub round: RoundId,
    /// The weight in that round.
    pub weight: f64,
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

/// A client as `federation.toml` has it. Whole weights are written as training sizes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    id: ClientId,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    train_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rounds: Vec<RoundOverride>,
}

/// A round's weight as `federation.toml` has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundTable {
    round: RoundId,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    train_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
}

/// A number of samples.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Whole;
    impl Visitor<'_> for Whole {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of samples from 0 (weight = ... takes any other weight)")
        }
        fn visit_u64<E: serde::de::Error>(self, size: u64) -> Result<u64, E> {
            Ok(size)
        }
        fn visit_i64<E: serde::de::Error>(self, size: i64) -> Result<u64, E> {
            u64::try_from(size).map_err(|_| E::invalid_value(Unexpected::Signed(size), &self))
        }
    }
    deserializer.deserialize_u64(Whole).map(Some)
}

impl TryFrom<ClientTable> for ClientSpec {
    type Error = String;
    fn try_from(table: ClientTable) -> Result<Self, String> {
        let weight = one_weight(table.train_size, table.weight)?;
        Ok(Self { id: table.id, weight, rounds: table.rounds })
    }
}

impl From<ClientSpec> for ClientTable {
    fn from(client: ClientSpec) -> Self {
        let (train_size, weight) = as_written(client.weight);
        Self { id: client.id, train_size, weight, rounds: client.rounds }
    }
}

impl TryFrom<RoundTable> for RoundOverride {
    type Error = String;
    fn try_from(table: RoundTable) -> Result<Self, String> {
        Ok(Self { round: table.round, weight: one_weight(table.train_size, table.weight)? })
    }
}

impl From<RoundOverride> for RoundTable {
    fn from(other: RoundOverride) -> Self {
        let (train_size, weight) = as_written(other.weight);
        Self { round: other.round, train_size, weight }
    }
}

/// Refuses a weight beyond what sums are exact for; `file` is named in errors.
pub(crate) fn check_weight(id: &ClientId, found: f64, file: &Path) -> Result<(), Error> {
    if found == 0.0 || (MIN_WEIGHT..=MAX_WEIGHT).contains(&found) {
        return Ok(());
    }
    let key = if found.fract() == 0.0 && found > 0.0 { "train_size" } else { "weight" };
    Err(Error::defect(file, format!("clients.{id}.{key}"), Defect::Weight { found }))
}

fn one_weight(train_size: Option<u64>, weight: Option<f64>) -> Result<f64, String> {
    match (train_size, weight) {
        (Some(size), None) => Ok(size as f64),
        (None, Some(weight)) => Ok(weight),
        (None, None) => {
            Err("missing field `train_size` (or `weight`, where it is no number of samples)".into())
        }
        (Some(_), Some(_)) => Err("expected one of `train_size` and `weight`, found both".into()),
    }
}

fn as_written(weight: f64) -> (Option<u64>, Option<f64>) {
    let is_whole = weight.fract() == 0.0 && (0.0..=MAX_WEIGHT).contains(&weight);
    if is_whole { (Some(weight as u64), None) } else { (None, Some(weight)) }
}

impl ModelSpec {
    /// A model of these layers, one after the other.
    pub fn new(
        input: Vec<usize>,
        classes: usize,
        layers: impl IntoIterator<Item = impl Into<NamedLayer>>,
    ) -> Self {
        let layers = layers.into_iter().map(Into::into).collect();
        Self { input, classes, class_names: Vec::new(), layout: None, ignore: Vec::new(), layers }
    }

    /// Whether a tensor of a model file is none of the model's numbers: one that `ignore` names, or a count of batches.
    pub fn ignores(&self, tensor: &str) -> bool {
        let is_count = tensor == COUNTS_BATCHES || tensor.ends_with(&format!(".{COUNTS_BATCHES}"));
        is_count || self.ignore.iter().any(|pattern| matches(pattern, tensor))
    }
}

/// Whether a name fits a pattern, in which the first `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, end)) => {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        }
    }
}

impl ClientSpec {
    /// A client with the same weight in every round.
    pub fn new(id: ClientId, weight: f64) -> Self {
        Self { id, weight, rounds: Vec::new() }
    }

    /// Its weight in a round: the training samples, where those are the weights.
    pub fn weight_in(&self, round: RoundId) -> f64 {
        self.rounds.iter().find(|o| o.round == round).map_or(self.weight, |o| o.weight)
    }
}

impl FederationSpec {
    /// A federation of these clients.
    pub fn new(name: String, rounds: u32, model: ModelSpec, clients: Vec<ClientSpec>) -> Self {
        Self { name, first: 1, rounds, limits: None, aggregation: Aggregation::Mean, model, clients }
    }

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
        if let Some(limits) = &self.limits {
            limits.check(MAX_ROUNDS, file)?;
        }
        if !self.comes_later() {
            within("rounds", 1, MAX_ROUNDS.into(), self.rounds.into())?;
            within("first", 1, self.rounds.into(), self.first.into())?;
        }
        within("clients", MIN_CLIENTS as u64, MAX_CLIENTS as u64, self.clients.len() as u64)?;
        within("model.classes", 2, u32::MAX.into(), self.model.classes as u64)?;
        let (classes, names) = (self.model.classes as u64, &self.model.class_names);
        if !names.is_empty() {
            within("model.class_names", classes, classes, names.len() as u64)?;
        }
        names.iter().try_for_each(|name| check_name("model.class_names", name, file))?;
        within("model.input", 1, 8, self.model.input.len() as u64)?;
        for &size in &self.model.input {
            within("model.input", 1, u32::MAX.into(), size as u64)?;
        }
        within("model.layers", 1, 1 << 16, self.model.layers.len() as u64)?;
        for (index, layer) in self.model.layers.iter().enumerate() {
            for (key, least, found) in layer.layer.sizes() {
                within(&format!("model.layers[{index}].{key}"), least as u64, 1 << 16, found as u64)?;
            }
            for (key, least, found) in layer.layer.factors() {
                if !found.is_finite() || found < least {
                    let field = format!("model.layers[{index}].{key}");
                    return Err(Error::defect(file, field, Defect::NotFinite { position: 0, found }));
                }
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
            let mut weights = client.rounds.iter().map(|o| o.weight).chain([client.weight]);
            weights.try_for_each(|weight| check_weight(&client.id, weight, file))?;
            let mut seen = BTreeSet::new();
            for RoundOverride { round, .. } in &client.rounds {
                let field = format!("clients.{}.rounds", client.id);
                if !(self.first..=self.rounds).contains(&round.0) {
                    let (least, most) = (self.first.into(), self.rounds.into());
                    let defect = Defect::Range { least, most, found: round.0.into() };
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
        (self.first..=self.rounds).map(RoundId)
    }

    /// Whether rounds come one by one, while training goes on.
    pub fn comes_later(&self) -> bool {
        self.rounds == 0 && self.limits.is_some()
    }

    /// The ids of a coalition's members, sorted as the results list them.
    pub fn names(&self, coalition: Coalition) -> Vec<ClientId> {
        let mut names: Vec<_> =
            coalition.members().filter_map(|c| self.clients.get(c)).map(|c| c.id.clone()).collect();
        names.sort();
        names
    }
}

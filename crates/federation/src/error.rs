//! Defects of a run directory, said so that its owner can repair them.

use std::{io, path::PathBuf};

use crate::{ClientId, RoundId};

/// Why a federation could not be read, checked or written. Everything but [`Error::Io`], [`Error::Write`] and
/// [`Error::OutOfMemory`] is a defect of the input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system could not read a file that is there.
    #[error("{}: cannot be read: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("{}: cannot be written: {source}", file.display())]
    Write {
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not fit in memory.
    #[error("{}: {bytes} bytes do not fit in memory", file.display())]
    OutOfMemory {
        /// The file.
        file: PathBuf,
        /// How much was asked for.
        bytes: u64,
    },
    /// `federation.toml` is not TOML, has an unknown or missing key, or a value of the wrong type.
    #[error("{}: {source}", file.display())]
    Toml {
        /// The file.
        file: PathBuf,
        /// Line, key, what was expected and what was found.
        source: Box<toml::de::Error>,
    },
    /// Something in a file contradicts the federation.
    #[error("{}: {field}: {defect}", file.display())]
    Defect {
        /// The file.
        file: PathBuf,
        /// The key or tensor in it.
        field: String,
        /// The value that was expected there and the one that was found.
        defect: Defect,
    },
}

/// The value that was expected in a field and the one that was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// The file is not there.
    #[error("expected this file, found none")]
    MissingFile,
    /// A text file with bytes that are no text.
    #[error("expected UTF-8 text, found other bytes at position {position}")]
    NotText {
        /// The first such byte.
        position: usize,
    },
    /// A directory that must be absent or empty is not.
    #[error("expected an absent or empty directory, found files in it")]
    NotEmpty,
    /// Two files where one of them is meant.
    #[error("expected one of test.safetensors and test.npz, found both")]
    TwoTestSets,
    /// A directory or file of somebody or something the federation does not name.
    #[error("expected only what federation.toml names, found {found}")]
    Unlisted {
        /// Its name.
        found: String,
    },
    /// Bytes that are no safetensors file.
    #[error("expected a safetensors file, found one with {found}")]
    NotSafetensors {
        /// The parser's objection.
        found: String,
    },
    /// Bytes that are no .npz file.
    #[error("expected a .npz archive of arrays, found {found}")]
    NotNpz {
        /// The parser's objection.
        found: String,
    },
    /// A tensor the model or test set needs.
    #[error("expected this tensor, found {}", list(found))]
    MissingTensor {
        /// The tensors that are there.
        found: Vec<String>,
    },
    /// A tensor nothing needs.
    #[error("expected only {}, found this tensor as well", list(expected))]
    ExtraTensor {
        /// The tensors that are needed.
        expected: Vec<String>,
    },
    /// A tensor that no layer computes with.
    #[error(
        "expected only {}, found this tensor as well: if the model needs it for nothing, list it in model.ignore",
        list(expected)
    )]
    OtherTensor {
        /// The tensors that are needed.
        expected: Vec<String>,
    },
    /// A tensor of another element type.
    #[error("expected elements of type {expected}, found {found}")]
    ElementType {
        /// The type the field has.
        expected: &'static str,
        /// The type in the file.
        found: String,
    },
    /// A tensor of another shape.
    #[error("expected shape {expected}, found {found:?}")]
    Shape {
        /// The shape that fits, with names for free dimensions.
        expected: String,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor whose shape fits two layouts, by a name that PyTorch does not give.
    #[error(
        "expected layout = \"pytorch\" or \"keras\" in [model], found neither: {tensor} of shape {found:?} could lie either way, and the wrong one gives other predictions"
    )]
    Layout {
        /// Its name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
    },
    /// A layer that we cannot compute as Keras lays it out.
    #[error("expected no {what} with layout = \"keras\", found one: {instead}")]
    NotInKeras {
        /// The layer.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A number for which Keras has another default.
    #[error(
        "expected this number with layout = \"keras\", found none: Keras takes {usual} unless told otherwise"
    )]
    NotSaid {
        /// Keras's own default.
        usual: f64,
    },
    /// A tensor of two layers that take their inputs in different orders.
    #[error("expected one order of inputs, found two layers that take this tensor in different ones")]
    TwoOrders,
    /// A layer that takes a name nobody has.
    #[error("expected {}, found {found}: `from` takes names of earlier layers", list(expected))]
    UnknownLayer {
        /// The names that there are.
        expected: Vec<String>,
        /// The name.
        found: String,
    },
    /// Two layers of one name.
    #[error("expected a name of its own, found {found} a second time")]
    DuplicateName {
        /// The name.
        found: String,
    },
    /// A layer with more or fewer inputs than it takes.
    #[error(
        "expected {} for this {layer} layer, found {found}",
        if *joins { "two names or more, the layer before included" } else { "one name" }
    )]
    Inputs {
        /// The kind of layer.
        layer: &'static str,
        /// Whether it takes several.
        joins: bool,
        /// How many there are.
        found: usize,
    },
    /// A layer whose outputs nobody takes.
    #[error(
        "expected a layer that takes what this one hands on, found none: where `from` is said, it names every input"
    )]
    Unused,
    /// An embedding of computed numbers.
    #[error("expected the samples' integers as input of this embedding, found what a layer hands on")]
    NotIntegers,
    /// A single score behind which more follows than one function can say.
    #[error(
        "expected one sigmoid, tanh or hard-sigmoid at most behind a single score, found more or a softmax: class 1 is predicted where the score is above 0"
    )]
    OneScore,
    /// A variance below 0.
    #[error("expected variances of at least 0, found {found} at position {position}")]
    Variance {
        /// Index of the element.
        position: usize,
        /// The value.
        found: f64,
    },
    /// A number that is no row of an embedding.
    #[error(
        "expected integers in 0..{rows}, the rows of the embedding, found {found} at position {position}"
    )]
    Row {
        /// Rows of the embedding.
        rows: usize,
        /// Index of the number.
        position: usize,
        /// The value.
        found: f32,
    },
    /// A layer whose input it cannot take.
    #[error("expected an input of shape {expected} for this {layer} layer, found {found:?}")]
    LayerInput {
        /// The kind of layer.
        layer: &'static str,
        /// The shape that it takes.
        expected: String,
        /// The shape that the layer before hands on.
        found: Vec<usize>,
    },
    /// A model that nobody can train.
    #[error("expected at least one layer with weights, found none")]
    NoParameters,
    /// Not a number, or infinite.
    #[error("expected finite numbers, found {found} at position {position}")]
    NotFinite {
        /// Index of the element, row by row.
        position: usize,
        /// The value.
        found: f64,
    },
    /// A label for each class where one for each sample is meant.
    #[error(
        "expected one label for each sample, found {columns} columns: of one-hot labels or scores, save the position of the largest"
    )]
    OneHot {
        /// Columns of the labels.
        columns: usize,
    },
    /// A label that is no whole number.
    #[error(
        "expected whole numbers as labels, found {found} at position {position}: values of regressions have no classes"
    )]
    NotWhole {
        /// Index of the element.
        position: usize,
        /// The value.
        found: f64,
    },
    /// An integer that single precision does not hold.
    #[error(
        "expected integers from -16777216 to 16777216, found {found} at position {position}: larger ones are not exact in single precision"
    )]
    NotExact {
        /// Index of the element.
        position: usize,
        /// The value.
        found: i64,
    },
    /// A number that no secure protocol can compute with.
    #[error(
        "expected numbers from -{most:e} to {most:e} under a secure protocol, found {found:e} at position {position}"
    )]
    OutOfBounds {
        /// The largest that there may be.
        most: f32,
        /// Index of the element, row by row.
        position: usize,
        /// The value.
        found: f32,
    },
    /// A label that is no class.
    #[error("expected labels in 0..{classes}, found {found} at position {position}")]
    Label {
        /// Number of the model's classes.
        classes: usize,
        /// Index of the sample.
        position: usize,
        /// The value.
        found: i64,
    },
    /// A count or size outside its range.
    #[error("expected {least} to {most}, found {found}")]
    Range {
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
        /// The value.
        found: u64,
    },
    /// An aggregation weight outside its range.
    #[error("expected a weight of 0, or from 1e-9 to 2^46 = 70368744177664, found {found}")]
    Weight {
        /// The value.
        found: f64,
    },
    /// The same client twice.
    #[error("expected every client once, found {found} more than once")]
    DuplicateClient {
        /// The id.
        found: ClientId,
    },
    /// The same round twice among a client's overrides.
    #[error("expected every round once, found round {found} more than once")]
    DuplicateRound {
        /// The round.
        found: RoundId,
    },
    /// Nobody left a model of this round.
    #[error("expected at least one client's model of round {round}, found none")]
    NobodyTookPart {
        /// The round.
        round: RoundId,
    },
    /// A client with the name of a server.
    #[error("expected an id that is not a server's, found {found}")]
    ServerName {
        /// The id.
        found: ClientId,
    },
    /// A name for people that nobody could read.
    #[error("expected one line of 1 to {most} characters, found {found:?}")]
    Name {
        /// The most characters.
        most: usize,
        /// The name.
        found: String,
    },
    /// Something that cannot be read from its beginning as often as needed.
    #[error("expected a file, found a {found}")]
    NoFile {
        /// What it is.
        found: &'static str,
    },
    /// A client that took part has no weight.
    #[error("expected a weight above 0 in round {round}, in which the client took part, found 0")]
    NoWeight {
        /// The round.
        round: RoundId,
    },
    /// A round's file that is about another round.
    #[error("expected round {expected}, as the file's name says, found {found}")]
    AnotherRound {
        /// By the name.
        expected: RoundId,
        /// By the content.
        found: RoundId,
    },
    /// A limit that bounds nothing.
    #[error("expected a number above 0 and up to {most}, found {found}")]
    Limit {
        /// The largest.
        most: f64,
        /// The number.
        found: f64,
    },
    /// A weight said twice.
    #[error("expected one of train_size and weight, found both")]
    TwoWeights,
    /// Rounds that have not come.
    #[error(
        "expected a number of rounds, found limits alone: rounds come one by one (secsv principal --follow)"
    )]
    RoundsToCome,
    /// No client has a test sample.
    #[error("expected at least one test sample over all clients, found none")]
    NoTestSamples,
    /// Aggregates that do not follow from the local models, and were not kept.
    #[error(
        "expected the global model after each round but the last in global/, found none: with aggregation = \"other\" they do not follow from the local models"
    )]
    NoGlobalModels,
    /// A global model that is not the weighted mean of the local ones.
    #[error(
        "expected the weighted mean {expected} to {tolerance:.0e}, found {found} at position {position}{}; if the training aggregates otherwise (FedAdam, FedAvgM, a median), say aggregation = \"other\"",
        lost_or_absent(absent)
    )]
    NotTheMean {
        /// Index of the element, row by row.
        position: usize,
        /// The mean of the local models.
        expected: f64,
        /// The value in the global model.
        found: f64,
        /// How far apart they may be.
        tolerance: f64,
        /// Clients without a model of that round.
        absent: Vec<ClientId>,
    },
    /// More elements than a machine word can count.
    #[error("expected a size that fits in memory, found shape {found:?}")]
    TooLarge {
        /// The shape.
        found: Vec<usize>,
    },
}

impl Error {
    pub(crate) fn defect(file: impl Into<PathBuf>, field: impl Into<String>, defect: Defect) -> Self {
        Self::Defect { file: file.into(), field: field.into(), defect }
    }

    pub(crate) fn reading(file: impl Into<PathBuf>, source: io::Error) -> Self {
        let file = file.into();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                Self::defect(file, "file", Defect::MissingFile)
            }
            _ => Self::Io { file, source },
        }
    }

    pub(crate) fn writing(file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Write { file: file.into(), source }
    }

    /// Whether the input is at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Toml { .. } | Self::Defect { .. })
    }
}

/// Why a mean may not be that of the models that are there.
fn lost_or_absent(absent: &[ClientId]) -> String {
    if absent.is_empty() {
        return String::new();
    }
    let names: Vec<_> = absent.iter().map(ToString::to_string).collect();
    format!(" (no model of this round from {}: lost, or did they take no part?)", list(&names))
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "nothing".to_owned(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}

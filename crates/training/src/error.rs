//! Errors between a data set and a run directory.

use std::path::PathBuf;

use secsv_federation::ClientId;

/// Every failure of this crate. Input that a user can mend is told apart by [`TrainingError::is_bad_input`].
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// Neither a known data set nor a file.
    #[error("data set: expected {} or a .csv or .npz file, found {found}, which is no file", expected.join(", "))]
    UnknownDataset {
        /// The names there are.
        expected: &'static [&'static str],
        /// The name given.
        found: String,
    },
    /// A data set that lives in files was asked for without a directory.
    #[error(
        "data set {dataset} is read from files: name their directory with --data DIR. The public original: {original}"
    )]
    NoDataDirectory {
        /// The data set asked for.
        dataset: &'static str,
        /// Where the public original is.
        original: &'static str,
    },
    /// A file of a data set is in none of the places where it may be.
    #[error("data set {dataset}: looked for {} and found none. The public original: {original}", list(.looked_for))]
    MissingFile {
        /// The data set asked for.
        dataset: &'static str,
        /// Every path that was tried.
        looked_for: Vec<PathBuf>,
        /// Where the public original is.
        original: &'static str,
    },
    /// The operating system refused to read a file.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file does not hold what its format promises.
    #[error("{}: {place}: expected {expected}, found {found}", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// Line, column or field.
        place: String,
        /// The value that belongs there.
        expected: String,
        /// The value that is there.
        found: String,
    },
    /// A setting lies outside its range.
    #[error("{setting}: expected {expected}, found {found}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The range.
        expected: String,
        /// The value given.
        found: String,
    },
    /// The largest class cannot give every client its floor, so somebody would train or test on nothing.
    #[error(
        "the {part} samples cannot be dealt to {clients} clients: expected at least {expected} samples of the largest class, found \
         {found}{}", enough_for(*expected, *clients, *found)
    )]
    TooFewSamples {
        /// `training` or `test`.
        part: &'static str,
        /// The number of clients.
        clients: usize,
        /// Two samples per client.
        expected: usize,
        /// Samples of the largest class.
        found: usize,
    },
    /// A fault or a selection names a client that the federation does not have.
    #[error("{setting}: expected one of {}, found {found}", list_ids(.expected))]
    UnknownClient {
        /// The setting that names the client.
        setting: &'static str,
        /// The clients there are.
        expected: Vec<ClientId>,
        /// The name given.
        found: String,
    },
    /// The model does not fit the samples.
    #[error("model {model} needs samples of {expected}; those of this data set are {found:?}")]
    ModelInput {
        /// The model asked for.
        model: &'static str,
        /// The shapes it takes.
        expected: &'static str,
        /// The shape of a sample.
        found: Vec<usize>,
    },
    /// Training ran away: a parameter is no longer a number.
    #[error(
        "client {client}, round {round}: tensor {tensor} is no longer finite; try a smaller learning rate (now {learning_rate})"
    )]
    Diverged {
        /// Whose model.
        client: ClientId,
        /// In which round.
        round: u32,
        /// Which tensor.
        tensor: String,
        /// The rate that was used.
        learning_rate: f64,
    },
    /// The run directory cannot be written, or there is already something in its place.
    #[error(transparent)]
    RunDirectory(#[from] secsv_federation::Error),
    /// A tensor or test set does not hang together.
    #[error("training: {0}")]
    Tensor(#[from] secsv_federation::Defect),
    /// The machine-learning library failed.
    #[error("training: {0}")]
    Library(#[from] candle_core::Error),
}

impl TrainingError {
    pub(crate) fn setting(
        setting: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, expected: expected.into(), found: found.into() }
    }

    /// Whether the user's input is at fault (exit code 2) rather than this program or machine (exit code 1).
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Library(_) | Self::Diverged { .. } | Self::Tensor(_) => false,
            Self::RunDirectory(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// How many clients there are samples for.
fn enough_for(expected: usize, clients: usize, found: usize) -> String {
    match found * clients / expected.max(1) {
        0 | 1 => String::new(),
        most => format!(", enough for {most} clients"),
    }
}

fn list_ids(ids: &[ClientId]) -> String {
    ids.iter().map(ClientId::as_str).collect::<Vec<_>>().join(", ")
}

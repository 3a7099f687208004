//! The run directory: what a federation leaves behind, or the part of it that one silo holds.
//!
//! Opening reads `federation.toml` and the head of `initial.safetensors`; models and test sets are read one
//! at a time when asked for, so memory never depends on the number of rounds.

mod check;
mod write;

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    Architecture, ClientId, Coalition, Defect, Error, FederationSpec, Layout, RoundId, TestSet, Weights,
    files::{TensorFile, check_label_shape, open, read_npz},
    weights::element_count,
};

pub use write::RunWriter;

const SPEC_FILE: &str = "federation.toml";
const INITIAL_FILE: &str = "initial.safetensors";
const GLOBAL: &str = "global";
const CLIENTS: &str = "clients";
/// More text than 128 clients with an override for each of 9999 rounds need.
const MAX_SPEC_BYTES: u64 = 1 << 27;

/// A run directory, open for reading.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
    spec: FederationSpec,
    architecture: Architecture,
}

impl RunDirectory {
    /// Reads and checks `federation.toml` and the shapes in `initial.safetensors`. Nothing else needs to be
    /// there, so a silo opens its own part the same way. See [`RunDirectory::check`] for the rest.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let spec_file = path.join(SPEC_FILE);
        let spec = FederationSpec::parse(&read_text(&spec_file)?, &spec_file)?;
        let initial = path.join(INITIAL_FILE);
        let file = TensorFile::open(&initial)?;
        let shapes = file.shapes(|name| spec.model.ignores(name))?;
        let architecture = Architecture::new(&spec.model, &shapes, &spec_file, &initial)?;
        architecture.check_layout(&spec_file)?;
        Ok(Self { path, spec, architecture })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of `federation.toml`.
    pub fn spec(&self) -> &FederationSpec {
        &self.spec
    }

    /// The model every client trained.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The global model before round 1.
    pub fn initial_model(&self) -> Result<Weights, Error> {
        self.read_model(&self.path.join(INITIAL_FILE))
    }

    /// Whether the aggregates were kept.
    pub fn has_global_models(&self) -> bool {
        self.path.join(GLOBAL).is_dir()
    }

    /// The aggregate after a round, as `global/` has it.
    pub fn global_model(&self, round: RoundId) -> Result<Weights, Error> {
        self.read_model(&self.global_file(round))
    }

    /// The global model that a round began with.
    pub fn model_before(&self, round: RoundId) -> Result<Weights, Error> {
        match round.0 {
            0 | 1 => self.initial_model(),
            later => self.global_model(RoundId(later - 1)),
        }
    }

    /// Whether the aggregate after a round was kept.
    pub fn has_global_model(&self, round: RoundId) -> bool {
        // What is there and no file is refused where it is read, and not taken for absent.
        self.global_file(round).symlink_metadata().is_ok()
    }

    /// Whether a client left a model of a round.
    pub fn took_part(&self, client: &ClientId, round: RoundId) -> bool {
        self.local_file(client, round).exists()
    }

    /// Who left a model of a round (the paper's I^t).
    pub fn participants(&self, round: RoundId) -> Coalition {
        let took_part = |(_, client): &(usize, &ClientId)| self.took_part(client, round);
        self.spec.ids().enumerate().filter(took_part).map(|(position, _)| position).collect()
    }

    /// The model that a client uploaded in a round.
    pub fn local_model(&self, client: &ClientId, round: RoundId) -> Result<Weights, Error> {
        self.read_model(&self.local_file(client, round))
    }

    /// A client's test set, from `test.safetensors` or `test.npz`.
    pub fn test_set(&self, client: &ClientId) -> Result<TestSet, Error> {
        let directory = self.client_directory(client);
        let (tensors, archive) = (directory.join("test.safetensors"), directory.join("test.npz"));
        let (file, test_set) = match (tensors.exists(), archive.exists()) {
            (true, true) => return Err(Error::defect(directory, "test", Defect::TwoTestSets)),
            (false, true) => (archive.clone(), read_npz(&archive)?),
            _ => (tensors.clone(), read_test_set(&tensors)?),
        };
        if test_set.input() != self.spec.model.input {
            let expected = format!("[m, {}]", join(&self.spec.model.input));
            let mut found = vec![test_set.len()];
            found.extend(test_set.input());
            return Err(Error::defect(file, "x", Defect::Shape { expected, found }));
        }
        let test_set = match self.spec.model.layout {
            Some(Layout::Keras) => test_set.with_channels_first(),
            _ => test_set,
        };
        test_set.check_features().map_err(|defect| Error::defect(&file, "x", defect))?;
        if let Some(rows) = self.architecture.vocabulary() {
            test_set.check_rows(rows).map_err(|defect| Error::defect(&file, "x", defect))?;
        }
        test_set.check_labels(self.spec.model.classes).map_err(|defect| Error::defect(&file, "y", defect))?;
        Ok(test_set)
    }

    fn read_model(&self, path: &Path) -> Result<Weights, Error> {
        let mut file = TensorFile::open(path)?;
        let shapes = file.shapes(|name| self.spec.model.ignores(name))?;
        self.architecture.check_shapes(&shapes, path)?;
        self.architecture
            .tensors()
            .keys()
            .map(|name| {
                let tensor = self.architecture.tensor_of_file(name, file.read_floats(name)?);
                Ok((name.clone(), tensor.map_err(|defect| Error::defect(path, name, defect))?))
            })
            .collect()
    }

    fn spec_file(&self) -> PathBuf {
        self.path.join(SPEC_FILE)
    }

    fn client_directory(&self, client: &ClientId) -> PathBuf {
        self.path.join(CLIENTS).join(client.as_str())
    }

    fn local_file(&self, client: &ClientId, round: RoundId) -> PathBuf {
        self.client_directory(client).join(round_file(round))
    }

    fn global_file(&self, round: RoundId) -> PathBuf {
        self.path.join(GLOBAL).join(round_file(round))
    }
}

fn round_file(round: RoundId) -> String {
    format!("round-{:04}.safetensors", round.0)
}

fn join(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    let mut file = open(path)?;
    let length = file.metadata().map_err(|source| Error::reading(path, source))?.len();
    if length > MAX_SPEC_BYTES {
        let defect = Defect::Range { least: 1, most: MAX_SPEC_BYTES, found: length };
        return Err(Error::defect(path, "size in bytes", defect));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|source| Error::reading(path, source))?;
    String::from_utf8(bytes).map_err(|e| {
        let position = e.utf8_error().valid_up_to();
        Error::defect(path, "text", Defect::NotText { position })
    })
}

fn read_test_set(path: &Path) -> Result<TestSet, Error> {
    let mut file = TensorFile::open(path)?;
    file.expect_names(&["x", "y"])?;
    let x = file.shape("x")?.to_vec();
    let y = file.shape("y")?.to_vec();
    let Some((&samples, input)) = x.split_first() else {
        return Err(Error::defect(path, "x", Defect::Shape { expected: "[m, ...]".to_owned(), found: x }));
    };
    check_label_shape(path, samples, &y)?;
    element_count(&x).map_err(|defect| Error::defect(path, "x", defect))?;
    let features = file.read_features("x")?;
    let labels = file.read_labels("y")?;
    TestSet::new(input.to_vec(), features, labels).map_err(|defect| Error::defect(path, "x", defect))
}

/// The entries of a directory, sorted; none if it is not there.
fn entries(path: &Path) -> Result<Vec<String>, Error> {
    let listing = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.map_err(|source| Error::reading(path, source))?,
    };
    let mut names = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|source| Error::reading(path, source))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

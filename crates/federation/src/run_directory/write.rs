//! Writing a run directory: all of it or nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{CLIENTS, GLOBAL, INITIAL_FILE, RunDirectory, SPEC_FILE, entries, round_file};
use crate::{
    ClientId, Defect, Error, FederationSpec, Layout, RoundId, TestSet, Weights,
    files::{write_tensors, write_test_set},
    partial_path, rename_durably,
};

/// A run directory in the making. It appears under its name when [`RunWriter::finish`] has checked it; until
/// then it lies beside it under a hidden name, and dropping the writer removes it.
///
/// ```
/// # use secsv_federation::*;
/// # let parent = tempfile::tempdir()?;
/// # let path = parent.path().join("run");
/// let linear = LayerSpec::Linear { weight: "fc.weight".into(), bias: None };
/// let clients: Result<Vec<ClientSpec>, ClientIdError> = ["a", "b", "c", "d"]
///     .iter()
///     .map(|id| Ok(ClientSpec::new(ClientId::new(*id)?, 10.0)))
///     .collect();
/// let model = ModelSpec::new(vec![2], 2, vec![linear]);
/// let spec = FederationSpec::new("four".into(), 1, model, clients?);
/// let model = Weights::from_iter([("fc.weight".to_owned(), Tensor::new(vec![2, 2], vec![1., 0., 0., 1.])?)]);
/// let writer = RunWriter::create(&path, &spec)?;
/// writer.initial_model(&model)?;
/// for id in spec.ids() {
///     writer.test_set(id, &TestSet::new(vec![2], vec![0.5, 0.25], vec![0])?)?;
///     writer.local_model(id, RoundId(1), &model)?;
/// }
/// writer.global_model(RoundId(1), &model)?;
/// let run = writer.finish()?;
/// assert_eq!(run.participants(RoundId(1)).len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunWriter {
    target: PathBuf,
    partial: PathBuf,
    finished: bool,
}

impl RunWriter {
    /// Starts a run directory. What is at `path` must be absent or an empty directory.
    pub fn create(path: impl Into<PathBuf>, spec: &FederationSpec) -> Result<Self, Error> {
        let target = path.into();
        if target.exists() && (!target.is_dir() || !entries(&target)?.is_empty()) {
            return Err(Error::defect(&target, "directory", Defect::NotEmpty));
        }
        spec.check(&target.join(SPEC_FILE))?;
        if spec.model.layout == Some(Layout::Keras) {
            let (what, instead) = ("run to be written", "models are written in PyTorch's layout");
            let defect = Defect::NotInKeras { what, instead };
            return Err(Error::defect(target.join(SPEC_FILE), "model.layout", defect));
        }
        let partial = partial_path(&target);
        let writer = Self { target, partial, finished: false };
        let spec_file = writer.partial.join(SPEC_FILE);
        make_directory(&writer.partial)?;
        let text = spec.to_toml().map_err(|e| Error::writing(&spec_file, std::io::Error::other(e)))?;
        fs::write(&spec_file, text).map_err(|source| Error::writing(&spec_file, source))?;
        Ok(writer)
    }

    /// Writes the global model before round 1.
    pub fn initial_model(&self, weights: &Weights) -> Result<(), Error> {
        write_tensors(&self.partial.join(INITIAL_FILE), weights)
    }

    /// Writes the aggregate after a round.
    pub fn global_model(&self, round: RoundId, weights: &Weights) -> Result<(), Error> {
        let directory = self.partial.join(GLOBAL);
        make_directory(&directory)?;
        write_tensors(&directory.join(round_file(round)), weights)
    }

    /// Writes the model that a client uploaded in a round.
    pub fn local_model(&self, client: &ClientId, round: RoundId, weights: &Weights) -> Result<(), Error> {
        write_tensors(&self.client_directory(client)?.join(round_file(round)), weights)
    }

    /// Writes a client's test set.
    pub fn test_set(&self, client: &ClientId, test_set: &TestSet) -> Result<(), Error> {
        write_test_set(&self.client_directory(client)?.join("test.safetensors"), test_set)
    }

    /// Checks the whole directory and gives it its name.
    pub fn finish(mut self) -> Result<RunDirectory, Error> {
        RunDirectory::open(&self.partial)?.check()?;
        rename_durably(&self.partial, &self.target).map_err(|source| Error::writing(&self.target, source))?;
        self.finished = true;
        RunDirectory::open(&self.target)
    }

    fn client_directory(&self, client: &ClientId) -> Result<PathBuf, Error> {
        let directory = self.partial.join(CLIENTS).join(client.as_str());
        make_directory(&directory)?;
        Ok(directory)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing more can be done about a directory that cannot be removed.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| Error::writing(path, source))
}

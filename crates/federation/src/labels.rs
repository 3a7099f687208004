//! What people call organisations: names with spaces and umlauts, beside ids that are names of files and certificates.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{ClientId, Defect, Error, FederationSpec, run_directory::read_text, spec::check_name};

/// The file of labels, beside `federation.toml`.
pub const LABELS_FILE: &str = "labels.toml";

/// Labels by id; whoever has none is called by its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<ClientId, String>);

impl Labels {
    /// Labels that were given.
    pub fn new(labels: impl IntoIterator<Item = (ClientId, String)>) -> Self {
        Self(labels.into_iter().collect())
    }

    /// The labels in a directory, if it has any.
    pub fn read(directory: &Path, spec: &FederationSpec) -> Result<Self, Error> {
        let file = directory.join(LABELS_FILE);
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&file)?;
        let labels: Self = toml::from_str(&text)
            .map_err(|source| Error::Toml { file: file.clone(), source: Box::new(source) })?;
        labels.check(spec, &file)?;
        Ok(labels)
    }

    /// Refuses labels of nobody, and labels that nobody could read; `file` is named in errors.
    pub fn check(&self, spec: &FederationSpec, file: &Path) -> Result<(), Error> {
        for (id, label) in &self.0 {
            if !spec.ids().any(|known| known == id) {
                return Err(Error::defect(file, id.as_str(), Defect::Unlisted { found: id.to_string() }));
            }
            check_name(id.as_str(), label, file)?;
        }
        Ok(())
    }

    /// Writes them to a directory, if there are any.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let file = directory.join(LABELS_FILE);
        let text = toml::to_string(self)
            .map_err(|error| Error::writing(&file, std::io::Error::other(error.to_string())))?;
        fs::write(&file, text).map_err(|source| Error::writing(&file, source))
    }

    /// What people call a client, if it is not by its id.
    pub fn get(&self, id: &ClientId) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Whether everybody is called by its id.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

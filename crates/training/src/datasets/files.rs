//! Finds and reads the files of a public data set, compressed or not, and says where to get what is missing.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::TrainingError;

/// A public data set that is read from files, and where its original is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicFiles {
    /// Its name on the command line and its directory under `--data`.
    pub(crate) dataset: &'static str,
    /// Where the public original is, in words.
    pub(crate) original: &'static str,
}

/// A file's whole uncompressed content and where it came from.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) file: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl PublicFiles {
    /// Reads `name.gz` or `name` from `DIR/<dataset>` or from `DIR` itself.
    pub(crate) fn read(&self, data: Option<&Path>, name: &str) -> Result<Content, TrainingError> {
        let Some(data) = data else {
            return Err(TrainingError::NoDataDirectory { dataset: self.dataset, original: self.original });
        };
        let looked_for: Vec<PathBuf> = [data.join(self.dataset), data.to_path_buf()]
            .iter()
            .flat_map(|directory| [directory.join(format!("{name}.gz")), directory.join(name)])
            .collect();
        match looked_for.iter().find(|path| path.is_file()) {
            Some(path) => Content::read(path),
            None => {
                Err(TrainingError::MissingFile { dataset: self.dataset, looked_for, original: self.original })
            }
        }
    }
}

impl Content {
    /// Reads a file and decompresses it if it begins as gzip does.
    pub(crate) fn read(file: &Path) -> Result<Self, TrainingError> {
        let failed = |source| TrainingError::Read { file: file.to_path_buf(), source };
        let stored = std::fs::read(file).map_err(failed)?;
        Self::from_stored(file, stored)
    }

    /// The same for bytes that are already in memory.
    pub(crate) fn from_stored(file: &Path, stored: Vec<u8>) -> Result<Self, TrainingError> {
        let bytes = if stored.starts_with(&[0x1f, 0x8b]) {
            let mut bytes = Vec::new();
            MultiGzDecoder::new(stored.as_slice())
                .read_to_end(&mut bytes)
                .map_err(|source| TrainingError::Read { file: file.to_path_buf(), source })?;
            bytes
        } else {
            stored
        };
        Ok(Self { file: file.to_path_buf(), bytes })
    }

    /// An error about this file.
    pub(crate) fn wrong(
        &self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> TrainingError {
        TrainingError::Format {
            file: self.file.clone(),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The content as text.
    pub(crate) fn text(&self) -> Result<&str, TrainingError> {
        std::str::from_utf8(&self.bytes).map_err(|error| {
            self.wrong(format!("byte {}", error.valid_up_to()), "UTF-8 text", "another byte")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: PublicFiles = PublicFiles { dataset: "nowhere", original: "the Nowhere corpus" };

    #[test]
    fn a_missing_file_names_every_place_and_the_original() {
        let directory = tempfile::tempdir().unwrap();
        let message = NOWHERE.read(Some(directory.path()), "rows.csv").unwrap_err().to_string();
        assert!(
            message.contains("nowhere/rows.csv.gz") && message.contains("the Nowhere corpus"),
            "{message}"
        );
        let message = NOWHERE.read(None, "rows.csv").unwrap_err().to_string();
        assert!(message.contains("--data") && message.contains("the Nowhere corpus"), "{message}");
    }

    #[test]
    fn plain_and_compressed_files_read_alike() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rows.csv"), b"1,2\n").unwrap();
        assert_eq!(NOWHERE.read(Some(directory.path()), "rows.csv").unwrap().bytes, b"1,2\n");
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, b"3,4\n").unwrap();
        std::fs::create_dir(directory.path().join("nowhere")).unwrap();
        std::fs::write(directory.path().join("nowhere/rows.csv.gz"), packer.finish().unwrap()).unwrap();
        assert_eq!(NOWHERE.read(Some(directory.path()), "rows.csv").unwrap().bytes, b"3,4\n");
    }
}

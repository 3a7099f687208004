//! Finished cells, one JSON file each: an interrupted run goes on where it was.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::machine::Machine;
use crate::output_file;

/// A cell as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored<T> {
    cell: String,
    machine: Machine,
    seconds: f64,
    value: T,
}

/// The directory of cells.
pub struct CellStore {
    directory: PathBuf,
    machine: Machine,
    /// Whether cells of other builds count.
    reuses: bool,
    /// Cells of other builds that were taken, by build.
    reused: RefCell<BTreeMap<String, BTreeSet<String>>>,
}

impl CellStore {
    /// Cells under `out`, for figures of this machine and build; of other builds too if these are to be used
    /// again.
    pub fn open(out: &Path, machine: Machine, reuses: bool) -> anyhow::Result<Self> {
        let directory = out.join("cells");
        fs::create_dir_all(&directory)
            .with_context(|| format!("{}: cannot be created", directory.display()))?;
        Ok(Self { directory, machine, reuses, reused: RefCell::default() })
    }

    /// The machine that cells are of.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A finished cell; none if it is missing, torn, of another machine, or of a build that does not count.
    pub fn get<T: DeserializeOwned>(&self, cell: &str) -> Option<T> {
        let bytes = fs::read(self.file(cell)).ok()?;
        let stored: Stored<T> = serde_json::from_slice(&bytes).ok()?;
        let is_new = stored.machine.build == self.machine.build;
        let machine = Machine { build: self.machine.build.clone(), ..stored.machine.clone() };
        if stored.cell != cell || machine != self.machine || !(is_new || self.reuses) {
            return None;
        }
        if !is_new {
            let mut reused = self.reused.borrow_mut();
            reused.entry(stored.machine.build).or_default().insert(stored.cell);
        }
        Some(stored.value)
    }

    /// Cells of other builds that were taken since this was asked last, by build.
    pub fn take_reused(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.reused.take()
    }

    /// Whether a cell is finished.
    pub fn has(&self, cell: &str) -> bool {
        self.get::<serde_json::Value>(cell).is_some()
    }

    /// Keeps a finished cell, whole or not at all.
    pub fn put<T: Serialize>(&self, cell: &str, seconds: f64, value: &T) -> anyhow::Result<()> {
        let stored = Stored { cell: cell.to_owned(), machine: self.machine.clone(), seconds, value };
        output_file::write(&self.file(cell), &serde_json::to_vec(&stored)?)
    }

    fn file(&self, cell: &str) -> PathBuf {
        self.directory.join(format!("{cell}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(build: &str) -> Machine {
        Machine {
            processor: "p".into(),
            threads: 2,
            memory_mib: None,
            system: "s".into(),
            build: build.into(),
        }
    }

    #[test]
    fn cells_of_another_build_and_torn_ones_are_done_again() {
        let place = tempfile::tempdir().unwrap();
        let store = CellStore::open(place.path(), machine("one"), false).unwrap();
        assert_eq!(store.get::<u32>("a"), None);
        store.put("a", 1.0, &7u32).unwrap();
        assert_eq!(store.get("a"), Some(7u32));
        assert!(!CellStore::open(place.path(), machine("two"), false).unwrap().has("a"));
        let lenient = CellStore::open(place.path(), machine("two"), true).unwrap();
        assert_eq!(lenient.get("a"), Some(7u32));
        assert_eq!(lenient.take_reused(), [("one".to_owned(), ["a".to_owned()].into())].into());
        assert!(lenient.take_reused().is_empty());
        let elsewhere = Machine { threads: 3, ..machine("two") };
        assert!(!CellStore::open(place.path(), elsewhere, true).unwrap().has("a"));
        fs::copy(store.file("a"), store.file("b")).unwrap();
        assert!(!store.has("b"), "a cell is what it says it is");
        let bytes = fs::read(store.file("a")).unwrap();
        fs::write(store.file("a"), &bytes[..bytes.len() / 2]).unwrap();
        assert!(!store.has("a"));
    }
}

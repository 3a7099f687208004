//! Who may depend on whom (docs/ARCHITECTURE.md): the table is this test.

use std::{collections::BTreeMap, error::Error, fs, path::Path};

const MAY_USE: &[(&str, &[&str])] = &[
    ("algebra", &[]),
    ("federation", &[]),
    ("training", &["federation"]),
    ("he", &["algebra"]),
    ("protocol", &["federation", "algebra", "he"]),
    ("shapley", &["federation"]),
    ("evaluation", &["protocol", "shapley", "federation"]),
    ("node", &["evaluation", "protocol", "shapley", "federation"]),
    ("attacks", &["evaluation", "shapley", "federation", "training", "protocol", "he", "algebra"]),
    ("cli", &["evaluation", "node", "shapley", "federation", "training", "protocol", "he", "algebra"]),
    ("python", &["cli", "evaluation"]),
];

/// Libraries that one crate alone may name.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("he", &["fhe", "fhe-math", "fhe-traits", "tfhe-ntt"]),
    ("training", &["candle-core", "candle-nn"]),
    ("python", &["pyo3"]),
    ("node", &["tokio", "axum", "hyper", "rustls", "rcgen", "redb"]),
];

fn normal_dependencies() -> Result<BTreeMap<String, Vec<String>>, Box<dyn Error>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(crates)? {
        let path = entry?.path();
        let Ok(text) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = text.parse()?;
        let names = manifest
            .get("dependencies")
            .and_then(|d| d.as_table())
            .map(|d| d.keys().cloned().collect())
            .unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        found.insert(name.into_owned(), names);
    }
    Ok(found)
}

#[test]
fn every_crate_uses_only_what_it_may() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let crates = normal_dependencies().unwrap();
    assert!(crates.len() >= 7, "found only {:?}", crates.keys());
    for (name, dependencies) in crates {
        let allowed = table.get(name.as_str()).unwrap_or_else(|| panic!("crate {name} is not in the table"));
        for dependency in dependencies {
            if let Some(ours) = dependency.strip_prefix("secsv-") {
                assert!(allowed.contains(&ours), "{name} must not depend on {ours}");
            }
            for (owner, libraries) in ONLY_IN {
                assert!(
                    *owner == name || !libraries.contains(&dependency.as_str()),
                    "{name} names {dependency}, which only {owner} may"
                );
            }
        }
    }
}

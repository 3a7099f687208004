//! Demands of a lawyer and an auditor on the manifests: a licence on every crate, its text beside them, and
//! cryptography that changes only when somebody changes a manifest.

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf};

const LICENCE: &str = "MIT OR Apache-2.0";

/// Libraries that hold or handle keys, seeds, ciphertexts, digests or certificates.
const CRYPTOGRAPHY: &[&str] = &[
    "blake3",
    "fhe",
    "fhe-math",
    "fhe-traits",
    "fhe-util",
    "hpke",
    "rand_chacha",
    "rcgen",
    "ring",
    "rustls",
    "rustls-webpki",
    "sha2",
    "subtle",
    "tfhe-ntt",
    "tokio-rustls",
    "x509-parser",
    "zeroize",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table(path: PathBuf) -> Result<toml::Table, Box<dyn Error>> {
    Ok(fs::read_to_string(path)?.parse()?)
}

fn manifests() -> Result<Vec<(String, toml::Table)>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let path = entry?.path();
        if path.join("Cargo.toml").exists() {
            found.push((path.display().to_string(), table(path.join("Cargo.toml"))?));
        }
    }
    assert!(found.len() >= 8, "found only {} crates", found.len());
    Ok(found)
}

/// Name and version of every dependency a table of them asks for; those of the workspace are looked up there.
fn asked(dependencies: Option<&toml::Value>) -> Vec<(String, Option<String>)> {
    let Some(dependencies) = dependencies.and_then(toml::Value::as_table) else { return Vec::new() };
    let of = |name: &String, value: &toml::Value| match value {
        toml::Value::String(version) => (name.clone(), Some(version.clone())),
        value => {
            let text = |field: &str| value.get(field).and_then(toml::Value::as_str).map(str::to_owned);
            (text("package").unwrap_or_else(|| name.clone()), text("version"))
        }
    };
    dependencies.iter().map(|(name, value)| of(name, value)).collect()
}

#[test]
fn every_crate_says_its_licence_and_the_texts_are_there() {
    let workspace = table(root().join("Cargo.toml")).unwrap();
    let licence = workspace["workspace"]["package"].get("license").and_then(toml::Value::as_str);
    assert_eq!(licence, Some(LICENCE), "the workspace's licence");
    for (path, manifest) in manifests().unwrap() {
        let inherits = manifest["package"].get("license").and_then(|l| l.get("workspace"));
        assert_eq!(inherits.and_then(toml::Value::as_bool), Some(true), "{path}: license.workspace = true");
    }
    for (file, says) in
        [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Grant of Patent License")]
    {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(text.contains(says), "{file} does not say {says:?}");
    }
}

#[test]
fn cryptography_is_pinned_to_the_version_that_is_locked() {
    let lock = table(root().join("Cargo.lock")).unwrap();
    let mut locked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        locked
            .entry(package["name"].as_str().unwrap())
            .or_default()
            .push(package["version"].as_str().unwrap());
    }
    let workspace = table(root().join("Cargo.toml")).unwrap();
    let mut places = vec![("workspace".to_owned(), asked(workspace["workspace"].get("dependencies")))];
    for (path, manifest) in manifests().unwrap() {
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        places.push((path, tables.iter().flat_map(|t| asked(manifest.get(*t))).collect()));
    }
    let mut pinned = Vec::new();
    for (place, dependencies) in places {
        for (name, version) in dependencies {
            let (true, Some(version)) = (CRYPTOGRAPHY.contains(&name.as_str()), version) else { continue };
            let exact = version
                .strip_prefix('=')
                .unwrap_or_else(|| panic!("{place}: {name} = {version:?} is not exact"));
            assert!(
                locked[name.as_str()].contains(&exact),
                "{place}: {name} {exact} is not what Cargo.lock has"
            );
            pinned.push(name);
        }
    }
    for name in CRYPTOGRAPHY {
        assert!(pinned.iter().any(|p| p == name), "{name} is pinned nowhere");
    }
}

#[test]
fn the_docs_name_what_is_unaudited_unmaintained_or_without_a_patent_grant() {
    let text = fs::read_to_string(root().join("docs/SECURITY.md")).unwrap();
    for said in ["`fhe` 0.1.1", "not been audited", "BSD-3-Clause-Clear", "`paste`", "RUSTSEC-2024-0436"] {
        assert!(text.contains(said), "docs/SECURITY.md does not say {said:?}");
    }
}

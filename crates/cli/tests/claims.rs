//! Sentences that were once said and are not true: no document and no source says them again. Tests that documents name exist.

#![cfg(test)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Claims that attacks have refuted, and the words of a way of counting that did not measure anything.
const REFUTED: [&str; 9] = [
    "nothing else left an organisation",
    "under a model it does not know",
    "nobody may see anybody",
    "without anybody seeing anybody",
    "without showing anybody",
    "enough to solve for",
    "equations beside",
    "quarter of the inputs",
    "quarter of a sample's unknowns",
];
/// Phrases of commands, reports and their documents about attacks.
const VERDICT: &str = "excluded";
const DOCUMENTS: [&str; 5] =
    ["README.md", "docs/SECURITY.md", "docs/PROTOCOL.md", "docs/ARCHITECTURE.md", "docs/TLS_WALKTHROUGH.md"];
const SPEAKERS: [&str; 5] = [
    "crates/protocol/src/exposure",
    "crates/protocol/src/decryptors",
    "crates/cli/src/report",
    "crates/cli/src/commands/plan",
    "crates/node/src/kit",
];

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|found| found == "rs") {
            found.push(path);
        }
    }
}

/// In lower case, and as if it stood in one line.
fn read(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap().to_lowercase();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn nothing_claims_what_attacks_have_refuted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut said: Vec<PathBuf> = DOCUMENTS.iter().map(|file| root.join(file)).collect();
    SPEAKERS.iter().for_each(|directory| sources(&root.join(directory), &mut said));
    for file in &said {
        assert!(!read(file).contains(VERDICT), "{}: {VERDICT:?}", file.display());
    }
    for name in ["protocol", "evaluation", "node", "cli"] {
        sources(&root.join("crates").join(name).join("src"), &mut said);
    }
    assert!(said.len() > 100, "{} files", said.len());
    for (file, claim) in said.iter().flat_map(|file| REFUTED.map(|claim| (file, claim))) {
        assert!(!read(file).contains(claim), "{}: {claim:?}", file.display());
    }
}

/// Documents that name the tests which hold what they say.
const WITNESSED: [&str; 4] =
    ["docs/SECURITY.md", "docs/SPAN_RULE.md", "docs/EXTENDING.md", "docs/RUN_DIRECTORY.md"];

/// Test names in a document: words between backticks of lower case with three underscores or more.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name)
}

#[test]
fn tests_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut count = 0;
    for document in WITNESSED {
        for name in named_tests(&fs::read_to_string(root.join(document)).unwrap()) {
            assert!(
                code.contains(&format!("fn {name}(")),
                "{document} names a test that does not exist: {name}"
            );
            count += 1;
        }
    }
    assert!(count > 40, "{count} tests are named");
}

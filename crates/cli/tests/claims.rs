//! Sentences that were once said and are not true: no document and no source says them again.

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
/// What commands, reports and the documents for their readers said of attacks.
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

//! Sentences that were once said and are not true: no document and no source says them again.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Claims that attacks have refuted, and the words of a way of counting that did not measure anything.
const REFUTED: [&str; 10] = [
    "excluded",
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

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

#[test]
fn nothing_claims_what_attacks_have_refuted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md")];
    files(&root.join("docs"), "md", &mut all);
    for krate in ["protocol", "runtime", "cli"] {
        files(&root.join("crates").join(krate).join("src"), "rs", &mut all);
    }
    assert!(all.len() > 100, "{} files", all.len());
    for file in all {
        let text = fs::read_to_string(&file).unwrap().to_lowercase();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for claim in REFUTED {
            assert!(!text.contains(claim), "{}: {claim:?}", file.display());
        }
    }
}

//! Frozen files, `vectors/` at the root of the repository. With `SECSV_BLESS=1` what is compared is written anew.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

pub(crate) fn is_blessing() -> bool {
    std::env::var_os("SECSV_BLESS").is_some()
}

/// Compares with the frozen text, or freezes it.
pub(crate) fn frozen(path: &Path, text: &str) {
    if is_blessing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(text, expected, "{}", path.display());
}

/// What is wrong, then the error that refuses it, without the directory it was found in.
pub(crate) fn refusal(fault: &str, error: &impl ToString, directory: &Path) -> String {
    let error = error.to_string().replace(&format!("{}/", directory.display()), "");
    let error = error.replace(&directory.display().to_string(), "state");
    let lines = error.lines().map(|line| format!("    {}\n", line.trim_end()));
    format!("bad_{fault}\n{}", lines.collect::<String>())
}

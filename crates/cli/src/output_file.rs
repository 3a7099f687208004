//! Files that commands write: refused early if they cannot be, there as a whole or not at all.

use std::path::Path;

use anyhow::Context as _;
use secsv_federation::write_atomically;

use crate::failure::BadInput;

/// A file that cannot be written later is better refused before hours of work.
pub fn check(setting: &'static str, file: &Path) -> Result<(), BadInput> {
    let parent = parent(file);
    let found = if file.is_dir() {
        "a directory"
    } else if !parent.is_dir() {
        "one in no directory"
    } else {
        return Ok(());
    };
    let found = format!("{found}: {}", file.display());
    Err(BadInput::new(setting, "a file in an existing directory", found))
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file that is there as a whole or not at all.
pub fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_atomically(file, bytes).with_context(|| format!("{}: cannot be written", file.display()))
}

//! Files that commands write: refused early if they cannot be, there as a whole or not at all.

use std::{fs, io::Write as _, path::Path};

use anyhow::Context as _;

use crate::failure::BadInput;

/// A file that cannot be written later is better refused before hours of work.
pub fn check(setting: &'static str, file: &Path) -> Result<(), BadInput> {
    let parent = parent(file);
    let found = match () {
        () if file.is_dir() => "a directory",
        () if !parent.is_dir() => "one in no directory",
        () => return Ok(()),
    };
    let found = format!("{found}: {}", file.display());
    Err(BadInput { setting, expected: "a file in an existing directory", found })
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file that is there as a whole or not at all.
pub fn write_whole(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let context = || format!("{}: cannot be written", file.display());
    let partial = file.with_file_name(format!(
        ".{}.partial-{}",
        file.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let written = fs::File::create_new(&partial)
        .and_then(|mut target| target.write_all(bytes).and_then(|()| target.sync_all()))
        .and_then(|()| fs::rename(&partial, file));
    if written.is_err() {
        // What is left over is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written.with_context(context)
}

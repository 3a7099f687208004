//! Tells the program which commit it is built from.

use std::{path::Path, process::Command};

/// The variable that the program reads, and that can be given.
const COMMIT: &str = "SECSV_COMMIT";

fn main() {
    // Where the history is not at hand, whoever builds may say it.
    let said = || std::env::var(COMMIT).ok().filter(|said| !said.is_empty());
    println!("cargo:rustc-env={COMMIT}={}", commit().or_else(said).unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rerun-if-env-changed={COMMIT}");
    watch();
}

/// The commit, marked where tracked files differ from it; none outside of a checkout.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}+modified") })
}

/// Asks to be run again when the commit or the source may have changed.
fn watch() {
    println!("cargo:rerun-if-changed=build.rs");
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        // A file that is not there would ask for a run each time.
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    for entry in Path::new("..").read_dir().into_iter().flatten().flatten() {
        let source = entry.path().join("src");
        if source.is_dir() {
            println!("cargo:rerun-if-changed={}", source.display());
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

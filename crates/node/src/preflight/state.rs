//! Where a party will keep its state: there, writable, for its owner alone, with room.

use std::{fs, io, path::Path};

use super::Check;

/// Bytes below which a run of any size will stop, and below which a large one may.
const LEAST: u64 = 1 << 30;
const PLENTY: u64 = 20 << 30;

pub(super) fn check(state: &Path) -> Vec<Check> {
    let what = format!("state directory {}", state.display());
    if let Err(error) = usable(state) {
        let advice = "create it, or give its owner the right to write there";
        return vec![Check::failed(what, error.to_string(), advice)];
    }
    let mut checks = vec![permissions(state, &what)];
    checks.extend(room(state));
    checks
}

/// Creates it if need be, writes a file and takes it away again.
fn usable(state: &Path) -> io::Result<()> {
    if !state.is_dir() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(state)?;
    }
    let probe = state.join(format!(".preflight-{}", std::process::id()));
    fs::write(&probe, b"x").and_then(|()| fs::remove_file(&probe))
}

#[cfg(unix)]
fn permissions(state: &Path, what: &str) -> Check {
    use std::os::unix::fs::PermissionsExt as _;
    match fs::metadata(state).map(|metadata| metadata.permissions().mode() & 0o777) {
        Ok(mode) if mode & 0o077 != 0 => Check::failed(
            what,
            format!("others can read it (mode {mode:o})"),
            "chmod 700: it will hold a seed and shares",
        ),
        Ok(_) => Check::ok(what, "writable, for its owner alone"),
        Err(error) => Check::failed(what, error.to_string(), "see that its owner can read it"),
    }
}

#[cfg(not(unix))]
fn permissions(_: &Path, what: &str) -> Check {
    Check::ok(what, "writable")
}

/// Bytes that are free where the state will be.
#[cfg(unix)]
pub(super) fn free(state: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(state).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
pub(super) fn free(_: &Path) -> Option<u64> {
    None
}

fn room(state: &Path) -> Option<Check> {
    let free = free(state)?;
    let found = format!("{:.1} GiB free", free as f64 / (1u64 << 30) as f64);
    Some(match free {
        _ if free < LEAST => {
            Check::failed("disk", found, "free at least 1 GiB: everything sent and received is kept")
        }
        _ if free < PLENTY => {
            Check::warning("disk", found, "see `secsv plan` for how much this run will send")
        }
        _ => Check::ok("disk", found),
    })
}

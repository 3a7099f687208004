//! The values that everybody was told: those of the result, and the same for all.

use super::{
    Finding, Verification,
    log::{ReadLog, holds_values},
    result::Read,
};
use crate::{Fingerprint, audit::Frame, process::PublishedValues};

/// What the message with the values has to be, and who says so.
struct Expected {
    size: u64,
    digest: Fingerprint,
    by: String,
}

/// Without a result the first message with values stands for it: all of them are the same.
pub(super) fn check(logs: &[ReadLog], result: Option<&Read>, found: &mut Verification) {
    if let Some((file, _)) = result
        && logs.iter().all(|log| log.result().is_none())
        && told(logs).next().is_none()
    {
        let what = "expected a log that knows of this result or of its values, found none";
        found.findings.push(Finding::new(file, None, what));
    }
    let expected = match result {
        Some((file, result)) => match PublishedValues::of(result).encode() {
            Ok(content) => Some(Expected {
                size: content.len() as u64,
                digest: Fingerprint::blake3(&content),
                by: file.display().to_string(),
            }),
            Err(error) => return found.findings.push(Finding::new(file, None, error.to_string())),
        },
        None => told(logs).next().map(|(log, line, frame)| Expected {
            size: frame.size,
            digest: frame.digest,
            by: format!("line {line} of {}", log.file.display()),
        }),
    };
    let Some(Expected { size, digest, by }) = expected else { return };
    let agreed = told(logs).filter(|(_, _, frame)| (frame.size, frame.digest) == (size, digest)).count();
    // The first says nothing about itself.
    found.deliveries_agreed = if result.is_some() { agreed } else { agreed.saturating_sub(1) };
    for (log, line, frame) in told(logs).filter(|(_, _, frame)| (frame.size, frame.digest) != (size, digest))
    {
        let what = format!(
            "expected the values of {by} ({size} bytes, digest {digest}) {} {}, found others ({} bytes, digest {})",
            frame.direction.words(),
            frame.peer,
            frame.size,
            frame.digest
        );
        found.findings.push(Finding::new(&log.file, Some(line), what));
    }
}

/// Every message with values in any log.
fn told(logs: &[ReadLog]) -> impl Iterator<Item = (&ReadLog, usize, &Frame)> {
    let of = |log| ReadLog::frames(log).map(move |(line, frame)| (log, line, frame));
    logs.iter().flat_map(of).filter(|(_, _, frame)| holds_values(frame))
}

//! The result is the one that the log recorded, and its values follow from its utilities.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use secsv_protocol::PartyId;

use super::{
    Finding, Verification, VerifyError,
    log::{ReadLog, holds_values},
    values,
};
use crate::{
    Fingerprint,
    audit::{Direction, Event, RESULT_FILE, fields},
    kit::FederationFile,
};
use secsv_evaluation::EvaluationResult;

/// What was expected where a result cannot be read.
const EXPECTED: &str = "expected the result that the log recorded";

/// A result and its file.
pub(super) type Read = (PathBuf, EvaluationResult);

/// Checks what every log says of a result; `copy` takes the place of those in state directories, and is looked at also if no
/// log says anything.
pub(super) fn check(
    logs: &[(&Path, &ReadLog)],
    copy: Option<&Path>,
    federation: Option<&FederationFile>,
    found: &mut Verification,
) -> Result<Option<Read>, VerifyError> {
    let mut first = None;
    let mut is_recorded = false;
    for (state, log) in logs {
        let Some((line, Event::Result { digest, fields, .. })) = log.result() else {
            check_unrecorded(state, log, found)?;
            continue;
        };
        is_recorded = true;
        let place = format!("line {line} of {}", log.file.display());
        let file = copy.map_or_else(|| state.join(RESULT_FILE), Path::to_owned);
        let Some(bytes) = read(&file, copy.is_none())? else {
            let what = format!("{EXPECTED} ({place}), found no file");
            found.findings.push(Finding::new(&file, None, what));
            continue;
        };
        if Fingerprint::blake3(&bytes) != *digest {
            let change = change(&bytes, fields);
            let what = format!("{EXPECTED} ({place}), found another: {change}");
            found.findings.push(Finding::new(&file, None, what));
        }
        first = first.or(parse(file, &bytes, federation, found));
    }
    match copy {
        Some(copy) if !is_recorded => {
            let bytes = read(copy, false)?.unwrap_or_default();
            Ok(parse(copy.to_owned(), &bytes, federation, found))
        }
        _ => Ok(first),
    }
}

/// A log without a result belongs to a party that has none, or has not told anybody its values yet.
fn check_unrecorded(state: &Path, log: &ReadLog, found: &mut Verification) -> Result<(), VerifyError> {
    let values = log.frames().find(|(_, frame)| frame.direction == Direction::Sent && holds_values(frame));
    if let Some((line, _)) = values {
        let what = "expected a line that says which result these values are of, found none";
        found.findings.push(Finding::new(&log.file, Some(line), what));
    }
    let file = state.join(RESULT_FILE);
    if read(&file, true)?.is_none() {
        return Ok(());
    }
    let what = format!("expected no result, as {} says of none, found one", log.file.display());
    // Its line is written after it.
    let is_principal = log.party == Some(PartyId::Principal.to_string());
    if is_principal && !log.is_complete() && values.is_none() {
        let what = format!("{what}: the principal was stopped when it wrote it, or somebody put it there");
        found.notes.push(Finding::new(&file, None, what));
    } else {
        found.findings.push(Finding::new(&file, None, what));
    }
    Ok(())
}

/// The bytes of a result; none if there is no file where there need not be one.
fn read(file: &Path, may_be_missing: bool) -> Result<Option<Vec<u8>>, VerifyError> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(VerifyError { file: file.to_owned(), what: EXPECTED, source }),
    }
}

/// Where a result differs from the one whose fields were recorded.
fn change(bytes: &[u8], expected: &BTreeMap<String, Fingerprint>) -> String {
    let now = fields(bytes);
    let changed: Vec<&str> = expected
        .keys()
        .chain(now.keys().filter(|name| !expected.contains_key(*name)))
        .filter(|name| expected.get(*name) != now.get(*name))
        .map(String::as_str)
        .collect();
    match (now.is_empty(), changed.is_empty()) {
        (true, _) => "it is no JSON object any more".to_owned(),
        (false, true) => "the spaces between its fields were changed".to_owned(),
        (false, false) => format!("these fields were changed: {}", changed.join(", ")),
    }
}

/// Reads a result and computes its values again.
fn parse(
    file: PathBuf,
    bytes: &[u8],
    federation: Option<&FederationFile>,
    found: &mut Verification,
) -> Option<Read> {
    match serde_json::from_slice(bytes) {
        Ok(result) => {
            if let Some(federation) = federation {
                values::check(&file, &result, federation, found);
            }
            Some((file, result))
        }
        Err(error) => {
            let what = format!("expected a result, found something else: {error}");
            found.findings.push(Finding::new(&file, Some(error.line()), what));
            None
        }
    }
}

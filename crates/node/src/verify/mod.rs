//! Whether what parties wrote down fits together: each log in itself, logs against each other, the values against
//! the utilities they were computed from, and what everybody was told against the values. Works offline, on copies of the parties' state directories.

mod delivery;
mod links;
mod log;
mod result;
mod values;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    Fingerprint,
    audit::{FEDERATION_FILE, LOG_FILE},
    kit::FederationFile,
};
use log::ReadLog;

/// Something that does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it has lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What was expected and what was found.
    pub what: String,
}

impl Finding {
    fn new(file: &Path, line: Option<usize>, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What was looked at, and what did not fit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// One for each log.
    pub logs: Vec<LogSummary>,
    /// Frames that two logs agree on.
    pub frames_agreed: usize,
    /// Frames whose other end's log was not given.
    pub frames_unmatched: usize,
    /// Messages with the values that agree with the result or, without one, with each other.
    pub deliveries_agreed: usize,
    /// Values that were computed again.
    pub values: usize,
    /// What the auxiliary's own count confirms, where its log was given and says so.
    pub recount: Option<RecountSummary>,
    /// What does not fit.
    pub findings: Vec<Finding>,
    /// What is not wrong but worth knowing.
    pub notes: Vec<Finding>,
}

/// What follows from all that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Something was compared, and all of it fits.
    Fits,
    /// Something does not fit.
    DoesNotFit,
    /// Nothing was compared that says anything about values.
    NothingToJudge,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fits => "fits",
            Self::DoesNotFit => "does not fit",
            Self::NothingToJudge => "nothing to judge",
        })
    }
}

impl Verification {
    /// The verdict. A run in which nobody has ended has no values to judge, whatever agrees so far.
    pub fn verdict(&self) -> Verdict {
        let has_compared =
            self.values + self.frames_agreed + self.deliveries_agreed > 0 || self.recount.is_some();
        match () {
            () if !self.findings.is_empty() => Verdict::DoesNotFit,
            () if has_compared && self.has_ended() => Verdict::Fits,
            () => Verdict::NothingToJudge,
        }
    }

    /// Whether anybody did its part to the end, or there are values all the same.
    pub fn has_ended(&self) -> bool {
        self.values > 0 || self.logs.iter().any(|log| log.is_complete)
    }
}

/// What the auxiliary counted for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecountSummary {
    /// Counts that it was told.
    pub told: u64,
    /// Those that it confirms.
    pub confirmed: u64,
}

/// One log.
#[derive(Clone, Debug, Serialize)]
pub struct LogSummary {
    /// Its owner.
    pub party: String,
    /// Where it is.
    pub file: PathBuf,
    /// Its lines.
    pub lines: usize,
    /// Frames sent.
    pub sent: usize,
    /// Frames received.
    pub received: usize,
    /// Times the process was started again.
    pub restarts: usize,
    /// Whether the party did its part to the end.
    pub is_complete: bool,
}

/// A directory in which there is nothing to verify.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}: {source}", file.display())]
pub struct VerifyError {
    /// The file or directory.
    pub file: PathBuf,
    /// What it should be.
    pub what: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// Verifies state directories; `result` is a copy of the result to look at instead of the principal's own. Without the
/// principal's log it is held against the values that others received.
pub fn verify(states: &[PathBuf], result: Option<&Path>) -> Result<Verification, VerifyError> {
    let mut found = Verification::default();
    let mut logs: Vec<ReadLog> = Vec::new();
    for state in states {
        let file = state.join(LOG_FILE);
        let bytes = fs::read(&file).map_err(|source| VerifyError {
            file: file.clone(),
            what: "expected a party's audit log",
            source,
        })?;
        let log = ReadLog::read(&file, &bytes, &mut found.findings);
        found.logs.push(log.summary());
        if let Some(other) = logs.iter().find(|other| other.party.is_some() && other.party == log.party) {
            let what = format!("expected one log of each party, found another in {}", other.file.display());
            found.findings.push(Finding::new(&file, Some(1), what));
        }
        logs.push(log);
    }
    let mut federation = None;
    for (state, log) in states.iter().zip(&logs) {
        let file = check_federation(state, log, &mut found)?;
        federation = federation.or(file);
    }
    check_ends(&logs, &mut found);
    check_recounts(&logs, &mut found);
    links::check(&logs, &mut found);
    let read: Vec<(&Path, &ReadLog)> = states.iter().map(PathBuf::as_path).zip(&logs).collect();
    let result = result::check(&read, result, federation.as_ref(), &mut found)?;
    delivery::check(&logs, result.as_ref(), &mut found);
    Ok(found)
}

/// Once there is a result, everybody's log has an end; one without was cut off, or its party was stopped too early to know
/// the values.
fn check_ends(logs: &[ReadLog], found: &mut Verification) {
    if !logs.iter().any(|log| log.result().is_some()) {
        return;
    }
    for log in logs.iter().filter(|log| !log.is_complete()) {
        let what = "expected a last line that says the party ended, as there is a result, found none: lines are missing";
        found.findings.push(Finding::new(&log.file, Some(log.lines + 1), what));
    }
}

/// What the auxiliary counted for itself, and whether it is what it was told.
fn check_recounts(logs: &[ReadLog], found: &mut Verification) {
    for log in logs {
        let Some((line, told, confirmed, differing)) = log.recount() else { continue };
        found.recount = Some(RecountSummary { told, confirmed });
        if differing > 0 {
            let what = format!(
                "expected the counts that the principal told, found {differing} that differ or that clients dispute: the \
                 values do not stand"
            );
            found.findings.push(Finding::new(&log.file, Some(line), what));
        } else if confirmed < told {
            let what =
                format!("{confirmed} of {told} counts confirmed: the others are the principal's word alone");
            found.notes.push(Finding::new(&log.file, Some(line), what));
        }
    }
}

/// The federation file is the one that the log's first line names.
fn check_federation(
    state: &Path,
    log: &ReadLog,
    found: &mut Verification,
) -> Result<Option<FederationFile>, VerifyError> {
    let file = state.join(FEDERATION_FILE);
    let what = "expected the federation file beside the log";
    let bytes = fs::read(&file).map_err(|source| VerifyError { file: file.clone(), what, source })?;
    let digest = Fingerprint(FederationFile::digest(&bytes));
    if log.federation.is_some_and(|expected| expected != digest) {
        let expected = log.federation.map(|expected| expected.to_string()).unwrap_or_default();
        let what = format!(
            "expected the federation file with digest {expected} that {} was begun with, found one with {digest}: it was \
             changed",
            log.file.display()
        );
        found.findings.push(Finding::new(&file, None, what));
        return Ok(None);
    }
    match FederationFile::parse(&bytes, &file) {
        Ok(parsed) => Ok(Some(parsed)),
        Err(error) => {
            found.findings.push(Finding::new(&file, None, format!("{}: {}", error.field, error.defect)));
            Ok(None)
        }
    }
}

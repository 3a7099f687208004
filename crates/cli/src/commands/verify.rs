//! `secsv verify`: whether what the parties wrote down fits together.

use std::path::PathBuf;

use clap::Args;
use secsv_node::verify::{Verification, verify};

use crate::output::Format;

/// Arguments of `secsv verify`.
#[derive(Args)]
pub struct VerifyArgs {
    /// State directories of parties, or copies of them.
    #[arg(required = true)]
    states: Vec<PathBuf>,
    /// A copy of the result to look at instead of the one in the principal's state directory. Without the
    /// principal's log it is held against the values that others received.
    #[arg(long)]
    result: Option<PathBuf>,
}

/// Something did not fit: told already, line by line.
#[derive(Debug, thiserror::Error)]
#[error("{found} of what was looked at does not fit")]
struct Unfit {
    found: usize,
}

/// Runs the command.
pub fn run(args: &VerifyArgs, format: Format) -> anyhow::Result<()> {
    let found = verify(&args.states, args.result.as_deref())?;
    format.show(&found, || text(&found))?;
    match found.findings.len() {
        0 => Ok(()),
        found => Err(Unfit { found }.into()),
    }
}

fn text(found: &Verification) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for log in &found.logs {
        let end = if log.is_complete { "" } else { ", not ended" };
        let restarts = if log.restarts > 0 { format!(", {} restarts", log.restarts) } else { String::new() };
        let _ = writeln!(
            text,
            "{}: {} lines, {} frames sent, {} received{restarts}{end}",
            log.party, log.lines, log.sent, log.received
        );
    }
    let _ = writeln!(text, "{} frames agree in the logs of sender and receiver", found.frames_agreed);
    if found.frames_unmatched > 0 {
        let _ =
            writeln!(text, "{} frames are in one log alone: the other was not given", found.frames_unmatched);
    }
    let _ = writeln!(text, "{} values computed again from the utilities", found.values);
    if let Some(recount) = found.recount {
        let _ = writeln!(text, "{} of {} counts confirmed by the auxiliary", recount.confirmed, recount.told);
    }
    for note in &found.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for finding in &found.findings {
        let _ = writeln!(text, "wrong: {finding}");
    }
    text
}

//! `secsv verify`: whether what the parties wrote down fits together.

use std::path::PathBuf;

use clap::Args;
use secsv_node::verify::{Verdict, Verification, verify};
use serde::Serialize;

use crate::{
    failure::BadInput,
    output::{Document, Format},
};

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
#[error("{} not fit", if *found == 1 { "1 finding does".to_owned() } else { format!("{found} findings do") })]
struct Unfit {
    found: usize,
}

/// The document that `--format json` prints.
#[derive(Serialize)]
struct VerifyDocument<'a> {
    verdict: Verdict,
    #[serde(flatten)]
    found: &'a Verification,
}

/// Runs the command.
pub fn run(args: &VerifyArgs, format: Format) -> anyhow::Result<()> {
    let found = verify(&args.states, args.result.as_deref())?;
    let document = VerifyDocument { verdict: found.verdict(), found: &found };
    format.show(&Document::first("secsv-verification", &document), || text(&found))?;
    match document.verdict {
        Verdict::Fits => Ok(()),
        Verdict::DoesNotFit => Err(Unfit { found: found.findings.len() }.into()),
        Verdict::NothingToJudge if !found.has_ended() => {
            Err(BadInput::new("STATES", "a run that has ended", "one that has not: start its parties again")
                .into())
        }
        Verdict::NothingToJudge => {
            let found = "one party's log, which has nothing to be held against";
            Err(BadInput::new("STATES", "--result, or state directories of other parties too", found).into())
        }
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
    let _ = writeln!(text, "verdict: {}", found.verdict());
    text
}

//! `secsv preflight`: whether a party could take part now.

use std::path::PathBuf;

use clap::Args;
use secsv_node::{
    consent::Question,
    kit::Kit,
    preflight::{CheckOutcome, preflight},
};

use super::parties::check_listen;
use crate::output::Format;

/// Arguments of `secsv preflight`.
#[derive(Args)]
pub struct PreflightArgs {
    /// The party's kit.
    kit: PathBuf,
    /// Where the party will keep its state.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Where a server will listen, if not at the address in the federation file.
    #[arg(long)]
    listen: Option<String>,
    /// The word by which a client's owner accepts what others can do with its samples and models: without it
    /// that is told, and the word, and nothing is checked.
    #[arg(long, value_name = "WORD")]
    accept_exposure: Option<String>,
}

/// Something is not ready: told already, line by line.
#[derive(Debug, thiserror::Error)]
#[error("{failed} {} failed", if *failed == 1 { "check" } else { "checks" })]
struct NotReady {
    failed: usize,
}

/// Runs the command.
pub fn run(args: &PreflightArgs, format: Format) -> anyhow::Result<()> {
    check_listen(args.listen.as_deref())?;
    let kit = Kit::open(&args.kit)?;
    if let Some(question) = Question::exposure(&kit)? {
        question.answered(args.accept_exposure.as_deref())?;
    }
    let checks = preflight(&kit, args.state.as_deref(), args.listen.as_deref())?;
    format.show(&checks, || checks.iter().map(|check| format!("{check}\n")).collect())?;
    match checks.iter().filter(|check| check.outcome == CheckOutcome::Failed).count() {
        0 => Ok(()),
        failed => Err(NotReady { failed }.into()),
    }
}

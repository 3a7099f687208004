//! `secsv preflight`: whether a party could take part now.

use std::path::PathBuf;

use clap::Args;
use secsv_node::{
    consent::Question,
    kit::Kit,
    preflight::{CheckOutcome, Circumstances, preflight},
};

use super::parties::check_listen;
use crate::output::{Document, Format};

/// Arguments of `secsv preflight`.
#[derive(Args)]
pub struct PreflightArgs {
    /// The party's kit.
    kit: PathBuf,
    /// Where the party will keep its state.
    #[arg(long)]
    state: Option<PathBuf>,
    /// A client's part of a run directory, or all of one: read and held against the kit.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Test cases of all silos together, from which memory and disk are planned [default: the client's own, times the clients]
    #[arg(long, value_name = "N")]
    samples: Option<usize>,
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
    let own = Circumstances {
        state: args.state.as_deref(),
        listen: args.listen.as_deref(),
        data: args.data.as_deref(),
        samples: args.samples.map(|samples| samples.max(1)),
    };
    let checks = preflight(&kit, own)?;
    let document = serde_json::json!({ "checks": checks });
    format.show(&Document::first("secsv-preflight", document), || {
        checks.iter().map(|check| format!("{check}\n")).collect()
    })?;
    match checks.iter().filter(|check| check.outcome == CheckOutcome::Failed).count() {
        0 => Ok(()),
        failed => Err(NotReady { failed }.into()),
    }
}

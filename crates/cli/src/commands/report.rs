//! `secsv report`: the HTML report of a JSON result that was kept.

use std::{fs, path::PathBuf};

use anyhow::Context as _;

use secsv_runtime::EvaluationResult;

use crate::report::render;

/// Write the HTML report of a result that `secsv evaluate --json` wrote.
#[derive(clap::Args)]
pub struct Args {
    /// The JSON result.
    result: PathBuf,
    /// Where the report goes: one self-contained file.
    #[arg(long)]
    out: PathBuf,
    /// The heading, by default the result's file name.
    #[arg(long)]
    title: Option<String>,
}

/// Reads, renders, writes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = fs::read(&args.result).with_context(|| format!("{}", args.result.display()))?;
    let result: EvaluationResult = serde_json::from_slice(&text)
        .with_context(|| format!("{}: no result of evaluate", args.result.display()))?;
    let name = || args.result.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let title = args.title.clone().unwrap_or_else(name);
    fs::write(&args.out, render(&result, &title)).with_context(|| format!("{}", args.out.display()))
}

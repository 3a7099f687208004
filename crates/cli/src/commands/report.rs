//! `secsv report`: the HTML report of a JSON result that was kept.

use std::{fs, path::PathBuf};

use clap::Args;
use secsv_evaluation::EvaluationResult;

use crate::{failure::BadInput, output::Format, output_file, report::render};

/// Arguments of `secsv report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The JSON result.
    result: PathBuf,
    /// Where the report goes: one self-contained file.
    #[arg(long)]
    out: PathBuf,
    /// The heading, by default the result's file name.
    #[arg(long)]
    title: Option<String>,
}

/// Runs the command.
pub fn run(args: &ReportArgs, format: Format) -> anyhow::Result<()> {
    output_file::check_apart("--out", &args.out, &[&args.result])?;
    output_file::check("--out", &args.out)?;
    let unreadable = |found: String| BadInput::new("RESULT", "a result of `secsv evaluate --json`", found);
    let shown = args.result.display();
    let text = fs::read(&args.result).map_err(|error| unreadable(format!("{shown}: {error}")))?;
    let result: EvaluationResult =
        serde_json::from_slice(&text).map_err(|error| unreadable(format!("{shown}: {error}")))?;
    let name = || args.result.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let title = args.title.clone().unwrap_or_else(name);
    output_file::write(&args.out, render(&result, &title).as_bytes())?;
    format.show(&serde_json::json!({ "report": args.out }), || format!("{}\n", args.out.display()))
}

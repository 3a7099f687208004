//! `secsv report`: the HTML report of a JSON result that was kept.

use std::path::PathBuf;

use clap::Args;

use super::diff::read;
use crate::{
    output::{Document, Format},
    output_file,
    report::render,
};

/// Arguments of `secsv report`.
#[derive(Args)]
pub struct ReportArgs {
    /// The JSON result.
    result: PathBuf,
    /// Where the report goes: one self-contained file.
    #[arg(long)]
    out: PathBuf,
    /// The heading, by default the federation's name.
    #[arg(long)]
    title: Option<String>,
}

/// Runs the command.
pub fn run(args: &ReportArgs, format: Format) -> anyhow::Result<()> {
    output_file::check_apart("--out", &args.out, &[&args.result])?;
    output_file::check("--out", &args.out)?;
    let result = read("RESULT", &args.result)?;
    let stem = || args.result.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = || result.federation.as_ref().map_or_else(stem, |facts| facts.name.clone());
    let title = args.title.clone().unwrap_or_else(name);
    output_file::write(&args.out, render(&result, &title).as_bytes())?;
    let document = serde_json::json!({ "report": args.out });
    format.show(&Document::first("secsv-report", document), || format!("{}\n", args.out.display()))
}

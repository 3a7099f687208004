//! Where a result goes: to files, to standard output, and elsewhere if it would be lost otherwise.

use std::path::{Path, PathBuf};

use clap::Args;
use secsv_evaluation::EvaluationResult;

use crate::{
    output::{self, Format, say},
    output_file,
    report::render,
    tables,
};

/// Arguments about files for a result.
#[derive(Args)]
pub struct ResultFiles {
    /// Also write the result to this file, as JSON; - is standard output, in the table's place.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write a report for people to this file: HTML that needs nothing else.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Also write the result to this directory as comma-separated tables, for Excel and pandas.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
}

impl ResultFiles {
    /// Whether any is wanted.
    pub fn are_wanted(&self) -> bool {
        self.json.is_some() || self.report.is_some() || self.csv.is_some()
    }

    /// Refuses files that cannot be written, that are one, or that belong to the inputs.
    pub fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        for (setting, file) in [("--json", &self.json), ("--report", &self.report)] {
            let Some(file) = file else { continue };
            output_file::check_apart(setting, file, inputs)?;
            output_file::check(setting, file)?;
        }
        if let (Some(json), Some(report)) = (&self.json, &self.report) {
            output_file::check_different("--report", report, json)?;
        }
        self.csv.as_ref().map_or(Ok(()), |directory| tables::check("--csv", directory, inputs))
    }

    /// Writes the files. A report that cannot be written keeps no JSON from being written.
    pub fn write(&self, result: &EvaluationResult, title: &str) -> anyhow::Result<()> {
        let json = self.write_json(result);
        let report = self.write_report(result, title);
        json.and(report).and(self.write_tables(result))
    }

    fn write_tables(&self, result: &EvaluationResult) -> anyhow::Result<()> {
        let Some(directory) = &self.csv else { return Ok(()) };
        tables::write(directory, result)
    }

    fn write_json(&self, result: &EvaluationResult) -> anyhow::Result<()> {
        let Some(file) = &self.json else { return Ok(()) };
        output_file::write(file, &serde_json::to_vec(result)?)
    }

    fn write_report(&self, result: &EvaluationResult, title: &str) -> anyhow::Result<()> {
        let Some(file) = &self.report else { return Ok(()) };
        output_file::write(file, render(result, title).as_bytes())
    }

    /// What goes to standard output beside the files: nothing if one of them is standard output.
    pub fn printed(
        &self,
        result: &EvaluationResult,
        format: Format,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        let is_taken =
            [&self.json, &self.report].into_iter().flatten().any(|f| output_file::is_standard_output(f));
        if is_taken { Ok(String::new()) } else { format.written(result, text) }
    }

    /// Writes and prints a result. Whatever fails, the rest is done.
    pub fn hand_out(
        &self,
        result: &EvaluationResult,
        title: &str,
        format: Format,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let written = self.json.as_ref().map(|_| self.write_json(result));
        let report = self.write_report(result, title);
        let tables = self.write_tables(result);
        let printed = self.printed(result, format, text)?;
        hand_out(written, || Ok(serde_json::to_vec(result)?), &printed).and(report).and(tables)
    }
}

/// Prints a result of which a file may have been written. If neither file nor standard output has it, it is kept elsewhere.
/// Large results take a while to be put into words: `result` is asked for them if they are needed.
pub fn hand_out(
    written: Option<anyhow::Result<()>>,
    result: impl FnOnce() -> anyhow::Result<Vec<u8>>,
    printed: &str,
) -> anyhow::Result<()> {
    let shown = output::print(printed);
    let was_seen = shown.as_ref().is_ok_and(|()| !printed.is_empty())
        || shown.as_ref().is_err_and(output::Unprintable::was_read);
    let is_there = match &written {
        Some(written) => written.is_ok(),
        None => was_seen,
    };
    if !is_there && let Some(place) = output_file::keep(&result()?) {
        say(format_args!("the result is kept in {}", place.display()));
    }
    let is_unread = shown.as_ref().is_err_and(output::Unprintable::is_unread);
    written.unwrap_or(Ok(()))?;
    // Whoever has a file need not read what is printed.
    if was_seen || is_there && is_unread { Ok(()) } else { Ok(shown?) }
}

//! `secsv compare`: the same federation under several protocols, side by side.

mod table;

use std::path::PathBuf;

use clap::{Args, ValueEnum as _};
use secsv_evaluation::{EvaluationResult, EvaluationSettings};
use secsv_federation::{RunDirectory, skip::SkipMode};
use serde::Serialize;

use super::{
    evaluate::parts,
    protocols::{EncryptionArgs, check_estimator, evaluate_run},
    valuation::EstimatorArgs,
};
use crate::{
    output::{Document, Format},
    output_file,
    protocol_name::ProtocolName,
    report::{Compared, render_comparison},
    result_files::hand_out,
};

/// Arguments of `secsv compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// The run directory.
    run: PathBuf,
    /// The protocols, separated by commas [default: all that can test the model, blindsv first]
    #[arg(long, value_enum, value_delimiter = ',')]
    protocols: Vec<ProtocolName>,
    /// Skip samples that two models predict right, where the protocol can.
    #[arg(long)]
    skip: bool,
    #[command(flatten)]
    encryption: EncryptionArgs,
    #[command(flatten)]
    estimator: EstimatorArgs,
    /// Also write the comparison to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write the comparison to this file: HTML that needs nothing else.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Comparison {
    rows: Vec<ComparisonRow>,
}

/// One protocol's row.
#[derive(Serialize)]
pub(super) struct ComparisonRow {
    /// Euclidean distance of the values from NSSV's; null if NSSV was not run.
    pub(super) error: Option<f64>,
    /// Largest difference of one client's value.
    pub(super) largest_error: Option<f64>,
    /// Right predictions in all, less NSSV's.
    pub(super) differing_counts: Option<i64>,
    pub(super) result: EvaluationResult,
}

/// Runs the command.
pub fn run(args: &CompareArgs, format: Format) -> anyhow::Result<()> {
    let parts = parts(&args.run);
    for (setting, file) in [("--json", &args.json), ("--report", &args.report)] {
        let Some(file) = file else { continue };
        output_file::check_apart(setting, file, &parts.each_ref().map(PathBuf::as_path))?;
        output_file::check(setting, file)?;
    }
    if let (Some(json), Some(report)) = (&args.json, &args.report) {
        output_file::check_different("--report", report, json)?;
    }
    let settings = args.estimator.settings(None)?;
    let run = RunDirectory::open(&args.run)?;
    run.check()?;
    let protocols = protocols(args, &run);
    args.encryption.check_used(&protocols)?;
    if protocols.iter().any(|protocol| protocol.secure().is_some()) {
        check_estimator(&settings)?;
    }
    let mut rows = Vec::new();
    for protocol in protocols {
        let can_skip = args.skip && protocol.rules().is_none_or(|rules| rules.learns_each_prediction(true));
        let skip = if can_skip { SkipMode::On } else { SkipMode::Off };
        let encryption = if protocol.lacks_packing() { args.encryption.unpacked() } else { args.encryption };
        let result = evaluate_run(&run, protocol, encryption, &EvaluationSettings { skip, ..settings })?;
        rows.push(ComparisonRow { error: None, largest_error: None, differing_counts: None, result });
    }
    hold_against_clear(&mut rows);
    let report = args.report.as_ref().map_or(Ok(()), |file| {
        let columns: Vec<Compared<'_>> = rows
            .iter()
            .map(|row| Compared { name: row.result.protocol.clone(), result: &row.result })
            .collect();
        output_file::write(file, render_comparison(&columns, &run.spec().name, &[]).as_bytes())
    });
    let comparison = Document::first("secsv-comparison", Comparison { rows });
    let document = serde_json::to_vec(&comparison)?;
    let written = args.json.as_ref().map(|file| output_file::write(file, &document));
    let is_taken = args.json.as_deref().is_some_and(output_file::is_standard_output);
    let text = || table::text(&comparison.content().rows);
    let printed = if is_taken { String::new() } else { format.written(&comparison, text)? };
    hand_out(written, || Ok(document.clone()), &printed).and(report)
}

/// How far values and counts are from those in the clear, where these were computed too.
fn hold_against_clear(rows: &mut [ComparisonRow]) {
    let is_clear = |row: &&ComparisonRow| ProtocolName::of(&row.result) == Some(ProtocolName::Nssv);
    let Some(clear) = rows.iter().find(is_clear).map(|row| row.result.clone()) else { return };
    for row in rows {
        let differences: Vec<f64> =
            clear.fsv.iter().map(|(id, v)| row.result.fsv.get(id).map_or(0.0, |x| x - v)).collect();
        row.error = Some(differences.iter().map(|d| d * d).sum::<f64>().sqrt());
        row.largest_error = Some(differences.iter().fold(0.0, |most, d| most.max(d.abs())));
        let counts = row.result.utilities.iter().zip(&clear.utilities);
        row.differing_counts = Some(counts.map(|(a, b)| (a.correct as i64 - b.correct as i64).abs()).sum());
    }
}

/// The protocols that are named, or all that can test the model.
fn protocols(args: &CompareArgs, run: &RunDirectory) -> Vec<ProtocolName> {
    if !args.protocols.is_empty() {
        return args.protocols.clone();
    }
    let all = ProtocolName::value_variants().iter().copied();
    all.filter(|protocol| protocol.check(run).is_ok()).collect()
}

//! `secsv compare`: the same federation under several protocols, side by side.

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, ValueEnum as _};
use secsv_evaluation::{EvaluationResult, EvaluationSettings};
use secsv_federation::{RunDirectory, skip::SkipMode};
use serde::Serialize;

use super::{
    evaluate::parts,
    protocols::{EncryptionArgs, evaluate_run},
};
use crate::{
    output::Format,
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
    /// Also write the comparison to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write the comparison to this file: HTML that needs nothing else.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// One protocol's row.
#[derive(Serialize)]
struct ComparisonRow {
    /// Euclidean distance of the values from NSSV's; null if NSSV was not run.
    error: Option<f64>,
    /// Largest difference of one client's value.
    largest_error: Option<f64>,
    /// Right predictions in all, less NSSV's.
    differing_counts: Option<i64>,
    result: EvaluationResult,
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
    let run = RunDirectory::open(&args.run)?;
    run.check()?;
    let protocols = protocols(args, &run);
    args.encryption.check_used(&protocols)?;
    let mut rows: Vec<ComparisonRow> = Vec::new();
    for protocol in protocols {
        let can_skip = args.skip && protocol.rules().is_none_or(|rules| rules.learns_each_prediction(true));
        let skip = if can_skip { SkipMode::On } else { SkipMode::Off };
        let settings = EvaluationSettings { skip, ..EvaluationSettings::default() };
        let encryption = if protocol.lacks_packing() { args.encryption.unpacked() } else { args.encryption };
        let result = evaluate_run(&run, protocol, encryption, &settings)?;
        rows.push(ComparisonRow { error: None, largest_error: None, differing_counts: None, result });
    }
    let clear = rows
        .iter()
        .find(|row| ProtocolName::of(&row.result) == Some(ProtocolName::Nssv))
        .map(|row| row.result.clone());
    for row in &mut rows {
        if let Some(clear) = &clear {
            let differences: Vec<f64> =
                clear.fsv.iter().map(|(id, v)| row.result.fsv.get(id).map_or(0.0, |x| x - v)).collect();
            row.error = Some(differences.iter().map(|d| d * d).sum::<f64>().sqrt());
            row.largest_error = Some(differences.iter().fold(0.0, |most, d| most.max(d.abs())));
            let counts = row.result.utilities.iter().zip(&clear.utilities);
            row.differing_counts =
                Some(counts.map(|(a, b)| (a.correct as i64 - b.correct as i64).abs()).sum());
        }
    }
    let report = args.report.as_ref().map_or(Ok(()), |file| {
        let columns: Vec<Compared<'_>> = rows
            .iter()
            .map(|row| Compared { name: row.result.protocol.clone(), result: &row.result })
            .collect();
        output_file::write(file, render_comparison(&columns, &run.spec().name, &[]).as_bytes())
    });
    let document = serde_json::to_vec(&rows)?;
    let written = args.json.as_ref().map(|file| output_file::write(file, &document));
    let is_taken = args.json.as_deref().is_some_and(output_file::is_standard_output);
    let printed = if is_taken { String::new() } else { format.written(&rows, || table(&rows))? };
    hand_out(written, || Ok(document.clone()), &printed).and(report)
}

/// The protocols that are named, or all that can test the model.
fn protocols(args: &CompareArgs, run: &RunDirectory) -> Vec<ProtocolName> {
    if !args.protocols.is_empty() {
        return args.protocols.clone();
    }
    let all = ProtocolName::value_variants().iter().copied();
    all.filter(|protocol| protocol.check(run).is_ok()).collect()
}

fn table(rows: &[ComparisonRow]) -> String {
    let mut text = String::new();
    let Some(first) = rows.first() else { return text };
    let width = first.result.clients.iter().map(|id| id.as_str().len()).max().unwrap_or(0).max(26);
    let _ = write!(text, "{:width$}", "");
    rows.iter().for_each(|row| {
        let _ = write!(text, "  {:>12}", row.result.protocol);
    });
    text.push('\n');
    for id in &first.result.clients {
        let _ = write!(text, "{:width$}", id.as_str());
        for row in rows {
            let _ = write!(text, "  {:+12.6}", row.result.fsv.get(id).copied().unwrap_or_default());
        }
        text.push('\n');
    }
    let mut line = |name: &str, cell: &dyn Fn(&ComparisonRow) -> String| {
        let _ = write!(text, "{name:width$}");
        rows.iter().for_each(|row| {
            let _ = write!(text, "  {:>12}", cell(row));
        });
        text.push('\n');
    };
    let seconds = |s: f64| format!("{s:.2}");
    line("error against nssv", &|row| row.error.map_or("-".to_owned(), |e| format!("{e:.2e}")));
    line("differing right counts", &|row| row.differing_counts.map_or("-".to_owned(), |n| n.to_string()));
    line("elapsed s", &|row| seconds(row.result.timing.wall_s));
    line("encrypting s", &|row| seconds(row.result.timing.encrypt_s));
    line("sharing s", &|row| seconds(row.result.timing.share_s));
    line("linear layers s", &|row| seconds(row.result.timing.linear_s));
    line("sanitising s", &|row| seconds(row.result.timing.sanitise_s));
    line("decrypting s", &|row| seconds(row.result.timing.decrypt_s));
    line("activations s", &|row| seconds(row.result.timing.activate_s));
    line("MiB sent", &|row| {
        let bytes: u64 = row.result.traffic.iter().map(|link| link.bytes).sum();
        format!("{:.1}", bytes as f64 / (1 << 20) as f64)
    });
    for row in rows {
        if let Some(security) = &row.result.security {
            let _ = writeln!(text, "\n{}: {}", row.result.protocol, security.trust);
        }
    }
    text
}

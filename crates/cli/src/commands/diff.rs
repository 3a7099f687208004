//! `secsv diff`: two results side by side.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use secsv_evaluation::EvaluationResult;
use secsv_federation::ClientId;
use serde::Serialize;

use crate::{
    failure::BadInput,
    findings::{cases, point_words, ranked},
    output::{Document, Format},
    output_file,
    report::{Compared, render_comparison},
};

/// Arguments of `secsv diff`.
#[derive(Args)]
pub struct DiffArgs {
    /// The first JSON result.
    one: PathBuf,
    /// The second one.
    other: PathBuf,
    /// Also write the comparison to this file: HTML that needs nothing else.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Difference {
    files: [PathBuf; 2],
    /// What the two results do not have in common, sentence by sentence.
    unlike: Vec<String>,
    organisations: Vec<OrganisationDifference>,
}

/// One organisation in both results; null where it is not in one.
#[derive(Serialize)]
struct OrganisationDifference {
    id: ClientId,
    /// What people call it.
    label: String,
    values: [Option<f64>; 2],
    ranks: [Option<usize>; 2],
    difference: Option<f64>,
}

/// Reads a result that was written earlier.
pub fn read(setting: &'static str, file: &Path) -> Result<EvaluationResult, BadInput> {
    let shown = file.display();
    let unreadable = |found: String| BadInput::new(setting, "a result of `secsv evaluate --json`", found);
    let text = fs::read(file).map_err(|error| unreadable(format!("{shown}: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(format!("{shown}: {error}")))
}

/// Runs the command.
pub fn run(args: &DiffArgs, format: Format) -> anyhow::Result<()> {
    if let Some(report) = &args.report {
        output_file::check_apart("--report", report, &[&args.one, &args.other])?;
        output_file::check("--report", report)?;
    }
    let (one, other) = (read("ONE", &args.one)?, read("OTHER", &args.other)?);
    let difference = Difference {
        files: [args.one.clone(), args.other.clone()],
        unlike: unlike(&one, &other),
        organisations: organisations(&one, &other),
    };
    if let Some(report) = &args.report {
        let name = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let columns = [
            Compared { name: name(&args.one), result: &one },
            Compared { name: name(&args.other), result: &other },
        ];
        let title = format!("{} and {}", columns[0].name, columns[1].name);
        output_file::write(report, render_comparison(&columns, &title, &difference.unlike).as_bytes())?;
    }
    format.show(&Document::first("secsv-diff", &difference), || text(&difference, &point_words(&one)))
}

/// What the two were not computed alike by.
fn unlike(one: &EvaluationResult, other: &EvaluationResult) -> Vec<String> {
    let digest = |result: &EvaluationResult| result.federation.as_ref().map(|facts| facts.digest.clone());
    let mut found = Vec::new();
    if let (Some(a), Some(b)) = (digest(one), digest(other))
        && a != b
    {
        found.push("They are of two federations: descriptions differ.".to_owned());
    }
    let mut compare = |what: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{what}: {a} and {b}."));
        }
    };
    compare("Protocols", one.protocol.clone(), other.protocol.clone());
    compare("Estimators", one.estimator.clone(), other.estimator.clone());
    compare("Utilities", one.utility.clone(), other.utility.clone());
    compare("Rounds", one.ssv.len().to_string(), other.ssv.len().to_string());
    compare("Test cases", cases(one).to_string(), cases(other).to_string());
    let ids = |result: &EvaluationResult| result.clients.iter().cloned().collect::<BTreeSet<ClientId>>();
    let (a, b) = (ids(one), ids(other));
    for (own, others, result, which) in [(&a, &b, one, "first"), (&b, &a, other, "second")] {
        let alone: Vec<_> = own.difference(others).map(|id| result.label(id)).collect();
        if !alone.is_empty() {
            found.push(format!("Only in the {which}: {}.", alone.join(", ")));
        }
    }
    found
}

fn organisations(one: &EvaluationResult, other: &EvaluationResult) -> Vec<OrganisationDifference> {
    let of = |result: &EvaluationResult, id: &ClientId| {
        let place = ranked(result).iter().position(|(found, _)| *found == id)?;
        Some((place + 1, result.fsv.get(id).copied().unwrap_or_default()))
    };
    let own = one.clients.iter();
    let more = other.clients.iter().filter(|id| !one.clients.contains(id));
    let mut all: Vec<OrganisationDifference> = own
        .chain(more)
        .map(|id| {
            let (a, b) = (of(one, id), of(other, id));
            OrganisationDifference {
                id: id.clone(),
                label: if one.clients.contains(id) { one.label(id) } else { other.label(id) }.to_owned(),
                values: [a, b].map(|found| found.map(|(_, value)| value)),
                ranks: [a, b].map(|found| found.map(|(rank, _)| rank)),
                difference: a.zip(b).map(|((_, a), (_, b))| b - a),
            }
        })
        .collect();
    all.sort_by_key(|organisation| (organisation.ranks[0].is_none(), organisation.ranks[0]));
    all
}

fn text(difference: &Difference, point_words: &str) -> String {
    let mut text = String::new();
    let all = &difference.organisations;
    let width = all.iter().map(|of| of.label.chars().count()).max().unwrap_or(0).max(12);
    let _ = writeln!(text, "in points, {point_words}");
    let (first, second, apart) = ("first", "second", "difference");
    let _ = writeln!(text, "{:width$}  {first:>9}  {second:>9}  {apart:>10}  rank", "organisation");
    let points = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:+.2}", 100.0 * value));
    for of in all {
        let [a, b] = of.values.map(points);
        let rank = |rank: Option<usize>| rank.map_or("-".to_owned(), |rank| rank.to_string());
        let ranks = match of.ranks {
            [a, b] if a == b => rank(a),
            [a, b] => format!("{} to {}", rank(a), rank(b)),
        };
        let _ = writeln!(text, "{:width$}  {a:>9}  {b:>9}  {:>10}  {ranks}", of.label, points(of.difference));
    }
    let same = all.iter().all(|of| of.difference == Some(0.0));
    if same {
        text.push_str("The values are the same to the last bit.\n");
    }
    difference.unlike.iter().for_each(|sentence| text.push_str(&format!("note: {sentence}\n")));
    text
}

//! `secsv demo`: the main job on embedded data, with every party: five hospitals train a model together, one
//! of them with corrupted labels, and learn what each contributed, and who could do what with whose patients.

use std::{fmt::Write as _, path::PathBuf, time::Instant};

use anyhow::Result;
use clap::Args;
use secsv_evaluation::{EvaluationResult, EvaluationSettings};
use secsv_federation::{ClientId, RunDirectory};
use secsv_training::{DatasetSource, Fault, LoadOptions, ModelKind, Recipe, Split, train};
use serde::Serialize;

use super::protocols::{EncryptionArgs, evaluate_run};
use crate::{
    findings::{models_tested, ranked},
    output::{Document, Format},
    output_file,
    protocol_name::ProtocolName,
    report::render,
    value_table::protection,
};

/// Arguments of `secsv demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// Where the report goes.
    #[arg(long, default_value = "secsv-demo.html")]
    report: PathBuf,
}

const HOSPITALS: [&str; 5] = ["north", "south", "east", "west", "central"];
const CORRUPTED: &str = "west";
const SEED: u64 = 1;

#[derive(Serialize)]
struct DemoOutcome {
    train_s: f64,
    corrupted: &'static str,
    secure: EvaluationResult,
    nssv: EvaluationResult,
    report: PathBuf,
}

/// Runs the demonstration.
pub fn run(args: &DemoArgs, format: Format) -> Result<()> {
    output_file::check("--report", &args.report)?;
    let started = Instant::now();
    let directory = tempfile::tempdir()?;
    let run = train_hospitals(&directory.path().join("run"))?;
    let train_s = started.elapsed().as_secs_f64();
    let settings = EvaluationSettings::default();
    let secure = evaluate_run(&run, ProtocolName::DEFAULT, EncryptionArgs::USUAL, &settings)?;
    let nssv = evaluate_run(&run, ProtocolName::Nssv, EncryptionArgs::USUAL, &settings)?;
    let written = output_file::write(&args.report, render(&secure, &run.spec().name).as_bytes());
    let outcome = DemoOutcome { train_s, corrupted: CORRUPTED, secure, nssv, report: args.report.clone() };
    format
        .show(&Document::first("secsv-demo", &outcome), || {
            described(&outcome, started.elapsed().as_secs_f64())
        })
        .and(written)
}

/// UCI breast cancer, dealt to five hospitals; half of one hospital's training labels are wrong.
fn train_hospitals(out: &std::path::Path) -> Result<RunDirectory> {
    let source = DatasetSource::BreastCancer;
    let options = LoadOptions { seed: SEED, ..LoadOptions::default() };
    let dataset = source.load(&options)?;
    let mut silos = Split::Dirichlet { alpha: 5.0 }.deal(&dataset, HOSPITALS.len(), SEED)?;
    for (silo, name) in silos.iter_mut().zip(HOSPITALS) {
        silo.id = ClientId::new(name)?;
    }
    let mut recipe = Recipe::new(&source, ModelKind::Logistic, SEED);
    recipe.name = "Five hospitals, breast cancer".to_owned();
    recipe.rounds = 5;
    recipe.faults = vec![Fault::FlippedLabels { client: ClientId::new(CORRUPTED)?, fraction: 0.5 }];
    train(&dataset, &silos, &recipe, out, &|_| {})?;
    let run = RunDirectory::open(out)?;
    run.check()?;
    Ok(run)
}

fn described(outcome: &DemoOutcome, elapsed: f64) -> String {
    let mut text = String::new();
    let result = &outcome.secure;
    let protocol = &result.protocol;
    let samples = result.utilities.first().map_or(0, |utility| utility.total);
    let _ = writeln!(
        text,
        "Five hospitals trained a classifier together ({} rounds, {:.1} s). Half of {}'s training labels are wrong.",
        result.ssv.len(),
        outcome.train_s,
        outcome.corrupted
    );
    let _ = writeln!(
        text,
        "{protocol} valued them with every party at work: five clients, two servers; {} models on {samples} test cases.",
        models_tested(result)
    );
    let _ = writeln!(text, "In points, right answers per hundred test cases:\n");
    let _ = writeln!(text, "{:8}  {:>9}  {:>12}", "hospital", protocol, "in the clear");
    for (id, value) in ranked(result) {
        let clear = outcome.nssv.fsv.get(id).copied().unwrap_or_default();
        let _ = writeln!(text, "{:8}  {:+9.2}  {:+12.2}", id.as_str(), 100.0 * value, 100.0 * clear);
    }
    let same = if result.fsv == outcome.nssv.fsv { "the same to the last bit" } else { "not the same" };
    let _ = writeln!(text, "\nBoth columns are {same}.");
    if let Some(security) = &result.security {
        protection(&mut text, result, security);
    }
    let t = &result.timing;
    let _ = writeln!(
        text,
        "{protocol} took {:.2} s (masks, shares and gates {:.2}, linear layers {:.2} s of work); all {elapsed:.1} s.",
        t.wall_s, t.share_s, t.linear_s
    );
    let _ = writeln!(text, "The report for people: {}", outcome.report.display());
    text
}

//! What other programs call: the work of commands, with the same arguments and checks, and documents instead of text.

mod explanation;
mod without;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use clap::{Args, Parser, ValueEnum as _, error::ErrorKind};
use secsv_evaluation::{EvaluationResult, PlanResult, Progress};
use secsv_federation::{ClientId, FederationSpec, RunDirectory, clear};

use crate::{
    commands::{evaluate, plan},
    protocol_name::ProtocolName,
    report::render,
};

pub use explanation::{Explanation, explain};
pub use without::without;

/// The version and the commit it was built from.
pub const VERSION: &str = crate::VERSION;

/// Arguments without a program's name before them.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Parsed<A: Args> {
    #[command(flatten)]
    args: A,
}

fn parsed<A: Args>(arguments: &[OsString]) -> anyhow::Result<A> {
    match Parsed::try_parse_from(arguments) {
        Ok(parsed) => Ok(parsed.args),
        // Nobody who calls a function asks for help by an argument of it.
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Err(anyhow::anyhow!("expected no --help")),
        Err(error) => Err(error.into()),
    }
}

/// What `secsv evaluate` with these arguments would hand on; files that they name are not written. `observe` is told of every
/// test; once `stop` is true it ends with an error.
pub fn evaluate(
    arguments: &[OsString],
    observe: impl FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<EvaluationResult> {
    evaluate::watched(&parsed(arguments)?, observe, stop)
}

/// What `secsv plan` with these arguments would hand on.
pub fn plan(arguments: &[OsString]) -> anyhow::Result<PlanResult> {
    plan::planned(&parsed(arguments)?)
}

/// The HTML report of a result. The title is the federation's name where none is given.
pub fn report(result: &EvaluationResult, title: Option<&str>) -> String {
    let name = result.federation.as_ref().map_or("contributions", |facts| &facts.name);
    render(result, title.unwrap_or(name))
}

/// What `federation.toml` says, with what it left out: of a directory in which nothing but it and the initial model must be there.
pub fn describe(run: impl Into<PathBuf>) -> anyhow::Result<FederationSpec> {
    Ok(RunDirectory::open(run)?.spec().clone())
}

/// Reads a whole run directory and checks all of it.
pub fn check(run: impl Into<PathBuf>) -> anyhow::Result<()> {
    Ok(RunDirectory::open(run)?.check()?)
}

/// Every protocol by name, with why it cannot test the model of a run: none if it can.
pub fn protocols(run: impl Into<PathBuf>) -> anyhow::Result<Vec<(&'static str, Option<String>)>> {
    let run = RunDirectory::open(run)?;
    let why_not = |protocol: &ProtocolName| protocol.check(&run).err().map(|why| why.to_string());
    Ok(ProtocolName::value_variants().iter().map(|protocol| (protocol.name(), why_not(protocol))).collect())
}

/// The scores that the initial model of a run has for a client's samples, row by row, in double precision, and how many there
/// are for each sample.
pub fn scores(run: &Path, client: &str) -> anyhow::Result<(Vec<f64>, usize)> {
    let run = RunDirectory::open(run)?;
    let samples = run.test_set(&ClientId::new(client)?)?;
    let scores = clear::scores(run.architecture(), &run.initial_model()?, samples.features());
    Ok((scores, run.architecture().outputs()))
}

//! `secsv plan`: what an evaluation will cost and disclose, before anything runs.

mod seconds;
mod table;

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use secsv_evaluation::Plan;
use secsv_federation::{RunDirectory, skip::SkipMode};
use secsv_shapley::Method;

use super::protocols::EncryptionArgs;
use crate::{failure::BadInput, output::Format, protocol_name::ProtocolArg};
use seconds::{Rates, stopwatch};

/// How long an exact evaluation of a run that has been checked would take on this machine, by its plan.
pub fn planned_seconds(
    run: &RunDirectory,
    settings: secsv_protocol::session::Settings,
) -> anyhow::Result<f64> {
    let begun = stopwatch();
    let plan = Plan::new(run, settings, false)?;
    let rates = Rates::measure(&plan, begun())?;
    Ok(Rates::seconds(&rates, &plan.at_most.work).1)
}

/// Arguments of `secsv plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// The run directory.
    run: PathBuf,
    #[command(flatten)]
    protocol: ProtocolArg,
    /// Whether samples that two models predict right will be skipped on their aggregate.
    #[arg(long, value_parser = planned_modes(), default_value = SkipMode::Off.name())]
    skip: SkipMode,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

/// Modes that can be planned for.
fn planned_modes() -> impl TypedValueParser<Value = SkipMode> {
    let on = PossibleValue::new(SkipMode::On.name()).help("Wherever the rule allows it: costs are a range");
    let off = PossibleValue::new(SkipMode::Off.name()).help("Never: operations and bytes are exact");
    PossibleValuesParser::new([on, off])
        .map(|name| if name == SkipMode::On.name() { SkipMode::On } else { SkipMode::Off })
}

/// Runs the command.
pub fn run(args: &PlanArgs, format: Format) -> anyhow::Result<()> {
    let begun = stopwatch();
    let run = RunDirectory::open(&args.run)?;
    let Some(protocol) = args.protocol.of(&run)?.secure() else {
        let expected = "blindsv, secsv, hesv or secretsv: in the clear there is nothing to plan";
        return Err(BadInput::new("--protocol", expected, "nssv").into());
    };
    let settings = args.encryption.settings(protocol, args.skip, Method::Exact)?;
    run.check()?;
    let plan = Plan::new(&run, settings, args.skip == SkipMode::On)?;
    let reading = begun();
    let rates = Rates::measure(&plan, reading)?;
    let result = plan.result(&run, |prediction| Rates::seconds(&rates, &prediction.work));
    format.show(&result, || table::text(&result))
}

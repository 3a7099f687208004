//! `secsv plan`: what an evaluation will cost and disclose, before anything runs.

mod seconds;
mod table;
mod unit_costs;

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use secsv_evaluation::{Plan, PlanResult, Utility};
use secsv_federation::{Labels, RunDirectory, skip::SkipMode};

use super::{
    protocols::{EncryptionArgs, check_estimator},
    valuation::EstimatorArgs,
};
use crate::{
    output::Format,
    protocol_name::{ProtocolName, SecureProtocolArg},
};
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
    protocol: SecureProtocolArg,
    /// Whether samples that two models predict right will be skipped on their aggregate.
    #[arg(long, value_parser = planned_modes(), default_value = SkipMode::Off.name())]
    skip: SkipMode,
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// What a coalition's model will be worth: accuracy, balanced-accuracy, recall=CLASS or f1.
    #[arg(long, default_value_t = Utility::Accuracy)]
    utility: Utility,
    #[command(flatten)]
    estimator: EstimatorArgs,
    /// Measure this machine again, whatever is remembered of it.
    #[arg(long)]
    measure: bool,
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
    let result = planned(args)?;
    format.show(&result, || table::text(&result))
}

/// The plan that is asked for.
pub fn planned(args: &PlanArgs) -> anyhow::Result<PlanResult> {
    let begun = stopwatch();
    let run = RunDirectory::open(&args.run)?;
    let protocol = args.protocol.of(&run)?;
    args.encryption.check_used(&[ProtocolName::Secure(protocol)])?;
    let valuation = args.estimator.settings(None)?;
    check_estimator(&valuation)?;
    let settings = args.encryption.settings(protocol, args.skip, valuation.method)?;
    let settings = args.utility.settings(settings)?;
    args.utility.check_classes(run.spec().model.classes)?;
    run.check()?;
    let by = (valuation.method, &valuation.estimator);
    let plan = Plan::by(&run, settings, args.skip == SkipMode::On, by)?;
    let labels = Labels::read(run.path(), run.spec())?;
    let reading = begun();
    let rates = Rates::known_or_measured(&plan, reading, args.measure)?;
    let mut result = plan.result(&run, &labels, |prediction| Rates::seconds(&rates, &prediction.work));
    result.truncates |= args.estimator.may_stop_early();
    result.utility = args.utility.needs_classes().then(|| args.utility.to_string());
    Ok(result)
}

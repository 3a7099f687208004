//! `secsv plan`: what an evaluation will cost and disclose, before anything runs.

mod seconds;
mod table;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use secsv_evaluation::Plan;
use secsv_federation::{RunDirectory, skip::SkipMode};
use secsv_protocol::decryptors::Protocol;
use secsv_shapley::Method;

use super::protocols::{EncryptionArgs, ProtocolName};
use crate::{failure::BadInput, output::Format};
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
    /// How models will be tested.
    #[arg(long, value_enum)]
    protocol: ProtocolName,
    /// Whether samples that two models predict right will be skipped on their aggregate.
    #[arg(long, value_enum, default_value_t = Skip::Off)]
    skip: Skip,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Skip {
    /// Wherever the rule allows it: costs are a range.
    On,
    /// Never: operations and bytes are exact.
    Off,
}

/// Runs the command.
pub fn run(args: &PlanArgs, format: Format) -> anyhow::Result<()> {
    let Some(protocol) = args.protocol.secure() else {
        return Err(BadInput {
            setting: "--protocol",
            expected: "secsv, hesv or secretsv: in the clear there is nothing to plan",
            found: "nssv".to_owned(),
        }
        .into());
    };
    if protocol == Protocol::Hesv && args.skip == Skip::On {
        return Err(BadInput {
            setting: "--skip",
            expected: "off with hesv: its server learns counts, not which samples are right",
            found: "on".to_owned(),
        }
        .into());
    }
    let skip = if args.skip == Skip::On { SkipMode::On } else { SkipMode::Off };
    let settings = args.encryption.settings(protocol, skip, Method::Exact)?;
    let begun = stopwatch();
    let run = RunDirectory::open(&args.run)?;
    run.check()?;
    let plan = Plan::new(&run, settings, args.skip == Skip::On)?;
    let reading = begun();
    let rates = Rates::measure(&plan, reading)?;
    let result = plan.result(&run, |prediction| Rates::seconds(&rates, &prediction.work));
    match format {
        Format::Json => println!("{}", serde_json::to_string(&result)?),
        Format::Text => print!("{}", table::text(&result)),
    }
    Ok(())
}

//! `secsv evaluate`: every client's contribution, from a run directory.

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use clap::Args;
use secsv_evaluation::{EvaluationResult, EvaluationSettings, Progress, views::check_target};
use secsv_federation::{RunDirectory, skip::SkipMode};

use super::{
    protocols::{EncryptionArgs, evaluate_watched, evaluate_with_views},
    valuation::ValuationArgs,
};
use crate::{
    failure::{BadInput, check_ranges},
    output::{Format, say},
    protocol_name::{ProtocolArg, ProtocolName},
    result_files::ResultFiles,
    value_table,
};

/// Arguments of `secsv evaluate`.
#[derive(Args)]
pub struct EvaluateArgs {
    /// The run directory.
    run: PathBuf,
    #[command(flatten)]
    protocol: ProtocolArg,
    #[command(flatten)]
    valuation: ValuationArgs,
    /// Test skipped samples after all, and count those that should not have been skipped.
    #[arg(long)]
    verify_skip: bool,
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// Stop sampling after this many seconds.
    #[arg(long, allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    #[command(flatten)]
    files: ResultFiles,
    /// Also write what each party saw, as files that NumPy reads (docs/VIEWS.md), to this directory, new or
    /// empty. They hold samples, models and activations: as sensitive as the run directory.
    #[arg(long, value_name = "DIR")]
    views: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &EvaluateArgs, format: Format) -> anyhow::Result<()> {
    let settings = settings(args)?;
    args.files.check(&parts(&args.run).each_ref().map(PathBuf::as_path))?;
    if let Some(directory) = &args.views {
        check_views(args.protocol, directory)?;
    }
    let (run, protocol) = checked(args)?;
    let views = args.views.as_deref();
    let result = evaluate_with_views(&run, protocol, args.encryption, &settings, views)?;
    args.files.hand_out(&result, &run.spec().name, format, || value_table::text(&result))?;
    Ok(check_ranges(&result)?)
}

/// The result, without files: for programs that watch, and may stop it.
pub fn watched(
    args: &EvaluateArgs,
    observe: impl FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<EvaluationResult> {
    let settings = settings(args)?;
    let (run, protocol) = checked(args)?;
    let result = evaluate_watched(&run, protocol, args.encryption, &settings, None, observe, stop)?;
    // Programs get the result, in which it stands too.
    if let Err(doubt) = check_ranges(&result) {
        say(format_args!("warning: {doubt}"));
    }
    Ok(result)
}

/// The run, all of it checked, and the protocol.
fn checked(args: &EvaluateArgs) -> anyhow::Result<(RunDirectory, ProtocolName)> {
    let run = RunDirectory::open(&args.run)?;
    let protocol = args.protocol.of(&run)?;
    args.encryption.check_used(&[protocol])?;
    run.check()?;
    Ok((run, protocol))
}

/// What a run directory consists of: other files in it are its owner's.
pub fn parts(run: &Path) -> [PathBuf; 4] {
    ["federation.toml", "initial.safetensors", "global", "clients"].map(|part| run.join(part))
}

/// Parties see something only where there are parties, and their views are written only where nothing is.
fn check_views(ProtocolArg { protocol }: ProtocolArg, directory: &Path) -> anyhow::Result<()> {
    if protocol == Some(ProtocolName::Nssv) {
        let expected = "a protocol with parties: blindsv, secsv, hesv or secretsv";
        return Err(BadInput::new("--views", expected, "nssv").into());
    }
    Ok(check_target(directory).map_err(secsv_evaluation::Error::from)?)
}

fn settings(args: &EvaluateArgs) -> anyhow::Result<EvaluationSettings> {
    let elapsed = args.max_seconds.map(|seconds| {
        let elapsed = Duration::try_from_secs_f64(seconds).ok().filter(|elapsed| !elapsed.is_zero());
        let expected = "a positive number of seconds";
        elapsed.ok_or_else(|| BadInput::new("--max-seconds", expected, seconds.to_string()))
    });
    let settings = args.valuation.settings(elapsed.transpose()?)?;
    if args.verify_skip && settings.skip == SkipMode::Off {
        let expected = "--skip on or auto beside it: nothing is skipped otherwise";
        return Err(BadInput::new("--verify-skip", expected, "--skip off").into());
    }
    Ok(EvaluationSettings { verify_skip: args.verify_skip, ..settings })
}

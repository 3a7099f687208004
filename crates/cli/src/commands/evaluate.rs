//! `secsv evaluate`: every client's contribution, from a run directory.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use secsv_evaluation::{EvaluationResult, EvaluationSettings, SecurityResult, Utility, views::check_target};
use secsv_federation::RunDirectory;

use super::{
    protocols::{EncryptionArgs, evaluate_with_views},
    valuation::ValuationArgs,
};
use crate::{
    failure::BadInput,
    output::Format,
    protocol_name::{ProtocolArg, ProtocolName},
    result_files::ResultFiles,
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
    /// What a coalition's model is worth: accuracy, balanced-accuracy, recall=CLASS or f1 (two classes; class 1 counts). All but
    /// accuracy need to know of which class right samples are, which nssv does.
    #[arg(long, default_value_t = Utility::Accuracy)]
    utility: Utility,
    /// Test skipped samples after all, and count those that should not have been skipped.
    #[arg(long)]
    verify_skip: bool,
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// Stop sampling after this many seconds.
    #[arg(long)]
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
    let run = RunDirectory::open(&args.run)?;
    let protocol = args.protocol.of(&run)?;
    run.check()?;
    let views = args.views.as_deref();
    let result = evaluate_with_views(&run, protocol, args.encryption, &settings, views)?;
    args.files.hand_out(&result, &run.spec().name, format, || table(&result))
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
    let elapsed = args.max_seconds.map(Duration::try_from_secs_f64).transpose();
    let elapsed = elapsed.map_err(|_| {
        BadInput::new(
            "--max-seconds",
            "a positive number of seconds",
            args.max_seconds.unwrap_or_default().to_string(),
        )
    })?;
    let mut settings = args.valuation.settings();
    settings.estimator.stop.elapsed = elapsed;
    settings.verify_skip = args.verify_skip;
    settings.utility = args.utility;
    settings.estimator.check().map_err(secsv_evaluation::Error::from)?;
    Ok(settings)
}

/// The values for people.
pub fn table(result: &EvaluationResult) -> String {
    let mut text = String::new();
    let skipping = if result.skip { ", samples skipped" } else { "" };
    let utility =
        if result.class_samples.is_empty() { String::new() } else { format!(", {}", result.utility) };
    let total = result.utilities.first().map_or(0, |utility| utility.total);
    let _ = writeln!(
        text,
        "{} {}{skipping}{utility}: {} rounds, {} coalitions, {total} samples, {:.2} s",
        result.protocol,
        result.estimator,
        result.ssv.len(),
        result.utilities.len(),
        result.timing.wall_s
    );
    let width = result.clients.iter().map(|client| client.as_str().len()).max().unwrap_or(0).max(6);
    let _ = writeln!(text, "{:width$}  contribution{}", "client", errors_head(result));
    for client in &result.clients {
        let value = result.fsv.get(client).copied().unwrap_or_default();
        let error = result.standard_error.as_ref().and_then(|errors| errors.get(client));
        let error = error.map_or(String::new(), |error| format!("  {error:14.6}"));
        let _ = writeln!(text, "{:width$}  {value:+12.6}{error}", client.as_str());
    }
    let _ = writeln!(text, "{:width$}  {:+12.6}", "sum", result.fsv.values().sum::<f64>());
    result.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    let tested: usize = result.utilities.iter().map(|utility| utility.tested).sum();
    let all: usize = result.utilities.iter().map(|utility| utility.total).sum();
    if result.skip {
        let share = 100.0 * (all - tested) as f64 / all as f64;
        let _ = writeln!(text, "skipped {} of {all} predictions ({share:.1} %)", all - tested);
    }
    let verified: Vec<usize> =
        result.utilities.iter().filter_map(|utility| utility.wrongly_skipped).collect();
    if !verified.is_empty() {
        let wrong: usize = verified.iter().sum();
        let _ = writeln!(text, "wrongly skipped {wrong} of {} skipped predictions", all - tested);
    }
    if let Some(security) = &result.security {
        text.push_str(&protection(result, security));
    }
    text
}

fn errors_head(result: &EvaluationResult) -> &'static str {
    if result.standard_error.is_some() { "  standard error" } else { "" }
}

/// Costs of a secure run, and whom it exposed to whom.
pub fn protection(result: &EvaluationResult, security: &SecurityResult) -> String {
    let mut text = String::new();
    let bytes: u64 = result.traffic.iter().map(|link| link.bytes).sum();
    let memory = result
        .peak_memory_bytes
        .map_or(String::new(), |b| format!(", {:.2} GiB of memory", b as f64 / (1u64 << 30) as f64));
    let _ = writeln!(
        text,
        "sent {:.1} MiB in {} messages{memory}",
        bytes as f64 / (1 << 20) as f64,
        result.messages.iter().map(|m| m.messages).sum::<u64>()
    );
    text.push_str(&statistical_distance(security));
    let _ = write!(text, "{}", security.exposure);
    text
}

/// The line on flooding, where replies are flooded.
pub fn statistical_distance(security: &SecurityResult) -> String {
    match security.statistical_bits_per_reply {
        None => String::new(),
        Some(bits) if security.statistical_claim => {
            let run = f64::from(bits) - (security.replies.max(1) as f64).log2();
            let replies = security.replies;
            format!("statistical distance: {bits} bits per reply, {run:.0} bits for all {replies} replies\n")
        }
        Some(_) => {
            "statistical distance: these parameters make no claim (--preset standard does)\n".to_owned()
        }
    }
}

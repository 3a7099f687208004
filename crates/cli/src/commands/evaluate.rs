//! `secsv evaluate`: every client's contribution, from a run directory.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use secsv_federation::{CollectiveTestSet, RunDirectory, skip::SkipMode};
use secsv_runtime::{ClearEvaluator, CumulativeEvaluator, EvaluationResult, EvaluationSettings, evaluate};
use secsv_shapley::{Method, Settings, StopRule};
use serde::Serialize;

use crate::{
    failure::BadInput,
    output::{Format, Progress},
    report::render,
    target_file,
};

/// Arguments of `secsv evaluate`.
#[derive(Args)]
pub struct EvaluateArgs {
    /// The run directory.
    run: PathBuf,
    /// How models are tested.
    #[arg(long, value_enum)]
    protocol: Protocol,
    /// Whether samples that two models predict right are skipped on their aggregate.
    #[arg(long, value_enum, default_value_t = Skip::Off)]
    skip: Skip,
    /// Test skipped samples after all, and count those that should not have been skipped.
    #[arg(long)]
    verify_skip: bool,
    /// How values are computed from utilities: exact, permutation, group-testing, kernelshap ...
    #[arg(long, default_value_t = Method::Exact, value_parser = method)]
    estimator: Method,
    /// Parameters of the encryption.
    #[arg(long, value_enum, default_value_t = PresetName::Standard)]
    preset: PresetName,
    /// How encrypted matrices are multiplied; by default packed for secsv, squaring for hesv.
    #[arg(long, value_enum)]
    matmul: Option<MatmulName>,
    /// What everything random follows from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Euclidean error of a round's values that permutation sampling and group testing aim for ...
    #[arg(long, default_value_t = Settings::default().epsilon)]
    epsilon: f64,
    /// ... except with this probability.
    #[arg(long, default_value_t = Settings::default().delta)]
    delta: f64,
    /// Samples that the estimator takes in each round, instead of what it would.
    #[arg(long)]
    samples: Option<usize>,
    /// Stop sampling when no client's standard error is larger.
    #[arg(long)]
    max_error: Option<f64>,
    /// Stop sampling after this many seconds.
    #[arg(long)]
    max_seconds: Option<f64>,
    /// Stop sampling after this many tests.
    #[arg(long)]
    max_tests: Option<usize>,
    /// Also write the result to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write a report for people to this file: HTML that needs nothing else.
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Protocol {
    /// In the clear, without any protection: what the secure protocols are measured against.
    Nssv,
    /// Encrypted models, shared test data, two servers.
    Secsv,
    /// Everything encrypted, one server.
    Hesv,
    /// Shared models and test data, two servers.
    Secretsv,
}

#[derive(Clone, Copy, ValueEnum)]
enum PresetName {
    /// Replies flooded to 40 bits of statistical distance.
    Standard,
    /// Half the size, no statistical claim.
    Compact,
}

#[derive(Clone, Copy, ValueEnum)]
enum MatmulName {
    /// Coefficient packing.
    Packed,
    /// The paper's Matrix Reducing.
    Reducing,
    /// The paper's Matrix Squaring.
    Squaring,
}

#[derive(Clone, Copy, ValueEnum)]
enum Skip {
    /// Wherever the rule allows it.
    On,
    /// Never.
    Off,
    /// Where it saves work.
    Auto,
}

fn method(name: &str) -> Result<Method, secsv_shapley::Error> {
    name.parse()
}

/// Runs the command.
pub fn run(args: &EvaluateArgs, format: Format) -> anyhow::Result<()> {
    let settings = settings(args)?;
    for (setting, file) in [("--json", &args.json), ("--report", &args.report)] {
        file.as_deref().map_or(Ok(()), |file| target_file::check(setting, file))?;
    }
    let run = RunDirectory::open(&args.run)?;
    run.check()?;
    let result = match args.protocol {
        Protocol::Nssv => nssv(&run, &settings)?,
        _ => secure(&run, args, &settings)?,
    };
    if let Some(file) = &args.json {
        target_file::write_whole(file, &serde_json::to_vec(&result)?)?;
    }
    if let Some(file) = &args.report {
        target_file::write_whole(file, render(&result, &run.spec().name).as_bytes())?;
    }
    match format {
        Format::Json => println!("{}", serde_json::to_string(&result)?),
        Format::Text => print!("{}", table(&result)),
    }
    Ok(())
}

fn settings(args: &EvaluateArgs) -> anyhow::Result<EvaluationSettings> {
    let elapsed = args.max_seconds.map(Duration::try_from_secs_f64).transpose();
    let elapsed = elapsed.map_err(|_| BadInput {
        setting: "--max-seconds",
        expected: "a positive number of seconds",
        found: args.max_seconds.unwrap_or_default().to_string(),
    })?;
    let stop = StopRule { standard_error: args.max_error, elapsed, tests: args.max_tests };
    let (seed, epsilon, delta, samples) = (args.seed, args.epsilon, args.delta, args.samples);
    let estimator = Settings { seed, epsilon, delta, samples, stop, ..Settings::default() };
    estimator.check().map_err(secsv_runtime::Error::from)?;
    let skip = match args.skip {
        Skip::On => SkipMode::On,
        Skip::Off => SkipMode::Off,
        Skip::Auto => SkipMode::Auto,
    };
    Ok(EvaluationSettings { method: args.estimator, estimator, skip, verify_skip: args.verify_skip })
}

fn nssv(run: &RunDirectory, settings: &EvaluationSettings) -> anyhow::Result<EvaluationResult> {
    #[derive(Serialize)]
    struct Step {
        event: &'static str,
        round: u32,
        tested: usize,
        asked: usize,
    }
    let test_set = CollectiveTestSet::read(run)?;
    let bar = Progress::new("coalitions", 0);
    let observe = |progress: secsv_runtime::Progress| {
        let secsv_runtime::Progress { round, tested, asked } = progress;
        bar.advance(tested as u64, asked as u64);
        bar.note(format!("round {round}"), &Step { event: "tested", round: round.0, tested, asked });
    };
    let result = if settings.method.needs_cumulative_models() {
        evaluate(run.spec(), &mut CumulativeEvaluator::new(run, &test_set)?, settings, observe)
    } else {
        evaluate(run.spec(), &mut ClearEvaluator::new(run, &test_set), settings, observe)
    };
    bar.finish();
    Ok(result?)
}

fn secure(
    run: &RunDirectory,
    args: &EvaluateArgs,
    settings: &EvaluationSettings,
) -> anyhow::Result<EvaluationResult> {
    use secsv_protocol::{
        Preset, Seed,
        decryptors::Protocol as Secure,
        session::{Matmul, Settings, typical_costs},
    };
    let protocol = match args.protocol {
        Protocol::Hesv => Secure::Hesv,
        Protocol::Secretsv => Secure::SecretSv,
        _ => Secure::SecSv,
    };
    let preset = match args.preset {
        PresetName::Standard => Preset::Standard,
        PresetName::Compact => Preset::Compact,
    };
    let matmul = match args.matmul {
        Some(MatmulName::Packed) => Matmul::Packed,
        Some(MatmulName::Reducing) => Matmul::Reducing,
        Some(MatmulName::Squaring) => Matmul::Squaring,
        None if protocol == Secure::Hesv => Matmul::Squaring,
        None => Matmul::Packed,
    };
    let mut bytes = [0; 32];
    rand::TryRngCore::try_fill_bytes(&mut rand::rngs::OsRng, &mut bytes)?;
    let mut evaluator = secsv_runtime::SecureEvaluator::new(
        run,
        Settings { protocol, preset, matmul },
        Some(typical_costs(preset)),
        &Seed::from_bytes(bytes),
        Box::new(secsv_runtime::world::Honest),
    )?;
    let bar = Progress::new("coalitions", 0);
    let result =
        evaluate(run.spec(), &mut evaluator, settings, |p| bar.advance(p.tested as u64, p.asked as u64));
    bar.finish();
    let accounts = evaluator.accounts();
    evaluator.world().with_principal(|p| if let Some(s) = p.session() { eprintln!("{:?} {:?} groups {:?} chunks {}", s.encryption.as_ref().map(|e| (&e.layouts, e.floodings.iter().map(|f| f.statistical_bits()).collect::<Vec<_>>())), s.precision, s.groups.iter().map(|g| g.size).collect::<Vec<_>>(), s.chunks.len()); });
    eprintln!("{:?} {:?}", accounts.seconds, accounts.operations);
    Ok(result?)
}

/// The values for people.
fn table(result: &EvaluationResult) -> String {
    let mut text = String::new();
    let skipping = if result.skip { ", samples skipped" } else { "" };
    let total = result.utilities.first().map_or(0, |utility| utility.total);
    let _ = writeln!(
        text,
        "{} {}{skipping}: {} rounds, {} coalitions, {total} samples, {:.2} s",
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
    text
}

fn errors_head(result: &EvaluationResult) -> &'static str {
    if result.standard_error.is_some() { "  standard error" } else { "" }
}

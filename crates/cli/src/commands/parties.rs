//! `secsv principal`, `secsv auxiliary`, `secsv client`: one party each, as a process of its own.

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use secsv_federation::RunDirectory;
use secsv_node::{
    audit::RESULT_FILE,
    kit::{Address, Kit},
    process::{
        ClientFollow, ClientOptions, NodeOptions, PrincipalFollow, PrincipalOptions, RunFacts, TestProgress,
        follow_auxiliary, follow_client, follow_principal, run_auxiliary, run_client_observed, run_principal,
    },
};

use super::follow::{FollowArgs, show};

use crate::{
    failure::{BadInput, check_ranges},
    output::{Format, print_or_end, say},
    program,
    progress::ProgressReport,
    result_files::ResultFiles,
    value_table,
};

/// Arguments of `secsv principal`.
#[derive(Args)]
pub struct PrincipalArgs {
    /// The principal's kit.
    kit: PathBuf,
    /// Where it keeps what it must not forget: killed and started again with the same directory, it goes on.
    #[arg(long)]
    state: PathBuf,
    /// Listen here instead of at the address in the federation file.
    #[arg(long)]
    listen: Option<String>,
    /// Where the status pages are (/, /metrics, /status.json, /healthz): a port of loopback unless told
    /// otherwise; 0 lets the system choose one, which the log names.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    status: Option<SocketAddr>,
    /// Seconds after which others decrypt what a client that stays away was to decrypt.
    #[arg(long, default_value_t = 300.0, allow_negative_numbers = true)]
    away_after: f64,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    files: ResultFiles,
}

/// Arguments of `secsv auxiliary`.
#[derive(Args)]
pub struct AuxiliaryArgs {
    /// The auxiliary's kit.
    kit: PathBuf,
    /// Where it keeps what it must not forget: killed and started again with the same directory, it goes on.
    #[arg(long)]
    state: PathBuf,
    /// Listen here instead of at the address in the federation file.
    #[arg(long)]
    listen: Option<String>,
    /// Where the status pages are, if they are wanted.
    #[arg(long, value_name = "ADDRESS:PORT")]
    status: Option<SocketAddr>,
    #[command(flatten)]
    follow: FollowArgs,
}

/// Arguments of `secsv client`.
#[derive(Args)]
pub struct ClientArgs {
    /// The client's kit.
    kit: PathBuf,
    /// This silo's part of a run directory, or all of one: only that part is opened.
    #[arg(long)]
    data: PathBuf,
    /// Where it keeps what it must not forget: killed and started again with the same directory, it goes on.
    #[arg(long)]
    state: PathBuf,
    /// The word by which the owner accepts what others can do with its samples and models: without it the
    /// client says what that is, and the word, and ends.
    #[arg(long, value_name = "WORD")]
    accept_exposure: Option<String>,
    /// Accept that utilities of fewer than 30 samples, or of one owner's, tell much about single samples (blindsv asks).
    #[arg(long)]
    accept_few_samples: bool,
    /// The word by which the owner accepts another session over samples that were in one before.
    #[arg(long, value_name = "WORD")]
    again: Option<String>,
    /// The record of this silo's sessions [default: sessions.jsonl in its part of the data].
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Where the status pages are, if they are wanted.
    #[arg(long, value_name = "ADDRESS:PORT")]
    status: Option<SocketAddr>,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    files: ResultFiles,
}

impl ClientArgs {
    fn followed(&self) -> ClientFollow {
        ClientFollow {
            data: self.data.clone(),
            accept_exposure: self.accept_exposure.clone(),
            accept_few_samples: self.accept_few_samples,
            record: self.record.clone(),
            again: self.again.clone(),
        }
    }
}

/// Parties wait for each other this long in the end.
const DELIVERY: Duration = Duration::from_secs(600);
/// How often the log says how far it is.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Runs `secsv principal`.
pub fn principal(args: &PrincipalArgs, format: Format) -> anyhow::Result<()> {
    args.files.check(&[&args.kit, &args.state])?;
    let away_after = Duration::try_from_secs_f64(args.away_after).map_err(|_| {
        BadInput::new("--away-after", "a positive number of seconds", args.away_after.to_string())
    })?;
    check_listen(args.listen.as_deref())?;
    let node = NodeOptions { state: args.state.clone(), listen: args.listen.clone(), status: args.status };
    if args.follow.is_wanted() {
        let options = args.follow.options(&args.kit, node, None, Some(&args.files))?;
        let of = PrincipalFollow { away_after };
        return Ok(follow_principal(&options, &of, &mut |event| show(event, format))?);
    }
    let kit = Kit::open(&args.kit)?;
    let name = kit.federation.federation.name.clone();
    let options = PrincipalOptions { node, away_after, wait_to_deliver: DELIVERY, made_by: program() };
    let bar = ProgressReport::of_party("models");
    let mut told: Option<Instant> = None;
    let observe = |progress: secsv_evaluation::Progress| {
        bar.advance(progress.tested as u64, progress.asked as u64);
        let secsv_evaluation::Progress { round, tested, asked } = progress;
        let is_due = told.is_none_or(|told| told.elapsed() >= LOG_INTERVAL) || tested == asked;
        if is_due {
            tracing::info!(round = round.0, tested, asked, "tested");
            told = Some(Instant::now());
        }
    };
    let mut written = Ok(());
    let result = run_principal(kit, &options, observe, |result| {
        written = args.files.write(result, &name);
        Ok(())
    })?;
    bar.finish();
    let shown = print_or_end(&args.files.printed(&result, format, || value_table::text(&result))?);
    if written.is_err() || shown.is_err() {
        say(format_args!("the result is kept in {}", args.state.join(RESULT_FILE).display()));
    }
    written.and(Ok(shown?))?;
    Ok(check_ranges(&result)?)
}

/// Where one listens may be every address of a machine, where others dial may not.
pub(super) fn check_listen(listen: Option<&str>) -> Result<(), BadInput> {
    let is_address = |text: &&str| text.parse::<SocketAddr>().is_ok() || text.parse::<Address>().is_ok();
    match listen.filter(|text| !is_address(text)) {
        None => Ok(()),
        Some(found) => {
            let found = format!("{found:?}");
            Err(BadInput::new("--listen", "ADDRESS:PORT", found))
        }
    }
}

/// Runs `secsv auxiliary`.
pub fn auxiliary(args: &AuxiliaryArgs, format: Format) -> anyhow::Result<()> {
    check_listen(args.listen.as_deref())?;
    let options = NodeOptions { state: args.state.clone(), listen: args.listen.clone(), status: args.status };
    if args.follow.is_wanted() {
        let options = args.follow.options(&args.kit, options, None, None)?;
        return Ok(follow_auxiliary(&options, &mut |event| show(event, format))?);
    }
    let kit = Kit::open(&args.kit)?;
    let facts = RunFacts::of(&kit)?;
    let result = run_auxiliary(kit, &options)?.into_result(facts, &program());
    format.show(&result, || value_table::text(&result))?;
    Ok(check_ranges(&result)?)
}

/// Runs `secsv client`.
pub fn client(args: &ClientArgs, format: Format) -> anyhow::Result<()> {
    args.files.check(&[&args.kit, &args.data, &args.state])?;
    let node = NodeOptions { state: args.state.clone(), listen: None, status: args.status };
    if args.follow.is_wanted() {
        let options = args.follow.options(&args.kit, node, Some(&args.data), Some(&args.files))?;
        return Ok(follow_client(&options, &args.followed(), &mut |event| show(event, format))?);
    }
    let data = RunDirectory::open(&args.data)?;
    let options = ClientOptions {
        node,
        accept_few_samples: args.accept_few_samples,
        accept_exposure: args.accept_exposure.clone(),
        record: args.record.clone(),
        again: args.again.clone(),
    };
    let kit = Kit::open(&args.kit)?;
    let facts = RunFacts::of(&kit)?;
    let name = facts.federation.name.clone();
    let bar = ProgressReport::of_party("tests");
    let mut observe = |TestProgress { finished, planned }| match planned {
        Some(planned) => bar.advance(finished as u64, planned as u64),
        None => bar.note(format!("{finished} tests are through"), &serde_json::json!({"finished": finished})),
    };
    let values = run_client_observed(kit, &data, &options, &mut observe);
    bar.finish();
    let result = values?.into_result(facts, &program());
    args.files.hand_out(&result, &name, format, || value_table::text(&result))?;
    Ok(check_ranges(&result)?)
}

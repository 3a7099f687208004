//! The `secsv` command line: arguments in, checked configuration, one run, a report out. A library, so that other programs can
//! have it as their command; the program `secsv` adds its allocator.

// They panic where nobody reads: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
mod attendance;
mod commands;
mod examples;
mod failure;
mod findings;
mod logs;
mod output;
mod output_file;
mod progress;
mod protocol_name;
mod report;
mod result_files;
mod stoppable;
mod tables;
mod value_table;

use std::{ffi::OsString, sync::OnceLock};

use clap::{CommandFactory as _, Parser, Subcommand};

use output::Format;
use progress::ProgressMode;

/// The version and the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SECSV_COMMIT"), ")");

/// The program as results and reports name it.
fn program() -> String {
    format!("secsv {VERSION}")
}

/// What each organisation contributed to a federated model, with models and test data masked, shared or encrypted;
/// who could rebuild them all the same is what `plan` says.
#[derive(Parser)]
#[command(name = "secsv", version = VERSION, arg_required_else_help = true)]
struct Args {
    /// How results appear on standard output; with json it is one JSON document.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text)]
    format: Format,
    /// How progress is shown on standard error [default: bar on a terminal, lines elsewhere].
    #[arg(long, value_enum, global = true)]
    progress: Option<ProgressMode>,
    /// Results and errors alone: no progress, and no logs but warnings.
    #[arg(long, short, global = true, conflicts_with_all = ["progress", "verbose"])]
    quiet: bool,
    /// Technical details as well: costs, and who exactly learns and can do what.
    #[arg(long, short, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Five hospitals, one with corrupted labels: trained, valued under masks, reported. Takes seconds.
    #[command(after_help = examples::DEMO)]
    Demo(commands::demo::DemoArgs),
    /// Measure this machine.
    #[command(after_help = examples::BENCH)]
    Bench(commands::bench::BenchArgs),
    /// Train a federation in simulation and write its run directory.
    #[command(after_help = examples::TRAIN)]
    Train(Box<commands::train::TrainArgs>),
    /// Value every client of a federation from its run directory.
    #[command(after_help = examples::EVALUATE)]
    Evaluate(Box<commands::evaluate::EvaluateArgs>),
    /// Value every client under several protocols, side by side.
    #[command(after_help = examples::COMPARE)]
    Compare(Box<commands::compare::CompareArgs>),
    /// Two results side by side.
    #[command(after_help = examples::DIFF)]
    Diff(commands::diff::DiffArgs),
    /// What an evaluation would cost and disclose, before anything runs.
    #[command(after_help = examples::PLAN)]
    Plan(commands::plan::PlanArgs),
    /// Run the principal server of a federation whose parties are on the network.
    #[command(after_help = examples::PRINCIPAL)]
    Principal(commands::parties::PrincipalArgs),
    /// Run its auxiliary server.
    #[command(after_help = examples::AUXILIARY)]
    Auxiliary(commands::parties::AuxiliaryArgs),
    /// Run one of its clients: outbound connections alone.
    #[command(after_help = examples::CLIENT)]
    Client(commands::parties::ClientArgs),
    /// Write the HTML report of a result that `evaluate --json` wrote.
    #[command(after_help = examples::REPORT)]
    Report(commands::report::ReportArgs),
    /// The paper's tables and figures on this machine, beside the paper's own.
    #[command(after_help = examples::REPRODUCE)]
    Reproduce(Box<commands::reproduce::ReproduceArgs>),
    /// Make a party's private keys and the request that goes to whoever provisions.
    #[command(after_help = examples::KEYGEN)]
    Keygen(commands::keygen::KeygenArgs),
    /// Sign the requests of all parties into kits.
    #[command(after_help = examples::PROVISION)]
    Provision(Box<commands::provision::ProvisionArgs>),
    /// Sign new certificates for a federation that runs on.
    #[command(after_help = examples::RENEW)]
    Renew(commands::renew::RenewArgs),
    /// Check whether a party could take part now: kit, names, reachability, TLS, clocks, disk.
    #[command(after_help = examples::PREFLIGHT)]
    Preflight(commands::preflight::PreflightArgs),
    /// Check the audit logs of parties, against each other too, and compute every value again.
    #[command(after_help = examples::VERIFY)]
    Verify(commands::verify::VerifyArgs),
    /// Print what a shell needs to complete the arguments of secsv.
    #[command(after_help = examples::COMPLETIONS)]
    Completions(commands::completions::CompletionsArgs),
    /// Write manual pages.
    #[command(after_help = examples::MAN)]
    Man(commands::completions::ManArgs),
}

/// What gives memory that nobody uses back to the system, if the program has an allocator that keeps it.
static PURGE: OnceLock<fn()> = OnceLock::new();

/// Gives memory that nobody uses back to the system, where the program can.
fn purge_memory() {
    if let Some(purge) = PURGE.get() {
        purge();
    }
}

/// Runs the command line once and hands on the exit code; ends the process where arguments are none or help is asked for. The
/// first argument is the program's name; `purge` gives memory that nobody uses back to the system.
pub fn run(arguments: impl IntoIterator<Item = OsString>, purge: Option<fn()>) -> u8 {
    let args = Args::parse_from(arguments);
    if let Some(purge) = purge {
        PURGE.get_or_init(|| purge);
    }
    progress::choose(if args.quiet { Some(ProgressMode::None) } else { args.progress });
    output::set_verbose(args.verbose);
    if let Err(error) = logs::start(args.quiet) {
        return failure::report(&error.into());
    }
    let result = match args.command {
        Command::Demo(demo) => commands::demo::run(&demo, args.format),
        Command::Bench(bench) => commands::bench::run(&bench, args.format),
        Command::Train(train) => commands::train::run(&train, args.format),
        Command::Evaluate(evaluate) => commands::evaluate::run(&evaluate, args.format),
        Command::Compare(compare) => commands::compare::run(&compare, args.format),
        Command::Diff(diff) => commands::diff::run(&diff, args.format),
        Command::Plan(plan) => commands::plan::run(&plan, args.format),
        Command::Reproduce(reproduce) => commands::reproduce::run(&reproduce, args.format),
        Command::Principal(args_of) => commands::parties::principal(&args_of, args.format),
        Command::Auxiliary(args_of) => commands::parties::auxiliary(&args_of, args.format),
        Command::Client(args_of) => commands::parties::client(&args_of, args.format),
        Command::Report(report) => commands::report::run(&report, args.format),
        Command::Keygen(keygen) => commands::keygen::run(&keygen, args.format),
        Command::Provision(provision) => commands::provision::run(&provision, args.format),
        Command::Renew(renew) => commands::renew::run(&renew, args.format),
        Command::Preflight(preflight) => commands::preflight::run(&preflight, args.format),
        Command::Verify(verify) => commands::verify::run(&verify, args.format),
        Command::Completions(of) => commands::completions::completions(&of, Args::command()),
        Command::Man(of) => commands::completions::man(&of, Args::command(), args.format),
    };
    match result {
        Ok(()) => 0,
        Err(error) => failure::report(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every example of every command parses; a line that ends with a backslash goes on.
    #[test]
    fn examples_are_of_arguments_that_there_are() {
        let mut count = 0;
        for example in examples::ALL {
            let text = example.replace("\\\n", " ");
            for line in text.lines().filter(|line| line.trim_start().starts_with("secsv ")) {
                let line =
                    line.split(" # ").next().unwrap_or_default().split(" > ").next().unwrap_or_default();
                if let Err(error) = Args::try_parse_from(line.split_whitespace()) {
                    panic!("{line}: {error}");
                }
                count += 1;
            }
        }
        assert!(count > 20, "{count} examples");
        let command = Args::command();
        for of in command.get_subcommands().filter(|of| of.get_name() != "help") {
            let help = of.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("  secsv {}", of.get_name())), "{} has no example", of.get_name());
        }
    }
}

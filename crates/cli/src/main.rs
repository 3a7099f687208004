//! The `secsv` command line: arguments in, checked configuration, one run, a report out.

// They panic where nobody reads: `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator;
mod commands;
mod failure;
mod logs;
mod output;
mod output_file;
mod progress;
mod protocol_name;
mod report;
mod result_files;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Format;

/// The version and the commit it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SECSV_COMMIT"), ")");

/// What each organisation contributed to a federated model, with models and test data masked, shared or encrypted;
/// who could rebuild them all the same is what `plan` says.
#[derive(Parser)]
#[command(name = "secsv", version = VERSION, arg_required_else_help = true)]
struct Args {
    /// How results appear on standard output; with json it is one JSON document.
    #[arg(long, value_enum, global = true, default_value_t = Format::Text)]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Five hospitals, one with corrupted labels: trained, valued under masks, reported. Takes seconds.
    Demo(commands::demo::DemoArgs),
    /// Measure this machine.
    Bench(commands::bench::BenchArgs),
    /// Train a federation in simulation and write its run directory.
    Train(Box<commands::train::TrainArgs>),
    /// Value every client of a federation from its run directory.
    Evaluate(Box<commands::evaluate::EvaluateArgs>),
    /// Value every client under several protocols, side by side.
    Compare(Box<commands::compare::CompareArgs>),
    /// What an evaluation would cost and disclose, before anything runs.
    Plan(commands::plan::PlanArgs),
    /// Run the principal server of a federation whose parties are on the network.
    Principal(commands::parties::PrincipalArgs),
    /// Run its auxiliary server.
    Auxiliary(commands::parties::AuxiliaryArgs),
    /// Run one of its clients: outbound connections alone.
    Client(commands::parties::ClientArgs),
    /// Write the HTML report of a result that `evaluate --json` wrote.
    Report(commands::report::ReportArgs),
    /// The paper's tables and figures on this machine, beside the paper's own.
    Reproduce(Box<commands::reproduce::ReproduceArgs>),
    /// Make a party's private keys and the request that goes to whoever provisions.
    Keygen(commands::keygen::KeygenArgs),
    /// Sign the requests of all parties into kits.
    Provision(Box<commands::provision::ProvisionArgs>),
    /// Check whether a party could take part now: kit, names, reachability, TLS, clocks, disk.
    Preflight(commands::preflight::PreflightArgs),
    /// Check the audit logs of parties, against each other too, and compute every value again.
    Verify(commands::verify::VerifyArgs),
}

fn main() -> ExitCode {
    let args = Args::parse();
    logs::start();
    let result = match args.command {
        Command::Demo(demo) => commands::demo::run(&demo, args.format),
        Command::Bench(bench) => commands::bench::run(&bench, args.format),
        Command::Train(train) => commands::train::run(&train, args.format),
        Command::Evaluate(evaluate) => commands::evaluate::run(&evaluate, args.format),
        Command::Compare(compare) => commands::compare::run(&compare, args.format),
        Command::Plan(plan) => commands::plan::run(&plan, args.format),
        Command::Reproduce(reproduce) => commands::reproduce::run(&reproduce, args.format),
        Command::Principal(args_of) => commands::parties::principal(&args_of, args.format),
        Command::Auxiliary(args_of) => commands::parties::auxiliary(&args_of, args.format),
        Command::Client(args_of) => commands::parties::client(&args_of, args.format),
        Command::Report(report) => commands::report::run(&report, args.format),
        Command::Keygen(keygen) => commands::keygen::run(&keygen, args.format),
        Command::Provision(provision) => commands::provision::run(&provision, args.format),
        Command::Preflight(preflight) => commands::preflight::run(&preflight, args.format),
        Command::Verify(verify) => commands::verify::run(&verify, args.format),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

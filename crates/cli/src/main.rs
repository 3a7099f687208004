//! The `secsv` command line: arguments in, checked configuration, one run, a report out.

mod commands;
mod report;

use clap::Parser;

/// What each organisation contributed to a federated model, without anybody seeing anybody's model or data.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Report(commands::report::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Report(args) => commands::report::run(&args),
    }
}

//! The `secsv` command line: arguments in, checked configuration, one run, a report out.

use clap::Parser;

/// What each organisation contributed to a federated model, without anybody seeing anybody's model or data.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {}

fn main() -> anyhow::Result<()> {
    Args::parse();
    Ok(())
}

//! `secsv completions` and `secsv man`: made of the same definitions as the arguments themselves.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::{
    failure::BadInput,
    output::{Document, Format, print_or_end},
};

/// Arguments of `secsv completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// For which shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `secsv man`.
#[derive(Args)]
pub struct ManArgs {
    /// The directory that the pages go to.
    #[arg(long)]
    out: PathBuf,
}

/// Prints what a shell needs to complete arguments.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "secsv", &mut script);
    Ok(print_or_end(&String::from_utf8_lossy(&script))?)
}

/// Writes a page for each command.
pub fn man(args: &ManArgs, command: Command, format: Format) -> anyhow::Result<()> {
    if args.out.exists() && !args.out.is_dir() {
        let found = args.out.display().to_string();
        return Err(BadInput::new("--out", "a directory, there or not", found).into());
    }
    let failed = || format!("{}: cannot be written", args.out.display());
    fs::create_dir_all(&args.out).with_context(failed)?;
    clap_mangen::generate_to(command, &args.out).with_context(failed)?;
    let document = serde_json::json!({ "man": args.out });
    format
        .show(&Document::first("secsv-man", document), || format!("{}\n", args.out.join("secsv.1").display()))
}

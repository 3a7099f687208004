//! The program `secsv`: the command line with an allocator for large ciphertexts.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(secsv_cli::run(std::env::args_os(), Some(allocator::purge_arenas)))
}

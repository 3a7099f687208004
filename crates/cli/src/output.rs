//! What goes where: results to standard output, progress and logs to standard error.

use clap::ValueEnum;

/// How results appear on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

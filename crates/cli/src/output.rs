//! Output of the commands: results to standard output, progress and logs to standard error.

use std::io::{IsTerminal, stderr};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// How results appear on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

impl Format {
    /// Prints a result: as one line of JSON, or as `print` does.
    pub fn show(self, result: &impl Serialize, print: impl FnOnce()) -> anyhow::Result<()> {
        match self {
            Self::Json => println!("{}", serde_json::to_string(result)?),
            Self::Text => print(),
        }
        Ok(())
    }
}

/// Progress on standard error: a bar on a terminal, JSON lines otherwise.
pub struct ProgressReport {
    bar: Option<ProgressBar>,
}

impl ProgressReport {
    /// Progress towards `steps` steps of what `label` says.
    pub fn new(label: &'static str, steps: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps);
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed}<{eta}]")
            {
                bar.set_style(style);
            }
            bar.set_prefix(label);
            bar
        });
        Self { bar }
    }

    /// One step further.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// So far, and how far it goes as known by now.
    pub fn advance(&self, position: u64, length: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(length);
            bar.set_position(position);
        }
    }

    /// Something worth a line: beside the bar, or as a JSON line.
    pub fn note(&self, text: String, record: &impl Serialize) {
        match (&self.bar, serde_json::to_string(record)) {
            (Some(bar), _) => bar.set_message(text),
            (None, Ok(line)) => eprintln!("{line}"),
            (None, Err(_)) => eprintln!("{text}"),
        }
    }

    /// Prints a line of results without tearing the bar.
    pub fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

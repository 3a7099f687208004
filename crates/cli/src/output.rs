//! Output of the commands: results to standard output, progress and logs to standard error.
//!
//! Work never ends because nobody reads along: what cannot be said on standard error is lost, and a result that cannot
//! be printed is an error that its command can act on.

use std::{
    fmt,
    io::{self, Write, stderr, stdout},
};

use clap::ValueEnum;
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
    /// Prints a result: as one line of JSON, or as `text` says it.
    pub fn show(self, result: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        Ok(print_or_end(&self.written(result, text)?)?)
    }

    /// The same text, for whoever prints it.
    pub fn written(self, result: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string(result)? + "\n",
            Self::Text => text(),
        })
    }
}

/// Standard output that takes nothing any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output: cannot be written")]
pub struct Unprintable {
    /// What the system said.
    pub source: io::Error,
    /// Bytes that it took before.
    taken: usize,
}

impl Unprintable {
    /// Whether a reader has seen some of it and gone.
    pub fn was_read(&self) -> bool {
        self.taken > 0 && self.is_unread()
    }

    /// Whether nobody reads any more.
    pub fn is_unread(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints bytes to standard output.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Unprintable> {
    let (mut out, mut taken) = (stdout().lock(), 0);
    while taken < bytes.len() {
        match out.write(&bytes[taken..]) {
            Ok(0) => return Err(Unprintable { source: io::ErrorKind::WriteZero.into(), taken }),
            Ok(count) => taken += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Unprintable { source, taken }),
        }
    }
    out.flush().map_err(|source| Unprintable { source, taken })
}

/// Prints text to standard output.
pub fn print(text: &str) -> Result<(), Unprintable> {
    print_bytes(text.as_bytes())
}

/// Prints text to standard output. A reader who has seen enough is no error.
pub fn print_or_end(text: &str) -> Result<(), Unprintable> {
    match print(text) {
        Err(error) if error.is_unread() => Ok(()),
        printed => printed,
    }
}

/// Says a line on standard error, if anybody can hear it.
pub fn say(line: impl fmt::Display) {
    // One write: lines of several threads stay whole.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// Standard error for logs: a log that cannot be written ends nothing.
pub struct LossyStderr;

impl Write for LossyStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

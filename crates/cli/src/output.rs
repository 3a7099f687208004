//! Output of the commands: results to standard output, progress and logs to standard error.
//!
//! Work never ends because nobody reads along: what cannot be said on standard error is lost, and a result that cannot
//! be printed is an error that its command can act on.

use std::{
    fmt,
    io::{self, Write, stderr, stdout},
    sync::OnceLock,
};

use clap::ValueEnum;
use console::Term;
use serde::Serialize;

static VERBOSE: OnceLock<bool> = OnceLock::new();

/// Says once whether technical details are wanted.
pub fn set_verbose(is_verbose: bool) {
    VERBOSE.get_or_init(|| is_verbose);
}

/// Whether technical details are wanted.
pub fn is_verbose() -> bool {
    VERBOSE.get().copied().unwrap_or_default()
}

/// A JSON document that says what it is, and by which version of its form (docs/RESULT.md).
#[derive(Serialize)]
pub struct Document<T> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    content: T,
}

impl<T: Serialize> Document<T> {
    /// A document in the first version of its form; `content` is an object.
    pub fn first(schema: &'static str, content: T) -> Self {
        Self { schema, version: 1, content }
    }

    /// What it says.
    pub fn content(&self) -> &T {
        &self.content
    }
}

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
            Self::Text => match Term::stdout().size_checked() {
                Some((_, width)) => wrapped(&text(), usize::from(width)),
                None => text(),
            },
        })
    }
}

/// The text with long lines broken between words, what goes on being indented a little more.
fn wrapped(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.lines() {
        if line.chars().count() <= width {
            wrapped.push_str(line);
            wrapped.push('\n');
            continue;
        }
        let indent = line.chars().take_while(|c| *c == ' ').count();
        let mut used = indent;
        wrapped.push_str(&" ".repeat(indent));
        for (place, word) in line[indent..].split_inclusive(' ').enumerate() {
            let length = word.trim_end().chars().count();
            if place > 0 && used + length > width {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent + 2));
                used = indent + 2;
            }
            wrapped.push_str(word);
            used += word.chars().count();
        }
        wrapped.push('\n');
    }
    wrapped
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "  one two three four\nshort\n\nbeyond-all-bounds x\n";
        assert_eq!(wrapped(text, 11), "  one two\n    three\n    four\nshort\n\nbeyond-all-bounds\n  x\n");
        assert_eq!(wrapped("", 11), "");
    }
}

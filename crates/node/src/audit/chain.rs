//! Lines of a log and how they hang together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::AuditDefect;
use crate::Fingerprint;

/// Which way a frame went, from the log's owner's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

impl Direction {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Sent => "sent to",
            Self::Received => "received from",
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Which way.
    pub direction: Direction,
    /// The other party's name.
    pub peer: String,
    /// What it holds.
    pub kind: String,
    /// Its number on the link, in that direction.
    pub number: u64,
    /// Its bytes.
    pub size: u64,
    /// Their digest.
    pub digest: Fingerprint,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Event {
    /// The log begins: whose it is, and the digest of the federation file.
    Start {
        /// Of this form: 1.
        format: u32,
        /// Its owner.
        party: String,
        /// The digest of the federation file.
        federation: Fingerprint,
    },
    /// The process was started again.
    Restart {},
    /// A frame went.
    Frame(Frame),
    /// The result was written.
    Result {
        /// Its file.
        file: String,
        /// Its bytes.
        size: u64,
        /// Their digest.
        digest: Fingerprint,
        /// The digest of each top-level field, so that a change can be located.
        fields: BTreeMap<String, Fingerprint>,
    },
    /// The auxiliary held the counts that it was told against its own.
    Recount {
        /// Counts that were told.
        told: u64,
        /// Those that it counted too, and found the same.
        confirmed: u64,
        /// Those that it found to be others, or could not count because clients' commitments were not kept to.
        differing: u64,
    },
    /// The party has done its part.
    End {},
}

/// One line without its chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What stands before the chain's digits, and after them.
const BEFORE: &str = ",\"chain\":\"";
const AFTER: &str = "\"}";

/// How far a chain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain(Fingerprint);

impl Default for Chain {
    fn default() -> Self {
        Self(Fingerprint([0; 32]))
    }
}

impl Chain {
    fn next(self, body: &str) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(b"secsv audit, format 1\n").update(&self.0.0).update(body.as_bytes());
        Self(Fingerprint(*hash.finalize().as_bytes()))
    }

    /// The line that says this next, its end included; moves on.
    pub(super) fn line(&mut self, entry: &LogEntry) -> Result<String, serde_json::Error> {
        let mut body = serde_json::to_string(entry)?;
        body.pop();
        *self = self.next(&body);
        Ok(format!("{body}{BEFORE}{}{AFTER}\n", self.0))
    }
}

/// Reads a log line by line and holds on to the chain, also past a line that was changed: then the chain goes on from what
/// the line says of itself or from what it holds, whichever the next line confirms.
pub(crate) struct LogReader {
    /// Chains that the next line may continue.
    candidates: Vec<Chain>,
}

impl LogReader {
    pub(crate) fn new() -> Self {
        Self { candidates: vec![Chain::default()] }
    }

    /// Where the chain is, if no doubt is left.
    pub(super) fn chain(&self) -> Chain {
        self.candidates.first().copied().unwrap_or_default()
    }

    /// Takes a line without its end.
    pub(crate) fn take(&mut self, line: &[u8]) -> Result<LogEntry, AuditDefect> {
        let Some((body, said)) = split(line) else {
            // Nothing to go on from but the line's place: the next one cannot be confirmed either way.
            return Err(AuditDefect::Broken);
        };
        let continued = self.candidates.iter().map(|chain| chain.next(body)).find(|next| Some(*next) == said);
        if let Some(chain) = continued {
            self.candidates = vec![chain];
            return serde_json::from_str(&format!("{body}}}"))
                .map_err(|error| AuditDefect::NotAnEntry { found: error.to_string() });
        }
        let computed: Vec<Chain> = self.candidates.iter().map(|chain| chain.next(body)).collect();
        self.candidates = said.into_iter().chain(computed).collect();
        Err(AuditDefect::Broken)
    }
}

/// What a line says and the chain it claims to be; none if it has not even the form.
fn split(line: &[u8]) -> Option<(&str, Option<Chain>)> {
    let line = str::from_utf8(line).ok()?;
    let (body, rest) = line.rsplit_once(BEFORE)?;
    let digits = rest.strip_suffix(AFTER);
    Some((body, digits.and_then(|digits| Fingerprint::parse(digits).ok()).map(Chain)))
}

//! The audit trail: each party's own account of what it sent and received, one line a frame, each line chained to the one
//! before it by a digest. Two parties' accounts can be held against each other ([`verify`](crate::verify)).
//!
//! A line is a JSON object whose last field, `chain`, is BLAKE3 over the chain of the line before and everything that
//! precedes the field. So a line cannot be changed, left out or put elsewhere without the next ones telling. Whoever rewrites
//! a whole log contradicts its peers' logs.

mod chain;
mod error;
mod log;

pub(crate) use chain::LogReader;
pub use chain::{Chain, Direction, Event, Frame, LogEntry};
pub use error::{AuditDefect, AuditError};
pub(crate) use log::fields;
pub use log::{Log, Recovered};

use crate::Fingerprint;

/// The log in a state directory.
pub const LOG_FILE: &str = "audit.jsonl";
/// The federation file in a state directory: what the log's head refers to.
pub const FEDERATION_FILE: &str = "federation.toml";
/// The result in the principal's state directory.
pub const RESULT_FILE: &str = "result.json";

/// The digest by which logs know a frame: of all its bytes.
pub fn digest(frame: &[u8]) -> Fingerprint {
    Fingerprint::blake3(frame)
}

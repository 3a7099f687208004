//! One log, read to its end whatever is wrong with it.

use std::path::{Path, PathBuf};

use super::{Finding, LogSummary};
use secsv_protocol::message::Kind;

use crate::{
    Fingerprint,
    audit::{AuditDefect, Direction, Event, Frame, LogEntry, LogReader},
};

/// The entries that could be read.
pub(super) struct ReadLog {
    pub(super) file: PathBuf,
    pub(super) party: Option<String>,
    pub(super) federation: Option<Fingerprint>,
    entries: Vec<(usize, LogEntry)>,
    pub(super) lines: usize,
}

impl ReadLog {
    pub(super) fn read(file: &Path, bytes: &[u8], findings: &mut Vec<Finding>) -> Self {
        let mut log =
            Self { file: file.to_owned(), party: None, federation: None, entries: Vec::new(), lines: 0 };
        let mut reader = LogReader::new();
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            log.lines += 1;
            let number = log.lines;
            let Some(text) = line.strip_suffix(b"\n") else {
                let defect = AuditDefect::Torn { bytes: line.len() };
                findings.push(Finding::new(file, Some(number), defect.to_string()));
                break;
            };
            match reader.take(text) {
                Ok(entry) => log.entries.push((number, entry)),
                Err(defect) => findings.push(Finding::new(file, Some(number), defect.to_string())),
            }
        }
        match log.entries.first() {
            Some((1, LogEntry { event: Event::Start { party, federation, .. }, .. })) => {
                (log.party, log.federation) = (Some(party.clone()), Some(*federation));
            }
            // A first line that was changed has been told already.
            Some((1, _)) | None => {
                let what = "expected a first line that says whose log this is, found none";
                findings.push(Finding::new(file, Some(1), what));
            }
            Some(_) => {}
        }
        log
    }

    /// Frames that went one way between the owner and a peer, with their lines.
    pub(super) fn frames(&self) -> impl Iterator<Item = (usize, &Frame)> {
        self.entries.iter().filter_map(|(line, entry)| match &entry.event {
            Event::Frame(frame) => Some((*line, frame)),
            _ => None,
        })
    }

    pub(super) fn result(&self) -> Option<(usize, &Event)> {
        let is_result = |(_, entry): &&(usize, LogEntry)| matches!(entry.event, Event::Result { .. });
        self.entries.iter().find(is_result).map(|(line, entry)| (*line, &entry.event))
    }

    /// Where it says what was counted again: how much was told, confirmed and found to differ.
    pub(super) fn recount(&self) -> Option<(usize, u64, u64, u64)> {
        self.entries.iter().find_map(|(line, entry)| match entry.event {
            Event::Recount { told, confirmed, differing } => Some((*line, told, confirmed, differing)),
            _ => None,
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.event == Event::End {})
    }

    fn restarts(&self) -> usize {
        self.entries.iter().filter(|(_, entry)| entry.event == Event::Restart {}).count()
    }

    pub(super) fn has_restarted(&self) -> bool {
        self.restarts() > 0
    }

    pub(super) fn summary(&self) -> LogSummary {
        let count = |direction| self.frames().filter(|(_, frame)| frame.direction == direction).count();
        LogSummary {
            party: self.party.clone().unwrap_or_default(),
            file: self.file.clone(),
            lines: self.lines,
            sent: count(Direction::Sent),
            received: count(Direction::Received),
            restarts: self.restarts(),
            is_complete: self.is_complete(),
        }
    }
}

/// Whether a message holds the values.
pub(super) fn holds_values(frame: &Frame) -> bool {
    frame.kind == Kind::Values.name()
}

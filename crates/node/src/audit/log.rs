//! A party's log, open for writing.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use secsv_evaluation::Confirmation;
use secsv_federation::{partial_path, rename_durably};
use secsv_protocol::{PartyId, message::Kind};

use super::{
    AuditDefect, AuditError, Chain, Direction, Event, FEDERATION_FILE, Frame, LOG_FILE, LogEntry,
    RESULT_FILE, chain::LogReader,
};
use crate::{Fingerprint, kit::Kit};

/// Lines after which the disk is told to keep them. What a kill of the process leaves in the system's hands is not lost;
/// after a power cut the caller's journal has what is missing, and tells it again: it asks for [`Log::sync`] before it lets go
/// of something.
const LINES_PER_SYNC: usize = 256;

/// A log that goes on. Telling it a frame again is allowed and changes nothing, so that whoever replays a journal need
/// not know how far the log had come.
pub struct Log {
    path: PathBuf,
    file: fs::File,
    chain: Chain,
    names: HashMap<PartyId, String>,
    /// Frames that may be told again.
    known: BTreeMap<(Direction, PartyId, u64), Fingerprint>,
    lines: usize,
    /// Lines that the file does not have yet.
    pending: String,
    unsynced: usize,
    /// A part of a line may stand at the end: nothing may follow it.
    has_failed: bool,
    has_recount: bool,
    has_ended: bool,
    has_result: bool,
}

/// What opening a log found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Lines that were there.
    pub lines: usize,
    /// Bytes of a last line that was not finished, and were cut off.
    pub torn_bytes: usize,
}

impl Log {
    /// Opens the log in a party's state directory, or begins it; keeps the federation file beside it.
    pub fn open(state: &Path, kit: &Kit) -> Result<(Self, Recovered), AuditError> {
        let copy = state.join(FEDERATION_FILE);
        match fs::read(&copy) {
            Ok(bytes) if bytes == kit.federation_bytes => {}
            Ok(_) => return Err(AuditError::new(&copy, None, AuditDefect::AnothersFederation)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_whole(&copy, &kit.federation_bytes)?;
            }
            Err(error) => return Err(AuditError::new(&copy, None, AuditDefect::Unreadable(error))),
        }
        Self::open_as(&state.join(LOG_FILE), kit.own, &kit.names(), Fingerprint(kit.digest))
    }

    /// The same for anybody with a name.
    pub fn open_as(
        path: &Path,
        own: PartyId,
        names: &[(PartyId, String)],
        federation: Fingerprint,
    ) -> Result<(Self, Recovered), AuditError> {
        let failed = |error| AuditError::new(path, None, AuditDefect::Unwritable(error));
        let mut options = fs::OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(failed)?;
        let names: HashMap<PartyId, String> = names.iter().cloned().collect();
        let party = names.get(&own).cloned().unwrap_or_else(|| own.to_string());
        let mut log = Self {
            path: path.to_owned(),
            file,
            chain: Chain::default(),
            names,
            known: BTreeMap::new(),
            lines: 0,
            pending: String::new(),
            unsynced: 0,
            has_failed: false,
            has_recount: false,
            has_ended: false,
            has_result: false,
        };
        let recovered = log.recover(&party, federation)?;
        let event =
            if log.lines == 0 { Event::Start { format: 1, party, federation } } else { Event::Restart {} };
        log.write(event)?;
        log.sync()?;
        Ok((log, recovered))
    }

    /// Reads what is there, and cuts off a last line that was not finished.
    fn recover(&mut self, party: &str, federation: Fingerprint) -> Result<Recovered, AuditError> {
        let path = self.path.clone();
        let read = |error| AuditError::new(&path, None, AuditDefect::Unreadable(error));
        let by_name: HashMap<String, PartyId> =
            self.names.iter().map(|(party, name)| (name.clone(), *party)).collect();
        let mut reader = LogReader::new();
        let mut lines = BufReader::new(self.file.try_clone().map_err(read)?);
        lines.seek(SeekFrom::Start(0)).map_err(read)?;
        let (mut whole, mut line, mut recovered) = (0u64, Vec::new(), Recovered::default());
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).map_err(read)? == 0 {
                break;
            }
            let Some(text) = line.strip_suffix(b"\n") else {
                recovered.torn_bytes = line.len();
                break;
            };
            let number = recovered.lines + 1;
            let entry = reader.take(text).map_err(|defect| AuditError::new(&path, Some(number), defect))?;
            self.note(&entry.event, &by_name, (party, federation), number)?;
            (whole, recovered.lines) = (whole + line.len() as u64, number);
        }
        if recovered.torn_bytes > 0 {
            let cut = self.file.set_len(whole).and_then(|()| self.file.sync_all());
            cut.map_err(|error| AuditError::new(&path, None, AuditDefect::Unwritable(error)))?;
        }
        (self.chain, self.lines) = (reader.chain(), recovered.lines);
        Ok(recovered)
    }

    fn note(
        &mut self,
        event: &Event,
        by_name: &HashMap<String, PartyId>,
        (own, agreed): (&str, Fingerprint),
        line: usize,
    ) -> Result<(), AuditError> {
        let anothers = |found: String| {
            let expected = format!("{own} in federation {agreed}");
            AuditError::new(&self.path, Some(line), AuditDefect::AnothersLog { expected, found })
        };
        match event {
            Event::Start { party, federation, .. } if line == 1 => {
                if party != own || *federation != agreed {
                    return Err(anothers(format!("{party} in federation {federation}")));
                }
            }
            _ if line == 1 => return Err(anothers("nobody: its first line is missing".to_owned())),
            Event::Frame(frame) => {
                let Some(&peer) = by_name.get(&frame.peer) else {
                    return Err(anothers(format!("somebody who knows {}", frame.peer)));
                };
                self.known.insert((frame.direction, peer, frame.number), frame.digest);
            }
            Event::Result { .. } => self.has_result = true,
            Event::Recount { .. } => self.has_recount = true,
            Event::End {} => self.has_ended = true,
            Event::Start { .. } | Event::Restart {} => {}
        }
        Ok(())
    }

    /// A frame was journaled: to be sent, or received. Told again with the same digest it changes nothing; with another
    /// digest it is refused. Several may be told before they are written ([`Log::write_out`]).
    pub fn append(
        &mut self,
        direction: Direction,
        peer: PartyId,
        kind: Kind,
        number: u64,
        size: u64,
        digest: Fingerprint,
    ) -> Result<(), AuditError> {
        let name = self.names.get(&peer).cloned().unwrap_or_else(|| peer.to_string());
        match self.known.get(&(direction, peer, number)) {
            Some(known) if *known == digest => return Ok(()),
            Some(&expected) => {
                let direction = direction.words();
                let defect = AuditDefect::Changed { direction, peer: name, number, expected, found: digest };
                return Err(AuditError::new(&self.path, None, defect));
            }
            None => {}
        }
        let kind = kind.name().to_owned();
        self.write(Event::Frame(Frame { direction, peer: name, kind, number, size, digest }))?;
        self.known.insert((direction, peer, number), digest);
        Ok(())
    }

    /// Whether it has all frames below a number. To be asked before [`Log::kept`].
    pub fn has_all(&self, direction: Direction, peer: PartyId, below: u64) -> bool {
        self.known.range((direction, peer, 0)..(direction, peer, below)).count() as u64 == below
    }

    /// What was told so far is not told again, but for frames from the number on that is due from their sender: an earlier
    /// process may have told those and been killed before it could keep them.
    pub fn kept(&mut self, due: impl Fn(PartyId) -> u64) {
        self.known.retain(|(direction, peer, number), _| {
            *direction == Direction::Received && *number >= due(*peer)
        });
    }

    /// Whether a result was recorded.
    pub fn has_result(&self) -> bool {
        self.has_result
    }

    /// Keeps the result in the state directory and says so, once.
    pub fn record_result(&mut self, state: &Path, result: &[u8]) -> Result<(), AuditError> {
        if self.has_result {
            return Ok(());
        }
        write_whole(&state.join(RESULT_FILE), result)?;
        let (size, digest) = (result.len() as u64, Fingerprint::blake3(result));
        let fields = fields(result);
        self.write(Event::Result { file: RESULT_FILE.to_owned(), size, digest, fields })?;
        self.has_result = true;
        self.sync()
    }

    /// How many of the counts that were told are confirmed; said once.
    pub fn record_recount(&mut self, found: &Confirmation) -> Result<(), AuditError> {
        if !self.has_recount {
            let [told, confirmed, differing] =
                [found.told, found.confirmed, found.differing.len() + found.disputed.len()].map(|n| n as u64);
            self.write(Event::Recount { told, confirmed, differing })?;
            self.has_recount = true;
        }
        self.sync()
    }

    /// The party has done its part; said once.
    pub fn end(&mut self) -> Result<(), AuditError> {
        if !self.has_ended {
            self.write(Event::End {})?;
            self.has_ended = true;
        }
        self.sync()
    }

    /// Gives the system what was told: a kill of the process does not take it any more.
    pub fn write_out(&mut self) -> Result<(), AuditError> {
        let failed = |error| AuditError::new(&self.path, None, AuditDefect::Unwritable(error));
        if self.has_failed {
            return Err(failed(io::Error::other("an earlier line could not be written")));
        }
        // One call, so that a kill leaves whole lines in all but the rarest cases; a torn one is cut off later. What could not
        // be written is not tried again: a part of it may stand there.
        let written = self.file.write_all(std::mem::take(&mut self.pending).as_bytes());
        self.has_failed = written.is_err();
        written.map_err(failed)?;
        if self.unsynced >= LINES_PER_SYNC { self.sync() } else { Ok(()) }
    }

    /// Has the disk keep everything so far.
    pub fn sync(&mut self) -> Result<(), AuditError> {
        if self.unsynced == 0 {
            return Ok(());
        }
        self.unsynced = 0;
        if !self.pending.is_empty() {
            self.write_out()?;
        }
        self.file
            .sync_data()
            .map_err(|error| AuditError::new(&self.path, None, AuditDefect::Unwritable(error)))
    }

    /// Lines so far.
    pub fn lines(&self) -> usize {
        self.lines
    }

    fn write(&mut self, event: Event) -> Result<(), AuditError> {
        let failed = |error| AuditError::new(&self.path, None, AuditDefect::Unwritable(error));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let mut chain = self.chain;
        let line = chain.line(&LogEntry { at, event }).map_err(|error| failed(error.into()))?;
        self.pending.push_str(&line);
        (self.chain, self.lines, self.unsynced) = (chain, self.lines + 1, self.unsynced + 1);
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Whoever depends on it asked for it before.
        let _ = self.write_out();
    }
}

/// The digest of each top-level field of a JSON object, as it is written without spaces.
pub(crate) fn fields(json: &[u8]) -> std::collections::BTreeMap<String, Fingerprint> {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(json) else {
        return Default::default();
    };
    object
        .into_iter()
        .map(|(name, value)| (name, Fingerprint::blake3(value.to_string().as_bytes())))
        .collect()
}

/// Writes a file that is there as a whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), AuditError> {
    let partial = partial_path(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&partial)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| rename_durably(&partial, path));
    written.map_err(|error| AuditError::new(path, None, AuditDefect::Unwritable(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::tests::provision;

    fn kit(directory: &Path, name: &str) -> Kit {
        let kits = directory.join(name);
        provision().generate_keys(&kits).unwrap();
        Kit::open(&kits.join("principal")).unwrap()
    }

    /// A run of a million frames must not be kept in memory; what may come again must.
    #[test]
    fn only_what_may_be_told_again_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let kit = kit(directory.path(), "kits");
        let (mut log, _) = Log::open(directory.path(), &kit).unwrap();
        let peer = PartyId::Client(0);
        let tell = |log: &mut Log, direction, number| {
            log.append(direction, peer, Kind::TestFinished, number, 1, Fingerprint([7; 32])).unwrap();
            log.lines()
        };
        for number in 0..3 {
            tell(&mut log, Direction::Received, number);
            tell(&mut log, Direction::Sent, number);
        }
        assert!(log.has_all(Direction::Received, peer, 3) && log.has_all(Direction::Sent, peer, 3));
        assert!(!log.has_all(Direction::Received, peer, 4));
        assert!(!log.has_all(Direction::Sent, PartyId::Auxiliary, 1));
        log.kept(|_| 2);
        assert_eq!(log.known.len(), 1);
        let lines = log.lines();
        assert_eq!(tell(&mut log, Direction::Received, 2), lines, "an earlier process had told it");
        assert_eq!(tell(&mut log, Direction::Received, 3), lines + 1);
    }

    #[test]
    fn the_federation_file_beside_it_is_the_kits_and_its_owners() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().unwrap();
        let [state, other] = ["state", "other"].map(|name| directory.path().join(name));
        fs::create_dir(&state).unwrap();
        let kit = kit(directory.path(), "kits");
        drop(Log::open(&state, &kit).unwrap());
        let mode = fs::metadata(state.join(FEDERATION_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(Log::open(&state, &kit).unwrap());
        fs::create_dir(&other).unwrap();
        fs::write(other.join(FEDERATION_FILE), "name = \"another\"").unwrap();
        let error = Log::open(&other, &kit).err().unwrap();
        assert!(matches!(error.defect, AuditDefect::AnothersFederation), "{error}");
        assert!(error.is_bad_input() && !other.join(LOG_FILE).exists());
    }
}

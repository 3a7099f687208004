//! The record of sessions that a silo took part in, beside its data. The rules of decryption bind one session; several over the
//! same samples give whoever decrypts more to work with. Where nobody decrypts they give totals that can be subtracted.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use secsv_federation::{ClientId, RoundId, TestSet, Weights};
use secsv_protocol::{ClientInput, decryptors::Protocol, exposure::HEADLINE};
use serde::{Deserialize, Serialize};

use crate::{Error, Fingerprint, consent::Question, fingerprint::to_hex, kit::Kit};

/// The file's name in a silo's part of a run directory.
pub const FILE: &str = "sessions.jsonl";
/// Digits that stand for a sample.
const SAMPLE_DIGITS: usize = 12;

/// One session: a line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// When it began here, in seconds since 1970.
    pub begun: u64,
    /// The federation file's digest.
    pub federation: Fingerprint,
    /// The state directory, by what was drawn for it: the same state is the same session.
    pub state: String,
    /// How models were tested.
    pub protocol: String,
    /// Everybody who took part, in order.
    pub clients: Vec<ClientId>,
    /// Rounds.
    pub rounds: u32,
    /// The round that it is of, where rounds of one federation are valued one by one: together they are one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RoundId>,
    /// The digest of all models that this silo holds.
    pub models: Fingerprint,
    /// The digest of its test set.
    pub test_set: Fingerprint,
    /// Twelve digits for each sample.
    pub samples: String,
}

impl SessionEntry {
    /// The session that begins now.
    pub(crate) fn new(kit: &Kit, state: &[u8], input: &ClientInput) -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let spec = &kit.federation.federation;
        let mut models = blake3::Hasher::new();
        let all = input.local.values().chain(input.global.values()).chain([&input.initial]);
        all.for_each(|model| add_model(&mut models, model));
        let mut test_set = blake3::Hasher::new();
        add_numbers(&mut test_set, input.test_set.features());
        for label in input.test_set.labels() {
            test_set.update(&label.to_le_bytes());
        }
        Self {
            begun,
            federation: Fingerprint(kit.signed_digest()),
            state: to_hex(state),
            protocol: kit.federation.session.protocol.clone(),
            clients: spec.ids().cloned().collect(),
            rounds: spec.rounds,
            round: kit.round().map(|file| file.round),
            models: Fingerprint(*models.finalize().as_bytes()),
            test_set: Fingerprint(*test_set.finalize().as_bytes()),
            samples: samples(&input.test_set),
        }
    }

    /// Whether it is this session that goes on.
    fn is_same(&self, other: &Self) -> bool {
        (self.federation, &self.state) == (other.federation, &other.state)
    }

    /// Whether both are rounds of one federation, and not the same round twice.
    fn goes_with(&self, other: &Self) -> bool {
        let both = self.round.zip(other.round);
        self.federation == other.federation && both.is_some_and(|(own, other)| own != other)
    }

    /// How many of its samples are in another session's.
    fn shares(&self, other: &Self) -> usize {
        let of = |entry: &Self| -> Vec<String> {
            let digits: Vec<char> = entry.samples.chars().collect();
            digits.chunks(SAMPLE_DIGITS).map(|sample| sample.iter().collect()).collect()
        };
        let theirs: BTreeSet<String> = of(other).into_iter().collect();
        of(self).iter().filter(|sample| theirs.contains(*sample)).count()
    }

    /// Whether clients decrypt in it. A protocol that is not known counts as one in which they do.
    fn has_decryptors(&self) -> bool {
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.name() == self.protocol);
        known.is_none_or(|protocol| protocol.rules().has_decryptors())
    }

    /// What this session adds to an earlier one.
    fn adds(&self, earlier: &Self, shared: usize) -> String {
        let all = self.samples.len() / SAMPLE_DIGITS;
        let is_same = (&self.clients, self.models) == (&earlier.clients, earlier.models);
        let what = if !self.has_decryptors() {
            "everybody is told utilities of both; where the samples differ by few, the difference says how many of these few are predicted right"
        } else if is_same && earlier.has_decryptors() {
            "the same clients read about them again, and learn more as far as numbers are rounded otherwise"
        } else {
            "whoever decrypts reads about them under more models, and clients who read nothing then may now"
        };
        format!(
            "{shared} of {all} samples were in a session before (federation {}, {}, begun {}): {what}.",
            &earlier.federation.to_string()[..12],
            earlier.protocol,
            day(earlier.begun)
        )
    }
}

/// A silo's record.
pub(crate) struct Record {
    file: PathBuf,
    entries: Vec<SessionEntry>,
}

impl Record {
    /// Reads a record; there is none before the first session.
    pub fn open(file: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|source| failed(file, source))?,
        };
        let line = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| Error::Record {
                file: file.to_owned(),
                why: format!("line {}: expected a session, found {error}", number + 1),
            })
        };
        let entries = text.lines().enumerate().map(line).collect::<Result<_, _>>()?;
        Ok(Self { file: file.to_owned(), entries })
    }

    /// Enters a session that begins now. Another one over samples of an earlier one has to be told so: `again` is the answer.
    pub fn enter(&self, entry: &SessionEntry, kit: &Kit, again: Option<&str>) -> Result<(), Error> {
        if self.entries.iter().any(|earlier| earlier.is_same(entry)) {
            return Ok(());
        }
        // What came before the first of its rounds was accepted then.
        let is_round =
            |earlier: &SessionEntry| earlier.round.is_some() && earlier.federation == entry.federation;
        let accepted =
            self.entries.iter().position(|earlier| entry.round.is_some() && is_round(earlier)).unwrap_or(0);
        let added: Vec<String> = self.entries[accepted..]
            .iter()
            .filter(|earlier| !entry.goes_with(earlier))
            .map(|earlier| (earlier, entry.shares(earlier)))
            .filter(|(_, shared)| *shared > 0)
            .map(|(earlier, shared)| entry.adds(earlier, shared))
            .collect();
        if !added.is_empty() {
            let headline = entry.has_decryptors().then(|| HEADLINE.to_owned());
            let sentences = added.into_iter().chain(headline).collect();
            Question::new("--again", kit, sentences).answered(again)?;
        }
        self.append(entry).map_err(|source| failed(&self.file, source))
    }

    fn append(&self, entry: &SessionEntry) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.file)?;
        let line = serde_json::to_string(entry).map_err(io::Error::other)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }
}

fn failed(file: &Path, source: io::Error) -> Error {
    let why =
        format!("{source}; --record FILE keeps the record of sessions elsewhere, always in the same place");
    Error::Record { file: file.to_owned(), why }
}

fn samples(test_set: &TestSet) -> String {
    let size = test_set.features().len() / test_set.len().max(1);
    let digits = test_set.features().chunks(size.max(1)).map(|sample| {
        let mut hash = blake3::Hasher::new();
        add_numbers(&mut hash, sample);
        to_hex(hash.finalize().as_bytes())[..SAMPLE_DIGITS].to_owned()
    });
    digits.collect()
}

fn add_model(hash: &mut blake3::Hasher, model: &Weights) {
    for (name, tensor) in model.iter() {
        hash.update(name.as_bytes());
        hash.update(&tensor.to_le_bytes());
    }
}

fn add_numbers(hash: &mut blake3::Hasher, numbers: &[f32]) {
    for number in numbers {
        hash.update(&number.to_le_bytes());
    }
}

fn day(seconds: u64) -> String {
    let since = time::OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap_or_default());
    since.map_or_else(|_| seconds.to_string(), |at| at.date().to_string())
}

#[cfg(test)]
mod tests;

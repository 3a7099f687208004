//! Rounds on disk: their files, and a state directory for each.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use secsv_evaluation::EvaluationResult;
use secsv_federation::{FederationSpec, RoundFile, RoundId, round_path, write_atomically};
use serde::{Deserialize, Serialize};

use crate::{Error, audit::RESULT_FILE, journal};

/// A round's file as it was when the round began here.
const ACCEPTED: &str = "round.toml";
/// Why a round has no values.
const MISSED: &str = "missed.json";
/// Whether the model before the round is asked for, in a word.
const BEFORE: &str = "before";

/// How a round has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundEnd {
    Valued,
    Missed(String),
}

#[derive(Serialize, Deserialize)]
struct Missed {
    round: u32,
    why: String,
}

/// The rounds of one party.
pub(super) struct Rounds {
    files: PathBuf,
    state: PathBuf,
    spec: FederationSpec,
    /// Rounds that are over, and whether none comes after: neither changes any more.
    over: RefCell<BTreeMap<RoundId, (RoundEnd, bool)>>,
}

impl Rounds {
    pub(super) fn open(files: &Path, state: &Path, spec: &FederationSpec) -> Result<Self, Error> {
        let state_of_rounds = state.join(secsv_federation::ROUNDS);
        journal::private_directory(state)?;
        journal::private_directory(&state_of_rounds)?;
        Ok(Self {
            files: files.to_owned(),
            state: state_of_rounds,
            spec: spec.clone(),
            over: RefCell::default(),
        })
    }

    /// The most rounds there can be.
    pub(super) fn most(&self) -> u32 {
        self.spec.limits.map_or(self.spec.rounds, |limits| limits.rounds)
    }

    /// Where a round's state is.
    pub(super) fn state(&self, round: RoundId) -> PathBuf {
        self.state.join(format!("{:04}", round.0))
    }

    /// Rounds whose files are there, within the limits.
    pub(super) fn listed(&self) -> Result<BTreeSet<RoundId>, Error> {
        let mut listed = RoundFile::listed(&self.files)?;
        listed.retain(|round| round.0 <= self.most());
        Ok(listed)
    }

    /// Rounds with a state.
    pub(super) fn begun(&self) -> Result<BTreeSet<RoundId>, Error> {
        let failed = |source| Error::System { what: "the state directory", source };
        let mut begun = BTreeSet::new();
        for entry in fs::read_dir(&self.state).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            begun.extend(name.to_str().and_then(|name| name.parse().ok()).map(RoundId));
        }
        Ok(begun)
    }

    /// The round's file as it was when the round began here; what comes later under its name changes nothing.
    pub(super) fn accept(&self, round: RoundId) -> Result<RoundFile, Error> {
        let kept = self.state(round).join(ACCEPTED);
        if let Ok(text) = fs::read_to_string(&kept) {
            return Ok(RoundFile::parse(&text, &kept, &self.spec)?);
        }
        let file = RoundFile::read(&self.files, round, &self.spec)?;
        let text = file.to_toml().map_err(|_| crate::party::local("a round that can be written"))?;
        self.write(round, ACCEPTED, text.as_bytes())?;
        Ok(file)
    }

    /// Where a round's file says something else than what the round began with, if it does.
    pub(super) fn change(&self, round: RoundId) -> Option<String> {
        let kept = self.state(round).join(ACCEPTED);
        let kept = RoundFile::parse(&fs::read_to_string(&kept).ok()?, &kept, &self.spec).ok()?;
        let path = round_path(&self.files, round);
        let found = match RoundFile::read(&self.files, round, &self.spec) {
            Ok(found) if found == kept => return None,
            Ok(found) => found,
            Err(error) => return path.exists().then(|| error.to_string()),
        };
        let clients =
            self.spec.ids().zip(kept.weights(&self.spec).into_iter().zip(found.weights(&self.spec)));
        let said = |weight: Option<f64>| weight.map_or("none".to_owned(), |weight| weight.to_string());
        let differs = clients.into_iter().find(|(_, (own, other))| own != other);
        let field = differs.map_or("last differs".to_owned(), |(id, (own, other))| {
            format!("clients.{id}: expected weight {} as before, found {}", said(own), said(other))
        });
        Some(format!("{}: {field}", path.display()))
    }

    /// When a round's file came.
    pub(super) fn came(&self, round: RoundId) -> Option<SystemTime> {
        fs::metadata(round_path(&self.files, round)).ok()?.modified().ok()
    }

    /// Whether the model before a round is asked for, if that was decided.
    pub(super) fn needs_before(&self, round: RoundId) -> Option<bool> {
        fs::read_to_string(self.state(round).join(BEFORE)).ok().map(|word| word == "needed")
    }

    /// Decides that once.
    pub(super) fn decide_before(&self, round: RoundId, is_needed: bool) -> Result<(), Error> {
        self.write(round, BEFORE, if is_needed { b"needed" } else { b"known" })
    }

    /// How a round has ended; none if it has not.
    pub(super) fn end(&self, round: RoundId) -> Result<Option<RoundEnd>, Error> {
        if let Some((end, _)) = self.over.borrow().get(&round) {
            return Ok(Some(end.clone()));
        }
        let state = self.state(round);
        let missed =
            || fs::read(state.join(MISSED)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let end = match journal::has_ended(&state)? {
            true => Some(RoundEnd::Valued),
            false => missed().map(|missed: Missed| RoundEnd::Missed(missed.why)),
        };
        if let Some(end) = &end {
            self.over.borrow_mut().insert(round, (end.clone(), self.says_last(round)));
        }
        Ok(end)
    }

    /// Whether a round is over, and none comes after it.
    pub(super) fn is_last(&self, round: RoundId) -> Result<bool, Error> {
        let is_over = self.end(round)?.is_some();
        Ok(is_over && self.over.borrow().get(&round).is_some_and(|(_, is_last)| *is_last))
    }

    fn says_last(&self, round: RoundId) -> bool {
        let kept = self.state(round).join(ACCEPTED);
        let file = fs::read_to_string(&kept).ok();
        let says_so = |text: String| RoundFile::parse(&text, &kept, &self.spec).is_ok_and(|file| file.last);
        round.0 == self.most() || file.is_some_and(says_so)
    }

    /// Gives a round up: nothing secret of it stays.
    pub(super) fn miss(&self, round: RoundId, why: &str) -> Result<(), Error> {
        let missed = Missed { round: round.0, why: why.to_owned() };
        let json =
            serde_json::to_vec(&missed).map_err(|_| crate::party::local("words that can be written"))?;
        self.write(round, MISSED, &json)?;
        Ok(journal::give_up(&self.state(round))?)
    }

    /// The result of a round that was valued, at the principal.
    pub(super) fn result(&self, round: RoundId) -> Option<EvaluationResult> {
        serde_json::from_slice(&fs::read(self.state(round).join(RESULT_FILE)).ok()?).ok()
    }

    fn write(&self, round: RoundId, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let state = self.state(round);
        journal::private_directory(&state)?;
        let failed = |source| Error::System { what: "the state directory", source };
        write_atomically(&state.join(name), bytes).map_err(failed)
    }
}

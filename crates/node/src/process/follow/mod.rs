//! Rounds that are valued while training goes on: a session for each over the same kit, one after the other. A round begins when its
//! file and this party's own files are there; the principal says which round is on.

mod live;
mod others;
mod principal;
mod rounds;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use secsv_evaluation::EvaluationResult;
use secsv_federation::{RoundId, write_atomically};
use secsv_protocol::{PartyId, TestResult};

pub(super) use live::Live;
pub use live::LiveEvent;
pub use others::{ClientFollow, follow_auxiliary, follow_client};
pub use principal::{PrincipalFollow, follow_principal};

use super::{NodeOptions, PublishedValues, RunFacts, ended};
use crate::{Error, kit::Kit, status::LiveRound};
use rounds::{RoundEnd, Rounds};

/// How often it is looked for files.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Rounds before the last one whose files are looked at for changes.
const WATCHED: usize = 4;

/// What a process is told that follows a training.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// The kit.
    pub kit: PathBuf,
    /// What every process is told.
    pub node: NodeOptions,
    /// Where rounds' files come.
    pub rounds: PathBuf,
    /// How long a round waits without anything new: for a party, for a file, for an earlier round.
    pub late: Duration,
    /// Where values go, if anywhere.
    pub values: Option<PathBuf>,
    /// The program that results say they were made by.
    pub made_by: String,
}

/// What the session of one round is told beside.
pub(super) struct Followed {
    pub(super) live: Arc<Live>,
    pub(super) late: Duration,
    /// What the model before the round gave as that of everybody in the round before: at the principal.
    pub(super) before: Option<TestResult>,
    /// Whether the model before the round is not asked for: at clients.
    pub(super) inherits: bool,
}

/// One party that follows.
struct Follower<'a> {
    options: &'a FollowOptions,
    kit: Kit,
    rounds: Rounds,
    live: Arc<Live>,
    tell: &'a mut dyn FnMut(&LiveEvent),
    /// What was said of files that changed.
    said: Option<String>,
}

impl<'a> Follower<'a> {
    fn open(options: &'a FollowOptions, tell: &'a mut dyn FnMut(&LiveEvent)) -> Result<Self, Error> {
        let kit = Kit::open(&options.kit)?;
        if !kit.federation.federation.comes_later() {
            return Err(Error::data(
                "kit",
                "one whose rounds come later (limits, and no rounds)",
                "one with rounds",
            ));
        }
        let rounds = Rounds::open(&options.rounds, &options.node.state, &kit.federation.federation)?;
        let live = Live::start(&kit, &options.node)?;
        if let Some(values) = &options.values {
            let failed = |source| Error::System { what: "the directory of values", source };
            std::fs::create_dir_all(values).map_err(failed)?;
        }
        let mut follower = Self { options, kit, rounds, live, tell, said: None };
        for round in follower.rounds.begun()? {
            follower.remember(round)?;
        }
        Ok(follower)
    }

    /// Notes a round that an earlier process has ended: whoever listens has heard of it, but its file may not be written yet.
    fn remember(&mut self, round: RoundId) -> Result<(), Error> {
        let (missed, result) = match self.rounds.end(round)? {
            None => return Ok(()),
            Some(RoundEnd::Missed(why)) => (Some(why), None),
            Some(RoundEnd::Valued) => (None, self.result(round)?),
        };
        let values = result.as_ref().map(|result| result.fsv.clone()).unwrap_or_default();
        self.live.note(LiveRound { round: round.0, values, seconds: None, missed });
        let name = format!("round-{:04}.json", round.0);
        let is_written = self.options.values.as_ref().is_none_or(|values| values.join(&name).exists());
        match result.filter(|_| !is_written) {
            Some(result) => self.write(&name, &result),
            None => Ok(()),
        }
    }

    /// The result of a round that was valued, as far as this party has it.
    fn result(&self, round: RoundId) -> Result<Option<EvaluationResult>, Error> {
        if self.kit.own == PartyId::Principal {
            return Ok(self.rounds.result(round));
        }
        let kit = Kit::open(&self.options.kit)?.of_round(&self.rounds.accept(round)?)?;
        let values = ended::ended(&kit, &self.rounds.state(round))?;
        let values = values.map(|bytes| PublishedValues::decode(&bytes)).transpose()?;
        let facts = RunFacts::of(&kit)?;
        Ok(values.map(|values| values.into_result(facts, &self.options.made_by)))
    }

    /// What the sessions of rounds are told: pages and signals are this process's, not theirs.
    fn node(&self, round: RoundId) -> NodeOptions {
        let NodeOptions { listen, .. } = self.options.node.clone();
        NodeOptions { state: self.rounds.state(round), listen, status: None }
    }

    /// Keeps a round's result where it is wanted, and tells of it.
    fn keep(&mut self, round: RoundId, result: &EvaluationResult) -> Result<(), Error> {
        self.write(&format!("round-{:04}.json", round.0), result)?;
        let seconds = self.rounds.came(round).and_then(|came| came.elapsed().ok());
        let seconds = seconds.map(|seconds| seconds.as_secs_f64());
        let over = LiveRound { round: round.0, values: result.fsv.clone(), seconds, missed: None };
        let event = self.live.note(over);
        if let LiveEvent::Round { totals, .. } = &event {
            self.write("totals.json", &serde_json::json!({ "rounds": round.0, "totals": totals }))?;
        }
        tracing::info!(round = round.0, seconds, "valued");
        (self.tell)(&event);
        Ok(())
    }

    /// Gives a round up, and says why.
    fn miss(&mut self, round: RoundId, why: String) -> Result<(), Error> {
        tracing::warn!(round = round.0, why, "a round without values");
        self.rounds.miss(round, &why)?;
        let over = LiveRound { round: round.0, values: Default::default(), seconds: None, missed: Some(why) };
        let event = self.live.note(over);
        self.write(&format!("round-{:04}.missed.json", round.0), &event)?;
        (self.tell)(&event);
        Ok(())
    }

    /// Writes a file into the directory of values, by rename.
    fn write(&self, name: &str, value: &impl serde::Serialize) -> Result<(), Error> {
        let Some(values) = &self.options.values else { return Ok(()) };
        let failed = |source| Error::System { what: "the directory of values", source };
        let json = serde_json::to_vec(value).map_err(|error| failed(error.into()))?;
        write_atomically(&values.join(name), &json).map_err(failed)
    }

    /// Looks whether a round that began has another file now: that is said once, and changes nothing.
    fn look_for_changes(&mut self) -> Result<(), Error> {
        let begun = self.rounds.begun()?;
        let change = begun.iter().rev().take(WATCHED).find_map(|round| self.rounds.change(*round));
        if change.is_some() && change != self.said {
            tracing::warn!(
                file = change.as_deref(),
                "a round's file has other content now, which is refused: the round stays as it began"
            );
        }
        self.said = change;
        Ok(())
    }

    fn pause(&self) -> Result<(), Error> {
        std::thread::sleep(LOOK_INTERVAL);
        self.live.check()
    }
}

/// Whether an error is about one round, and leaves the process as it is.
fn is_of_round(error: &Error) -> bool {
    match error {
        Error::Evaluation(_)
        | Error::Federation(_)
        | Error::Role(_)
        | Error::Data { .. }
        | Error::Late { .. }
        | Error::OtherRound { .. } => true,
        Error::Journal(error) => error.is_bad_input(),
        Error::Kit(_)
        | Error::Audit(_)
        | Error::Tls(_)
        | Error::Consent(_)
        | Error::Record { .. }
        | Error::System { .. }
        | Error::NoLink { .. }
        | Error::Stopped => false,
    }
}

/// Where a round's model is, for people.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

//! The auxiliary and the clients: they take part in the round that the principal says is on, as soon as they have its files.

use std::path::{Path, PathBuf};

use secsv_federation::{ClientId, RoundFile, RoundId, RunDirectory};
use secsv_protocol::PartyId;

use super::{
    super::{ClientOptions, PublishedValues, RunFacts, client, server},
    FollowOptions, Followed, Follower, LiveEvent, is_of_round,
    rounds::RoundEnd,
    shown,
};
use crate::{Error, consent::Question, kit::Kit};

/// What a client is told beside.
#[derive(Clone, Debug)]
pub struct ClientFollow {
    /// This silo's part of a run directory.
    pub data: PathBuf,
    /// See [`ClientOptions::accept_exposure`]: once for all rounds.
    pub accept_exposure: Option<String>,
    /// See [`ClientOptions::accept_few_samples`].
    pub accept_few_samples: bool,
    /// See [`ClientOptions::record`].
    pub record: Option<PathBuf>,
    /// See [`ClientOptions::again`].
    pub again: Option<String>,
}

/// Takes part in every round that comes, as the auxiliary.
pub fn follow_auxiliary(options: &FollowOptions, tell: &mut dyn FnMut(&LiveEvent)) -> Result<(), Error> {
    let mut follower = Follower::open(options, tell)?;
    if follower.kit.own != PartyId::Auxiliary {
        return Err(Error::data("kit", "the auxiliary's", follower.kit.own_name()));
    }
    follower.follow(&Part::Auxiliary)
}

/// Takes part in every round that comes, as a client.
pub fn follow_client(
    options: &FollowOptions,
    of: &ClientFollow,
    tell: &mut dyn FnMut(&LiveEvent),
) -> Result<(), Error> {
    let mut follower = Follower::open(options, tell)?;
    let PartyId::Client(position) = follower.kit.own else {
        return Err(Error::data("kit", "a client's", follower.kit.own_name()));
    };
    if let Some(question) = Question::exposure(&follower.kit)? {
        question.answered(of.accept_exposure.as_deref())?;
    }
    let id = follower.kit.federation.federation.clients[position].id.clone();
    follower.follow(&Part::Client(id, of))
}

/// Whose part is taken.
enum Part<'a> {
    Auxiliary,
    Client(ClientId, &'a ClientFollow),
}

impl Part<'_> {
    /// Whether a round is valued without this party.
    fn is_absent(&self, file: &RoundFile) -> bool {
        matches!(self, Self::Client(id, _) if file.without.contains(id))
    }
}

impl Follower<'_> {
    fn follow(&mut self, part: &Part<'_>) -> Result<(), Error> {
        let mut told: Option<RoundId> = None;
        loop {
            self.live.check()?;
            self.look_for_changes()?;
            if self.is_over()? {
                return Ok(());
            }
            let Some((file, inherits)) = self.choose(part, told)? else {
                self.pause()?;
                continue;
            };
            match self.take_part(part, &file, inherits) {
                Ok(()) => told = None,
                Err(Error::OtherRound { round }) if round == file.round => {}
                Err(Error::OtherRound { round }) => {
                    told = Some(round);
                    self.heed(part, round, file.round)?;
                }
                Err(error) if is_of_round(&error) => self.miss(file.round, error.to_string())?,
                Err(error) => return Err(error),
            }
            self.pause()?;
        }
    }

    /// Goes where the principal is: rounds before that are over, one that this party has ended may be missed there.
    fn heed(&mut self, part: &Part<'_>, on: RoundId, own: RoundId) -> Result<(), Error> {
        for round in self.known()?.into_iter().filter(|round| *round < on) {
            if self.rounds.end(round)?.is_none() {
                self.miss(round, format!("the principal went on to round {}", on.0))?;
            }
        }
        if on < own && self.rounds.end(on)? == Some(RoundEnd::Valued) {
            let file = self.rounds.accept(on)?;
            match self.session(part, &file, false) {
                Ok(_) => {}
                Err(error) if is_of_round(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn known(&self) -> Result<Vec<RoundId>, Error> {
        Ok(self.rounds.listed()?.union(&self.rounds.begun()?).copied().collect())
    }

    fn is_over(&self) -> Result<bool, Error> {
        for round in self.rounds.begun()? {
            if self.rounds.is_last(round)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The round that the principal is in, or the earliest one of which everything is there.
    fn choose(&mut self, part: &Part<'_>, told: Option<RoundId>) -> Result<Option<(RoundFile, bool)>, Error> {
        let mut found = None;
        let mut waiting = None;
        for round in self.known()? {
            if self.rounds.end(round)?.is_some() {
                continue;
            }
            let file = match self.rounds.accept(round) {
                Ok(file) => file,
                Err(Error::Federation(error)) => {
                    waiting.get_or_insert(error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            if part.is_absent(&file) {
                self.miss(round, "the round does without this client".to_owned())?;
                continue;
            }
            match self.readiness(part, &file)? {
                Ok(inherits) if told == Some(round) => return Ok(Some((file, inherits))),
                Ok(inherits) => drop(found.get_or_insert((file, inherits))),
                Err(missing) => drop(waiting.get_or_insert(missing)),
            }
        }
        if let Some(what) = waiting.or_else(|| found.is_none().then(|| "the next round's file".to_owned())) {
            self.live.wait_for(&what);
        }
        Ok(found)
    }

    /// Whether the round takes the model before it from the round before, or what is not there yet.
    fn readiness(&self, part: &Part<'_>, file: &RoundFile) -> Result<Result<bool, String>, Error> {
        let Part::Client(id, of) = part else { return Ok(Ok(true)) };
        let own = own_file(&of.data, id, file.round);
        if file.clients.iter().any(|participant| participant.id == *id) && !own.is_file() {
            return Ok(Err(shown(&own)));
        }
        if let Some(is_needed) = self.rounds.needs_before(file.round) {
            return Ok(Ok(!is_needed));
        }
        let before = file_before(&of.data, file.round);
        let is_needed = before.is_file();
        if !is_needed && !self.inherits(file)? {
            return Ok(Err(shown(&before)));
        }
        self.rounds.decide_before(file.round, is_needed)?;
        Ok(Ok(!is_needed))
    }

    /// Whether the principal knows what the model before a round gave.
    fn inherits(&self, file: &RoundFile) -> Result<bool, Error> {
        let is_exact = self.kit.federation.session.estimator == "exact";
        let Some(earlier) = file.round.0.checked_sub(1).filter(|earlier| *earlier > 0 && is_exact) else {
            return Ok(false);
        };
        let is_valued = self.rounds.end(RoundId(earlier))? == Some(RoundEnd::Valued);
        Ok(is_valued && self.rounds.accept(RoundId(earlier))?.without == file.without)
    }

    fn take_part(&mut self, part: &Part<'_>, file: &RoundFile, inherits: bool) -> Result<(), Error> {
        let (values, facts) = self.session(part, file, inherits)?;
        let result = values.into_result(facts, &self.options.made_by);
        self.keep(file.round, &result)
    }

    fn session(
        &self,
        part: &Part<'_>,
        file: &RoundFile,
        inherits: bool,
    ) -> Result<(PublishedValues, RunFacts), Error> {
        let kit = Kit::open(&self.options.kit)?.of_round(file)?;
        let facts = RunFacts::of(&kit)?;
        let followed = Followed { live: self.live.clone(), late: self.options.late, before: None, inherits };
        let node = self.node(file.round);
        let values = match part {
            Part::Auxiliary => server::run(kit, &node, Some(&followed)),
            Part::Client(_, of) => {
                let options = ClientOptions {
                    node,
                    accept_exposure: None,
                    accept_few_samples: of.accept_few_samples,
                    record: of.record.clone(),
                    again: of.again.clone(),
                };
                client::run(kit, &RunDirectory::open(&of.data)?, &options, (Some(&followed), &mut |_| {}))
            }
        };
        Ok((values?, facts))
    }
}

fn own_file(data: &Path, id: &ClientId, round: RoundId) -> PathBuf {
    data.join("clients").join(id.as_str()).join(format!("round-{:04}.safetensors", round.0))
}

fn file_before(data: &Path, round: RoundId) -> PathBuf {
    match round.0 {
        0 | 1 => data.join("initial.safetensors"),
        later => data.join("global").join(format!("round-{:04}.safetensors", later - 1)),
    }
}

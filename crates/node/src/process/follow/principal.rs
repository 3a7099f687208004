//! The principal: which round is on, and its values.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use secsv_federation::{ClientId, RoundFile, RoundId};
use secsv_protocol::TestResult;

use super::{
    super::{PrincipalOptions, principal},
    FollowOptions, Followed, Follower, LiveEvent, is_of_round,
    rounds::RoundEnd,
};
use crate::{Error, kit::Kit};
use secsv_evaluation::{EvaluationResult, UtilityResult};

/// The longest that clients who have left before the values came are waited for.
const DELIVERY: Duration = Duration::from_secs(30);

/// What the principal is told beside.
#[derive(Clone, Debug)]
pub struct PrincipalFollow {
    /// After how long a client counts as away.
    pub away_after: Duration,
}

/// What comes next.
enum Next {
    Ready(Box<RoundFile>),
    /// A file that is waited for.
    Wait(String),
    /// It is waited for, and later rounds are there.
    Gap(RoundId, String),
    Over,
}

/// Values every round that comes, in order, until the last one: `tell` hears of each.
pub fn follow_principal(
    options: &FollowOptions,
    of: &PrincipalFollow,
    tell: &mut dyn FnMut(&LiveEvent),
) -> Result<(), Error> {
    let mut follower = Follower::open(options, tell)?;
    if follower.kit.own != secsv_protocol::PartyId::Principal {
        return Err(Error::data("kit", "the principal's", follower.kit.own_name()));
    }
    let mut stuck: Option<(RoundId, Instant)> = None;
    loop {
        follower.live.check()?;
        follower.look_for_changes()?;
        match follower.next()? {
            Next::Over => return Ok(()),
            Next::Ready(file) => {
                follower.value(&file, of)?;
                continue;
            }
            Next::Wait(what) => follower.live.wait_for(&what),
            Next::Gap(round, what) => {
                follower.live.wait_for(&what);
                let since =
                    stuck.filter(|(of, _)| *of == round).map_or_else(Instant::now, |(_, since)| since);
                stuck = Some((round, since));
                if since.elapsed() > options.late {
                    follower.miss(round, format!("waited {} s for {what}", options.late.as_secs()))?;
                }
            }
        }
        follower.pause()?;
    }
}

impl Follower<'_> {
    fn next(&self) -> Result<Next, Error> {
        let mut round = RoundId(1);
        while self.rounds.end(round)?.is_some() {
            if self.rounds.is_last(round)? {
                return Ok(Next::Over);
            }
            round = RoundId(round.0 + 1);
        }
        let listed = self.rounds.listed()?;
        let name = format!("rounds/{:04}.toml", round.0);
        if listed.contains(&round) || self.rounds.begun()?.contains(&round) {
            return Ok(match self.rounds.accept(round) {
                Ok(file) => Next::Ready(Box::new(file)),
                Err(error @ (Error::Federation(_) | Error::Kit(_))) => Next::Gap(round, error.to_string()),
                Err(error) => return Err(error),
            });
        }
        let has_later = listed.range(round..).next().is_some();
        Ok(if has_later { Next::Gap(round, name) } else { Next::Wait(name) })
    }

    /// Values a round. What goes wrong with it alone leaves it without values.
    fn value(&mut self, file: &RoundFile, of: &PrincipalFollow) -> Result<(), Error> {
        let round = file.round;
        let kit = match Kit::open(&self.options.kit)?.of_round(file) {
            Ok(kit) => kit,
            Err(error) if error.is_bad_input() => return self.miss(round, error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let followed = Followed {
            live: self.live.clone(),
            late: self.options.late,
            before: self.before(file)?,
            inherits: false,
        };
        let options = PrincipalOptions {
            node: self.node(round),
            away_after: of.away_after,
            wait_to_deliver: DELIVERY.min(self.options.late),
            made_by: self.options.made_by.clone(),
        };
        let keep = |result: &EvaluationResult| self.keep(round, result);
        match principal::run(kit, &options, Some(&followed), |_| {}, keep) {
            Ok(_) => Ok(()),
            Err(error) if is_of_round(&error) => self.miss(round, error.to_string()),
            Err(error) => Err(error),
        }
    }

    /// What the model before a round gave: that of everybody in the round before, if that was valued on the same samples.
    fn before(&self, file: &RoundFile) -> Result<Option<TestResult>, Error> {
        let Some(earlier) = file.round.0.checked_sub(1).filter(|earlier| *earlier > 0).map(RoundId) else {
            return Ok(None);
        };
        if self.rounds.end(earlier)? != Some(RoundEnd::Valued) {
            return Ok(None);
        }
        let before = self.rounds.accept(earlier)?;
        let result = self.rounds.result(earlier).filter(|_| before.without == file.without);
        Ok(result.and_then(|result| of_everybody(&result, &before)))
    }
}

/// How the model of everybody did.
fn of_everybody(result: &EvaluationResult, file: &RoundFile) -> Option<TestResult> {
    let everybody: BTreeSet<&ClientId> = file.clients.iter().map(|participant| &participant.id).collect();
    let is_it = |utility: &&UtilityResult| {
        utility.round == file.round && utility.coalition.iter().collect::<BTreeSet<_>>() == everybody
    };
    let found = result.utilities.iter().find(is_it)?;
    let classes = found.correct_of_classes.iter().zip(&result.class_samples);
    let of_classes =
        classes.map(|(&right, &samples)| secsv_protocol::ClassCount { right, samples }).collect();
    Some(TestResult { correct: found.correct, right: None, overflows: None, of_classes })
}

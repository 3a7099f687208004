//! Plan, absorb, finish: the one shape all methods have.

use std::{collections::HashSet, time::Duration};

use secsv_federation::Coalition;

use crate::{
    ClientValues, Error, UtilityTable,
    utility::{MAX_EXACT_CLIENTS, everybody},
    values::Estimate,
};

/// A method at work on one game. It never learns how a utility was computed.
///
/// ```text
/// loop { let batch = estimator.next_batch(elapsed)?; if batch.is_empty() { break }
///        for coalition in batch { estimator.absorb(coalition, test(coalition))? } }
/// estimator.finish()?
/// ```
pub trait Estimator: Send {
    /// Everybody the game is about.
    fn players(&self) -> Coalition;

    /// The coalitions whose utilities are wanted next, in an order that puts subsets first; none when the
    /// plan is complete or the stopping rule holds. A coalition is asked for at most once, and never if it is
    /// known already. `elapsed` is the caller's clock since the start, for the stopping rule.
    fn next_batch(&mut self, elapsed: Duration) -> Result<Vec<Coalition>, Error>;

    /// Takes one utility, in any order within a batch. Utilities that are known beforehand (the empty
    /// coalition's, say) may be handed over without being asked for; they are not counted as tests.
    fn absorb(&mut self, coalition: Coalition, utility: f64) -> Result<(), Error>;

    /// The values from what has been absorbed so far.
    fn finish(&self) -> Result<ClientValues, Error>;

    /// Everything absorbed so far.
    fn utilities(&self) -> &UtilityTable;

    /// Whether the method's own criterion says that this round decides nothing (GTG-Shapley's truncation
    /// between rounds).
    fn is_round_skipped(&self) -> bool {
        false
    }
}

/// When a sampling method stops before its plan is complete. Whatever it says, the first sampling steps that
/// give a standard error are made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StopRule {
    /// Stop when no client's standard error is larger.
    pub standard_error: Option<f64>,
    /// Stop when the caller's clock says that much.
    pub elapsed: Option<Duration>,
    /// Never ask for more utilities than this.
    pub tests: Option<usize>,
}

/// Utilities that a plan may look at: those that are known, and those on their way.
pub(crate) struct KnownUtilities<'a> {
    pub(crate) table: &'a UtilityTable,
    asked: &'a CoalitionSet,
    /// Number of coalitions that may still be asked for.
    pub(crate) room: usize,
}

impl KnownUtilities<'_> {
    /// Number of the `wanted` coalitions that would have to be asked for, a repeated one counted once.
    pub(crate) fn missing(&self, wanted: &[u128]) -> usize {
        let mut fresh: Vec<u128> =
            wanted.iter().copied().filter(|&bits| !self.asked.contains(bits)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        fresh.len()
    }

    /// Nobody and everybody, as long as they are not asked for; an error if `method`, which needs `needed` tests, has no room for
    /// them.
    pub(crate) fn ends_first(
        &self,
        clients: usize,
        method: &'static str,
        needed: impl FnOnce(usize) -> usize,
    ) -> Result<Option<Vec<u128>>, Error> {
        let ends = vec![0, everybody(clients)];
        match self.missing(&ends) {
            0 => Ok(None),
            missing if missing <= self.room => Ok(Some(ends)),
            missing => Err(Error::Budget { method, expected: needed(missing), found: self.room }),
        }
    }
}

/// The part of a method that is its own: which utilities, and what they make. Coalitions are in the plan's
/// numbering.
pub(crate) trait SamplingPlan: Send {
    /// The next piece of work, known utilities included, or `None` if nothing more is wanted or fits the
    /// room. A piece whose utilities are all known may follow another: pieces count, not tests.
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error>;

    /// Everything proposed so far is now in the table.
    fn settle(&mut self, _table: &UtilityTable) -> Result<(), Error> {
        Ok(())
    }

    /// The largest standard error, once enough is settled to trust it.
    fn worst_error(&self, _table: &UtilityTable) -> Option<f64> {
        None
    }

    /// Whether what is settled gives values.
    fn has_values(&self) -> bool;

    /// The values.
    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error>;

    /// See [`Estimator::is_round_skipped`].
    fn is_round_skipped(&self) -> bool {
        false
    }
}

/// With an error to stop at, a batch goes out after this many pieces that need nothing new: what is known by
/// then may be enough.
const MAX_IDLE_PIECES: usize = 16;

/// A plan together with its utilities: asks for each coalition once and applies the stopping rule.
pub(crate) struct EstimatorSession<P> {
    plan: P,
    table: UtilityTable,
    asked: CoalitionSet,
    waiting: usize,
    tests: usize,
    stop: StopRule,
    batch: usize,
}

impl<P: SamplingPlan> EstimatorSession<P> {
    pub(crate) fn new(plan: P, players: Coalition, stop: StopRule, batch: usize) -> Result<Self, Error> {
        let table = UtilityTable::new(players)?;
        let asked = CoalitionSet::new(players.len());
        Ok(Self { plan, table, asked, waiting: 0, tests: 0, stop, batch: batch.max(1) })
    }

    fn is_enough(&self, elapsed: Duration) -> bool {
        if !self.plan.has_values() {
            return false;
        }
        let is_late = self.stop.elapsed.is_some_and(|limit| elapsed >= limit);
        let is_sure = || {
            let target = self.stop.standard_error?;
            Some(self.plan.worst_error(&self.table)? <= target)
        };
        is_late || is_sure().unwrap_or(false)
    }
}

impl<P: SamplingPlan> Estimator for EstimatorSession<P> {
    fn players(&self) -> Coalition {
        self.table.players()
    }

    fn next_batch(&mut self, elapsed: Duration) -> Result<Vec<Coalition>, Error> {
        if self.waiting > 0 {
            return Err(Error::Unanswered { waiting: self.waiting });
        }
        self.plan.settle(&self.table)?;
        let mut batch = Vec::new();
        let mut idle = 0;
        while batch.len() < self.batch && idle < MAX_IDLE_PIECES {
            if batch.is_empty() && self.is_enough(elapsed) {
                break;
            }
            let room = self.stop.tests.unwrap_or(usize::MAX).saturating_sub(self.tests + batch.len());
            let known = KnownUtilities { table: &self.table, asked: &self.asked, room };
            let Some(piece) = self.plan.propose(&known)? else { break };
            let before = batch.len();
            batch.extend(piece.into_iter().filter(|&packed| self.asked.insert(packed)));
            if batch.is_empty() {
                self.plan.settle(&self.table)?;
            } else if batch.len() == before && self.stop.standard_error.is_some() {
                idle += 1;
            }
        }
        batch.sort_by_key(|packed| packed.count_ones());
        self.waiting = batch.len();
        Ok(batch.into_iter().map(|packed| self.table.numbering().unpack(packed)).collect())
    }

    fn absorb(&mut self, coalition: Coalition, utility: f64) -> Result<(), Error> {
        let packed = self.table.numbering().pack(coalition)?;
        let is_new = self.table.at(packed).is_none();
        self.table.insert(coalition, utility)?;
        let was_asked = !self.asked.insert(packed);
        if is_new && was_asked {
            self.waiting -= 1;
            self.tests += 1;
        }
        Ok(())
    }

    fn finish(&self) -> Result<ClientValues, Error> {
        let estimate = self.plan.estimate(&self.table)?;
        Ok(ClientValues::new(self.table.players(), estimate, self.tests))
    }

    fn utilities(&self) -> &UtilityTable {
        &self.table
    }

    fn is_round_skipped(&self) -> bool {
        self.plan.is_round_skipped()
    }
}

/// Packed coalitions, as bits where they all fit.
enum CoalitionSet {
    Dense(Vec<bool>),
    Sparse(HashSet<u128>),
}

impl CoalitionSet {
    fn new(players: usize) -> Self {
        if players <= MAX_EXACT_CLIENTS {
            Self::Dense(vec![false; 1 << players])
        } else {
            Self::Sparse(HashSet::new())
        }
    }

    fn contains(&self, packed: u128) -> bool {
        match self {
            Self::Dense(flags) => flags[packed as usize],
            Self::Sparse(set) => set.contains(&packed),
        }
    }

    /// Whether it was not in the set before.
    fn insert(&mut self, packed: u128) -> bool {
        match self {
            Self::Dense(flags) => !std::mem::replace(&mut flags[packed as usize], true),
            Self::Sparse(set) => set.insert(packed),
        }
    }
}

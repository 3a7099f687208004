//! Methods that ask for all their coalitions at once.

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    values::Estimate,
};

/// The part of such a method that is its own. Coalitions are in the plan's numbering.
pub(crate) trait FixedPlan: Send {
    /// The method's name.
    fn method(&self) -> &'static str;

    /// Coalitions whose utilities the values follow from.
    fn wanted(&self) -> Vec<u128>;

    /// The values.
    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error>;
}

/// A fixed plan as a sampling plan that proposes once: there are values when everything is there, not before.
pub(crate) struct AskOnce<P> {
    plan: P,
    asked: bool,
}

impl<P> AskOnce<P> {
    pub(crate) fn new(plan: P) -> Self {
        Self { plan, asked: false }
    }
}

impl<P: FixedPlan> SamplingPlan for AskOnce<P> {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        if std::mem::replace(&mut self.asked, true) {
            return Ok(None);
        }
        all_or_budget(self.plan.method(), self.plan.wanted(), known).map(Some)
    }

    fn has_values(&self) -> bool {
        false
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        self.plan.estimate(table)
    }
}

/// The whole list, or an error if the tests allowed don't cover it.
fn all_or_budget(
    method: &'static str,
    wanted: Vec<u128>,
    known: &KnownUtilities<'_>,
) -> Result<Vec<u128>, Error> {
    if known.room < wanted.len() {
        let missing = known.missing(&wanted);
        if known.room < missing {
            return Err(Error::Budget { method, expected: missing, found: known.room });
        }
    }
    Ok(wanted)
}

//! Leave-one-out: what everybody together loses without the client, v(I) - v(I without i). n + 1 tests; two
//! clients with the same data both get nothing.

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    semivalue::all_or_budget,
    utility::everybody,
    values::Estimate,
};

/// Everybody, and everybody but one.
pub(crate) struct LeaveOneOut {
    method: &'static str,
    clients: usize,
    asked: bool,
}

impl LeaveOneOut {
    pub(crate) fn new(method: &'static str, clients: usize) -> Self {
        Self { method, clients, asked: false }
    }
}

impl SamplingPlan for LeaveOneOut {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        if std::mem::replace(&mut self.asked, true) {
            return Ok(None);
        }
        let all = everybody(self.clients);
        let wanted = (0..self.clients).map(|client| all & !(1 << client)).chain([all]).collect();
        all_or_budget(self.method, wanted, known).map(Some)
    }

    fn settle(&mut self, _table: &UtilityTable) -> Result<(), Error> {
        Ok(())
    }

    fn worst_error(&self, _table: &UtilityTable) -> Option<f64> {
        None
    }

    fn has_values(&self) -> bool {
        false
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let all = everybody(self.clients);
        let whole = table.need(all)?;
        let without = |client: usize| Ok(whole - table.need(all & !(1 << client))?);
        Ok(Estimate::exact((0..self.clients).map(without).collect::<Result<_, Error>>()?))
    }
}

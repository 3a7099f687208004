//! Leave-one-out: what everybody together loses without the client, v(I) - v(I without i). n + 1 tests; two
//! clients with the same data both get nothing.

use crate::{Error, UtilityTable, ask_once::FixedPlan, utility::everybody, values::Estimate};

/// Everybody, and everybody but one.
pub(crate) struct LeaveOneOut {
    method: &'static str,
    clients: usize,
}

impl LeaveOneOut {
    pub(crate) fn new(method: &'static str, clients: usize) -> Self {
        Self { method, clients }
    }
}

impl FixedPlan for LeaveOneOut {
    fn method(&self) -> &'static str {
        self.method
    }

    fn wanted(&self) -> Vec<u128> {
        let all = everybody(self.clients);
        (0..self.clients).map(|client| all & !(1 << client)).chain([all]).collect()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let all = everybody(self.clients);
        let whole = table.need(all)?;
        let without = |client: usize| Ok(whole - table.need(all & !(1 << client))?);
        Ok(Estimate::exact((0..self.clients).map(without).collect::<Result<_, Error>>()?))
    }
}

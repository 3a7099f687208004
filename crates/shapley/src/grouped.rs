//! Group SV (Ma et al. 2021): clients are put into random groups, the groups are valued exactly, and the
//! members of a group share its value equally. 2^groups tests; the values sum to v(I) - v(empty), but clients
//! of one group cannot be told apart in that round.

use rand_chacha::ChaCha20Rng;

use crate::{
    Error, UtilityTable,
    ask_once::FixedPlan,
    permutation::random_order,
    semivalue::{Weighting, semivalues},
    utility::MAX_EXACT_CLIENTS,
    values::Estimate,
};

/// Unions of groups.
pub(crate) struct Grouped {
    method: &'static str,
    clients: usize,
    groups: Vec<u128>,
}

impl Grouped {
    pub(crate) fn new(
        method: &'static str,
        clients: usize,
        groups: usize,
        mut rng: ChaCha20Rng,
    ) -> Result<Self, Error> {
        let count = groups.min(clients);
        if count > MAX_EXACT_CLIENTS {
            return Err(Error::TooManyClients { method, expected: MAX_EXACT_CLIENTS, found: count });
        }
        let mut groups = vec![0; count];
        for (place, client) in random_order(clients, &mut rng).into_iter().enumerate() {
            groups[place % count] |= 1 << client;
        }
        Ok(Self { method, clients, groups })
    }

    /// The coalition of all members of the groups whose bits are set.
    fn union(&self, chosen: usize) -> u128 {
        let members = self.groups.iter().enumerate().filter(|(place, _)| chosen >> place & 1 == 1);
        members.fold(0, |union, (_, group)| union | group)
    }
}

impl FixedPlan for Grouped {
    fn method(&self) -> &'static str {
        self.method
    }

    fn wanted(&self) -> Vec<u128> {
        (0..1 << self.groups.len()).map(|chosen| self.union(chosen)).collect()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let of_union = |chosen| table.need(self.union(chosen));
        let utilities = (0..1 << self.groups.len()).map(of_union).collect::<Result<Vec<f64>, Error>>()?;
        let of_group = semivalues(&utilities, &Weighting::Shapley.by_size(self.groups.len()));
        let mut values = vec![0.0; self.clients];
        for (group, value) in self.groups.iter().zip(of_group) {
            for (client, share) in values.iter_mut().enumerate() {
                if group >> client & 1 == 1 {
                    *share = value / f64::from(group.count_ones());
                }
            }
        }
        Ok(Estimate::exact(values))
    }
}

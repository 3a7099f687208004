//! Permutation sampling (the paper's PS; Maleki et al. 2013, Castro et al. 2009): average what each client
//! adds over random orders of arrival. With `antithetic`, every order comes with its reverse (Mitchell et al.
//! 2022).

use rand::{Rng, seq::SliceRandom};
use rand_chacha::ChaCha20Rng;

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    spread::Spread,
    values::Estimate,
};

/// Up to this many clients all orders are listed once and drawn without repeats (8! = 40320).
const MAX_LISTED_CLIENTS: usize = 8;

/// Orders needed so that the Euclidean error of all values is at most epsilon with probability 1 - delta, if
/// utilities lie within `range` of each other: ceil(2 range^2 n / epsilon^2 ln(2n / delta)) (Maleki et al.
/// 2013 by Hoeffding's inequality, for the Euclidean norm in Jia et al. 2019).
pub fn permutations_needed(clients: usize, epsilon: f64, delta: f64, range: f64) -> usize {
    let n = clients as f64;
    (2.0 * range * range * n / (epsilon * epsilon) * (2.0 * n / delta).ln()).ceil() as usize
}

/// Sampled orders.
pub(crate) struct Permutations {
    method: &'static str,
    clients: usize,
    antithetic: bool,
    orders: Orders,
    left: usize,
    proposed: Vec<Vec<u8>>,
    spread: Spread,
}

/// Where orders come from.
enum Orders {
    /// All there are, shuffled; of an order and its reverse only one where both are used together.
    Listed(Vec<Vec<u8>>),
    Drawn(Box<ChaCha20Rng>),
}

impl Permutations {
    /// `orders` is the most that are used; an order and its reverse count as two. `repeats` draws with
    /// replacement even where all orders could be listed.
    pub(crate) fn new(
        method: &'static str,
        clients: usize,
        antithetic: bool,
        repeats: bool,
        orders: usize,
        mut rng: ChaCha20Rng,
    ) -> Self {
        let (source, population) = if clients <= MAX_LISTED_CLIENTS && !repeats {
            let mut all = every_order(clients, antithetic);
            all.shuffle(&mut rng);
            let population = all.len() as u64;
            (Orders::Listed(all), Some(population))
        } else {
            (Orders::Drawn(Box::new(rng)), None)
        };
        let left = if antithetic { orders.div_ceil(2) } else { orders };
        let spread = Spread::new(clients, population);
        Self { method, clients, antithetic, orders: source, left, proposed: Vec::new(), spread }
    }

    fn draw(&mut self) -> Option<Vec<u8>> {
        match &mut self.orders {
            Orders::Listed(rest) => rest.pop(),
            Orders::Drawn(rng) => Some(random_order(self.clients, rng)),
        }
    }

    fn put_back(&mut self, order: Vec<u8>) {
        if let Orders::Listed(rest) = &mut self.orders {
            rest.push(order);
        }
    }

    /// The coalitions passed through by everybody's arrival, in this order and, if wanted, in reverse.
    fn prefixes(&self, order: &[u8]) -> Vec<u128> {
        let mut wanted = prefixes_of(order.iter());
        if self.antithetic {
            wanted.extend(prefixes_of(order.iter().rev()));
        }
        wanted
    }
}

impl SamplingPlan for Permutations {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(order) = self.draw() else { return Ok(None) };
        let wanted = self.prefixes(&order);
        let missing = known.missing(&wanted);
        if missing > known.room {
            self.put_back(order);
            if self.spread.count() + (self.proposed.len() as u64) < 2 && !self.spread.is_complete() {
                return Err(Error::Budget { method: self.method, expected: missing, found: known.room });
            }
            return Ok(None);
        }
        self.left -= 1;
        self.proposed.push(order);
        Ok(Some(wanted))
    }

    fn settle(&mut self, table: &UtilityTable) -> Result<(), Error> {
        for order in std::mem::take(&mut self.proposed) {
            let mut added = vec![0.0; self.clients];
            let share = if self.antithetic { 0.5 } else { 1.0 };
            add_marginals(order.iter(), table, share, &mut added)?;
            if self.antithetic {
                add_marginals(order.iter().rev(), table, share, &mut added)?;
            }
            self.spread.add(&added);
        }
        Ok(())
    }

    fn worst_error(&self, _table: &UtilityTable) -> Option<f64> {
        self.spread.worst_error()
    }

    fn has_values(&self) -> bool {
        self.spread.has_values()
    }

    fn estimate(&self, _table: &UtilityTable) -> Result<Estimate, Error> {
        self.spread.estimate(self.method)
    }
}

/// A uniformly random order.
pub(crate) fn random_order(clients: usize, rng: &mut impl Rng) -> Vec<u8> {
    let mut order: Vec<u8> = (0..clients as u8).collect();
    order.shuffle(rng);
    order
}

fn prefixes_of<'a>(order: impl Iterator<Item = &'a u8>) -> Vec<u128> {
    let mut prefix = 0;
    let mut prefixes = vec![prefix];
    for client in order {
        prefix |= 1 << client;
        prefixes.push(prefix);
    }
    prefixes
}

fn add_marginals<'a>(
    order: impl Iterator<Item = &'a u8>,
    table: &UtilityTable,
    share: f64,
    added: &mut [f64],
) -> Result<(), Error> {
    let mut prefix = 0;
    let mut before = table.need(prefix)?;
    for &client in order {
        prefix |= 1 << client;
        let after = table.need(prefix)?;
        added[usize::from(client)] += share * (after - before);
        before = after;
    }
    Ok(())
}

/// Every order, or of every order and its reverse the one that begins with the smaller client.
fn every_order(clients: usize, one_of_reverses: bool) -> Vec<Vec<u8>> {
    let mut orders: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..clients {
        let mut longer = Vec::with_capacity(orders.len() * clients);
        for order in &orders {
            let absent = (0..clients as u8).filter(|next| !order.contains(next));
            longer.extend(absent.map(|next| [order.as_slice(), &[next]].concat()));
        }
        orders = longer;
    }
    orders.retain(|order| !one_of_reverses || order.first() <= order.last());
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_number_of_permutations() {
        assert_eq!(permutations_needed(5, 0.25, 0.1, 1.0), 737);
    }

    #[test]
    fn every_order_is_listed_once() {
        assert_eq!(every_order(4, false).len(), 24);
        assert_eq!(every_order(4, true).len(), 12);
        assert_eq!(every_order(1, true), [[0]]);
        let mut all = every_order(5, false);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 120);
    }
}

//! KernelSHAP (the paper's KS; Lundberg and Lee 2017): the Shapley values are the weighted least-squares fit
//! of an additive game, under the constraint that the values sum to v(I) - v(empty).
//!
//! Coalitions come with their complements (Covert and Lee 2021) and are drawn without repeats, size by size,
//! each size getting tests by its share of the kernel's mass. A size's whole mass is spread over what was
//! drawn of it, so with every coalition tested the weights are the kernel's and the values exact.

mod fit;
pub(crate) mod paper;

use rand::seq::index;
use rand_chacha::ChaCha20Rng;
use std::collections::HashSet;

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    utility::everybody,
    values::Estimate,
};

/// Coalitions of one size, each with its complement.
struct Stratum {
    size: usize,
    /// The kernel's weight of all coalitions of this size and of the complementary size.
    mass: f64,
    /// Number of pairs that exist.
    pairs: f64,
    drawn: Vec<u128>,
    seen: HashSet<u128>,
}

impl Stratum {
    /// The kernel weighs a coalition of k members (n-1) / (binomial(n, k) k (n-k)).
    fn new(size: usize, clients: usize) -> Self {
        let (n, k) = (clients as f64, size as f64);
        let binomial = (0..size).fold(1.0, |product, i| product * (n - i as f64) / (i + 1) as f64).round();
        let is_middle = 2 * size == clients;
        let mass = (n - 1.0) / (k * (n - k)) * if is_middle { 1.0 } else { 2.0 };
        let pairs = if is_middle { binomial / 2.0 } else { binomial };
        Self { size, mass, pairs, drawn: Vec::new(), seen: HashSet::new() }
    }

    fn is_exhausted(&self) -> bool {
        self.drawn.len() as f64 >= self.pairs
    }

    /// A pair that was not drawn before, by its member without the last client, or the smaller one.
    fn draw(&mut self, clients: usize, rng: &mut ChaCha20Rng) -> u128 {
        loop {
            let members = index::sample(rng, clients, self.size);
            let coalition = members.into_iter().fold(0u128, |set, client| set | 1 << client);
            let pair = coalition.min(everybody(clients) & !coalition);
            if self.seen.insert(pair) {
                self.drawn.push(pair);
                return pair;
            }
        }
    }
}

/// Paired coalitions under way.
pub(crate) struct Kernel {
    method: &'static str,
    clients: usize,
    strata: Vec<Stratum>,
    rng: ChaCha20Rng,
    pairs_left: usize,
    pairs: usize,
    /// Whether everything drawn has been tested.
    settled: bool,
}

impl Kernel {
    /// `tests` counts the empty coalition and everybody.
    pub(crate) fn new(method: &'static str, clients: usize, tests: usize, rng: ChaCha20Rng) -> Self {
        let strata = (1..=clients / 2).map(|size| Stratum::new(size, clients)).collect();
        let pairs_left = tests.saturating_sub(2) / 2;
        Self { method, clients, strata, rng, pairs_left, pairs: 0, settled: false }
    }

    /// The size that is furthest behind its share.
    fn next_stratum(&mut self) -> Option<&mut Stratum> {
        let open = || self.strata.iter().enumerate().filter(|(_, stratum)| !stratum.is_exhausted());
        let mass: f64 = open().map(|(_, stratum)| stratum.mass).sum();
        let drawn: usize = open().map(|(_, stratum)| stratum.drawn.len()).sum();
        let lag = |stratum: &Stratum| stratum.mass / mass * (drawn + 1) as f64 - stratum.drawn.len() as f64;
        let (place, _) = open().max_by(|(_, a), (_, b)| lag(a).total_cmp(&lag(b)))?;
        self.strata.get_mut(place)
    }

    fn is_complete(&self) -> bool {
        self.strata.iter().all(Stratum::is_exhausted)
    }

    fn fewest_tests(&self) -> usize {
        2 + if self.clients < 2 { 0 } else { 2 * (self.clients - 1) }
    }
}

impl SamplingPlan for Kernel {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        self.settled = false;
        if let Some(ends) = known.ends_first(self.clients, self.method, |_| self.fewest_tests())? {
            return Ok(Some(ends));
        }
        let (clients, all) = (self.clients, everybody(self.clients));
        if self.pairs_left == 0 || known.room < 2 {
            return Ok(None);
        }
        let mut rng = self.rng.clone();
        let Some(stratum) = self.next_stratum() else { return Ok(None) };
        let pair = stratum.draw(clients, &mut rng);
        self.rng = rng;
        self.pairs_left -= 1;
        self.pairs += 1;
        Ok(Some(vec![pair, all & !pair]))
    }

    fn settle(&mut self, _table: &UtilityTable) -> Result<(), Error> {
        self.settled = true;
        Ok(())
    }

    fn worst_error(&self, table: &UtilityTable) -> Option<f64> {
        // Below two pairs per client the fit nearly interpolates and its residuals say nothing.
        if !self.settled || self.pairs < 2 * self.clients {
            return None;
        }
        let errors = fit::fit(self, table).ok()?.standard_errors;
        Some(errors.map_or(0.0, |errors| errors.into_iter().fold(0.0, f64::max)))
    }

    fn has_values(&self) -> bool {
        self.settled && (self.is_complete() || self.pairs >= 2 * self.clients)
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        fit::fit(self, table)
    }
}

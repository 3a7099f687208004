//! Group testing (the paper's GT; Jia et al. 2019): random coalitions give estimates of all pairwise
//! differences of values, and the values are a point that fits the differences and the known total.

use rand::{Rng, seq::index};
use rand_chacha::ChaCha20Rng;

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    solver::QuadraticProgram,
    spread::Spread,
    values::Estimate,
};

/// The distribution of coalition sizes: a size k in 1..n has probability proportional to 1/k + 1/(n-k).
struct Sizes {
    /// q(k) at index k - 1.
    probabilities: Vec<f64>,
    /// Z, the sum before normalisation.
    total: f64,
}

impl Sizes {
    fn new(clients: usize) -> Self {
        let n = clients as f64;
        let raw: Vec<f64> = (1..clients).map(|k| 1.0 / k as f64 + 1.0 / (n - k as f64)).collect();
        let total: f64 = raw.iter().sum();
        Self { probabilities: raw.into_iter().map(|q| q / total).collect(), total }
    }

    fn draw(&self, rng: &mut impl Rng) -> usize {
        let mut point: f64 = rng.random();
        for (place, probability) in self.probabilities.iter().enumerate() {
            point -= probability;
            if point < 0.0 {
                return place + 1;
            }
        }
        self.probabilities.len()
    }

    /// The probability that two given clients are both in or both out of a drawn coalition.
    fn same_side(&self, clients: usize) -> f64 {
        let n = clients as f64;
        let of_size = |(place, q): (usize, &f64)| {
            let k = (place + 1) as f64;
            q * (1.0 + 2.0 * k * (k - n) / (n * (n - 1.0)))
        };
        self.probabilities.iter().enumerate().map(of_size).sum()
    }
}

/// Tests needed so that the Euclidean error of all values is at most epsilon with probability 1 - delta, if
/// utilities lie within `range` of each other (Jia et al. 2019, theorem 3, by Bennett's inequality).
pub fn group_tests_needed(clients: usize, epsilon: f64, delta: f64, range: f64) -> usize {
    if clients < 2 {
        return 0;
    }
    let n = clients as f64;
    let sizes = Sizes::new(clients);
    let apart = 1.0 - sizes.same_side(clients).powi(2);
    let bennett = |u: f64| (1.0 + u) * u.ln_1p() - u;
    let deviation = epsilon / (sizes.total * range * n.sqrt() * apart);
    (8.0 * (n * (n - 1.0) / (2.0 * delta)).ln() / (apart * bennett(deviation))).ceil() as usize
}

/// The point that a test's utility is measured from, and which of the points that fit is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// From the empty coalition's, as Jia et al. have it (their game gives nobody nothing); the point that
    /// fits best.
    Proposed,
    /// From zero, any point that fits: the experiments of the SecSV paper. An accuracy is far from zero even
    /// for nobody's model, so every test carries that much more noise. That its utilities are taken from zero
    /// is inferred: it gives errors of the size the paper prints, which hardly depend on the data set.
    OfThePaper,
}

/// Random coalitions under way.
pub(crate) struct GroupTests {
    method: &'static str,
    clients: usize,
    sizes: Sizes,
    epsilon: f64,
    rng: ChaCha20Rng,
    left: usize,
    proposed: Vec<u128>,
    variant: Variant,
    /// Per test and client Z u (member - |S|/n): its mean is the client's value less the equal share of the
    /// total.
    spread: Spread,
}

impl GroupTests {
    pub(crate) fn new(
        method: &'static str,
        clients: usize,
        epsilon: f64,
        tests: usize,
        variant: Variant,
        rng: ChaCha20Rng,
    ) -> Self {
        let (sizes, spread) = (Sizes::new(clients), Spread::new(clients, None));
        let (left, proposed) = (tests.max(2), Vec::new());
        Self { method, clients, sizes, epsilon, rng, left, proposed, variant, spread }
    }

    /// Values that sum to the total and whose differences miss the estimated ones by as little as possible,
    /// and by at most epsilon / (2 sqrt n) as the method asks.
    fn fit(&self, total: f64) -> Result<Vec<f64>, Error> {
        let n = self.clients;
        let miss = n;
        let mut slope = vec![0.0; n];
        slope.push(if self.variant == Variant::Proposed { 1.0 } else { 0.0 });
        let mut program = QuadraticProgram::new(vec![0.0; n + 1], slope);
        program.equal((0..n).map(|client| (client, 1.0)).collect(), total);
        program.at_most(vec![(miss, -1.0)], 0.0);
        program.at_most(vec![(miss, 1.0)], self.epsilon / (2.0 * (n as f64).sqrt()));
        let means = self.spread.means();
        for i in 0..n {
            for j in i + 1..n {
                let difference = means[i] - means[j];
                program.at_most(vec![(i, 1.0), (j, -1.0), (miss, -1.0)], difference);
                program.at_most(vec![(i, -1.0), (j, 1.0), (miss, -1.0)], -difference);
            }
        }
        let mut solution = program.solve(self.method)?;
        solution.truncate(n);
        Ok(solution)
    }
}

impl SamplingPlan for GroupTests {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        if let Some(ends) = known.ends_first(self.clients, self.method, |missing| missing + 2)? {
            return Ok(Some(ends));
        }
        if self.left == 0 || self.clients < 2 {
            return Ok(None);
        }
        let size = self.sizes.draw(&mut self.rng);
        let members = index::sample(&mut self.rng, self.clients, size);
        let coalition = members.into_iter().fold(0u128, |set, client| set | 1 << client);
        if known.missing(&[coalition]) > known.room {
            self.left = 0;
            return Ok(None);
        }
        self.left -= 1;
        self.proposed.push(coalition);
        Ok(Some(vec![coalition]))
    }

    fn settle(&mut self, table: &UtilityTable) -> Result<(), Error> {
        for coalition in std::mem::take(&mut self.proposed) {
            let from = if self.variant == Variant::Proposed { table.need(0)? } else { 0.0 };
            let utility = self.sizes.total * (table.need(coalition)? - from);
            let share = f64::from(coalition.count_ones()) / self.clients as f64;
            let of_client = |client| utility * (f64::from(coalition >> client & 1 == 1) - share);
            let observation: Vec<f64> = (0..self.clients).map(of_client).collect();
            self.spread.add(&observation);
        }
        Ok(())
    }

    fn worst_error(&self, _table: &UtilityTable) -> Option<f64> {
        self.spread.worst_error()
    }

    fn has_values(&self) -> bool {
        self.clients < 2 || self.spread.has_values()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let (empty, all) = table.ends()?;
        if self.clients < 2 {
            return Ok(Estimate::exact(vec![all - empty]));
        }
        if !self.spread.has_values() {
            return Err(Error::Budget {
                method: self.method,
                expected: 4,
                found: 2 + self.spread.count() as usize,
            });
        }
        Ok(Estimate::sampled(self.fit(all - empty)?, self.spread.standard_errors()))
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn the_papers_number_of_tests() {
        assert_eq!(group_tests_needed(5, 0.25, 0.1, 1.0), 75_575);
    }

    #[test]
    fn the_solver_finds_the_point_that_fits_all_differences() {
        let mut tests = GroupTests::new("", 100, 0.25, 10, Variant::Proposed, ChaCha20Rng::seed_from_u64(1));
        let mean: Vec<f64> = (0..100).map(|client| f64::from(client) / 1000.0 - 0.0495).collect();
        tests.spread.add(&mean);
        let fitted = tests.fit(0.7).unwrap();
        for (found, centred) in fitted.iter().zip(&mean) {
            assert!((found - centred - 0.007).abs() < 1e-8, "{found} against {}", centred + 0.007);
        }
    }
}

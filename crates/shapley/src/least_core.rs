//! Least core (Maschler et al. 1979; for data, Yan and Procaccia 2021): the split of v(I) - v(empty) that
//! leaves the unhappiest coalition as little to complain about as possible, and of all such splits the one of
//! least Euclidean length (the egalitarian one), which is unique.
//!
//! Up to 20 clients all coalitions count. The programs start from few coalitions and take in those that are
//! violated until none is. With a limit on tests, or more clients, random coalitions stand for all (Yan
//! and Procaccia's Monte Carlo variant).

use rand::{Rng, seq::index};
use rand_chacha::ChaCha20Rng;

use crate::{
    Error, UtilityTable,
    ask_once::FixedPlan,
    solver::QuadraticProgram,
    utility::{MAX_EXACT_CLIENTS, everybody},
    values::Estimate,
};

/// A coalition may be short of its utility by this much of the largest utility beyond the least shortfall.
const SLACK: f64 = 1e-9;
/// Violated coalitions that are taken in at once.
const TAKEN_IN: usize = 64;
/// Each pass takes in new coalitions, so the passes end; this only guards against rounding that never
/// settles.
const MAX_PASSES: usize = 200;

/// Coalitions under way.
pub(crate) struct LeastCore {
    method: &'static str,
    clients: usize,
    wanted: Vec<u128>,
}

impl LeastCore {
    /// `tests` counts the empty coalition and everybody.
    pub(crate) fn new(
        method: &'static str,
        clients: usize,
        tests: Option<usize>,
        mut rng: ChaCha20Rng,
    ) -> Self {
        let is_small = clients <= MAX_EXACT_CLIENTS && tests.is_none_or(|tests| tests >= 1 << clients);
        let wanted = if is_small {
            (0..1 << clients).collect()
        } else {
            sample(clients, tests.unwrap_or(20 * clients + 2), &mut rng)
        };
        Self { method, clients, wanted }
    }
}

/// The ends, single clients, and coalitions drawn uniformly by size.
fn sample(clients: usize, tests: usize, rng: &mut impl Rng) -> Vec<u128> {
    let mut wanted = vec![0, everybody(clients)];
    wanted.extend((0..clients).map(|client| 1 << client));
    let mut seen: std::collections::HashSet<u128> = wanted.iter().copied().collect();
    let mut misses = 0;
    while wanted.len() < tests && misses < 100 * tests {
        let size = rng.random_range(1..clients);
        let coalition =
            index::sample(rng, clients, size).into_iter().fold(0u128, |set, client| set | 1 << client);
        if seen.insert(coalition) {
            wanted.push(coalition);
        } else {
            misses += 1;
        }
    }
    wanted
}

impl FixedPlan for LeastCore {
    fn method(&self) -> &'static str {
        self.method
    }

    fn wanted(&self) -> Vec<u128> {
        self.wanted.clone()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let (empty, all) = table.ends()?;
        let total = all - empty;
        if self.clients == 1 {
            return Ok(Estimate::exact(vec![total]));
        }
        let mut claims = Vec::with_capacity(self.wanted.len());
        for &coalition in &self.wanted {
            if coalition != 0 && coalition != everybody(self.clients) {
                claims.push((coalition, table.need(coalition)? - empty));
            }
        }
        let exact = self.clients <= MAX_EXACT_CLIENTS && claims.len() + 2 == 1 << self.clients;
        let values = Core::new(self.method, self.clients, total, claims).split()?;
        Ok(Estimate { values, standard_errors: None, exact })
    }
}

/// The game, less its v(empty).
struct Core {
    method: &'static str,
    clients: usize,
    total: f64,
    claims: Vec<(u128, f64)>,
    /// Which claims the programs know about.
    taken: Vec<usize>,
    scale: f64,
}

impl Core {
    fn new(method: &'static str, clients: usize, total: f64, claims: Vec<(u128, f64)>) -> Self {
        let scale = claims.iter().fold(total.abs().max(1e-300), |scale, (_, claim)| scale.max(claim.abs()));
        let is_end =
            |coalition: u128| coalition.count_ones() == 1 || coalition.count_ones() as usize == clients - 1;
        let taken = (0..claims.len()).filter(|&place| is_end(claims[place].0)).collect();
        Self { method, clients, total, claims, taken, scale }
    }

    fn split(mut self) -> Result<Vec<f64>, Error> {
        let n = self.clients;
        let mut least = self.settle(|core| {
            let mut slope = vec![0.0; n];
            slope.push(1.0);
            core.program(vec![0.0; n + 1], slope, None).solve(core.method)
        })?;
        let shortfall = least.pop().unwrap_or_default() + SLACK * self.scale;
        self.settle(|core| {
            let mut split = core.program(vec![1.0; n], vec![0.0; n], Some(shortfall)).solve(core.method)?;
            split.push(shortfall);
            Ok(split)
        })
        .map(|mut split| {
            split.truncate(n);
            split
        })
    }

    /// x(S) + shortfall >= v(S) for the claims taken in; the shortfall is the last variable unless given.
    fn program(&self, curvature: Vec<f64>, slope: Vec<f64>, shortfall: Option<f64>) -> QuadraticProgram {
        let mut program = QuadraticProgram::new(curvature, slope);
        program.equal((0..self.clients).map(|client| (client, 1.0)).collect(), self.total);
        for &place in &self.taken {
            let (coalition, claim) = self.claims[place];
            let members = (0..self.clients).filter(|client| coalition >> client & 1 == 1);
            let mut row: Vec<(usize, f64)> = members.map(|client| (client, -1.0)).collect();
            if shortfall.is_none() {
                row.push((self.clients, -1.0));
            }
            program.at_most(row, shortfall.unwrap_or_default() - claim);
        }
        program
    }

    /// Solves, takes in the claims that the solution violates most, and again, until it violates none.
    fn settle(&mut self, solve: impl Fn(&Self) -> Result<Vec<f64>, Error>) -> Result<Vec<f64>, Error> {
        for _ in 0..MAX_PASSES {
            let solution = solve(self)?;
            let mut violated = self.violations(&solution);
            if violated.is_empty() {
                return Ok(solution);
            }
            violated.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            self.taken.extend(violated.into_iter().take(TAKEN_IN).map(|(place, _)| place));
        }
        Err(Error::Solver { method: self.method, found: clarabel::solver::SolverStatus::MaxIterations })
    }

    fn violations(&self, solution: &[f64]) -> Vec<(usize, f64)> {
        let shortfall = solution[self.clients];
        let mut is_taken = vec![false; self.claims.len()];
        for &place in &self.taken {
            is_taken[place] = true;
        }
        let excess = |place: usize| {
            let (coalition, claim) = self.claims[place];
            let mut rest = coalition;
            let mut given = 0.0;
            while rest != 0 {
                given += solution[rest.trailing_zeros() as usize];
                rest &= rest - 1;
            }
            claim - given - shortfall
        };
        let open = (0..self.claims.len()).filter(|&place| !is_taken[place]);
        open.map(|place| (place, excess(place))).filter(|(_, excess)| *excess > SLACK * self.scale).collect()
    }
}

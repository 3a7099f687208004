//! Orders that are walked one client at a time and left early: truncated Monte Carlo (Ghorbani and Zou 2019)
//! and GTG-Shapley (Liu et al. 2022).

use rand::seq::SliceRandom;
use rand_chacha::ChaCha20Rng;

use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    permutation::random_order,
    spread::Spread,
    values::Estimate,
};

/// How walks are drawn and when they end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkRules {
    /// The method's name on the command line.
    pub(crate) method: &'static str,
    /// A walk ends when the utility reached is this near to everybody's: the rest add nothing.
    pub(crate) tolerance: f64,
    /// If everybody together changes the utility by no more than this, nobody gets anything (GTG-Shapley's
    /// truncation between rounds).
    pub(crate) round_tolerance: Option<f64>,
    /// Every client leads one walk of each observation, so that those who only matter early are seen equally
    /// often (GTG-Shapley's guided sampling).
    pub(crate) guided: bool,
    /// Stop when the last means differ by less than this share (GTG-Shapley's convergence criterion).
    pub(crate) convergence: Option<f64>,
    /// The most walks.
    pub(crate) walks: usize,
    /// Walks that go side by side, so that a batch is worth testing in parallel.
    pub(crate) abreast: usize,
}

/// GTG-Shapley looks at this many of its last means, and not before this many walks.
const COMPARED_MEANS: usize = 10;
const WALKS_BEFORE_CONVERGENCE: u64 = 30;

/// Truncated walks under way.
pub(crate) struct Walks {
    clients: usize,
    rules: WalkRules,
    rng: ChaCha20Rng,
    under_way: Vec<OrderWalk>,
    spread: Spread,
    last_means: Vec<Vec<f64>>,
    is_round_skipped: bool,
}

struct OrderWalk {
    order: Vec<u8>,
    arrived: usize,
    prefix: u128,
    utility: f64,
    added: Vec<f64>,
}

impl Walks {
    pub(crate) fn new(clients: usize, rules: WalkRules, rng: ChaCha20Rng) -> Self {
        let spread = Spread::new(clients, None);
        Self {
            clients,
            rules,
            rng,
            under_way: Vec::new(),
            spread,
            last_means: Vec::new(),
            is_round_skipped: false,
        }
    }

    /// Walks per observation.
    fn stride(&self) -> usize {
        if self.rules.guided { self.clients } else { 1 }
    }

    /// Moves every walk as far as known utilities carry it; what it needs next.
    fn advance(&mut self, table: &UtilityTable) -> Result<Vec<u128>, Error> {
        let (_, all) = table.ends()?;
        let mut wanted = Vec::new();
        for walk in &mut self.under_way {
            while walk.arrived < self.clients && (all - walk.utility).abs() >= self.rules.tolerance {
                let next = walk.prefix | 1 << walk.order[walk.arrived];
                let Some(utility) = table.at(next) else {
                    wanted.push(next);
                    break;
                };
                walk.step(utility);
            }
        }
        Ok(wanted)
    }

    /// Every walk has ended: they become observations.
    fn observe(&mut self) {
        let stride = self.stride();
        for walks in std::mem::take(&mut self.under_way).chunks(stride) {
            let mean =
                |client: usize| walks.iter().map(|walk| walk.added[client]).sum::<f64>() / stride as f64;
            let observation: Vec<f64> = (0..self.clients).map(mean).collect();
            self.spread.add(&observation);
            self.last_means.push(self.spread.means().to_vec());
            if self.last_means.len() > COMPARED_MEANS {
                self.last_means.remove(0);
            }
        }
    }

    fn has_converged(&self) -> bool {
        let Some(limit) = self.rules.convergence else { return false };
        let walks = self.spread.count() * self.stride() as u64;
        let Some(now) = self.last_means.last() else { return false };
        let drift = |means: &Vec<f64>| {
            let shares = means.iter().zip(now).map(|(then, now)| (then - now).abs() / (now.abs() + 1e-12));
            shares.sum::<f64>() / self.clients as f64
        };
        walks >= WALKS_BEFORE_CONVERGENCE
            && self.last_means.len() == COMPARED_MEANS
            && self.last_means.iter().all(|means| drift(means) <= limit)
    }

    /// Starts as many walks as fit, whatever they turn out to need: leaving out those that turn out long
    /// would favour the short ones.
    fn start(&mut self, known: &KnownUtilities<'_>) -> Result<bool, Error> {
        let stride = self.stride();
        let done = self.spread.count() as usize * stride;
        if done >= self.rules.walks.max(2 * stride) || self.has_converged() {
            return Ok(false);
        }
        let unknown =
            if self.clients < 100 { (1 << self.clients) - known.table.len() as u128 } else { u128::MAX };
        let each = stride * self.clients.saturating_sub(1).max(1);
        let fitting = if unknown <= known.room as u128 { usize::MAX } else { known.room / each };
        let left = (self.rules.walks.max(2 * stride) - done).div_ceil(stride);
        // The first ones are few, so that there are values soon if time is short.
        let abreast = if self.spread.has_values() { self.rules.abreast / stride } else { 2 };
        let observations = abreast.max(1).min(left).min(fitting);
        if observations == 0 {
            return if self.spread.has_values() {
                Ok(false)
            } else {
                Err(Error::Budget { method: self.rules.method, expected: 2 * each, found: known.room })
            };
        }
        let (empty, _) = known.table.ends()?;
        for _ in 0..observations {
            for first in 0..stride {
                let order = self.order(first);
                self.under_way.push(OrderWalk::new(order, empty));
            }
        }
        Ok(true)
    }

    fn order(&mut self, first: usize) -> Vec<u8> {
        if !self.rules.guided {
            return random_order(self.clients, &mut self.rng);
        }
        let mut rest: Vec<u8> =
            (0..self.clients as u8).filter(|&client| usize::from(client) != first).collect();
        rest.shuffle(&mut self.rng);
        [&[first as u8], rest.as_slice()].concat()
    }
}

impl OrderWalk {
    fn new(order: Vec<u8>, empty: f64) -> Self {
        let added = vec![0.0; order.len()];
        Self { order, arrived: 0, prefix: 0, utility: empty, added }
    }

    fn step(&mut self, utility: f64) {
        let client = self.order[self.arrived];
        self.added[usize::from(client)] = utility - self.utility;
        self.prefix |= 1 << client;
        self.utility = utility;
        self.arrived += 1;
    }
}

impl SamplingPlan for Walks {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        let ends = known.ends_first(self.clients, self.rules.method, |missing| missing)?;
        let Ok((empty, all)) = known.table.ends() else { return Ok(ends) };
        self.is_round_skipped = self.rules.round_tolerance.is_some_and(|limit| (all - empty).abs() <= limit);
        if self.is_round_skipped {
            return Ok(None);
        }
        loop {
            let wanted = self.advance(known.table)?;
            if !wanted.is_empty() {
                let on_its_way = known.missing(&wanted) == 0;
                return Ok((!on_its_way).then_some(wanted));
            }
            self.observe();
            if !self.start(known)? {
                return Ok(None);
            }
        }
    }

    fn worst_error(&self, _table: &UtilityTable) -> Option<f64> {
        self.spread.worst_error()
    }

    fn has_values(&self) -> bool {
        self.is_round_skipped || self.spread.has_values()
    }

    fn estimate(&self, _table: &UtilityTable) -> Result<Estimate, Error> {
        if self.is_round_skipped {
            return Ok(Estimate::sampled(vec![0.0; self.clients], Some(vec![0.0; self.clients])));
        }
        self.spread.estimate(self.rules.method)
    }

    fn is_round_skipped(&self) -> bool {
        self.is_round_skipped
    }
}

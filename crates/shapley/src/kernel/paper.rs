//! KernelSHAP as the experiments of the SecSV paper ran it, kept apart from the method itself so that the
//! paper's table can be reproduced.
//!
//! It samples as the `shap` package does: sizes whose coalitions the samples suffice for are taken whole, the
//! rest is drawn, each with its complement. Two things differ. A complement counts as new each time: its
//! repeats use up samples and begin its count anew. And what was drawn weighs 1 together, not what the kernel
//! has left for those sizes.

use std::collections::HashMap;

use rand::{Rng, seq::index};
use rand_chacha::ChaCha20Rng;

use super::fit::fit_weighted;
use crate::{
    Error, UtilityTable,
    estimator::{KnownUtilities, SamplingPlan},
    utility::everybody,
    values::Estimate,
};

/// Coalitions that are all known before the first utility.
pub(crate) struct KernelOfThePaper {
    method: &'static str,
    clients: usize,
    weighted: Vec<(u128, f64)>,
    proposed: usize,
    settled: bool,
}

impl KernelOfThePaper {
    /// `samples` counts neither the empty coalition nor everybody.
    pub(crate) fn new(method: &'static str, clients: usize, samples: usize, rng: ChaCha20Rng) -> Self {
        let weighted = Sampling::new(clients, samples).weighted(rng);
        Self { method, clients, weighted, proposed: 0, settled: false }
    }
}

struct Sampling {
    clients: usize,
    /// The kernel's share of each size, its complementary size included, from size 1 on.
    shares: Vec<f64>,
    /// Sizes up to this one have a complementary size of their own.
    paired: usize,
    samples_left: usize,
}

impl Sampling {
    fn new(clients: usize, samples_left: usize) -> Self {
        let (n, below) = (clients as f64, clients.saturating_sub(1));
        let (sizes, paired) = (below.div_ceil(2), below / 2);
        let raw = |size: usize| {
            let k = size as f64;
            (n - 1.0) / (k * (n - k)) * if size <= paired { 2.0 } else { 1.0 }
        };
        let total: f64 = (1..=sizes).map(raw).sum();
        Self { clients, shares: (1..=sizes).map(|size| raw(size) / total).collect(), paired, samples_left }
    }

    fn weighted(mut self, mut rng: ChaCha20Rng) -> Vec<(u128, f64)> {
        let (mut weighted, mut whole, mut open) = (Vec::new(), 0, 1.0);
        for (place, &share) in self.shares.iter().enumerate() {
            let (size, is_paired) = (place + 1, place < self.paired);
            let count = binomial(self.clients, size) * if is_paired { 2.0 } else { 1.0 };
            if self.samples_left as f64 * (share / open) / count < 1.0 - 1e-8 {
                break;
            }
            for coalition in of_size(self.clients, size) {
                weighted.push((coalition, share / count));
                if is_paired {
                    weighted.push((everybody(self.clients) & !coalition, share / count));
                }
            }
            self.samples_left -= count as usize;
            (whole, open) = (size, open - share);
        }
        if whole < self.shares.len() {
            weighted.extend(self.drawn(whole, &mut rng));
        }
        weighted
    }

    /// Coalitions drawn of the sizes above `whole`, weighing 1 together.
    fn drawn(&mut self, whole: usize, rng: &mut ChaCha20Rng) -> Vec<(u128, f64)> {
        let halved = |place: usize| self.shares[place] / if place < self.paired { 2.0 } else { 1.0 };
        let shares: Vec<f64> = (whole..self.shares.len()).map(halved).collect();
        let mut counts: Vec<(u128, f64)> = Vec::new();
        let mut places: HashMap<u128, usize> = HashMap::new();
        for _ in 0..4 * self.samples_left {
            if self.samples_left == 0 {
                break;
            }
            let size = whole + 1 + draw(&shares, rng);
            let members = index::sample(rng, self.clients, size);
            let coalition = members.into_iter().fold(0u128, |set, client| set | 1 << client);
            let place = *places.entry(coalition).or_insert(counts.len());
            match counts.get_mut(place) {
                Some((_, count)) => *count += 1.0,
                None => {
                    counts.push((coalition, 1.0));
                    self.samples_left -= 1;
                }
            }
            if self.samples_left > 0 && size <= self.paired {
                let complement = everybody(self.clients) & !coalition;
                let place = *places.entry(complement).or_insert(counts.len());
                match counts.get_mut(place) {
                    Some((_, count)) => *count = 1.0,
                    None => counts.push((complement, 1.0)),
                }
                self.samples_left -= 1;
            }
        }
        let total: f64 = counts.iter().map(|(_, count)| count).sum();
        counts.into_iter().map(|(coalition, count)| (coalition, count / total)).collect()
    }
}

/// A place, by share.
fn draw(shares: &[f64], rng: &mut ChaCha20Rng) -> usize {
    let mut point = rng.random::<f64>() * shares.iter().sum::<f64>();
    for (place, share) in shares.iter().enumerate() {
        point -= share;
        if point < 0.0 {
            return place;
        }
    }
    shares.len() - 1
}

fn binomial(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64).round()
}

/// Every coalition of a size, in ascending order.
fn of_size(clients: usize, size: usize) -> Vec<u128> {
    let mut found: Vec<(u128, usize)> = vec![(0, 0)];
    for _ in 0..size {
        let longer = |(set, from): (u128, usize)| (from..clients).map(move |c| (set | 1 << c, c + 1));
        found = found.into_iter().flat_map(longer).collect();
    }
    found.into_iter().map(|(set, _)| set).collect()
}

impl SamplingPlan for KernelOfThePaper {
    fn propose(&mut self, known: &KnownUtilities<'_>) -> Result<Option<Vec<u128>>, Error> {
        self.settled = false;
        if let Some(ends) = known.ends_first(self.clients, self.method, |missing| missing)? {
            return Ok(Some(ends));
        }
        let Some(&(coalition, _)) = self.weighted.get(self.proposed) else { return Ok(None) };
        if known.missing(&[coalition]) > known.room {
            return Ok(None);
        }
        self.proposed += 1;
        Ok(Some(vec![coalition]))
    }

    fn settle(&mut self, _table: &UtilityTable) -> Result<(), Error> {
        self.settled = true;
        Ok(())
    }

    fn has_values(&self) -> bool {
        self.settled && self.proposed == self.weighted.len()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        let (empty, all) = table.ends()?;
        if self.clients == 1 {
            return Ok(Estimate::exact(vec![all - empty]));
        }
        let tested: Vec<(u128, f64)> =
            self.weighted.iter().copied().filter(|(coalition, _)| table.at(*coalition).is_some()).collect();
        let found = fit_weighted(self.clients, &tested, table)?;
        let values = found.ok_or(Error::Undetermined {
            method: self.method,
            clients: self.clients,
            found: table.len(),
        })?;
        Ok(Estimate { values, standard_errors: None, exact: false })
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn weighted(seed: u64) -> Vec<(u128, f64)> {
        Sampling::new(5, 26).weighted(ChaCha20Rng::seed_from_u64(seed))
    }

    /// Five clients, 26 samples: sizes 1 and 4 whole (0.6 of the kernel's mass), 16 samples for sizes 2 and
    /// 3.
    #[test]
    fn sampled_coalitions_weigh_one_where_the_kernel_leaves_two_fifths() {
        let found = weighted(1);
        let (whole, drawn) = found.split_at(10);
        assert!(whole.iter().all(|&(s, w)| [1, 4].contains(&s.count_ones()) && (w - 0.06).abs() < 1e-12));
        assert!(drawn.iter().all(|&(s, _)| [2, 3].contains(&s.count_ones())));
        assert!((drawn.iter().map(|(_, w)| w).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    /// About 24 of 32 models, empty and grand coalition included, where counting repeats rightly would give
    /// 28.
    #[test]
    fn repeats_use_up_samples() {
        let tested = |seed| 2 + weighted(seed).len();
        let mean = (0..200).map(tested).sum::<usize>() as f64 / 200.0;
        assert!((23.0..26.0).contains(&mean), "{mean}");
        assert!((0..200).map(tested).all(|models| models <= 28));
    }
}

//! Values that weigh marginal contributions by the size of the coalition joined: Shapley, Banzhaf,
//! Beta-Shapley. They need every coalition.

use crate::{Error, UtilityTable, ask_once::FixedPlan, utility::MAX_EXACT_CLIENTS, values::Estimate};

/// How much a marginal contribution counts, by the number of members the client joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weighting {
    /// Shapley 1953: every order of arrival counts the same, |S|!(n-|S|-1)!/n!.
    Shapley,
    /// Banzhaf 1965: every coalition counts the same, 1/2^(n-1). The values need not add up to v(I) -
    /// v(empty).
    Banzhaf,
    /// Kwon and Zou 2022: the share of coalitions of each size follows a Beta(beta, alpha) density, so a
    /// large alpha favours joining small coalitions. Beta(1, 1) is Shapley's.
    Beta {
        /// The first parameter.
        alpha: f64,
        /// The second parameter.
        beta: f64,
    },
}

impl Weighting {
    /// The weight of one coalition of each size 0..n. They sum to 1 over all coalitions a client can join.
    pub(crate) fn by_size(self, clients: usize) -> Vec<f64> {
        match self {
            Self::Shapley => Self::Beta { alpha: 1.0, beta: 1.0 }.by_size(clients),
            Self::Banzhaf => vec![0.5f64.powi(clients as i32 - 1); clients],
            Self::Beta { alpha, beta } => {
                (0..clients).map(|size| beta_weight(alpha, beta, size, clients)).collect()
            }
        }
    }
}

/// B(size + beta, n - 1 - size + alpha) / B(beta, alpha), as a product of rising factorials.
fn beta_weight(alpha: f64, beta: f64, size: usize, clients: usize) -> f64 {
    let mut weight = 1.0;
    for step in 0..clients - 1 {
        let rising = if step < size { beta + step as f64 } else { alpha + (step - size) as f64 };
        weight *= rising / (alpha + beta + step as f64);
    }
    weight
}

/// Sum over all S without i of weight(|S|) (v(S with i) - v(S)). Marginal contributions are first added up by
/// size, so a client that never changes anything gets exactly 0.
pub(crate) fn semivalues(utilities: &[f64], by_size: &[f64]) -> Vec<f64> {
    let clients = by_size.len();
    let of_client = |client: usize| -> f64 {
        let mut sums = vec![0.0; clients];
        let bit = 1 << client;
        for rest in 0..utilities.len() / 2 {
            // A zero bit is opened at the client's place.
            let without = (rest >> client << (client + 1)) | (rest & (bit - 1));
            sums[without.count_ones() as usize] += utilities[without | bit] - utilities[without];
        }
        sums.iter().zip(by_size).map(|(sum, weight)| sum * weight).sum()
    };
    (0..clients).map(of_client).collect()
}

/// Asks for everything at once.
pub(crate) struct EveryCoalition {
    method: &'static str,
    clients: usize,
    weighting: Weighting,
}

impl EveryCoalition {
    pub(crate) fn new(method: &'static str, clients: usize, weighting: Weighting) -> Result<Self, Error> {
        if clients > MAX_EXACT_CLIENTS {
            return Err(Error::TooManyClients { method, expected: MAX_EXACT_CLIENTS, found: clients });
        }
        Ok(Self { method, clients, weighting })
    }
}

impl FixedPlan for EveryCoalition {
    fn method(&self) -> &'static str {
        self.method
    }

    fn wanted(&self) -> Vec<u128> {
        (0..1 << self.clients).collect()
    }

    fn estimate(&self, table: &UtilityTable) -> Result<Estimate, Error> {
        Ok(Estimate::exact(semivalues(table.complete()?, &self.weighting.by_size(self.clients))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_over_all_coalitions() {
        for weighting in [Weighting::Shapley, Weighting::Banzhaf, Weighting::Beta { alpha: 16.0, beta: 1.0 }]
        {
            for clients in 1..=20usize {
                let mut binomial = 1.0;
                let mut sum = 0.0;
                for (size, weight) in weighting.by_size(clients).into_iter().enumerate() {
                    sum += binomial * weight;
                    binomial *= (clients - 1 - size) as f64 / (size + 1) as f64;
                }
                assert!((sum - 1.0).abs() < 1e-12, "{weighting:?}, {clients} clients: {sum}");
            }
        }
    }

    #[test]
    fn shapley_weights_are_factorials() {
        let expected = [6.0, 2.0, 2.0, 6.0].map(|numerator| numerator / 24.0);
        for (found, expected) in Weighting::Shapley.by_size(4).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15);
        }
    }
}

//! The result of an estimation: a value per client, and how sure it is.

use secsv_federation::Coalition;

use crate::Error;

/// A value per client. Where the values were sampled each has a standard error.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientValues {
    players: Coalition,
    values: Vec<f64>,
    standard_errors: Option<Vec<f64>>,
    exact: bool,
    tests: usize,
}

impl ClientValues {
    pub(crate) fn new(players: Coalition, estimate: Estimate, tests: usize) -> Self {
        let Estimate { values, standard_errors, exact } = estimate;
        Self { players, values, standard_errors, exact, tests }
    }

    /// The clients valued.
    pub fn players(&self) -> Coalition {
        self.players
    }

    /// The value of the client at this position of the federation's list; 0 for somebody who took no part.
    pub fn value(&self, client: usize) -> f64 {
        self.place(client).map_or(0.0, |place| self.values[place])
    }

    /// The standard error of that value: `None` where the values are exact or the method has no such
    /// statement to make (the least core of sampled coalitions), 0 for somebody who took no part.
    pub fn standard_error(&self, client: usize) -> Option<f64> {
        let errors = self.standard_errors.as_ref()?;
        Some(self.place(client).map_or(0.0, |place| errors[place]))
    }

    /// The values of those who took part, in ascending position.
    pub fn as_slice(&self) -> &[f64] {
        &self.values
    }

    /// Their standard errors, in the same order; `None` as above.
    pub fn standard_errors(&self) -> Option<&[f64]> {
        self.standard_errors.as_deref()
    }

    /// Whether no sampling error is left.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Number of utilities that were asked for and absorbed.
    pub fn tests(&self) -> usize {
        self.tests
    }

    /// The sum of the values: what everybody together is worth, for the methods that split exactly that.
    pub fn total(&self) -> f64 {
        self.values.iter().sum()
    }

    /// Each value over the sum of all, or `None` if that sum is zero.
    pub fn shares(&self) -> Option<Vec<f64>> {
        let total = self.total();
        (total != 0.0).then(|| self.values.iter().map(|value| value / total).collect())
    }

    fn place(&self, client: usize) -> Option<usize> {
        let below = Coalition::first(client.min(secsv_federation::MAX_CLIENTS));
        self.players.contains(client).then(|| self.players.intersection(below).len())
    }
}

/// Values as a plan computes them, in its own numbering.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) values: Vec<f64>,
    pub(crate) standard_errors: Option<Vec<f64>>,
    pub(crate) exact: bool,
}

impl Estimate {
    pub(crate) fn exact(values: Vec<f64>) -> Self {
        Self { values, standard_errors: None, exact: true }
    }

    /// Exact only if there is no standard error.
    pub(crate) fn sampled(values: Vec<f64>, standard_errors: Option<Vec<f64>>) -> Self {
        let exact = standard_errors.is_none();
        Self { values, standard_errors, exact }
    }
}

/// Weighted sums of values over rounds, such as the paper's FSV (every weight 1): a client's value is the sum
/// over the rounds it took part in, standard errors combine in quadrature because rounds are sampled
/// independently.
pub fn combine(rounds: &[(f64, &ClientValues)]) -> Result<ClientValues, Error> {
    let players = rounds.iter().fold(Coalition::EMPTY, |all, (_, values)| all.union(values.players));
    if players.is_empty() {
        return Err(Error::NoClients);
    }
    let over_rounds = |of_round: &dyn Fn(f64, &ClientValues, usize) -> f64| -> Vec<f64> {
        players.members().map(|client| rounds.iter().map(|(w, v)| of_round(*w, v, client)).sum()).collect()
    };
    let values = over_rounds(&|weight, values, client| weight * values.value(client));
    let sampled = rounds.iter().any(|(_, values)| values.standard_errors.is_some());
    let standard_errors = sampled.then(|| {
        over_rounds(&|weight, values, client| (weight * values.standard_error(client).unwrap_or(0.0)).powi(2))
            .into_iter()
            .map(f64::sqrt)
            .collect()
    });
    let tests = rounds.iter().map(|(_, values)| values.tests).sum();
    let exact = rounds.iter().all(|(_, values)| values.exact);
    Ok(ClientValues { players, values, standard_errors, exact, tests })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(members: &[usize], values: &[f64], errors: Option<&[f64]>) -> ClientValues {
        let estimate = Estimate::sampled(values.to_vec(), errors.map(<[f64]>::to_vec));
        ClientValues::new(members.iter().copied().collect(), estimate, values.len())
    }

    #[test]
    fn rounds_add_up_and_errors_combine_in_quadrature() {
        let first = values(&[0, 2], &[1.0, 2.0], Some(&[0.3, 0.1]));
        let second = values(&[2, 5], &[10.0, 20.0], Some(&[0.4, 0.2]));
        let exact = values(&[0], &[0.5], None);
        let sum = combine(&[(1.0, &first), (1.0, &second), (2.0, &exact)]).unwrap();
        assert_eq!(sum.as_slice(), [2.0, 12.0, 20.0]);
        assert_eq!(sum.value(1), 0.0);
        let errors = sum.standard_errors().unwrap();
        for (found, expected) in errors.iter().zip([0.3, 0.17f64.sqrt(), 0.2]) {
            assert!((found - expected).abs() < 1e-15);
        }
        assert_eq!((sum.standard_error(9), sum.tests()), (Some(0.0), 5));
        assert!(combine(&[(1.0, &exact)]).unwrap().is_exact());
        assert_eq!(combine(&[]), Err(Error::NoClients));
    }
}

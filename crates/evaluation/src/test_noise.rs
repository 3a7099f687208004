//! How far values would move with other test cases, where it is known which cases each model gets right.
//!
//! An exact value is the same sum over coalitions for every test case, averaged over the cases. So each case has a value of
//! its own for each client, and their spread gives the standard error of the average.

use std::collections::BTreeMap;

use secsv_federation::{ClientId, Coalition, FederationSpec, RoundId, SampleSet};
use serde::{Deserialize, Serialize};

/// More additions than this are not worth an error bar.
const MOST_WORK: f64 = 3e8;

/// How far values would move with other test cases of the same kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestNoise {
    /// Standard error of each value.
    pub standard_error: BTreeMap<ClientId, f64>,
    /// Standard error of the difference of two values, for every pair.
    pub differences: Vec<DifferenceNoise>,
}

/// How far the difference of two values would move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DifferenceNoise {
    /// One client.
    pub one: ClientId,
    /// The other.
    pub other: ClientId,
    /// Standard error of its value less the other's.
    pub standard_error: f64,
}

/// Values of single test cases, while outcomes come in.
pub(crate) struct CaseValues {
    participants: BTreeMap<RoundId, Coalition>,
    samples: usize,
    clients: usize,
    /// By client, then by case.
    values: Vec<Vec<f64>>,
}

impl CaseValues {
    /// Nothing yet; none if it would take too long.
    pub(crate) fn new(rounds: &[(RoundId, Coalition)], samples: usize, clients: usize) -> Option<Self> {
        let work = |(_, participants): &(RoundId, Coalition)| {
            2f64.powi(participants.len() as i32) * samples as f64 * participants.len() as f64
        };
        let is_worth = samples > 1 && rounds.iter().map(work).sum::<f64>() <= MOST_WORK;
        is_worth.then(|| Self {
            participants: rounds.iter().copied().collect(),
            samples,
            clients,
            values: vec![vec![0.0; samples]; clients],
        })
    }

    /// Takes the outcome of a coalition. What a round ends with is what the next one begins with.
    pub(crate) fn take(&mut self, round: RoundId, coalition: Coalition, right: &SampleSet) {
        let Some(&participants) = self.participants.get(&round) else { return };
        self.weigh(participants, coalition, right);
        let next = self.participants.range(RoundId(round.0 + 1)..).next().map(|(_, present)| *present);
        if coalition == participants
            && let Some(present) = next
        {
            self.weigh(present, Coalition::EMPTY, right);
        }
    }

    /// Adds what a coalition's outcome counts for each participant: (s - 1)! (n - s)! / n! for a member of a coalition of s,
    /// less s! (n - s - 1)! / n! for others.
    fn weigh(&mut self, participants: Coalition, coalition: Coalition, right: &SampleSet) {
        let (n, size) = (participants.len(), coalition.len());
        for client in participants.members() {
            let weight = if coalition.contains(client) { share(n, size - 1) } else { -share(n, size) };
            right.iter().for_each(|case| self.values[client][case] += weight);
        }
    }

    /// The standard errors.
    pub(crate) fn noise(&self, spec: &FederationSpec) -> TestNoise {
        let ids: Vec<&ClientId> = spec.ids().take(self.clients).collect();
        let error = |value: &dyn Fn(usize) -> f64| {
            let count = self.samples as f64;
            let mean = (0..self.samples).map(value).sum::<f64>() / count;
            let squares: f64 = (0..self.samples).map(|case| (value(case) - mean).powi(2)).sum();
            (squares / (count - 1.0) / count).sqrt()
        };
        let of = |client: usize| error(&|case| self.values[client][case]);
        let mut differences = Vec::new();
        for one in 0..ids.len() {
            for other in one + 1..ids.len() {
                let standard_error = error(&|case| self.values[one][case] - self.values[other][case]);
                differences.push(DifferenceNoise {
                    one: ids[one].clone(),
                    other: ids[other].clone(),
                    standard_error,
                });
            }
        }
        let standard_error = ids.iter().enumerate().map(|(client, id)| ((*id).clone(), of(client))).collect();
        TestNoise { standard_error, differences }
    }
}

/// The share of orders of `n` in which the first `before` are a given set and the next one is given: before! (n - before - 1)! / n!.
fn share(n: usize, before: usize) -> f64 {
    let mut orders = n as f64;
    for k in 0..before {
        orders *= (n - 1 - k) as f64 / (k + 1) as f64;
    }
    1.0 / orders
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::{Rng as _, SeedableRng as _};
    use secsv_federation::{ClientSpec, LayerSpec, ModelSpec};
    use secsv_shapley::{EstimatorSettings, Federated, Method};

    use super::*;

    const CASES: usize = 30;

    fn spec(clients: usize) -> FederationSpec {
        let client = |k| ClientSpec::new(ClientId::new(format!("c{k}")).unwrap(), 1.0);
        let layers = vec![LayerSpec::Linear { weight: "w".to_owned(), bias: None }];
        let model = ModelSpec::new(vec![1], 2, layers);
        FederationSpec::new("x".to_owned(), 2, model, (0..clients).map(client).collect())
    }

    /// The values of one case by the estimator itself.
    fn values_of_case(
        rounds: &[(RoundId, Coalition)],
        is_right: impl Fn(RoundId, Coalition) -> bool,
        clients: usize,
    ) -> Vec<f64> {
        let mut plan = Federated::new(Method::Exact, rounds, &EstimatorSettings::default()).unwrap();
        for (round, coalition) in plan.next_batch(Duration::ZERO).unwrap() {
            plan.absorb(round, coalition, f64::from(u8::from(is_right(round, coalition)))).unwrap();
        }
        assert!(plan.next_batch(Duration::ZERO).unwrap().is_empty());
        let total = plan.finish().unwrap().total;
        (0..clients).map(|client| total.value(client)).collect()
    }

    fn standard_error(values: &[f64]) -> f64 {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt() / count.sqrt()
    }

    /// Each case is a game of its own: its values by the estimator are those that are added up here, and their spread is the
    /// standard error.
    #[test]
    fn errors_are_those_of_values_case_by_case() {
        let clients = 4;
        let rounds = [(RoundId(1), Coalition::first(4)), (RoundId(2), Coalition::first(4).without(1))];
        let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(5);
        let mut right: BTreeMap<(RoundId, Coalition), SampleSet> = BTreeMap::new();
        let mut cases = CaseValues::new(&rounds, CASES, clients).unwrap();
        for (round, present) in rounds {
            for coalition in present.subsets().filter(|c| round == RoundId(1) || !c.is_empty()) {
                let mut set = SampleSet::none(CASES);
                (0..CASES).filter(|_| rng.random_bool(0.6)).for_each(|case| set.insert(case));
                cases.take(round, coalition, &set);
                right.insert((round, coalition), set);
            }
        }
        let is_right = |case: usize| {
            let right = &right;
            move |round: RoundId, coalition: Coalition| match (round, coalition.is_empty()) {
                (RoundId(2), true) => right[&(RoundId(1), Coalition::first(4))].contains(case),
                _ => right[&(round, coalition)].contains(case),
            }
        };
        let by_case: Vec<Vec<f64>> =
            (0..CASES).map(|case| values_of_case(&rounds, is_right(case), clients)).collect();
        let noise = cases.noise(&spec(clients));
        for client in 0..clients {
            let own: Vec<f64> = by_case.iter().map(|values| values[client]).collect();
            let found = noise.standard_error[&ClientId::new(format!("c{client}")).unwrap()];
            assert!((found - standard_error(&own)).abs() < 1e-12, "{client}: {found}");
        }
        assert_eq!(noise.differences.len(), 6);
        for difference in &noise.differences {
            let place = |id: &ClientId| id.as_str()[1..].parse::<usize>().unwrap();
            let (one, other) = (place(&difference.one), place(&difference.other));
            let apart: Vec<f64> = by_case.iter().map(|values| values[one] - values[other]).collect();
            assert!((difference.standard_error - standard_error(&apart)).abs() < 1e-12);
        }
    }
}

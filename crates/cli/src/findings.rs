//! What a result says in a few numbers: ranks, shares, what was gained, what was tested, how far the test set carries.
//! Terminal, report and CSV say the same.

use std::collections::BTreeMap;

use secsv_evaluation::{EvaluationResult, UtilityResult};
use secsv_federation::{ClientId, RoundId};

use crate::attendance::RoundAttendance;

/// Clients and their values, the largest first.
pub fn ranked(result: &EvaluationResult) -> Vec<(&ClientId, f64)> {
    let value = |id| result.fsv.get(id).copied().unwrap_or_default();
    let mut ranked: Vec<_> = result.clients.iter().map(|id| (id, value(id))).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked
}

/// How shares are made, for whoever reads them.
pub const SHARE_RULE: &str =
    "A share is a part of all positive values together; a negative value has none. It is no price.";

/// Each client's share of the positive values; none for a value that is not positive.
pub fn shares(values: &BTreeMap<ClientId, f64>) -> BTreeMap<&ClientId, f64> {
    let positive: f64 = values.values().filter(|value| **value > 0.0).sum();
    values.iter().filter(|(_, value)| **value > 0.0).map(|(id, value)| (id, value / positive)).collect()
}

/// Models that were tested: what a round begins with is what the round before ended with, and tested there.
pub fn models_tested(result: &EvaluationResult) -> usize {
    let first = result.ssv.iter().map(|of_round| of_round.round).min();
    let is_again = |utility: &&UtilityResult| utility.coalition.is_empty() && Some(utility.round) != first;
    result.utilities.len() - result.utilities.iter().filter(is_again).count()
}

/// Test cases of all clients together.
pub fn cases(result: &EvaluationResult) -> usize {
    result.utilities.iter().map(|utility| utility.total).max().unwrap_or_default()
}

/// Test cases of each class, where utilities ask for classes.
pub fn cases_of_classes(result: &EvaluationResult) -> Option<String> {
    let of_class = |(class, size): (usize, &usize)| format!("{size} of class {}", result.class(class));
    let all: Vec<String> = result.class_samples.iter().enumerate().map(of_class).collect();
    (!all.is_empty()).then(|| format!("Test cases: {}.", all.join(", ")))
}

/// What a point is.
pub fn point_words(result: &EvaluationResult) -> String {
    if result.is_of_accuracy() {
        "right answers per hundred test cases".to_owned()
    } else {
        format!("hundredths of {}", result.utility)
    }
}

/// What rises and falls, in words.
pub fn utility_words(result: &EvaluationResult) -> &str {
    if result.is_of_accuracy() { "right answers" } else { &result.utility }
}

/// What the model before the first round and after the last are worth, if both were tested.
pub fn ends(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Option<(f64, f64)> {
    let first = result.ssv.iter().map(|of_round| of_round.round).min()?;
    let last = result.ssv.iter().map(|of_round| of_round.round).max()?;
    let before = worth(result, first, 0)?;
    Some((before, worth(result, last, attendance.count(last))?))
}

/// What the model is worth after each round, beginning with that before the first; none if one of them was not tested.
pub fn worths(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Option<Vec<f64>> {
    let first = result.ssv.iter().map(|of_round| of_round.round).min()?;
    let before = std::iter::once(worth(result, first, 0));
    let after = result.ssv.iter().map(|of| worth(result, of.round, attendance.count(of.round)));
    before.chain(after).collect()
}

/// What the coalition of this size that is the only one is worth: nobody, or everybody who took part.
fn worth(result: &EvaluationResult, round: RoundId, size: usize) -> Option<f64> {
    let is_it = |utility: &&UtilityResult| {
        utility.round == round && utility.coalition.len() == size && utility.total > 0
    };
    let tested = result.utilities.iter().find(is_it)?;
    Some(result.worth(tested))
}

/// An upper bound of the standard error that other test cases give any value, from counts alone; for exact values of accuracies.
///
/// Of two models with `a` and `b` of `m` cases right, at most min(a + b, 2m - a - b) cases are right under one of them alone.
/// So the difference on one case has at most that variance, and a value's error is at most the same weighted sum of errors
/// as it is of differences.
pub fn error_bound(result: &EvaluationResult) -> Option<f64> {
    if result.estimator != "exact" || result.skip || !result.is_of_accuracy() {
        return None;
    }
    let attendance = RoundAttendance::of(result);
    let cases = cases(result) as f64;
    let counts: BTreeMap<(RoundId, &[ClientId]), f64> = result
        .utilities
        .iter()
        .map(|utility| ((utility.round, &utility.coalition[..]), utility.correct as f64))
        .collect();
    if counts.len() > MOST_BOUNDED {
        return None;
    }
    let mut bounds: BTreeMap<&ClientId, f64> = BTreeMap::new();
    for ((round, coalition), with) in &counts {
        for (place, client) in coalition.iter().enumerate() {
            let mut others = coalition.to_vec();
            others.remove(place);
            let without = counts.get(&(*round, &others[..]))?;
            let most = (with + without).min(2.0 * cases - with - without) / cases;
            let mean = (with - without) / cases;
            let error = ((most - mean * mean).max(0.0) / cases).sqrt();
            let weight = order_share(attendance.count(*round), others.len());
            *bounds.entry(client).or_default() += weight * error;
        }
    }
    bounds
        .into_values()
        .fold(None, |most: Option<f64>, bound| Some(most.map_or(bound, |most| most.max(bound))))
}

/// More coalitions than this are not gone through for a bound.
const MOST_BOUNDED: usize = 200_000;

/// The share of orders of `n` in which a given set of `before` comes first and a given one next.
fn order_share(n: usize, before: usize) -> f64 {
    (0..before).fold(1.0 / n as f64, |share, k| share * (k + 1) as f64 / (n - 1 - k) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_orders_are_a_whole() {
        for n in 1..8 {
            let choose = |k: usize| (0..k).fold(1.0, |c, i| c * (n - 1 - i) as f64 / (i + 1) as f64);
            let sum: f64 = (0..n).map(|before| choose(before) * order_share(n, before)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{n}: {sum}");
        }
    }

    #[test]
    fn shares_are_of_positive_values_and_negative_ones_have_none() {
        let id = |name: &str| ClientId::new(name).unwrap();
        let values = BTreeMap::from([(id("a"), 3.0), (id("b"), 1.0), (id("c"), -2.0), (id("d"), 0.0)]);
        assert_eq!(shares(&values), BTreeMap::from([(&id("a"), 0.75), (&id("b"), 0.25)]));
        assert!(shares(&BTreeMap::from([(id("a"), -1.0)])).is_empty());
    }
}

//! Federations of several rounds.

use std::time::Duration;

use secsv_federation::{Coalition, RoundId};
use secsv_shapley::{Error, EstimatorSettings, Federated, FederatedValues, Method, StopRule};

/// Round t adds t/10 per member; everybody's utility is what the next round starts from. Clients 0, 2, 3 take
/// part in round 1, 1, 2, 3 in round 2, all four in round 3.
fn rounds() -> [(RoundId, Coalition); 3] {
    [
        (RoundId(1), [0, 2, 3].into_iter().collect()),
        (RoundId(2), [1, 2, 3].into_iter().collect()),
        (RoundId(3), Coalition::first(4)),
    ]
}

fn utility(round: RoundId, s: Coalition) -> f64 {
    0.1 + f64::from(round.0) * 0.1 * (s.len() as f64) * if s.contains(3) { 0.5 } else { 1.0 }
}

fn drive(method: Method, settings: &EstimatorSettings) -> Result<FederatedValues, Error> {
    let mut plan = Federated::new(method, &rounds(), settings)?;
    loop {
        let batch = plan.next_batch(Duration::ZERO)?;
        if batch.is_empty() {
            return plan.finish();
        }
        for (round, coalition) in batch {
            plan.absorb(round, coalition, utility(round, coalition))?;
        }
    }
}

#[test]
fn the_federated_value_is_the_sum_over_the_rounds_attended() {
    let found = drive(Method::Exact, &EstimatorSettings::default()).unwrap();
    assert_eq!(found.total.tests(), 8 + 8 + 16);
    assert_eq!(found.rounds[0].values.value(1), 0.0, "absent from round 1");
    for client in 0..4 {
        let sum: f64 = found.rounds.iter().map(|round| round.values.value(client)).sum();
        assert!((found.total.value(client) - sum).abs() < 1e-15);
    }
    let gained: f64 =
        rounds().iter().map(|(round, all)| utility(*round, *all) - utility(*round, Coalition::EMPTY)).sum();
    assert!((found.total.total() - gained).abs() < 1e-12);
    assert!(found.total.is_exact());
}

#[test]
fn standard_errors_of_rounds_combine_in_quadrature() {
    let settings = EstimatorSettings { samples: Some(20), ..EstimatorSettings::default() };
    let found = drive(Method::PermutationWithRepeats, &settings).unwrap();
    for client in 0..4 {
        let squares = found.rounds.iter().map(|round| round.values.standard_error(client).unwrap().powi(2));
        let expected = squares.sum::<f64>().sqrt();
        assert!((found.total.standard_error(client).unwrap() - expected).abs() < 1e-15 && expected > 0.0);
    }
}

#[test]
fn the_stopping_rule_is_for_the_whole_federation() {
    let stop = StopRule { standard_error: Some(0.01), ..StopRule::default() };
    let settings = EstimatorSettings { stop, samples: Some(1_000_000), ..EstimatorSettings::default() };
    let found = drive(Method::PermutationWithRepeats, &settings).unwrap();
    let worst = found.total.standard_errors().unwrap().iter().copied().fold(0.0, f64::max);
    assert!((0.005..=0.01).contains(&worst), "{worst}");
    let stop = StopRule { tests: Some(24), ..StopRule::default() };
    let settings = EstimatorSettings { stop, samples: Some(4), ..EstimatorSettings::default() };
    assert!(drive(Method::Permutation, &settings).unwrap().total.tests() <= 24);
}

#[test]
fn the_multi_round_index_decays() {
    let plain = drive(Method::Exact, &EstimatorSettings::default()).unwrap();
    let same = drive(Method::ContributionIndexMultiRound, &EstimatorSettings::default()).unwrap();
    assert_eq!(plain.total.as_slice(), same.total.as_slice());
    let decayed = drive(
        Method::ContributionIndexMultiRound,
        &EstimatorSettings { decay: 0.5, ..EstimatorSettings::default() },
    )
    .unwrap();
    assert_eq!(decayed.rounds.iter().map(|round| round.weight).collect::<Vec<_>>(), [1.0, 0.5, 0.25]);
    let expected: f64 =
        plain.rounds.iter().zip([1.0, 0.5, 0.25]).map(|(round, weight)| weight * round.values.value(2)).sum();
    assert!((decayed.total.value(2) - expected).abs() < 1e-15);
}

#[test]
fn gtg_shapley_skips_rounds_that_change_nothing() {
    let settings = EstimatorSettings { round_tolerance: 0.2, tolerance: 0.0, ..EstimatorSettings::default() };
    let found = drive(Method::GtgShapley, &settings).unwrap();
    assert_eq!(found.rounds.iter().map(|round| round.is_skipped).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(found.rounds[0].values.tests(), 2, "only the ends were tested");
    assert_eq!(found.rounds[0].values.as_slice(), [0.0; 3]);
    assert_eq!(found.total.value(0), found.rounds[2].values.value(0));
}

#[test]
fn wt_shapley_weighs_rounds_by_their_aggregate() {
    let found =
        drive(Method::WtShapley, &EstimatorSettings { tolerance: 0.0, ..EstimatorSettings::default() })
            .unwrap();
    let best: Vec<f64> = rounds().iter().map(|(round, all)| utility(*round, *all)).collect();
    let mean = best.iter().sum::<f64>() / 3.0;
    for (round, best) in found.rounds.iter().zip(best) {
        assert!((round.weight - best / mean).abs() < 1e-15);
    }
    let weighted: f64 = found.rounds.iter().map(|round| round.weight * round.values.value(3)).sum();
    assert!((found.total.value(3) - weighted).abs() < 1e-15);
}

#[test]
fn rounds_are_known_and_listed_once() {
    let mut plan = Federated::new(Method::Exact, &rounds(), &EstimatorSettings::default()).unwrap();
    assert_eq!(
        plan.absorb(RoundId(9), Coalition::EMPTY, 0.5),
        Err(Error::UnknownRound { found: RoundId(9) })
    );
    let twice = [rounds()[0], rounds()[0]];
    let refused = Federated::new(Method::Exact, &twice, &EstimatorSettings::default()).map(|_| ());
    assert_eq!(refused, Err(Error::RepeatedRound { found: RoundId(1) }));
    plan.absorb(RoundId(1), Coalition::EMPTY, 0.1).unwrap();
    assert_eq!(plan.utilities(RoundId(1)).unwrap().len(), 1);
}

//! Games whose values are in every textbook.

use secsv_federation::Coalition;
use secsv_shapley::{ClientValues, Error, EstimatorSettings, Method, UtilityTable};

/// The methods that give Shapley values without error on a few clients: all orders, all coalitions.
const EXACT: [Method; 6] = [
    Method::Exact,
    Method::Permutation,
    Method::Antithetic,
    Method::KernelShap,
    Method::ContributionIndexOneRound,
    Method::ContributionIndexMultiRound,
];

fn all_orders() -> EstimatorSettings {
    EstimatorSettings { samples: Some(1_000_000), ..EstimatorSettings::default() }
}

fn values(method: Method, clients: usize, game: &dyn Fn(Coalition) -> f64) -> Result<ClientValues, Error> {
    // Somewhere in a larger federation, so positions and numbering differ.
    let players: Coalition = (0..clients).map(|client| 2 * client + 1).collect();
    let inner = |s: Coalition| s.members().map(|client| client / 2).collect();
    method.values_of(&UtilityTable::from_fn(players, |s| game(inner(s)))?, &all_orders())
}

fn check(
    method: Method,
    expected: &[f64],
    tolerance: f64,
    game: &dyn Fn(Coalition) -> f64,
) -> Result<(), Error> {
    let found = values(method, expected.len(), game)?;
    assert!(found.is_exact(), "{method}");
    for (client, expected) in expected.iter().enumerate() {
        let found = found.value(2 * client + 1);
        assert!(
            (found - expected).abs() < tolerance,
            "{method}, client {client}: {found}, expected {expected}"
        );
    }
    Ok(())
}

fn glove(s: Coalition) -> f64 {
    f64::from(s.contains(0) && (s.contains(1) || s.contains(2)))
}

/// Runway lengths: a coalition pays for its longest.
fn airport(s: Coalition) -> f64 {
    s.members().map(|client| [1.0, 2.0, 2.0, 5.0][client]).fold(0.0, f64::max)
}

/// Weights 4, 3, 2, 1, a quota of 6.
fn voting(s: Coalition) -> f64 {
    f64::from(s.members().map(|client| [4, 3, 2, 1][client]).sum::<i32>() >= 6)
}

const WORTH: [f64; 5] = [0.3, -0.1, 0.0, 0.25, 0.05];

fn additive(s: Coalition) -> f64 {
    0.5 + s.members().map(|client| WORTH[client]).sum::<f64>()
}

fn symmetric(s: Coalition) -> f64 {
    (s.len() as f64).sqrt()
}

#[test]
fn shapley_values_are_the_textbooks() {
    for method in EXACT {
        check(method, &[2.0 / 3.0, 1.0 / 6.0, 1.0 / 6.0], 1e-10, &glove).unwrap();
        let (first, second, last) = (1.0 / 4.0, 1.0 / 3.0, 3.0);
        let expected = [first, first + second, first + second, first + second + last];
        check(method, &expected, 1e-10, &airport).unwrap();
        check(method, &[5.0, 3.0, 3.0, 1.0].map(|swings| swings / 12.0), 1e-10, &voting).unwrap();
        check(method, &WORTH, 1e-10, &additive).unwrap();
        check(method, &[7f64.sqrt() / 7.0; 7], 1e-10, &symmetric).unwrap();
    }
}

#[test]
fn other_values_are_the_textbooks() {
    let swings = [5.0, 3.0, 3.0, 1.0].map(|swings| swings / 8.0);
    check(Method::Banzhaf, &swings, 1e-12, &voting).unwrap();
    check(Method::Banzhaf, &[0.75, 0.25, 0.25], 1e-12, &glove).unwrap();
    check(Method::LeaveOneOut, &[1.0, 0.0, 0.0], 1e-12, &glove).unwrap();
    // The scarce glove takes everything: the core's only point.
    check(Method::LeastCore, &[1.0, 0.0, 0.0], 1e-6, &glove).unwrap();
    // Majority of three: an empty core, the least one in the middle.
    check(Method::LeastCore, &[1.0 / 3.0; 3], 1e-6, &|s| f64::from(s.len() >= 2)).unwrap();
    let everybody_counts = [Method::Banzhaf, Method::BetaShapley, Method::LeaveOneOut, Method::LeastCore];
    for method in everybody_counts {
        let tolerance = if method == Method::LeastCore { 1e-6 } else { 1e-12 };
        check(method, &WORTH, tolerance, &additive).unwrap();
    }
    check(Method::LeastCore, &[7f64.sqrt() / 7.0; 7], 1e-6, &symmetric).unwrap();
}

#[test]
fn sampled_orders_value_an_additive_game_without_error() {
    let untruncated = EstimatorSettings {
        tolerance: 0.0,
        round_tolerance: 0.0,
        samples: Some(50),
        ..EstimatorSettings::default()
    };
    let table = UtilityTable::from_fn(Coalition::first(5), additive).unwrap();
    for method in [Method::Truncated, Method::GtgShapley, Method::WtShapley, Method::PermutationWithRepeats] {
        let found = method.values_of(&table, &untruncated).unwrap();
        for (found, expected) in found.as_slice().iter().zip(WORTH) {
            assert!((found - expected).abs() < 1e-12, "{method}");
        }
        assert!(!found.is_exact() && found.standard_errors().unwrap().iter().all(|error| *error < 1e-12));
    }
}

#[test]
fn groups_share_equally_and_split_everything() {
    let table = UtilityTable::from_fn(Coalition::first(7), |s| additive(s.intersection(Coalition::first(5))))
        .unwrap();
    let grouped = Method::GroupSv.values_of(&table, &EstimatorSettings::default()).unwrap();
    assert!((grouped.total() - WORTH.iter().sum::<f64>()).abs() < 1e-12);
    let mut levels = grouped.as_slice().to_vec();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    assert_eq!((levels.len(), grouped.tests()), (3, 8));
    let alone = EstimatorSettings { groups: 7, ..EstimatorSettings::default() };
    let alone = Method::GroupSv.values_of(&table, &alone).unwrap();
    for (client, expected) in WORTH.into_iter().enumerate() {
        assert!((alone.value(client) - expected).abs() < 1e-12);
    }
}

#[test]
fn a_single_client_gets_the_whole_gain() {
    let table = UtilityTable::from_fn(Coalition::EMPTY.with(4), |s| 0.25 + 0.5 * s.len() as f64).unwrap();
    let settings = EstimatorSettings { tolerance: 0.0, ..EstimatorSettings::default() };
    for method in Method::all() {
        let found = method.values_of(&table, &settings).unwrap().value(4);
        assert!((found - 0.5).abs() < 1e-12, "{method}: {found}");
    }
}

//! Plans ask for each coalition once, stop when told to, and repeat themselves exactly.

use std::{collections::HashSet, time::Duration};

use secsv_federation::{Coalition, RoundId};
use secsv_shapley::{
    ClientValues, Error, Estimator, EstimatorSettings, Federated, Method, StopRule, UtilityTable,
};

fn utility(s: Coalition) -> f64 {
    let worth: f64 = s.members().map(|client| 0.02 + 0.003 * (client % 17) as f64).sum();
    let luck = (s.bits() as u64 ^ (s.bits() >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    0.9 - 0.6 * (-worth).exp() + 0.02 * luck as f64 / (1u64 << 24) as f64
}

/// Drives a plan to its end with a clock that ticks once per test; what it asked for, batch by batch.
fn drive(estimator: &mut dyn Estimator) -> Result<(Vec<Vec<Coalition>>, ClientValues), Error> {
    let mut batches: Vec<Vec<Coalition>> = Vec::new();
    let mut elapsed = Duration::ZERO;
    loop {
        let batch = estimator.next_batch(elapsed)?;
        if batch.is_empty() {
            return Ok((batches, estimator.finish()?));
        }
        for &coalition in &batch {
            estimator.absorb(coalition, utility(coalition))?;
            elapsed += Duration::from_millis(1);
        }
        batches.push(batch);
    }
}

fn few_samples(seed: u64) -> EstimatorSettings {
    EstimatorSettings { seed, samples: Some(60), round_tolerance: 0.0, ..EstimatorSettings::default() }
}

#[test]
fn every_coalition_is_asked_for_at_most_once() {
    let players: Coalition = (0..9).map(|client| 3 * client).collect();
    for method in Method::all() {
        let mut estimator = method.estimator(players, 1, &few_samples(3)).unwrap();
        let (batches, values) = drive(estimator.as_mut()).unwrap();
        let asked: Vec<Coalition> = batches.concat();
        let different: HashSet<Coalition> = asked.iter().copied().collect();
        assert_eq!(different.len(), asked.len(), "{method} repeats itself");
        assert_eq!(values.tests(), asked.len(), "{method}");
        assert!(asked.iter().all(|coalition| coalition.is_subset_of(players)), "{method}");
        for batch in batches {
            assert!(
                batch.windows(2).all(|pair| pair[0].len() <= pair[1].len()),
                "{method}: subsets come first"
            );
        }
    }
}

#[test]
fn utilities_known_beforehand_are_not_asked_for() {
    for method in Method::all() {
        let players = Coalition::first(6);
        let mut estimator = method.estimator(players, 1, &few_samples(3)).unwrap();
        for known in [Coalition::EMPTY, players] {
            estimator.absorb(known, utility(known)).unwrap();
        }
        let (batches, values) = drive(estimator.as_mut()).unwrap();
        let asked = batches.concat();
        assert!(!asked.contains(&Coalition::EMPTY) && !asked.contains(&players), "{method}");
        assert_eq!(values.tests(), asked.len(), "{method}");
    }
}

#[test]
fn a_seed_repeats_a_run_and_another_does_not() {
    for method in Method::all() {
        let run = |seed, round| {
            let mut estimator = method.estimator(Coalition::first(12), round, &few_samples(seed)).unwrap();
            drive(estimator.as_mut()).unwrap()
        };
        assert_eq!(run(5, 2), run(5, 2), "{method}");
        let is_random = !matches!(
            method,
            Method::Exact
                | Method::LeaveOneOut
                | Method::Banzhaf
                | Method::BetaShapley
                | Method::ContributionIndexOneRound
                | Method::ContributionIndexMultiRound
        );
        assert_eq!(run(5, 2) != run(6, 2), is_random, "{method}");
        assert_eq!(run(5, 2) != run(5, 3), is_random, "{method}: rounds draw their own numbers");
    }
}

const SAMPLING: [Method; 6] = [
    Method::Permutation,
    Method::Antithetic,
    Method::Truncated,
    Method::GtgShapley,
    Method::GroupTesting,
    Method::KernelShap,
];

#[test]
fn sampling_stops_at_the_number_of_tests() {
    for method in SAMPLING {
        for tests in [97, 700] {
            let stop = StopRule { tests: Some(tests), ..StopRule::default() };
            let settings = EstimatorSettings {
                stop,
                tolerance: 0.0,
                round_tolerance: 0.0,
                batch: 32,
                ..EstimatorSettings::default()
            };
            let mut estimator = method.estimator(Coalition::first(15), 1, &settings).unwrap();
            // An observation of GTG-Shapley is 15 orders of 14 coalitions, and it needs two.
            if method == Method::GtgShapley && tests == 97 {
                let refused = drive(estimator.as_mut());
                assert!(matches!(refused, Err(Error::Budget { .. })), "{refused:?}");
                continue;
            }
            let (_, values) = drive(estimator.as_mut()).unwrap();
            assert!(values.tests() <= tests, "{method}: {} of {tests}", values.tests());
            let unused = if method == Method::GtgShapley { 15 * 14 } else { 45 };
            assert!(values.tests() + unused > tests, "{method}: {} of {tests}", values.tests());
            assert!(!values.is_exact());
        }
    }
}

#[test]
fn sampling_stops_at_the_standard_error() {
    for method in SAMPLING {
        let with_target = |target| {
            let stop = StopRule { standard_error: Some(target), ..StopRule::default() };
            let samples = Some(100_000);
            let settings = EstimatorSettings {
                stop,
                samples,
                tolerance: 0.0,
                round_tolerance: 0.0,
                convergence: 0.0,
                ..EstimatorSettings::default()
            };
            let mut estimator = method.estimator(Coalition::first(14), 1, &settings).unwrap();
            let (_, values) = drive(estimator.as_mut()).unwrap();
            let worst =
                values.standard_errors().map_or(0.0, |errors| errors.iter().copied().fold(0.0, f64::max));
            assert!(worst <= target, "{method}: {worst} for a target of {target}");
            values.tests()
        };
        let (loose, tight) = (with_target(0.02), with_target(0.004));
        assert!(loose <= tight, "{method}: {loose} and {tight} tests");
        assert!(loose < 1 << 14, "{method}: {loose} tests");
    }
}

#[test]
fn sampling_stops_when_time_is_up() {
    for method in SAMPLING {
        let stop = StopRule { elapsed: Some(Duration::from_millis(600)), ..StopRule::default() };
        let settings = EstimatorSettings {
            stop,
            tolerance: 0.0,
            round_tolerance: 0.0,
            batch: 64,
            samples: Some(1_000_000),
            ..EstimatorSettings::default()
        };
        let mut estimator = method.estimator(Coalition::first(30), 1, &settings).unwrap();
        let (_, values) = drive(estimator.as_mut()).unwrap();
        // GTG-Shapley's observations are 30 orders of 29 coalitions each, and two of them are always made.
        let most = if method == Method::GtgShapley { 2 * 30 * 29 + 2 } else { 700 };
        assert!((600..=most).contains(&values.tests()), "{method}: {} tests", values.tests());
    }
}

#[test]
fn a_hundred_clients_can_be_sampled() {
    let players = Coalition::first(100);
    for method in SAMPLING.into_iter().chain([
        Method::LeaveOneOut,
        Method::LeastCore,
        Method::GroupSv,
        Method::WtShapley,
    ]) {
        let stop = StopRule { tests: Some(25_000), ..StopRule::default() };
        let settings =
            EstimatorSettings { stop, samples: Some(1200), tolerance: 0.0, ..EstimatorSettings::default() };
        let mut estimator = method.estimator(players, 1, &settings).unwrap();
        let (_, values) = drive(estimator.as_mut()).unwrap();
        assert_eq!(values.as_slice().len(), 100);
        assert!(values.as_slice().iter().all(|value| value.is_finite()));
        assert_eq!(values.is_exact(), matches!(method, Method::LeaveOneOut | Method::GroupSv), "{method}");
        if method.is_efficient() {
            let total = utility(players) - utility(Coalition::EMPTY);
            assert!((values.total() - total).abs() < 1e-6, "{method}: {} of {total}", values.total());
        }
    }
    for method in [Method::Exact, Method::Banzhaf] {
        let refused = method.estimator(players, 1, &EstimatorSettings::default()).map(|_| ());
        assert!(matches!(refused, Err(Error::TooManyClients { expected: 20, found: 100, .. })));
    }
}

#[test]
fn too_few_tests_and_wrong_settings_are_refused() {
    let players = Coalition::first(6);
    for method in Method::all() {
        let stop = StopRule { tests: Some(3), ..StopRule::default() };
        let settings =
            EstimatorSettings { stop, tolerance: 0.0, round_tolerance: 0.0, ..EstimatorSettings::default() };
        let refused = drive(method.estimator(players, 1, &settings).unwrap().as_mut());
        assert!(
            matches!(refused, Err(Error::Budget { .. } | Error::Undetermined { .. })),
            "{method}: {refused:?}"
        );
    }
    let wrong = [
        EstimatorSettings { epsilon: 0.0, ..EstimatorSettings::default() },
        EstimatorSettings { delta: 1.0, ..EstimatorSettings::default() },
        EstimatorSettings { beta: (1.0, -1.0), ..EstimatorSettings::default() },
        EstimatorSettings { groups: 0, ..EstimatorSettings::default() },
        EstimatorSettings { decay: 1.5, ..EstimatorSettings::default() },
        EstimatorSettings { tolerance: f64::NAN, ..EstimatorSettings::default() },
    ];
    for settings in wrong {
        let refused = Method::Exact.estimator(players, 1, &settings).map(|_| ());
        assert!(matches!(refused, Err(Error::Setting { .. })), "{settings:?}");
    }
    assert!(matches!(
        Method::Exact.estimator(Coalition::EMPTY, 1, &EstimatorSettings::default()).map(|_| ()),
        Err(Error::NoClients)
    ));
}

#[test]
fn misuse_is_an_error() {
    let players = Coalition::first(4);
    let mut estimator = Method::Exact.estimator(players, 1, &EstimatorSettings::default()).unwrap();
    assert_eq!(estimator.next_batch(Duration::ZERO).unwrap().len(), 16);
    assert_eq!(estimator.next_batch(Duration::ZERO), Err(Error::Unanswered { waiting: 16 }));
    assert_eq!(estimator.finish(), Err(Error::Missing { coalition: Coalition::EMPTY }));
    let stranger = Coalition::EMPTY.with(7);
    assert_eq!(estimator.absorb(stranger, 0.5), Err(Error::Stranger { expected: players, found: stranger }));
    let unknown: Result<Method, Error> = "shaply".parse();
    assert!(unknown.unwrap_err().to_string().contains("kernelshap"));
    for method in Method::all() {
        assert_eq!(method.name().parse(), Ok(method));
    }
    let table = UtilityTable::new(players).unwrap();
    assert!(matches!(
        Method::LeaveOneOut.values_of(&table, &EstimatorSettings::default()),
        Err(Error::Missing { .. })
    ));
    let rounds = [(RoundId(1), players), (RoundId(2), players)];
    let refused =
        Federated::new(Method::ContributionIndexOneRound, &rounds, &EstimatorSettings::default()).map(|_| ());
    assert!(matches!(refused, Err(Error::NeedsCumulativeModels { .. })));
    assert!(
        Federated::new(Method::ContributionIndexOneRound, &rounds[..1], &EstimatorSettings::default())
            .is_ok()
    );
}

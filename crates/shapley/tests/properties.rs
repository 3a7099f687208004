//! Promises of a fair split, on games drawn at random.

use proptest::prelude::*;
use secsv_federation::Coalition;
use secsv_shapley::{ClientValues, Error, EstimatorSettings, Method, UtilityTable};

const SHAPLEY: [Method; 4] = [Method::Exact, Method::KernelShap, Method::Permutation, Method::Antithetic];
const SEMIVALUES: [Method; 4] = [Method::Exact, Method::Banzhaf, Method::BetaShapley, Method::LeaveOneOut];

fn values(method: Method, game: &[f64]) -> Result<ClientValues, Error> {
    let players = Coalition::first(game.len().ilog2() as usize);
    let table = UtilityTable::from_fn(players, |s| game[s.bits() as usize])?;
    let settings = EstimatorSettings {
        samples: Some(100_000),
        tolerance: 0.0,
        round_tolerance: 0.0,
        ..EstimatorSettings::default()
    };
    method.values_of(&table, &settings)
}

fn games() -> impl Strategy<Value = Vec<f64>> {
    (1usize..=6).prop_flat_map(|clients| prop::collection::vec(-1.0..1.0f64, 1 << clients))
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() < tolerance
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn efficient_methods_split_everything_and_no_more(game in games()) {
        for method in Method::all().filter(|method| method.is_efficient()) {
            let settings = EstimatorSettings { samples: Some(200), ..EstimatorSettings::default() };
            let players = Coalition::first(game.len().ilog2() as usize);
            let table = UtilityTable::from_fn(players, |s| game[s.bits() as usize]).unwrap();
            let total = method.values_of(&table, &settings).unwrap().total();
            prop_assert!(near(total, game[game.len() - 1] - game[0], 1e-7), "{method}: {total}");
        }
    }

    /// Two clients who change places change values.
    #[test]
    fn names_do_not_matter(game in games(), a in 0usize..6, b in 0usize..6) {
        let clients = game.len().ilog2() as usize;
        let (a, b) = (a % clients, b % clients);
        let swap = |client: usize| if client == a { b } else if client == b { a } else { client };
        let swapped = |s: usize| {
            let moved: Coalition = Coalition::from_bits(s as u128).members().map(swap).collect();
            game[moved.bits() as usize]
        };
        let mirrored: Vec<f64> = (0..game.len()).map(swapped).collect();
        for method in SHAPLEY.into_iter().chain(SEMIVALUES).chain([Method::LeastCore]) {
            let (before, after) = (values(method, &game).unwrap(), values(method, &mirrored).unwrap());
            let tolerance = if method == Method::LeastCore { 1e-4 } else { 1e-9 };
            for client in 0..clients {
                prop_assert!(near(before.value(client), after.value(swap(client)), tolerance), "{method}");
            }
        }
    }

    /// A client who never changes a utility is worth nothing, exactly so where marginal contributions are
    /// added up.
    #[test]
    fn who_changes_nothing_gets_nothing(game in games(), null in 0usize..6) {
        let clients = game.len().ilog2() as usize;
        let null = null % clients;
        let without: Vec<f64> = (0..game.len()).map(|s| game[s & !(1 << null)]).collect();
        for method in SHAPLEY.into_iter().chain(SEMIVALUES).chain([Method::Truncated, Method::GtgShapley]) {
            let found = values(method, &without).unwrap().value(null);
            let tolerance = if method == Method::KernelShap { 1e-9 } else { f64::MIN_POSITIVE };
            prop_assert!(near(found, 0.0, tolerance), "{method}: {found}");
        }
    }

    /// The values of a weighted sum of games are the weighted sum of their values.
    #[test]
    fn games_add_up(
        (first, second) in (1usize..=6).prop_flat_map(|clients| {
            let game = prop::collection::vec(-1.0..1.0f64, 1 << clients);
            (game.clone(), game)
        }),
        factor in -3.0..3.0f64,
    ) {
        let sum: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + factor * b).collect();
        for method in SHAPLEY.into_iter().chain(SEMIVALUES) {
            let parts = (values(method, &first).unwrap(), values(method, &second).unwrap());
            let whole = values(method, &sum).unwrap();
            for client in 0..first.len().ilog2() as usize {
                let expected = parts.0.value(client) + factor * parts.1.value(client);
                prop_assert!(near(whole.value(client), expected, 1e-9), "{method}");
            }
        }
    }

    /// No coalition is further short of its utility in the least core than under Shapley's split.
    #[test]
    fn the_least_core_leaves_the_least_to_complain_about(game in games()) {
        let shortfall = |split: &ClientValues| {
            let given = |s: u128| Coalition::from_bits(s).members().map(|client| split.value(client)).sum::<f64>();
            (1..game.len() - 1).map(|s| game[s] - game[0] - given(s as u128)).fold(f64::NEG_INFINITY, f64::max)
        };
        let core = shortfall(&values(Method::LeastCore, &game).unwrap());
        let shapley = shortfall(&values(Method::Exact, &game).unwrap());
        prop_assert!(core <= shapley + 1e-7, "{core} against {shapley}");
    }
}

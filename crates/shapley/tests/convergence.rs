//! Sampled methods come nearer at the rate they should, and know how far off they are.

use secsv_federation::Coalition;
use secsv_shapley::{ClientValues, Error, EstimatorSettings, Method, UtilityTable};

const SEEDS: u64 = 60;

/// Something like accuracies of 12 clients: saturating, uneven, with luck in every coalition.
fn game() -> Result<UtilityTable, Error> {
    UtilityTable::from_fn(Coalition::first(12), |s| {
        let worth: f64 = s.members().map(|client| 0.1 + 0.07 * client as f64).sum();
        let luck = (s.bits() as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        1.0 - 0.6 * (-worth).exp() + 0.05 * (luck as f64 / (1u64 << 24) as f64 - 0.5)
    })
}

/// Root mean square over seeds and clients of the error, and of the error in units of its stated size.
fn errors(
    method: Method,
    samples: usize,
    table: &UtilityTable,
    exact: &ClientValues,
) -> Result<(f64, f64), Error> {
    let (mut squares, mut standardised, mut count) = (0.0, 0.0, 0.0);
    for seed in 0..SEEDS {
        let settings = EstimatorSettings {
            seed,
            samples: Some(samples),
            tolerance: 0.0,
            round_tolerance: 0.0,
            convergence: 0.0,
            ..EstimatorSettings::default()
        };
        let found = method.values_of(table, &settings)?;
        for client in 0..12 {
            let error = found.value(client) - exact.value(client);
            squares += error * error;
            standardised += (error / found.standard_error(client).unwrap_or(f64::NAN)).powi(2);
            count += 1.0;
        }
    }
    Ok(((squares / count).sqrt(), (standardised / count).sqrt()))
}

#[test]
fn sixteen_times_the_samples_are_four_times_nearer() {
    let table = game().unwrap();
    let exact = Method::Exact.values_of(&table, &EstimatorSettings::default()).unwrap();
    let by_orders =
        [Method::Permutation, Method::Antithetic, Method::Truncated, Method::PermutationWithRepeats];
    let cases = by_orders
        .map(|method| (method, 40))
        .into_iter()
        .chain([(Method::GtgShapley, 240), (Method::GroupTesting, 300)]);
    for (method, samples) in cases {
        let (few, few_sigmas) = errors(method, samples, &table, &exact).unwrap();
        let (many, many_sigmas) = errors(method, 16 * samples, &table, &exact).unwrap();
        println!(
            "{method}: {few:.2e} -> {many:.2e}, in standard errors {few_sigmas:.2} and {many_sigmas:.2}"
        );
        assert!((3.0..5.5).contains(&(few / many)), "{method}: {few} to {many}");
        for sigmas in [few_sigmas, many_sigmas] {
            assert!((0.8..1.25).contains(&sigmas), "{method}: errors are {sigmas} of the stated size");
        }
    }
}

/// Drawn without repeats, KernelSHAP is faster than the square root and ends at no error.
#[test]
fn kernelshap_converges_to_the_exact_values() {
    let table = game().unwrap();
    let exact = Method::Exact.values_of(&table, &EstimatorSettings::default()).unwrap();
    let budgets = [128, 512, 2048];
    let mut last = f64::INFINITY;
    for budget in budgets {
        let (error, sigmas) = errors(Method::KernelShap, budget, &table, &exact).unwrap();
        println!("kernelshap, {budget} tests: {error:.2e}, in standard errors {sigmas:.2}");
        assert!(error < last / 1.8, "{budget} tests: {error} after {last}");
        assert!((0.8..1.4).contains(&sigmas), "errors are {sigmas} of the stated size");
        last = error;
    }
    let everything = EstimatorSettings { samples: Some(4096), ..EstimatorSettings::default() };
    let found = Method::KernelShap.values_of(&table, &everything).unwrap();
    assert!(found.is_exact() && found.tests() == 4096);
    for client in 0..12 {
        assert!((found.value(client) - exact.value(client)).abs() < 1e-10);
    }
}

#[test]
fn reversed_orders_help_where_they_should() {
    let table = game().unwrap();
    let exact = Method::Exact.values_of(&table, &EstimatorSettings::default()).unwrap();
    let (plain, _) = errors(Method::Permutation, 200, &table, &exact).unwrap();
    let (antithetic, _) = errors(Method::Antithetic, 200, &table, &exact).unwrap();
    assert!(antithetic < 0.8 * plain, "{antithetic} against {plain}");
}

#[test]
fn truncation_saves_tests_for_a_small_error() {
    let table = game().unwrap();
    let exact = Method::Exact.values_of(&table, &EstimatorSettings::default()).unwrap();
    let settings = |tolerance| EstimatorSettings {
        tolerance,
        round_tolerance: 0.0,
        samples: Some(120),
        ..EstimatorSettings::default()
    };
    for method in [Method::Truncated, Method::GtgShapley] {
        let full = method.values_of(&table, &settings(0.0)).unwrap();
        let cut = method.values_of(&table, &settings(0.03)).unwrap();
        assert!(cut.tests() < full.tests() * 9 / 10, "{method}: {} of {} tests", cut.tests(), full.tests());
        for client in 0..12 {
            let error = (cut.value(client) - exact.value(client)).abs();
            assert!(error < 0.03, "{method}, client {client}: off by {error}");
        }
    }
}

/// The table "Comparisons of SV estimation methods" of the SecSV paper: permutation samples err least, its
/// KernelSHAP most. As proposed, group testing beats them and KernelSHAP on the same number of tests beats
/// its variant.
#[test]
fn the_papers_variants_err_in_the_papers_order() {
    let table = UtilityTable::from_fn(Coalition::first(5), |s| {
        let worth: f64 = s.members().map(|client| 0.3 + 0.35 * client as f64).sum();
        let luck = (s.bits() as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        if s.is_empty() {
            0.7
        } else {
            0.9 - 0.35 * (-worth).exp() + 0.1 * (luck as f64 / (1u64 << 24) as f64)
        }
    })
    .unwrap();
    let exact = Method::Exact.values_of(&table, &EstimatorSettings::default()).unwrap();
    let error = |method: Method, samples: Option<usize>| -> f64 {
        let of_seed = |seed| {
            let found = method
                .values_of(&table, &EstimatorSettings { seed, samples, ..EstimatorSettings::default() })
                .unwrap();
            (0..5).map(|client| (found.value(client) - exact.value(client)).powi(2)).sum::<f64>().sqrt()
        };
        (0..12).map(of_seed).sum::<f64>() / 12.0
    };
    let permutations = error(Method::PermutationWithRepeats, None);
    let groups = error(Method::GroupTestingOfThePaper, None);
    let kernel = error(Method::KernelShapOfThePaper, None);
    assert!(
        0.0 < permutations && permutations < groups && groups < kernel,
        "{permutations} {groups} {kernel}"
    );
    assert!(error(Method::GroupTesting, None) < groups);
    assert!(error(Method::KernelShap, Some(26)) < kernel);
    assert!(error(Method::KernelShap, None) < 1e-12 && error(Method::Permutation, None) < 1e-12);
}

//! Exact values of as many clients as are promised, fast enough not to be noticed beside testing the models.

use std::time::{Duration, Instant};

use secsv_federation::Coalition;
use secsv_shapley::{ClientValues, Error, EstimatorSettings, Method, UtilityTable};

fn timed(method: Method, clients: usize) -> Result<(ClientValues, Duration), Error> {
    let worth = |client: usize| 0.01 * (client + 1) as f64;
    let table = UtilityTable::from_fn(Coalition::first(clients), |s| {
        let sum: f64 = s.members().map(worth).sum();
        sum / (1.0 + sum)
    })?;
    let start = Instant::now();
    let values = method.values_of(&table, &EstimatorSettings::default())?;
    Ok((values, start.elapsed()))
}

#[test]
fn twenty_clients_are_valued_exactly() {
    for (clients, limit) in [(16, Duration::from_millis(500)), (20, Duration::from_secs(5))] {
        for method in [Method::Exact, Method::Banzhaf] {
            let (values, took) = timed(method, clients).unwrap();
            println!("{method}, {clients} clients: {took:?}");
            assert_eq!(values.tests(), 1 << clients);
            assert!(values.as_slice().windows(2).all(|pair| pair[0] < pair[1]), "more worth, more value");
            assert!(took < limit, "{method}, {clients} clients took {took:?}");
        }
    }
    let (values, _) = timed(Method::Exact, 20).unwrap();
    let sum = 0.01 * 210.0;
    assert!((values.total() - sum / (1.0 + sum)).abs() < 1e-12);
}

#[test]
fn the_least_core_of_sixteen_clients_is_found() {
    let (values, took) = timed(Method::LeastCore, 16).unwrap();
    println!("least-core, 16 clients: {took:?}");
    let sum = 0.01 * 136.0;
    assert!((values.total() - sum / (1.0 + sum)).abs() < 1e-7 && values.is_exact());
}

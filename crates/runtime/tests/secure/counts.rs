//! What a session costs, in operations.

use std::collections::BTreeSet;

use secsv_federation::{RoundId, SampleSet};
use secsv_protocol::{Operations, TestRequest, decryptors::Protocol};
use secsv_runtime::world::Honest;

use crate::federations::{Recipe, Shape, compact};

/// Operations of tests of every `step`-th coalition on one owner's samples.
fn operations(clients: usize, step: usize) -> (usize, Operations) {
    let mut samples = vec![0; clients];
    samples[0] = 3;
    let shape = Shape::Logistic { features: 4 };
    let recipe = Recipe { shape, classes: 2, samples, rounds: 1, absence: 0, size_bits: 5, seed: 5 };
    let fixture = recipe.build();
    let mut world = fixture.world(compact(Protocol::SecSv), Box::new(Honest)).unwrap();
    let coalitions: BTreeSet<_> = fixture.coalitions().into_iter().skip(5).step_by(step).collect();
    let samples = SampleSet::all(3);
    let requests = coalitions
        .iter()
        .map(|&(round, coalition)| TestRequest::new(round, coalition, samples.clone()))
        .collect();
    assert_eq!(fixture.participants[&RoundId(1)].len(), clients);
    world.run(requests, |_, _| Ok(Default::default())).unwrap();
    (coalitions.len(), world.accounts().operations)
}

/// Coalition linearity (DESIGN 3.4): both servers multiply every local model once, whatever is asked of them.
#[test]
fn products_of_logistic_models_grow_with_the_clients_alone() {
    for (clients, step) in [(4, 1), (8, 1), (8, 17), (12, 9)] {
        let (coalitions, operations) = operations(clients, step);
        println!("n = {clients}, {coalitions} coalitions: {operations:?}");
        assert_eq!(operations.ct_pt_mul, 2 * clients as u64 * PRODUCTS, "n = {clients}");
        assert_eq!(operations.ct_ct_mul, 0);
    }
}

/// Of one small model and three samples at one server.
const PRODUCTS: u64 = 1;

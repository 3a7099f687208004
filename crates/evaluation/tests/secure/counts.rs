//! What a session costs, in operations.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use secsv_evaluation::{
    Envelope,
    in_process::{Honest, Interceptor},
};
use secsv_federation::{RoundId, SampleSet};
use secsv_protocol::{Operations, PartyId, TestRequest, decryptors::Protocol, message::Kind};

use crate::federations::{PROTOCOLS, Recipe, Shape, compact};

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
    world.run(requests, |_, _| Ok(Vec::new())).unwrap();
    (coalitions.len(), world.accounts().operations)
}

/// Coalition linearity (PROTOCOL.md 2): both servers multiply every local model once, whatever is asked of them.
#[test]
fn products_of_logistic_models_grow_with_the_clients_alone() {
    for (clients, step) in [(4, 1), (8, 1), (8, 17), (12, 9)] {
        let (coalitions, operations) = operations(clients, step);
        println!("n = {clients}, {coalitions} coalitions: {operations:?}");
        assert_eq!(operations.ct_pt_mul, 2 * clients as u64 * PRODUCTS, "n = {clients}");
        assert_eq!(operations.ct_ct_mul, 0);
    }
}

/// Asked for together, they take as many replies as sums are independent for each of three decryptors, or four where that
/// keeps somebody from a model it knows, and two more for models that the owner of some samples knows.
#[test]
fn replies_about_logistic_models_grow_with_the_clients_alone() {
    for clients in [4, 5, 8, 10] {
        let (shape, samples) = (Shape::Logistic { features: 4 }, vec![2; clients]);
        let recipe = Recipe { shape, classes: 2, samples, rounds: 1, absence: 0, size_bits: 5, seed: 5 };
        let fixture = recipe.build();
        let mut world = fixture.world(compact(Protocol::SecSv), Box::new(Honest)).unwrap();
        let mut requests = fixture.requests();
        let coalitions = requests.iter().flat_map(|request| request.coalitions.clone()).collect();
        let request = TestRequest { coalitions, ..requests.remove(0) };
        world.run(vec![request], |_, _| Ok(Vec::new())).unwrap();
        let groups = world.with_principal(|p| p.session().unwrap().groups.len()).unwrap();
        let (found, most) = (world.accounts().operations.decrypt, groups * 4 * (clients - 1) + 2 * clients);
        println!("n = {clients}: {found} replies to {groups} groups, at most {most}");
        assert!(found <= most as u64, "n = {clients}: {found} > {most}");
    }
}

/// Of one small model and three samples at one server.
const PRODUCTS: u64 = 1;

/// Counts the rounds that are open at the same time.
#[derive(Clone, Default)]
struct OpenRounds(Arc<Mutex<(BTreeSet<u32>, usize)>>);

impl Interceptor for OpenRounds {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        let (open, most) = &mut *self.0.lock().unwrap();
        let round = |at: usize| u32::from_le_bytes(envelope.content[at..at + 4].try_into().unwrap());
        match (envelope.kind, envelope.to) {
            (Kind::RoundStart, PartyId::Client(_)) => {
                open.insert(round(0));
            }
            (Kind::RoundFinished, PartyId::Auxiliary) => {
                open.remove(&round(0));
            }
            _ => {}
        }
        *most = open.len().max(*most);
        vec![envelope]
    }
}

/// Larger coalitions are asked for once the smaller ones have ended, as SampleSkip does, and the first round is asked for
/// last: while somebody looks at results and nothing is under way, no more rounds are opened than there is memory for.
#[test]
fn few_rounds_are_open_however_tests_are_asked_for() {
    for &protocol in PROTOCOLS {
        let (shape, samples) = (Shape::Logistic { features: 4 }, vec![3, 2, 0, 1, 2]);
        let recipe = Recipe { shape, classes: 2, samples, rounds: 5, absence: 0, size_bits: 5, seed: 5 };
        let fixture = recipe.build();
        let open = OpenRounds::default();
        let mut world = fixture.world(compact(protocol), Box::new(open.clone())).unwrap();
        let of_size =
            |size: usize| fixture.requests().into_iter().filter(move |r| r.coalitions[0].len() == size);
        let first: Vec<TestRequest> = of_size(1).collect();
        let (early, late): (Vec<_>, Vec<_>) = first.into_iter().partition(|r| r.round > RoundId(1));
        let (mut left, mut late) = (fixture.requests(), Some(late));
        world
            .run(early, |asked, _| {
                left.retain(|request| request != asked);
                let (round, size) = (asked.round, asked.coalitions[0].len());
                if left.iter().any(|r| r.round == round && r.coalitions[0].len() == size) {
                    return Ok(Vec::new());
                }
                // Long enough for all that is under way to end.
                std::thread::sleep(Duration::from_millis(30));
                let next = of_size(size + 1).filter(|r| r.round == round);
                Ok(next.chain(late.take().into_iter().flatten()).collect())
            })
            .unwrap();
        let (still_open, most) = &*open.0.lock().unwrap();
        assert!(left.iter().all(|request| request.coalitions[0].is_empty()), "{left:?}");
        assert!(still_open.is_empty(), "{still_open:?}");
        assert_eq!(*most, 2, "{protocol:?}");
    }
}

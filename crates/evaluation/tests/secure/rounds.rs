//! Rounds that are sessions of their own, over the same samples. A failure is a mask that serves in two of them, or a number beyond a limit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use secsv_evaluation::{Envelope, Error, in_process::Interceptor};
use secsv_federation::{Coalition, FederationSpec, Limits, Participant, RoundFile, RoundId, SampleSet};
use secsv_protocol::{
    Error as RoleError, PartyId, Preset, TestRequest, decryptors::Protocol, message::Kind, session::Matmul,
};

use crate::federations::{Act, Fixture, Recipe, Shape, settings};

/// Who drew a seed for whom, and whether it is an owner's.
type Drawn = (PartyId, PartyId, bool);

/// Seeds of masks.
#[derive(Clone, Default)]
struct Seeds(Arc<Mutex<BTreeMap<Drawn, Vec<u8>>>>);

impl Interceptor for Seeds {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        if matches!(envelope.kind, Kind::MaskSeed | Kind::ModelMaskSeed) {
            let key = (envelope.from, envelope.to, envelope.kind == Kind::MaskSeed);
            self.0.lock().unwrap().insert(key, envelope.content.clone());
        }
        vec![envelope]
    }
}

fn recipe(shape: Shape) -> Recipe {
    Recipe { shape, classes: 3, samples: vec![5, 3, 4], rounds: 1, absence: 0, size_bits: 6, seed: 8 }
}

const LIMITS: Limits = Limits { rounds: 9, norm: 64.0, input: 8.0, hidden: Some(64.0) };

/// The same models and samples as a round of this number, in which one client has this weight.
fn in_round(fixture: &Fixture, round: u32, weight: u64, limits: Limits) -> Fixture {
    let base = FederationSpec { rounds: 0, limits: Some(limits), ..fixture.spec.clone() };
    let participant = |(position, client): (usize, &secsv_federation::ClientSpec)| Participant {
        id: client.id.clone(),
        train_size: (position == 0).then_some(weight),
        weight: None,
    };
    let clients = base.clients.iter().enumerate().map(participant).collect();
    let file = RoundFile { round: RoundId(round), last: false, without: BTreeSet::new(), clients };
    let all = Coalition::first(base.clients.len());
    Fixture {
        spec: base.in_round(&file),
        architecture: fixture.architecture.clone(),
        participants: BTreeMap::from([(RoundId(round), all)]),
        test_sets: fixture.test_sets.clone(),
        local: fixture
            .local
            .iter()
            .map(|((_, client), model)| ((RoundId(round), *client), model.clone()))
            .collect(),
        global: BTreeMap::new(),
        initial: fixture.initial.clone(),
        seed: fixture.seed,
    }
}

/// Has everybody test the model of all participants.
fn run(fixture: &Fixture) -> Result<(Vec<Vec<u8>>, usize), Error> {
    let seeds = Seeds::default();
    let settings = settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed);
    let mut world = fixture.world(settings, Box::new(seeds.clone())).map_err(Error::Role)?;
    let (&round, &all) = fixture.participants.iter().next().unwrap();
    let mut correct = 0;
    world.run(vec![TestRequest::new(round, all, SampleSet::all(fixture.samples()))], |_, found| {
        correct = found[0].correct;
        Ok(Vec::new())
    })?;
    let seeds = seeds.0.lock().unwrap().values().cloned().collect();
    Ok((seeds, correct))
}

/// Parties with one seed, samples and models, in rounds that differ in their number, or in a weight alone: no seed of a mask is the same.
#[test]
fn rounds_under_one_seed_share_no_mask() {
    let whole = recipe(Shape::Logistic { features: 4 }).build();
    let of = |round, weight| run(&in_round(&whole, round, weight, LIMITS)).unwrap();
    let first = of(3, 10);
    assert_eq!(first, of(3, 10), "a round that goes on is the same round");
    assert_eq!(first.0.len(), 2 + 2 * 3, "two servers' masks of models, and of each owner's numbers");
    let rounds = [first, of(4, 10), of(3, 11), of(9, 10)];
    let all: BTreeSet<&Vec<u8>> = rounds.iter().flat_map(|(seeds, _)| seeds).collect();
    assert_eq!(all.len(), rounds.len() * 8);
}

#[test]
fn what_exceeds_a_limit_is_refused_by_layer() {
    let whole = recipe(Shape::Logistic { features: 4 }).build();
    let limit = |limits| match run(&in_round(&whole, 2, 10, limits)) {
        Err(Error::Role(RoleError::Limit { what, layer: 1, .. })) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(Limits { norm: 1e-3, ..LIMITS }), "weights of a row");
    assert_eq!(limit(Limits { input: 1e-3, ..LIMITS }), "inputs");
}

/// Several layers have a limit on what is between them, and other protocols have none.
#[test]
fn limits_are_for_blindsv_and_whole() {
    let deep = recipe(Shape::Dense { features: 4, width: 3, hidden: vec![Act::Relu] }).build();
    assert!(run(&in_round(&deep, 2, 10, LIMITS)).is_ok());
    let refused = |fixture: &Fixture, protocol| {
        fixture.federation(settings(protocol, Preset::Standard, Matmul::Packed)).unwrap_err().to_string()
    };
    let without = in_round(&deep, 2, 10, Limits { hidden: None, ..LIMITS });
    assert!(refused(&without, Protocol::BlindSv).contains("`hidden` is missing"));
    let four = Recipe { samples: vec![5; 4], ..recipe(Shape::Logistic { features: 4 }) }.build();
    assert!(refused(&in_round(&four, 2, 10, LIMITS), Protocol::SecSv).contains("limits"));
}

//! BlindSV against plain integers. A failure is a count that differs by one, a message that a party should
//! not get, or a test that does not end.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use secsv_evaluation::in_process::Honest;
use secsv_federation::{Coalition, RoundId, SampleSet, TestSet};
use secsv_protocol::{
    PartyId, Preset, Ring64,
    cost::predict,
    decryptors::{Protocol, knows},
    ideal::Ideal,
    message::Kind,
    model::{EncodedModel, sample_values},
    own_right,
    session::{Matmul, Session, Settings},
};

use crate::federations::{Fixture, Recipe, Shape, settings};

fn blind() -> Settings {
    settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed)
}

/// How many samples each coalition predicts right, in plain integers; models that owners know in the clear.
fn expected(fixture: &Fixture, session: &Arc<Session>) -> BTreeMap<(RoundId, Coalition), usize> {
    let (program, precision) = (session.program(), &session.precision);
    let values = sample_values(program, &fixture.all_samples());
    let mut counts = BTreeMap::new();
    for (&round, &participants) in &fixture.participants {
        let samples = values.encode(Ring64, precision.operators[0].input, 1).unwrap();
        let members = session.members(round, participants).into_iter();
        let model = |(client, share)| {
            let local = &fixture.local[&(round, client)];
            (client, share, EncodedModel::new(program, precision, Ring64, local, share).unwrap())
        };
        let ideal = Ideal { samples, models: members.map(model).collect() };
        for coalition in fixture.coalitions().into_iter().filter(|(r, _)| *r == round).map(|(_, c)| c) {
            let of_owner = |(owner, test_set): (usize, &TestSet)| {
                if knows(owner, coalition, participants) {
                    let all = SampleSet::all(test_set.len());
                    let input = fixture.input(owner);
                    return own_right(&session.federation, owner, &input, round, coalition, &all)
                        .unwrap()
                        .len();
                }
                let right = ideal.masked_right(session, coalition, owner, test_set).unwrap();
                right.into_iter().filter(|right| *right).count()
            };
            let owners = fixture.test_sets.iter().enumerate().filter(|(_, test_set)| !test_set.is_empty());
            counts.insert((round, coalition), owners.map(of_owner).sum());
        }
    }
    counts
}

/// The same federation with features so many times larger: words get wider.
fn scaled(mut fixture: Fixture, factor: f32) -> Fixture {
    for test_set in &mut fixture.test_sets {
        let features = test_set.features().iter().map(|feature| feature * factor).collect();
        *test_set = TestSet::new(test_set.input().to_vec(), features, test_set.labels().to_vec()).unwrap();
    }
    fixture
}

/// Runs all tests; every count is the expected one, and traffic is what was planned.
fn check(fixture: &Fixture) -> Arc<Session> {
    let mut world = fixture.world(blind(), Box::new(Honest)).unwrap();
    let requests = fixture.requests_together(blind()).unwrap();
    let mut found = BTreeMap::new();
    world
        .run(requests.clone(), |request, results| {
            assert!(results.iter().all(|result| result.right.is_none()), "nobody learns which");
            let models = request.coalitions.iter().map(|&coalition| (request.round, coalition));
            found.extend(models.zip(results.into_iter().map(|result| result.correct)));
            Ok(Vec::new())
        })
        .unwrap();
    let session = world.with_principal(|principal| principal.session().cloned()).flatten().unwrap();
    assert_eq!(found, expected(fixture, &session));
    let planned = predict(&session, &requests, 0).unwrap();
    let traffic = world.accounts().traffic;
    for (link, counted) in &traffic {
        let (from, to, kind) = *link;
        let to_client = matches!(to, PartyId::Client(_));
        let told = [Kind::Session, Kind::SealedClientKeys, Kind::RoundStart, Kind::BlindTest, Kind::Values];
        assert!(
            !to_client || (from == PartyId::Principal && told.contains(&kind)),
            "{kind} from {from} to {to}"
        );
        let dealt = [Kind::DataShare, Kind::DealtProduct, Kind::Dealing];
        assert!(
            to != PartyId::Principal || !dealt.contains(&kind),
            "{kind}: the principal has the other share"
        );
        if kind != Kind::RoundFinished {
            assert_eq!(planned.traffic.get(link), Some(counted), "{kind} from {from} to {to}");
        }
    }
    session
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_count_is_that_of_plain_integers(
        samples in prop::collection::vec(0usize..40, 2..6),
        (features, classes, rounds, absence) in (1usize..9, 2usize..13, 1u32..3, 0u32..5),
        scale in 0u32..4,
        seed: u64,
    ) {
        let shape = Shape::Logistic { features };
        let recipe = Recipe { shape, classes, samples, rounds, absence, size_bits: 6, seed };
        check(&scaled(recipe.build(), f32::powi(2.0, 9 * scale as i32)));
    }
}

#[test]
fn every_width_of_words_is_met() {
    let recipe = |seed| Recipe {
        shape: Shape::Logistic { features: 5 },
        classes: 3,
        samples: vec![70, 1, 9],
        rounds: 1,
        absence: 0,
        size_bits: 6,
        seed,
    };
    let widths = (0..6).map(|scale| {
        let session = check(&scaled(recipe(scale).build(), f32::powi(2.0, 6 * scale as i32)));
        session.modulus().ilog2()
    });
    let widths: std::collections::BTreeSet<u32> = widths.collect();
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [40, 48, 56, 64]);
}

#[test]
fn twelve_clients_and_two() {
    for samples in [vec![3; 12], vec![65, 64], vec![0, 40]] {
        let shape = Shape::Logistic { features: 3 };
        let recipe = Recipe { shape, classes: 2, samples, rounds: 1, absence: 0, size_bits: 4, seed: 5 };
        check(&recipe.build());
    }
}

#[test]
fn deep_models_are_refused_by_name() {
    let recipe = Recipe {
        shape: Shape::small_convolution(),
        classes: 3,
        samples: vec![2; 4],
        rounds: 1,
        absence: 0,
        size_bits: 4,
        seed: 1,
    };
    let refused = recipe.build().federation(blind()).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|why| why.contains("one linear layer")));
}

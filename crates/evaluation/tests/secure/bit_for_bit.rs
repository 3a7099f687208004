//! The secure result is the fixed-point result, bit for bit.

use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::TestCaseError};
use secsv_evaluation::{Error, in_process::Honest};
use secsv_federation::{
    Coalition, RoundId, SampleSet,
    skip::{Lattice, SkipTable},
};
use secsv_protocol::{
    Error as RoleError, Preset, TestRequest,
    session::{Matmul, Settings},
};

use crate::federations::{
    Act, Fixture, PROTOCOLS, Recipe, Shape, compact, in_round_batches, recipe, recipe_in_round_batches,
    settings,
};

/// Runs everything and compares; where fixed point has no answer, neither have the roles, for the same reason.
/// Says whether there was an answer.
fn check(recipe: &Recipe, settings: Settings) -> Result<bool, TestCaseError> {
    let fixture = recipe.build();
    let run = fixture.run_honestly(settings);
    let answered = run.is_ok();
    match run {
        Ok(found) => {
            let expected = fixture.expected(&found.session);
            let expected =
                expected.map_err(|error| TestCaseError::fail(format!("only ideal fails: {error}")))?;
            prop_assert_eq!(found.right, expected, "{:?} {:?}", recipe, settings);
        }
        // In a round of two, both know both local models: among few clients nobody may be left to decrypt them.
        Err(Error::Role(RoleError::Plan(error))) => {
            let pair = fixture.participants.values().any(|present| present.len() == 2);
            prop_assert!(pair, "{}: {:?} {:?}", error, recipe, settings);
        }
        Err(Error::Role(error)) => {
            let ideal = fixture.session(settings).and_then(|session| fixture.expected(&session));
            prop_assert!(error.is_bad_input() && ideal.is_err(), "{}: {:?} {:?}", error, recipe, settings);
        }
        Err(error) => prop_assert!(false, "{}: {:?} {:?}", error, recipe, settings),
    }
    Ok(answered)
}

/// Few by default; `SECSV_CASES=500` for a night.
fn cases() -> u32 {
    std::env::var("SECSV_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 12, ..ProptestConfig::default() })]

    #[test]
    fn random_federations(recipe in recipe(4..7, 1..3), reducing in prop::bool::weighted(0.3)) {
        let matmul = if reducing { Matmul::Reducing } else { Matmul::Packed };
        for &protocol in PROTOCOLS {
            let answered = check(&recipe, settings(protocol, Preset::Compact, matmul))?;
            println!("answered: {answered}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 12, ..ProptestConfig::default() })]

    #[test]
    fn random_federations_in_round_batches(recipe in recipe_in_round_batches()) {
        let answered = check(&recipe, in_round_batches(Preset::Compact))?;
        let round_batches = recipe.build().session(in_round_batches(Preset::Compact)).map(|s| s.round_batches);
        println!("answered: {answered}, {round_batches:?}");
    }
}

/// Ten rounds of one layer, one of which somebody missed: two round batches and a round by itself.
#[test]
fn rounds_with_the_same_participants_are_tested_together() {
    let shape = Shape::Logistic { features: 48 };
    let recipe = Recipe { classes: 2, absence: 0, ..chosen(shape, &[40, 3, 0, 21, 9], 10) };
    let mut fixture = recipe.build();
    let absent = RoundId(5);
    let present = fixture.participants[&absent].without(2);
    fixture.participants.insert(absent, present);
    fixture.local.remove(&(absent, 2));
    fixture.aggregate();
    for preset in [Preset::Compact, Preset::Standard] {
        let found = fixture.run_honestly(in_round_batches(preset)).unwrap();
        let lengths: Vec<usize> = found.session.round_batches.values().map(Vec::len).collect();
        assert_eq!(lengths, [4, 1, 5], "{preset:?}");
        assert_eq!(found.right, fixture.expected(&found.session).unwrap(), "{preset:?}");
    }
}

fn chosen(shape: Shape, samples: &[usize], rounds: u32) -> Recipe {
    Recipe { shape, classes: 3, samples: samples.to_vec(), rounds, absence: 3, size_bits: 9, seed: 11 }
}

#[test]
fn the_standard_preset() {
    for (shape, matmul) in [
        (Shape::Logistic { features: 5 }, Matmul::Packed),
        (Shape::Reordered { features: 4, act: Act::Square }, Matmul::Packed),
        (Shape::OnePerClass { features: 3 }, Matmul::Reducing),
        (Shape::Dense { features: 3, width: 4, hidden: vec![Act::Square] }, Matmul::Packed),
        (Shape::small_convolution(), Matmul::Packed),
        (Shape::Gru { steps: 3, features: 2, hidden: 2, tail: None }, Matmul::Packed),
    ] {
        for &protocol in PROTOCOLS {
            assert!(
                check(&chosen(shape.clone(), &[3, 0, 1, 2], 1), settings(protocol, Preset::Standard, matmul))
                    .unwrap()
            );
        }
    }
}

/// Labels of each field: several bytes of one bit each, and elements of 4, 8 and 16 bits.
#[test]
fn many_classes_and_many_samples() {
    let samples: [&[usize]; 4] = [&[70, 3, 0, 90, 9], &[5, 0, 4, 3], &[2, 3, 0, 2], &[2, 0, 1, 1]];
    for (classes, samples) in [2, 5, 20, 300].into_iter().zip(samples) {
        let recipe = Recipe { classes, ..chosen(Shape::Logistic { features: 2 }, samples, 1) };
        for &protocol in PROTOCOLS {
            assert!(check(&recipe, compact(protocol)).unwrap(), "{classes} classes");
        }
    }
}

#[test]
fn eight_clients_and_absent_ones() {
    for &protocol in PROTOCOLS {
        assert!(
            check(&chosen(Shape::Logistic { features: 4 }, &[3, 1, 0, 5, 2, 1, 0, 4], 3), compact(protocol))
                .unwrap()
        );
        let dense =
            Shape::Dense { features: 3, width: 3, hidden: vec![Act::Tanh, Act::Softmax, Act::Sigmoid] };
        assert!(check(&chosen(dense, &[1, 2, 1, 1, 0, 3], 1), compact(protocol)).unwrap());
    }
}

/// SampleSkip over the answers of a run, as the evaluator does it.
fn with_skip(
    fixture: &Fixture,
    round: RoundId,
    mut ask: impl FnMut(Vec<(Coalition, SampleSet)>) -> BTreeMap<Coalition, SampleSet>,
) -> BTreeMap<Coalition, (usize, SampleSet)> {
    let (participants, samples) = (fixture.participants[&round], fixture.samples());
    let mut table = SkipTable::new(participants, samples);
    let wanted: Vec<Coalition> = participants.subsets().filter(|c| !c.is_empty()).collect();
    let mut lattice = Lattice::new(wanted, |_| false);
    let mut found = BTreeMap::new();
    while !lattice.is_done() {
        let ready = lattice.take_ready();
        let skipped: BTreeMap<Coalition, SampleSet> =
            ready.iter().map(|&coalition| (coalition, table.skippable(coalition))).collect();
        let all = SampleSet::all(samples);
        let right = ask(skipped.iter().map(|(c, skipped)| (*c, all.difference(skipped))).collect());
        for coalition in ready {
            let mut right = right[&coalition].clone();
            right.union_with(&skipped[&coalition]);
            found.insert(coalition, (skipped[&coalition].len(), right.clone()));
            table.record(coalition, right);
            lattice.complete(coalition);
        }
    }
    found
}

#[test]
fn skipped_samples_change_nothing_else() {
    let shapes = [
        Shape::Logistic { features: 3 },
        Shape::Dense { features: 3, width: 3, hidden: vec![Act::Square] },
        Shape::Gru { steps: 2, features: 2, hidden: 2, tail: None },
    ];
    let mut skipped = 0;
    for shape in shapes {
        for &protocol in PROTOCOLS {
            let fixture = chosen(shape.clone(), &[4, 1, 0, 5, 3], 2).build();
            let mut world = fixture.world(compact(protocol), Box::new(Honest)).unwrap();
            let mut run = |tests: Vec<TestRequest>| {
                let mut found = BTreeMap::new();
                world
                    .run(tests, |request, right| {
                        found.insert(request.coalitions[0], right[0].right.clone().unwrap());
                        Ok(Vec::new())
                    })
                    .unwrap();
                found
            };
            for &round in fixture.participants.keys() {
                let found = with_skip(&fixture, round, |tests| {
                    let request = |(coalition, samples)| TestRequest::new(round, coalition, samples);
                    run(tests.into_iter().map(request).collect())
                });
                skipped += found.values().map(|(skipped, _)| skipped).sum::<usize>();
                let session = fixture.run_honestly(compact(protocol)).unwrap().session;
                let expected = fixture.expected(&session).unwrap();
                let expected = with_skip(&fixture, round, |tests| {
                    tests
                        .into_iter()
                        .map(|(coalition, samples)| {
                            let mut right = expected[&(round, coalition)].clone();
                            right = right.difference(&SampleSet::all(samples.total()).difference(&samples));
                            (coalition, right)
                        })
                        .collect()
                });
                assert_eq!(found, expected, "{shape:?} round {round}");
            }
        }
    }
    assert!(skipped > 20, "{skipped}: this test would not notice if nothing was ever skipped");
}

/// A test of no sample at all: every sample was skipped.
#[test]
fn a_test_of_nothing_ends() {
    for &protocol in PROTOCOLS {
        let recipe = chosen(Shape::Logistic { features: 2 }, &[1, 1, 1, 1], 1);
        let fixture = Recipe { absence: 0, ..recipe }.build();
        let mut world = fixture.world(compact(protocol), Box::new(Honest)).unwrap();
        let (round, coalition) = (RoundId(1), Coalition::EMPTY.with(0).with(1));
        for samples in [SampleSet::all(4), SampleSet::none(4)] {
            let mut answers = 0;
            world
                .run(vec![TestRequest::new(round, coalition, samples)], |_, _| {
                    answers += 1;
                    Ok(Vec::new())
                })
                .unwrap();
            assert_eq!(answers, 1);
        }
    }
}

//! What is predicted before a session is what its parties count.

use proptest::{prelude::*, test_runner::TestCaseError};
use secsv_evaluation::{Accounts, Error, in_process::Honest};
use secsv_protocol::{
    Error as RoleError, Preset,
    cost::{predict, session},
    decryptors::Protocol,
    session::{Matmul, Settings, typical_costs},
};

use crate::federations::{
    Act, Fixture, Recipe, Shape, in_round_batches, recipe, recipe_in_round_batches, settings,
};

/// Runs all tests.
fn counted(fixture: &Fixture, settings: Settings) -> Result<Accounts, Error> {
    let mut world = fixture.world(settings, Box::new(Honest)).map_err(Error::Role)?;
    world.run(fixture.requests_together(settings).map_err(Error::Role)?, |_, _| Ok(Vec::new()))?;
    Ok(world.accounts())
}

/// Says whether there was something to compare.
fn check(recipe: &Recipe, settings: Settings) -> Result<bool, TestCaseError> {
    check_fixture(recipe, &recipe.build(), settings)
}

fn check_fixture(recipe: &Recipe, fixture: &Fixture, settings: Settings) -> Result<bool, TestCaseError> {
    let costs = typical_costs(settings.preset);
    let federation = fixture.federation(settings);
    let predicted = federation.and_then(|federation| {
        let session = session(&federation, &fixture.inputs(), Some(&costs))?;
        predict(&session, &fixture.requests_together(settings)?, 0)
    });
    match (predicted, counted(fixture, settings)) {
        (Ok(predicted), Ok(counted)) => {
            prop_assert_eq!(predicted.operations, counted.operations, "{:?} {:?}", recipe, settings);
            prop_assert_eq!(predicted.traffic, counted.traffic, "{:?} {:?}", recipe, settings);
            Ok(true)
        }
        // Nobody is left to decrypt, or numbers are too large: what is published already tells.
        (Err(predicted), Err(Error::Role(counted))) => {
            prop_assert_eq!(predicted.to_string(), counted.to_string());
            Ok(false)
        }
        // An activation that exceeds its range is met on the way.
        (Ok(_), Err(Error::Role(RoleError::OutOfRange { .. }))) => Ok(false),
        (predicted, counted) => {
            let (predicted, counted) = (predicted.err(), counted.err());
            Err(TestCaseError::fail(format!("{predicted:?} {counted:?}: {recipe:?} {settings:?}")))
        }
    }
}

fn all_settings() -> [Settings; 6] {
    [
        in_round_batches(Preset::Compact),
        settings(Protocol::SecSv, Preset::Compact, Matmul::Packed),
        settings(Protocol::SecSv, Preset::Compact, Matmul::Reducing),
        settings(Protocol::SecretSv, Preset::Standard, Matmul::Packed),
        settings(Protocol::Hesv, Preset::Standard, Matmul::Reducing),
        settings(Protocol::Hesv, Preset::Standard, Matmul::Squaring),
    ]
}

fn shapes() -> Vec<Shape> {
    let (channels, side, outputs, kernel, stride, padding) = (2, 4, 2, 3, 2, 1);
    vec![
        Shape::Logistic { features: 5 },
        Shape::Dense { features: 3, width: 4, hidden: vec![Act::Square, Act::Tanh] },
        Shape::Positions { positions: 3, features: 2, act: Act::Sigmoid },
        Shape::Convolution { channels, side, outputs, kernel, stride, padding, act: Act::Relu },
        Shape::Gru { steps: 3, features: 2, hidden: 2, tail: None },
        Shape::Gru { steps: 1, features: 2, hidden: 2, tail: Some(Act::Relu) },
    ]
}

#[test]
fn joined_and_normalised_models_under_secretsv() {
    for (shape, seed) in [(Shape::Normalised { act: Act::Tanh }, 1), (Shape::Shortcut { act: Act::Relu }, 2)]
    {
        let samples = vec![3, 1, 0, 2, 2];
        let recipe = Recipe { shape, classes: 3, samples, rounds: 2, absence: 1, size_bits: 8, seed };
        let secretsv = settings(Protocol::SecretSv, Preset::Standard, Matmul::Packed);
        assert!(check(&recipe, secretsv).unwrap(), "{recipe:?}");
    }
}

#[test]
fn every_model_under_every_protocol() {
    for (index, shape) in shapes().into_iter().enumerate() {
        // Products of two ciphertexts take long: each shape meets one of HESV's two methods.
        let left_out = [Matmul::Squaring, Matmul::Reducing][index % 2];
        let is_met = |s: &Settings| s.protocol != Protocol::Hesv || s.matmul != left_out;
        for settings in all_settings().into_iter().filter(is_met) {
            let samples = vec![3, 0, 1, 2];
            let shape = shape.clone();
            let recipe = Recipe { shape, classes: 3, samples, rounds: 1, absence: 0, size_bits: 9, seed: 11 };
            assert!(check(&recipe, settings).unwrap(), "{recipe:?} {settings:?}");
        }
    }
}

/// Models are asked for early, but not those of a round whose models all owners know: the test of such a round ends by itself.
#[test]
fn rounds_of_known_models_are_not_opened() {
    for (samples, present) in [(vec![3, 1, 0, 5, 2], vec![0]), (vec![3, 2, 0, 0, 0], vec![0, 1])] {
        let shape = Shape::Logistic { features: 16 };
        let recipe = Recipe { shape, classes: 2, samples, rounds: 4, absence: 0, size_bits: 6, seed: 36 };
        let mut fixture = recipe.build();
        let first = secsv_federation::RoundId(1);
        fixture.participants.insert(first, present.iter().copied().collect());
        fixture.local.retain(|(round, client), _| *round != first || present.contains(client));
        fixture.aggregate();
        for _ in 0..5 {
            assert!(
                check_fixture(&recipe, &fixture, in_round_batches(Preset::Compact)).unwrap(),
                "{present:?}"
            );
        }
    }
}

#[test]
fn absent_clients_and_several_rounds() {
    for settings in all_settings() {
        let (shape, samples) = (Shape::Logistic { features: 4 }, vec![3, 1, 0, 5, 2, 1]);
        let recipe = Recipe { shape, classes: 2, samples, rounds: 3, absence: 3, size_bits: 6, seed: 4 };
        assert!(check(&recipe, settings).unwrap(), "{recipe:?} {settings:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 12, ..ProptestConfig::default() })]

    #[test]
    fn random_federations(recipe in recipe(4..6, 1..3), which in 0usize..6) {
        // Under HESV fewer rounds: products of two ciphertexts take long.
        let settings = all_settings()[which];
        let rounds = if settings.protocol == Protocol::Hesv { 1 } else { recipe.rounds };
        let answered = check(&Recipe { rounds, ..recipe }, settings)?;
        println!("{:?}: {answered}", settings.protocol);
    }

    #[test]
    fn random_federations_in_round_batches(recipe in recipe_in_round_batches()) {
        let answered = check(&recipe, in_round_batches(Preset::Compact))?;
        println!("answered: {answered}");
    }
}

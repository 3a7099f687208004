//! Recurrent units, as other nets in `net_tests`.

use proptest::prelude::*;
use secsv_federation::LayerSpec;

use super::{
    equivalence_tests::Mutation as OfTests,
    net_tests::{Net, Unit},
    run_equivalence_tests::{Mutation, Recipe, check, differing, is_equivalent},
};
use crate::{
    message::Server,
    session::{HiddenSettings, RangeRule},
};

/// A unit over so many steps, and a layer that gives the scores.
fn recurrent(kind: Unit, (steps, features, hidden): (usize, usize, usize), samples: usize) -> Recipe {
    let net = Net::of(&[steps, features], samples).recurrent(kind, hidden, true);
    let net = if kind == Unit::LstmOfAll { net.then(LayerSpec::Flatten {}) } else { net };
    net.linear(3).done()
}

/// A layer on every step, an LSTM, a GRU on its states without biases, and a layer before the scores.
fn stacked(samples: usize) -> Recipe {
    let net = Net::of(&[2, 2], samples).linear(2).then(LayerSpec::HardTanh {});
    let net = net.recurrent(Unit::LstmOfAll, 2, false).recurrent(Unit::Gru, 2, false);
    net.linear(2).then(LayerSpec::Relu {}).linear(3).done()
}

fn kind() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Gru), Just(Unit::Lstm), Just(Unit::LstmOfAll)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn recurrent_units_are_those_of_plain_integers(
        kind in kind(),
        sizes in (1usize..5, 1usize..4, 1usize..4),
        samples in prop::sample::select(vec![1usize, 3, 65]),
        scale in prop::sample::select(vec![0.3f32, 1.0, 3.0]),
        is_calibrated: bool,
    ) {
        let ranges = if is_calibrated { RangeRule::Calibrated } else { RangeRule::Auto };
        let hidden = HiddenSettings { ranges, ..HiddenSettings::USUAL };
        check(&Recipe { scale, hidden, ..recurrent(kind, sizes, samples) })?;
    }
}

#[test]
fn recurrent_units_behind_each_other_are_those_of_plain_integers() {
    check(&stacked(3)).unwrap();
}

/// Counts are those of floating-point models but for near ties, of which there are few.
#[test]
fn predictions_are_those_of_the_clear_but_for_near_ties() {
    for net in [recurrent(Unit::Gru, (4, 3, 4), 65), recurrent(Unit::LstmOfAll, (4, 3, 4), 65), stacked(65)] {
        let (differing, all) = differing(&net);
        assert!(50 * differing <= all, "{differing} of {all}: {net:?}");
    }
}

#[test]
fn a_server_reads_the_same_of_recurrent_units() {
    for kind in [Unit::Gru, Unit::Lstm] {
        for server in [Server::Principal, Server::Auxiliary] {
            let recipe = recurrent(kind, (2, 1, 1), 2);
            assert!(is_equivalent(&recipe, server, Mutation::None, OfTests::None), "{server:?}: {recipe:?}");
        }
    }
}

#[test]
fn without_a_protection_of_recurrent_units_the_same_test_fails() {
    for (server, mutation) in [
        (Server::Principal, OfTests::OpeningStage),
        (Server::Principal, OfTests::OpeningMask),
        (Server::Auxiliary, OfTests::OpeningCoalition),
        (Server::Auxiliary, OfTests::OpeningStage),
        (Server::Auxiliary, OfTests::PlanesCoalition),
        (Server::Auxiliary, OfTests::NumbersArray),
    ] {
        let found = is_equivalent(&recurrent(Unit::Gru, (2, 1, 1), 1), server, Mutation::None, mutation);
        assert!(!found, "{server:?}: {mutation:?}");
    }
}

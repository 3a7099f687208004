//! A number outside its range is an error that names the layer, never a wrong value; and formats are the same under
//! both encrypted protocols.

use secsv_evaluation::Error;
use secsv_federation::{RoundId, Tensor, TestSet};
use secsv_protocol::{Error as RoleError, Preset, decryptors::Protocol, session::Matmul};

use crate::federations::{Act, Fixture, PROTOCOLS, Recipe, Shape, compact, settings};

fn recipe(shape: Shape) -> Recipe {
    Recipe { shape, classes: 2, samples: vec![2, 2, 2, 2], rounds: 1, absence: 0, size_bits: 0, seed: 8 }
}

/// Two clients' models cancel in the aggregate, on an input that only a third client's samples have: nobody can know
/// from its own models and samples how large the activations of a coalition get.
fn planted() -> Fixture {
    let mut fixture = recipe(Shape::Dense { features: 3, width: 2, hidden: vec![Act::Relu] }).build();
    for (client, weight) in [(0, 100.0), (1, -100.0), (2, 0.0), (3, 0.0)] {
        let model = fixture.local.get_mut(&(RoundId(1), client)).unwrap();
        let mut values = model.get("layer0.weight").unwrap().singles().into_owned();
        values[0] = weight;
        model.insert("layer0.weight", Tensor::new(vec![2, 3], values).unwrap());
    }
    for (client, set) in fixture.test_sets.iter_mut().enumerate() {
        let mut features = set.features().to_vec();
        features.chunks_exact_mut(3).for_each(|sample| sample[0] = if client == 2 { 1.0 } else { 0.0 });
        *set = TestSet::new(vec![3], features, set.labels().to_vec()).unwrap();
    }
    fixture.aggregate();
    fixture
}

#[test]
fn an_activation_beyond_the_calibration_names_its_layer() {
    for &protocol in PROTOCOLS {
        match planted().run_honestly(compact(protocol)) {
            Err(Error::Role(RoleError::OutOfRange { layer: 2, .. })) => {}
            other => panic!("{:?}", other.map(|found| found.right)),
        }
    }
}

/// Gates so sure of themselves that states are 1 to the last bit: rounding must not push them out of their range.
#[test]
fn saturated_states_stay_in_their_range() {
    for &protocol in PROTOCOLS {
        for seed in 0..3 {
            let shape = Shape::Gru { steps: 4, features: 2, hidden: 3, tail: None };
            let mut fixture = Recipe { seed, ..recipe(shape) }.build();
            for model in fixture.local.values_mut().chain([&mut fixture.initial]) {
                // b_ir, b_iz, b_in: the first step replaces the state (z = 0 where the sample says so), n is 1.
                let bias = vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 60.0, 60.0, -60.0];
                model.insert("gru.bias_ih", Tensor::new(vec![9], bias).unwrap());
                let mut weights = vec![0.0; 18];
                weights[6..12].copy_from_slice(&[90.0, 0.7, 90.0, 0.3, 90.0, -0.9]);
                model.insert("gru.weight_ih", Tensor::new(vec![9, 2], weights).unwrap());
            }
            for set in &mut fixture.test_sets {
                let mut features = set.features().to_vec();
                for sample in features.chunks_exact_mut(8) {
                    (0..4).for_each(|step| sample[2 * step] = if step == 0 { -1.0 } else { 0.0 });
                }
                *set = TestSet::new(vec![4, 2], features, set.labels().to_vec()).unwrap();
            }
            fixture.aggregate();
            let found = fixture.run_honestly(compact(protocol)).unwrap();
            assert_eq!(found.right, fixture.expected(&found.session).unwrap());
        }
    }
}

/// HESV and SecSV compute the same numbers: same formats, same weights of the same members, and so, both being equal to
/// the ideal run, the same predictions. What is shown of one's error on a federation is the other's.
#[test]
fn both_encrypted_protocols_have_the_same_fixed_point_numbers() {
    let of = |protocol, matmul| settings(protocol, Preset::Standard, matmul);
    for seed in 0..4 {
        for shape in [
            Shape::Logistic { features: 5 },
            Shape::Dense { features: 3, width: 4, hidden: vec![Act::Square, Act::Tanh] },
            Shape::small_convolution(),
            Shape::Gru { steps: 3, features: 2, hidden: 2, tail: None },
        ] {
            let fixture = Recipe { seed, size_bits: 12, rounds: 2, ..recipe(shape) }.build();
            let secsv = fixture.session(of(Protocol::SecSv, Matmul::Packed)).unwrap();
            for matmul in [Matmul::Squaring, Matmul::Reducing] {
                let hesv = fixture.session(of(Protocol::Hesv, matmul)).unwrap();
                assert_eq!(hesv.precision, secsv.precision);
                assert_eq!(hesv.field(), secsv.field());
                for (round, coalition) in fixture.coalitions() {
                    assert_eq!(hesv.members(round, coalition), secsv.members(round, coalition));
                }
            }
        }
    }
}

//! The scheme against the library and against itself.

use std::sync::Arc;

use fhe::bfv::{Encoding, Plaintext};
use fhe_traits::{FheDecoder, FheDecrypter, FheEncoder, FheEncrypter};
use secsv_algebra::{Prg, Ring, Seed};

use crate::{library::Library, *};

fn setup(preset: Preset) -> (Arc<Parameters>, SecretKey, Prg) {
    let parameters = Parameters::preset(preset).unwrap();
    let mut rng = Prg::new(&Seed::from_bytes([5; 32]));
    let key = SecretKey::generate(&parameters, &mut rng);
    (parameters, key, rng)
}

fn elements(parameters: &Parameters, rng: &mut Prg) -> Vec<u64> {
    let mut elements = vec![0; parameters.degree()];
    parameters.field().fill_uniform(rng, &mut elements);
    elements[..3].copy_from_slice(&[0, parameters.field().modulus() - 1, parameters.field().modulus() / 2]);
    elements
}

const PRESETS: [Preset; 2] = [Preset::Standard, Preset::Compact];

#[test]
fn each_side_decrypts_the_others_ciphertexts() {
    for preset in PRESETS {
        let (parameters, key, mut rng) = setup(preset);
        let mut ops = Operations::default();
        let library = Library::new(&key).unwrap();
        for (packing, encoding) in
            [(Packing::Slots, Encoding::simd()), (Packing::Coefficients, Encoding::poly())]
        {
            let message = elements(&parameters, &mut rng);
            let ours = key.encrypt(packing, &message, &mut rng, &mut ops).unwrap().expand(&parameters);
            let theirs = library.key.try_decrypt(&library.import(&ours).unwrap()).unwrap();
            assert_eq!(Vec::<u64>::try_decode(&theirs, encoding.clone()).unwrap(), message);
            let plaintext = Plaintext::try_encode(&message, encoding, &library.parameters).unwrap();
            let theirs = library.key.try_encrypt(&plaintext, &mut rng).unwrap();
            let ours = library.export(&parameters, &theirs);
            assert_eq!(*key.decrypt(packing, &ours, &mut ops).unwrap().expose(), message);
        }
    }
}

/// An honest key passes, whatever the seed; one with a first part of zero, of random words, of another key,
/// or off by more than an error in a single coefficient does not.
#[test]
fn a_public_key_is_an_encryption_of_zero() {
    for preset in PRESETS {
        let (parameters, key, mut rng) = setup(preset);
        for _ in 0..20 {
            key.check_public_key(&key.public_key(&mut rng)).unwrap();
        }
        let honest = key.public_key(&mut rng);
        let refused = |change: &mut dyn FnMut(&mut Vec<u64>)| {
            let mut seeded = honest.seeded.clone();
            change(&mut seeded.c0);
            let changed = PublicKey::from_seeded(&parameters, seeded);
            assert_eq!(key.check_public_key(&changed), Err(HeError::PublicKey));
        };
        refused(&mut |c0| c0.fill(0));
        refused(&mut |c0| {
            c0.iter_mut()
                .enumerate()
                .for_each(|(i, word)| *word = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12)
        });
        // One coefficient, by 41: at points, 41 everywhere.
        refused(&mut |c0| {
            for (limb, words) in parameters.limbs().iter().zip(c0.chunks_exact_mut(parameters.degree())) {
                words.iter_mut().for_each(|word| *word = limb.modulus().add(*word, 41));
            }
        });
        // Small in one limb alone.
        refused(&mut |c0| c0[0] = parameters.limbs()[0].modulus().add(c0[0], 1));
        let another = SecretKey::generate(&parameters, &mut rng);
        assert_eq!(another.check_public_key(&honest), Err(HeError::PublicKey));
    }
}

#[test]
fn fresh_noise_is_that_of_one_error_polynomial() {
    for preset in PRESETS {
        let (parameters, key, mut rng) = setup(preset);
        let message = elements(&parameters, &mut rng);
        let fresh = key.encrypt(Packing::Slots, &message, &mut rng, &mut Operations::default()).unwrap();
        let bits = key.measure_noise(&fresh.expand(&parameters)).unwrap();
        // 20 is the largest error, 11 to 16 the expected largest of thousands.
        assert!((3..=5).contains(&bits), "{bits} bits of fresh noise");
    }
}

#[test]
fn rotations_move_both_rows_to_the_left() {
    for preset in PRESETS {
        let (parameters, key, mut rng) = setup(preset);
        let (message, mut ops) = (elements(&parameters, &mut rng), Operations::default());
        let evaluation = key.evaluation_key(&[1, 96], &mut rng);
        let fresh = key.encrypt(Packing::Slots, &message, &mut rng, &mut ops).unwrap().expand(&parameters);
        for step in [1, 96] {
            let rotated = evaluation.rotate(&parameters, &fresh, step, &mut ops).unwrap();
            let decrypted = key.decrypt(Packing::Slots, &rotated, &mut ops).unwrap();
            let half = parameters.degree() / 2;
            for (i, &x) in decrypted.expose().iter().enumerate() {
                assert_eq!(x, message[i / half * half + (i % half + step) % half], "slot {i}");
            }
        }
        let missing = evaluation.rotate(&parameters, &fresh, 2, &mut ops).unwrap_err();
        assert_eq!(missing, HeError::MissingRotationKey { step: 2 });
    }
}

#[test]
fn sanitised_replies_decrypt_to_the_planned_positions_and_noise_elsewhere() {
    for preset in PRESETS {
        let (parameters, key, mut rng) = setup(preset);
        let mut ops = Operations::default();
        let public = key.public_key(&mut rng);
        let flooding = Flooding::new(&parameters, NoiseBound::half_product(&parameters, 1)).unwrap();
        for packing in [Packing::Slots, Packing::Coefficients] {
            let message = elements(&parameters, &mut rng);
            let planned: Vec<bool> = (0..parameters.degree()).map(|i| i % 3 != 0).collect();
            let mut product = key.encrypt(packing, &message, &mut rng, &mut ops).unwrap().expand(&parameters);
            public.rerandomise(&mut product, &mut rng, &mut ops).unwrap();
            let reply = public.sanitise(&product, packing, &planned, &flooding, &mut rng, &mut ops).unwrap();
            let decrypted = key.decrypt_reply(packing, &planned, &reply, &mut ops).unwrap();
            let mut survived = 0;
            for ((&got, &sent), planned) in decrypted.expose().iter().zip(&message).zip(planned) {
                if planned {
                    assert_eq!(got, sent);
                } else {
                    survived += usize::from(got == sent);
                }
            }
            assert!(survived <= 1, "{survived} unplanned values survived");
        }
    }
}

#[test]
fn standard_replies_are_flooded_to_forty_bits() {
    // The widest layer planned for (784 inputs one by one) and 8-bit weights, both servers' products added.
    let widest = |preset| {
        let parameters = Parameters::preset(preset).unwrap();
        let noise = NoiseBound::half_product(&parameters, 784).of_two_servers().weighted(8);
        Flooding::new(&parameters, noise).map(|flooding| flooding.statistical_bits())
    };
    assert!(widest(Preset::Standard).unwrap() >= 40);
    assert!(widest(Preset::Compact).unwrap() < 40, "compact makes no statistical claim");
}

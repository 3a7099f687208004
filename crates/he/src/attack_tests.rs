//! Two attacks on replies that are not sanitised, and that they fail on those that are.
//!
//! A product is linear in the shares it was computed from. Whoever knows the model ciphertexts, or the seeds
//! of their second parts, collects equations at one transform point and solves them for the shares. The tests
//! run the same solver on raw products, where it must succeed, and on what really leaves a server.

use std::sync::Arc;

use secsv_algebra::{Field, Matrix, Modulus, Prg, Seed};

use crate::{
    linear::{BlockShape, EncodedBatch, LayerShape, Layout, MatrixMethod, PreparedMatrix, multiply},
    *,
};

const INPUTS: usize = 6;
/// Transform point that is attacked; every other point is the same system.
const POINT: usize = 17;

struct Scene {
    parameters: Arc<Parameters>,
    key: SecretKey,
    layout: Layout,
    /// Model ciphertexts as the servers have them: `[model][input]`.
    models: Vec<Vec<Ciphertext>>,
    /// Raw products, one per model.
    products: Vec<Ciphertext>,
    /// The shares at the attacked point, modulo the first limb: what the attacker wants.
    wanted: Vec<u64>,
    rng: Prg,
}

fn scene(models: usize) -> Scene {
    let parameters = Parameters::preset(Preset::Standard).unwrap();
    let mut rng = Prg::new(&Seed::from_bytes([21; 32]));
    let key = SecretKey::generate(&parameters, &mut rng);
    let block = BlockShape { rows: 1, columns: 1, samples: parameters.degree() };
    let layout =
        Layout::new(&parameters, LayerShape { d_out: 1, d_in: INPUTS }, MatrixMethod::Packed(block)).unwrap();
    let mut ops = Operations::default();
    let share: Matrix<Field> = Matrix::uniform(parameters.field(), INPUTS, layout.batch(), &mut rng);
    let encrypted: Vec<_> = (0..models)
        .map(|_| {
            let weights = Matrix::uniform(parameters.field(), 1, INPUTS, &mut rng);
            layout.encrypt(&key, &weights, &mut rng, &mut ops).unwrap()
        })
        .collect();
    let batches = layout.encode(&share, &mut ops).unwrap();
    let batches: Vec<&EncodedBatch> = batches.iter().collect();
    let prepared: Vec<PreparedMatrix> = encrypted.iter().map(|e| layout.prepare(e).unwrap()).collect();
    let products = multiply(&layout, &prepared.iter().collect::<Vec<_>>(), &batches, None, &mut ops).unwrap();
    let wanted = (0..INPUTS)
        .map(|i| {
            let mut points = vec![0; parameters.degree()];
            parameters.lift_centred(share.row(i), 0, &mut points, &mut ops);
            points[POINT]
        })
        .collect();
    let models =
        encrypted.iter().map(|e| e.ciphertexts.iter().map(|c| c.expand(&parameters)).collect()).collect();
    let products = products.into_iter().map(|mut rows| rows.remove(0)).collect();
    Scene { parameters, key, layout, models, products, wanted, rng }
}

/// Gaussian elimination modulo a prime: the unique solution of the first equations, if there is one.
fn solve(modulus: Modulus, mut rows: Vec<Vec<u64>>) -> Option<Vec<u64>> {
    let unknowns = rows.first()?.len() - 1;
    for column in 0..unknowns {
        let pivot = (column..rows.len()).find(|&r| rows[r][column] != 0)?;
        rows.swap(column, pivot);
        let inverse = modulus.inverse(rows[column][column]);
        rows[column].iter_mut().for_each(|x| *x = modulus.mul(*x, inverse));
        let pivot_row = rows[column].clone();
        for (r, row) in rows.iter_mut().enumerate() {
            if r != column {
                let factor = row[column];
                row.iter_mut()
                    .zip(&pivot_row)
                    .for_each(|(x, &p)| *x = modulus.sub(*x, modulus.mul(factor, p)));
            }
        }
    }
    Some(rows[..unknowns].iter().map(|row| row[unknowns]).collect())
}

/// One equation per model and part: known ciphertext points times unknown shares is the observed point.
fn equations(scene: &Scene, parts: &[usize], observed: impl Fn(usize, usize) -> u64) -> Vec<Vec<u64>> {
    let mut rows = Vec::new();
    for (m, model) in scene.models.iter().enumerate() {
        for &part in parts {
            let known = model.iter().map(|c| c.limb(part, 0)[POINT]);
            rows.push(known.chain([observed(m, part)]).collect());
        }
    }
    rows
}

/// The principal has no key, but it has the model ciphertexts and sees every reply of the auxiliary: half as
/// many models as inputs would do.
#[test]
fn the_principal_cannot_solve_the_auxiliarys_replies() {
    let mut scene = scene(INPUTS / 2);
    let modulus = scene.parameters.limbs()[0].modulus();
    let raw = equations(&scene, &[0, 1], |m, part| scene.products[m].limb(part, 0)[POINT]);
    assert_eq!(solve(modulus, raw), Some(scene.wanted.clone()), "the attack works on raw products");

    let public = scene.key.public_key(&mut scene.rng);
    let mut sent = scene.products.clone();
    for product in &mut sent {
        public.rerandomise(product, &mut scene.rng, &mut Operations::default()).unwrap();
    }
    let rows = equations(&scene, &[0, 1], |m, part| sent[m].limb(part, 0)[POINT]);
    let solved = solve(modulus, rows).unwrap();
    assert!(solved.iter().zip(&scene.wanted).all(|(a, b)| a != b), "no share is recovered");
}

/// A decryptor may know the seeds of the models' second parts; the second part of a raw product is then
/// linear in the shares, and re-randomising is what ends that, before anything is switched.
#[test]
fn a_decryptor_cannot_solve_re_randomised_products() {
    let mut scene = scene(INPUTS);
    let modulus = scene.parameters.limbs()[0].modulus();
    let raw = equations(&scene, &[1], |m, _| scene.products[m].limb(1, 0)[POINT]);
    assert_eq!(solve(modulus, raw), Some(scene.wanted.clone()), "the attack works on raw products");

    let public = scene.key.public_key(&mut scene.rng);
    let mut randomised = scene.products.clone();
    for product in &mut randomised {
        public.rerandomise(product, &mut scene.rng, &mut Operations::default()).unwrap();
    }
    let rows = equations(&scene, &[1], |m, _| randomised[m].limb(1, 0)[POINT]);
    let solved = solve(modulus, rows).unwrap();
    assert!(solved.iter().zip(&scene.wanted).all(|(a, b)| a != b), "no share is recovered");
}

/// Switching alone does not hide: who guesses the share computes the second part of the reply and sees
/// whether it is the one sent. On a sanitised reply the right guess looks like any other.
#[test]
fn a_decryptor_cannot_confirm_a_guessed_share_on_a_sanitised_reply() {
    let mut scene = scene(1);
    let mut ops = Operations::default();
    // The right guess: the sum of the known second parts times the guessed share, switched to one limb.
    let mut guessed = scene.products[0].part(1).to_vec();
    crate::keys::to_coefficients(&scene.parameters, &mut guessed, &mut ops);
    let guessed = crate::modulus_switch::switch(&scene.parameters, &mut guessed);

    let merely_switched = {
        let mut c1 = scene.products[0].clone();
        crate::keys::to_coefficients(&scene.parameters, c1.part_mut(1), &mut ops);
        crate::modulus_switch::switch(&scene.parameters, c1.part_mut(1))
    };
    assert_eq!(merely_switched, guessed, "the attack works on a product that was only switched");

    let public = scene.key.public_key(&mut scene.rng);
    let flooding = Flooding::new(&scene.parameters, scene.layout.half_noise()).unwrap();
    let planned = scene.layout.planned(0, |_| true).unwrap();
    let product = scene.products[0].clone();
    let reply = public
        .sanitise(&product, scene.layout.packing(), &planned, &flooding, &mut scene.rng, &mut ops)
        .unwrap();
    let agreeing = reply.c1.iter().zip(&guessed).filter(|(a, b)| a == b).count();
    assert_eq!(agreeing, 0, "coefficients that confirm the guess");
}

/// Noise of a reply before and after flooding, measured: what the decryptor sees is the flooding.
#[test]
fn flooding_covers_the_noise_of_the_product() {
    let mut scene = scene(1);
    let noise = scene.layout.half_noise();
    let flooding = Flooding::new(&scene.parameters, noise).unwrap();
    let before = scene.key.measure_noise(&scene.products[0]).unwrap();
    assert!(f64::from(before) <= noise.bits().ceil(), "{before} bits before, bound {}", noise.bits());

    let public = scene.key.public_key(&mut scene.rng);
    let (planned, packing, mut ops) =
        (vec![true; scene.parameters.degree()], scene.layout.packing(), Operations::default());
    let product = scene.products[0].clone();
    let reply = public.sanitise(&product, packing, &planned, &flooding, &mut scene.rng, &mut ops).unwrap();
    let after = scene.key.measure_reply_noise(&reply).unwrap();
    assert!(after >= flooding.magnitude_bits() && after <= scene.parameters.noise_capacity_bits() + 1);
    let log_degree = scene.parameters.degree().ilog2();
    assert!(after - before >= 40 + log_degree, "{before} bits before, {after} after");
    assert!(flooding.statistical_bits() >= 40);
    // The message survives.
    let raw = scene.key.decrypt(packing, &scene.products[0], &mut ops).unwrap();
    assert_eq!(scene.key.decrypt_reply(packing, &planned, &reply, &mut ops).unwrap().expose(), raw.expose());
}

//! Every method equals the clear product modulo p, half and full.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use secsv_algebra::{Prg, Ring, Seed, share};

use super::*;
use crate::{Ciphertext, EvaluationKey, Flooding, Operations, Preset, PublicKey, Reply, SecretKey};

struct Party {
    parameters: Arc<Parameters>,
    key: SecretKey,
    public: PublicKey,
}

fn party(preset: Preset) -> Party {
    let parameters = Parameters::preset(preset).unwrap();
    let mut rng = Prg::new(&Seed::from_bytes([11; 32]));
    let key = SecretKey::generate(&parameters, &mut rng);
    let public = key.public_key(&mut rng);
    Party { parameters, key, public }
}

static STANDARD: LazyLock<Party> = LazyLock::new(|| party(Preset::Standard));
static COMPACT: LazyLock<Party> = LazyLock::new(|| party(Preset::Compact));

/// Distributions that entries are drawn from.
#[derive(Clone, Copy, Debug)]
enum Entries {
    Uniform,
    Largest,
    Middle,
}

fn matrix(field: Field, rows: usize, columns: usize, entries: Entries, rng: &mut Prg) -> Matrix<Field> {
    match entries {
        Entries::Uniform => Matrix::uniform(field, rows, columns, rng),
        Entries::Largest => Matrix::from_fn(field, rows, columns, |_, _| field.modulus() - 1),
        Entries::Middle => {
            Matrix::from_fn(field, rows, columns, |r, c| field.modulus() / 2 + ((r + c) % 2) as u64)
        }
    }
}

fn evaluation_key(party: &Party, layout: &Layout, rng: &mut Prg) -> EvaluationKey {
    party.key.evaluation_key(&layout.rotation_steps(), rng)
}

/// Encrypts A, encodes B, multiplies, decrypts.
fn half(
    party: &Party,
    layout: &Layout,
    a: &Matrix<Field>,
    b: &Matrix<Field>,
    rng: &mut Prg,
) -> Matrix<Field> {
    let mut ops = Operations::default();
    let evaluation = evaluation_key(party, layout, rng);
    let prepared = layout.prepare(&layout.encrypt(&party.key, a, rng, &mut ops).unwrap()).unwrap();
    let batches = layout.encode(b, &mut ops).unwrap();
    let batches: Vec<&EncodedBatch> = batches.iter().collect();
    let products = multiply(layout, &[&prepared], &batches, Some(&evaluation), &mut ops).unwrap();
    if layout.rotations() == 0 {
        // Encoded on the way: the same products, some batches at a time, and as many operations.
        let (mut found, mut counted) = (Vec::new(), Operations::default());
        for first in (0..batches.len()).step_by(2) {
            let some = first..batches.len().min(first + 2);
            found.extend(multiply_samples(layout, &[&prepared], b, some, &mut counted).unwrap());
        }
        assert!(found == products);
        let mut encoded = Operations::default();
        layout.encode(b, &mut encoded).unwrap();
        assert_eq!((counted.ct_pt_mul, counted.ntt), (ops.ct_pt_mul, encoded.ntt));
    }
    let mut result = Matrix::zero(a.ring(), a.rows(), b.columns());
    for (batch, rows) in products.iter().enumerate() {
        for (row, product) in rows.iter().enumerate() {
            let elements = party.key.decrypt(layout.packing(), product, &mut ops).unwrap();
            layout.read(row, batch, elements.expose(), &mut result).unwrap();
        }
    }
    result
}

fn full(
    party: &Party,
    layout: &Layout,
    a: &Matrix<Field>,
    b: &Matrix<Field>,
    rng: &mut Prg,
) -> Matrix<Field> {
    let mut ops = Operations::default();
    let evaluation = evaluation_key(party, layout, rng);
    let extended = layout.extend(&layout.encrypt(&party.key, a, rng, &mut ops).unwrap(), &mut ops).unwrap();
    let mut result = Matrix::zero(a.ring(), a.rows(), b.columns());
    for batch in 0..layout.batches(b.columns()) {
        let encrypted = layout.encrypt_batch(&party.key, b, batch, rng, &mut ops).unwrap();
        let products = layout.multiply_full(&extended, &encrypted, &evaluation, &mut ops).unwrap();
        for (row, product) in products.iter().enumerate() {
            let noise = party.key.measure_noise(product).unwrap();
            assert!(f64::from(noise) <= layout.full_noise().bits().ceil(), "{noise} bits");
            let elements = party.key.decrypt(layout.packing(), product, &mut ops).unwrap();
            layout.read(row, batch, elements.expose(), &mut result).unwrap();
        }
    }
    result
}

fn method() -> impl Strategy<Value = MatrixMethod> {
    prop_oneof![
        Just(MatrixMethod::Squaring),
        Just(MatrixMethod::Reducing),
        (1usize..20, 1usize..40, 1usize..3000).prop_filter_map("the block fits", |(r, w, s)| {
            (r * w * s <= 4096).then_some(MatrixMethod::Packed(BlockShape {
                rows: r,
                columns: w,
                samples: s,
            }))
        }),
    ]
}

fn entries() -> impl Strategy<Value = Entries> {
    prop_oneof![3 => Just(Entries::Uniform), 1 => Just(Entries::Largest), 1 => Just(Entries::Middle)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn half_products_equal_the_clear_ones(
        method in method(), entries in entries(), compact: bool,
        d_out in 1usize..70, d_in in 1usize..90, samples in 1usize..200, seed: u8,
    ) {
        let party = if compact { &*COMPACT } else { &*STANDARD };
        let mut rng = Prg::new(&Seed::from_bytes([seed; 32]));
        let layout = Layout::new(&party.parameters, LayerShape { d_out, d_in }, method).unwrap();
        // A few batches are enough.
        let samples = samples.min(2 * layout.batch() + 1);
        let a = matrix(party.parameters.field(), d_out, d_in, entries, &mut rng);
        let b = matrix(party.parameters.field(), d_in, samples, entries, &mut rng);
        prop_assert_eq!(half(party, &layout, &a, &b, &mut rng), a.multiply(&b).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn full_products_equal_the_clear_ones(
        squaring: bool, entries in entries(), d_out in 1usize..12, d_in in 1usize..24, samples in 1usize..60, seed: u8,
    ) {
        let mut rng = Prg::new(&Seed::from_bytes([seed; 32]));
        let method = if squaring { MatrixMethod::Squaring } else { MatrixMethod::Reducing };
        let layout = Layout::new(&STANDARD.parameters, LayerShape { d_out, d_in }, method).unwrap();
        let a = matrix(STANDARD.parameters.field(), d_out, d_in, entries, &mut rng);
        let b = matrix(STANDARD.parameters.field(), d_in, samples, entries, &mut rng);
        prop_assert_eq!(full(&STANDARD, &layout, &a, &b, &mut rng), a.multiply(&b).unwrap());
    }
}

/// d_in = 784, the widest layer planned for, at the extremes of Z_p, with every method and preset.
#[test]
fn the_widest_layer_is_exact() {
    for party in [&*STANDARD, &*COMPACT] {
        let degree = party.parameters.degree();
        for (d_out, method) in [
            (1, MatrixMethod::Squaring),
            (1, MatrixMethod::Reducing),
            (1, MatrixMethod::Packed(BlockShape { rows: 1, columns: 1, samples: degree })),
            (3, MatrixMethod::Packed(BlockShape { rows: 3, columns: 28, samples: degree / 84 })),
        ] {
            let layout = Layout::new(&party.parameters, LayerShape { d_out, d_in: 784 }, method).unwrap();
            for entries in [Entries::Uniform, Entries::Largest] {
                let mut rng = Prg::new(&Seed::from_bytes([3; 32]));
                let a = matrix(party.parameters.field(), d_out, 784, entries, &mut rng);
                let b = matrix(party.parameters.field(), 784, layout.batch().min(50), entries, &mut rng);
                assert_eq!(
                    half(party, &layout, &a, &b, &mut rng),
                    a.multiply(&b).unwrap(),
                    "{layout:?} {entries:?}"
                );
            }
        }
    }
}

/// The whole way of a secure layer: weights of two clients encrypted, data shared between two servers, both
/// halves multiplied, the auxiliary's re-randomised, a coalition's weighted sum taken of the outputs,
/// sanitised, switched, decrypted.
#[test]
#[expect(clippy::too_many_lines, reason = "one product from encryption to weighted sum")]
fn shared_data_and_coalition_weights_end_in_the_weighted_product() {
    for (party, block) in [
        (&*STANDARD, BlockShape { rows: 2, columns: 4, samples: 1024 }),
        (&*COMPACT, BlockShape { rows: 2, columns: 4, samples: 512 }),
    ] {
        for method in [MatrixMethod::Packed(block), MatrixMethod::Reducing, MatrixMethod::Squaring] {
            // Rotations cost what flooding under two limbs has.
            if method == MatrixMethod::Squaring && party.parameters.limbs().len() == 2 {
                continue;
            }
            let (parameters, field) = (&party.parameters, party.parameters.field());
            let layout = Layout::new(parameters, LayerShape { d_out: 5, d_in: 15 }, method).unwrap();
            let mut rng = Prg::new(&Seed::from_bytes([4; 32]));
            let mut ops = Operations::default();
            let models = [0, 1].map(|_| Matrix::uniform(field, 5, 15, &mut rng));
            let data = Matrix::uniform(field, 15, 30, &mut rng);
            let (seeded, rest) = share::split(&data, Seed::random(&mut rng));
            let prepared = [0, 1].map(|i| {
                layout.prepare(&layout.encrypt(&party.key, &models[i], &mut rng, &mut ops).unwrap()).unwrap()
            });
            let weights = [100u32, 156];
            let evaluation = evaluation_key(party, &layout, &mut rng);
            let [principal, auxiliary] = [seeded.expand(), rest].map(|share| {
                let batches = layout.encode(share.expose(), &mut ops).unwrap();
                multiply(&layout, &[&prepared[0], &prepared[1]], &[&batches[0]], Some(&evaluation), &mut ops)
                    .unwrap()
            });
            let expected = models[0].scale(100).add(&models[1].scale(156)).unwrap().multiply(&data).unwrap();
            let noise = layout.half_noise().of_two_servers().weighted(8);
            let claimed = Flooding::new(parameters, noise);
            assert_eq!(claimed.is_ok(), method != MatrixMethod::Squaring, "{claimed:?}");
            let flooding = Flooding::without_claim(parameters, noise).unwrap();
            let mut result = Matrix::zero(field, 5, 30);
            for row in 0..layout.rows() {
                let halves: Vec<Ciphertext> = (0..2)
                    .map(|model| {
                        let mut half = auxiliary[model][row].clone();
                        party.public.rerandomise(&mut half, &mut rng, &mut ops).unwrap();
                        half.add_assign(parameters.limbs(), &principal[model][row]).unwrap();
                        half
                    })
                    .collect();
                let sum = Ciphertext::weighted_sum(
                    parameters.limbs(),
                    &[(weights[0], &halves[0]), (weights[1], &halves[1])],
                )
                .unwrap();
                let measured = party.key.measure_noise(&sum).unwrap();
                assert!(
                    f64::from(measured) <= noise.bits().ceil(),
                    "{measured} bits of noise, bound {}",
                    noise.bits()
                );
                let (packing, planned) =
                    (layout.packing(), layout.planned(row, |column| column < 30).unwrap());
                let reply =
                    party.public.sanitise(&sum, packing, &planned, &flooding, &mut rng, &mut ops).unwrap();
                let carried = layout.carried(row, layout.batch().min(30));
                assert_eq!(reply.to_bytes(parameters).len(), Reply::encoded_len(parameters, carried));
                let elements = party.key.decrypt_reply(packing, &planned, &reply, &mut ops).unwrap();
                layout.read(row, 0, elements.expose(), &mut result).unwrap();
            }
            assert_eq!(result, expected, "{layout:?}");
        }
    }
}

/// A coalition's model is the weighted sum of encrypted matrices: the same product as of the clear sum.
#[test]
fn weighted_sums_of_encrypted_matrices_multiply_like_the_clear_sum() {
    for party in [&*STANDARD, &*COMPACT] {
        let field = party.parameters.field();
        let layout = Layout::new(
            &party.parameters,
            LayerShape { d_out: 3, d_in: 20 },
            MatrixMethod::Packed(BlockShape { rows: 1, columns: 2, samples: 100 }),
        )
        .unwrap();
        let mut rng = Prg::new(&Seed::from_bytes([6; 32]));
        let mut ops = Operations::default();
        let models = [0, 1, 2].map(|_| Matrix::uniform(field, 3, 20, &mut rng));
        let prepared = models
            .clone()
            .map(|m| layout.prepare(&layout.encrypt(&party.key, &m, &mut rng, &mut ops).unwrap()).unwrap());
        let terms = [(3u32, &prepared[0]), (0, &prepared[1]), (253, &prepared[2])];
        let coalition = PreparedMatrix::weighted_sum(&layout, &terms).unwrap();
        let samples = Matrix::uniform(field, 20, 100, &mut rng);
        let batches = layout.encode(&samples, &mut ops).unwrap();
        let products = multiply(&layout, &[&coalition], &[&batches[0]], None, &mut ops).unwrap();
        let mut result = Matrix::zero(field, 3, 100);
        for (row, product) in products[0].iter().enumerate() {
            let elements = party.key.decrypt(layout.packing(), product, &mut ops).unwrap();
            layout.read(row, 0, elements.expose(), &mut result).unwrap();
        }
        let clear = models[0].scale(3).add(&models[2].scale(253)).unwrap();
        assert_eq!(result, clear.multiply(&samples).unwrap());
        assert!(
            PreparedMatrix::weighted_sum(&layout, &[(u32::MAX, &prepared[0]), (1, &prepared[1])]).is_err()
        );
    }
}

#[test]
fn a_large_layer_is_ready_to_multiply_within_300_mib() {
    let layout = Layout::new(
        &STANDARD.parameters,
        LayerShape { d_out: 64, d_in: 256 },
        MatrixMethod::Packed(BlockShape { rows: 1, columns: 32, samples: 256 }),
    )
    .unwrap();
    assert!(layout.prepared_bytes() <= 300 << 20, "{} bytes", layout.prepared_bytes());
    let small = Layout::new(
        &STANDARD.parameters,
        LayerShape { d_out: 3, d_in: 20 },
        MatrixMethod::Packed(BlockShape { rows: 1, columns: 4, samples: 8 }),
    )
    .unwrap();
    let mut rng = Prg::new(&Seed::from_bytes([6; 32]));
    let a = Matrix::uniform(STANDARD.parameters.field(), 3, 20, &mut rng);
    let prepared = small
        .prepare(&small.encrypt(&STANDARD.key, &a, &mut rng, &mut Operations::default()).unwrap())
        .unwrap();
    assert_eq!(prepared.bytes(), small.prepared_bytes());
}

#[test]
fn blocks_and_operands_that_do_not_fit_are_refused_by_name() {
    let parameters = &STANDARD.parameters;
    let shape = LayerShape { d_out: 4, d_in: 10 };
    let block = |r, w, s| {
        Layout::new(parameters, shape, MatrixMethod::Packed(BlockShape { rows: r, columns: w, samples: s }))
    };
    assert!(matches!(block(2, 2, 4096), Err(HeError::BlockShape { degree: 8192, .. })));
    assert!(matches!(block(0, 1, 1), Err(HeError::BlockShape { .. })));
    assert!(matches!(block(usize::MAX, 2, 1), Err(HeError::BlockShape { .. })));
    let empty = Layout::new(parameters, LayerShape { d_out: 0, d_in: 3 }, MatrixMethod::Squaring);
    assert!(matches!(empty, Err(HeError::Shape { .. })));
    assert!(Layout::new(parameters, LayerShape { d_out: 8193, d_in: 3 }, MatrixMethod::Reducing).is_err());
    let layout = block(1, 1, 8).unwrap();
    let mut rng = Prg::new(&Seed::from_bytes([1; 32]));
    let mut ops = Operations::default();
    let wrong = Matrix::zero(parameters.field(), 4, 11);
    let error = layout.encrypt(&STANDARD.key, &wrong, &mut rng, &mut ops).err().unwrap();
    assert_eq!(error.to_string(), "weight matrix: expected 4x10, found 4x11");
    let foreign = Matrix::zero(COMPACT.parameters.field(), 10, 3);
    assert!(matches!(layout.encode(&foreign, &mut ops), Err(HeError::Mixed { .. })));
    let compact = Layout::new(&COMPACT.parameters, shape, MatrixMethod::Reducing).unwrap();
    let a = Matrix::zero(COMPACT.parameters.field(), 4, 10);
    let encrypted = compact.encrypt(&COMPACT.key, &a, &mut rng, &mut ops).unwrap();
    assert!(
        matches!(compact.extend(&encrypted, &mut ops), Err(HeError::Budget { .. })),
        "no room for full products"
    );
}

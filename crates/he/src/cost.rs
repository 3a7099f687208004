//! Costs of a layer's operations on this machine.

use std::sync::Arc;

use secsv_algebra::{Field, Matrix, Prg, Ring, Seed};

use crate::{
    Ciphertext, Flooding, HeError, NoiseBound, Operations, Packing, Parameters, SecretKey,
    clock::Clock,
    linear::{BlockShape, LayerShape, Layout, MatrixMethod, multiply_into},
};

/// Seconds of processor time, one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCosts {
    /// Symmetric encryption of coefficients.
    pub encrypt: f64,
    /// Expanding and tiling one weight ciphertext.
    pub prepare: f64,
    /// Encoding one plaintext of coefficients for a product.
    pub encode: f64,
    /// Cost of slots on top: one transform modulo p and the permutation.
    pub slots: f64,
    /// One ciphertext-plaintext product, accumulated, while the operands stay in cache.
    pub product: f64,
    /// One product whose ciphertext comes from memory.
    pub streamed_product: f64,
    /// Reducing and writing one output.
    pub output: f64,
    /// One rotation.
    pub rotate: f64,
    /// Re-randomising one output at full modulus.
    pub rerandomise: f64,
    /// Sanitising one reply and switching it to one limb.
    pub sanitise: f64,
    /// Decrypting one reply.
    pub decrypt: f64,
    /// Adding one ciphertext, weighted, to a sum.
    pub weigh: f64,
}

impl UnitCosts {
    /// Measures each operation under these parameters; takes about two seconds.
    pub fn measure(parameters: &Arc<Parameters>, clock: Clock) -> Result<Self, HeError> {
        let mut rng = Prg::new(&Seed::from_bytes([1; 32]));
        let key = SecretKey::generate(parameters, &mut rng);
        let (field, degree) = (parameters.field(), parameters.degree());
        let mut ops = Operations::default();
        let mut elements = vec![0; degree];
        field.fill_uniform(&mut rng, &mut elements);
        let packing = Packing::Coefficients;

        let encrypt =
            clock.time(|| drop(std::hint::black_box(key.encrypt(packing, &elements, &mut rng, &mut ops))));
        let slots = clock.time(|| parameters.to_coefficients(Packing::Slots, &mut elements, &mut ops));
        let Products { prepare, encode, product, streamed_product, output } =
            products(parameters, &key, &mut rng, clock)?;

        let public = key.public_key(&mut rng);
        let evaluation = key.evaluation_key(&[1], &mut rng);
        let fresh = key.encrypt(packing, &elements, &mut rng, &mut ops)?.expand(parameters);
        let rotate =
            clock.time(|| drop(std::hint::black_box(evaluation.rotate(parameters, &fresh, 1, &mut ops))));
        let mut copy = fresh.clone();
        let rerandomise = clock.time(|| drop(public.rerandomise(&mut copy, &mut rng, &mut ops)));
        let flooding = Flooding::new(parameters, NoiseBound::half_product(parameters, 1))?;
        let planned = vec![true; degree];
        let sanitise = clock.time(|| {
            drop(std::hint::black_box(
                public.sanitise(&fresh, packing, &planned, &flooding, &mut rng, &mut ops),
            ))
        });
        let reply = public.sanitise(&fresh, packing, &planned, &flooding, &mut rng, &mut ops)?;
        let decrypt =
            clock.time(|| drop(std::hint::black_box(key.decrypt_reply(packing, &planned, &reply, &mut ops))));
        let terms = [(1, &fresh); 8];
        let weigh = clock
            .time(|| drop(std::hint::black_box(Ciphertext::weighted_sum(parameters.limbs(), &terms))))
            / 8.0;
        Ok(Self {
            encrypt,
            prepare,
            encode,
            slots,
            product,
            streamed_product,
            output,
            rotate,
            rerandomise,
            sanitise,
            decrypt,
            weigh,
        })
    }
}

struct Products {
    prepare: f64,
    encode: f64,
    product: f64,
    streamed_product: f64,
    output: f64,
}

/// Fills in what products cost: outputs of 1 and 9 products, whose operands stay in cache, tell the cost of a
/// product from that of an output; those of 128 come from memory.
fn products(
    parameters: &Arc<Parameters>,
    key: &SecretKey,
    rng: &mut Prg,
    clock: Clock,
) -> Result<Products, HeError> {
    let timed = |inner: usize, rng: &mut Prg| -> Result<(f64, f64, f64), HeError> {
        let block = BlockShape { rows: 1, columns: 1, samples: parameters.degree() };
        let layout =
            Layout::new(parameters, LayerShape { d_out: 1, d_in: inner }, MatrixMethod::Packed(block))?;
        let mut ops = Operations::default();
        let weights: Matrix<Field> = Matrix::uniform(parameters.field(), 1, inner, rng);
        let samples = Matrix::uniform(parameters.field(), inner, layout.batch(), rng);
        let encrypted = layout.encrypt(key, &weights, rng, &mut ops)?;
        let prepare = clock.time(|| drop(std::hint::black_box(layout.prepare(&encrypted))));
        let prepared = layout.prepare(&encrypted)?;
        let mut batch = layout.empty_batch();
        let encode = clock.time(|| drop(layout.encode_into(&samples, 0, &mut batch, &mut ops)));
        let mut products = Vec::new();
        let product = clock
            .time(|| drop(multiply_into(&layout, &[&prepared], &[&batch], None, &mut products, &mut ops)));
        Ok((prepare / inner as f64, encode / inner as f64, product))
    };
    let (_, _, one) = timed(1, rng)?;
    let (_, _, nine) = timed(9, rng)?;
    let (prepare, encode, many) = timed(128, rng)?;
    // A busy machine can make the differences vanish.
    let product = ((nine - one) / 8.0).max(nine / 100.0);
    let streamed_product = ((many - nine) / 119.0).max(product);
    Ok(Products { prepare, encode, product, streamed_product, output: (one - product).max(product) })
}

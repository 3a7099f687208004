//! What the operations of a layer cost on this machine.

use std::sync::Arc;

use secsv_algebra::{Field, Matrix, Prg, Ring, Seed};

use crate::{
    Ciphertext, Flooding, HeError, NoiseBound, Operations, Packing, Parameters, SecretKey,
    clock::fastest,
    linear::{Knobs, LayerShape, Layout, Method, multiply},
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
    /// What slots take on top: one transform modulo p and the permutation.
    pub slots: f64,
    /// One ciphertext-plaintext product, accumulated.
    pub product: f64,
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
    pub fn measure(parameters: &Arc<Parameters>) -> Result<Self, HeError> {
        let mut rng = Prg::new(&Seed::from_bytes([1; 32]));
        let key = SecretKey::generate(parameters, &mut rng);
        let (field, degree) = (parameters.field(), parameters.degree());
        let mut ops = Operations::default();
        let mut elements = vec![0; degree];
        field.fill_uniform(&mut rng, &mut elements);
        let packing = Packing::Coefficients;

        let encrypt =
            fastest(|| drop(std::hint::black_box(key.encrypt(packing, &elements, &mut rng, &mut ops))));
        let slots = fastest(|| parameters.to_coefficients(Packing::Slots, &mut elements, &mut ops));
        let (prepare, encode, product, output) = products(parameters, &key, &mut rng)?;

        let public = key.public_key(&mut rng);
        let evaluation = key.evaluation_key(&[1], &mut rng);
        let fresh = key.encrypt(packing, &elements, &mut rng, &mut ops)?.expand(parameters);
        let rotate =
            fastest(|| drop(std::hint::black_box(evaluation.rotate(parameters, &fresh, 1, &mut ops))));
        let mut copy = fresh.clone();
        let rerandomise = fastest(|| drop(public.rerandomise(&mut copy, &mut rng, &mut ops)));
        let flooding = Flooding::new(parameters, NoiseBound::half_product(parameters, 1))?;
        let planned = vec![true; degree];
        let sanitise = fastest(|| {
            drop(std::hint::black_box(public.sanitise(
                fresh.clone(),
                packing,
                &planned,
                &flooding,
                &mut rng,
                &mut ops,
            )))
        });
        let reply = public.sanitise(fresh.clone(), packing, &planned, &flooding, &mut rng, &mut ops)?;
        let decrypt = fastest(|| drop(std::hint::black_box(key.decrypt_reply(packing, &reply, &mut ops))));
        let terms = [(1, &fresh); 8];
        let weigh =
            fastest(|| drop(std::hint::black_box(Ciphertext::weighted_sum(parameters.limbs(), &terms))))
                / 8.0;
        Ok(Self {
            encrypt,
            prepare,
            encode,
            slots,
            product,
            output,
            rotate,
            rerandomise,
            sanitise,
            decrypt,
            weigh,
        })
    }
}

/// Preparing a ciphertext, encoding a plaintext, one product, one output: outputs of 1 and of 32 products tell
/// the cost of a product from that of an output.
fn products(
    parameters: &Arc<Parameters>,
    key: &SecretKey,
    rng: &mut Prg,
) -> Result<(f64, f64, f64, f64), HeError> {
    let timed = |inner: usize, rng: &mut Prg| -> Result<(f64, f64, f64), HeError> {
        let knobs = Knobs { r: 1, w: 1, s: parameters.degree() };
        let layout = Layout::new(parameters, LayerShape { d_out: 1, d_in: inner }, Method::Packed(knobs))?;
        let mut ops = Operations::default();
        let weights: Matrix<Field> = Matrix::uniform(parameters.field(), 1, inner, rng);
        let samples = Matrix::uniform(parameters.field(), inner, layout.batch(), rng);
        let encrypted = layout.encrypt(key, &weights, rng, &mut ops)?;
        let prepare = fastest(|| drop(std::hint::black_box(layout.prepare(&encrypted))));
        let prepared = layout.prepare(&encrypted)?;
        let mut batch = layout.empty_batch();
        let encode = fastest(|| drop(layout.encode_into(&samples, 0, &mut batch, &mut ops)));
        let product = fastest(|| {
            drop(std::hint::black_box(multiply(&layout, &[&prepared], &[&batch], None, &mut ops)))
        });
        Ok((prepare / inner as f64, encode / inner as f64, product))
    };
    let (_, _, short) = timed(1, rng)?;
    let (prepare, encode, long) = timed(32, rng)?;
    // A busy machine can make the difference vanish.
    let product = ((long - short) / 31.0).max(long / 1000.0);
    Ok((prepare, encode, product, (short - product).max(product)))
}

//! `secsv demo`: one encrypted layer, from two clients' weights to a product checked against the clear one.

use std::{sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use rand::{RngCore, TryRngCore, rngs::OsRng};
use secsv_algebra::{Field, FixedPoint, Matrix, Prg, Ring, Seed, Share, share};
use secsv_he::{
    Ciphertext, Flooding, HeError, Operations, Parameters, Preset, PublicKey, SecretKey, UnitCosts,
    linear::{EncodedBatch, EncryptedMatrix, LayerShape, Layout, PreparedMatrix, multiply},
    planner::{LayerPlan, LayerTask, Scope, plan_packed},
};
use serde::Serialize;

use crate::output::Format;

const SHAPE: LayerShape = LayerShape { d_out: 2, d_in: 30 };
const SAMPLES: usize = 500;
/// Two clients' weights in their coalition, in 256ths, and the bits of their sum.
const COALITION: [u32; 2] = [96, 160];
const COALITION_BITS: u32 = 8;
const WEIGHTS: FixedPoint = FixedPoint::new(12, 2);
const FEATURES: FixedPoint = FixedPoint::new(10, 3);

#[derive(Serialize)]
struct Outcome {
    demonstration: &'static str,
    shape: [usize; 2],
    samples: usize,
    upload_bytes: usize,
    statistical_bits: u32,
    seconds: f64,
    equal: bool,
}

/// Runs the demonstration.
pub fn run(format: Format) -> Result<()> {
    let mut seed = [0; 32];
    OsRng.try_fill_bytes(&mut seed)?;
    let mut rng = Prg::new(&Seed::from_bytes(seed));
    let parameters = Parameters::preset(Preset::Standard)?;
    let (rows, columns) = (SHAPE.d_out, SHAPE.d_in);
    let models = [
        draw(&mut rng, &parameters, (rows, columns), WEIGHTS)?,
        draw(&mut rng, &parameters, (rows, columns), WEIGHTS)?,
    ];
    let data = draw(&mut rng, &parameters, (columns, SAMPLES), FEATURES)?;
    let plan = plan(&parameters)?;

    let start = Instant::now();
    let key = SecretKey::generate(&parameters, &mut rng);
    let uploads = upload(&plan.layout, &key, &models, &mut rng)?;
    let (seeded, rest) = share::split(&data, Seed::random(&mut rng));
    let halves = [half(&plan.layout, &uploads, &seeded.expand())?, half(&plan.layout, &uploads, &rest)?];
    let noise = plan.layout.half_noise().of_two_servers().weighted(COALITION_BITS);
    let flooding = Flooding::new(&parameters, noise)?;
    let public = key.public_key(&mut rng);
    let result = reply(&plan.layout, &key, &public, &halves, &flooding, &mut rng)?;
    let seconds = start.elapsed().as_secs_f64();

    let coalition = models[0].scale(COALITION[0].into()).add(&models[1].scale(COALITION[1].into()))?;
    let clear = coalition.multiply(&data)?;
    let outcome = Outcome {
        demonstration: "encrypted matrix product",
        shape: [rows, columns],
        samples: SAMPLES,
        upload_bytes: uploads[0].len(),
        statistical_bits: flooding.statistical_bits(),
        seconds,
        equal: result == clear,
    };
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&outcome)?),
        Format::Text => tell(&plan, &outcome, &result, &clear),
    }
    ensure!(outcome.equal, "the encrypted product differs from the clear one");
    Ok(())
}

/// Random real numbers in fixed point.
fn draw(
    rng: &mut Prg,
    parameters: &Parameters,
    shape: (usize, usize),
    fixed: FixedPoint,
) -> Result<Matrix<Field>> {
    let step = f64::powi(2.0, -(fixed.fractional_bits() as i32));
    let bits = fixed.exponent() as u32 + fixed.fractional_bits();
    let elements = (0..shape.0 * shape.1).map(|_| {
        let integer = (rng.next_u64() >> (63 - bits)) as i64 - (1 << bits);
        Ok(fixed.encode(parameters.field(), integer as f64 * step)?)
    });
    Ok(Matrix::new(parameters.field(), shape.0, shape.1, elements.collect::<Result<Vec<_>>>()?)?)
}

fn plan(parameters: &Arc<Parameters>) -> Result<LayerPlan, HeError> {
    let costs = UnitCosts::measure(parameters)?;
    let task = LayerTask {
        shape: SHAPE,
        samples: SAMPLES,
        models: 2,
        sums: 1,
        weight_bits: COALITION_BITS,
        memory: 300 << 20,
    };
    plan_packed(parameters, task, Scope::TwoServers, &costs)
}

/// Each client's part: its weights encrypted, as bytes for both servers.
fn upload(
    layout: &Layout,
    key: &SecretKey,
    models: &[Matrix<Field>],
    rng: &mut Prg,
) -> Result<Vec<Vec<u8>>, HeError> {
    let mut ops = Operations::default();
    models.iter().map(|m| Ok(layout.encrypt(key, m, rng, &mut ops)?.to_bytes(layout.parameters()))).collect()
}

/// A server's part: every model times its share of the samples.
fn half(layout: &Layout, uploads: &[Vec<u8>], share: &Share<Field>) -> Result<Vec<Vec<Ciphertext>>, HeError> {
    let mut ops = Operations::default();
    let prepare = |bytes: &Vec<u8>| layout.prepare(&EncryptedMatrix::from_bytes(layout, bytes)?);
    let models = uploads.iter().map(prepare).collect::<Result<Vec<PreparedMatrix>, HeError>>()?;
    let batches = layout.encode(share.expose(), &mut ops)?;
    let batches: Vec<&EncodedBatch> = batches.iter().collect();
    multiply(layout, &models.iter().collect::<Vec<_>>(), &batches, None, &mut ops)
}

/// The auxiliary re-randomises, the principal adds, weighs and sanitises, a client decrypts.
fn reply(
    layout: &Layout,
    key: &SecretKey,
    public: &PublicKey,
    [principal, auxiliary]: &[Vec<Vec<Ciphertext>>; 2],
    flooding: &Flooding,
    rng: &mut Prg,
) -> Result<Matrix<Field>, HeError> {
    let (limbs, mut ops) = (layout.parameters().limbs(), Operations::default());
    let batches = layout.batches(SAMPLES);
    let mut result = Matrix::zero(layout.parameters().field(), SHAPE.d_out, SAMPLES);
    for (batch, row) in (0..batches).flat_map(|b| (0..layout.rows()).map(move |r| (b, r))) {
        let mut outputs = Vec::new();
        for model in 0..COALITION.len() {
            let at = model * batches + batch;
            let mut output = auxiliary[at][row].clone();
            public.rerandomise(&mut output, rng, &mut ops)?;
            output.add_assign(limbs, &principal[at][row])?;
            outputs.push(output);
        }
        let terms: Vec<(u32, &Ciphertext)> = COALITION.into_iter().zip(&outputs).collect();
        let sum = Ciphertext::weighted_sum(limbs, &terms)?;
        let planned = layout.planned(row, |column| batch * layout.batch() + column < SAMPLES)?;
        let reply = public.sanitise(sum, layout.packing(), &planned, flooding, rng, &mut ops)?;
        let elements = key.decrypt_reply(layout.packing(), &reply, &mut ops)?;
        layout.read(row, batch, elements.expose(), &mut result)?;
    }
    Ok(result)
}

fn tell(plan: &LayerPlan, outcome: &Outcome, result: &Matrix<Field>, clear: &Matrix<Field>) {
    let Outcome { shape: [rows, columns], samples, .. } = outcome;
    println!("An encrypted matrix product, checked against the clear one.");
    println!(
        "(It shows one layer on random numbers; the whole protocol with every party is not in this build.)\n"
    );
    println!(
        "two clients encrypt {rows}x{columns} weights: {} bytes each, to both servers",
        outcome.upload_bytes
    );
    println!(
        "a third splits {samples} samples: a 32-byte seed to one server, {} numbers to the other",
        columns * samples
    );
    println!("the servers multiply ({:?}), add and weigh", plan.layout.method());
    println!("their replies are sanitised to {} bits of statistical distance each", outcome.statistical_bits);
    println!("a fourth client decrypts the coalition's scores: {:.2} s in all\n", outcome.seconds);
    let bits = WEIGHTS.fractional_bits() + FEATURES.fractional_bits() + COALITION_BITS;
    let (scale, field) = (FixedPoint::new(bits, 0), result.ring());
    println!("first scores, encrypted and clear:");
    for k in 0..3 {
        println!(
            "  {:>12.6} {:>12.6}",
            scale.decode(field, result.at(0, k)),
            scale.decode(field, clear.at(0, k))
        );
    }
    if outcome.equal {
        println!(
            "all {} scores are equal, bit for bit, modulo the {}-bit prime",
            rows * samples,
            field.bits()
        );
    }
}

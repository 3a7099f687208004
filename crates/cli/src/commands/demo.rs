//! `secsv demo`: one encrypted layer, from two hospitals' weights to a product checked against the clear one.

use std::time::Instant;

use anyhow::{Result, ensure};
use secsv_algebra::{Field, FixedPoint, Matrix, Prg, Ring, Seed, share};
use secsv_he::{
    Ciphertext, Flooding, Operations, Parameters, Preset, SecretKey, UnitCosts,
    linear::{EncodedBatch, EncryptedMatrix, LayerShape, multiply},
    planner::{LayerTask, Scope, plan_packed},
};

use crate::output::Format;

const SHAPE: LayerShape = LayerShape { d_out: 2, d_in: 30 };
const SAMPLES: usize = 500;
/// Two clients' weights in their coalition, in 256ths.
const COALITION: [u32; 2] = [96, 160];

/// Runs the demonstration.
pub fn run(_format: Format) -> Result<()> {
    let mut seed = [0; 32];
    rand::TryRngCore::try_fill_bytes(&mut rand::rngs::OsRng, &mut seed)?;
    let mut rng = Prg::new(&Seed::from_bytes(seed));
    println!("An encrypted matrix product, checked against the clear one.");
    println!("(The whole protocol, with every party, is not part of this demonstration yet.)\n");
    let parameters = Parameters::preset(Preset::Standard)?;
    let (field, weights, pixels) = (parameters.field(), FixedPoint::new(12, 2), FixedPoint::new(10, 3));

    // Real numbers, as hospitals have them, in fixed point.
    let real = |rng: &mut Prg, rows, columns, fixed: FixedPoint| -> Result<Matrix<Field>> {
        let step = 1 << fixed.fractional_bits();
        let range = (2i64 << fixed.exponent()) * step;
        let elements = (0..rows * columns).map(|_| {
            let draw = (rand::RngCore::next_u64(rng) % range as u64) as i64 - range / 2;
            Ok(fixed.encode(field, draw as f64 / step as f64)?)
        });
        Ok(Matrix::new(field, rows, columns, elements.collect::<Result<Vec<_>>>()?)?)
    };
    let models = [
        real(&mut rng, SHAPE.d_out, SHAPE.d_in, weights)?,
        real(&mut rng, SHAPE.d_out, SHAPE.d_in, weights)?,
    ];
    let data = real(&mut rng, SHAPE.d_in, SAMPLES, pixels)?;

    let costs = UnitCosts::measure(&parameters)?;
    let task = LayerTask { shape: SHAPE, samples: SAMPLES, models: 2, replies: 1, memory: 300 << 20 };
    let plan = plan_packed(&parameters, task, Scope::TwoServers, &costs)?;
    let (layout, mut ops) = (&plan.layout, Operations::default());
    println!("layer {}x{}, {SAMPLES} samples, plan: {:?}", SHAPE.d_out, SHAPE.d_in, layout.method());
    println!("predicted: {:?}\n", plan.operations);

    let start = Instant::now();
    let key = SecretKey::generate(&parameters, &mut rng);
    let public = key.public_key(&mut rng);
    let uploads: Vec<Vec<u8>> = models
        .iter()
        .map(|m| Ok(layout.encrypt(&key, m, &mut rng, &mut ops)?.to_bytes(&parameters)))
        .collect::<Result<_>>()?;
    println!("two clients encrypt their weights: {} bytes each, to both servers", uploads[0].len());
    let (seeded, rest) = share::split(&data, Seed::random(&mut rng));
    println!(
        "a third client splits its samples: a 32-byte seed to one server, {} elements to the other",
        SHAPE.d_in * SAMPLES
    );

    let mut halves = Vec::new();
    for share in [seeded.expand(), rest] {
        let prepared = uploads
            .iter()
            .map(|bytes| Ok(layout.prepare(&EncryptedMatrix::from_bytes(layout, bytes)?)?))
            .collect::<Result<Vec<_>>>()?;
        let batches = layout.encode(share.expose(), &mut ops)?;
        let batches: Vec<&EncodedBatch> = batches.iter().collect();
        halves.push(multiply(layout, &prepared.iter().collect::<Vec<_>>(), &batches, None, &mut ops)?);
    }
    let noise = layout.noise().of_two_servers().weighted(8);
    let flooding = Flooding::new(&parameters, noise)?;
    let mut result = Matrix::zero(field, SHAPE.d_out, SAMPLES);
    let batches = layout.batches(SAMPLES);
    for batch in 0..batches {
        for row in 0..layout.rows() {
            let mut outputs = Vec::new();
            for model in 0..2 {
                let mut output = halves[1][model * batches + batch][row].clone();
                public.rerandomise(&mut output, &mut rng, &mut ops)?;
                output.add_assign(parameters.limbs(), &halves[0][model * batches + batch][row])?;
                outputs.push(output);
            }
            let terms = [(COALITION[0], &outputs[0]), (COALITION[1], &outputs[1])];
            let sum = Ciphertext::weighted_sum(parameters.limbs(), &terms)?;
            let planned = layout.planned(row, SAMPLES - batch * layout.batch());
            let reply = public.sanitise(sum, layout.packing(), &planned, &flooding, &mut rng, &mut ops)?;
            let elements = key.decrypt_reply(layout.packing(), &reply, &mut ops)?;
            layout.read(row, batch, elements.expose(), &mut result)?;
        }
    }
    println!(
        "the servers multiply, add, sanitise ({} bits of statistical distance) and reply",
        flooding.statistical_bits()
    );
    println!(
        "a fourth client decrypts the scores of the coalition: {:.2} s in all\n",
        start.elapsed().as_secs_f64()
    );

    let coalition =
        models[0].scale(u64::from(COALITION[0])).add(&models[1].scale(u64::from(COALITION[1])))?;
    let clear = coalition.multiply(&data)?;
    let scale = FixedPoint::new(12 + 10 + 8, 8);
    println!("first scores, encrypted and clear:");
    for k in 0..3 {
        println!(
            "  {:>12.6} {:>12.6}",
            scale.decode(field, result.at(0, k)),
            scale.decode(field, clear.at(0, k))
        );
    }
    ensure!(result == clear, "the encrypted product differs from the clear one");
    println!(
        "all {} scores are equal, bit for bit, modulo the {}-bit prime",
        SHAPE.d_out * SAMPLES,
        field.bits()
    );
    Ok(())
}

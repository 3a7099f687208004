//! Seconds, from counts of work and what each piece takes on this machine: measured here, on the shapes at
//! hand.

use std::{hint::black_box, sync::Arc};

use crate::{
    output::say,
    progress::{ProgressMode, ProgressReport, mode},
};
use anyhow::Result;
use secsv_algebra::{Matrix, Prg, Ring64, Seed};
use secsv_evaluation::{Plan, rehearse_message};
use secsv_federation::{Coalition, SampleSet};
use secsv_he::{
    Ciphertext, Operations, Parameters, SecretKey, UnitCosts,
    clock::{Clock, thread_time},
    linear::{Layout, multiply_into},
};
use secsv_protocol::{
    cost::{
        LayerWork, Work, rehearse_activation, rehearse_labels, rehearse_masked, rehearse_sharing,
        rehearse_sum,
    },
    own_right,
};
use serde::{Deserialize, Serialize};

use super::unit_costs;

/// Sessions keep all cores busy, and find little of what they need in caches.
const TYPICAL: Clock = Clock::Typical;
/// Batches that meet a model in one pass.
const BATCHES: usize = 4;
/// Samples that are activated or tested to see how long it takes.
const REHEARSED: usize = 128;
/// Elements that are shared for the same purpose.
const SHARED: usize = 1 << 16;
/// Samples that are tested under masks for the same purpose: about an owner's.
const MASKED: usize = 1 << 11;

/// Seconds of processor time that pieces of work take.
#[derive(Serialize, Deserialize)]
pub struct Rates {
    /// Reading the run and publishing ranges, which an evaluation does as well: of this run, so it is not remembered.
    #[serde(skip)]
    reading: f64,
    encrypted: Option<Encrypted>,
    layers: Vec<LayerRates>,
    share: f64,
    label: f64,
    word_product: f64,
    scale: f64,
    masked: f64,
    activate: f64,
    clear: f64,
    frame: f64,
    frame_byte: f64,
    threads: usize,
}

#[derive(Serialize, Deserialize)]
struct Encrypted {
    unit: ReplyCosts,
    /// Finding and reading the planned positions of a reply.
    read: f64,
    pack_byte: f64,
    unpack_byte: f64,
}

/// What the encryption's unit costs are needed for here.
#[derive(Serialize, Deserialize)]
struct ReplyCosts {
    encrypt: f64,
    slots: f64,
    prepare: f64,
    rerandomise: f64,
    sanitise: f64,
    decrypt: f64,
    weigh: f64,
}

impl From<UnitCosts> for ReplyCosts {
    fn from(unit: UnitCosts) -> Self {
        let UnitCosts { encrypt, slots, prepare, rerandomise, sanitise, decrypt, weigh, .. } = unit;
        Self { encrypt, slots, prepare, rerandomise, sanitise, decrypt, weigh }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct LayerRates {
    encode: f64,
    multiply: f64,
    extend_model: f64,
    extend_batch: f64,
    full: f64,
}

/// Processor time of this thread from now on.
pub fn stopwatch() -> impl Fn() -> f64 {
    let start = thread_time();
    move || (thread_time() - start).as_secs_f64()
}

impl Rates {
    /// What is remembered of this machine, for a plan like this one, or else what is measured now.
    pub fn known_or_measured(plan: &Plan, reading: f64, is_fresh: bool) -> Result<Vec<Self>> {
        let place = unit_costs::place(&signature(plan));
        let kept: Option<Vec<Self>> = place.as_deref().filter(|_| !is_fresh).and_then(unit_costs::read);
        if let Some(rates) = kept.filter(|rates| !rates.is_empty()) {
            return Ok(rates.into_iter().map(|rates| Self { reading, ..rates }).collect());
        }
        let progress = ProgressReport::new("plan", "measurements", 0);
        progress.note("measuring".to_owned(), &serde_json::json!({ "event": "measuring" }));
        if mode() != ProgressMode::None {
            say(
                "measuring this machine's unit costs: some 20 seconds, remembered for the next plan like this one",
            );
        }
        let rates = Self::measure(plan, reading)?;
        progress.finish();
        if let Some(place) = place {
            unit_costs::keep(&place, &rates);
        }
        Ok(rates)
    }

    /// Measures this machine; takes a few seconds. All threads measure at once, because they share memory and
    /// power.
    pub fn measure(plan: &Plan, reading: f64) -> Result<Vec<Self>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let measuring: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| Self::measure_once(plan, reading, threads))).collect();
            measuring
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a measurement panicked")))
                })
                .collect()
        })
    }

    fn measure_once(plan: &Plan, reading: f64, threads: usize) -> Result<Self> {
        let session = &plan.session;
        let (mut encrypted, mut layers) = (None, Vec::new());
        if let Some(encryption) = session.encryption() {
            encrypted = Some(Encrypted::measure(&encryption.parameters, &encryption.layouts[0])?);
            let key = SecretKey::generate(&encryption.parameters, &mut rng(1));
            for (layout, work) in encryption.layouts.iter().zip(&plan.at_most.work.layers) {
                layers.push(LayerRates::measure(layout, &key, work)?);
            }
        }
        // Where models are tested together, a sample takes a nanosecond.
        let rehearsed = if session.federation.tests_together() { SHARED } else { REHEARSED };
        rehearse_activation(session, rehearsed).map_err(secsv_evaluation::Error::Role)?;
        let activate = TYPICAL.time(|| drop(black_box(rehearse_activation(session, rehearsed))));
        let activate = activate / rehearsed as f64;
        let share = TYPICAL.time(|| drop(black_box(rehearse_sharing(session, SHARED)))) / SHARED as f64;
        let label = TYPICAL.time(|| {
            black_box(rehearse_labels(session, SHARED));
        });
        let label = label / SHARED as f64;
        rehearse_masked(session, MASKED).map_err(secsv_evaluation::Error::Role)?;
        let masked = TYPICAL.time(|| drop(black_box(rehearse_masked(session, MASKED)))) / MASKED as f64;
        let scale = TYPICAL.time(|| drop(black_box(rehearse_sum(SHARED)))) / SHARED as f64;
        let mebibyte = vec![7; 1 << 20];
        let frame = TYPICAL.time(|| drop(black_box(rehearse_message(mebibyte[..64].to_vec()))));
        let frame_byte =
            TYPICAL.time(|| drop(black_box(rehearse_message(mebibyte.clone())))) / mebibyte.len() as f64;
        let clear = clear(plan)?;
        Ok(Self {
            reading,
            encrypted,
            layers,
            share,
            label,
            word_product: word_product(),
            scale,
            masked,
            activate,
            clear,
            frame,
            frame_byte,
            threads,
        })
    }

    /// Processor time and elapsed time, as the threads' measurements have it on average.
    pub fn seconds(all: &[Self], work: &Work) -> (f64, f64) {
        let mean = |of: fn((f64, f64)) -> f64| {
            all.iter().map(|rates| of(rates.of(work))).sum::<f64>() / all.len().max(1) as f64
        };
        (mean(|(cpu, _)| cpu), mean(|(_, elapsed)| elapsed))
    }

    fn of(&self, work: &Work) -> (f64, f64) {
        let of = |count: u64, rate: f64| count as f64 * rate;
        let mut jobs = of(work.shared, self.share)
            + of(work.labels, self.label)
            + of(work.word_products, self.word_product)
            + of(work.scaled, self.scale)
            + of(work.blind_samples, self.masked)
            + of(work.activated_samples, self.activate)
            + of(work.clear_samples, self.clear)
            + of(work.frames, self.frame)
            + of(work.frame_bytes, self.frame_byte);
        if let Some(Encrypted { unit, read, pack_byte, unpack_byte }) = &self.encrypted {
            jobs += of(work.encryptions, unit.encrypt)
                + of(work.slot_transforms, unit.slots)
                + of(work.prepared + work.expanded, unit.prepare)
                + of(work.rerandomised, unit.rerandomise)
                + of(work.replies, unit.sanitise + unit.decrypt + read)
                + of(work.weighed, unit.weigh)
                + of(work.packed_bytes, *pack_byte)
                + of(work.unpacked_bytes, *unpack_byte);
        }
        for (rates, work) in self.layers.iter().zip(&work.layers) {
            jobs += of(work.encoded, rates.encode)
                + of(work.multiplied, rates.multiply)
                + of(work.extended_models, rates.extend_model)
                + of(work.extended_batches, rates.extend_batch)
                + of(work.full, rates.full);
        }
        (self.reading + jobs, self.reading + jobs / self.threads as f64)
    }
}

/// What unit costs depend on, beside the machine and the build.
fn signature(plan: &Plan) -> String {
    let federation = &plan.session.federation;
    let layouts: Vec<_> = plan
        .session
        .encryption()
        .map(|encryption| encryption.layouts.iter().map(|l| (l.shape(), l.batch())).collect())
        .unwrap_or_default();
    let samples: Vec<_> = plan.inputs.iter().map(|input| input.test_set.len()).collect();
    format!("{:?} {layouts:?} {:?} {samples:?}", federation.settings, federation.architecture.tensors())
}

fn rng(seed: u8) -> Prg {
    Prg::new(&Seed::from_bytes([seed; 32]))
}

impl Encrypted {
    fn measure(parameters: &Arc<Parameters>, layout: &Layout) -> Result<Self> {
        let unit = UnitCosts::measure(parameters, TYPICAL)?.into();
        let ciphertext = Ciphertext::zero_under(parameters);
        let bytes = ciphertext.to_bytes(parameters);
        let pack = TYPICAL.time(|| drop(black_box(ciphertext.to_bytes(parameters))));
        let unpack = TYPICAL.time(|| drop(black_box(Ciphertext::from_bytes(parameters, &bytes))));
        let elements = vec![1; parameters.degree()];
        let mut product = Matrix::zero(parameters.field(), layout.shape().d_out, layout.batch());
        let wanted = SampleSet::all(layout.batch());
        let read = TYPICAL.time(|| {
            black_box(layout.planned(0, |column| wanted.contains(column)).is_ok());
            black_box(layout.read(0, 0, &elements, &mut product).is_ok());
        });
        let length = bytes.len() as f64;
        Ok(Self { unit, read, pack_byte: pack / length, unpack_byte: unpack / length })
    }
}

impl LayerRates {
    fn measure(layout: &Layout, key: &SecretKey, work: &LayerWork) -> Result<Self> {
        let (field, shape, mut ops) = (layout.parameters().field(), layout.shape(), Operations::default());
        let weights = Matrix::uniform(field, shape.d_out, shape.d_in, &mut rng(2));
        let samples = Matrix::uniform(field, shape.d_in, layout.batch(), &mut rng(3));
        let mut rates = Self::default();
        if work.encoded + work.full == 0 {
            return Ok(rates);
        }
        let encrypted = layout.encrypt(key, &weights, &mut rng(4), &mut ops)?;
        if work.full > 0 {
            let evaluation = key.evaluation_key(&layout.rotation_steps(), &mut rng(5));
            let batch = layout.encrypt_batch(key, &samples, 0, &mut rng(6), &mut ops)?;
            let (begun, extended) = (stopwatch(), layout.extend(&encrypted, &mut ops)?);
            rates.extend_model = begun();
            rates.extend_batch =
                rates.extend_model * layout.inner() as f64 / layout.weight_ciphertexts().max(1) as f64;
            let begun = stopwatch();
            black_box(layout.multiply_full(&extended, &batch, &evaluation, &mut ops)?);
            rates.full = (begun() - rates.extend_batch).max(0.0);
            return Ok(rates);
        }
        let prepared = layout.prepare(&encrypted)?;
        let mut batches: Vec<_> = (0..BATCHES).map(|_| layout.empty_batch()).collect();
        rates.encode = TYPICAL.time(|| drop(layout.encode_into(&samples, 0, &mut batches[0], &mut ops)));
        let batches: Vec<_> = batches.iter().collect();
        // Memory for products is new in a session.
        let multiply = TYPICAL.time(|| {
            let mut products = Vec::new();
            black_box(multiply_into(layout, &[&prepared], &batches, None, &mut products, &mut ops).is_ok());
        });
        rates.multiply = multiply / BATCHES as f64;
        Ok(rates)
    }
}

fn word_product() -> f64 {
    let (rows, inner, columns) = (16, 256, 256);
    let left = Matrix::uniform(Ring64, rows, inner, &mut rng(8));
    let right = Matrix::uniform(Ring64, inner, columns, &mut rng(9));
    TYPICAL.time(|| drop(black_box(left.product(&right)))) / (rows * inner * columns) as f64
}

/// One sample that its owner tests itself.
fn clear(plan: &Plan) -> Result<f64> {
    let owner = plan.inputs.iter().enumerate().max_by_key(|(_, input)| input.test_set.len());
    let round = plan.session.federation.rounds.keys().next();
    let (Some((position, input)), Some(&round)) = (owner, round) else { return Ok(0.0) };
    let mut samples = SampleSet::none(input.test_set.len());
    (0..samples.total().min(REHEARSED)).for_each(|sample| samples.insert(sample));
    let federation = &plan.session.federation;
    let test = || own_right(federation, position, input, round, Coalition::EMPTY, &samples);
    test().map_err(secsv_evaluation::Error::Role)?;
    Ok(TYPICAL.time(|| drop(black_box(test()))) / samples.len().max(1) as f64)
}

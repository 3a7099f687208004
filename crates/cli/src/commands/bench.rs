//! `secsv bench linear`: this machine's multiply-accumulate rate and the matrix methods side by side.

mod words;

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use anyhow::Result;
use clap::{Args, Subcommand};
use secsv_algebra::{Field, Matrix, Prg, Seed};
use secsv_he::{
    HeError, Operations, Parameters, Preset, SecretKey, UnitCosts,
    clock::{Clock, fastest},
    linear::{LayerShape, Layout, MatrixMethod, multiply_into},
    measure::{Implementation, KernelRow, kernel_rows},
    planner::{LayerTask, PlannedWork, plan_packed, predict},
};
use serde::{Deserialize, Serialize};

use crate::output::{Document, Format, print_or_end, say};

/// The shapes of the paper's Matrix Reducing table.
const SHAPES: [(usize, usize); 7] = [(4, 300), (2, 48), (64, 256), (10, 64), (32, 64), (32, 32), (2, 32)];
/// How often everything is timed, all of it before anything is timed again: a shared machine is slow for
/// seconds on end, and the least of several times is what counts.
const ROUNDS: usize = 4;
/// Bytes that one model's weights may take when ready to multiply.
const MEMORY: usize = 300 << 20;

/// Arguments of `secsv bench`.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Encrypted matrix products: the kernel, and every method at the paper's shapes.
    Linear {
        /// Encryption parameters of the matrix products (kernel rows are always `compact`).
        #[arg(long, value_enum, default_value_t = Preset::Standard)]
        preset: Preset,
    },
    /// Products of 64-bit words and streams of masks, beside other ways to compute them.
    Words,
}

#[derive(Serialize)]
struct LinearTimes {
    kernel: Vec<KernelTime>,
    matmul: Vec<ProductTime>,
}

#[derive(Serialize)]
struct KernelTime {
    name: &'static str,
    reuse: &'static str,
    threads: usize,
    ns_per_slot_mac: f64,
}

/// One matrix method at one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProductTime {
    /// Outputs and inputs of the layer.
    pub shape: [usize; 2],
    /// `squaring`, `reducing` or `packed`.
    pub method: String,
    /// `full`: A and B; `half`: A alone.
    pub encrypted: String,
    /// Samples multiplied at once.
    pub samples: usize,
    /// Microseconds.
    pub us_per_sample: f64,
    /// Counted operations for each sample.
    pub operations: BTreeMap<String, f64>,
}

/// Every method at the paper's shapes, under the `standard` preset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatmulTimes {
    /// The ring's degree.
    pub degree: usize,
    /// One rotation, in microseconds.
    pub rotate_us: f64,
    /// The products.
    pub products: Vec<ProductTime>,
}

/// Times every method at the paper's shapes, `rounds` times, the fastest of each counting.
pub fn matmul(rounds: usize) -> Result<MatmulTimes> {
    let parameters = Parameters::preset(Preset::Standard)?;
    let bench = Bench::new(&parameters)?;
    let mut products = Vec::new();
    for _ in 0..rounds {
        products = faster(products, bench.products()?, |p| &mut p.us_per_sample);
    }
    Ok(MatmulTimes { degree: parameters.degree(), rotate_us: bench.costs.rotate * 1e6, products })
}

/// Runs the benchmark and prints it.
pub fn run(args: &BenchArgs, format: Format) -> Result<()> {
    let preset = match args.what {
        What::Words => return words::run(format),
        What::Linear { preset } => preset,
    };
    let parameters = Parameters::preset(preset)?;
    say("measuring this machine's unit costs");
    let bench = Bench::new(&parameters)?;
    let (mut kernel, mut matmul) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        say(format_args!("round {round} of {ROUNDS}: the kernel and products of {} layers", SHAPES.len()));
        kernel =
            faster(kernel, kernel_rows()?.iter().map(KernelTime::from).collect(), |k| &mut k.ns_per_slot_mac);
        matmul = faster(matmul, bench.products()?, |p| &mut p.us_per_sample);
    }
    let times = LinearTimes { kernel, matmul };
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&Document::first("secsv-bench-linear", &times))? + "\n",
        Format::Text => text(&times, &parameters, &bench.costs),
    };
    Ok(print_or_end(&text)?)
}

/// Of two measurements of each row the faster.
fn faster<R>(before: Vec<R>, mut rows: Vec<R>, time: impl Fn(&mut R) -> &mut f64) -> Vec<R> {
    for (row, mut earlier) in rows.iter_mut().zip(before) {
        *time(row) = time(row).min(*time(&mut earlier));
    }
    rows
}

/// Keys and unit costs that all products share.
struct Bench {
    parameters: Arc<Parameters>,
    key: SecretKey,
    costs: UnitCosts,
}

impl Bench {
    fn new(parameters: &Arc<Parameters>) -> Result<Self, HeError> {
        let key = SecretKey::generate(parameters, &mut Prg::new(&Seed::from_bytes([1; 32])));
        Ok(Self {
            parameters: parameters.clone(),
            key,
            costs: UnitCosts::measure(parameters, Clock::Fastest)?,
        })
    }

    /// All methods at all shapes.
    fn products(&self) -> Result<Vec<ProductTime>, HeError> {
        let mut products = Vec::new();
        for (d_out, d_in) in SHAPES {
            self.shape(LayerShape { d_out, d_in }, &mut products)?;
        }
        Ok(products)
    }

    /// All methods at one shape, each at its best batch size.
    fn shape(&self, shape: LayerShape, rows: &mut Vec<ProductTime>) -> Result<(), HeError> {
        let mut contenders = Vec::new();
        for method in [MatrixMethod::Squaring, MatrixMethod::Reducing] {
            let layout = Layout::new(&self.parameters, shape, method)?;
            contenders.push(self.half(&layout)?);
            // `compact` has no room for products of two ciphertexts.
            match self.full(&layout) {
                Err(HeError::Budget { .. }) => {}
                contender => contenders.push(contender?),
            }
        }
        let task = one_model(shape, 1 << 20);
        let layout = plan_packed(&self.parameters, task, PlannedWork::Products, &self.costs)?.layout;
        contenders.push(self.half(&layout)?);
        for contender in &mut contenders {
            contender.seconds = fastest(&mut contender.once);
        }
        rows.extend(contenders.iter().map(ProductTime::from));
        Ok(())
    }

    fn operands(&self, layout: &Layout) -> (Matrix<Field>, Matrix<Field>, Prg) {
        let mut rng = Prg::new(&Seed::from_bytes([2; 32]));
        let (field, LayerShape { d_out, d_in }) = (self.parameters.field(), layout.shape());
        let a = Matrix::uniform(field, d_out, d_in, &mut rng);
        (a, Matrix::uniform(field, d_in, layout.batch(), &mut rng), rng)
    }

    /// Encodes one batch and multiplies it with one model.
    fn half(&self, layout: &Layout) -> Result<Contender, HeError> {
        let (a, b, mut rng) = self.operands(layout);
        let evaluation = self.key.evaluation_key(&layout.rotation_steps(), &mut rng);
        let encrypted = layout.encrypt(&self.key, &a, &mut rng, &mut Operations::default())?;
        let prepared = layout.prepare(&encrypted)?;
        let mut batch = layout.empty_batch();
        let mut products = Vec::new();
        let own = layout.clone();
        let mut once = move |ops: &mut Operations| {
            own.encode_into(&b, 0, &mut batch, ops)?;
            multiply_into(&own, &[&prepared], &[&batch], Some(&evaluation), &mut products, ops)
        };
        let mut counted = Operations::default();
        once(&mut counted)?;
        let task = one_model(layout.shape(), layout.batch());
        let predicted = predict(layout, task, PlannedWork::Products, &self.costs).operations;
        if predicted != counted {
            return Err(HeError::count("predicted transforms", counted.ntt as usize, predicted.ntt as usize));
        }
        let once = move || drop(std::hint::black_box(once(&mut Operations::default())));
        Ok(Contender::new(layout, "half", counted, once))
    }

    /// Extends one encrypted batch and multiplies it with one model.
    fn full(&self, layout: &Layout) -> Result<Contender, HeError> {
        let (a, b, mut rng) = self.operands(layout);
        let mut ops = Operations::default();
        let evaluation = self.key.evaluation_key(&layout.rotation_steps(), &mut rng);
        let extended = layout.extend(&layout.encrypt(&self.key, &a, &mut rng, &mut ops)?, &mut ops)?;
        let batch = layout.encrypt_batch(&self.key, &b, 0, &mut rng, &mut ops)?;
        let mut counted = Operations::default();
        layout.multiply_full(&extended, &batch, &evaluation, &mut counted)?;
        let own = layout.clone();
        let once = move || {
            let mut ops = Operations::default();
            drop(std::hint::black_box(own.multiply_full(&extended, &batch, &evaluation, &mut ops)));
        };
        Ok(Contender::new(layout, "full", counted, once))
    }
}

/// The task of one model's products.
fn one_model(shape: LayerShape, samples: usize) -> LayerTask {
    LayerTask { shape, samples, models: 1, sums: 1, weight_bits: 0, memory: MEMORY }
}

/// One method at one shape, ready to run.
struct Contender {
    layout: Layout,
    encrypted: &'static str,
    counted: Operations,
    once: Box<dyn FnMut()>,
    seconds: f64,
}

impl Contender {
    fn new(
        layout: &Layout,
        encrypted: &'static str,
        counted: Operations,
        once: impl FnMut() + 'static,
    ) -> Self {
        Self { layout: layout.clone(), encrypted, counted, once: Box::new(once), seconds: f64::INFINITY }
    }
}

impl From<&Contender> for ProductTime {
    fn from(contender: &Contender) -> Self {
        let samples = contender.layout.batch();
        let LayerShape { d_out, d_in } = contender.layout.shape();
        let counted = contender.counted.entries();
        Self {
            shape: [d_out, d_in],
            method: contender.layout.method().name().to_owned(),
            encrypted: contender.encrypted.to_owned(),
            samples,
            us_per_sample: contender.seconds * 1e6 / samples as f64,
            operations: counted.into_iter().map(|(k, v)| (k.to_owned(), v as f64 / samples as f64)).collect(),
        }
    }
}

impl From<&KernelRow> for KernelTime {
    fn from(row: &KernelRow) -> Self {
        let name = match row.implementation {
            Implementation::Ours => "ours",
            Implementation::Portable => "portable",
            Implementation::Library => "library",
        };
        let reuse = if row.cached { "cached" } else { "streamed" };
        Self { name, reuse, threads: row.threads, ns_per_slot_mac: row.ns_per_slot_mac }
    }
}

fn text(times: &LinearTimes, parameters: &Parameters, costs: &UnitCosts) -> String {
    kernel_text(&times.kernel) + &unit_cost_text(parameters, costs) + &product_text(&times.matmul)
}

fn kernel_text(rows: &[KernelTime]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Multiply-accumulate, ns per slot of one product (both parts, 109-bit modulus)");
    let _ = writeln!(
        text,
        "{:<10} {:>7} {:>10} {:>10} {:>10} {:>14}",
        "operands", "threads", "ours", "portable", "library", "library/ours"
    );
    for group in rows.chunks(3) {
        let [ours, portable, library] = group else { continue };
        let values = [ours, portable, library].map(|k| k.ns_per_slot_mac);
        let ratio = values[2] / values[0];
        let _ = writeln!(
            text,
            "{:<10} {:>7} {:>10.2} {:>10.2} {:>10.2} {ratio:>13.2}x",
            ours.reuse, ours.threads, values[0], values[1], values[2]
        );
    }
    text
}

fn unit_cost_text(parameters: &Parameters, costs: &UnitCosts) -> String {
    let mut text = String::new();
    let micro = |seconds: f64| seconds * 1e6;
    let _ = writeln!(
        text,
        "\nUnit costs, microseconds (degree {}, {} bits)",
        parameters.degree(),
        parameters.modulus_bits()
    );
    let _ = writeln!(
        text,
        "encrypt {:.0}, prepare {:.0}, encode {:.0} (slots +{:.0}), product {:.1} (streamed {:.1}), output {:.0}, rotate {:.0}, re-randomise {:.0}, sanitise {:.0}, decrypt {:.0}, weigh {:.0}",
        micro(costs.encrypt),
        micro(costs.prepare),
        micro(costs.encode),
        micro(costs.slots),
        micro(costs.product),
        micro(costs.streamed_product),
        micro(costs.output),
        micro(costs.rotate),
        micro(costs.rerandomise),
        micro(costs.sanitise),
        micro(costs.decrypt),
        micro(costs.weigh)
    );
    text
}

fn product_text(products: &[ProductTime]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\nMatrix products, one thread, encoding included: microseconds and operations per sample"
    );
    let _ = writeln!(
        text,
        "{:<8} {:<9} {:<5} {:>8} {:>12} {:>10} {:>10} {:>9} {:>9} {:>14}",
        "shape", "method", "B", "samples", "us/sample", "ct*pt", "ct*ct", "rotate", "ntt", "vs squaring"
    );
    for product in products {
        let baseline = products
            .iter()
            .find(|p| p.shape == product.shape && p.encrypted == product.encrypted && p.method == "squaring");
        let ratio = baseline.map_or(f64::NAN, |b| b.us_per_sample / product.us_per_sample);
        let operation = |name| product.operations.get(name).copied().unwrap_or(0.0);
        let _ = writeln!(
            text,
            "{:<8} {:<9} {:<5} {:>8} {:>12.3} {:>10.4} {:>10.4} {:>9.4} {:>9.4} {ratio:>13.2}x",
            format!("{}x{}", product.shape[0], product.shape[1]),
            product.method,
            if product.encrypted == "half" { "clear" } else { "enc." },
            product.samples,
            product.us_per_sample,
            operation("ct_pt_mul"),
            operation("ct_ct_mul"),
            operation("rotate"),
            operation("ntt"),
        );
    }
    text
}

//! The kernel against its portable twin and the library's dot product, on this machine.

use std::sync::Barrier;

use fhe::bfv::{Encoding, Plaintext, dot_product_scalar};
use fhe_traits::FheEncoder;
use secsv_algebra::{Prg, Ring, Seed};

use crate::{
    Ciphertext, HeError, Operations, Packing, Parameters, Preset, SecretKey,
    clock::fastest,
    kernel::{self, Backend, CipherTiles, PlainRows},
    library::Library,
};

/// Whose multiply-accumulate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// The kernel as products use it.
    Ours,
    /// Its portable twin.
    Portable,
    /// `dot_product_scalar` of the library.
    Library,
}

/// One measurement of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelRow {
    /// Whose code.
    pub implementation: Implementation,
    /// Whether operands stay in cache (48 inputs) or stream from memory (256).
    pub cached: bool,
    /// Threads at work, each with operands of its own.
    pub threads: usize,
    /// Nanoseconds per slot of one product (both parts, whole modulus): the aggregate over the threads.
    pub ns_per_slot_mac: f64,
}

/// How often each row is measured, in turn with its rivals: the speed of a shared machine drifts.
const ROUNDS: usize = 2;

/// Measures all implementations under `compact`, in cache and streaming, on one thread and on two.
pub fn kernel_rows() -> Result<Vec<KernelRow>, HeError> {
    let mut rows = Vec::new();
    for cached in [true, false] {
        for threads in [1, 2] {
            let rivals = [Implementation::Ours, Implementation::Portable, Implementation::Library];
            rows.extend(kernel_row(&rivals, cached, threads)?);
        }
    }
    Ok(rows)
}

/// Measures implementations in turn.
fn kernel_row(
    implementations: &[Implementation],
    cached: bool,
    threads: usize,
) -> Result<Vec<KernelRow>, HeError> {
    let parameters = Parameters::preset(Preset::Compact)?;
    let inner = if cached { 48 } else { 256 };
    let mut rivals = Vec::new();
    for &implementation in implementations {
        let operands = (0..threads)
            .map(|t| Operands::new(&parameters, implementation, inner, t as u8))
            .collect::<Result<Vec<_>, _>>()?;
        let row = KernelRow { implementation, cached, threads, ns_per_slot_mac: f64::INFINITY };
        rivals.push((operands, row));
    }
    for _ in 0..ROUNDS {
        for (operands, row) in &mut rivals {
            let measured = aggregate(operands, inner * parameters.degree());
            row.ns_per_slot_mac = row.ns_per_slot_mac.min(measured);
        }
    }
    Ok(rivals.into_iter().map(|(_, row)| row).collect())
}

/// Runs all operands at once, one thread each: processor time per product, divided by the number of threads.
fn aggregate(operands: &mut [Operands], slots: usize) -> f64 {
    let (threads, barrier) = (operands.len(), Barrier::new(operands.len()));
    let seconds: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> = operands
            .iter_mut()
            .map(|operands| {
                scope.spawn(|| {
                    barrier.wait();
                    fastest(|| operands.run())
                })
            })
            .collect();
        running.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).collect()
    });
    seconds.iter().sum::<f64>() / threads as f64 / threads as f64 / slots as f64 * 1e9
}

enum Operands {
    Tiles {
        backend: Backend,
        parameters: std::sync::Arc<Parameters>,
        row: CipherTiles,
        column: PlainRows,
        product: Vec<Ciphertext>,
    },
    Library {
        ciphertexts: Vec<fhe::bfv::Ciphertext>,
        plaintexts: Vec<Plaintext>,
    },
}

impl Operands {
    fn new(
        parameters: &std::sync::Arc<Parameters>,
        implementation: Implementation,
        inner: usize,
        seed: u8,
    ) -> Result<Self, HeError> {
        let mut rng = Prg::new(&Seed::from_bytes([seed; 32]));
        let key = SecretKey::generate(parameters, &mut rng);
        let elements = |rng: &mut Prg| {
            let mut elements = vec![0; parameters.degree()];
            parameters.field().fill_uniform(rng, &mut elements);
            elements
        };
        if implementation == Implementation::Library {
            let library = Library::new(&key)?;
            let encode = |elements: Vec<u64>| {
                Plaintext::try_encode(&elements, Encoding::poly(), &library.parameters)
                    .map_err(|_| HeError::Mixed { what: "plaintext" })
            };
            let ciphertexts = (0..inner).map(|_| {
                let fresh = key.encrypt(
                    Packing::Coefficients,
                    &elements(&mut rng),
                    &mut rng,
                    &mut Operations::default(),
                )?;
                library.import(&fresh.expand(parameters))
            });
            let ciphertexts = ciphertexts.collect::<Result<_, _>>()?;
            let plaintexts = (0..inner).map(|_| encode(elements(&mut rng))).collect::<Result<_, _>>()?;
            return Ok(Self::Library { ciphertexts, plaintexts });
        }
        let (limbs, degree) = (parameters.limbs(), parameters.degree());
        let (mut row, mut column) =
            (CipherTiles::zero(inner, limbs.len(), degree), PlainRows::zero(inner, limbs.len(), degree));
        let mut points = vec![0; degree];
        for input in 0..inner {
            for (l, limb) in limbs.iter().enumerate() {
                for part in 0..2 {
                    rng.fill_uniform(limb.modulus().value(), &mut points);
                    row.store(input, part, l, &points);
                }
                rng.fill_uniform(limb.modulus().value(), column.row_mut(input, l));
            }
        }
        let backend =
            if implementation == Implementation::Ours { Backend::detect() } else { Backend::Portable };
        let product = vec![Ciphertext::zero_under(parameters)];
        Ok(Self::Tiles { backend, parameters: parameters.clone(), row, column, product })
    }

    fn run(&mut self) {
        match self {
            Self::Tiles { backend, parameters, row, column, product } => {
                let done = kernel::multiply(*backend, parameters.limbs(), &[row], &[column], product);
                std::hint::black_box(done.is_ok());
            }
            Self::Library { ciphertexts, plaintexts } => {
                std::hint::black_box(dot_product_scalar(ciphertexts.iter(), plaintexts.iter()).is_ok());
            }
        }
    }
}

//! `secsv bench words`: products of 64-bit words and streams of masks beside plain loops, the crates one would otherwise take, and
//! products of doubles, all in one run.

use std::{fmt::Write as _, num::Wrapping};

use aes::{
    Aes256,
    cipher::{KeyIvInit as _, StreamCipher as _},
};
use anyhow::Result;
use ndarray::Array2;
use secsv_algebra::{Matrix, Prg, Ring64, Seed, Stream, StreamKernel, WordKernel};
use secsv_he::clock::fastest;
use serde::Serialize;

use crate::output::{Document, Format, print_or_end, say};

/// Outputs and inputs of layers: MNIST's, AGNEWS', BANK's and the windows of a convolution among them.
const SHAPES: [(usize, usize); 5] = [(64, 256), (96, 32), (15, 300), (5, 48), (4, 49)];
/// Samples of a product.
const COLUMNS: usize = 2048;
/// Words of a stream: its bytes stay in the second cache.
const STREAM: usize = 1 << 15;
/// Calls that are timed together: one alone may be shorter than the clock's step.
const REPEATED: usize = 16;
/// How often everything is timed, all of it before anything is timed again.
const ROUNDS: usize = 3;

#[derive(Serialize)]
struct WordTimes {
    products: Vec<WordProduct>,
    streams: Vec<StreamRate>,
}

#[derive(Serialize)]
struct WordProduct {
    shape: [usize; 2],
    name: String,
    ns_per_mac: f64,
}

#[derive(Serialize)]
struct StreamRate {
    name: String,
    gb_per_s: f64,
}

/// Runs the benchmark and prints it.
pub fn run(format: Format) -> Result<()> {
    let mut times = measure()?;
    for round in 2..=ROUNDS {
        say(format_args!("round {round} of {ROUNDS}"));
        let again = measure()?;
        for (best, new) in times.products.iter_mut().zip(again.products) {
            best.ns_per_mac = best.ns_per_mac.min(new.ns_per_mac);
        }
        for (best, new) in times.streams.iter_mut().zip(again.streams) {
            best.gb_per_s = best.gb_per_s.max(new.gb_per_s);
        }
    }
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&Document::first("secsv-bench-words", &times))? + "\n",
        Format::Text => text(&times),
    };
    Ok(print_or_end(&text)?)
}

fn measure() -> Result<WordTimes> {
    let mut products = Vec::new();
    for (rows, inner) in SHAPES {
        let seed = Seed::from_bytes([5; 32]);
        let left = Matrix::seeded(Ring64, rows, inner, &seed.derive("left", 0));
        let right = Matrix::seeded(Ring64, inner, COLUMNS, &seed.derive("right", 0));
        let mut add = |name: &str, seconds: f64| {
            let ns_per_mac = seconds * 1e9 / (REPEATED * rows * inner * COLUMNS) as f64;
            products.push(WordProduct { shape: [rows, inner], name: name.to_owned(), ns_per_mac });
        };
        for kernel in WordKernel::available() {
            add(kernel.name(), repeated(|| left.product_by(kernel, &right)));
        }
        add("plain loops", repeated(|| left.multiply(&right)));
        add("ndarray", in_ndarray(&left, &right)?);
        add("f64", in_doubles(&left, &right));
    }
    Ok(WordTimes { products, streams: streams() })
}

/// Seconds of several calls, the fastest of all tries.
fn repeated<T>(mut work: impl FnMut() -> T) -> f64 {
    fastest(|| (0..REPEATED).for_each(|_| drop(std::hint::black_box(work()))))
}

/// Seconds of the product by `ndarray`, whose words wrap.
fn in_ndarray(left: &Matrix<Ring64>, right: &Matrix<Ring64>) -> Result<f64> {
    let array = |matrix: &Matrix<Ring64>| {
        Array2::from_shape_vec(matrix.shape(), matrix.elements().iter().map(|&word| Wrapping(word)).collect())
    };
    let (left, right) = (array(left)?, array(right)?);
    Ok(repeated(|| left.dot(&right)))
}

/// Seconds of the product of as many doubles by `matrixmultiply`, which `ndarray` takes for them.
fn in_doubles(left: &Matrix<Ring64>, right: &Matrix<Ring64>) -> f64 {
    let array = |matrix: &Matrix<Ring64>| {
        Array2::from_shape_fn(matrix.shape(), |(row, column)| (matrix.at(row, column) >> 44) as f64)
    };
    let (left, right) = (array(left), array(right));
    repeated(|| left.dot(&right))
}

fn streams() -> Vec<StreamRate> {
    let (seed, mut words) = (Seed::from_bytes([6; 32]), vec![0u64; STREAM]);
    let mut rates = Vec::new();
    let mut add = |name: String, seconds: f64| {
        rates.push(StreamRate { name, gb_per_s: (8 * REPEATED * STREAM) as f64 / seconds / 1e9 });
    };
    for kernel in StreamKernel::available() {
        let stream = Stream::by(kernel, &seed);
        add(
            format!("AES-256, {}", kernel.name()),
            fastest(|| (0..REPEATED).for_each(|_| stream.fill_words(0, &mut words))),
        );
    }
    add(
        "ChaCha20, as seeds of fields".to_owned(),
        fastest(|| (0..REPEATED).for_each(|_| Prg::new(&seed).fill_words(&mut words))),
    );
    let mut bytes = vec![0u8; 8 * STREAM];
    let mut ctr = ctr::Ctr64LE::<Aes256>::new(&[6; 32].into(), &[0; 16].into());
    add(
        "AES-256, crates aes and ctr".to_owned(),
        fastest(|| (0..REPEATED).for_each(|_| ctr.apply_keystream(&mut bytes))),
    );
    rates
}

fn text(times: &WordTimes) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Products modulo 2^64, ns per multiply-accumulate, one thread, {COLUMNS} columns");
    let names: Vec<&str> = times
        .products
        .iter()
        .filter(|row| row.shape == times.products[0].shape)
        .map(|row| &*row.name)
        .collect();
    let _ = write!(text, "{:<10}", "shape");
    names.iter().for_each(|name| text.push_str(&format!(" {name:>12}")));
    let _ = writeln!(text, " {:>16}", "plain / fastest");
    for rows in times.products.chunks(names.len()) {
        let _ = write!(text, "{:<10}", format!("{}x{}", rows[0].shape[0], rows[0].shape[1]));
        rows.iter().for_each(|row| text.push_str(&format!(" {:>12.3}", row.ns_per_mac)));
        let plain = rows.iter().find(|row| row.name == "plain loops").map_or(0.0, |row| row.ns_per_mac);
        let _ = writeln!(text, " {:>15.1}x", plain / rows[0].ns_per_mac);
    }
    let _ = writeln!(text, "\nStreams of masks, one thread");
    for StreamRate { name, gb_per_s } in &times.streams {
        let _ = writeln!(text, "{name:<30} {gb_per_s:>7.2} GB/s");
    }
    text
}

//! Normalisation, sums and other layers between products.

use crate::{BatchNorm, Embedding, LayerNorm, Pool};

/// Each channel less its mean, over the root of its variance, times weight plus bias.
pub(super) fn batch_norm(norm: &BatchNorm, parameters: &[f64], values: &mut [f64]) {
    let channels = norm.channels;
    let (means, rest) = parameters.split_at(channels);
    let (variances, rest) = rest.split_at(channels);
    let (weights, biases) = rest.split_at(if norm.weight.is_some() { channels } else { 0 });
    for sample in values.chunks_exact_mut((channels * norm.positions).max(1)) {
        for (channel, numbers) in sample.chunks_exact_mut(norm.positions.max(1)).enumerate() {
            let deviation = (variances[channel] + norm.epsilon).sqrt();
            let weight = weights.get(channel).copied().unwrap_or(1.0);
            let bias = biases.get(channel).copied().unwrap_or(0.0);
            numbers.iter_mut().for_each(|v| *v = (*v - means[channel]) / deviation * weight + bias);
        }
    }
}

/// Each run of numbers less its mean, over the root of its variance, times weight plus bias.
pub(super) fn layer_norm(norm: &LayerNorm, parameters: &[f64], values: &mut [f64]) {
    let width = norm.width;
    let (weights, biases) = parameters.split_at(if norm.weight.is_some() { width } else { 0 });
    for run in values.chunks_exact_mut(width.max(1)) {
        let mean = run.iter().sum::<f64>() / width as f64;
        let variance = run.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
        let deviation = (variance + norm.epsilon).sqrt();
        for (place, v) in run.iter_mut().enumerate() {
            let weight = weights.get(place).copied().unwrap_or(1.0);
            *v = (*v - mean) / deviation * weight + biases.get(place).copied().unwrap_or(0.0);
        }
    }
}

/// Rows of the table. Rows beyond its end, which no checked test set asks for, are its last.
pub(super) fn embed(embedding: &Embedding, table: &[f64], rows: &[f64], values: &mut Vec<f64>) {
    values.clear();
    for &row in rows {
        let row = (row.max(0.0) as usize).min(embedding.rows.saturating_sub(1));
        values.extend_from_slice(&table[row * embedding.width..][..embedding.width]);
    }
}

/// The windows of every sample, each made one number.
pub fn pool(pool: &Pool, is_max: bool, values: &[f64], pooled: &mut Vec<f64>) {
    let [_, height, width] = pool.input;
    let [_, rows, columns] = pool.output;
    let size = (pool.size[0] * pool.size[1]) as f64;
    pooled.clear();
    for channel in values.chunks_exact((height * width).max(1)) {
        for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
            let lines = inside(row * pool.stride[0], pool.size[0], pool.padding[0], height);
            let places = inside(column * pool.stride[1], pool.size[1], pool.padding[1], width);
            let numbers = lines.flat_map(|y| channel[y * width..][places.clone()].iter().copied());
            pooled.push(match is_max {
                true => numbers.fold(f64::NEG_INFINITY, f64::max),
                false => numbers.sum::<f64>() / size,
            });
        }
    }
}

/// The part of a window that is no padding.
fn inside(begin: usize, size: usize, padding: usize, length: usize) -> std::ops::Range<usize> {
    begin.saturating_sub(padding)..(begin + size).saturating_sub(padding).min(length)
}

/// Columns of every sample become rows.
pub fn transpose(rows: usize, columns: usize, values: &[f64], transposed: &mut Vec<f64>) {
    transposed.clear();
    for sample in values.chunks_exact((rows * columns).max(1)) {
        (0..columns).for_each(|column| transposed.extend(sample.iter().skip(column).step_by(columns)));
    }
}

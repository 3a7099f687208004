//! Images from the outputs of a known first layer: windows overlap, so every round has many equations in few
//! pixels.

use nalgebra::DMatrix;

use crate::{equations::System, linear::least_squares};

/// Regularisation that keeps small directions from drowning in rounding, as a fraction of the largest.
const RIDGE: f64 = 1e-11;

/// The pixels of each sample (a column each) that fit the equations best; where equations are missing, those
/// nearest to the mean of the attacker's own samples.
pub fn rebuild(system: &System, own: &[f32]) -> Option<DMatrix<f64>> {
    let pixels = system.matrix.ncols();
    let count = (own.len() / pixels.max(1)).max(1) as f64;
    let mut mean = DMatrix::zeros(pixels, 1);
    for sample in own.chunks_exact(pixels.max(1)) {
        sample.iter().enumerate().for_each(|(i, &x)| mean[i] += f64::from(x) / count);
    }
    let usual = &system.matrix * &mean;
    let mut rest = system.values.clone();
    rest.column_iter_mut().for_each(|mut column| column -= &usual);
    let mut found = least_squares(&system.matrix, &rest, RIDGE)?;
    found.column_iter_mut().for_each(|mut column| column += &mean);
    Some(found)
}

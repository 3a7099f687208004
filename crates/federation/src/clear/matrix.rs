//! The one matrix product everything rests on.

use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};

/// `out = x w^T + bias` in every row: `x` has rows of `inputs` numbers, `w` has a row of them for each
/// output.
pub(super) fn affine(x: &[f64], inputs: usize, w: &[f64], bias: Option<&[f64]>, out: &mut Vec<f64>) {
    let (rows, outputs) = (x.len() / inputs, w.len() / inputs);
    repeat(bias, outputs, rows, out);
    let beta = if bias.is_some() { 1.0 } else { 0.0 };
    general_mat_mul(
        1.0,
        &view(x, rows, inputs),
        &view(w, outputs, inputs).t(),
        beta,
        &mut view_mut(out, rows, outputs),
    );
}

/// Rows that all are the bias, or zeros.
pub(super) fn repeat(bias: Option<&[f64]>, outputs: usize, rows: usize, out: &mut Vec<f64>) {
    out.clear();
    match bias {
        Some(bias) => (0..rows).for_each(|_| out.extend_from_slice(bias)),
        None => out.resize(rows * outputs, 0.0),
    }
}

fn view(values: &[f64], rows: usize, columns: usize) -> ArrayView2<'_, f64> {
    ArrayView2::from_shape((rows, columns), values).expect("sizes come from the checked architecture")
}

fn view_mut(values: &mut [f64], rows: usize, columns: usize) -> ArrayViewMut2<'_, f64> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("sizes come from the checked architecture")
}

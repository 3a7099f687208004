//! The matrix product of all layers, with its gradient.
//!
//! The machine-learning library's own product asks the operating system for its processors in every call and
//! hands small products to a thread pool; with many clients training at once on matrices of 64 rows that
//! costs more than the arithmetic. This one runs on the calling thread, so its sums do not depend on how many
//! processors there are.

use candle_core::{CpuStorage, CustomOp2, Error, Layout, Result, Shape, Tensor};
use ndarray::{ArrayView2, ShapeBuilder};

/// `inputs weights^T` for inputs `[m, k]` and weights `[n, k]`, the layout that weights have in files.
pub(crate) fn times_transposed(inputs: &Tensor, weights: &Tensor) -> Result<Tensor> {
    inputs.apply_op2(weights, MatrixProduct { first_transposed: false, second_transposed: true })
}

/// The product of two matrices, each as it is or transposed.
struct MatrixProduct {
    first_transposed: bool,
    second_transposed: bool,
}

impl CustomOp2 for MatrixProduct {
    fn name(&self) -> &'static str {
        "product"
    }

    fn cpu_fwd(
        &self,
        first: &CpuStorage,
        first_layout: &Layout,
        second: &CpuStorage,
        second_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let first = matrix(first, first_layout, self.first_transposed)?;
        let second = matrix(second, second_layout, self.second_transposed)?;
        if first.ncols() != second.nrows() {
            return Err(Error::ShapeMismatchBinaryOp {
                lhs: first_layout.shape().clone(),
                rhs: second_layout.shape().clone(),
                op: "product",
            });
        }
        let product = first.dot(&second);
        let shape = Shape::from(product.dim());
        // Whatever layout the multiplication chose, files and the library read row by row.
        let rows = if product.is_standard_layout() {
            product.into_raw_vec_and_offset().0
        } else {
            product.iter().copied().collect()
        };
        Ok((CpuStorage::F32(rows), shape))
    }

    /// For y = x w^T: the gradient of x is g w, that of w is g^T x. Data need none.
    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        g: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        if self.first_transposed || !self.second_transposed {
            return Err(Error::BackwardNotSupported { op: self.name() });
        }
        let plain = Self { first_transposed: false, second_transposed: false };
        let transposed = Self { first_transposed: true, second_transposed: false };
        let wanted = |tensor: &Tensor| tensor.track_op() || tensor.is_variable();
        let of_x = wanted(x).then(|| g.apply_op2_no_bwd(w, &plain)).transpose()?;
        let of_w = wanted(w).then(|| g.apply_op2_no_bwd(x, &transposed)).transpose()?;
        Ok((of_x, of_w))
    }
}

/// A view of a matrix in any layout that the library may give it.
fn matrix<'a>(storage: &'a CpuStorage, layout: &Layout, transposed: bool) -> Result<ArrayView2<'a, f32>> {
    let (rows, columns) = layout.shape().dims2()?;
    let &[down, right] = layout.stride() else {
        return Err(Error::UnexpectedNumberOfDims {
            expected: 2,
            got: layout.stride().len(),
            shape: layout.shape().clone(),
        });
    };
    let values = &storage.as_slice::<f32>()?[layout.start_offset()..];
    let view = ArrayView2::from_shape((rows, columns).strides((down, right)), values).map_err(Error::wrap)?;
    Ok(if transposed { view.reversed_axes() } else { view })
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    /// The library's own product is the oracle, for values and for gradients.
    #[test]
    fn values_and_gradients_are_those_of_the_library() {
        let random = |seed: usize, shape: (usize, usize)| {
            let values: Vec<f32> =
                (0..shape.0 * shape.1).map(|i| ((i * 37 + seed) % 19) as f32 / 7.0 - 1.2).collect();
            Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
        };
        let whole = random(3, (9, 7));
        let (x, w) = (random(1, (5, 7)), whole.as_tensor().narrow(0, 3, 4).unwrap());
        let ours = times_transposed(&x, &w).unwrap();
        let theirs = x.matmul(&w.t().unwrap()).unwrap();
        let close = |a: &Tensor, b: &Tensor| {
            let difference = (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(difference < 1e-5, "{difference}");
        };
        close(&ours, &theirs);
        let ours = ours.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let theirs = theirs.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        close(ours.get(&x).unwrap(), theirs.get(&x).unwrap());
        close(ours.get(&whole).unwrap(), theirs.get(&whole).unwrap());
        assert!(times_transposed(&x, &random(1, (4, 6))).is_err());
    }
}

//! Coefficient packing (not in the paper; the idea is Cheetah's, USENIX Security 2022).
//!
//! A block of r rows and w columns becomes the polynomial with A[j,o] at X^(j w s + o), a slice of w features
//! of s samples the one with B[o,k] at X^(k w + w-1-o). In their product the coefficient j w s + k w + w-1 is
//! the inner product of row j and sample k over the block; the others are cross terms.

use super::{LayerShape, Placement};
use crate::{HeError, Packing};

/// Rows r and columns w of a block and samples s of a group: r w s is at most the degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// Rows of a block: fewer uploads and outputs, more transforms.
    pub rows: usize,
    /// Columns of a block: fewer uploads, more outputs.
    pub columns: usize,
    /// Samples of a group.
    pub samples: usize,
}

#[derive(Clone)]
pub(super) struct PackedPlacement {
    shape: LayerShape,
    block: BlockShape,
}

impl PackedPlacement {
    /// Samples fill the first w s coefficients.
    pub(super) fn sample_extent(&self) -> usize {
        self.block.columns * self.block.samples
    }

    pub(super) fn new(shape: LayerShape, block: BlockShape, degree: usize) -> Result<Self, HeError> {
        let BlockShape { rows: r, columns: w, samples: s } = block;
        let size = r.checked_mul(w).and_then(|rw| rw.checked_mul(s));
        match size {
            Some(1..) if size <= Some(degree) => Ok(Self { shape, block }),
            _ => Err(HeError::BlockShape { rows: r, columns: w, samples: s, degree }),
        }
    }
}

impl PackedPlacement {
    /// Rows of AB in one output.
    pub(super) fn height(&self, row: usize) -> usize {
        self.block.rows.min(self.shape.d_out.saturating_sub(row * self.block.rows))
    }

    /// Places samples as [`Placement::sample`] does, for rows of B that hold the samples of one batch.
    pub(super) fn place_rows<'a>(&self, input: usize, out: &mut [u64], row: impl Fn(usize) -> &'a [u64]) {
        let BlockShape { columns: w, .. } = self.block;
        for o in 0..w.min(self.shape.d_in - input * w) {
            for (chunk, &x) in out.chunks_exact_mut(w).zip(row(input * w + o)) {
                chunk[w - 1 - o] = x;
            }
        }
    }
}

impl Placement for PackedPlacement {
    fn packing(&self) -> Packing {
        Packing::Coefficients
    }

    fn batch(&self) -> usize {
        self.block.samples
    }

    fn rows(&self) -> usize {
        self.shape.d_out.div_ceil(self.block.rows)
    }

    fn inner(&self, _row: usize) -> usize {
        self.shape.d_in.div_ceil(self.block.columns)
    }

    fn weight(&self, row: usize, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        let BlockShape { rows: r, columns: w, samples: s } = self.block;
        for j in 0..self.height(row) {
            for o in 0..w.min(self.shape.d_in - input * w) {
                place(j * w * s + o, row * r + j, input * w + o);
            }
        }
    }

    fn sample(&self, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        let BlockShape { columns: w, samples: s, .. } = self.block;
        for o in 0..w.min(self.shape.d_in - input * w) {
            for k in 0..s {
                place(k * w + w - 1 - o, input * w + o, k);
            }
        }
    }

    fn output(&self, row: usize, mut place: impl FnMut(usize, usize, usize)) {
        let BlockShape { rows: r, columns: w, samples: s } = self.block;
        for j in 0..self.height(row) {
            for k in 0..s {
                place(j * w * s + k * w + w - 1, row * r + j, k);
            }
        }
    }
}

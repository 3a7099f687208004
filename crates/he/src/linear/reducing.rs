//! Matrix Reducing (paper, Algorithm "Matrix Reducing"): d_in entrywise products of d_out x m matrices, no
//! rotation. All n slots are used: m = floor(n / d_out).

use super::{LayerShape, Placement};
use crate::{HeError, Packing};

#[derive(Clone)]
pub(super) struct Reducing {
    shape: LayerShape,
    /// The paper's m.
    samples: usize,
}

impl Reducing {
    pub(super) fn new(shape: LayerShape, degree: usize) -> Result<Self, HeError> {
        if shape.d_out > degree {
            let found = (shape.d_out, shape.d_in);
            return Err(HeError::Shape {
                what: "layer for Matrix Reducing",
                expected: (degree, shape.d_in),
                found,
            });
        }
        Ok(Self { shape, samples: degree / shape.d_out })
    }

    /// Slot j m + k of matrix number `input` meets feature j + k + input: sigma, tau, xi and psi of the paper
    /// at once, copies of A side by side included.
    fn each(&self, input: usize, mut place: impl FnMut(usize, usize, usize, usize)) {
        for j in 0..self.shape.d_out {
            let mut feature = (j + input) % self.shape.d_in;
            for k in 0..self.samples {
                place(j * self.samples + k, j, feature, k);
                feature += 1;
                if feature == self.shape.d_in {
                    feature = 0;
                }
            }
        }
    }
}

impl Placement for Reducing {
    fn packing(&self) -> Packing {
        Packing::Slots
    }

    fn batch(&self) -> usize {
        self.samples
    }

    fn rows(&self) -> usize {
        1
    }

    fn inner(&self, _row: usize) -> usize {
        self.shape.d_in
    }

    fn weight(&self, _row: usize, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        self.each(input, |slot, j, feature, _| place(slot, j, feature));
    }

    fn sample(&self, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        self.each(input, |slot, _, feature, k| place(slot, feature, k));
    }

    fn output(&self, _row: usize, mut place: impl FnMut(usize, usize, usize)) {
        for j in 0..self.shape.d_out {
            for k in 0..self.samples {
                place(j * self.samples + k, j, k);
            }
        }
    }
}

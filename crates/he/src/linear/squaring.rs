//! Matrix Squaring (paper, section "Matrix Squaring"): E2DM on square blocks of side at most
//! floor(sqrt(n/2)), because rotations act within the two rows of n/2 slots. Both rows are used, each with
//! its own samples.

use super::{Fold, LayerShape, Placement};
use crate::{EvaluationKey, HeError, Operations, Packing, Parameters, kernel::Ciphertext};

#[derive(Clone)]
pub(super) struct Squaring {
    shape: LayerShape,
    /// Side of a block, and samples per slot row (the paper's m).
    side: usize,
    /// Slots of one row.
    half: usize,
}

impl Squaring {
    pub(super) fn new(shape: LayerShape, degree: usize) -> Self {
        let side = shape.d_in.min((degree / 2).isqrt());
        Self { shape, side, half: degree / 2 }
    }

    /// Blocks along d_in (the paper's K).
    fn columns(&self) -> usize {
        self.shape.d_in.div_ceil(self.side)
    }

    /// Rows of A in one block row, before padding.
    fn height(&self, row: usize) -> usize {
        self.side.min(self.shape.d_out - row * self.side)
    }

    /// The same padded to a divisor of the side, so that copies of the block fill the square.
    fn padded_height(&self, row: usize) -> usize {
        (self.height(row)..=self.side).find(|h| self.side.is_multiple_of(*h)).unwrap_or(self.side)
    }

    /// Each slot of both slot rows: position, row and feature within the block, column within the batch.
    /// Input number o K + k is shift o of block k, so that rows with fewer shifts use a prefix of a batch.
    fn each(&self, input: usize, mut place: impl FnMut(usize, usize, usize, usize)) {
        let (shift, block) = (input / self.columns(), input % self.columns());
        for slot_row in 0..2 {
            for j in 0..self.side {
                for k in 0..self.side {
                    let feature = block * self.side + (j + k + shift) % self.side;
                    if feature < self.shape.d_in {
                        place(slot_row * self.half + j * self.side + k, j, feature, slot_row * self.side + k);
                    }
                }
            }
        }
    }
}

impl Placement for Squaring {
    fn packing(&self) -> Packing {
        Packing::Slots
    }

    fn batch(&self) -> usize {
        2 * self.side
    }

    fn rows(&self) -> usize {
        self.shape.d_out.div_ceil(self.side)
    }

    fn inner(&self, row: usize) -> usize {
        self.padded_height(row) * self.columns()
    }

    fn weight(&self, row: usize, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        let (height, padded) = (self.height(row), self.padded_height(row));
        self.each(input, |slot, j, feature, _| {
            if j % padded < height {
                place(slot, row * self.side + j % padded, feature);
            }
        });
    }

    fn sample(&self, input: usize, mut place: impl FnMut(usize, usize, usize)) {
        self.each(input, |slot, _, feature, column| place(slot, feature, column));
    }

    fn output(&self, row: usize, mut place: impl FnMut(usize, usize, usize)) {
        for slot_row in 0..2 {
            for j in 0..self.height(row) {
                for k in 0..self.side {
                    let slot = slot_row * self.half + j * self.side + k;
                    place(slot, row * self.side + j, slot_row * self.side + k);
                }
            }
        }
    }

    fn fold(&self, row: usize) -> Fold {
        let padded = self.padded_height(row);
        Fold { copies: self.side / padded, step: padded * self.side }
    }
}

/// The rotations of a fold by repeated doubling, in order: sums of 1, 2, 4, ... copies, and one rotation for
/// each further one bit of the number of copies.
pub(super) fn rotations(fold: Fold) -> Vec<usize> {
    let (mut steps, mut covered) = (Vec::new(), 0);
    for bit in 0..usize::BITS - fold.copies.leading_zeros() {
        if fold.copies >> bit & 1 == 1 {
            if covered != 0 {
                steps.push(covered * fold.step);
            }
            covered += 1 << bit;
        }
        if fold.copies >> (bit + 1) != 0 {
            steps.push(fold.step << bit);
        }
    }
    steps
}

/// Adds up the copies of H that lie below each other (paper, "Rotation and extraction").
pub(super) fn apply(
    parameters: &Parameters,
    key: Option<&EvaluationKey>,
    product: Ciphertext,
    fold: Fold,
    ops: &mut Operations,
) -> Result<Ciphertext, HeError> {
    if fold.copies == 1 {
        return Ok(product);
    }
    let key = key.ok_or(HeError::MissingRotationKey { step: fold.step })?;
    let (mut doubled, mut total, mut covered) = (product, None::<Ciphertext>, 0);
    for bit in 0..usize::BITS - fold.copies.leading_zeros() {
        if fold.copies >> bit & 1 == 1 {
            total = Some(match total {
                None => doubled.clone(),
                Some(sum) => {
                    let mut rotated = key.rotate(parameters, &doubled, covered * fold.step, ops)?;
                    rotated.add_assign(parameters.limbs(), &sum)?;
                    rotated
                }
            });
            covered += 1 << bit;
        }
        if fold.copies >> (bit + 1) != 0 {
            let rotated = key.rotate(parameters, &doubled, fold.step << bit, ops)?;
            doubled.add_assign(parameters.limbs(), &rotated)?;
        }
    }
    Ok(total.unwrap_or(doubled))
}

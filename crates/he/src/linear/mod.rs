//! Encrypted matrix times shared or clear matrix: three methods behind one interface.
//!
//! A [`Layout`] says where the entries of A (weights, d_out x d_in) and B (samples, d_in x m) go in plaintext
//! polynomials, and where the entries of AB come out. What is encrypted, multiplied, accumulated and
//! sanitised is the same for all methods: rows of ciphertexts times columns of plaintexts ("half", B in the
//! clear or shared) or of ciphertexts ("full").

/// Calls the method of whichever placement it is, so that its loops are compiled for each.
macro_rules! each {
    ($self:ident, $placement:ident => $call:expr) => {
        match &$self.placement {
            AnyPlacement::Squaring($placement) => $call,
            AnyPlacement::Reducing($placement) => $call,
            AnyPlacement::Packed($placement) => $call,
        }
    };
}

mod bias;
mod counted;
mod full;
mod half;
mod packed;
mod reducing;
mod squaring;
mod sums;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use secsv_algebra::{Field, Matrix};

pub use bias::EncryptedBias;
pub use full::{EncryptedBatch, ExtendedMatrix};
pub use half::{EncodedBatch, EncryptedMatrix, PreparedMatrix, multiply, multiply_into, multiply_samples};
pub use packed::BlockShape;
pub use sums::MatrixTerms;

use crate::{HeError, Packing, Parameters, flood::NoiseBound};
use {packed::PackedPlacement, reducing::Reducing, squaring::Squaring};

/// Outputs and inputs of a linear layer: the shape of its weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerShape {
    /// Rows of the weight matrix.
    pub d_out: usize,
    /// Columns of the weight matrix.
    pub d_in: usize,
}

/// How matrices are laid out in ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixMethod {
    /// E2DM with the paper's extension by splitting.
    Squaring,
    /// The paper's Matrix Reducing.
    Reducing,
    /// Coefficient packing: no rotation, no slot transform.
    Packed(BlockShape),
}

impl MatrixMethod {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Squaring => "squaring",
            Self::Reducing => "reducing",
            Self::Packed(_) => "packed",
        }
    }
}

/// Where entries go: implemented once per method.
pub(crate) trait Placement {
    /// Slots or coefficients.
    fn packing(&self) -> Packing;
    /// Samples that share one batch of plaintexts.
    fn batch(&self) -> usize;
    /// Output ciphertexts per batch.
    fn rows(&self) -> usize;
    /// Products summed in one output ciphertext; the plaintexts of a row are as many from the beginning of a
    /// batch.
    fn inner(&self, row: usize) -> usize;
    /// The entry of A at each position of one weight polynomial.
    fn weight(&self, row: usize, input: usize, place: impl FnMut(usize, usize, usize));
    /// The entry of B at each position of one sample polynomial, the column counted within the batch.
    fn sample(&self, input: usize, place: impl FnMut(usize, usize, usize));
    /// The entry of AB that comes out at each position of one output, the column counted within the batch.
    fn output(&self, row: usize, place: impl FnMut(usize, usize, usize));
    /// How often the slots of an output are rotated and added, and by which step.
    fn fold(&self, _row: usize) -> Fold {
        Fold { copies: 1, step: 0 }
    }
}

/// The three placements.
#[derive(Clone)]
enum AnyPlacement {
    Squaring(Squaring),
    Reducing(Reducing),
    Packed(PackedPlacement),
}

/// Sum over i below `copies` of the slots rotated by `i * step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub copies: usize,
    pub step: usize,
}

/// One method for one layer under one set of parameters, checked to fit.
#[derive(Clone)]
pub struct Layout {
    parameters: Arc<Parameters>,
    shape: LayerShape,
    method: MatrixMethod,
    placement: AnyPlacement,
    digest: u64,
}

impl Layout {
    /// Checks that the method holds the layer.
    pub fn new(
        parameters: &Arc<Parameters>,
        shape: LayerShape,
        method: MatrixMethod,
    ) -> Result<Self, HeError> {
        if shape.d_out == 0 || shape.d_in == 0 {
            return Err(HeError::Shape { what: "layer", expected: (1, 1), found: (shape.d_out, shape.d_in) });
        }
        let degree = parameters.degree();
        let placement = match method {
            MatrixMethod::Squaring => AnyPlacement::Squaring(Squaring::new(shape, degree)),
            MatrixMethod::Reducing => AnyPlacement::Reducing(Reducing::new(shape, degree)?),
            MatrixMethod::Packed(block) => AnyPlacement::Packed(PackedPlacement::new(shape, block, degree)?),
        };
        let digest = digest(parameters, shape, method);
        Ok(Self { parameters: parameters.clone(), shape, method, placement, digest })
    }

    /// The layer's shape.
    pub fn shape(&self) -> LayerShape {
        self.shape
    }

    /// The method.
    pub fn method(&self) -> MatrixMethod {
        self.method
    }

    /// The parameters.
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// A fingerprint of parameters, shape, method and packing: matrices and batches made for another layout
    /// are refused by it.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn check_made_for(&self, digest: u64, what: &'static str) -> Result<(), HeError> {
        if digest == self.digest { Ok(()) } else { Err(HeError::Mixed { what }) }
    }

    fn check_row(&self, row: usize) -> Result<(), HeError> {
        if row < self.rows() { Ok(()) } else { Err(HeError::count("rows", self.rows(), row)) }
    }

    /// Samples in one batch.
    pub fn batch(&self) -> usize {
        each!(self, p => p.batch())
    }

    /// Output ciphertexts per model and batch.
    pub fn rows(&self) -> usize {
        each!(self, p => p.rows())
    }

    /// Plaintexts per batch.
    pub fn inner(&self) -> usize {
        (0..self.rows()).map(|r| self.row_inner(r)).max().unwrap_or(0)
    }

    /// Products summed in one output.
    fn row_inner(&self, row: usize) -> usize {
        each!(self, p => p.inner(row))
    }

    /// The fold of one output.
    fn fold(&self, row: usize) -> Fold {
        each!(self, p => p.fold(row))
    }

    /// Ciphertexts of one encrypted matrix, and products per model and batch.
    pub fn weight_ciphertexts(&self) -> usize {
        (0..self.rows()).map(|r| self.row_inner(r)).sum()
    }

    /// Batches that this many samples fill.
    pub fn batches(&self, samples: usize) -> usize {
        samples.div_ceil(self.batch())
    }

    /// Slots or coefficients.
    pub fn packing(&self) -> Packing {
        each!(self, p => p.packing())
    }

    /// Rotations that one batch of one model takes.
    pub fn rotations(&self) -> usize {
        (0..self.rows()).map(|r| squaring::rotations(self.fold(r)).len()).sum()
    }

    /// Steps that need a rotation key.
    pub fn rotation_steps(&self) -> Vec<usize> {
        let all = (0..self.rows()).flat_map(|r| squaring::rotations(self.fold(r)));
        let steps: std::collections::BTreeSet<usize> = all.collect();
        steps.into_iter().collect()
    }

    /// Bytes of one model's weights, ready for half products.
    pub fn prepared_bytes(&self) -> usize {
        self.weight_ciphertexts() * 2 * self.parameters.words() * 8
    }

    /// Memory of one encoded batch.
    pub fn encoded_bytes(&self) -> usize {
        self.inner() * self.parameters.words() * 8
    }

    /// The noise of one server's half product, before weights and the other server's half are added.
    pub fn half_noise(&self) -> NoiseBound {
        self.after_fold(NoiseBound::half_product(&self.parameters, self.inner()))
    }

    /// The noise of a full product, before weights.
    pub fn full_noise(&self) -> NoiseBound {
        self.after_fold(NoiseBound::full_product(&self.parameters, self.inner()))
    }

    fn after_fold(&self, product: NoiseBound) -> NoiseBound {
        let copies = (0..self.rows()).map(|r| self.fold(r).copies).max().unwrap_or(1);
        if copies > 1 { product.folded(&self.parameters, copies) } else { product }
    }

    /// Positions of one output that hold entries of AB for the wanted columns of a batch: everything else in
    /// a reply must be drowned.
    pub fn planned(&self, row: usize, wanted: impl Fn(usize) -> bool) -> Result<Vec<bool>, HeError> {
        self.check_row(row)?;
        let mut planned = vec![false; self.parameters.degree()];
        each!(self, p => p.output(row, |position, _, column| planned[position] = wanted(column)));
        Ok(planned)
    }

    /// Coefficients that a reply with output row `row` carries of its first part where `columns` columns are
    /// wanted.
    pub fn carried(&self, row: usize, columns: usize) -> usize {
        match &self.placement {
            AnyPlacement::Packed(packed) => packed.height(row) * columns,
            AnyPlacement::Squaring(_) | AnyPlacement::Reducing(_) => self.parameters.degree(),
        }
    }

    /// Writes the entries of AB found in one decrypted output into `product`, batch by batch.
    pub fn read(
        &self,
        row: usize,
        batch: usize,
        elements: &[u64],
        product: &mut Matrix<Field>,
    ) -> Result<(), HeError> {
        self.check_row(row)?;
        let found = elements.len();
        if found != self.parameters.degree() {
            return Err(HeError::count("decrypted positions", self.parameters.degree(), found));
        }
        if product.rows() != self.shape.d_out || product.ring() != self.parameters.field() {
            let expected = (self.shape.d_out, product.columns());
            return Err(HeError::Shape { what: "product", expected, found: product.shape() });
        }
        let first = batch * self.batch();
        each!(self, p => p.output(row, |position, j, column| {
            if first + column < product.columns() {
                product.set(j, first + column, elements[position]);
            }
        }));
        Ok(())
    }

    fn check_weights(&self, a: &Matrix<Field>) -> Result<(), HeError> {
        let expected = (self.shape.d_out, self.shape.d_in);
        self.check(a, "weight matrix", expected)
    }

    fn check_samples(&self, b: &Matrix<Field>) -> Result<(), HeError> {
        self.check(b, "sample matrix", (self.shape.d_in, b.columns()))
    }

    fn check(&self, m: &Matrix<Field>, what: &'static str, expected: (usize, usize)) -> Result<(), HeError> {
        if m.ring() != self.parameters.field() {
            return Err(HeError::Mixed { what });
        }
        if m.shape() != expected {
            return Err(HeError::Shape { what, expected, found: m.shape() });
        }
        Ok(())
    }

    /// One weight polynomial, in the packing's order.
    fn place_weights(&self, a: &Matrix<Field>, row: usize, input: usize, out: &mut [u64]) {
        out.fill(0);
        each!(self, p => p.weight(row, input, |position, j, o| out[position] = a.at(j, o)));
    }

    /// Coefficients of a sample polynomial from here on are zero.
    fn sample_extent(&self) -> usize {
        match &self.placement {
            AnyPlacement::Packed(packed) => packed.sample_extent(),
            AnyPlacement::Squaring(_) | AnyPlacement::Reducing(_) => self.parameters.degree(),
        }
    }

    /// One sample polynomial of one batch, in the packing's order; samples past the last are zero.
    fn place_samples(&self, b: &Matrix<Field>, batch: usize, input: usize, out: &mut [u64]) {
        // Beyond the extent nothing is ever placed.
        out[..self.sample_extent()].fill(0);
        let (first, columns) = (batch * self.batch(), b.columns());
        if let AnyPlacement::Packed(packed) = &self.placement {
            // The hot one: whole rows of B at a time.
            packed.place_rows(input, out, |o| &b.row(o)[first..columns.min(first + packed.batch())]);
            return;
        }
        each!(self, p => p.sample(input, |position, o, column| {
            if first + column < columns {
                out[position] = b.at(o, first + column);
            }
        }));
    }
}

fn digest(parameters: &Parameters, shape: LayerShape, method: MatrixMethod) -> u64 {
    let block = if let MatrixMethod::Packed(block) = method {
        block
    } else {
        BlockShape { rows: 0, columns: 0, samples: 0 }
    };
    let mut hash = blake3::Hasher::new();
    hash.update(b"secsv layout, format 1").update(&parameters.digest().to_le_bytes());
    hash.update(method.name().as_bytes());
    for number in [shape.d_out, shape.d_in, block.rows, block.columns, block.samples] {
        hash.update(&(number as u64).to_le_bytes());
    }
    u64::from_le_bytes(hash.finalize().as_bytes()[..8].try_into().unwrap_or_default())
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} for {}x{}", self.method, self.shape.d_out, self.shape.d_in)
    }
}

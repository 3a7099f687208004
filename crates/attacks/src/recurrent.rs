//! A recurrent unit's hidden weights, from what its gate decryptor gets.
//!
//! Of every later step t it has a_t = W h_(t-1) + b and the input gates, so the update gate z_t and the
//! candidate n_t, and h_t = (1 - z_t) n_t + z_t h_(t-1). All a_t lie in a plane of as many dimensions as
//! there are states. With coordinates y_t in it every state is h_(t-1) = A y_t + p, and the update is linear
//! in A and p, unit by unit:
//!
//! ```text
//! A_i (y_(t+1) - z_ti y_t) + (1 - z_ti) p_i = (1 - z_ti) n_ti
//! ```
//!
//! So an ordinary regression gives A and p, and these give W and b, and every hidden state as well.

use nalgebra::{DMatrix, SymmetricEigen};
use secsv_federation::{
    Coalition, RoundId,
    clear::{sigmoid, tanh},
};
use secsv_protocol::precision::shares;

use crate::{
    linear::least_squares,
    view::{ClientView, DecryptedOutputs},
};

/// Outputs that the gate decryptor of one coalition's model knows on the samples of one owner, step by step
/// from the second.
pub struct DecryptedGates {
    /// W h + b: a row for each sample, a column for each of the 3 x hidden outputs.
    hidden: Vec<DMatrix<f64>>,
    /// The update gates z: a row for each sample.
    update: Vec<DMatrix<f64>>,
    /// The candidates n.
    new: Vec<DMatrix<f64>>,
}

impl DecryptedGates {
    /// From the view of a client; nothing if it did not decrypt the gates of this model on these samples.
    pub fn read(view: &ClientView, round: RoundId, coalition: Coalition, owner: usize) -> Option<Self> {
        let gru = view.program.gru?;
        let is_meant = |o: &&DecryptedOutputs| (o.round, o.coalition, o.owner) == (round, coalition, owner);
        let mine: Vec<&DecryptedOutputs> = view.outputs.iter().filter(is_meant).collect();
        let inputs = mine.iter().find(|o| o.operator == 0 && o.first == 1)?;
        let total: f64 = coalition.members().map(|i| shares(&view.sizes[&round])[i]).sum();
        let rows = 3 * gru.hidden;
        let numbers = |outputs: &DecryptedOutputs, position: usize| {
            let bits = view.precision.operators[outputs.operator].product_bits();
            let scale = f64::powi(0.5, bits as i32) / total;
            let number = |k, j| outputs.at(j, rows, position, k) as f64 * scale;
            DMatrix::from_fn(outputs.samples.len(), rows, number)
        };
        let mut gates: Vec<&&DecryptedOutputs> =
            mine.iter().filter(|o| o.operator == gru.hidden_operator).collect();
        gates.sort_by_key(|outputs| outputs.step);
        let hidden: Vec<DMatrix<f64>> = gates.iter().map(|outputs| numbers(outputs, 0)).collect();
        if hidden.len() + 1 != gru.steps {
            return None;
        }
        let gates =
            hidden.iter().enumerate().map(|(step, a)| gates_of(&numbers(inputs, step), a, gru.hidden));
        let (update, new) = gates.unzip();
        Some(Self { hidden, update, new })
    }

    /// Hidden weights with the biases in the last column; nothing if there are fewer than three steps or too
    /// few samples.
    pub fn layer(&self) -> Option<DMatrix<f64>> {
        let size = self.update.first()?.ncols();
        let (plane, mean) = self.plane(size)?;
        let centred = |a: &DMatrix<f64>| {
            let mut a = a.clone();
            a.row_iter_mut().for_each(|mut row| row -= &mean);
            a * &plane
        };
        let coordinates: Vec<DMatrix<f64>> = self.hidden.iter().map(centred).collect();
        let mut map = DMatrix::zeros(size, size + 1);
        for unit in 0..size {
            map.row_mut(unit).copy_from(&self.state_of(unit, &coordinates)?.transpose());
        }
        // a - mean = plane y and h = A y + p, so W A = plane and W p + b = mean.
        let weights = &plane * map.columns(0, size).into_owned().try_inverse()?;
        let biases = mean.transpose() - &weights * map.column(size);
        let mut layer = weights.insert_column(size, 0.0);
        layer.column_mut(size).copy_from(&biases);
        Some(layer)
    }

    /// The plane in which all hidden outputs lie: an orthonormal basis and a point.
    fn plane(&self, size: usize) -> Option<(DMatrix<f64>, nalgebra::RowDVector<f64>)> {
        let outputs = self.hidden.first()?.ncols();
        let count: usize = self.hidden.iter().map(DMatrix::nrows).sum();
        let rows = || self.hidden.iter().flat_map(|a| a.row_iter());
        let mut mean = nalgebra::RowDVector::zeros(outputs);
        rows().for_each(|row| mean += row / count as f64);
        let mut spread = DMatrix::zeros(outputs, outputs);
        for hidden in &self.hidden {
            let mut off = hidden.clone();
            off.row_iter_mut().for_each(|mut row| row -= &mean);
            spread += off.tr_mul(&off);
        }
        let eigen = SymmetricEigen::new(spread);
        let mut order: Vec<usize> = (0..outputs).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        let plane = DMatrix::from_fn(outputs, size, |i, j| eigen.eigenvectors[(i, order[j])]);
        Some((plane, mean))
    }

    /// A row of A, and p at its end.
    fn state_of(&self, unit: usize, coordinates: &[DMatrix<f64>]) -> Option<DMatrix<f64>> {
        let (samples, size) = coordinates.first()?.shape();
        let steps = coordinates.len().checked_sub(1)?;
        let place = |row: usize| (row / samples, row % samples);
        let matrix = DMatrix::from_fn(steps * samples, size + 1, |row, j| {
            let (step, k) = place(row);
            let z = self.update[step][(k, unit)];
            if j < size { coordinates[step + 1][(k, j)] - z * coordinates[step][(k, j)] } else { 1.0 - z }
        });
        let values = DMatrix::from_fn(steps * samples, 1, |row, _| {
            let (step, k) = place(row);
            (1.0 - self.update[step][(k, unit)]) * self.new[step][(k, unit)]
        });
        if matrix.nrows() <= matrix.ncols() { None } else { least_squares(&matrix, &values, 1e-15) }
    }
}

/// The gates z and n of a step: columns of both parts are r, z, n one after the other.
fn gates_of(inputs: &DMatrix<f64>, hidden: &DMatrix<f64>, size: usize) -> (DMatrix<f64>, DMatrix<f64>) {
    let samples = inputs.nrows();
    let gate = |k: usize, column: usize| sigmoid(inputs[(k, column)] + hidden[(k, column)]);
    let new = |k: usize, j: usize| tanh(inputs[(k, 2 * size + j)] + gate(k, j) * hidden[(k, 2 * size + j)]);
    (DMatrix::from_fn(samples, size, |k, j| gate(k, size + j)), DMatrix::from_fn(samples, size, new))
}

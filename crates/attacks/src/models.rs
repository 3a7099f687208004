//! Other clients' models, from inputs and outputs of a layer that meet in one view.

use std::collections::BTreeMap;

use nalgebra::DMatrix;
use secsv_algebra::{Matrix, Ring, Ring64};
use secsv_federation::{Coalition, RoundId};
use secsv_protocol::{
    Error, Program,
    activation::{Activator, Handed},
    precision::shares,
};

use crate::{
    equations::encoded,
    hidden::HiddenNumbers,
    linear::least_squares,
    span,
    view::{ClientView, DecryptedOutputs},
};

/// A layer's weights and biases: a row for each output, the bias last.
pub type LayerMatrix = DMatrix<f64>;

/// First layers of all single models of a round, once an owner's samples are known: with the outputs of its
/// own model, which it computes, a client takes its replies apart. `samples` has a column for each of the
/// owner's samples that it decrypted for.
pub fn first_layers(
    view: &ClientView,
    owner: usize,
    round: RoundId,
    samples: &DMatrix<f64>,
) -> Result<BTreeMap<usize, LayerMatrix>, Error> {
    let replies = view.first_layer(round, owner, 0);
    let coalitions: Vec<Coalition> = replies.iter().map(|reply| reply.coalition).collect();
    let (operator, format) = (&view.program.operators[0], view.precision.operators[0]);
    let (rows, d_in) = (operator.shape.d_out, operator.shape.d_in);
    let shares = shares(view.sizes.get(&round).map_or(&[][..], |sizes| sizes));
    let (input, output) =
        (f64::powi(2.0, format.input.fractional_bits() as i32), f64::powi(0.5, format.product_bits() as i32));
    let inputs = DMatrix::from_fn(samples.ncols(), d_in + 1, |k, o| {
        if o < d_in { (samples[(o, k)] * input).round() / input } else { 1.0 }
    });
    let mut own = DMatrix::zeros(samples.ncols(), rows);
    if let Some(local) = view.local.get(&round) {
        let (weights, biases) = encoded(view, local, shares[view.client]);
        let layer =
            DMatrix::from_fn(d_in + 1, rows, |o, j| if o < d_in { weights[j * d_in + o] } else { biases[j] });
        own = &inputs * layer;
    }
    let mut found = BTreeMap::new();
    for client in view.participants(round).members().filter(|&client| client != view.client) {
        let Some(factors) = span::of_coalition(&coalitions, Some(view.client), Coalition::EMPTY.with(client))
        else {
            continue;
        };
        let outputs = DMatrix::from_fn(samples.ncols(), rows, |k, j| {
            let sent: f64 =
                replies.iter().zip(&factors).map(|(reply, f)| f * reply.at(j, rows, 0, k) as f64).sum();
            sent * output + factors.last().copied().unwrap_or(0.0) * own[(k, j)]
        });
        if let Some(layer) = least_squares(&inputs, &outputs, 0.0) {
            found.insert(client, layer.transpose() / shares[client]);
        }
    }
    Ok(found)
}

/// Where a client holds input and output of a layer of one coalition's model, on the samples of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The round.
    pub round: RoundId,
    /// Whose model.
    pub coalition: Coalition,
    /// Whose samples.
    pub owner: usize,
    /// The operator in between.
    pub operator: usize,
}

/// All meetings of layer-1 outputs that the client can add up with outputs of a later layer that it
/// decrypted: everything between them lies open if it is a single layer.
pub fn meetings(view: &ClientView) -> Vec<Meeting> {
    let later = view.outputs.iter().filter(|outputs| outputs.operator > 0);
    let is_held = |outputs: &&DecryptedOutputs| {
        let DecryptedOutputs { round, coalition, owner, .. } = **outputs;
        let replies: Vec<Coalition> =
            view.first_layer(round, owner, 0).iter().map(|reply| reply.coalition).collect();
        span::of_coalition(&replies, None, coalition).is_some()
    };
    later
        .filter(is_held)
        .map(|&DecryptedOutputs { round, coalition, owner, operator, .. }| Meeting {
            round,
            coalition,
            owner,
            operator,
        })
        .collect()
}

/// The second operator of a coalition's model, from a meeting: an ordinary regression.
pub fn second_layer(view: &ClientView, meeting: &Meeting) -> Result<Option<LayerMatrix>, Error> {
    let Meeting { round, coalition, owner, operator } = *meeting;
    let is_output = |outputs: &&DecryptedOutputs| {
        (outputs.round, outputs.coalition, outputs.owner, outputs.operator)
            == (round, coalition, owner, operator)
    };
    let Some(outputs) = view.outputs.iter().find(is_output).filter(|_| operator == 1) else {
        return Ok(None);
    };
    let Some(inputs) = second_inputs(view, meeting)? else { return Ok(None) };
    let (shape, format) = (view.program.operators[1].shape, view.precision.operators[1]);
    let input = f64::powi(0.5, format.input.fractional_bits() as i32);
    let columns = view.program.operators[1].arrange(&inputs)?;
    let ring = Ring64;
    let matrix = DMatrix::from_fn(columns.columns(), shape.d_in + 1, |k, o| {
        if o < shape.d_in { ring.centre(columns.at(o, k)) as f64 * input } else { 1.0 }
    });
    let total: f64 = coalition.members().map(|i| shares(&view.sizes[&round])[i]).sum();
    let scale = f64::powi(0.5, format.product_bits() as i32) / total;
    let count = outputs.samples.len();
    let values = DMatrix::from_fn(columns.columns(), shape.d_out, |k, j| {
        outputs.at(j, shape.d_out, k / count, k % count) as f64 * scale
    });
    Ok(least_squares(&matrix, &values, 1e-13).map(|layer| layer.transpose()))
}

/// Any operator of a coalition's model under BlindSV, from what somebody has of its outputs and somebody of its inputs: an ordinary
/// regression.
pub fn between_ends(
    outputs: &HiddenNumbers,
    inputs: &HiddenNumbers,
    program: &Program,
    operator: usize,
    model: (RoundId, Coalition),
) -> Option<LayerMatrix> {
    let (matrix, values) = outputs.ends(inputs, program, operator, model)?;
    least_squares(&matrix, &values, 1e-13).map(|layer| layer.transpose())
}

/// Activations that the first decryptor of a coalition shared, from replies that add up to the coalition's.
fn second_inputs(view: &ClientView, meeting: &Meeting) -> Result<Option<Matrix<Ring64>>, Error> {
    let Meeting { round, coalition, owner, .. } = *meeting;
    let replies = view.first_layer(round, owner, 0);
    let coalitions: Vec<Coalition> = replies.iter().map(|reply| reply.coalition).collect();
    let Some(factors) = span::of_coalition(&coalitions, None, coalition) else { return Ok(None) };
    let rows = view.program.operators[0].shape.d_out;
    let Some(first) = replies.first() else { return Ok(None) };
    let (positions, count) = (first.positions(rows), first.samples.len());
    let ring = Ring64;
    let sum = Matrix::from_fn(ring, rows, positions * count, |j, k| {
        let terms =
            replies.iter().zip(&factors).map(|(reply, f)| f * reply.at(j, rows, k / count, k % count) as f64);
        ring.embed(terms.sum::<f64>().round() as i64)
    });
    let total: f64 = coalition.members().map(|i| shares(&view.sizes[&round])[i]).sum();
    let handed = Activator::default().step(&view.program, &view.precision, 0, total, &[sum])?;
    Ok(match handed {
        Handed::Shared(matrix) => Some(matrix),
        Handed::Labels(_) => None,
    })
}

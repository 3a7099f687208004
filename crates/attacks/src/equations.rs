//! Equations in an owner's samples, from replies that add up to outputs of models the client knows.

use nalgebra::DMatrix;
use secsv_federation::{RoundId, Weights};
use secsv_protocol::{Error, precision::shares};

use crate::{
    operators::{numbers, sources},
    span,
    view::ClientView,
};

/// Linear equations in the numbers of each sample: the same matrix for all of them.
#[derive(Clone, Debug)]
pub struct System {
    /// A row for each equation, a column for each number of a sample.
    pub matrix: DMatrix<f64>,
    /// A row for each equation, a column for each sample.
    pub values: DMatrix<f64>,
    /// Which samples of the owner.
    pub samples: Vec<usize>,
    /// The rounds that gave equations.
    pub rounds: Vec<RoundId>,
    /// Deviation of one coefficient: how far rounded models are from those the client knows.
    pub rounding: f64,
}

/// Everything that a client can say about an owner's samples by models that it knows, in some rounds; nothing
/// if its replies add up to none.
pub fn known(view: &ClientView, owner: usize, rounds: &[RoundId]) -> Result<Option<System>, Error> {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    let (mut samples, mut exposed): (Option<Vec<usize>>, Vec<RoundId>) = (None, Vec::new());
    for &round in rounds {
        for first in 0..view.program.operators[0].positions {
            let Some((found, of)) = of_round(view, owner, round, first)? else { continue };
            // A round on other samples would need equations of its own.
            if samples.get_or_insert_with(|| of.clone()) != &of {
                continue;
            }
            for (row, value) in found {
                rows.push(row);
                values.push(value);
            }
            if exposed.last() != Some(&round) {
                exposed.push(round);
            }
        }
    }
    let Some(samples) = samples else { return Ok(None) };
    let unknowns = view.program.operators[0].input_size();
    let matrix = DMatrix::from_fn(rows.len(), unknowns, |i, j| rows[i][j]);
    let values = DMatrix::from_fn(values.len(), samples.len(), |i, j| values[i][j]);
    let others = view.sizes.values().map(|sizes| sizes.iter().filter(|size| **size > 0.0).count());
    let others = others.max().unwrap_or(1).saturating_sub(1);
    let step = f64::powi(0.5, view.precision.operators[0].weight.fractional_bits() as i32);
    // Global models and records are single precision, however fine the format.
    let single = f64::from(f32::EPSILON) * matrix.amax();
    let rounding = (step * step * others as f64 / 12.0 + single * single).sqrt();
    Ok(Some(System { matrix, values, samples, rounds: exposed, rounding }))
}

/// Coefficients, and values for each sample.
type Equation = (Vec<f64>, Vec<f64>);

/// Equations, and the samples that they are about.
type OfRound = (Vec<Equation>, Vec<usize>);

fn of_round(view: &ClientView, owner: usize, round: RoundId, first: usize) -> Result<Option<OfRound>, Error> {
    let replies = view.first_layer(round, owner, first);
    let Some(samples) = replies.first().map(|reply| reply.samples.clone()) else { return Ok(None) };
    let replies: Vec<_> = replies.into_iter().filter(|reply| reply.samples == samples).collect();
    let coalitions: Vec<_> = replies.iter().map(|reply| reply.coalition).collect();
    let combinations = span::known(&coalitions, view.participants(round), view.client);
    if combinations.is_empty() {
        return Ok(None);
    }
    let (operator, format) = (&view.program.operators[0], view.precision.operators[0]);
    let (rows, scale) = (operator.shape.d_out, f64::powi(0.5, format.product_bits() as i32));
    let (models, sources) = (Models::new(view, round)?, sources(&view.program, 0)?);
    let positions = replies[0].positions(rows);
    let mut equations = Vec::new();
    for combination in combinations {
        for (position, row) in (0..positions).flat_map(|p| (0..rows).map(move |r| (p, r))) {
            let (weights, bias) = models.mixture(combination.grand, combination.own, row);
            let mut coefficients = vec![0.0; operator.input_size()];
            for (o, weight) in weights.iter().enumerate() {
                if let Some(source) = sources[(first + position) * weights.len() + o] {
                    coefficients[source] += weight;
                }
            }
            let value = |place: usize| {
                let reply = |(reply, factor): (&&crate::view::DecryptedOutputs, &f64)| {
                    factor * reply.at(row, rows, position, place) as f64
                };
                replies.iter().zip(&combination.factors).map(reply).sum::<f64>() * scale - bias
            };
            equations.push((coefficients, (0..samples.len()).map(value).collect()));
        }
    }
    Ok(Some((equations, samples)))
}

/// First layers of a round that the client knows: all models together, and its own, as they were encoded.
struct Models {
    inputs: usize,
    grand: (Vec<f64>, Vec<f64>),
    own: (Vec<f64>, Vec<f64>),
}

impl Models {
    fn new(view: &ClientView, round: RoundId) -> Result<Self, Error> {
        let operator = &view.program.operators[0];
        let shares = shares(view.sizes.get(&round).map_or(&[][..], |sizes| sizes));
        let total: f64 = shares.iter().sum();
        let share = shares.get(view.client).copied().unwrap_or(0.0);
        let missing = Error::Local { what: "a global model" };
        let global = view.global.get(&round).ok_or(missing)?;
        let (weights, biases) = numbers(&view.program, 0, global);
        let mut grand: (Vec<f64>, Vec<f64>) =
            (weights.iter().map(|w| w * total).collect(), biases.iter().map(|b| b * total).collect());
        let mut own = (vec![0.0; weights.len()], vec![0.0; biases.len()]);
        if let Some(local) = view.local.get(&round).filter(|_| share > 0.0) {
            own = encoded(view, local, share);
            // Its own rounding is no secret to it.
            let (exact, exact_bias) = numbers(&view.program, 0, local);
            let correct = |sum: &mut [f64], encoded: &[f64], exact: &[f64]| {
                for (sum, (e, x)) in sum.iter_mut().zip(encoded.iter().zip(exact)) {
                    *sum += e - x * share;
                }
            };
            correct(&mut grand.0, &own.0, &exact);
            correct(&mut grand.1, &own.1, &exact_bias);
        }
        Ok(Self { inputs: operator.shape.d_in, grand, own })
    }

    /// A row of a mixture: its weights and its bias.
    fn mixture(&self, grand: f64, own: f64, row: usize) -> (Vec<f64>, f64) {
        let range = row * self.inputs..(row + 1) * self.inputs;
        let mix = |a: &f64, b: &f64| grand * a + own * b;
        let weights = self.grand.0[range.clone()].iter().zip(&self.own.0[range]);
        (weights.map(|(a, b)| mix(a, b)).collect(), mix(&self.grand.1[row], &self.own.1[row]))
    }
}

/// A model's first layer as it is encoded, in real numbers.
pub(crate) fn encoded(view: &ClientView, model: &Weights, share: f64) -> (Vec<f64>, Vec<f64>) {
    let (weights, biases) = numbers(&view.program, 0, model);
    let format = view.precision.operators[0];
    let round = |bits: u32| {
        let scale = f64::powi(2.0, bits as i32);
        move |x: &f64| (x * share * scale).round_ties_even() / scale
    };
    let weights = weights.iter().map(round(format.weight.fractional_bits())).collect();
    (weights, biases.iter().map(round(format.product_bits())).collect())
}

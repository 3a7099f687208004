//! The same answer without cryptography: what every secure protocol must give, bit for bit.

use secsv_algebra::{Matrix, Ring};
use secsv_federation::Coalition;

use crate::{
    Error,
    activation::{Activator, Handed},
    model::EncodedModel,
    precision::Precision,
    program::{Input, Program, Receive},
};

/// The models of one round and all samples, as elements.
pub struct Ideal<R: Ring> {
    /// Samples as elements.
    pub samples: Matrix<R>,
    /// Local models of a round, by the position of their owners.
    pub models: Vec<(usize, u32, EncodedModel<R>)>,
}

impl<R: Ring> Ideal<R> {
    /// The classes that the coalition of these members predicts for some samples.
    pub fn labels(
        &self,
        program: &Program,
        precision: &Precision,
        coalition: Coalition,
        samples: &[usize],
    ) -> Result<Vec<usize>, Error> {
        let members: Vec<(u32, &EncodedModel<R>)> =
            self.models.iter().filter(|(i, ..)| coalition.contains(*i)).map(|(_, k, m)| (*k, m)).collect();
        let model = EncodedModel::weighted_sum(&members)?;
        let total = members.iter().map(|(k, _)| k).sum();
        let ring = self.samples.ring();
        let data =
            Matrix::from_fn(ring, self.samples.rows(), samples.len(), |i, k| self.samples.at(i, samples[k]));
        let mut shared: Vec<Option<Matrix<R>>> = Vec::new();
        let mut activator = Activator::default();
        for (hop, step) in program.hops.iter().enumerate() {
            let of = |input: &Input| match input {
                Input::Data => Ok(&data),
                Input::Hop(hop) => {
                    shared[*hop].as_ref().ok_or(Error::Local { what: "an input nobody shared" })
                }
            };
            let received = step.receives.iter().map(|receive| match receive {
                Receive::Outputs { operator, input, first, count } => {
                    let columns = program.operators[*operator].arrange(of(input)?)?;
                    let outputs = model.operators[*operator].apply(&columns)?;
                    Ok(columns_of(&outputs, first * samples.len(), count * samples.len()))
                }
                Receive::Bias { operator } => {
                    let bias = &model.operators[*operator].bias;
                    Ok(Matrix::from_fn(ring, bias.len(), samples.len(), |j, _| bias[j]))
                }
                Receive::Update { gates, state } => {
                    let (gates, state) = (of(&Input::Hop(*gates))?, of(&Input::Hop(*state))?);
                    let half = gates.rows() / 2;
                    Ok(Matrix::from_fn(ring, half, samples.len(), |i, k| {
                        ring.add(gates.at(half + i, k), ring.mul(gates.at(i, k), state.at(i, k)))
                    }))
                }
            });
            let received = received.collect::<Result<Vec<_>, Error>>()?;
            match activator.step(program, precision, hop, total, &received)? {
                Handed::Shared(matrix) => shared.push(Some(matrix)),
                Handed::Labels(labels) => return Ok(labels),
            }
        }
        Err(Error::Local { what: "a program without an end" })
    }
}

/// Some columns of a matrix.
pub fn columns_of<R: Ring>(matrix: &Matrix<R>, first: usize, count: usize) -> Matrix<R> {
    Matrix::from_fn(matrix.ring(), matrix.rows(), count, |i, k| matrix.at(i, first + k))
}

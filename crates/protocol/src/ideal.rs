//! The same answer without cryptography: what every secure protocol must give, bit for bit.

use std::sync::Arc;

use secsv_algebra::{Matrix, Ring, Ring64, Seed};
use secsv_federation::{Coalition, RoundId, TestSet};

use crate::{
    Error,
    activation::{Activator, Handed, Values, last_scores},
    blindsv::{
        ideal::{Rounding, computed, right},
        keys::{OwnerKey, Place},
    },
    model::EncodedModel,
    precision::Precision,
    program::{Input, Program, Receive, Then},
    session::{Agreed, Session},
};

/// The models of one round and all samples, as elements.
pub struct Ideal<R: Ring> {
    /// Samples as elements.
    pub samples: Matrix<R>,
    /// Local models of a round, by the position of their owners, with their shares of the training data.
    pub models: Vec<(usize, f64, EncodedModel<R>)>,
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
        let labels = self.scores(program, precision, coalition, samples)?.labels(program.classes);
        Ok(labels.into_iter().map(usize::from).collect())
    }

    /// The scores behind them: a row for each class, a column for each sample.
    pub fn scores(
        &self,
        program: &Program,
        precision: &Precision,
        coalition: Coalition,
        samples: &[usize],
    ) -> Result<Values, Error> {
        let received = self.received(program, precision, coalition, samples)?;
        let last = &received[received.len() - 1];
        Ok(last_scores(program, precision, self.total_share(coalition), last))
    }

    fn total_share(&self, coalition: Coalition) -> f64 {
        self.models.iter().filter(|(i, ..)| coalition.contains(*i)).map(|(_, share, _)| share).sum()
    }

    /// What decryptors receive, step by step, for the coalition of these members and some samples: a row for each output,
    /// columns position by position.
    pub fn received(
        &self,
        program: &Program,
        precision: &Precision,
        coalition: Coalition,
        samples: &[usize],
    ) -> Result<Vec<Vec<Matrix<R>>>, Error> {
        let members = self.models.iter().filter(|(i, ..)| coalition.contains(*i));
        let model = EncodedModel::sum(&members.map(|(.., model)| model).collect::<Vec<_>>())?;
        let total = self.total_share(coalition);
        let ring = self.samples.ring();
        let data =
            Matrix::from_fn(ring, self.samples.rows(), samples.len(), |i, k| self.samples.at(i, samples[k]));
        let mut shared: Vec<Matrix<R>> = Vec::new();
        let mut all = Vec::with_capacity(program.steps.len());
        let mut activator = Activator::default();
        for (step, decryption) in program.steps.iter().enumerate() {
            let received =
                decryption.receives.iter().map(|receive| received(program, &model, receive, &data, &shared));
            let received = received.collect::<Result<Vec<_>, Error>>()?;
            if !matches!(decryption.then, Then::Label(_))
                && let Handed::Shared(matrix) = activator.step(program, precision, step, total, &received)?
            {
                shared.push(matrix);
            }
            all.push(received);
        }
        Ok(all)
    }
}

impl Ideal<Ring64> {
    /// Which of an owner's tested samples the coalition predicts right under BlindSV: all bits of a score count. `seeds` are those
    /// of the owner's masks, shared with the principal and with the auxiliary: they round hidden numbers, each by its place among
    /// the tested samples.
    pub fn masked_right(
        &self,
        session: &Arc<Session>,
        (round, coalition): (RoundId, Coalition),
        (owner, seeds): (usize, &[Seed; 2]),
        test_set: &TestSet,
        tested: &[usize],
    ) -> Result<Vec<bool>, Error> {
        Ok(self.masked(session, (round, coalition), (owner, seeds), test_set, tested)?.0)
    }

    /// The same, and how many hidden numbers are out of range where that is checked.
    pub fn masked(
        &self,
        session: &Arc<Session>,
        (round, coalition): (RoundId, Coalition),
        (owner, seeds): (usize, &[Seed; 2]),
        test_set: &TestSet,
        tested: &[usize],
    ) -> Result<(Vec<bool>, u64), Error> {
        let Agreed::BlindSv(session) = session.agreed() else {
            return Err(Error::Unsupported { what: "masks of another protocol" });
        };
        let members = self.models.iter().filter(|(i, ..)| coalition.contains(*i));
        let model = EncodedModel::sum(&members.map(|(.., model)| model).collect::<Vec<_>>())?;
        let keys = seeds.each_ref().map(|seed| OwnerKey::new(seed.clone()));
        let scales = session.scales(round, coalition);
        let (mut found, mut overflows) = (Vec::with_capacity(tested.len()), 0);
        for (first, shape) in session.chunks_of(tested.len()).iter() {
            let chunk = &tested[first..first + shape.samples()];
            let begin = session.offset(owner);
            let samples = Matrix::from_fn(Ring64, self.samples.rows(), chunk.len(), |i, k| {
                self.samples.at(i, begin + chunk[k])
            });
            let labels: Vec<usize> = chunk.iter().map(|&k| test_set.labels()[k] as usize).collect();
            let rounding =
                Rounding { keys: &keys, place: Place { round, coalition, first }, scales: &scales };
            let computed = computed(session.program(), &shape, &rounding, &model.operators, &samples)?;
            found.extend(right(&shape, &computed.scores, &labels));
            overflows += computed.overflows;
        }
        Ok((found, overflows))
    }
}

/// What a step receives.
fn received<R: Ring>(
    program: &Program,
    model: &EncodedModel<R>,
    receive: &Receive,
    data: &Matrix<R>,
    shared: &[Matrix<R>],
) -> Result<Matrix<R>, Error> {
    let (ring, samples) = (data.ring(), data.columns());
    let of = |input: &Input, operator: usize| match *input {
        Input::Data => data.clone(),
        Input::Step(step) => match program.fed(step).into_iter().find(|(fed, _)| *fed == operator) {
            Some((_, rows)) => shared[step].row_range(rows),
            None => shared[step].clone(),
        },
    };
    match receive {
        Receive::Outputs { operator, input, first, count } => {
            let columns = program.operators[*operator].arrange(&of(input, *operator))?;
            let outputs = model.operators[*operator].apply(&columns)?;
            Ok(columns_of(&outputs, first * samples, count * samples))
        }
        Receive::Bias { operator } => {
            let bias = &model.operators[*operator].bias;
            Ok(Matrix::from_fn(ring, bias.len(), samples, |j, _| bias[j]))
        }
        Receive::Vector { operator } => {
            let bias = &model.operators[*operator].bias;
            Ok(Matrix::from_fn(ring, bias.len(), 1, |j, _| bias[j]))
        }
        Receive::Sum { parts } => sum_of_parts(program, ring, parts, samples, |step| Some(&shared[step])),
        Receive::Update { gates, state } => {
            let (gates, state) = (&shared[*gates], &shared[*state]);
            let half = gates.rows() / 2;
            Ok(Matrix::from_fn(ring, half, samples, |i, k| {
                ring.add(gates.at(half + i, k), ring.mul(gates.at(i, k), state.at(i, k)))
            }))
        }
    }
}

/// The sum of parts that were shared at some steps.
pub(crate) fn sum_of_parts<'a, R: Ring>(
    program: &Program,
    ring: R,
    parts: &[(usize, usize)],
    samples: usize,
    shared: impl Fn(usize) -> Option<&'a Matrix<R>>,
) -> Result<Matrix<R>, Error> {
    let mut sum = Matrix::zero(ring, program.sum_size(parts), samples);
    for &(step, part) in parts {
        let shared = shared(step).ok_or(Error::Local { what: "what a sum is made of" })?;
        sum = sum.add(&shared.row_range(program.steps[step].rows_of(part)))?;
    }
    Ok(sum)
}

/// Some columns of a matrix.
pub fn columns_of<R: Ring>(matrix: &Matrix<R>, first: usize, count: usize) -> Matrix<R> {
    Matrix::from_fn(matrix.ring(), matrix.rows(), count, |i, k| matrix.at(i, first + k))
}

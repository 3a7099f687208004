//! What a client does between decryption and sharing: decode, activate in double precision, encode. The bits are the
//! same on every machine, so every decryptor and the ideal run agree.

use secsv_algebra::{AlgebraError, FixedPoint, Matrix, Ring, Secret, wipe};
use secsv_federation::{
    Activation,
    clear::{activate, pool, sigmoid, tanh, transpose},
};

use crate::{
    Error,
    labels::Wiped,
    precision::Precision,
    program::{ClearKind, ClearLayer, NormItems, Operator, Program, Receive, Then},
};

/// Numbers of some samples: a row for each number of a sample, a column for each sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    columns: usize,
    numbers: Vec<f64>,
}

impl Drop for Values {
    fn drop(&mut self) {
        // Decrypted activations are secrets of other clients.
        wipe(&mut self.numbers);
    }
}

impl Values {
    /// From numbers, row by row.
    pub fn new(columns: usize, numbers: Vec<f64>) -> Self {
        Self { columns, numbers }
    }

    /// How many samples.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All numbers, row by row.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..][..self.columns]
    }

    /// The sum of some numbers of the same samples.
    pub(crate) fn sum(all: &[&Self]) -> Self {
        let mut rest = all.iter();
        let mut sum = rest.next().map_or(Self::new(0, Vec::new()), |first| (*first).clone());
        for other in rest {
            sum.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, x)| *sum += x);
        }
        sum
    }

    /// Applies activations in place.
    pub fn activate(&mut self, activations: &[Activation]) {
        for activation in activations {
            match activation {
                Activation::Softmax(_) => self.each_sample(|sample| activate(*activation, sample)),
                Activation::MaxPool(windows) => {
                    self.each_sample(|s| in_other_size(s, |a, b| pool(windows, true, a, b)))
                }
                Activation::AveragePool(windows) => {
                    self.each_sample(|s| in_other_size(s, |a, b| pool(windows, false, a, b)))
                }
                Activation::Transpose { rows, columns } => {
                    self.each_sample(|s| in_other_size(s, |a, b| transpose(*rows, *columns, a, b)))
                }
                other => activate(*other, &mut self.numbers),
            }
        }
    }

    /// Changes each sample's numbers, all to the same number of them.
    fn each_sample(&mut self, mut change: impl FnMut(&mut Vec<f64>)) {
        let (columns, rows) = (self.columns, self.numbers.len() / self.columns.max(1));
        let mut changed = Vec::new();
        let mut sample = Vec::new();
        for column in 0..columns {
            sample.clear();
            sample.extend((0..rows).map(|row| self.numbers[row * columns + column]));
            change(&mut sample);
            changed.resize(sample.len() * columns, 0.0);
            for (row, &number) in sample.iter().enumerate() {
                changed[row * columns + column] = number;
            }
        }
        wipe(&mut sample);
        wipe(&mut self.numbers);
        self.numbers = changed;
    }

    /// Numbers that are at most 1 but for this much of rounding.
    fn saturate(&mut self, slack: f64) {
        let beyond = self.numbers.iter_mut().filter(|x| x.abs() > 1.0 && x.abs() <= 1.0 + slack);
        beyond.for_each(|x| *x = x.signum());
    }

    /// The class of the largest score of each sample; the last class's is 0 where only the others were computed
    /// ([`Program::compares_with_last_class`]).
    pub(crate) fn labels(&self, classes: usize) -> Vec<u16> {
        largest(&self.numbers, self.columns, classes)
    }

    /// As elements; numbers outside the format's range are an error that names the layer.
    pub fn encode<R: Ring>(&self, ring: R, format: FixedPoint, layer: usize) -> Result<Matrix<R>, Error> {
        let elements = format.encode_all(ring, &self.numbers).map_err(|error| out_of_range(error, layer))?;
        let rows = self.numbers.len().checked_div(self.columns).unwrap_or(0);
        Ok(Matrix::new(ring, rows, self.columns, elements)?)
    }
}

fn in_other_size(sample: &mut Vec<f64>, change: impl FnOnce(&[f64], &mut Vec<f64>)) {
    let mut changed = Vec::new();
    change(sample, &mut changed);
    wipe(sample);
    *sample = changed;
}

/// The class of the largest score of each sample, from rows of scores. Rows that are missing are 0.
pub(crate) fn largest<T: Copy + Default + PartialOrd>(
    scores: &[T],
    columns: usize,
    classes: usize,
) -> Vec<u16> {
    let zero = vec![T::default(); columns];
    let mut rows = scores.chunks_exact(columns.max(1));
    let mut best = Secret::new(Wiped(rows.next().unwrap_or(&zero).to_vec()));
    let mut labels = vec![0; columns];
    for class in 1..classes {
        let row = rows.next().unwrap_or(&zero);
        for ((best, label), &score) in best.expose_mut().iter_mut().zip(&mut labels).zip(row) {
            // The lowest class of those with equal scores.
            let is_better = score > *best;
            (*best, *label) = if is_better { (score, class as u16) } else { (*best, *label) };
        }
    }
    labels
}

fn out_of_range(error: AlgebraError, layer: usize) -> Error {
    match error {
        AlgebraError::OutOfRange { expected_exponent, found_exponent } => {
            Error::OutOfRange { layer, expected_exponent, found_exponent }
        }
        other => other.into(),
    }
}

/// Layers that a client computes of what it received, one after the other; their values come behind what was received.
pub(crate) fn in_the_clear(layers: &[ClearLayer], values: &mut Vec<Values>) {
    for layer in layers {
        let first = &values[layer.of.first().copied().unwrap_or(0)];
        let value = match &layer.kind {
            ClearKind::Activation(activation) => {
                let mut value = first.clone();
                value.activate(std::slice::from_ref(activation));
                value
            }
            ClearKind::BatchNorm(items) => normalised(first, items, values),
            ClearKind::Add => Values::sum(&layer.of.iter().map(|&value| &values[value]).collect::<Vec<_>>()),
            ClearKind::Concat => {
                let of = layer.of.iter().flat_map(|&value| &values[value].numbers);
                Values::new(first.columns, of.copied().collect())
            }
        };
        values.push(value);
    }
}

/// Each channel less its mean, over the root of its variance, times weight plus bias, as the floating-point model has it.
fn normalised(value: &Values, items: &NormItems, values: &[Values]) -> Values {
    let mut found = value.clone();
    let of = |item: usize, channel: usize| values[item].numbers.get(channel).copied().unwrap_or(0.0);
    for (channel, numbers) in
        found.numbers.chunks_exact_mut((items.positions * value.columns).max(1)).enumerate()
    {
        let (mean, deviation) = (of(items.mean, channel), of(items.variance, channel).sqrt());
        let weight = items.weight.map_or(1.0, |item| of(item, channel));
        let bias = items.bias.map_or(0.0, |item| of(item, channel));
        numbers.iter_mut().for_each(|x| *x = (*x - mean) / deviation * weight + bias);
    }
    found
}

/// What a client sends on after a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Handed<R: Ring> {
    /// To be shared.
    Shared(Matrix<R>),
    /// Predicted classes.
    Labels(Vec<u16>),
}

/// What a client got at a step, in the order of the program.
pub type Received<R> = Vec<Matrix<R>>;

/// A decryptor's part in one test. It keeps the later steps' input gates between steps.
#[derive(Default)]
pub struct Activator {
    input_gates: Option<Values>,
}

impl Activator {
    /// One step: outputs as they were decrypted (a row for each output, columns position by position), the sum of the
    /// coalition's shares.
    pub fn step<R: Ring>(
        &mut self,
        program: &Program,
        precision: &Precision,
        step: usize,
        total_share: f64,
        received: &[Matrix<R>],
    ) -> Result<Handed<R>, Error> {
        let parts = program.steps[step].receives.iter().zip(received);
        let values = parts.map(|(receive, matrix)| decode(program, precision, receive, total_share, matrix));
        self.advance(program, precision, step, values.collect(), received[0].ring())
    }

    fn advance<R: Ring>(
        &mut self,
        program: &Program,
        precision: &Precision,
        step: usize,
        mut values: Vec<Values>,
        ring: R,
    ) -> Result<Handed<R>, Error> {
        let encode = |values: &Values, operator: usize| {
            values.encode(ring, precision.operators[operator].input, operator + 1)
        };
        in_the_clear(&program.steps[step].layers, &mut values);
        match &program.steps[step].then {
            Then::Parts(parts) => {
                let mut elements = Secret::new(Vec::new());
                for part in parts {
                    let value = &values[part.value];
                    let encoded = match part.operator {
                        Some(operator) => encode(value, operator)?,
                        None => value.encode(ring, precision.sum(), step + 1)?,
                    };
                    elements.expose_mut().extend_from_slice(encoded.elements());
                }
                let (rows, columns) = (program.shared_size(step), values[0].columns);
                Ok(Handed::Shared(Matrix::new(ring, rows, columns, elements.expose().clone())?))
            }
            Then::Activate { activations, feeds } => {
                values[0].activate(activations);
                Ok(Handed::Shared(encode(&values[0], *feeds)?))
            }
            Then::Label(activations) => {
                let scores = values.last_mut().ok_or(Error::Local { what: "scores" })?;
                scores.activate(activations);
                Ok(Handed::Labels(scores.labels(program.classes)))
            }
            Then::FirstState { feeds } => {
                let (_, state) = gates(&values[0], 0, &values[1]);
                Ok(Handed::Shared(encode(&state, *feeds)?))
            }
            Then::State { feeds } => {
                values[0].saturate(f64::powi(0.5, precision.gate.fractional_bits() as i32));
                Ok(Handed::Shared(encode(&values[0], *feeds)?))
            }
            Then::Gates { time_step } => {
                if values.len() > 1 {
                    self.input_gates = values.pop();
                }
                let inputs =
                    self.input_gates.as_ref().ok_or(Error::Local { what: "input gates of later steps" })?;
                let (update, new) = gates(inputs, time_step - 1, &values[0]);
                let layer = program.gru.map_or(0, |gru| gru.hidden_operator) + 1;
                let z = update.encode(ring, precision.gate, layer)?;
                let u = new.encode(ring, precision.update, layer)?;
                let elements = [z.elements(), u.elements()].concat();
                Ok(Handed::Shared(Matrix::new(ring, z.rows() + u.rows(), z.columns(), elements)?))
            }
        }
    }
}

/// The scores behind the last step: what its client takes the class of. The last class's is 0 if it was not computed.
pub(crate) fn last_scores<R: Ring>(
    program: &Program,
    precision: &Precision,
    total_share: f64,
    received: &[Matrix<R>],
) -> Values {
    let step = &program.steps[program.steps.len() - 1];
    let parts = step.receives.iter().zip(received);
    let mut values =
        parts.map(|(receive, matrix)| decode(program, precision, receive, total_share, matrix)).collect();
    in_the_clear(&step.layers, &mut values);
    let mut values = values.pop().unwrap_or(Values::new(0, Vec::new()));
    if let Then::Label(activations) = &step.then {
        values.activate(activations);
    }
    values.numbers.resize(program.classes * values.columns, 0.0);
    values
}

/// The update gate z and (1 - z) n of one step, from the input gates of some steps and the hidden gates of this one.
fn gates(inputs: &Values, step: usize, hidden: &Values) -> (Values, Values) {
    let size = hidden.numbers.len() / hidden.columns.max(1) / 3;
    let columns = hidden.columns;
    let mut update = Vec::with_capacity(size * columns);
    let mut new = Vec::with_capacity(size * columns);
    for i in 0..size {
        let input = |gate: usize| inputs.row(step * 3 * size + gate * size + i);
        let recurrent = |gate: usize| hidden.row(gate * size + i);
        for column in 0..columns {
            let reset = sigmoid(input(0)[column] + recurrent(0)[column]);
            let z = sigmoid(input(1)[column] + recurrent(1)[column]);
            let n = tanh(input(2)[column] + reset * recurrent(2)[column]);
            update.push(z);
            new.push((1.0 - z) * n);
        }
    }
    (Values::new(columns, update), Values::new(columns, new))
}

/// Elements to numbers, products to one sample's numbers.
fn decode<R: Ring>(
    program: &Program,
    precision: &Precision,
    receive: &Receive,
    total_share: f64,
    matrix: &Matrix<R>,
) -> Values {
    let ring = matrix.ring();
    let in_format = |format: FixedPoint| {
        let numbers = matrix.elements().iter().map(|&x| format.decode(ring, x)).collect();
        Values::new(matrix.columns(), numbers)
    };
    let (operator, positions) = match receive {
        Receive::Update { .. } => return in_format(precision.update),
        Receive::Sum { .. } => return in_format(precision.sum()),
        Receive::Bias { operator } | Receive::Vector { operator } => (*operator, 1),
        Receive::Outputs { operator, count, .. } => (*operator, *count),
    };
    let scale = total_share * f64::powi(2.0, precision.operators[operator].product_bits() as i32);
    let columns = matrix.columns() / positions.max(1);
    let mut numbers = vec![0.0; matrix.rows() * matrix.columns()];
    for j in 0..matrix.rows() {
        for (position, outputs) in matrix.row(j).chunks_exact(columns.max(1)).enumerate() {
            let target = program.operators[operator].target(j, position) * columns;
            for (number, &x) in numbers[target..].iter_mut().zip(outputs) {
                *number = ring.centre(x) as f64 / scale;
            }
        }
    }
    Values::new(columns, numbers)
}

impl Operator {
    /// The operator in double precision, on samples and to samples.
    pub(crate) fn apply_numbers(&self, weight: &[f64], bias: &[f64], samples: &Values) -> Values {
        let count = samples.columns();
        let mut outputs = vec![0.0; self.output_size() * count];
        for position in 0..self.positions {
            for (j, row) in weight.chunks_exact(self.shape.d_in).enumerate() {
                let target = &mut outputs[self.target(j, position) * count..][..count];
                target.fill(bias[j]);
                for (o, w) in row.iter().enumerate() {
                    if let Some(source) = self.source(o, position) {
                        let numbers = &samples.numbers()[source * count..][..count];
                        target.iter_mut().zip(numbers).for_each(|(y, x)| *y += w * x);
                    }
                }
            }
        }
        Values::new(count, outputs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_federation::clear::predicted;

    use super::*;

    proptest! {
        #[test]
        fn labels_are_those_of_the_largest_scores(
            classes in 2usize..5,
            fewer in any::<bool>(),
            scores in prop::collection::vec(-2i8..3, 0..60),
        ) {
            let rows = classes - usize::from(fewer);
            let columns = scores.len() / rows;
            let numbers: Vec<f64> = scores[..rows * columns].iter().map(|&score| f64::from(score)).collect();
            let found = Values::new(columns, numbers.clone()).labels(classes);
            prop_assert_eq!(found.len(), columns);
            for (column, label) in found.into_iter().enumerate() {
                let score = |row: usize| if row < rows { numbers[row * columns + column] } else { 0.0 };
                let scores: Vec<f64> = (0..classes).map(score).collect();
                prop_assert_eq!(usize::from(label), predicted(&scores));
            }
        }
    }
}

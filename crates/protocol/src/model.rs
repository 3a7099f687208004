//! A client's numbers as elements: models and samples, and what is published about their size.

use secsv_algebra::{FixedPoint, Matrix, Ring};
use secsv_federation::{Activation, Limits, TestSet, Weights};
use zeroize::Zeroize;

use crate::{
    Error,
    activation::{Values, in_the_clear},
    precision::{Precision, Ranges, exponent},
    program::{Input, Program, Receive, Then},
    session::Federation,
};

/// One operator's weights and biases as elements.
#[derive(Clone)]
pub struct EncodedOperator<R: Ring> {
    /// `d_out` x `d_in`.
    pub weight: Matrix<R>,
    /// At the scale of products.
    pub bias: Vec<u64>,
}

/// A model as elements (the paper's theta, operator by operator).
#[derive(Clone)]
pub struct EncodedModel<R: Ring> {
    /// In the program's order.
    pub operators: Vec<EncodedOperator<R>>,
}

impl<R: Ring> Zeroize for EncodedModel<R> {
    fn zeroize(&mut self) {
        for operator in &mut self.operators {
            operator.weight.zeroize();
            operator.bias.zeroize();
        }
    }
}

impl<R: Ring> EncodedModel<R> {
    /// Encodes a model times its owner's share of the training data; weights beyond the published norms are an error that
    /// names the layer.
    pub fn new(
        program: &Program,
        precision: &Precision,
        ring: R,
        weights: &Weights,
        share: f64,
    ) -> Result<Self, Error> {
        let operators = program.operators.iter().enumerate().map(|(index, operator)| {
            let (format, layer) = (precision.operators[index], index + 1);
            let (d_out, d_in) = (operator.shape.d_out, operator.shape.d_in);
            let (mut numbers, mut biases) = operator.numbers(weights);
            numbers.iter_mut().chain(&mut biases).for_each(|number| *number *= share);
            for (row, bias) in numbers.chunks_exact_mut(d_in).zip(&mut biases) {
                if is_cut_off(format.weight, row, *bias, share) {
                    row.iter_mut().for_each(|number| *number = cut_off(format.weight, *number));
                    *bias = cut_off(format.bias, *bias);
                }
            }
            let most = share * f64::powi(2.0, format.weight.exponent());
            let weight =
                format.weight.encode_within(ring, &numbers, most).map_err(|_| Error::Norm { layer })?;
            let weight = Matrix::new(ring, d_out, d_in, weight)?;
            let bias = format.bias.encode_within(ring, &biases, most).map_err(|_| Error::Norm { layer })?;
            let encoded = EncodedOperator { weight, bias };
            let norm = format.weight.exponent() + format.weight.fractional_bits() as i32;
            let of_bias = format.bias.fractional_bits().saturating_sub(format.weight.fractional_bits());
            encoded.check_norm(share * f64::powi(2.0, norm), of_bias, layer)?;
            Ok(encoded)
        });
        Ok(Self { operators: operators.collect::<Result<_, Error>>()? })
    }

    /// Models one below the other, operator by operator, and zeros up to so many rows.
    pub(crate) fn stack(models: &[Self], heights: impl Iterator<Item = usize>) -> Result<Self, Error> {
        let stacked = heights.enumerate().map(|(index, height)| {
            let operators = || models.iter().map(|model| &model.operators[index]);
            let no_models = Error::Unsupported { what: "a round batch without models" };
            let first = operators().next().ok_or(no_models)?;
            let (ring, d_in) = (first.weight.ring(), first.weight.columns());
            // With room from the start: secrets that were moved would stay where they were.
            let mut bias = Vec::with_capacity(height);
            operators().for_each(|operator| bias.extend_from_slice(&operator.bias));
            bias.resize(height, 0);
            let mut elements = Vec::with_capacity(height * d_in);
            operators().for_each(|operator| elements.extend_from_slice(operator.weight.elements()));
            elements.resize(height * d_in, 0);
            Ok(EncodedOperator { weight: Matrix::new(ring, height, d_in, elements)?, bias })
        });
        Ok(Self { operators: stacked.collect::<Result<_, Error>>()? })
    }

    /// The sum of models.
    pub fn sum(models: &[&Self]) -> Result<Self, Error> {
        let first = models.first().ok_or(Error::Unsupported { what: "the sum of no models" })?;
        let operators = (0..first.operators.len()).map(|index| {
            let like = &first.operators[index];
            let ring = like.weight.ring();
            let mut weight = Matrix::zero(ring, like.weight.rows(), like.weight.columns());
            let mut bias = vec![0; like.bias.len()];
            for model in models {
                let operator = &model.operators[index];
                weight = weight.add(&operator.weight)?;
                bias.iter_mut().zip(&operator.bias).for_each(|(sum, &b)| *sum = ring.add(*sum, b));
            }
            Ok(EncodedOperator { weight, bias })
        });
        Ok(Self { operators: operators.collect::<Result<_, Error>>()? })
    }
}

/// Whether rounding could lead a row beyond its share of its norm: its numbers are cut off then, by up to a unit each, which
/// makes them smaller.
pub(crate) fn is_cut_off(format: FixedPoint, row: &[f64], bias: f64, share: f64) -> bool {
    let sum: f64 = row.iter().map(|weight| weight.abs()).sum::<f64>() + bias.abs();
    let rounding = (row.len() + 1) as f64 * f64::powi(0.5, format.fractional_bits() as i32 + 1);
    sum + rounding > share * f64::powi(2.0, format.exponent())
}

/// The next number towards zero that has an encoding.
fn cut_off(format: FixedPoint, number: f64) -> f64 {
    let scale = f64::powi(2.0, format.fractional_bits() as i32);
    (number * scale).trunc() / scale
}

impl<R: Ring> EncodedOperator<R> {
    /// The rounded weights and biases of every row add up to no more than `most`, a bias counted at the weights' scale: what
    /// the choice of formats relies on.
    fn check_norm(&self, most: f64, bias_bits: u32, layer: usize) -> Result<(), Error> {
        let ring = self.weight.ring();
        for (row, &bias) in self.bias.iter().enumerate() {
            let weights: f64 =
                self.weight.row(row).iter().map(|&w| ring.centre(w).unsigned_abs() as f64).sum();
            let bias = ring.centre(bias).unsigned_abs() as f64 / f64::powi(2.0, bias_bits as i32);
            if weights + bias > most {
                return Err(Error::Norm { layer });
            }
        }
        Ok(())
    }

    /// Weights times columns plus biases: the slow, obvious product.
    pub fn apply(&self, columns: &Matrix<R>) -> Result<Matrix<R>, Error> {
        let (product, ring) = (self.weight.multiply(columns)?, self.weight.ring());
        Ok(Matrix::from_fn(ring, product.rows(), product.columns(), |j, k| {
            ring.add(product.at(j, k), self.bias[j])
        }))
    }
}

/// A test set's samples, after what the owner does to them: a row for each number, a column for each sample.
pub fn sample_values(program: &Program, test_set: &TestSet) -> Values {
    let (size, count) = (program.input_size, test_set.len());
    let mut numbers = vec![0.0; size * count];
    for (column, sample) in test_set.features().chunks_exact(size.max(1)).enumerate() {
        for (row, &number) in sample.iter().enumerate() {
            numbers[row * count + column] = f64::from(number);
        }
    }
    let mut values = Values::new(count, numbers);
    values.activate(&program.prelude);
    values
}

/// Samples that are looked at to find out how large activations get.
const CALIBRATION_SAMPLES: usize = 256;
/// Bits of room above the largest activation found: coalitions' models are not among those tried.
const MARGIN: i32 = 1;
/// An exponent beyond which there is no format anyway.
const MOST: i32 = 64;

/// What a client publishes: the norms of its own models, and how large inputs get on its own samples under the models it knows;
/// outputs too where nobody reads them.
pub fn ranges(federation: &Federation, own: &[&Weights], known: &[&Weights], test_set: &TestSet) -> Ranges {
    let program = &federation.program;
    let largest_norm = |index: usize| {
        let operator = &program.operators[index];
        let norms = own.iter().flat_map(|weights| {
            let (rows, biases) = operator.numbers(weights);
            let norms: Vec<f64> = rows
                .chunks_exact(operator.shape.d_in)
                .zip(biases)
                .map(|(row, bias)| row.iter().map(|w| w.abs()).sum::<f64>() + bias.abs())
                .collect();
            norms
        });
        exponent(norms.fold(0.0, f64::max))
    };
    let mut norms: Vec<i32> = (0..program.operators.len()).map(largest_norm).collect();
    norms.resize(program.published(), 0);
    let samples = sample_values(program, test_set);
    let mut largest = vec![0.0f64; program.published()];
    let mut outputs = largest.clone();
    largest[0] = samples.numbers().iter().fold(0.0, |most, x| most.max(x.abs()));
    let mut inputs: Vec<i32> = vec![exponent(largest[0])];
    if largest.len() > 1 {
        let few = first_columns(&samples, CALIBRATION_SAMPLES);
        for weights in own.iter().chain(known) {
            let found = (&mut largest[..], &mut outputs[..]);
            match &program.wiring {
                Some(wiring) => wiring.follow(program, weights, &few, found),
                None if program.is_joined() => follow_joined(program, weights, &few, found.0),
                None => follow(program, weights, &few, found),
            }
        }
    }
    for (index, &largest) in largest.iter().enumerate().skip(1) {
        inputs.push(if takes_bounded(program, index) { 0 } else { exponent(largest) + MARGIN });
    }
    let publishes = |index: usize| federation.publishes_outputs() && index + 1 < largest.len();
    let output = |(index, largest)| if publishes(index) { exponent(largest).min(MOST) } else { 0 };
    let outputs = outputs.into_iter().enumerate().map(output).collect();
    Ranges { norms, inputs, outputs }
}

/// The ranges that limits stand for, in the place of what is measured.
pub(crate) fn limit_ranges(program: &Program, limits: &Limits) -> Result<Ranges, Error> {
    let count = program.published();
    let no_hidden = Error::Unsupported { what: "limits of a model of several layers: `hidden` is missing" };
    let hidden = match limits.hidden {
        _ if count == 1 => 0,
        Some(hidden) => exponent(hidden).min(MOST),
        None => return Err(no_hidden),
    };
    let mut norms = vec![exponent(limits.norm); program.operators.len()];
    norms.resize(count, 0);
    let input = |index| match index {
        0 => exponent(limits.input),
        _ if takes_bounded(program, index) => 0,
        _ => hidden,
    };
    let outputs = (0..count).map(|index| if index + 1 < count { hidden } else { 0 }).collect();
    Ok(Ranges { norms, inputs: (0..count).map(input).collect(), outputs })
}

/// Refuses models and samples that exceed limits: what is between layers is counted where it leaves its range.
pub(crate) fn check_limits(found: &Ranges, limits: &Ranges) -> Result<(), Error> {
    let norms =
        limits.norms.iter().zip(&found.norms).enumerate().map(|(at, of)| ("weights of a row", at, of));
    let inputs = limits.inputs.iter().zip(&found.inputs).enumerate().map(|(at, of)| ("inputs", at, of));
    match norms.chain(inputs.take(1)).find(|(.., (limit, found))| found > limit) {
        Some((what, layer, (&limit, &found))) => Err(Error::Limit { what, layer: layer + 1, limit, found }),
        None => Ok(()),
    }
}

/// Whether an operator's inputs are at most 1, whatever the samples.
fn takes_bounded(program: &Program, index: usize) -> bool {
    let mut before = program.steps.iter().filter(|step| step.feeds() == Some(index));
    program.wiring.is_none() && !program.is_joined() && before.all(|step| is_bounded(&step.then))
}

/// Whether what a step hands on is at most 1.
fn is_bounded(then: &Then) -> bool {
    match then {
        Then::Activate { activations, .. } => {
            let makes_no_larger = |activation: &&Activation| {
                matches!(
                    activation,
                    Activation::MaxPool(_)
                        | Activation::AveragePool(_)
                        | Activation::Transpose { .. }
                        | Activation::Relu
                )
            };
            matches!(
                activations.iter().rev().find(|activation| !makes_no_larger(activation)),
                Some(
                    Activation::Sigmoid
                        | Activation::Tanh
                        | Activation::Softmax(_)
                        | Activation::HardTanh
                        | Activation::HardSigmoid
                )
            )
        }
        Then::FirstState { .. } | Then::State { .. } => true,
        Then::Gates { .. } | Then::Label(_) | Then::Parts(_) => false,
    }
}

pub(crate) fn first_columns(values: &Values, most: usize) -> Values {
    let columns = values.columns().min(most);
    let rows = values.numbers().chunks_exact(values.columns().max(1));
    Values::new(columns, rows.flat_map(|row| row[..columns].to_vec()).collect())
}

/// Runs a model whose layers are joined or normalised on samples in double precision, and notes the largest input of every operator.
fn follow_joined(program: &Program, weights: &Weights, samples: &Values, inputs: &mut [f64]) {
    let mut shared: Vec<Vec<Values>> = Vec::new();
    for step in &program.steps {
        let outputs = |operator: usize, input: &Input| {
            let map = &program.operators[operator];
            let (rows, biases) = map.numbers(weights);
            let taken = match *input {
                Input::Data => Some(samples),
                Input::Step(step) => {
                    let parts = program.steps[step].parts().iter();
                    parts
                        .zip(&shared[step])
                        .find(|(part, _)| part.operator == Some(operator))
                        .map(|(_, of)| of)
                }
            };
            map.apply_numbers(&rows, &biases, taken.unwrap_or(samples))
        };
        let received = |receive: &Receive| match receive {
            Receive::Outputs { operator, input, .. } => outputs(*operator, input),
            Receive::Sum { parts } => {
                let parts: Vec<&Values> = parts.iter().map(|&(step, part)| &shared[step][part]).collect();
                Values::sum(&parts)
            }
            Receive::Vector { operator } | Receive::Bias { operator } => {
                Values::new(1, program.operators[*operator].numbers(weights).1)
            }
            Receive::Update { .. } => Values::new(samples.columns(), Vec::new()),
        };
        let mut values: Vec<Values> = step.receives.iter().map(received).collect();
        in_the_clear(&step.layers, &mut values);
        for part in step.parts() {
            let largest = values[part.value].numbers().iter().fold(0.0f64, |most, x| most.max(x.abs()));
            if let Some(operator) = part.operator {
                inputs[operator] = inputs[operator].max(largest);
            }
        }
        shared.push(step.parts().iter().map(|part| values[part.value].clone()).collect());
    }
}

/// Runs a model on samples in double precision and notes the largest input and the largest output of every operator.
fn follow(
    program: &Program,
    weights: &Weights,
    samples: &Values,
    (inputs, outputs): (&mut [f64], &mut [f64]),
) {
    let largest = |values: &Values| values.numbers().iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let mut current = samples.clone();
    for step in &program.steps {
        let Some(Receive::Outputs { operator: index, input, .. }) = step.receives.first() else { continue };
        if !matches!(step.then, Then::Activate { .. } | Then::Label(_)) {
            // Behind a recurrent unit only its state matters, which is bounded: small random states will do.
            let hidden = program.hidden();
            current = Values::new(samples.columns(), vec![1.0; hidden * samples.columns()]);
            continue;
        }
        let operator = &program.operators[*index];
        if *input != Input::Data {
            inputs[*index] = inputs[*index].max(largest(&current));
        }
        let (rows, biases) = operator.numbers(weights);
        current = operator.apply_numbers(&rows, &biases, &current);
        outputs[*index] = outputs[*index].max(largest(&current));
        if let Then::Activate { activations, .. } = &step.then {
            current.activate(activations);
        }
    }
}

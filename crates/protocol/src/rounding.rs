//! How far fixed point may be from double precision, computed for every score.
//!
//! Write x for a layer's input in double precision and x' for the fixed-point one with |x' - x| <= e, entry by entry.
//! A coalition of m members with shares w_i of the training data, W together, has the mean of their models: theta = sum_i
//! (w_i / W) theta_i in double precision, (1 / W) sum_i round(w_i theta_i) in fixed point. The products themselves are exact
//! there, so for one output of a linear layer
//!
//! ```text
//! y' - y =  (1/W) sum_i (round(w_i theta_i) - w_i theta_i) x'    at most (m / W) 2^-(f_w + 1) sum |x'|
//!         + theta (x' - x)                                      at most sum |theta| e
//!         + (1/W) sum_i (round(w_i b_i) - w_i b_i)              at most (m / W) 2^-(f_b + 1)
//! ```
//!
//! (where scores are compared with the last class's, theta is what the rows are above the last one) with f_w and f_b
//! fractional bits.
//! Activations round batch errors by no more than their Lipschitz constants: relu 1, sigmoid 1/4, tanh 1, softmax 1/2 in
//! the largest entry (the rows of its Jacobian have L1 norm 2 s (1 - s)), a square e (2 |y| + e). Encoding adds half a
//! unit, 2^-(f_x + 1). A recurrent unit is followed step by step through r, z, n and h. The rounding of doubles is
//! counted too, generously; it is smaller by orders of magnitude.
//!
//! Under BlindSV an output is cut before its activation, which is exact but for rounded slopes: T differs from the output by less than one unit of what is
//! left, 2^dropped / (W kappa 2^(f_w + f_x)). A bias is multiplied by a public factor that is rounded to an integer; where layers are
//! joined, so is whatever is brought to scale.

mod joined;
mod wired;

use std::sync::Arc;

use secsv_algebra::FixedPoint;
use secsv_federation::{Activation, Coalition, RoundId, TestSet, Weights};

use crate::{
    Error,
    activation::Values,
    blindsv::hops::{Hops, Scales, factor},
    model::{is_cut_off, sample_values},
    precision::Precision,
    program::{DecryptionStep, Input, Operator, Program, Receive, Then},
    session::{Agreed, Session},
};

/// A member of a coalition.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its share of the round's training data.
    pub share: f64,
    /// Its model.
    pub model: &'a Weights,
}

/// Scores in double precision, and how far off those in fixed point may be.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreBounds {
    samples: usize,
    scores: Vec<f64>,
    bounds: Vec<f64>,
}

impl ScoreBounds {
    /// Of a coalition's model on some samples.
    pub fn new(
        program: &Program,
        precision: &Precision,
        members: &[Member<'_>],
        samples: &TestSet,
    ) -> Result<Self, Error> {
        Ok(Self::of_coalition(&RoundedCoalition::new(program, precision, members)?, samples))
    }

    /// Of a coalition's model of a round on some samples under BlindSV.
    pub fn masked(
        session: &Arc<Session>,
        (round, coalition): (RoundId, Coalition),
        members: &[Member<'_>],
        samples: &TestSet,
    ) -> Result<Self, Error> {
        let Agreed::BlindSv(session) = session.agreed() else {
            return Err(Error::Unsupported { what: "masks of another protocol" });
        };
        let rounded = RoundedCoalition::new(session.program(), &session.precision, members)?;
        let scales = session.scales(round, coalition);
        let masked = Some(Masked { scales: &scales, hops: session.hops() });
        Ok(Self::of_coalition(&RoundedCoalition { masked, ..rounded }, samples))
    }

    fn of_coalition(coalition: &RoundedCoalition<'_>, samples: &TestSet) -> Self {
        let scores = coalition.follow(sample_values(coalition.program, samples));
        Self { samples: scores.columns, scores: scores.numbers, bounds: scores.errors }
    }

    /// A sample's score for a class, in double precision: above the last class's, where only such are computed.
    pub fn score(&self, sample: usize, class: usize) -> f64 {
        self.scores[class * self.samples + sample]
    }

    /// How far the fixed-point score may be from it.
    pub fn bound(&self, sample: usize, class: usize) -> f64 {
        self.bounds[class * self.samples + sample]
    }

    /// How far the best score of a sample is ahead of the second.
    pub fn margin(&self, sample: usize) -> f64 {
        let mut scores: Vec<f64> = self.of(&self.scores, sample).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        scores.first().zip(scores.get(1)).map_or(f64::INFINITY, |(best, second)| best - second)
    }

    /// Predictions in fixed and floating point are the same wherever the margin exceeds this.
    pub fn margin_bound(&self, sample: usize) -> f64 {
        let mut bounds: Vec<f64> = self.of(&self.bounds, sample).collect();
        bounds.sort_by(|a, b| b.total_cmp(a));
        bounds.iter().take(2).sum()
    }

    fn of<'a>(&'a self, all: &'a [f64], sample: usize) -> impl Iterator<Item = f64> + 'a {
        all.iter().skip(sample).step_by(self.samples.max(1)).copied()
    }
}

/// Numbers in double precision (a row for each number of a sample, a column for each sample) and a bound on what is
/// wrong with the fixed-point ones.
#[derive(Clone)]
struct Tracked {
    columns: usize,
    numbers: Vec<f64>,
    errors: Vec<f64>,
}

impl Tracked {
    fn rows(&self) -> usize {
        self.numbers.len() / self.columns.max(1)
    }

    fn at(&self, row: usize, column: usize) -> (f64, f64) {
        let place = row * self.columns + column;
        (self.numbers[place], self.errors[place])
    }

    /// Numbers are rounded to a format.
    fn encoded(mut self, format: FixedPoint) -> Self {
        self.errors.iter_mut().for_each(|error| *error += half_unit(format));
        self
    }

    fn activated(mut self, activations: &[Activation]) -> Self {
        for activation in activations {
            let before = std::mem::take(&mut self.numbers);
            let mut after = Values::new(self.columns, before.clone());
            after.activate(std::slice::from_ref(activation));
            self.numbers = after.numbers().to_vec();
            match *activation {
                Activation::Relu | Activation::Relu6 | Activation::HardTanh => {}
                Activation::HardSigmoid => self.errors.iter_mut().for_each(|e| *e /= 6.0),
                // The steepest slopes of both are below 1.13.
                Activation::Gelu | Activation::Silu => self.errors.iter_mut().for_each(|e| *e *= 1.13),
                Activation::LeakyRelu(factor) | Activation::Elu(factor) => {
                    self.errors.iter_mut().for_each(|e| *e *= factor.abs().max(1.0));
                }
                // The largest number is off by no more than the number that is off most, a mean by the mean.
                Activation::MaxPool(_) | Activation::AveragePool(_) | Activation::Transpose { .. } => {
                    let mut errors = Values::new(self.columns, std::mem::take(&mut self.errors));
                    errors.activate(std::slice::from_ref(activation));
                    self.errors = errors.numbers().to_vec();
                }
                Activation::Sigmoid => self.errors.iter_mut().for_each(|e| *e = (*e / 4.0).min(1.0)),
                Activation::Tanh => self.errors.iter_mut().for_each(|e| *e = e.min(2.0)),
                Activation::Square => {
                    self.errors.iter_mut().zip(&before).for_each(|(e, y)| *e *= 2.0 * y.abs() + *e);
                }
                Activation::Softmax(width) => self.after_softmax(width),
            }
            for (error, number) in self.errors.iter_mut().zip(&self.numbers) {
                *error += DOUBLES * (1.0 + number.abs());
            }
        }
        self
    }

    fn after_softmax(&mut self, width: usize) {
        let columns = self.columns;
        for run in self.errors.chunks_mut((width * columns).max(1)) {
            for column in 0..columns {
                let largest = run.iter().skip(column).step_by(columns).fold(0.0f64, |most, e| most.max(*e));
                run.iter_mut().skip(column).step_by(columns).for_each(|e| *e = (largest / 2.0).min(1.0));
            }
        }
    }
}

/// What an operation on doubles may be off by, relatively, activations included.
const DOUBLES: f64 = 8.0 * f64::EPSILON;

fn half_unit(format: FixedPoint) -> f64 {
    f64::powi(0.5, format.fractional_bits() as i32 + 1)
}

/// A coalition's members.
struct RoundedCoalition<'a> {
    program: &'a Program,
    precision: &'a Precision,
    members: Vec<Member<'a>>,
    /// The members' shares together.
    total: f64,
    /// Under BlindSV.
    masked: Option<Masked<'a>>,
}

/// What rounds a coalition's hidden numbers under BlindSV.
#[derive(Clone, Copy)]
struct Masked<'a> {
    /// The coalition's public numbers.
    scales: &'a Scales,
    hops: &'a Hops,
}

impl<'a> RoundedCoalition<'a> {
    fn new(program: &'a Program, precision: &'a Precision, members: &[Member<'a>]) -> Result<Self, Error> {
        let total: f64 = members.iter().map(|member| member.share).sum();
        if total == 0.0 {
            return Err(Error::Unsupported { what: "the mean of no models" });
        }
        Ok(Self { program, precision, members: members.to_vec(), total, masked: None })
    }

    fn follow(&self, samples: Values) -> Tracked {
        let (program, precision) = (self.program, self.precision);
        let numbers = samples.numbers().to_vec();
        let errors = vec![0.0; numbers.len()];
        let data = Tracked { columns: samples.columns(), numbers, errors };
        let data = data.encoded(precision.operators[0].input);
        if let (Some(masked), Some(wiring)) = (self.masked, &program.wiring) {
            return self.with_last_class(self.follow_wired(data, wiring, masked));
        }
        if program.is_joined() {
            return self.with_last_class(self.follow_joined(&data));
        }
        let mut shared: Vec<Tracked> = Vec::new();
        let mut input_gates = Vec::new();
        let (earlier, last) = program.steps.split_at(program.steps.len() - 1);
        let receive = |step: &DecryptionStep, shared: &[Tracked]| -> Vec<Tracked> {
            step.receives.iter().map(|receive| self.receive(receive, &data, shared)).collect()
        };
        let encoded = |tracked: Tracked, feeds: usize| tracked.encoded(precision.operators[feeds].input);
        for (index, step) in earlier.iter().enumerate() {
            let mut received = receive(step, &shared);
            let second = received.split_off(1);
            let first = received.remove(0);
            shared.push(match &step.then {
                Then::Activate { activations, feeds } => match self.masked {
                    Some(masked) => self.hidden(index, first, activations, masked),
                    None => encoded(first.activated(activations), *feeds),
                },
                Then::FirstState { feeds } => encoded(gates(&first, 0, &second[0]).1, *feeds),
                Then::State { feeds } => encoded(first, *feeds),
                Then::Gates { time_step } => {
                    input_gates.extend(second);
                    let (z, u) = gates(&input_gates[0], time_step - 1, &first);
                    let (z, u) = (z.encoded(precision.gate), u.encoded(precision.update));
                    Tracked {
                        columns: z.columns,
                        numbers: [z.numbers, u.numbers].concat(),
                        errors: [z.errors, u.errors].concat(),
                    }
                }
                Then::Label(activations) => first.activated(activations),
                Then::Parts(_) => first,
            });
        }
        let mut scores = receive(&last[0], &shared).remove(0);
        if let Then::Label(activations) = &last[0].then {
            scores = scores.activated(activations);
        }
        self.with_last_class(scores)
    }

    /// What the last class is above itself is 0, and exact.
    fn with_last_class(&self, mut scores: Tracked) -> Tracked {
        scores.numbers.resize(self.program.classes * scores.columns, 0.0);
        scores.errors.resize(self.program.classes * scores.columns, 0.0);
        scores
    }

    fn receive(&self, receive: &Receive, data: &Tracked, shared: &[Tracked]) -> Tracked {
        match receive {
            Receive::Outputs { operator, input, first, count } => {
                let input = match input {
                    Input::Data => data,
                    Input::Step(step) => &shared[*step],
                };
                self.outputs(*operator, input, *first, *count)
            }
            Receive::Bias { operator } => {
                let rows = self.program.operators[*operator].shape.d_in;
                let (numbers, errors) = (vec![0.0; rows * data.columns], vec![0.0; rows * data.columns]);
                self.outputs(*operator, &Tracked { columns: data.columns, numbers, errors }, 0, 1)
            }
            Receive::Update { gates, state } => update(&shared[*gates], &shared[*state]),
            // Of joined layers alone.
            Receive::Vector { .. } | Receive::Sum { .. } => data.clone(),
        }
    }

    /// Results of an operator's outputs without the bits that BlindSV drops.
    fn hidden(
        &self,
        operator: usize,
        mut outputs: Tracked,
        activations: &[Activation],
        Masked { scales, hops }: Masked<'_>,
    ) -> Tracked {
        let bits = scales.dropped[operator] as i32 - self.precision.operators[operator].product_bits() as i32;
        let hop = &hops.all[operator];
        // Sums of a pool are cut: that is as if each of the numbers were cut to a part of the unit.
        let unit =
            f64::powi(2.0, bits) / (self.total * scales.kappas[operator] * factor(hop.before.as_ref()));
        outputs.errors.iter_mut().for_each(|error| *error += unit);
        self.gated(&hop.gate, outputs, activations, unit)
    }

    /// How far the factor of an operator's biases may be off, relatively.
    fn factor_error(&self, operator: usize) -> f64 {
        // Where sums are brought to scale, these factors are powers of two.
        let is_rounded = self.program.wiring.is_none();
        let factor = self.masked.filter(|_| is_rounded).map_or(1, |masked| masked.scales.factors[operator]);
        match factor {
            0 => 1.0,
            1 => 0.0,
            factor => 0.5 / (factor as f64 - 0.5),
        }
    }

    /// A linear layer at some positions.
    fn outputs(&self, index: usize, input: &Tracked, first: usize, count: usize) -> Tracked {
        let operator = &self.program.operators[index];
        let format = self.precision.operators[index];
        let (d_out, d_in) = (operator.shape.d_out, operator.shape.d_in);
        // Times their shares.
        let models: Vec<(f64, Vec<f64>, Vec<f64>)> = self
            .members
            .iter()
            .map(|member| {
                let (mut weights, mut biases) = operator.numbers(member.model);
                weights.iter_mut().chain(&mut biases).for_each(|number| *number *= member.share);
                (member.share, weights, biases)
            })
            .collect();
        let cut: Vec<bool> = (0..d_out)
            .map(|j| {
                models.iter().any(|(share, weights, biases)| {
                    is_cut_off(format.weight, &weights[j * d_in..(j + 1) * d_in], biases[j], *share)
                })
            })
            .collect();
        let (of_each, of_factor) = (models.len() as f64, self.factor_error(index));
        let size = d_out * count * input.columns;
        let mut outputs =
            Tracked { columns: input.columns, numbers: vec![0.0; size], errors: vec![0.0; size] };
        for position in 0..count {
            for column in 0..input.columns {
                let window = window(operator, input, first + position, column);
                let inputs: f64 = window.iter().map(|(_, x, e)| x.abs() + e).sum();
                for j in 0..d_out {
                    let mut y = 0.0;
                    let units = if cut[j] { 2.0 } else { 1.0 };
                    let rounding = half_unit(format.weight) * inputs + half_unit(format.bias);
                    let mut error = of_each * units * rounding;
                    let mut magnitude = 0.0;
                    for (_, weights, biases) in &models {
                        y += biases[j];
                        error += biases[j].abs() * of_factor;
                        magnitude += biases[j].abs();
                        for &(o, x, e) in &window {
                            let weight = weights[j * d_in + o];
                            y += weight * x;
                            error += weight.abs() * e;
                            magnitude += (weight * x).abs();
                        }
                    }
                    let doubles = (d_in + models.len()) as f64 * DOUBLES * magnitude;
                    let place = operator.target(j, position) * input.columns + column;
                    outputs.numbers[place] = y / self.total;
                    outputs.errors[place] = (error + 2.0 * doubles) / self.total;
                }
            }
        }
        outputs
    }
}

/// What one position of an operator sees of a sample: place among its inputs, number, error. Padding is exact.
fn window(operator: &Operator, input: &Tracked, position: usize, column: usize) -> Vec<(usize, f64, f64)> {
    let inputs = (0..operator.shape.d_in).filter_map(|o| operator.source(o, position).map(|row| (o, row)));
    inputs
        .map(|(o, row)| {
            let (x, e) = input.at(row, column);
            (o, x, e)
        })
        .collect()
}

/// The update gate z and u = (1 - z) n of a step.
fn gates(inputs: &Tracked, time_step: usize, hidden: &Tracked) -> (Tracked, Tracked) {
    use secsv_federation::clear::{sigmoid, tanh};
    let (size, columns) = (hidden.rows() / 3, hidden.columns);
    let empty = || Tracked { columns, numbers: Vec::new(), errors: Vec::new() };
    let (mut update, mut new) = (empty(), empty());
    for (i, column) in (0..size).flat_map(|i| (0..columns).map(move |column| (i, column))) {
        let input = |gate: usize| inputs.at(time_step * 3 * size + gate * size + i, column);
        let recurrent = |gate: usize| hidden.at(gate * size + i, column);
        let gate = |g: usize| {
            let ((x, ex), (y, ey)) = (input(g), recurrent(g));
            (sigmoid(x + y), ((ex + ey) / 4.0).min(1.0) + DOUBLES)
        };
        let ((reset, reset_error), (z, z_error)) = (gate(0), gate(1));
        let ((x, ex), (y, ey)) = (input(2), recurrent(2));
        let n = tanh(x + reset * y);
        let n_error = (ex + reset_error * y.abs() + (reset + reset_error).min(1.0) * ey).min(2.0) + DOUBLES;
        update.numbers.push(z);
        update.errors.push(z_error);
        new.numbers.push((1.0 - z) * n);
        new.errors.push(z_error * n.abs() + (1.0 - z + z_error).min(1.0) * n_error + DOUBLES);
    }
    (update, new)
}

/// u + z h, exact but for what its parts are off by.
fn update(gates: &Tracked, state: &Tracked) -> Tracked {
    let half = gates.rows() / 2;
    let mut sum = Tracked { columns: gates.columns, numbers: Vec::new(), errors: Vec::new() };
    for (i, column) in (0..half).flat_map(|i| (0..gates.columns).map(move |column| (i, column))) {
        let ((z, z_error), (u, u_error)) = (gates.at(i, column), gates.at(half + i, column));
        let (h, h_error) = state.at(i, column);
        sum.numbers.push(u + z * h);
        sum.errors.push(u_error + z_error * h.abs() + (z + z_error) * h_error + DOUBLES);
    }
    sum
}

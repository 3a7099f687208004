//! Layers that are joined or normalised. A sum is off by what its parts are off by. With g = weight / root(variance), a
//! normalised number g (x - mean) + bias is off by at most |g| (e_x + e_mean) + e_g (|x - mean| + e_x + e_mean) + e_bias; a root
//! of v is inverted with an error of at most e_v / (2 (v - e_v)^(3/2)).

use super::{DOUBLES, RoundedCoalition, Tracked};
use crate::program::{ClearKind, ClearLayer, Input, NormItems, Receive};

impl Tracked {
    /// The same for no samples but with so many numbers that are 0.
    fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, numbers: vec![0.0; rows * columns], errors: vec![0.0; rows * columns] }
    }

    /// Numbers of several, one behind the other.
    pub(super) fn concat<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut found = Self::zeros(0, 0);
        for other in all {
            found.columns = other.columns;
            found.numbers.extend_from_slice(&other.numbers);
            found.errors.extend_from_slice(&other.errors);
        }
        found
    }

    /// The sum of several.
    pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = all.into_iter();
        let mut found = all.next().map_or(Self::zeros(0, 0), Self::clone);
        for other in all {
            found.numbers.iter_mut().zip(&other.numbers).for_each(|(sum, x)| *sum += x);
            found.errors.iter_mut().zip(&other.errors).for_each(|(sum, e)| *sum += e);
        }
        found.with_doubles()
    }

    /// With what operations on doubles may be off by.
    pub(super) fn with_doubles(mut self) -> Self {
        for (error, number) in self.errors.iter_mut().zip(&self.numbers) {
            *error += DOUBLES * (1.0 + number.abs());
        }
        self
    }
}

impl RoundedCoalition<'_> {
    /// Scores of a model whose layers are joined or normalised.
    pub(super) fn follow_joined(&self, data: &Tracked) -> Tracked {
        let mut shared: Vec<Vec<Tracked>> = Vec::new();
        let mut values = Vec::new();
        for step in &self.program.steps {
            values = step.receives.iter().map(|receive| self.received(receive, data, &shared)).collect();
            for layer in &step.layers {
                values.push(in_the_clear(layer, &values));
            }
            let part = |part: &crate::program::SharedPart| {
                let format =
                    part.operator.map_or(self.precision.sum(), |o| self.precision.operators[o].input);
                values[part.value].clone().encoded(format)
            };
            shared.push(step.parts().iter().map(part).collect());
        }
        values.pop().unwrap_or(Tracked::zeros(0, 0))
    }

    fn received(&self, receive: &Receive, data: &Tracked, shared: &[Vec<Tracked>]) -> Tracked {
        match receive {
            Receive::Outputs { operator, input, first, count } => {
                let input = match *input {
                    Input::Data => data,
                    Input::Step(step) => {
                        let parts = self.program.steps[step].parts();
                        let part = parts.iter().position(|part| part.operator == Some(*operator));
                        &shared[step][part.unwrap_or(0)]
                    }
                };
                self.outputs(*operator, input, *first, *count)
            }
            Receive::Sum { parts } => Tracked::sum(parts.iter().map(|&(step, part)| &shared[step][part])),
            Receive::Vector { operator } | Receive::Bias { operator } => {
                self.outputs(*operator, &Tracked::zeros(1, 1), 0, 1)
            }
            Receive::Update { .. } => Tracked::zeros(0, 0),
        }
    }
}

fn in_the_clear(layer: &ClearLayer, values: &[Tracked]) -> Tracked {
    let of = layer.of.iter().map(|&value| &values[value]);
    match &layer.kind {
        ClearKind::Activation(activation) => {
            values[layer.of[0]].clone().activated(std::slice::from_ref(activation))
        }
        ClearKind::BatchNorm(items) => normalised(&values[layer.of[0]], items, values),
        ClearKind::Add => Tracked::sum(of),
        ClearKind::Concat => Tracked::concat(of),
    }
}

/// One over the root of a number, and how far it is off.
pub(super) fn inverse_root((v, error): (f64, f64)) -> (f64, f64) {
    let least = v - error;
    let of_error = if least > 0.0 { error / (2.0 * least * least.sqrt()) } else { f64::INFINITY };
    (1.0 / v.sqrt(), of_error + DOUBLES / v.sqrt())
}

/// A product, and how far it is off.
pub(super) fn product((x, ex): (f64, f64), (y, ey): (f64, f64)) -> (f64, f64) {
    (x * y, x.abs() * ey + y.abs() * ex + ex * ey + DOUBLES * (x * y).abs())
}

fn normalised(value: &Tracked, items: &NormItems, values: &[Tracked]) -> Tracked {
    let mut found = value.clone();
    let width = (items.positions * value.columns).max(1);
    for (place, (number, error)) in found.numbers.iter_mut().zip(&mut found.errors).enumerate() {
        let of = |item: usize| values[item].at(place / width, 0);
        let root = inverse_root(of(items.variance));
        let scale = items.weight.map_or(root, |item| product(of(item), root));
        let (mean, bias) = (of(items.mean), items.bias.map_or((0.0, 0.0), of));
        let (centred, of_scale) = product(scale, (*number - mean.0, *error + mean.1));
        (*number, *error) = (centred + bias.0, of_scale + bias.1);
    }
    found.with_doubles()
}

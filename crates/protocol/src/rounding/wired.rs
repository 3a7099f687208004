//! Nodes of a model under masks: whatever is brought to scale is off by what its whole factor is off by, and a sum that is cut by
//! less than one unit of what is left. One over a root by straight pieces is off by 2^-11 of itself, a smooth function by what its
//! pieces are.

use secsv_federation::Activation;

use super::{
    DOUBLES, Masked, RoundedCoalition, Tracked,
    joined::{inverse_root, product},
};
use crate::blindsv::{
    hops::Gate,
    wiring::{Node, NodeKind, Sign, Term, Wiring, spread},
};

/// How far one over a root by straight pieces is off, relatively.
const ROOT_ERROR: f64 = 1.0 / 2048.0;

/// How far the straight pieces of a smooth function are from it, at most.
fn pieces_error(activation: Activation) -> f64 {
    match activation {
        Activation::Sigmoid => 0.0023,
        Activation::Tanh => 0.0027,
        Activation::Gelu => 0.0040,
        Activation::Silu => 0.0039,
        Activation::Elu(alpha) => 0.0046 * alpha.abs(),
        _ => 0.0,
    }
}

impl Tracked {
    /// Numbers that are multiplied by something this much off.
    fn deviating(mut self, by: f64) -> Self {
        for (number, error) in self.numbers.iter().zip(&mut self.errors) {
            *error += by * (number.abs() + *error);
        }
        self
    }

    /// So many of a sample's numbers, from one of them on.
    fn part(&self, first: usize, count: usize) -> Self {
        let places = first * self.columns..(first + count) * self.columns;
        let (numbers, errors) = (self.numbers[places.clone()].to_vec(), self.errors[places].to_vec());
        Self { columns: self.columns, numbers, errors }
    }

    /// Each channel's number at so many positions.
    fn spread(&self, (channels, positions): (usize, usize)) -> Self {
        let of = |numbers: &[f64]| spread(numbers, (channels, positions), self.columns);
        Self { columns: self.columns, numbers: of(&self.numbers), errors: of(&self.errors) }
    }
}

impl RoundedCoalition<'_> {
    /// Scores of a model whose layers are wired.
    pub(super) fn follow_wired(&self, data: Tracked, wiring: &Wiring, masked: Masked<'_>) -> Tracked {
        let mut values = vec![data];
        for (index, node) in wiring.nodes.iter().enumerate() {
            let (of_terms, of_sum) = masked.hops.nodes[index].deviations(node, self.total);
            let terms: Vec<Tracked> = node
                .terms
                .iter()
                .zip(&of_terms)
                .map(|(term, by)| self.term(node, term, &values, by))
                .collect();
            let sum = Tracked::sum(&terms);
            let is_last = index + 1 == wiring.nodes.len();
            values.push(match is_last {
                true => sum.activated(&node.activations),
                false => self.value(index, node, sum.deviating(of_sum), masked),
            });
        }
        values.swap_remove(wiring.nodes.len())
    }

    /// One of the things that are added up; `by` says how far each of its values' factors is off.
    fn term(&self, node: &Node, term: &Term, values: &[Tracked], by: &[f64]) -> Tracked {
        let off = |place: usize| by.get(place).copied().unwrap_or(0.0);
        let of = |place: usize| values[term.values()[place]].clone();
        let joined = || {
            let taken: Vec<Tracked> = (0..term.values().len()).map(|k| of(k).deviating(off(k))).collect();
            Tracked::concat(&taken)
        };
        match term {
            Term::Product { operator, .. } => {
                let positions = self.program.operators[*operator].positions;
                self.outputs(*operator, &joined(), 0, positions)
            }
            Term::Constants(operator) => {
                let columns = values[0].columns;
                let none = Tracked { columns, numbers: vec![0.0; columns], errors: vec![0.0; columns] };
                self.outputs(*operator, &none, 0, 1)
            }
            Term::Values(_) => joined(),
            Term::Spread { positions, .. } => joined().spread((node.size / positions, *positions)),
            Term::Part { first, .. } => joined().part(*first, node.size),
            Term::Scaled { positions, first, sign, .. } => {
                let channels = node.size / positions;
                let factors = of(0).part(first[0], channels).spread((channels, *positions));
                let mut found = of(1).part(first[1], node.size);
                if *sign == Sign::Minus {
                    found.numbers.iter_mut().for_each(|number| *number = -*number);
                }
                let scaled = factors.numbers.iter().zip(&factors.errors);
                for ((number, error), (g, e)) in found.numbers.iter_mut().zip(&mut found.errors).zip(scaled) {
                    (*number, *error) = product((*g, *e), (*number, *error));
                }
                found.deviating(off(0))
            }
        }
    }

    /// What becomes of a node's sum.
    fn value(&self, index: usize, node: &Node, mut sum: Tracked, Masked { hops, .. }: Masked<'_>) -> Tracked {
        let unit = hops.nodes[index].unit();
        sum.errors.iter_mut().for_each(|error| *error += unit);
        if node.kind == NodeKind::Root {
            for (number, error) in sum.numbers.iter_mut().zip(&mut sum.errors) {
                let (root, of_error) = inverse_root((*number, *error));
                (*number, *error) = (root, of_error + ROOT_ERROR * (root + of_error) + DOUBLES);
            }
            return sum;
        }
        self.gated(&hops.all[index].gate, sum, &node.activations, unit)
    }

    /// What a gate makes of numbers, of which one unit stands for so much.
    pub(super) fn gated(
        &self,
        gate: &Gate,
        outputs: Tracked,
        activations: &[Activation],
        unit: f64,
    ) -> Tracked {
        let Gate::Curve(curve) = gate else { return outputs.activated(activations) };
        // Pools before the function change how many numbers there are, and none of them is larger than the largest.
        let largest = outputs.numbers.iter().zip(&outputs.errors).map(|(x, error)| x.abs() + error);
        let of_curve: Vec<f64> = match activations.iter().all(Activation::is_pointwise) {
            true => largest.map(|most| curve.error(most, unit)).collect(),
            false => vec![curve.error(largest.fold(0.0, f64::max), unit)],
        };
        let mut found = outputs;
        for activation in activations {
            found = found.activated(std::slice::from_ref(activation));
            found.errors.iter_mut().for_each(|error| *error += pieces_error(*activation));
        }
        let errors = found.errors.iter_mut().zip(of_curve.iter().cycle());
        errors.for_each(|(error, of_curve)| *error += of_curve);
        found
    }
}

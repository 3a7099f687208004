//! Recurrent units as nodes, step by step. What enters them of samples is one value for all steps; every gate is a sum and a function by
//! straight pieces; states are sums of products of values. The same operators stand at every step but the first, whose state is zero.
//!
//! States need no measured range: a GRU's is between the one before and what tanh gives, an LSTM's cell grows by at most one each step.

use secsv_federation::{Activation, Gru, Lstm, Source};
use secsv_he::linear::LayerShape;

use super::wiring::{Builder, Handed, Node, NodeKind, Sign, Term};
use crate::program::{Gates, Operator};

/// Fractional bits of what enters gates, of cells and of states, at least: their roundings go on from step to step.
const FRACTION: i32 = 15;
/// The same of what a sigmoid takes, which is a quarter as steep.
const SIGMOID_FRACTION: i32 = 13;

/// Reset, update and new gate, as they stand in a GRU's tensors.
const GRU_GATES: [usize; 3] = [0, 1, 2];
/// Input, output, forget and cell gate, as they stand in an LSTM's tensors: those with a sigmoid first, and first those that the first
/// step needs.
const LSTM_GATES: [usize; 4] = [0, 3, 1, 2];

/// Tensors of a recurrent unit.
struct Tensors<'a> {
    weights: [&'a String; 2],
    biases: [&'a Option<String>; 2],
    features: usize,
    hidden: usize,
    steps: usize,
}

impl Tensors<'_> {
    /// Some gates of all, as an operator on the state.
    fn of_state(&self, gates: &[usize], all: usize, bias: &Option<String>) -> Operator {
        let shape = LayerShape { d_out: gates.len() * self.hidden, d_in: self.hidden };
        let gates = Gates { gates: gates.to_vec(), all, more: None };
        Operator::vectors(shape, self.weights[1], bias, 1).of_gates(gates)
    }
}

/// Numbers of one value times those of another one, from one of each on.
fn product([left, right]: [(usize, usize); 2], sign: Sign) -> Term {
    Term::Scaled { of: [left.0, right.0], first: [left.1, right.1], positions: 1, sign }
}

impl Builder<'_> {
    /// What enters all gates at all steps, step by step, with both biases of the first `biased` gates.
    fn entering(&mut self, source: Source, tensors: &Tensors<'_>, gates: &[usize], biased: usize) -> usize {
        let Tensors { weights, biases, features, hidden, steps } = *tensors;
        let shape = LayerShape { d_out: gates.len() * hidden, d_in: features };
        let more = biases[1].clone().map(|bias| (bias, biased));
        let gates = Gates { gates: gates.to_vec(), all: gates.len(), more };
        let operator = Operator::vectors(shape, weights[0], biases[0], steps).of_gates(gates);
        let node = self.product(source, operator);
        self.push(Node { fraction: FRACTION, ..node })
    }

    /// The operator's outputs of the state, where there is one, beside what enters from a number on; and a function of the sum.
    fn gate(
        &mut self,
        (entering, first): (usize, usize),
        state: Option<(usize, usize)>,
        function: Activation,
        size: usize,
    ) -> usize {
        let of_state = state.map(|(operator, state)| Term::Product { operator, of: vec![state] });
        let terms = [Term::Part { of: [entering], first }].into_iter().chain(of_state).collect();
        self.function(terms, size, function)
    }

    /// A function of a sum. What it is off by goes on from step to step, so it has more pieces than elsewhere.
    fn function(&mut self, terms: Vec<Term>, size: usize, function: Activation) -> usize {
        let fraction = if function == Activation::Sigmoid { SIGMOID_FRACTION } else { FRACTION };
        let node = Node { fraction, is_fine: true, ..Node::new(terms, size) };
        self.push(Node { activations: vec![function], ..node })
    }

    /// A gated recurrent unit: with r and z the gates, n = tanh(x + r (W h + b)) and h' = n + z h - z n.
    pub(super) fn gru(&mut self, source: Source, gru: &Gru) -> Handed {
        let Gru { hidden, steps, .. } = *gru;
        let tensors = Tensors {
            weights: [&gru.weight_ih, &gru.weight_hh],
            biases: [&gru.bias_ih, &gru.bias_hh],
            features: gru.features,
            hidden,
            steps,
        };
        let entering = self.entering(source, &tensors, &GRU_GATES, 2);
        let all = GRU_GATES.len();
        let [gates, new] = match steps {
            0 | 1 => [0, 0],
            _ => {
                let gates = self.operator(tensors.of_state(&GRU_GATES[..2], all, &None));
                [gates, self.operator(tensors.of_state(&GRU_GATES[2..], all, &gru.bias_hh))]
            }
        };
        let mut state = None;
        for step in 0..steps {
            let first = step * all * hidden;
            let of_gates = state.map(|state| (gates, state));
            let gates = self.gate((entering, first), of_gates, Activation::Sigmoid, 2 * hidden);
            let of_new = match (state, &gru.bias_hh) {
                (Some(state), _) => {
                    let terms = vec![Term::Product { operator: new, of: vec![state] }];
                    Some(self.push(Node { fraction: FRACTION, ..Node::new(terms, hidden) }))
                }
                (None, Some(bias)) => {
                    let gates = Gates { gates: GRU_GATES[2..].to_vec(), all, more: None };
                    let bias = self.operator(Operator::constants(bias, hidden, (1.0, 0.0)).of_gates(gates));
                    let node = Node::new(vec![Term::Constants(bias)], hidden);
                    Some(self.push(Node { kind: NodeKind::Model, ..node }))
                }
                (None, None) => None,
            };
            let mut terms = vec![Term::Part { of: [entering], first: first + 2 * hidden }];
            terms.extend(of_new.map(|new| product([(new, 0), (gates, 0)], Sign::Plus)));
            let new = self.function(terms, hidden, Activation::Tanh);
            let mut terms = vec![Term::Values(vec![new]), product([(gates, hidden), (new, 0)], Sign::Minus)];
            terms.extend(state.map(|state| product([(gates, hidden), (state, 0)], Sign::Plus)));
            state = Some(self.state(terms, hidden, 0));
        }
        Handed::Values(state.into_iter().collect())
    }

    /// A long short-term memory: with i, o, f and g the gates, c' = i g + f c and h' = o tanh(c').
    pub(super) fn lstm(&mut self, source: Source, lstm: &Lstm) -> Handed {
        let Lstm { hidden, steps, sequence, .. } = *lstm;
        let tensors = Tensors {
            weights: [&lstm.weight_ih, &lstm.weight_hh],
            biases: [&lstm.bias_ih, &lstm.bias_hh],
            features: lstm.features,
            hidden,
            steps,
        };
        let all = LSTM_GATES.len();
        let entering = self.entering(source, &tensors, &LSTM_GATES, all);
        let [gates, cell_gate] = match steps {
            0 | 1 => [0, 0],
            _ => [&LSTM_GATES[..3], &LSTM_GATES[3..]]
                .map(|gates| self.operator(tensors.of_state(gates, all, &None))),
        };
        let (mut states, mut cell): (Vec<usize>, Option<usize>) = (Vec::new(), None);
        for step in 0..steps {
            let (first, state) = (step * all * hidden, states.last().copied());
            let (of_gates, of_cell) =
                (state.map(|state| (gates, state)), state.map(|state| (cell_gate, state)));
            // Nothing is forgotten at the first step.
            let size = if cell.is_some() { 3 } else { 2 } * hidden;
            let gates = self.gate((entering, first), of_gates, Activation::Sigmoid, size);
            let new = self.gate((entering, first + 3 * hidden), of_cell, Activation::Tanh, hidden);
            let mut terms = vec![product([(gates, 0), (new, 0)], Sign::Plus)];
            terms.extend(cell.map(|cell| product([(gates, 2 * hidden), (cell, 0)], Sign::Plus)));
            let next = self.state(terms, hidden, (step + 1).next_power_of_two().ilog2() as i32);
            cell = Some(next);
            let squeezed = self.function(vec![Term::Values(vec![next])], hidden, Activation::Tanh);
            states.push(self.state(vec![product([(gates, hidden), (squeezed, 0)], Sign::Plus)], hidden, 0));
        }
        Handed::Values(if sequence { states } else { states.pop().into_iter().collect() })
    }

    /// A sum of products of gates and states that is at most two to the power of `bound`, but for roundings of less than a quarter of it.
    fn state(&mut self, terms: Vec<Term>, hidden: usize, bound: i32) -> usize {
        self.push(Node { bound: Some(bound), fraction: FRACTION, ..Node::new(terms, hidden) })
    }
}

//! How layers take what others hand on. A **node** adds up outputs of operators and values of earlier nodes, and what follows without
//! parameters makes a new value of the sum. Values are numbered: 0 is the sample, k + 1 what node k hands on.

use std::{collections::BTreeMap, ops::Range};

use secsv_federation::{
    Activation, Architecture, BatchNorm, Layer, PlacedLayer, Source, Weights, up_to_scores,
};
use secsv_he::linear::LayerShape;

use super::between::Between;
use crate::{
    Error, Program,
    activation::Values,
    program::{Operator, refusal},
};

/// A model's nodes, each behind those whose values it takes; the last one's sum, or means of it, are the scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wiring {
    pub nodes: Vec<Node>,
}

/// A sum and what is made of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub terms: Vec<Term>,
    /// As many layers as a hop can compute.
    pub activations: Vec<Activation>,
    /// Numbers of the sum.
    pub size: usize,
    /// What it is the same for.
    pub kind: NodeKind,
    /// The sum is at most two to this power, where more is known of it than norms say.
    pub bound: Option<i32>,
    /// Fractional bits that are kept of it, at least.
    pub fraction: i32,
    /// Whether functions have more pieces than elsewhere.
    pub is_fine: bool,
}

/// What a sum is the same for, and what is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// For one sample.
    Sample,
    /// For all samples: it follows from the model alone.
    Model,
    /// The same, and one over its root is taken.
    Root,
}

/// What is added up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    /// An operator's outputs of values, one behind the other.
    Product { operator: usize, of: Vec<usize> },
    /// Values themselves, one behind the other.
    Values(Vec<usize>),
    /// As many numbers of a value as the sum has, from one of them on.
    Part { of: [usize; 1], first: usize },
    /// An operator's biases: outputs that depend on no value.
    Constants(usize),
    /// A value with one number for each channel, at so many positions.
    Spread { of: [usize; 1], positions: usize },
    /// Such a value times another one, number by number, each from one of its numbers on.
    Scaled { of: [usize; 2], first: [usize; 2], positions: usize, sign: Sign },
}

/// Whether a term is added or subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

/// A value that a term takes, and which of its numbers: all of them, if none are named.
pub(crate) type Taken = (usize, Option<Range<usize>>);

impl Term {
    /// A value with one number for each channel times another one.
    fn scaled(of: [usize; 2], positions: usize) -> Self {
        Self::Scaled { of, first: [0; 2], positions, sign: Sign::Plus }
    }

    /// The values that it takes.
    pub(crate) fn values(&self) -> &[usize] {
        match self {
            Self::Product { of, .. } | Self::Values(of) => of,
            Self::Part { of, .. } | Self::Spread { of, .. } => of,
            Self::Scaled { of, .. } => of,
            Self::Constants(_) => &[],
        }
    }

    fn values_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Product { of, .. } | Self::Values(of) => of,
            Self::Part { of, .. } | Self::Spread { of, .. } => of,
            Self::Scaled { of, .. } => of,
            Self::Constants(_) => &mut [],
        }
    }

    /// The operator whose outputs it is.
    pub(crate) fn operator(&self) -> Option<usize> {
        match self {
            Self::Product { operator, .. } | Self::Constants(operator) => Some(*operator),
            Self::Values(_) | Self::Part { .. } | Self::Spread { .. } | Self::Scaled { .. } => None,
        }
    }

    /// The values that it takes, and which of their numbers, in a sum of so many.
    pub(crate) fn taken(&self, size: usize) -> Vec<Taken> {
        match *self {
            Self::Part { of: [value], first } => vec![(value, Some(first..first + size))],
            Self::Scaled { of: [factor, value], first, positions, .. } => {
                let channels = size / positions.max(1);
                let factors = first[0]..first[0] + channels;
                vec![(factor, Some(factors)), (value, Some(first[1]..first[1] + size))]
            }
            _ => self.values().iter().map(|&value| (value, None)).collect(),
        }
    }

    /// Whether it is the product of two values.
    pub(crate) fn is_scaled(&self) -> bool {
        matches!(self, Self::Scaled { .. })
    }

    /// The operator that is multiplied with values.
    pub(crate) fn product(&self) -> Option<usize> {
        match self {
            Self::Product { operator, .. } => Some(*operator),
            _ => None,
        }
    }
}

/// Numbers for each channel and so many columns each, at so many positions and for `count` samples.
pub(crate) fn spread<T: Copy>(numbers: &[T], (channels, positions): (usize, usize), count: usize) -> Vec<T> {
    let columns = numbers.len().checked_div(channels).unwrap_or(0);
    let of_channel = |channel: usize| &numbers[channel * columns..][..columns];
    let mut found = Vec::with_capacity(channels * positions * count);
    for channel in (0..channels).map(of_channel) {
        for _ in 0..positions {
            match channel {
                [one] => found.extend(std::iter::repeat_n(*one, count)),
                each => found.extend_from_slice(each),
            }
        }
    }
    found
}

impl Node {
    /// A sum for one sample, of which nothing is made.
    pub(crate) fn new(terms: Vec<Term>, size: usize) -> Self {
        let (activations, kind) = (Vec::new(), NodeKind::Sample);
        Self { terms, activations, size, kind, bound: None, fraction: 0, is_fine: false }
    }

    /// Its operators.
    pub(crate) fn operators(&self) -> impl Iterator<Item = usize> + '_ {
        self.terms.iter().filter_map(Term::operator)
    }
}

impl Wiring {
    /// So many operators, each of which takes what is made of the outputs of the one before.
    pub(crate) fn chain(operators: usize) -> Self {
        let node = |k| Node::new(vec![Term::Product { operator: k, of: vec![k] }], 0);
        Self { nodes: (0..operators).map(node).collect() }
    }

    /// The last node that takes a value.
    pub(crate) fn last_use(&self, value: usize) -> Option<usize> {
        let takes = |node: &Node| node.terms.iter().any(|term| term.values().contains(&value));
        self.nodes.iter().rposition(takes)
    }

    /// Runs a model on samples in double precision and notes the largest number of each value and of each node's sum.
    pub(crate) fn follow(
        &self,
        program: &Program,
        weights: &Weights,
        samples: &Values,
        (largest_values, largest_sums): (&mut [f64], &mut [f64]),
    ) {
        let largest = |numbers: &[f64]| numbers.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let mut values = vec![samples.clone()];
        for (index, node) in self.nodes.iter().enumerate() {
            let mut sum = vec![0.0; node.size * samples.columns()];
            for term in &node.terms {
                let columns = samples.columns();
                let inputs = term.taken(node.size).into_iter().flat_map(|(value, part)| match part {
                    Some(part) => &values[value].numbers()[part.start * columns..part.end * columns],
                    None => values[value].numbers(),
                });
                let inputs = Values::new(columns, inputs.copied().collect());
                let operator = term.operator().map(|operator| &program.operators[operator]);
                let numbers = operator.map(|operator| operator.numbers(weights)).unwrap_or_default();
                let found = match (term, operator) {
                    (Term::Product { .. }, Some(operator)) => {
                        operator.apply_numbers(&numbers.0, &numbers.1, &inputs).numbers().to_vec()
                    }
                    (Term::Constants(_), _) => spread(&numbers.1, (node.size, 1), columns),
                    (Term::Spread { positions, .. }, _) => {
                        spread(inputs.numbers(), (node.size / positions, *positions), columns)
                    }
                    (Term::Scaled { positions, sign, .. }, _) => {
                        let channels = node.size / positions;
                        let (factors, numbers) = inputs.numbers().split_at(channels * columns);
                        let factors = spread(factors, (channels, *positions), columns);
                        let sign = if *sign == Sign::Minus { -1.0 } else { 1.0 };
                        factors.iter().zip(numbers).map(|(factor, number)| sign * factor * number).collect()
                    }
                    _ => inputs.numbers().to_vec(),
                };
                sum.iter_mut().zip(found).for_each(|(sum, number)| *sum += number);
            }
            largest_sums[index] = largest_sums[index].max(largest(&sum));
            if node.kind == NodeKind::Root {
                sum.iter_mut().for_each(|number| *number = 1.0 / number.sqrt());
            }
            let mut value = Values::new(samples.columns(), sum);
            value.activate(&node.activations);
            if let Some(most) = largest_values.get_mut(index + 1) {
                *most = most.max(largest(value.numbers()));
            }
            values.push(value);
        }
    }
}

/// What a layer hands on, as far as it is known.
#[derive(Clone, Debug)]
pub(super) enum Handed {
    /// What a node will make of its sum; nobody else takes it yet.
    Open(Node),
    /// Values, one behind the other.
    Values(Vec<usize>),
}

/// Walks the layers of an architecture.
pub(super) struct Builder<'a> {
    pub program: Program,
    nodes: Vec<Node>,
    handed: BTreeMap<Source, Handed>,
    /// How many layers take what each hands on.
    uses: BTreeMap<Source, usize>,
    layers: &'a [PlacedLayer],
    /// The value that is the sample itself, for whatever takes it but the first operator.
    sample: Option<usize>,
}

/// The program of an architecture whose layers take any earlier ones' outputs.
pub(crate) fn wired(architecture: &Architecture) -> Result<Program, Error> {
    let layers = up_to_scores(architecture.layers());
    let mut uses = BTreeMap::new();
    layers.iter().flat_map(|placed| &placed.from).for_each(|source| *uses.entry(*source).or_insert(0) += 1);
    let handed = BTreeMap::from([(Source::Sample, Handed::Values(vec![0]))]);
    let program = Program::empty(architecture);
    let mut builder = Builder { program, nodes: Vec::new(), handed, uses, layers, sample: None };
    for place in 0..layers.len() {
        let handed = builder.layer(place)?;
        builder.handed.insert(Source::Layer(place), handed);
    }
    builder.finish(architecture.outputs())
}

impl Builder<'_> {
    fn is_single(&self, source: Source) -> bool {
        self.uses.get(&source) == Some(&1)
    }

    /// What a layer hands on.
    fn layer(&mut self, place: usize) -> Result<Handed, Error> {
        let placed = &self.layers[place];
        let of = |(why, instead)| {
            let (kind, name) = (placed.layer.kind(), placed.name.clone());
            Err(Error::Layer { index: placed.index, kind, name, why, instead })
        };
        let from = &placed.from;
        match &placed.layer {
            Layer::Linear(l) => {
                let shape = LayerShape { d_out: l.outputs, d_in: l.inputs };
                let operator = Operator::vectors(shape, &l.weight, &l.bias, l.positions);
                Ok(Handed::Open(self.product(from[0], operator)))
            }
            Layer::Conv2d(conv) => Ok(Handed::Open(self.product(from[0], Operator::windows(conv)))),
            Layer::Activation(activation, size) => {
                let is_first = matches!(self.handed.get(&from[0]), Some(Handed::Values(of)) if *of == [0])
                    && self.nodes.is_empty()
                    && self.is_single(from[0]);
                if is_first && activation.output_size(*size) == *size {
                    self.program.prelude.push(*activation);
                    return Ok(Handed::Values(vec![0]));
                }
                if Between::of(&[*activation]).1 == 0 {
                    return of((
                        "it divides, which no gate between two servers does",
                        "train with relu, sigmoid or tanh in its place, or take nssv",
                    ));
                }
                Ok(self.activated(from[0], *activation, *size))
            }
            Layer::Add { size, .. } => Ok(self.sum(from, *size)),
            Layer::BatchNorm(norm) => Ok(self.batch_norm(from[0], norm)),
            Layer::Gru(gru) => Ok(self.gru(from[0], gru)),
            Layer::Lstm(lstm) => Ok(self.lstm(from[0], lstm)),
            Layer::Concat(_) => {
                let values = from.iter().flat_map(|&source| self.values(source)).collect();
                Ok(Handed::Values(values))
            }
            other => of(refusal(other).unwrap_or((
                "its gates would have to be computed between two servers",
                "train another layer, or take nssv",
            ))),
        }
    }

    /// An operator on what a layer hands on. The first one takes the sample itself.
    pub(super) fn product(&mut self, source: Source, operator: Operator) -> Node {
        let index = self.program.operators.len();
        let is_of_sample = matches!(self.handed.get(&source), Some(Handed::Values(of)) if *of == [0]);
        let of = if index == 0 && is_of_sample { vec![0] } else { self.values(source) };
        let size = operator.output_size();
        Node::new(vec![Term::Product { operator: self.operator(operator), of }], size)
    }

    fn activated(&mut self, source: Source, activation: Activation, size: usize) -> Handed {
        if let (true, Some(Handed::Open(node))) = (self.is_single(source), self.handed.get(&source)) {
            let mut node = node.clone();
            node.activations.push(activation);
            if Between::of(&node.activations).1 == node.activations.len() {
                self.handed.remove(&source);
                return Handed::Open(node);
            }
        }
        let terms = vec![Term::Values(self.values(source))];
        Handed::Open(Node { activations: vec![activation], ..Node::new(terms, size) })
    }

    /// A node of the model alone: its value.
    fn of_model(&mut self, terms: Vec<Term>, size: usize, kind: NodeKind) -> usize {
        self.push(Node { kind, ..Node::new(terms, size) })
    }

    /// A tensor as a value, each number so many times what it is, plus a number.
    fn constants(&mut self, tensor: &str, count: usize, scaled: (f64, f64), kind: NodeKind) -> usize {
        let operator = self.operator(Operator::constants(tensor, count, scaled));
        self.of_model(vec![Term::Constants(operator)], count, kind)
    }

    /// An operator, which may be at several places.
    pub(super) fn operator(&mut self, operator: Operator) -> usize {
        self.program.operators.push(operator);
        self.program.operators.len() - 1
    }

    /// With g the weight over the root of the variance, and b the bias less g times the mean: g x + b. Both follow from the model.
    fn batch_norm(&mut self, source: Source, norm: &BatchNorm) -> Handed {
        let (channels, positions, plain) = (norm.channels, norm.positions, NodeKind::Model);
        let size = channels * positions;
        let root = self.constants(&norm.variance, channels, (1.0, norm.epsilon), NodeKind::Root);
        let mut scale = self.of_model(vec![Term::Values(vec![root])], channels, plain);
        if let Some(weight) = &norm.weight {
            let weight = self.constants(weight, channels, (1.0, 0.0), plain);
            scale = self.of_model(vec![Term::scaled([weight, scale], 1)], channels, plain);
        }
        let mean = self.constants(&norm.mean, channels, (-1.0, 0.0), plain);
        let mut terms = vec![Term::scaled([scale, mean], 1)];
        if let Some(bias) = &norm.bias {
            terms.push(Term::Values(vec![self.constants(bias, channels, (1.0, 0.0), plain)]));
        }
        let bias = self.of_model(terms, channels, plain);
        let values = self.values(source);
        let value = match values[..] {
            [value] => value,
            _ => self.push(Node::new(vec![Term::Values(values)], size)),
        };
        let terms = vec![Term::scaled([scale, value], positions), Term::Spread { of: [bias], positions }];
        Handed::Open(Node::new(terms, size))
    }

    /// A sum takes over those sums that nobody else takes: of operators, or of values. The first operator's stays alone.
    fn sum(&mut self, from: &[Source], size: usize) -> Handed {
        let mut terms = Vec::new();
        let has_operators = |node: &Node| node.operators().next().is_some();
        let is_of_values = from.iter().any(|source| {
            matches!(self.handed.get(source), Some(Handed::Open(node)) if node.activations.is_empty() && !has_operators(node))
        });
        for &source in from {
            match self.handed.get(&source) {
                Some(Handed::Open(node))
                    if self.is_single(source)
                        && node.activations.is_empty()
                        && is_of_values != has_operators(node)
                        && node.operators().all(|operator| operator > 0) =>
                {
                    terms.extend(node.terms.clone());
                    self.handed.remove(&source);
                }
                _ => terms.push(Term::Values(self.values(source))),
            }
        }
        Handed::Open(Node::new(terms, size))
    }

    pub(super) fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len()
    }

    /// The values that a layer hands on.
    fn values(&mut self, source: Source) -> Vec<usize> {
        let values = match self.handed.remove(&source) {
            Some(Handed::Open(node)) => vec![self.push(node)],
            Some(Handed::Values(values)) => values,
            None => Vec::new(),
        };
        self.handed.insert(source, Handed::Values(values.clone()));
        values.into_iter().map(|value| if value == 0 { self.sample_value() } else { value }).collect()
    }

    fn sample_value(&mut self) -> usize {
        if let Some(value) = self.sample {
            return value;
        }
        let size = self.program.input_size;
        let terms = vec![Term::Values(vec![0])];
        let value = self.push(Node::new(terms, size));
        self.sample = Some(value);
        value
    }

    /// The last layer's node, and the first operator's before all others.
    fn finish(mut self, outputs: usize) -> Result<Program, Error> {
        let last = Source::Layer(self.layers.len().saturating_sub(1));
        let mut node = match self.handed.remove(&last) {
            Some(Handed::Open(node)) if gives_scores(&node.activations) => node,
            other => {
                self.handed.extend(other.map(|handed| (last, handed)));
                let terms = vec![Term::Values(self.values(last))];
                Node::new(terms, outputs)
            }
        };
        let is_plain = node.activations.is_empty();
        match (&node.terms[..], outputs) {
            ([Term::Product { operator, .. }], _) if is_plain => {
                node.size -= usize::from(self.program.compare_outputs(*operator, outputs));
            }
            (_, 1) => {
                return Err(Error::Unsupported {
                    what: "a single score that is no linear layer's output: hand on one score for each class, or take nssv",
                });
            }
            _ => {}
        }
        self.nodes.push(node);
        let first = self
            .nodes
            .iter()
            .position(|node| matches!(&node.terms[..], [Term::Product { operator: 0, of }] if *of == [0]));
        let Some(first) = first else {
            return Err(Error::Unsupported {
                what: "a model none of whose layers with weights takes the sample: let a linear layer or a convolution be the first, or take nssv",
            });
        };
        let mut program = self.program;
        program.wiring = Some(Wiring { nodes: self.nodes }.beginning_with(first));
        Ok(program)
    }
}

impl Wiring {
    /// The same with another node as the first, which takes none of the values.
    fn beginning_with(mut self, first: usize) -> Self {
        self.nodes[..=first].rotate_right(1);
        let moved = |value: usize| match value {
            0 => 0,
            value if value == first + 1 => 1,
            value if value <= first => value + 1,
            value => value,
        };
        let terms = self.nodes.iter_mut().flat_map(|node| &mut node.terms);
        terms.flat_map(Term::values_mut).for_each(|value| *value = moved(*value));
        self
    }
}

/// Whether numbers are scores behind these layers: means of a sum, at most.
fn gives_scores(activations: &[Activation]) -> bool {
    let (between, _) = Between::of(activations);
    between == Between { before: between.before.clone(), ..Between::of(&[]).0 }
}

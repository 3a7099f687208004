//! Models whose layers take what any earlier ones hand on, or are normalised. Whatever lies between two layers with weights is
//! computed by one client: a **step** reads all outputs of layers that take what the step before shared, and sums.
//! Numbers of earlier steps are never read again by themselves: servers add shares of them up, and the next step reads the sum.

use std::collections::BTreeMap;

use secsv_federation::{Activation, Architecture, BatchNorm, Layer, PlacedLayer, Source, up_to_scores};
use secsv_he::linear::LayerShape;

use super::{DecryptionStep, DecryptorSlot, Input, Operator, Program, Receive, Then, check_steps, refusal};
use crate::Error;

/// A layer that a client computes in the clear.
#[derive(Clone, Debug, PartialEq)]
pub struct ClearLayer {
    /// What it is.
    pub kind: ClearKind,
    /// What it takes: items that the step receives are counted first, then its layers.
    pub of: Vec<usize>,
}

/// What such a layer is.
#[derive(Clone, Debug, PartialEq)]
pub enum ClearKind {
    /// A function without parameters.
    Activation(Activation),
    /// Normalisation by vectors of the coalition's model.
    BatchNorm(NormItems),
    /// The sum.
    Add,
    /// One behind the other.
    Concat,
}

/// Which items are the vectors of a batch norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormItems {
    /// Multiplied with; none: 1.
    pub weight: Option<usize>,
    /// Added; none: 0.
    pub bias: Option<usize>,
    /// Subtracted first.
    pub mean: usize,
    /// Variances and what is added to them: divided by their roots.
    pub variance: usize,
    /// Numbers of each channel.
    pub positions: usize,
}

/// What a client shares for one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// Which of its items and layers.
    pub value: usize,
    /// Numbers of one sample.
    pub size: usize,
    /// The operator that takes it; none: sums do.
    pub operator: Option<usize>,
}

/// Something that a step has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Item(usize),
    Layer(usize),
}

/// What a layer hands on.
#[derive(Clone, Copy, Debug)]
enum Handed {
    Sample,
    /// Of a step, with so many numbers.
    Of {
        step: usize,
        value: Value,
        size: usize,
    },
}

/// A step while it is put together.
#[derive(Default)]
struct Visit {
    receives: Vec<Receive>,
    layers: Vec<(ClearKind, Vec<Value>)>,
    parts: Vec<(Value, usize, Option<usize>)>,
}

impl Visit {
    fn item(&mut self, receive: Receive) -> Value {
        self.receives.push(receive);
        Value::Item(self.receives.len() - 1)
    }

    fn number(&self, value: Value) -> usize {
        match value {
            Value::Item(item) => item,
            Value::Layer(layer) => self.receives.len() + layer,
        }
    }

    fn finish(self, place: usize, is_last: bool) -> DecryptionStep {
        let number = |&value: &Value| self.number(value);
        let layers = self.layers.iter().map(|(kind, of)| {
            let (kind, of) = (kind.clone(), of.iter().map(number).collect());
            ClearLayer { kind, of }
        });
        let parts = self.parts.iter().map(|(value, size, operator)| {
            let (value, size, operator) = (number(value), *size, *operator);
            SharedPart { value, size, operator }
        });
        let then = if is_last { Then::Label(Vec::new()) } else { Then::Parts(parts.collect()) };
        let (slot, layers) = (DecryptorSlot::Layer(place), layers.collect());
        DecryptionStep { slot, layers, then, receives: self.receives }
    }
}

/// Walks the layers of an architecture.
struct Builder<'a> {
    program: Program,
    visits: Vec<Visit>,
    handed: BTreeMap<Source, Handed>,
    layers: &'a [PlacedLayer],
}

/// Why a layer is refused, and what to do.
type Refusal = (&'static str, &'static str);

const SAMPLE: Refusal =
    ("it takes the sample, which the first layer with weights alone does", "take blindsv, or nssv");

/// The program of an architecture whose layers take any earlier ones' outputs, or are normalised.
pub(crate) fn joined(architecture: &Architecture) -> Result<Program, Error> {
    let layers = up_to_scores(architecture.layers());
    let handed = BTreeMap::from([(Source::Sample, Handed::Sample)]);
    let program = Program::empty(architecture);
    let mut builder = Builder { program, visits: Vec::new(), handed, layers };
    for (place, placed) in layers.iter().enumerate() {
        let handed = builder.layer(placed).map_err(|(why, instead)| {
            let (kind, name) = (placed.layer.kind(), placed.name.clone());
            Error::Layer { index: placed.index, kind, name, why, instead }
        })?;
        builder.handed.insert(Source::Layer(place), handed);
    }
    builder.finish(architecture.outputs())
}

impl Builder<'_> {
    fn of(&self, source: Source) -> Handed {
        self.handed.get(&source).copied().unwrap_or(Handed::Sample)
    }

    fn visit(&mut self, step: usize) -> &mut Visit {
        self.visits.resize_with(self.visits.len().max(step + 1), Visit::default);
        &mut self.visits[step]
    }

    fn layer(&mut self, placed: &PlacedLayer) -> Result<Handed, Refusal> {
        let from = placed.from.first().map_or(Handed::Sample, |&source| self.of(source));
        match &placed.layer {
            Layer::Linear(l) => {
                let shape = LayerShape { d_out: l.outputs, d_in: l.inputs };
                self.product(from, Operator::vectors(shape, &l.weight, &l.bias, l.positions))
            }
            Layer::Conv2d(conv) => self.product(from, Operator::windows(conv)),
            Layer::Activation(activation, size) => self.activated(placed.from[0], *activation, *size),
            Layer::BatchNorm(norm) => self.batch_norm(from, norm),
            Layer::Add { size, .. } => {
                let of = self.values(&placed.from)?;
                Ok(self.add(&of, *size))
            }
            Layer::Concat(sizes) => {
                let of = self.values(&placed.from)?;
                self.concat(&of, sizes.iter().sum())
            }
            Layer::Gru(_) => Err((
                "other layers of the model are joined or normalised",
                "train without those, or take nssv",
            )),
            other @ (Layer::Lstm(_) | Layer::Embedding(_) | Layer::LayerNorm(_)) => {
                Err(refusal(other).unwrap_or(SAMPLE))
            }
        }
    }

    /// An operator on what a step shares for it: the next step reads its outputs.
    fn product(&mut self, from: Handed, operator: Operator) -> Result<Handed, Refusal> {
        let (index, size, count) = (self.program.operators.len(), operator.output_size(), operator.positions);
        let (step, input) = match from {
            Handed::Sample if index > 0 => return Err(SAMPLE),
            Handed::Sample => (0, Input::Data),
            Handed::Of { step, value, size } => {
                self.visit(step).parts.push((value, size, Some(index)));
                (step + 1, Input::Step(step))
            }
        };
        self.program.operators.push(operator);
        let value = self.visit(step).item(Receive::Outputs { operator: index, input, first: 0, count });
        Ok(Handed::Of { step, value, size })
    }

    fn activated(&mut self, source: Source, activation: Activation, size: usize) -> Result<Handed, Refusal> {
        let output = activation.output_size(size);
        match self.of(source) {
            Handed::Sample => {
                let uses = self.layers.iter().flat_map(|placed| &placed.from).filter(|from| **from == source);
                if uses.count() > 1 || !self.program.operators.is_empty() {
                    return Err(SAMPLE);
                }
                if output != size {
                    return Err(super::FIRST_CHANGES_SIZE);
                }
                self.program.prelude.push(activation);
                Ok(Handed::Sample)
            }
            Handed::Of { step, value, .. } => {
                Ok(self.clear(step, ClearKind::Activation(activation), vec![value], output))
            }
        }
    }

    fn clear(&mut self, step: usize, kind: ClearKind, of: Vec<Value>, size: usize) -> Handed {
        let visit = self.visit(step);
        visit.layers.push((kind, of));
        Handed::Of { step, value: Value::Layer(visit.layers.len() - 1), size }
    }

    /// The step's client reads the coalition's vectors.
    fn batch_norm(&mut self, from: Handed, norm: &BatchNorm) -> Result<Handed, Refusal> {
        let Handed::Of { step, value, size } = from else {
            return Err((
                "no layer with weights is before it",
                "normalise the samples as they are saved, or take nssv",
            ));
        };
        let mut vector = |tensor: &String, plus: f64| {
            let operator = self.program.operators.len();
            self.program.operators.push(Operator::constants(tensor, norm.channels, (1.0, plus)));
            let (Value::Item(item) | Value::Layer(item)) =
                self.visit(step).item(Receive::Vector { operator });
            item
        };
        let mean = vector(&norm.mean, 0.0);
        let variance = vector(&norm.variance, norm.epsilon);
        let weight = norm.weight.as_ref().map(|tensor| vector(tensor, 0.0));
        let bias = norm.bias.as_ref().map(|tensor| vector(tensor, 0.0));
        let items = NormItems { weight, bias, mean, variance, positions: norm.positions };
        Ok(self.clear(step, ClearKind::BatchNorm(items), vec![value], size))
    }

    /// What some layers hand on: the step, and which of its values.
    fn values(&self, sources: &[Source]) -> Result<Vec<(usize, Value)>, Refusal> {
        let of = |&source: &Source| match self.of(source) {
            Handed::Sample => Err(SAMPLE),
            Handed::Of { step, value, .. } => Ok((step, value)),
        };
        sources.iter().map(of).collect()
    }

    /// One client adds up what is its own; servers do what several clients share.
    fn add(&mut self, of: &[(usize, Value)], size: usize) -> Handed {
        let last = of.iter().map(|(step, _)| *step).max().unwrap_or(0);
        if of.iter().all(|(step, _)| *step == last) {
            return self.clear(last, ClearKind::Add, of.iter().map(|(_, value)| *value).collect(), size);
        }
        let part = |&(step, value): &(usize, Value)| {
            let (parts, new) = (&mut self.visit(step).parts, (value, size, None));
            let known = parts.iter().position(|part| *part == new).unwrap_or_else(|| {
                parts.push(new);
                parts.len() - 1
            });
            (step, known)
        };
        let parts = of.iter().map(part).collect();
        let value = self.visit(last + 1).item(Receive::Sum { parts });
        Handed::Of { step: last + 1, value, size }
    }

    fn concat(&mut self, of: &[(usize, Value)], size: usize) -> Result<Handed, Refusal> {
        let step = of.first().map_or(0, |(step, _)| *step);
        if of.iter().any(|(other, _)| *other != step) {
            return Err((
                "it joins what different clients compute, and one more would have to read it all",
                "take blindsv, or nssv",
            ));
        }
        Ok(self.clear(step, ClearKind::Concat, of.iter().map(|(_, value)| *value).collect(), size))
    }

    /// The last layer's values are the scores.
    fn finish(mut self, outputs: usize) -> Result<Program, Error> {
        let last = Source::Layer(self.layers.len().saturating_sub(1));
        let steps = self.visits.len();
        let Handed::Of { step, value, .. } = self.of(last) else { return Err(super::no_layers()) };
        if step + 1 != steps {
            return Err(Error::Local { what: "scores behind the last step" });
        }
        let scores = match value {
            Value::Item(item) => self.visits[step].receives.get(item).cloned(),
            Value::Layer(_) => None,
        };
        match scores {
            Some(Receive::Outputs { operator, .. }) => drop(self.program.compare_outputs(operator, outputs)),
            _ if outputs == 1 => return Err(super::one_score_of_no_layer()),
            _ => {}
        }
        let visits = self.visits.into_iter().enumerate();
        self.program.steps = visits.map(|(place, visit)| visit.finish(place, place + 1 == steps)).collect();
        check_steps(&self.program)?;
        Ok(self.program)
    }
}

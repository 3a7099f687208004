//! A model as the servers and decryptors see it: linear operators on the servers' side, and between them steps to a
//! client that decrypts, activates and shares again.

use std::ops::Range;

use secsv_algebra::{AlgebraError, Matrix, Ring, Ring64, Secret, Share};
use secsv_federation::{Activation, Architecture, Conv2d, Layer, PlacedLayer, Source, Weights, up_to_scores};
use secsv_he::linear::LayerShape;

use crate::{Error, blindsv::wiring::Wiring};

pub(crate) use joined::joined;
pub use joined::{ClearKind, ClearLayer, NormItems, SharedPart};

mod joined;

/// Columns of windows that are multiplied at once.
const WINDOWS_AT_ONCE: usize = 2048;

/// A linear map of the model: a weight matrix and biases, applied to every column of its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Outputs and inputs.
    pub shape: LayerShape,
    /// Tensor of the weights, `[d_out, ...]` with d_in numbers a row.
    pub weight: String,
    /// Tensor of the biases.
    pub bias: Option<String>,
    /// Columns that one sample fills.
    pub positions: usize,
    /// What the operator's rows are of the tensors'.
    rows: Rows,
    columns: Columns,
}

/// What an operator's rows are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rows {
    /// The tensors' rows.
    All,
    /// The tensors have one row more, the last; each row is what theirs is above it.
    AboveLast,
    /// The tensors have the one score by which the second class is above the first; the row is what the first is above the
    /// second.
    Negated,
    /// The rows of some gates of a recurrent unit.
    OfGates(Gates),
}

/// Gates of a recurrent unit, in whose tensors a gate's rows stand one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gates {
    /// Which gates, in the order in which they are computed.
    pub gates: Vec<usize>,
    /// Gates of the tensors.
    pub all: usize,
    /// A tensor whose numbers are added to the biases of the first of them, and how many gates these are.
    pub more: Option<(String, usize)>,
}

/// How one sample's numbers become columns, and products become one sample's numbers.
#[derive(Clone, Debug, PartialEq)]
enum Columns {
    /// Vectors one after the other.
    Vectors,
    /// The windows of a convolution; outputs lie channel by channel.
    Windows(Conv2d),
    /// Nothing of the sample: outputs are this many times the biases, plus a number.
    Constants { times: f64, plus: f64 },
}

impl Operator {
    /// Whether its outputs are how far scores are above another class's.
    pub fn is_compared(&self) -> bool {
        self.rows != Rows::All
    }

    /// Numbers of one sample that come in.
    pub fn input_size(&self) -> usize {
        match &self.columns {
            Columns::Vectors | Columns::Constants { .. } => self.positions * self.shape.d_in,
            Columns::Windows(conv) => conv.input.iter().product(),
        }
    }

    /// Numbers of one sample that come out.
    pub fn output_size(&self) -> usize {
        self.positions * self.shape.d_out
    }

    /// Where each number of a sample's outputs stands in a product, output by output and there position by position; none if
    /// they stand so.
    pub(crate) fn order(&self) -> Option<impl Iterator<Item = usize> + use<>> {
        let (outputs, positions) = (self.shape.d_out, self.positions);
        let is_turned = matches!(self.columns, Columns::Vectors) && positions > 1;
        is_turned.then(|| (0..outputs * positions).map(move |k| k % outputs * positions + k / outputs))
    }

    /// The product of rows of weights with samples (a row for each number, a column for each sample): row by row, in a row
    /// position by position, in a position sample by sample. Few samples at a time, so that their windows stay near.
    pub(crate) fn multiply(
        &self,
        weights: &Matrix<Ring64>,
        samples: &Matrix<Ring64>,
    ) -> Result<Secret<Vec<u64>>, Error> {
        let (count, rows, positions) = (samples.columns(), weights.rows(), self.positions);
        if let (Columns::Vectors, 1) = (&self.columns, positions) {
            return Ok(Secret::new(weights.product(samples)?.elements().to_vec()));
        }
        let mut found = Secret::new(vec![0; rows * positions * count]);
        let at_once = (WINDOWS_AT_ONCE / positions.max(1)).max(1);
        for first in (0..count).step_by(at_once) {
            let width = at_once.min(count - first);
            let mut part = Vec::with_capacity(samples.rows() * width);
            (0..samples.rows())
                .for_each(|row| part.extend_from_slice(&samples.row(row)[first..first + width]));
            let part = Share::new(Matrix::new(Ring64, samples.rows(), width, part)?);
            let windows = Share::new(self.arrange(part.expose())?);
            let product = Share::new(weights.product(windows.expose())?);
            let places = found.expose_mut().chunks_exact_mut(count.max(1));
            for (place, products) in places.zip(product.expose().elements().chunks_exact(width)) {
                place[first..first + width].copy_from_slice(products);
            }
        }
        Ok(found)
    }

    /// A model's numbers for this operator: its rows of weights, one after the other, and its biases.
    pub(crate) fn numbers(&self, model: &Weights) -> (Vec<f64>, Vec<f64>) {
        let (d_out, d_in) = (self.shape.d_out, self.shape.d_in);
        let rows = match &self.rows {
            Rows::All | Rows::Negated => d_out,
            Rows::AboveLast => d_out + 1,
            Rows::OfGates(of) => d_out / of.gates.len().max(1) * of.all,
        };
        let mut weights = match &self.columns {
            Columns::Windows(conv) if conv.groups > 1 => {
                over_all_channels(conv, &tensor(model, Some(&self.weight), rows * conv.inputs()))
            }
            _ => tensor(model, Some(&self.weight), rows * d_in),
        };
        let mut biases = tensor(model, self.bias.as_ref(), rows);
        if let Columns::Constants { times, plus } = self.columns {
            biases.iter_mut().for_each(|bias| *bias = *bias * times + plus);
        }
        match &self.rows {
            Rows::All => {}
            Rows::OfGates(of) => {
                (weights, biases) = (of.rows(&weights), of.rows(&biases));
                if let Some((more, gates)) = &of.more {
                    let more = of.rows(&tensor(model, Some(more), rows));
                    let first = gates * (d_out / of.gates.len().max(1));
                    biases.iter_mut().zip(&more[..first]).for_each(|(bias, more)| *bias += more);
                }
            }
            Rows::AboveLast => {
                let last = weights.split_off(self.shape.d_out * d_in);
                let difference = |row: &mut [f64]| row.iter_mut().zip(&last).for_each(|(w, l)| *w -= l);
                weights.chunks_exact_mut(d_in.max(1)).for_each(difference);
                let last = biases.pop().unwrap_or(0.0);
                biases.iter_mut().for_each(|bias| *bias -= last);
            }
            Rows::Negated => weights.iter_mut().chain(&mut biases).for_each(|number| *number = -*number),
        }
        (weights, biases)
    }

    /// The number of the sample that is input `o` at a position; `None` where a convolution is padded.
    pub(crate) fn source(&self, o: usize, position: usize) -> Option<usize> {
        match &self.columns {
            Columns::Vectors | Columns::Constants { .. } => Some(position * self.shape.d_in + o),
            Columns::Windows(conv) => {
                let [_, height, width] = conv.input;
                let [kernel_height, kernel_width] = conv.kernel;
                let (channel, o) = (o / (kernel_height * kernel_width), o % (kernel_height * kernel_width));
                let (row, column) = (position / conv.output[2], position % conv.output[2]);
                let ([down, across], [above, left]) = (conv.stride, conv.padding);
                let y = (row * down + o / kernel_width * conv.dilation[0]).checked_sub(above)?;
                let x = (column * across + o % kernel_width * conv.dilation[1]).checked_sub(left)?;
                (y < height && x < width).then_some((channel * height + y) * width + x)
            }
        }
    }

    /// Where output `j` at a position stands among the sample's outputs.
    pub fn target(&self, j: usize, position: usize) -> usize {
        match self.columns {
            Columns::Vectors | Columns::Constants { .. } => position * self.shape.d_out + j,
            Columns::Windows(_) => j * self.positions + position,
        }
    }

    /// Arranges samples (a row for each number, a column for each sample) for the product: columns position by
    /// position, within a position sample by sample.
    pub fn arrange<R: Ring>(&self, samples: &Matrix<R>) -> Result<Matrix<R>, Error> {
        let count = samples.columns();
        let mut elements = vec![0; self.shape.d_in * self.positions * count];
        if samples.rows() != self.input_size() {
            let (expected, found) = ((self.input_size(), count), samples.shape());
            return Err(AlgebraError::Shape { operation: "arrangement", expected, found }.into());
        }
        for (o, row) in elements.chunks_exact_mut((self.positions * count).max(1)).enumerate() {
            for (position, target) in row.chunks_exact_mut(count.max(1)).enumerate() {
                if let Some(source) = self.source(o, position) {
                    target.copy_from_slice(samples.row(source));
                }
            }
        }
        Ok(Matrix::new(samples.ring(), self.shape.d_in, self.positions * count, elements)?)
    }
}

/// Which client acts at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecryptorSlot {
    /// Decryptor of a layer outside the recurrent unit: place in the chain, from 0.
    Layer(usize),
    /// Sees the first step's gates and every hidden state, and shares them again.
    Resharer,
    /// Sees the gates of all later steps.
    Gates,
}

/// What the servers hold for an operator to be applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The test data.
    Data,
    /// What the client at this step shared.
    Step(usize),
}

/// What a client gets at a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Receive {
    /// Outputs of an operator at some positions.
    Outputs {
        /// Which operator.
        operator: usize,
        /// Applied to what.
        input: Input,
        /// First position.
        first: usize,
        /// How many positions.
        count: usize,
    },
    /// An operator's biases alone: its outputs for a zero input.
    Bias {
        /// Which operator.
        operator: usize,
    },
    /// The gated sum: what the client at step `gates` shared (z and u), the state shared at step `state`: u + z * h.
    Update {
        /// Where z and u come from.
        gates: usize,
        /// Where the state comes from.
        state: usize,
    },
    /// An operator's biases, once for all samples: a vector of the model.
    Vector {
        /// Which operator.
        operator: usize,
    },
    /// The sum of what clients shared at earlier steps.
    Sum {
        /// Each step, and the part that was shared there.
        parts: Vec<(usize, usize)>,
    },
}

/// What a client makes of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Activations; the result goes back as shares.
    Activate {
        /// One after the other.
        activations: Vec<Activation>,
        /// The operator that takes the result.
        feeds: usize,
    },
    /// The state after the first step.
    FirstState {
        /// The operator that takes it.
        feeds: usize,
    },
    /// The update gate z and u = (1 - z) n of a step.
    Gates {
        /// The step, from 1 (the second).
        time_step: usize,
    },
    /// The state after a later step.
    State {
        /// The operator that takes it.
        feeds: usize,
    },
    /// Activations, then the predicted class: that of the largest score, where the last class's is 0 if only the others
    /// were computed.
    Label(Vec<Activation>),
    /// Numbers for every layer that takes some of them, one below the other.
    Parts(Vec<SharedPart>),
}

/// One visit to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct DecryptionStep {
    /// By whom.
    pub slot: DecryptorSlot,
    /// What it gets.
    pub receives: Vec<Receive>,
    /// Layers that it computes first, where what it gets is joined or normalised.
    pub layers: Vec<ClearLayer>,
    /// What it does.
    pub then: Then,
}

impl DecryptionStep {
    /// The operator that takes all that the client shares; none for labels and gates, and where parts are shared.
    pub fn feeds(&self) -> Option<usize> {
        match self.then {
            Then::Activate { feeds, .. } | Then::FirstState { feeds } | Then::State { feeds } => Some(feeds),
            Then::Gates { .. } | Then::Label(_) | Then::Parts(_) => None,
        }
    }

    /// Parts that the client shares for one layer each; none where it shares one thing.
    pub fn parts(&self) -> &[SharedPart] {
        if let Then::Parts(parts) = &self.then { parts } else { &[] }
    }

    /// The rows of a part among all that the client shares.
    pub(crate) fn rows_of(&self, part: usize) -> Range<usize> {
        let begin = self.parts().iter().take(part).map(|part| part.size).sum();
        begin..begin + self.parts().get(part).map_or(0, |part| part.size)
    }
}

/// Sizes of the recurrent unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GruShape {
    /// Steps of one sample.
    pub steps: usize,
    /// Size of the hidden state.
    pub hidden: usize,
    /// The operator of the hidden gates.
    pub hidden_operator: usize,
}

/// The whole model.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Numbers in one sample.
    pub input_size: usize,
    /// Classes.
    pub classes: usize,
    /// What owners do to their samples before they share them.
    pub prelude: Vec<Activation>,
    /// The linear maps.
    pub operators: Vec<Operator>,
    /// The visits, in order.
    pub steps: Vec<DecryptionStep>,
    /// The recurrent unit, if there is one.
    pub gru: Option<GruShape>,
    /// How layers take what others hand on, where it is not what the one before does. There are no visits then.
    pub(crate) wiring: Option<Wiring>,
}

impl Program {
    /// Numbers of a whole model: weights and biases.
    pub fn model_size(&self) -> usize {
        self.operators.iter().map(|operator| operator.shape.d_out * (operator.shape.d_in + 1)).sum()
    }

    /// The size of a recurrent unit's state; 0 without one.
    pub fn hidden(&self) -> usize {
        self.gru.map_or(0, |gru| gru.hidden)
    }

    /// No layers yet.
    pub(crate) fn empty(architecture: &Architecture) -> Self {
        Self {
            input_size: architecture.input_size(),
            classes: architecture.classes(),
            prelude: Vec::new(),
            operators: Vec::new(),
            steps: Vec::new(),
            gru: None,
            wiring: None,
        }
    }

    /// Numbers of the last operator's outputs, or of the last sum.
    pub(crate) fn outputs(&self) -> usize {
        match self.wiring.as_ref().and_then(|wiring| wiring.nodes.last()) {
            Some(node) => node.size,
            None => self.operators.last().map_or(0, Operator::output_size),
        }
    }

    /// How many entries published ranges have: one for each operator, or for each value that layers take.
    pub(crate) fn published(&self) -> usize {
        self.operators.len().max(self.wiring.as_ref().map_or(0, |wiring| wiring.nodes.len()))
    }

    /// The program of an architecture. A model may have one recurrent unit at most.
    pub fn new(architecture: &Architecture) -> Result<Self, Error> {
        let mut program = Self::empty(architecture);
        let mut input = Input::Data;
        for (place, placed) in up_to_scores(architecture.layers()).iter().enumerate() {
            check_layer(place, placed, program.steps.is_empty())?;
            match &placed.layer {
                Layer::Activation(activation, _) => program.activate(*activation)?,
                Layer::Linear(l) => {
                    let shape = LayerShape { d_out: l.outputs, d_in: l.inputs };
                    input = program.linear(input, Operator::vectors(shape, &l.weight, &l.bias, l.positions));
                }
                Layer::Conv2d(c) => input = program.linear(input, Operator::windows(c)),
                Layer::Gru(gru) => input = program.recurrent(input, gru)?,
                Layer::Lstm(_)
                | Layer::Embedding(_)
                | Layer::BatchNorm(_)
                | Layer::LayerNorm(_)
                | Layer::Add { .. }
                | Layer::Concat(_) => {}
            }
        }
        let last = program.steps.len().checked_sub(1).ok_or_else(no_layers)?;
        check_steps(&program)?;
        let Then::Activate { activations, .. } = &program.steps[last].then else {
            return Err(Error::Unsupported {
                what: "a recurrent unit whose state is the scores; put a linear layer behind it, or take nssv",
            });
        };
        if architecture.outputs() == 1 && !activations.is_empty() {
            return Err(Error::Unsupported {
                what: "a single score with an activation behind it; leave the activation out, or take nssv",
            });
        }
        program.steps[last].then = Then::Label(activations.clone());
        program.compare_with_last_class(architecture.outputs());
        Ok(program)
    }

    /// The largest score is found from what the others are above the last one: a row less to encrypt, multiply and
    /// decrypt, and the last decryptor learns less. A single score is what the second class is above the first.
    fn compare_with_last_class(&mut self, outputs: usize) {
        let last = self.steps.last().map(|step| (step.receives.as_slice(), &step.then));
        let Some(([Receive::Outputs { operator, .. }], Then::Label(activations))) = last else { return };
        let (operator, is_last) = (*operator, activations.is_empty());
        if outputs == 1 || is_last {
            self.compare_outputs(operator, outputs);
        }
    }

    /// The same of the operator whose outputs are the scores. Says whether it has a row less.
    pub(crate) fn compare_outputs(&mut self, operator: usize, outputs: usize) -> bool {
        let operator = &mut self.operators[operator];
        let is_compared = outputs > 1 && operator.output_size() == operator.shape.d_out && self.classes > 1;
        if outputs == 1 {
            operator.rows = Rows::Negated;
        } else if is_compared {
            operator.shape.d_out -= 1;
            operator.rows = Rows::AboveLast;
        }
        is_compared
    }

    /// Whether the last client learns only how far scores are above the last class's.
    pub fn compares_with_last_class(&self) -> bool {
        self.operators.iter().any(Operator::is_compared)
    }

    /// What a sample is, for people: records, images where a convolution comes first, sequences where a recurrent unit does.
    pub fn samples_are(&self) -> &'static str {
        let is_image = |first: &Operator| matches!(first.columns, Columns::Windows(_));
        match self.operators.first() {
            _ if self.gru.is_some() => "sequences",
            Some(first) if is_image(first) => "images",
            _ => "records",
        }
    }

    /// Linear layers for the rules of decryption: a recurrent unit counts as its steps.
    pub fn layers(&self) -> usize {
        self.chain() + self.gru.map_or(0, |gru| gru.steps)
    }

    /// Places in the chain of decryptors outside the recurrent unit.
    pub fn chain(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.slot, DecryptorSlot::Layer(_))).count()
    }

    /// Numbers of one sample that a client shares at a step (gates: z above u).
    pub fn shared_size(&self, step: usize) -> usize {
        let hidden = self.hidden();
        match &self.steps[step].then {
            Then::Activate { feeds, .. } => self.operators[*feeds].input_size(),
            Then::FirstState { .. } | Then::State { .. } => hidden,
            Then::Gates { .. } => 2 * hidden,
            Then::Label(_) => 0,
            Then::Parts(parts) => parts.iter().map(|part| part.size).sum(),
        }
    }

    /// Operators that take what a client shares at a step, with the rows that each takes.
    pub(crate) fn fed(&self, step: usize) -> Vec<(usize, Range<usize>)> {
        let decryption = &self.steps[step];
        let whole = decryption.feeds().map(|operator| (operator, 0..self.shared_size(step)));
        let of_parts = decryption.parts().iter().enumerate();
        let of_parts = of_parts.filter_map(|(k, part)| Some((part.operator?, decryption.rows_of(k))));
        whole.into_iter().chain(of_parts).collect()
    }

    /// Numbers of one sample in the sum of some parts.
    pub(crate) fn sum_size(&self, parts: &[(usize, usize)]) -> usize {
        parts.first().map_or(0, |&(step, part)| self.steps[step].rows_of(part).len())
    }

    /// Whether layers take what others than the one before hand on, or are normalised.
    pub fn is_joined(&self) -> bool {
        self.steps.iter().any(|step| !step.layers.is_empty() || !step.parts().is_empty())
    }

    /// Whether some client reads a coalition's means and variances.
    pub fn is_normalised(&self) -> bool {
        let is_vector = |receive: &Receive| matches!(receive, Receive::Vector { .. });
        self.steps.iter().any(|step| step.receives.iter().any(is_vector))
    }

    /// Numbers of one sample in each sum of what clients shared.
    pub(crate) fn sum_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flat_map(|step| &step.receives).filter_map(|receive| match receive {
            Receive::Sum { parts } => Some(self.sum_size(parts)),
            _ => None,
        })
    }

    /// Whether an operator is applied to the test data: its outputs for every coalition are sums of those of
    /// the local models.
    pub fn is_first(&self, operator: usize) -> bool {
        operator == 0
    }

    fn activate(&mut self, activation: Activation) -> Result<(), Error> {
        match self.steps.last_mut().map(|step| &mut step.then) {
            None => self.prelude.push(activation),
            Some(Then::Activate { activations, .. }) => activations.push(activation),
            Some(_) => {
                return Err(Error::Unsupported {
                    what: "an activation right behind a recurrent unit; put a linear layer between them, or take nssv",
                });
            }
        }
        Ok(())
    }

    fn feed(&mut self, operator: usize) {
        if let Some(Then::Activate { feeds, .. } | Then::FirstState { feeds } | Then::State { feeds }) =
            self.steps.last_mut().map(|step| &mut step.then)
        {
            *feeds = operator;
        }
    }

    fn linear(&mut self, input: Input, operator: Operator) -> Input {
        let index = self.operators.len();
        let (first, count) = (0, operator.positions);
        self.feed(index);
        self.operators.push(operator);
        let receives = vec![Receive::Outputs { operator: index, input, first, count }];
        self.steps.push(DecryptionStep {
            slot: DecryptorSlot::Layer(self.chain()),
            receives,
            layers: Vec::new(),
            then: Then::Activate { activations: Vec::new(), feeds: index + 1 },
        });
        Input::Step(self.steps.len() - 1)
    }

    /// PROTOCOL.md, the recurrent unit: the step-1 gates and every state go to one client, the later gates to another.
    fn recurrent(&mut self, input: Input, gru: &secsv_federation::Gru) -> Result<Input, Error> {
        if input != Input::Data {
            return Err(Error::Unsupported {
                what: "a recurrent unit that is not the first layer with parameters; let it be the first, or take nssv",
            });
        }
        let (gates, operator) = (3 * gru.hidden, self.operators.len());
        let shape = |d_in| LayerShape { d_out: gates, d_in };
        self.feed(operator);
        self.operators.push(Operator::vectors(shape(gru.features), &gru.weight_ih, &gru.bias_ih, gru.steps));
        self.operators.push(Operator::vectors(shape(gru.hidden), &gru.weight_hh, &gru.bias_hh, 1));
        let hidden = operator + 1;
        self.gru = Some(GruShape { steps: gru.steps, hidden: gru.hidden, hidden_operator: hidden });
        let receives = vec![
            Receive::Outputs { operator, input, first: 0, count: 1 },
            Receive::Bias { operator: hidden },
        ];
        self.steps.push(DecryptionStep {
            slot: DecryptorSlot::Resharer,
            receives,
            layers: Vec::new(),
            then: Then::FirstState { feeds: hidden },
        });
        for time_step in 1..gru.steps {
            let state = self.steps.len() - 1;
            let mut receives =
                vec![Receive::Outputs { operator: hidden, input: Input::Step(state), first: 0, count: 1 }];
            if time_step == 1 {
                receives.push(Receive::Outputs { operator, input, first: 1, count: gru.steps - 1 });
            }
            self.steps.push(DecryptionStep {
                slot: DecryptorSlot::Gates,
                receives,
                layers: Vec::new(),
                then: Then::Gates { time_step },
            });
            let receives = vec![Receive::Update { gates: state + 1, state }];
            self.steps.push(DecryptionStep {
                slot: DecryptorSlot::Resharer,
                receives,
                layers: Vec::new(),
                then: Then::State { feeds: hidden },
            });
        }
        Ok(Input::Step(self.steps.len() - 1))
    }
}

impl Gates {
    /// Rows of a tensor's numbers.
    fn rows(&self, numbers: &[f64]) -> Vec<f64> {
        let of_gate = numbers.len() / self.all.max(1);
        self.gates.iter().flat_map(|gate| &numbers[gate * of_gate..][..of_gate]).copied().collect()
    }
}

impl Operator {
    /// Some gates of a recurrent unit.
    pub(crate) fn of_gates(self, gates: Gates) -> Self {
        Self { rows: Rows::OfGates(gates), ..self }
    }

    pub(crate) fn vectors(shape: LayerShape, weight: &str, bias: &Option<String>, positions: usize) -> Self {
        let (weight, bias) = (weight.to_owned(), bias.clone());
        Self { shape, weight, bias, positions, rows: Rows::All, columns: Columns::Vectors }
    }

    /// A tensor of so many numbers, each so many times what it is, plus a number. Its weights are zeros that nothing is multiplied with.
    pub(crate) fn constants(tensor: &str, count: usize, (times, plus): (f64, f64)) -> Self {
        Self {
            shape: LayerShape { d_out: count, d_in: 1 },
            weight: String::new(),
            bias: Some(tensor.to_owned()),
            positions: 1,
            rows: Rows::All,
            columns: Columns::Constants { times, plus },
        }
    }

    pub(crate) fn windows(conv: &Conv2d) -> Self {
        let d_in = conv.input[0] * conv.kernel[0] * conv.kernel[1];
        Self {
            shape: LayerShape { d_out: conv.output[0], d_in },
            weight: conv.weight.clone(),
            bias: conv.bias.clone(),
            positions: conv.output[1] * conv.output[2],
            rows: Rows::All,
            columns: Columns::Windows(conv.clone()),
        }
    }
}

/// Why decryption in steps cannot compute a layer, and what to do instead.
pub(crate) fn refusal(layer: &Layer) -> Option<(&'static str, &'static str)> {
    let clear = "take nssv";
    match layer {
        Layer::Linear(_) | Layer::Conv2d(_) | Layer::Gru(_) | Layer::Activation(..) => None,
        Layer::Lstm(_) => {
            Some(("its cell states would be one more secret at every step", "train a gru, or take nssv"))
        }
        Layer::Embedding(_) => Some((
            "it looks rows up by integers that nobody may see",
            "keep the table fixed and save its rows as samples, or take nssv",
        )),
        Layer::BatchNorm(_) => Some((
            "a coalition's mean variances are not linear in its members' models, and whoever divided by them would learn them",
            JOINS,
        )),
        Layer::LayerNorm(_) => {
            Some(("its weights come behind a division by what only a decryptor knows", clear))
        }
        Layer::Add { .. } => Some(("outputs of an earlier layer are not kept as shares", JOINS)),
        Layer::Concat(_) => Some(("outputs of an earlier layer are not kept as shares", JOINS)),
    }
}

/// What to do with joined and normalised layers.
const JOINS: &str = "take blindsv, secretsv (and read what its clients can do) or nssv";

fn no_layers() -> Error {
    Error::Unsupported {
        what: "a model without a linear layer cannot be tested under encryption; let a linear layer or a convolution be the first, or take nssv",
    }
}

pub(crate) fn one_score_of_no_layer() -> Error {
    Error::Unsupported {
        what: "a single score that is no linear layer's output; hand on one score for each class, or take nssv",
    }
}

/// Addresses of messages count steps in 16 bits.
fn check_steps(program: &Program) -> Result<(), Error> {
    match program.steps.len() > usize::from(u16::MAX) {
        true => Err(Error::Unsupported {
            what: "more than 65535 decryption steps, two for each step of a recurrent unit; save shorter sequences, or take nssv",
        }),
        false => Ok(()),
    }
}

/// Why the sample cannot be pooled, and what to do.
const FIRST_CHANGES_SIZE: (&str, &str) =
    ("no layer with weights is before it", "save the samples as it leaves them, or take nssv");

/// Refuses a layer that cannot be one of the steps, by name.
fn check_layer(place: usize, placed: &PlacedLayer, is_first: bool) -> Result<(), Error> {
    let of = |(why, instead)| {
        let (kind, name) = (placed.layer.kind(), placed.name.clone());
        Err(Error::Layer { index: placed.index, kind, name, why, instead })
    };
    if let Some(refusal) = refusal(&placed.layer) {
        return of(refusal);
    }
    if placed.from != [Source::before(place)] {
        return of(("it takes outputs of an earlier layer, which are not kept as shares", JOINS));
    }
    match &placed.layer {
        Layer::Activation(activation, size) if is_first && activation.output_size(*size) != *size => {
            of(FIRST_CHANGES_SIZE)
        }
        _ => Ok(()),
    }
}

/// Rows over all channels, where each has weights for those of its group alone: zeros for the others.
fn over_all_channels(conv: &Conv2d, weights: &[f64]) -> Vec<f64> {
    let (inputs, outputs) = (conv.inputs(), conv.output[0] / conv.groups);
    let mut rows = vec![0.0; weights.len() * conv.groups];
    for (output, row) in weights.chunks_exact(inputs).enumerate() {
        let begin = (output * conv.groups + output / outputs) * inputs;
        rows[begin..begin + inputs].copy_from_slice(row);
    }
    rows
}

/// A tensor's numbers; zeros where a model has none.
fn tensor(weights: &Weights, name: Option<&String>, size: usize) -> Vec<f64> {
    let mut numbers: Vec<f64> =
        name.and_then(|name| weights.get(name)).map_or(Vec::new(), |tensor| tensor.numbers().collect());
    numbers.resize(size, 0.0);
    numbers
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use secsv_federation::{LayerSpec, ModelSpec, Tensor};

    use super::*;
    use crate::activation::Values;

    fn program(layers: Vec<LayerSpec>, model: &Weights) -> Program {
        let (file, spec) = (Path::new("test"), ModelSpec::new(vec![2], 3, layers));
        Program::new(&Architecture::new(&spec, &model.shapes(), file, file).unwrap()).unwrap()
    }

    #[test]
    fn the_last_layer_is_compared_with_its_last_class() {
        let mut model = Weights::new();
        let weights = vec![1.0, 2.0, 3.0, 4.0, 10.0, 20.0];
        model.insert("w", Tensor::new(vec![3, 2], weights.clone()).unwrap());
        model.insert("b", Tensor::new(vec![3], vec![0.5, 0.25, 1.0]).unwrap());
        let linear = || LayerSpec::Linear { weight: "w".into(), bias: Some("b".into()) };

        let compared = program(vec![linear()], &model);
        assert_eq!(compared.operators[0].shape, LayerShape { d_out: 2, d_in: 2 });
        let expected = (vec![-9.0, -18.0, -7.0, -16.0], vec![-0.5, -0.75]);
        assert_eq!(compared.operators[0].numbers(&model), expected);
        // What keeps the order of scores may follow; what does not needs the scores themselves.
        assert_eq!(program(vec![linear(), LayerSpec::Softmax {}], &model), compared);
        let whole = program(vec![linear(), LayerSpec::Relu {}], &model);
        assert!(compared.compares_with_last_class() && !whole.compares_with_last_class());
        assert_eq!(whole.operators[0].shape, LayerShape { d_out: 3, d_in: 2 });
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        assert_eq!(whole.operators[0].numbers(&model), (weights, vec![0.5, 0.25, 1.0]));
    }

    #[test]
    fn equal_scores_are_the_lowest_class() {
        let all_rows = |rows: [f64; 3]| Values::new(1, rows.to_vec()).labels(3)[0];
        assert_eq!([[1.0, 1.0, 1.0], [-3.0, -2.0, -1.0], [-1.0, 2.0, 2.0]].map(all_rows), [0, 2, 1]);
        let scores = |rows: [f64; 2]| Values::new(1, rows.to_vec()).labels(3)[0];
        assert_eq!(
            [[0.0, 0.0], [-1.0, 0.0], [-1.0, -2.0], [-1.0, 3.0], [3.0, 3.0]].map(scores),
            [0, 1, 2, 1, 0]
        );
    }
}

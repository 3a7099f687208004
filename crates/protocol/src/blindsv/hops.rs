//! The layers between samples and scores as **hops**: an operator's outputs, cut to few bits, become the next operator's inputs.
//!
//! Everything here follows from published numbers. **No number can leave its range** where bounds are proven: a row's norm times the
//! largest input bounds an output, and with that the next inputs, from the samples on. Calibrated bounds are smaller, and a model may
//! exceed them: see [`HopRange`]. What known models give decides how many fractional bits there are.
//!
//! A hop's outputs Y stand for w kappa 2^(weight + input bits) times the real numbers,
//! where w is the coalition's share of the training data and kappa what earlier hops left. Nobody divides: a hop drops as many
//! bits as bring the factor above one half again, and what is left is the next kappa, which everybody knows.

use std::collections::BTreeSet;

use secsv_algebra::{FixedPoint, Secret};
use secsv_federation::Activation;

use super::{
    approximation,
    between::Between,
    comparison::Comparison,
    curve::{Curve, Knots},
    joined::NodeScales,
    lanes::{blocks, planes},
    largest::Tournament,
    sums::Sums,
    wiring::Wiring,
};
use crate::{
    Error, Program,
    precision::{OperatorFormat, Precision, Ranges, exponent},
    program::{Operator, Then},
    session::{HiddenSettings, RangeRule},
};

/// Word widths, the narrowest first.
pub(crate) const WORD_WIDTHS: [u32; 4] = [40, 48, 56, 64];

/// What becomes of outputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Gate {
    /// Nothing.
    Linear,
    /// The larger of the number and zero.
    Relu,
    /// Its square.
    Square,
    /// Another piecewise-linear function.
    Curve(Curve),
}

impl Gate {
    /// What activations do one after the other, if one gate can.
    pub(super) fn of(activations: &[Activation]) -> Option<Self> {
        if activations == [Activation::Square] {
            return Some(Self::Square);
        }
        let curve = Curve::of(activations)?;
        Some(match curve {
            curve if curve.is_identity() => Self::Linear,
            curve if curve.is_relu() => Self::Relu,
            curve => Self::Curve(curve),
        })
    }

    /// Signs that are found of each number.
    pub(crate) fn signs(&self) -> usize {
        match self {
            Self::Linear | Self::Square => 0,
            Self::Relu => 1,
            Self::Curve(curve) => curve.knots(),
        }
    }

    /// Fractional bits of results and a power of two that bounds them, from those of T.
    pub(super) fn results(&self, fraction: i32, bound: i32) -> (i32, i32) {
        match self {
            Self::Linear | Self::Relu => (fraction, bound),
            Self::Square => (2 * fraction, 2 * bound),
            Self::Curve(curve) => (fraction + curve.factor().0, exponent(curve.largest(bound))),
        }
    }

    /// What a factor that numbers stand for becomes.
    pub(super) fn factor(&self, left: f64) -> f64 {
        match self {
            Self::Linear | Self::Relu => left,
            Self::Square => left * left,
            Self::Curve(curve) => left * curve.factor().1,
        }
    }
}

/// One operator's outputs on their way to the next operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hop {
    /// Sums of outputs that are opened, where it is not outputs themselves.
    pub before: Option<Sums>,
    /// The largest of some of these, where it is not all that the gate takes.
    pub largest: Option<Tournament>,
    pub gate: Gate,
    /// Sums of results that the next operator takes, where it is not results themselves.
    pub after: Option<Sums>,
    /// Numbers of one sample that are opened.
    pub numbers: usize,
    /// Whether they are the same for all samples, and opened once for all.
    pub is_of_model: bool,
    /// Bits of the next operator's words, in which the gate's results are.
    pub word: u32,
    /// Bits of an output that are kept: T is smaller than two to this power less two.
    pub kept: u32,
    /// Bits that are dropped, at most: fewer for small coalitions.
    pub dropped: u32,
    /// How T's sign is found, where the gate needs it.
    pub(super) comparison: Comparison,
}

impl Hop {
    /// Of a sum of so many numbers, of which so many bits are kept and dropped.
    pub(super) fn new(between: &Between, outputs: usize, (kept, dropped): (u32, u32)) -> Self {
        let Between { before, largest, gate, after } = between.clone();
        let numbers = before.as_ref().map_or(outputs, Sums::count);
        let comparison = Comparison::new(kept as usize);
        let (is_of_model, word) = (false, 0);
        Self { before, largest, gate, after, numbers, is_of_model, word, kept, dropped, comparison }
    }

    /// Numbers of one sample that the gate takes.
    pub(super) fn gated(&self) -> usize {
        self.largest.as_ref().map_or(self.numbers, Tournament::count)
    }

    /// Numbers of one sample that the next operator takes.
    pub(super) fn handed(&self) -> usize {
        self.after.as_ref().map_or_else(|| self.gated(), Sums::count)
    }

    /// Levels at which the larger of two numbers are found.
    pub(super) fn levels(&self) -> usize {
        self.largest.as_ref().map_or(0, Tournament::levels)
    }

    /// Pairs of numbers of one sample that a level compares.
    pub(super) fn pairs(&self, level: usize) -> usize {
        self.largest.as_ref().map_or(0, |largest| largest.pairs(level))
    }

    /// Bytes of a number modulo two to the power of the bits that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.div_ceil(8) as usize
    }

    /// Bytes of an output under masks.
    pub(super) fn bytes(&self) -> usize {
        (self.kept + self.dropped).div_ceil(8) as usize
    }

    /// What is added to outputs so that T and its lift are at least zero, where the gate needs that.
    pub(super) fn offset(&self, dropped: u32) -> u64 {
        match self.gate {
            Gate::Relu | Gate::Curve(_) => 0,
            Gate::Linear | Gate::Square => 1 << (dropped + self.kept - 2),
        }
    }

    /// The knots of its function, if it is piecewise linear, for numbers that stand for so many times the real ones.
    pub(super) fn knots(&self, scale: f64) -> Option<Knots> {
        match &self.gate {
            Gate::Curve(curve) => Some(curve.at_scale(scale, self.kept - 2)),
            _ => None,
        }
    }

    /// Steps at which signs are compared.
    pub(super) fn steps(&self) -> usize {
        if self.gate.signs() > 0 { self.comparison.steps() } else { 0 }
    }

    /// The planes of what is compared: of every number less each knot, knot by knot in each plane.
    pub(super) fn planes(&self, numbers: &[u64], knots: Option<&Knots>) -> Vec<u64> {
        let (signs, words, bits) = (self.gate.signs(), blocks(numbers.len()), self.kept as usize);
        let place = |sign: usize| knots.map_or(0, |knots| knots.changes[sign].0 as u64);
        let mut found = vec![0; signs * words * bits];
        for sign in 0..signs {
            let less = numbers.iter().map(|number| number.wrapping_sub(place(sign)) & mask(self.kept));
            let of_sign = Secret::new(planes(&less.collect::<Vec<_>>(), bits));
            for (bit, plane) in of_sign.expose().chunks_exact(words.max(1)).enumerate() {
                found[(bit * signs + sign) * words..][..words].copy_from_slice(plane);
            }
        }
        found
    }
}

/// The range of a hop's outputs, which everybody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopRange {
    /// Outputs are at most two to this power ...
    pub bound: i32,
    /// ... and published norms prove only that they are at most two to this one, if those before are in their ranges.
    pub proven: i32,
    /// Bits after the point that are kept of an output.
    pub fraction: i32,
}

impl HopRange {
    /// Bits above the largest magnitude that owners measured under models they know: coalitions' models are others.
    const MARGIN: i32 = 2;

    /// The range of outputs for which norms prove `proven`, and which were measured to be at most two to the power of `measured`.
    pub(super) fn new(rule: RangeRule, proven: i32, measured: i32) -> Self {
        // A bound below one counts as one: a comparison has no fewer bits than T's fraction.
        let proven = proven.max(0);
        let bound = match rule {
            RangeRule::Proven => proven,
            RangeRule::Auto | RangeRule::Calibrated => proven.min((measured + Self::MARGIN).max(0)),
        };
        Self { bound, proven, fraction: 0 }
    }

    /// Whether only known models say that outputs stay in it.
    pub fn is_calibrated(self) -> bool {
        self.bound < self.proven
    }

    /// What outputs stay below if none is out of range: up to twice a measured bound gates are right, and what they stand for is up to
    /// twice as much.
    pub(super) fn reach(self) -> i32 {
        self.bound + if self.is_calibrated() { 2 } else { 0 }
    }

    /// Whether every number that leaves it is counted, if those before are in theirs: what norms prove stays below six times it.
    pub fn counts_all(self) -> bool {
        self.proven <= self.bound + 2
    }
}

/// A model's hops, and the words of its operators.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hops {
    pub all: Vec<Hop>,
    /// The range of each hop's outputs.
    pub ranges: Vec<HopRange>,
    /// Hops whose outputs are checked to be in their range.
    pub(super) checked: Vec<usize>,
    /// Bits of each operator's words: its model, its inputs and outputs are shared modulo two to this power.
    pub words: Vec<u32>,
    /// Bits that each hop drops for a coalition with all of the training data, less what its share takes away.
    bits: Vec<i32>,
    /// Fractional bits of each hop's T.
    fractions: Vec<i32>,
    /// What scores are of the last operator's outputs, where it is not those themselves.
    pub scores: Option<Sums>,
    /// What each hop's outputs are the sum of, and scores.
    pub wiring: Wiring,
    /// What brings sums to scale, where values of several hops are added up.
    pub(crate) nodes: Vec<NodeScales>,
    /// Bits of words of scores.
    pub score_word: u32,
    /// Bits of words of each sum, where values of several hops are added up.
    pub node_words: Vec<u32>,
    /// Numbers of one sample of each operator's outputs.
    pub outputs: Vec<usize>,
    /// Bits of factors of biases.
    pub(super) factors: Vec<u32>,
    /// Whether weights have about as many fractional bits as are of use.
    pub(super) is_precise: bool,
}

/// A coalition's public numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scales {
    /// Bits that each hop drops.
    pub dropped: Vec<u32>,
    /// What each operator's biases are multiplied by.
    pub factors: Vec<u64>,
    /// Where the slopes of each hop's function change, if it is piecewise linear.
    pub knots: Vec<Option<Knots>>,
    /// What each value of each term of each sum is multiplied by, and each sum; nothing where that is 1 everywhere.
    pub values: Vec<Vec<Vec<u64>>>,
    pub sums: Vec<u64>,
    /// kappa of each operator's inputs, where each takes what the one before gives.
    pub kappas: Vec<f64>,
}

impl Scales {
    /// What a value is multiplied by where a term of a sum takes it.
    pub(super) fn value(&self, (node, term, place): (usize, usize, usize)) -> u64 {
        self.values.get(node).map_or(1, |terms| terms[term][place])
    }

    /// What a sum is multiplied by.
    pub(super) fn sum(&self, node: usize) -> u64 {
        self.sums.get(node).copied().unwrap_or(1)
    }
}

/// Fractional bits of hidden numbers whose largest is one: about a thousandth of a typical one.
const NUMBER_BITS: i32 = 13;
/// Fractional bits of weights whose row has a norm of one and one input, of one client.
const WEIGHT_BITS: i32 = 10;
/// So many fewer do, before bounds that are only measured are taken for the sake of more.
pub(super) const FEWER_BITS: i32 = 3;
/// Fractional bits of hidden numbers and of weights, at least.
pub(super) const MIN_BITS: i32 = 5;
/// Fractional bits of samples, at least: the largest number may be an outlier.
pub(super) const MIN_SAMPLE_BITS: i32 = 9;
/// Bits above a number's largest magnitude: its sign, an offset that makes it positive, and roundings.
pub(super) const SPARE: i32 = 3;
/// No more fractional bits than this are of use.
pub(super) const MAX_BITS: i32 = 24;

impl Hops {
    /// A model of one operator in words of so many bits.
    pub(crate) fn of_layer(word: u32) -> Self {
        Self {
            all: Vec::new(),
            ranges: Vec::new(),
            checked: Vec::new(),
            words: vec![word],
            bits: Vec::new(),
            fractions: Vec::new(),
            scores: None,
            wiring: Wiring::chain(1),
            nodes: Vec::new(),
            score_word: word,
            node_words: Vec::new(),
            outputs: Vec::new(),
            factors: vec![0],
            is_precise: true,
        }
    }

    /// The hops of a model, with formats that its published ranges fit.
    pub(crate) fn new(
        program: &Program,
        ranges: &Ranges,
        hidden: HiddenSettings,
        clients: usize,
    ) -> Result<(Self, Precision), Error> {
        let under = |rule| Self::under(program, ranges, rule, clients);
        let (mut hops, precision) = match hidden.ranges {
            RangeRule::Auto => match under(RangeRule::Proven) {
                Ok(found) if found.0.is_precise => found,
                proven => under(RangeRule::Calibrated).or(proven)?,
            },
            rule => under(rule)?,
        };
        // What follows from the model alone is within what norms prove.
        let is_checked = |hop: &usize| {
            !hops.all[*hop].is_of_model && (hidden.checks_all || hops.ranges[*hop].is_calibrated())
        };
        hops.checked = (0..hops.all.len()).filter(is_checked).collect();
        Ok((hops, precision))
    }

    /// The same under one rule, and without checks.
    fn under(
        program: &Program,
        ranges: &Ranges,
        rule: RangeRule,
        clients: usize,
    ) -> Result<(Self, Precision), Error> {
        if let Some(wiring) = &program.wiring {
            return Self::joined(program, wiring, ranges, rule, clients);
        }
        let (gates, scores) = between(program)?;
        let mut hops = Self { factors: Vec::new(), words: Vec::new(), scores, ..Self::of_layer(0) };
        let mut formats = Vec::with_capacity(program.operators.len());
        // Fractional bits of an operator's inputs, and what they cannot exceed: two to the power of this.
        let mut input = number_bits(ranges.inputs[0]).max(MIN_SAMPLE_BITS);
        let mut largest = ranges.inputs[0];
        // Bits of the next operator's words, at least: a hop's T and its lift fit.
        let mut least = 0;
        for (index, operator) in program.operators.iter().enumerate() {
            let norm = ranges.norms[index];
            // Scores have all bits that they may need, if hidden numbers are in their ranges.
            let rule = if gates.get(index).is_some() { rule } else { RangeRule::Proven };
            let range = HopRange::new(rule, norm + largest.max(0), ranges.outputs[index]);
            let bound = range.bound;
            let before = gates.get(index).map_or(&hops.scores, |between| &between.before);
            // Sums are so many times larger than their means.
            let summed = factor_bits(before.as_ref());
            let wanted = weight_bits(norm, operator.shape.d_in, clients);
            let needed = |weight: i32| weight + input + bound + summed + SPARE;
            let wide = |word: &&u32| **word as i32 >= needed(wanted).max(least);
            let word = *WORD_WIDTHS.iter().find(wide).unwrap_or(&u64::BITS);
            // What is left is the weights', as far as a double's bits reach: biases are encoded at the same scale.
            let scale = if index == 0 { input } else { 0 };
            let weight = (word as i32 - needed(0)).min(MAX_BITS).min(50 - norm.max(0) - scale);
            let refused = |needed: i32| Error::Precision { layer: index + 1, needed, available: word as i32 };
            hops.is_precise &= weight >= wanted - FEWER_BITS;
            if weight < MIN_BITS || input < MIN_BITS || (word as i32) < least {
                return Err(refused(needed(MIN_BITS).max(least)));
            }
            let bias = if index == 0 { weight + input } else { weight };
            let [weights, inputs, biases] = [(weight, norm), (input, largest), (bias, norm)]
                .map(|(bits, exponent)| FixedPoint::new(bits as u32, exponent));
            formats.push(OperatorFormat { weight: weights, input: inputs, bias: biases });
            hops.words.push(word);
            hops.factors.push((weight + input - bias) as u32);
            let (Some(between), Some(&next)) = (gates.get(index), ranges.inputs.get(index + 1)) else {
                break;
            };
            // No client can claim more than is proven.
            let next = next.min(between.gate.results(0, range.reach()).1);
            let fraction = fraction(&between.gate, next).min(weight + input - clients_bits(clients) - 1);
            if fraction < MIN_BITS {
                return Err(refused(needed(weight) + MIN_BITS - fraction));
            }
            let kept = (fraction + bound + SPARE) as u32;
            least = kept as i32 + 2;
            hops.bits.push(weight + input - fraction);
            let dropped = weight + input - fraction + summed;
            hops.fractions.push(fraction);
            hops.ranges.push(HopRange { fraction, ..range });
            (input, largest) = between.gate.results(fraction, range.reach());
            input += factor_bits(between.after.as_ref());
            hops.all.push(Hop::new(between, operator.output_size(), (kept, dropped as u32)));
        }
        for (hop, word) in hops.all.iter_mut().zip(&hops.words[1..]) {
            hop.word = *word;
        }
        hops.score_word = *hops.words.last().unwrap_or(&u64::BITS);
        hops.wiring = Wiring::chain(program.operators.len());
        hops.outputs = program.operators.iter().map(Operator::output_size).collect();
        let unused = FixedPoint::new(1, 0);
        Ok((hops, Precision { operators: formats, gate: unused, update: unused }))
    }

    /// A coalition's public numbers, from the sum of its members' shares of the training data.
    pub(crate) fn scales(&self, share: f64) -> Scales {
        let mut scales = Scales::default();
        if !self.nodes.is_empty() {
            scales.factors = self.factors.iter().map(|bits| 1 << bits).collect();
            for (index, (node, of_node)) in self.wiring.nodes.iter().zip(&self.nodes).enumerate() {
                of_node.add(node, self.all.get(index), share, &mut scales);
            }
            return scales;
        }
        let mut kappa = 1.0f64;
        for (index, &bits) in self.factors.iter().enumerate() {
            scales.kappas.push(kappa);
            scales.factors.push((kappa * f64::powi(2.0, bits as i32)).round() as u64);
            let (Some(hop), Some(dropped)) = (self.all.get(index), self.bits.get(index)) else { break };
            let product = share * kappa * factor(hop.before.as_ref());
            // A share so small that nothing is dropped leaves less than one half.
            let exponent = ceil_log2(product).max(-dropped);
            scales.dropped.push((dropped + exponent) as u32);
            let left = product * f64::powi(2.0, -exponent);
            scales.knots.push(hop.knots(left * f64::powi(2.0, self.fractions[index])));
            let after = hop.after.as_ref();
            kappa = hop.gate.factor(left) * factor(after) * f64::powi(0.5, factor_bits(after));
        }
        scales
    }

    /// Bytes of a word of an operator.
    pub(crate) fn bytes(&self, operator: usize) -> usize {
        self.words[operator] as usize / 8
    }

    /// Whether a hop's outputs are checked to be in their range.
    pub(super) fn is_checked(&self, hop: usize) -> bool {
        self.checked.contains(&hop)
    }

    /// Whether numbers out of range are counted at any hop.
    pub(crate) fn counts_overflows(&self) -> bool {
        !self.checked.is_empty()
    }

    /// Whether there are hops.
    pub(crate) fn is_deep(&self) -> bool {
        !self.all.is_empty()
    }
}

/// The lowest bits of a word.
pub(super) fn mask(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) }
}

/// The smallest exponent of a power of two that is not below a positive number, whatever the machine.
fn ceil_log2(number: f64) -> i32 {
    let mut exponent = 0;
    while f64::powi(2.0, exponent) < number {
        exponent += 1;
    }
    while exponent > -64 && f64::powi(2.0, exponent - 1) >= number {
        exponent -= 1;
    }
    exponent
}

/// Functions of a model that are computed by straight pieces, by name.
pub(crate) fn approximated(program: &Program) -> BTreeSet<&'static str> {
    let activations = program.steps.iter().filter_map(|step| match &step.then {
        Then::Activate { activations, .. } => Some(&activations[..]),
        _ => None,
    });
    let nodes = program.wiring.iter().flat_map(|wiring| &wiring.nodes).map(|node| &node.activations[..]);
    activations.chain(nodes).flat_map(approximation::approximated).collect()
}

/// Sums are so many times what layers give, as a power of two that is not below it.
pub(super) fn factor_bits(sums: Option<&Sums>) -> i32 {
    sums.map_or(0, |sums| sums.factor().next_power_of_two().ilog2() as i32)
}

/// Sums are so many times what layers give.
pub(crate) fn factor(sums: Option<&Sums>) -> f64 {
    sums.map_or(1.0, |sums| sums.factor() as f64)
}

/// What becomes of each operator's outputs but the last's, and what scores are of the last's.
pub(crate) fn between(program: &Program) -> Result<(Vec<Between>, Option<Sums>), Error> {
    let refused = |what| Err(Error::Unsupported { what });
    let (mut all, mut scores) = (Vec::new(), None);
    for (step, operator) in program.steps.iter().zip(&program.operators) {
        let (Then::Label(activations) | Then::Activate { activations, .. }) = &step.then else { continue };
        let (mut between, taken) = Between::of(activations);
        if let Some(order) = operator.order() {
            let order = Sums::order(order);
            between.before = Some(between.before.map_or_else(|| order.clone(), |sums| order.then(&sums)));
        }
        if taken < activations.len() {
            return refused(
                "blindsv tests pools, piecewise-linear functions, sigmoid, tanh, gelu, silu and elu by straight pieces, and squares between two layers, a square alone; no softmax, which divides: take secsv or secretsv for this model, and read what clients can do under it",
            );
        }
        if let Then::Activate { .. } = step.then {
            all.push(between);
            continue;
        }
        if between.gate != Gate::Linear || between.largest.is_some() || between.after.is_some() {
            return refused(
                "blindsv tests models whose last linear layer gives the scores, or numbers whose means they are",
            );
        }
        scores = between.before;
    }
    Ok((all, scores))
}

/// Whether scores are one operator's outputs.
pub(crate) fn is_one_product(program: &Program) -> Result<bool, Error> {
    if program.wiring.is_some() {
        return Ok(false);
    }
    let (all, scores) = between(program)?;
    Ok(all.is_empty() && scores.is_none())
}

/// Numbers are at most two to this power: how many fractional bits they get.
pub(super) fn number_bits(largest: i32) -> i32 {
    (NUMBER_BITS - largest).clamp(MIN_BITS, MAX_BITS)
}

/// Fractional bits of weights: about a thousandth of a typical one, times a client's share.
pub(super) fn weight_bits(norm: i32, inputs: usize, clients: usize) -> i32 {
    let inputs = inputs.next_power_of_two().ilog2() as i32;
    (WEIGHT_BITS + inputs + clients_bits(clients) - norm).clamp(MIN_BITS, MAX_BITS)
}

pub(super) fn clients_bits(clients: usize) -> i32 {
    clients.next_power_of_two().ilog2() as i32
}

/// Fractional bits of T, from what the next operator's inputs are on known models: at most two to the power of `next`.
pub(super) fn fraction(gate: &Gate, next: i32) -> i32 {
    match gate {
        Gate::Curve(curve) => number_bits(next) - curve.coarser(),
        // The next inputs are squares.
        Gate::Square => number_bits((next + 1).div_euclid(2)),
        Gate::Linear | Gate::Relu => number_bits(next),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_federation::{LayerSpec, ModelSpec};
    use secsv_he::Preset;

    use super::*;
    use crate::{
        decryptors::Protocol,
        session::{Matmul, Settings, tests::of_model},
    };

    fn program(gates: [LayerSpec; 2]) -> Program {
        let linear = |weight: &str| LayerSpec::Linear { weight: weight.into(), bias: None };
        let [first, second] = gates;
        let model = ModelSpec::new(vec![3], 4, [linear("a"), first, linear("b"), second, linear("c")]);
        let protocol = Protocol::BlindSv;
        let (preset, matmul) = (Preset::Standard, Matmul::Packed);
        let settings = Settings {
            protocol,
            preset,
            matmul,
            always_skips: false,
            whole_rounds: true,
            hidden: Default::default(),
            by_class: false,
        };
        let shapes: [(&str, &[usize]); 3] = [("a", &[5, 3]), ("b", &[2, 5]), ("c", &[4, 2])];
        of_model(3, 1, &model, &shapes, settings).program.clone()
    }

    fn gate() -> impl Strategy<Value = LayerSpec> {
        prop_oneof![
            Just(LayerSpec::Relu {}),
            Just(LayerSpec::Square {}),
            Just(LayerSpec::Flatten {}),
            Just(LayerSpec::HardSigmoid {}),
            Just(LayerSpec::LeakyRelu { slope: None }),
        ]
    }

    proptest! {
        /// Whatever clients publish: formats, or a refusal.
        #[test]
        fn published_ranges_give_formats_or_a_refusal(
            gates in (gate(), gate()),
            norms in prop::collection::vec(-40i32..60, 3),
            inputs in prop::collection::vec(-40i32..60, 3),
            outputs in prop::collection::vec(-40i32..60, 3),
            is_calibrated: bool,
            clients in 2usize..100,
            share in 1e-9f64..1.0,
        ) {
            let program = program([gates.0, gates.1]);
            let ranges = Ranges { norms, inputs, outputs };
            let rule = if is_calibrated { RangeRule::Calibrated } else { RangeRule::Proven };
            let hidden = HiddenSettings { ranges: rule, ..HiddenSettings::USUAL };
            let Ok((hops, precision)) = Hops::new(&program, &ranges, hidden, clients) else { return Ok(()) };
            let checked: Vec<usize> = (0..2).filter(|hop| hops.ranges[*hop].is_calibrated()).collect();
            prop_assert_eq!(&hops.checked, &checked);
            for (range, output) in hops.ranges.iter().zip(&ranges.outputs) {
                let measured = (output + HopRange::MARGIN).max(0);
                prop_assert_eq!(range.bound, if is_calibrated { measured.min(range.proven) } else { range.proven });
            }
            prop_assert_eq!((hops.all.len(), precision.operators.len()), (2, 3));
            let scales = hops.scales(share);
            for (hop, dropped) in hops.all.iter().zip(&scales.dropped) {
                prop_assert!(hop.kept >= 4 && hop.word > hop.kept + 1 && *dropped <= hop.dropped);
                prop_assert!(hop.kept + hop.dropped <= u64::BITS, "{hop:?}");
            }
        }
    }

    /// What norms prove of a deep model needs more bits than there are; what known models give does not.
    #[test]
    fn calibrated_ranges_fit_where_proven_ones_do_not() {
        let program = program([LayerSpec::Relu {}, LayerSpec::Relu {}]);
        let ranges = Ranges { norms: vec![20; 3], inputs: vec![0, 4, 4], outputs: vec![4; 3] };
        let hops = |ranges_rule| {
            let hidden = HiddenSettings { ranges: ranges_rule, ..HiddenSettings::USUAL };
            Hops::new(&program, &ranges, hidden, 3).map(|(hops, _)| hops)
        };
        let refused = hops(RangeRule::Proven);
        assert!(matches!(refused, Err(Error::Precision { .. })), "{refused:?}");
        let hops = [RangeRule::Auto, RangeRule::Calibrated].map(|rule| hops(rule).unwrap());
        assert_eq!(hops[0], hops[1]);
        let [hops, _] = hops;
        assert_eq!(hops.checked, [0, 1]);
        let found: Vec<_> = hops.ranges.iter().map(|range| (range.bound, range.proven)).collect();
        // The second bound is proven of inputs that are in their range, and stand for up to four times a measured bound.
        assert_eq!(found, [(6, 20), (6, 28)]);
        assert!(hops.ranges.iter().all(|range| range.is_calibrated()));
    }
}

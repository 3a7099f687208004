//! Formats of models whose layers take any earlier ones' outputs. What is added up must stand for the same: so every sum is **brought to
//! scale** before it is cut. Shares are multiplied by public whole numbers: by two to some power over the coalition's share of the
//! training data where operators are in the sum, and values beside them by what the sum stands for over what they stand for.

use secsv_algebra::FixedPoint;

use super::{
    between::Between,
    curve::Curve,
    hops::{
        FEWER_BITS, Gate, Hop, HopRange, Hops, MAX_BITS, MIN_BITS, MIN_SAMPLE_BITS, SPARE, Scales,
        WORD_WIDTHS, clients_bits, factor, factor_bits, fraction, number_bits, weight_bits,
    },
    sums::Sums,
    wiring::{Node, NodeKind, Sign, Term, Wiring},
};
use crate::{
    Error, Program,
    precision::{OperatorFormat, Precision, Ranges},
    program::Operator,
    session::RangeRule,
};

/// Fractional bits of constants, at most: there are few, so width costs little.
const CONSTANT_BITS: i32 = 38;
/// Fractional bits that what follows from the model alone has more than other values.
const MODEL_BITS: i32 = 4;
/// Powers of two between the smallest and the largest variance of a layer, at most.
const MOST_OCTAVES: i32 = 16;
/// Bits of public factors, at least: what numbers stand for is off by no more than one half of the last.
const SCALE_BITS: i32 = 12;

/// What a value's numbers stand for: `kappa` times two to the power of `bits` for a one, which is at most two to the power of `largest`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    bits: i32,
    kappa: f64,
    largest: i32,
}

impl Known {
    fn scale(&self) -> f64 {
        self.kappa * f64::powi(2.0, self.bits)
    }
}

/// Scales of a node's terms and of its sum, for all coalitions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeScales {
    /// What each value of each term stands for, and what it is brought to, as a power of two.
    terms: Vec<(Vec<f64>, i32)>,
    /// Bits of the factor of the sum; what its means are divided by, over a power of two.
    bits: i32,
    summed: f64,
    /// Bits that are dropped behind that.
    dropped: u32,
    /// Fractional bits of what is kept.
    fraction: i32,
}

impl NodeScales {
    /// What each value of each term stands for: so many times real numbers.
    pub(super) fn stands_for(&self) -> impl Iterator<Item = &[f64]> {
        self.terms.iter().map(|(stands_for, _)| &stands_for[..])
    }

    /// The power of two that values are brought to where there are no operators.
    pub(super) fn target(&self) -> Option<i32> {
        self.terms.first().map(|(_, target)| *target)
    }

    /// A coalition's public numbers of the node; the last one is not cut. `share` is the coalition's of the training data.
    pub(super) fn add(&self, node: &Node, hop: Option<&Hop>, share: f64, scales: &mut Scales) {
        let (terms, sum) = self.exact(node, share);
        // A coalition with hardly any training data loses values beside operators: what is rounded up would leave its bound.
        let rounded = |(term, factors): (&Term, Vec<f64>)| {
            let is_less = matches!(term, Term::Scaled { sign: Sign::Minus, .. });
            let signed = |factor: u64| if is_less { factor.wrapping_neg() } else { factor };
            factors.into_iter().map(|factor| signed(factor.round() as u64)).collect()
        };
        scales.values.push(node.terms.iter().zip(terms).map(rounded).collect());
        let Some(hop) = hop else { return scales.sums.push(1) };
        scales.sums.push(sum.round() as u64);
        scales.dropped.push(self.dropped);
        scales.knots.push(hop.knots(f64::powi(2.0, self.fraction)));
    }

    /// What would bring each value of each term, and the sum, to scale if it need not be whole.
    fn exact(&self, node: &Node, share: f64) -> (Vec<Vec<f64>>, f64) {
        let of_sum = if node.operators().next().is_some() { share } else { 1.0 };
        let factors = |(term, (stands_for, target)): (&Term, &(Vec<f64>, i32))| {
            let share = if term.operator().is_some() { 1.0 } else { of_sum };
            let target = share * f64::powi(2.0, *target);
            if term.is_scaled() {
                return vec![target / stands_for.iter().product::<f64>()];
            }
            stands_for.iter().map(|scale| target / scale).collect()
        };
        let terms = node.terms.iter().zip(&self.terms).map(factors).collect();
        (terms, f64::powi(2.0, self.bits) / (of_sum * self.summed))
    }

    /// How far whole factors are from those, relatively.
    pub(crate) fn deviations(&self, node: &Node, share: f64) -> (Vec<Vec<f64>>, f64) {
        let of = |factor: f64| if factor > 0.0 { (factor.round() / factor - 1.0).abs() } else { 1.0 };
        let (terms, sum) = self.exact(node, share);
        (terms.into_iter().map(|factors| factors.into_iter().map(of).collect()).collect(), of(sum))
    }

    /// What one unit of a sum that was cut stands for.
    pub(crate) fn unit(&self) -> f64 {
        f64::powi(0.5, self.fraction)
    }
}

/// A node on its way to a format.
struct Plan<'a> {
    node: &'a Node,
    /// Fractional bits of what each term takes, where it is a product, or is brought to at least.
    inputs: Vec<i32>,
    /// The sum is at most two to this power.
    bound: i32,
    /// Bits of factors and of sums.
    bits: i32,
    summed: i32,
}

impl<'a> Plan<'a> {
    fn new(node: &'a Node, between: &Between, known: &[Known], norms: &[i32], clients: usize) -> Self {
        let has_products = node.operators().next().is_some();
        let inputs = node.terms.iter().map(|term| {
            let own = || term.values().iter().map(|&value| known[value]);
            let bits = own().map(|known| known.bits);
            let most = if term.is_scaled() { bits.sum() } else { bits.max().unwrap_or(0) };
            let is_exact = own().all(|known| known.kappa == 1.0);
            match term.operator() {
                None if has_products => most + SCALE_BITS + clients_bits(clients),
                Some(_) if term.product().is_none() => 0,
                _ if is_exact => most,
                _ => most + SCALE_BITS,
            }
        });
        let of_term = |term: &Term| {
            let largest = term.values().iter().map(|&value| known[value].largest);
            let largest = if term.is_scaled() { largest.sum() } else { largest.max().unwrap_or(0) };
            term.operator().map_or(largest, |operator| norms[operator] + largest.max(0)).max(0)
        };
        let most = node.terms.iter().map(of_term).max().unwrap_or(0);
        let bound = most + node.terms.len().next_power_of_two().ilog2() as i32;
        let bound = node.bound.map_or(bound, |known| bound.min(known));
        let before = between.before.as_ref();
        let is_power = factor(before) == f64::powi(2.0, factor_bits(before));
        let bits = if has_products || !is_power { SCALE_BITS } else { 0 };
        Self { node, inputs: inputs.collect(), bound, bits, summed: factor_bits(before) }
    }

    /// Fractional bits of the sum, and bits of its words: those asked for, or as many as fit.
    fn sum_bits(&self, program: &Program, ranges: &Ranges, word: Option<u32>, clients: usize) -> (i32, u32) {
        let needed = self.bound + self.bits + self.summed + SPARE;
        let of_terms = || self.node.terms.iter().zip(&self.inputs);
        let wanted = of_terms().map(|(term, &input)| match term.operator() {
            Some(operator) => {
                let d_in = program.operators[operator].shape.d_in;
                match term.product() {
                    Some(_) => input + weight_bits(ranges.norms[operator], d_in, clients),
                    None => CONSTANT_BITS,
                }
            }
            None => input,
        });
        let wanted = wanted.max().unwrap_or(0);
        let wide = |word: &&u32| **word as i32 >= needed + wanted;
        let word = word.unwrap_or_else(|| *WORD_WIDTHS.iter().find(wide).unwrap_or(&u64::BITS));
        // Weights have as many bits as a double's bits allow; values alone need no more than they have.
        let most = of_terms().filter_map(|(term, &input)| {
            let most = if term.product().is_some() { MAX_BITS } else { CONSTANT_BITS };
            term.operator().map(|operator| input + most.min(50 - ranges.norms[operator].max(0)))
        });
        let fits = word as i32 - needed;
        let most = most.min().unwrap_or_else(|| self.inputs.iter().copied().max().unwrap_or(0));
        (most.min(fits), word)
    }
}

/// What is planned of a model so far.
struct Joining<'a> {
    program: &'a Program,
    ranges: &'a Ranges,
    clients: usize,
    hops: Hops,
    known: Vec<Known>,
    formats: Vec<OperatorFormat>,
    /// Bits of each node's words.
    words: Vec<u32>,
}

impl Joining<'_> {
    /// Plans the next node: its sum, what brings it to scale, and its range where it is cut.
    fn node(&mut self, node: &Node, rule: Option<RangeRule>) -> Result<(), Error> {
        let (index, ranges) = (self.words.len(), self.ranges);
        let between = self.between(node)?;
        let mut plan = Plan::new(node, &between, &self.known, &ranges.norms, self.clients);
        let of_sample = rule.filter(|_| node.kind == NodeKind::Sample);
        let range = HopRange::new(of_sample.unwrap_or(RangeRule::Proven), plan.bound, ranges.outputs[index]);
        plan.bound = range.bound;
        // The sample is shared in the first operator's words.
        let is_sample = node.terms.contains(&Term::Values(vec![0]));
        let word = if is_sample { self.words.first().copied() } else { None };
        let (sum, word) = plan.sum_bits(self.program, ranges, word, self.clients);
        self.words.push(word);
        let refused = |short: i32| Error::Precision {
            layer: index + 1,
            needed: word as i32 + short,
            available: word as i32,
        };
        let least = |term: &Term| if term.operator().is_some() { MIN_BITS } else { 0 };
        let short = plan.inputs.iter().zip(&node.terms).map(|(input, term)| input + least(term) - sum);
        if let Some(short) = short.max().filter(|short| *short > 0) {
            return Err(refused(short));
        }
        self.assign(&plan, sum, word);
        let of_term = |(term, input): (&Term, &i32)| {
            let stands_for = term.values().iter().map(|&value| self.known[value].scale()).collect();
            (stands_for, if term.operator().is_some() { *input } else { sum })
        };
        let terms = node.terms.iter().zip(&plan.inputs).map(of_term).collect();
        let summed = factor(between.before.as_ref()) * f64::powi(0.5, plan.summed);
        let mut scales = NodeScales { terms, bits: plan.bits, summed, dropped: 0, fraction: 0 };
        if rule.is_none() {
            self.hops.scores = between.before.clone();
            self.hops.nodes.push(scales);
            return Ok(());
        }
        // A client's share of outputs of operators has so many bits fewer.
        let has_operators = node.operators().next().is_some();
        let most = if has_operators { sum - clients_bits(self.clients) - 1 } else { sum };
        let next = ranges.inputs[index + 1];
        let fraction = match node.kind {
            NodeKind::Sample => fraction(&between.gate, next.min(between.gate.results(0, range.reach()).1)),
            NodeKind::Model => number_bits(next) + MODEL_BITS,
            // Two to this power times the smallest number is enough.
            NodeKind::Root => (2 * next + SCALE_BITS + 1).max(MIN_BITS),
        };
        let fraction = fraction.max(node.fraction).min(most);
        let (kept, dropped) = (fraction + range.bound + SPARE, sum + plan.summed + plan.bits - fraction);
        if fraction < MIN_BITS || kept > u64::BITS as i32 - 2 {
            return Err(refused((MIN_BITS - fraction).max(1)));
        }
        (scales.dropped, scales.fraction) = (dropped as u32, fraction);
        self.hops.nodes.push(scales);
        self.hops.ranges.push(HopRange { fraction, ..range });
        let (bits, largest) = between.gate.results(fraction, range.reach());
        let after = between.after.as_ref();
        if bits + factor_bits(after) < MIN_BITS {
            return Err(refused(MIN_BITS - bits - factor_bits(after)));
        }
        let kappa = between.gate.factor(1.0) * factor(after) * f64::powi(0.5, factor_bits(after));
        self.known.push(Known { bits: bits + factor_bits(after), kappa, largest });
        let is_of_model = node.kind != NodeKind::Sample;
        let hop = Hop::new(&between, node.size, (kept as u32, dropped as u32));
        self.hops.all.push(Hop { is_of_model, ..hop });
        Ok(())
    }

    /// What becomes of the next node's sum.
    fn between(&self, node: &Node) -> Result<Between, Error> {
        let (index, ranges) = (self.words.len(), self.ranges);
        let mut between = between_of(self.program, node);
        if let (NodeKind::Root, Some(&Term::Constants(operator))) = (node.kind, node.terms.first()) {
            // No member's number is below that, so no mean of theirs.
            let low = -2 * ranges.inputs[index + 1];
            let high = ranges.norms[operator].max(low + 1);
            if high - low > MOST_OCTAVES {
                let (needed, available) = (high - low, MOST_OCTAVES);
                return Err(Error::Precision { layer: index + 1, needed, available });
            }
            between.gate = Gate::Curve(Curve::of_root(low, high));
        }
        Ok(between)
    }

    /// Formats of a node's operators.
    fn assign(&mut self, plan: &Plan<'_>, sum: i32, word: u32) {
        for (term, &input) in plan.node.terms.iter().zip(&plan.inputs) {
            let Some(operator) = term.operator() else { continue };
            let (norm, weight) = (self.ranges.norms[operator], sum - input);
            let wanted = weight_bits(norm, self.program.operators[operator].shape.d_in, self.clients);
            self.hops.is_precise &= weight >= wanted - FEWER_BITS;
            let largest = term.values().iter().map(|&value| self.known[value].largest).max().unwrap_or(0);
            // The first operator's biases are encoded at the scale of its products, and constants, as far as doubles reach.
            let bias = match term {
                Term::Constants(_) => sum.min(50 - norm.max(0)),
                _ if operator == 0 => sum,
                _ => weight,
            };
            let weight = weight.min(bias);
            let [weights, inputs, biases] = [(weight, norm), (input, largest), (bias, norm)]
                .map(|(bits, exponent)| FixedPoint::new(bits as u32, exponent));
            self.formats[operator] = OperatorFormat { weight: weights, input: inputs, bias: biases };
            self.hops.words[operator] = word;
            self.hops.factors[operator] = (sum - bias) as u32;
        }
    }
}

impl Hops {
    /// The hops of a model whose layers take any earlier ones' outputs, with formats that its published ranges fit.
    pub(crate) fn joined(
        program: &Program,
        wiring: &Wiring,
        ranges: &Ranges,
        rule: RangeRule,
        clients: usize,
    ) -> Result<(Self, Precision), Error> {
        let operators = program.operators.len();
        let outputs = program.operators.iter().map(Operator::output_size).collect();
        let (factors, words) = (vec![0; operators], vec![0; operators]);
        let mut hops = Self::of_layer(0);
        (hops.factors, hops.words, hops.outputs, hops.wiring) = (factors, words, outputs, wiring.clone());
        let bits = number_bits(ranges.inputs[0]).max(MIN_SAMPLE_BITS);
        let known = vec![Known { bits, kappa: 1.0, largest: ranges.inputs[0] }];
        let unused = FixedPoint::new(1, 0);
        let formats = vec![OperatorFormat { weight: unused, input: unused, bias: unused }; operators];
        let mut joining = Joining { program, ranges, clients, hops, known, formats, words: Vec::new() };
        for (index, node) in wiring.nodes.iter().enumerate() {
            joining.node(node, (index + 1 < wiring.nodes.len()).then_some(rule))?;
        }
        let Joining { mut hops, formats, words, .. } = joining;
        hops.score_word = words.last().copied().unwrap_or(u64::BITS);
        hops.node_words = words.clone();
        hops.widen(&words);
        Ok((hops, Precision { operators: formats, gate: unused, update: unused }))
    }

    /// Values are opened in the widest words of those that take them, in which they fit themselves.
    fn widen(&mut self, node_words: &[u32]) {
        let Self { all, wiring, .. } = self;
        for (index, hop) in all.iter_mut().enumerate() {
            let takes = |node: &Node| node.terms.iter().any(|term| term.values().contains(&(index + 1)));
            let words =
                wiring.nodes.iter().zip(node_words).filter(|(node, _)| takes(node)).map(|(_, word)| *word);
            let widest = words.max().unwrap_or(0).max(hop.kept + 2);
            hop.word = *WORD_WIDTHS.iter().find(|word| **word >= widest).unwrap_or(&u64::BITS);
        }
    }
}

/// What becomes of a node's sum. The first operator's outputs are put in order; others are where they are added up.
fn between_of(program: &Program, node: &Node) -> Between {
    let (mut between, _) = Between::of(&node.activations);
    if let (true, Some(curve)) = (node.is_fine, Curve::fine(&node.activations)) {
        between.gate = Gate::Curve(curve);
    }
    if let [Term::Product { operator: 0, .. }] = node.terms[..]
        && let Some(order) = program.operators[0].order()
    {
        let order = Sums::order(order);
        between.before = Some(between.before.map_or_else(|| order.clone(), |sums| order.then(&sums)));
    }
    between
}

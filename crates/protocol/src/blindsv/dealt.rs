//! Numbers that owners deal, array by array: for each sum its products of masks and what its hop's gate needs, and the mask of the true
//! class's score, where labels are a factor. Circuits of many nodes have thousands of arrays, so where each stands is found once.

use super::{
    gates::{Item, items},
    shape::Circuit,
};

/// Numbers that are dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DealtNumbers {
    /// Masks of a hop's outputs, without the bits that are dropped, where outputs are compared.
    Compared(usize),
    /// Masks of the signs of a level of a hop's pairs, and these times the difference of the pair's masks.
    PairSign(usize, usize),
    PairSignMask(usize, usize),
    /// For a hop's gate.
    Item(usize, Item),
    /// For a hop's check: the mask of whether a number is out of range.
    OverflowMask(usize),
    /// Masks of a value times masks of another one, for a term of a sum.
    Scaled(usize, usize),
    /// An operator's masks times the masks of its inputs, for a term of a sum.
    Products(usize, usize),
    /// The mask of the true class's score.
    TrueScore,
}

/// Where and how they are dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DealtArray {
    pub what: DealtNumbers,
    pub count: usize,
    pub bits: u32,
}

impl DealtArray {
    /// Bytes of one.
    pub(super) fn bytes(self) -> usize {
        self.bits.div_ceil(8) as usize
    }
}

/// Something that there is so many times for each sample, and so many times for all samples, if there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    of_sample: usize,
    of_all: usize,
}

impl Count {
    fn of(self, samples: usize) -> usize {
        self.of_sample * samples + self.of_all * samples.min(1)
    }
}

/// An array, for any number of samples.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    what: DealtNumbers,
    count: Count,
    bits: u32,
    /// Bytes of the arrays before.
    before: Count,
}

impl Planned {
    fn array(&self, samples: usize) -> DealtArray {
        DealtArray { what: self.what, count: self.count.of(samples), bits: self.bits }
    }
}

/// All arrays of a circuit, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DealtArrays {
    arrays: Vec<Planned>,
    /// Bytes of all.
    bytes: Count,
}

impl DealtArrays {
    pub(super) fn new(circuit: &Circuit) -> Self {
        let mut all = Self::default();
        for index in 0..circuit.hops.wiring.nodes.len() {
            all.add_node(circuit, index);
        }
        if !circuit.is_single() {
            all.push(DealtNumbers::TrueScore, (1, false), circuit.widths.word);
        }
        all
    }

    fn push(&mut self, what: DealtNumbers, (numbers, is_of_model): (usize, bool), bits: u32) {
        let times = |factor: usize| match is_of_model {
            true => Count { of_sample: 0, of_all: numbers * factor },
            false => Count { of_sample: numbers * factor, of_all: 0 },
        };
        let (before, added) = (self.bytes, times(bits.div_ceil(8) as usize));
        self.bytes.of_sample += added.of_sample;
        self.bytes.of_all += added.of_all;
        self.arrays.push(Planned { what, count: times(1), bits, before });
    }

    /// Those of a sum and of what is made of it.
    fn add_node(&mut self, circuit: &Circuit, index: usize) {
        let hops = &circuit.hops;
        let node = &hops.wiring.nodes[index];
        let is_of_model = hops.all.get(index).is_some_and(|hop| hop.is_of_model);
        for (term, taken) in node.terms.iter().enumerate() {
            if let Some(operator) = taken.product().filter(|operator| *operator > 0) {
                let what = DealtNumbers::Products(index, term);
                self.push(what, (hops.outputs[operator], is_of_model), hops.words[operator]);
            }
            if taken.is_scaled() {
                self.push(
                    DealtNumbers::Scaled(index, term),
                    (node.size, is_of_model),
                    hops.node_words[index],
                );
            }
        }
        let Some(hop) = hops.all.get(index) else { return };
        if hop.levels() > 0 {
            self.push(DealtNumbers::Compared(index), (hop.numbers, is_of_model), hop.kept);
        }
        for level in 0..hop.levels() {
            let pairs = (hop.pairs(level), is_of_model);
            self.push(DealtNumbers::PairSign(index, level), pairs, hop.kept);
            self.push(DealtNumbers::PairSignMask(index, level), pairs, hop.kept);
        }
        for item in items(&hop.gate) {
            self.push(DealtNumbers::Item(index, item), (hop.gated(), is_of_model), item.bits(hop));
        }
        if hops.is_checked(index) {
            let bits = 8 * circuit.overflow_bytes() as u32;
            self.push(DealtNumbers::OverflowMask(index), (hop.numbers, false), bits);
        }
    }

    /// All of them, for so many samples.
    pub(super) fn arrays(&self, samples: usize) -> impl Iterator<Item = DealtArray> + '_ {
        self.arrays.iter().map(move |planned| planned.array(samples))
    }

    /// Which one it is, where its bytes begin, and the array itself.
    pub(super) fn find(&self, what: DealtNumbers, samples: usize) -> Option<(usize, usize, DealtArray)> {
        let index = self.arrays.iter().position(|planned| planned.what == what)?;
        let planned = &self.arrays[index];
        Some((index, planned.before.of(samples), planned.array(samples)))
    }

    /// Bytes of all.
    pub(super) fn len(&self, samples: usize) -> usize {
        self.bytes.of(samples)
    }
}

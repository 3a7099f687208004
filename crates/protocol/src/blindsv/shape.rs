//! Sizes of one owner's part of a test: what is opened in which order, and how much is dealt. All of it follows from published numbers.

use std::{
    ops::{Deref, Range},
    sync::Arc,
};

use secsv_algebra::Secret;

use super::{
    comparison::{Compared, Comparison},
    dealt::{DealtArray, DealtArrays, DealtNumbers},
    hops::{Hops, mask},
    lanes::{blocks, planes},
    products::Conjunction,
    wiring::{Node, Taken, Term},
};

/// Widths of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Bits of a word: models, samples and scores are shared modulo two to this power. 40, 48, 56 or 64.
    pub word: u32,
    /// Bytes of a count: right predictions of all samples fit.
    pub count: usize,
}

impl Widths {
    /// Widths for words of so many bits and so many samples in all.
    pub(crate) fn new(word: u32, samples: u64) -> Self {
        let bits = u64::BITS - samples.leading_zeros();
        Self { word, count: bits.div_ceil(8).max(1) as usize }
    }

    /// Bytes of a word.
    pub(crate) fn bytes(self) -> usize {
        self.word as usize / 8
    }

    /// A count's bits.
    pub(super) fn count_mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.count as u32)
    }
}

/// What the servers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A hop's outputs, under masks.
    Outputs(usize),
    /// What a step opens, under masks, that finds whether a hop's outputs are in their range: at the last, which are.
    RangeComparison(usize, usize),
    /// What a step of the comparisons of a level of a hop's pairs opens, under masks: signs at the last.
    PairComparison(usize, usize, usize),
    /// The larger numbers of a level of a hop's pairs, under masks.
    Larger(usize, usize),
    /// What a step of a hop's comparisons opens, under masks: signs at the last.
    HopComparison(usize, usize),
    /// The next operator's inputs, under masks.
    Inputs(usize),
    /// Scores, under masks.
    Scores,
    /// What the true class's score is above every other's, under masks.
    Margins,
    /// What a step of the comparisons of scores opens, under masks: signs at the last.
    Comparison(usize),
    /// What is left when signs are joined, under masks.
    Conjunction(usize),
}

impl Stage {
    /// Whether numbers are opened, not planes.
    pub(super) fn is_numbers(self) -> bool {
        matches!(self, Self::Outputs(_) | Self::Larger(..) | Self::Inputs(_) | Self::Scores | Self::Margins)
    }
}

/// What is found of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// How many predictions of all owners' samples are right.
    Total,
    /// How many are right, true class by true class, then how many are wrong.
    Classes,
    /// Which are: where samples are skipped.
    Each,
}

impl Outcome {
    /// Whether what is found of owners is added up.
    pub(crate) fn is_sum(self) -> bool {
        self != Self::Each
    }
}

/// A model, from its first operator's outputs to right or wrong.
#[derive(Debug, PartialEq)]
pub(crate) struct Circuit {
    pub(super) hops: Hops,
    pub(super) widths: Widths,
    /// Scores of a sample.
    pub(super) rows: usize,
    /// Classes. The last one's score is 0 if there is a score less.
    pub(super) classes: usize,
    pub(super) comparison: Comparison,
    pub(super) conjunction: Conjunction,
    pub(super) outcome: Outcome,
    stages: Vec<Stage>,
    dealt: DealtArrays,
}

impl Circuit {
    pub(crate) fn new(hops: Hops, widths: Widths, (rows, classes): (usize, usize), outcome: Outcome) -> Self {
        let is_single = rows == 1 && classes == 2;
        let comparison = Comparison::new(widths.word as usize);
        let conjunction = Conjunction::new(if is_single { 1 } else { classes });
        let mut stages = Vec::new();
        for (index, hop) in hops.all.iter().enumerate() {
            stages.push(Stage::Outputs(index));
            if hops.is_checked(index) {
                stages.extend((0..hop.comparison.steps()).map(|step| Stage::RangeComparison(index, step)));
            }
            for level in 0..hop.levels() {
                let steps = 0..hop.comparison.steps();
                stages.extend(steps.map(|step| Stage::PairComparison(index, level, step)));
                stages.push(Stage::Larger(index, level));
            }
            stages.extend((0..hop.steps()).map(|step| Stage::HopComparison(index, step)));
            stages.push(Stage::Inputs(index));
        }
        stages.push(Stage::Scores);
        stages.extend((!is_single).then_some(Stage::Margins));
        stages.extend((0..comparison.steps()).map(Stage::Comparison));
        stages.extend((0..conjunction.levels()).map(Stage::Conjunction));
        let dealt = DealtArrays::default();
        let circuit = Self { hops, widths, rows, classes, comparison, conjunction, outcome, stages, dealt };
        Self { dealt: DealtArrays::new(&circuit), ..circuit }
    }

    pub(crate) fn hops(&self) -> &Hops {
        &self.hops
    }

    pub(crate) fn widths(&self) -> Widths {
        self.widths
    }

    /// Whether one score says which of two classes it is: labels are no factor then.
    pub(crate) fn is_single(&self) -> bool {
        self.rows == 1 && self.classes == 2
    }

    /// Comparisons of a sample's scores.
    pub(super) fn compared(&self) -> usize {
        if self.is_single() { 1 } else { self.classes }
    }

    /// How often the servers exchange something.
    pub(crate) fn stages(&self) -> usize {
        self.stages.len()
    }

    pub(super) fn stage(&self, index: usize) -> Option<Stage> {
        self.stages.get(index).copied()
    }

    /// Where a stage stands.
    pub(super) fn index(&self, stage: Stage) -> usize {
        self.stages.iter().position(|&other| other == stage).unwrap_or(0)
    }

    /// The stages, in order.
    pub(super) fn all_stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The stage at which scores or margins are opened that are compared.
    pub(super) fn compared_stage(&self) -> Stage {
        if self.is_single() { Stage::Scores } else { Stage::Margins }
    }

    /// The sum that a stage opens.
    pub(super) fn node_of(&self, stage: Stage) -> Option<(usize, &Node)> {
        let index = match stage {
            Stage::Outputs(hop) => hop,
            Stage::Scores => self.hops.all.len(),
            _ => return None,
        };
        Some((index, self.hops.wiring.nodes.get(index)?))
    }

    /// The operators that compute the numbers of a stage that its servers multiply for, if they are behind hops.
    pub(crate) fn operators_at(&self, stage: usize) -> Vec<usize> {
        let node = self.stage(stage).and_then(|stage| self.node_of(stage));
        node.map_or(Vec::new(), |(_, node)| node.operators().filter(|operator| *operator > 0).collect())
    }

    /// Whether a server needs its share of the samples for a stage's message.
    pub(crate) fn takes_samples(&self, stage: usize) -> bool {
        let node = self.stage(stage).and_then(|stage| self.node_of(stage));
        node.is_some_and(|(_, node)| node.terms.contains(&Term::Values(vec![0])))
    }

    /// Whether a server needs its share of the labels for a stage's message.
    pub(crate) fn takes_labels(&self, stage: usize) -> bool {
        self.stage(stage) == Some(Stage::Margins)
    }

    /// Scores of a sample.
    pub(crate) fn scores(&self) -> usize {
        self.rows
    }

    /// What is found.
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Numbers of one sample that a stage opens, and their bits.
    pub(super) fn numbers(&self, stage: Stage) -> (usize, u32) {
        let hop = |index: usize| &self.hops.all[index];
        match stage {
            Stage::Outputs(index) => (hop(index).numbers, 8 * hop(index).bytes() as u32),
            Stage::Larger(index, level) => (hop(index).pairs(level), 8 * hop(index).kept_bytes() as u32),
            Stage::Inputs(index) => (hop(index).handed(), hop(index).word),
            Stage::Scores => (self.rows, self.widths.word),
            Stage::Margins => (self.classes, self.widths.word),
            Stage::PairComparison(..)
            | Stage::RangeComparison(..)
            | Stage::HopComparison(..)
            | Stage::Comparison(_)
            | Stage::Conjunction(_) => (0, 0),
        }
    }

    /// The bits of a number, or of a word of planes, that a stage opens.
    pub(super) fn mask(&self, stage: Stage) -> u64 {
        if stage.is_numbers() { mask(self.numbers(stage).1) } else { u64::MAX }
    }

    /// Bytes of it.
    pub(super) fn bytes(&self, stage: Stage) -> usize {
        if stage.is_numbers() { self.numbers(stage).1 as usize / 8 } else { size_of::<u64>() }
    }

    /// Bytes of a word of what is found.
    pub(crate) fn outcome_bytes(&self) -> usize {
        if self.outcome.is_sum() { self.widths.count } else { size_of::<u64>() }
    }

    /// Words of what is found of so many samples of one owner; of sums, of those of all owners.
    pub(crate) fn outcome_words_of(&self, samples: usize) -> usize {
        match self.outcome {
            Outcome::Total => 1,
            Outcome::Classes => 2 * self.classes,
            Outcome::Each => blocks(samples),
        }
    }

    /// Bytes of a count of numbers out of range; none where nothing is checked. All checked numbers of all samples fit.
    pub(crate) fn overflow_bytes(&self) -> usize {
        let numbers: usize = self.hops.checked.iter().map(|&hop| self.hops.all[hop].numbers).sum();
        let bits = usize::BITS - numbers.leading_zeros();
        if numbers == 0 { 0 } else { (self.widths.count + bits.div_ceil(8) as usize).min(size_of::<u64>()) }
    }

    /// A sum of shares of a count of numbers out of range.
    pub(crate) fn overflows(&self, own: u64, other: u64) -> u64 {
        own.wrapping_add(other) & mask(8 * self.overflow_bytes() as u32)
    }

    /// The sum of two servers' shares of a word of what is found.
    pub(super) fn found(&self, own: u64, other: u64) -> u64 {
        match self.outcome {
            Outcome::Total | Outcome::Classes => own.wrapping_add(other) & self.widths.count_mask(),
            Outcome::Each => own ^ other,
        }
    }

    /// What hides a word of what is found: the auxiliary's share of it, if the principal's is this word of a stream.
    pub(super) fn rest(&self, found: u64, own: u64) -> u64 {
        match self.outcome {
            Outcome::Total | Outcome::Classes => found.wrapping_sub(own) & self.widths.count_mask(),
            Outcome::Each => found ^ own,
        }
    }
}

/// A circuit for some samples of one owner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    circuit: Arc<Circuit>,
    /// The samples.
    pub(super) samples: usize,
}

impl Deref for Shape {
    type Target = Circuit;

    fn deref(&self) -> &Circuit {
        &self.circuit
    }
}

impl Shape {
    pub(crate) fn new(circuit: Arc<Circuit>, samples: usize) -> Self {
        Self { circuit, samples }
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    pub(super) fn blocks(&self) -> usize {
        blocks(self.samples)
    }

    /// Columns of a hop's numbers: one for each sample, or one for all of them.
    pub(super) fn columns(&self, hop: usize) -> usize {
        if self.hops.all[hop].is_of_model { self.samples.min(1) } else { self.samples }
    }

    /// Where those numbers of a value that are taken stand among its words, of which there are so many.
    pub(super) fn words_of(&self, (value, numbers): &Taken, all: usize) -> Range<usize> {
        let columns = value.checked_sub(1).map_or(self.samples, |hop| self.columns(hop));
        numbers.as_ref().map_or(0..all, |numbers| numbers.start * columns..numbers.end * columns)
    }

    /// Columns of the numbers that a stage opens.
    pub(super) fn columns_at(&self, stage: Stage) -> usize {
        match stage {
            Stage::Outputs(hop) | Stage::Larger(hop, _) | Stage::Inputs(hop) => self.columns(hop),
            _ => self.samples,
        }
    }

    /// Words of a plane at a stage: of all samples, of all their comparisons, of all numbers of a hop.
    pub(super) fn plane_words(&self, stage: Stage) -> usize {
        match stage {
            Stage::RangeComparison(hop, _) => blocks(self.hops.all[hop].numbers * self.columns(hop)),
            Stage::HopComparison(..) => self.compared_at(stage).all(),
            Stage::PairComparison(hop, level, _) => blocks(self.hops.all[hop].pairs(level) * self.samples),
            Stage::Comparison(_) => self.compared() * self.blocks(),
            _ => self.blocks(),
        }
    }

    /// What a stage compares: numbers under a mask each, but for those that a hop's function compares with every knot.
    pub(super) fn compared_at(&self, stage: Stage) -> Compared {
        match stage {
            Stage::HopComparison(index, _) => {
                let hop = &self.hops.all[index];
                Compared { words: blocks(hop.gated() * self.columns(index)), times: hop.gate.signs() }
            }
            _ => Compared::once(self.plane_words(stage)),
        }
    }

    /// The planes of scores or margins that are compared, number by number in each. `words` come number by number.
    pub(super) fn compared_planes(&self, words: &[u64]) -> Secret<Vec<u64>> {
        let (blocks, bits) = (self.blocks(), self.widths.word as usize);
        let all = self.compared() * blocks;
        let mut found = Secret::new(vec![0; bits * all]);
        for (number, words) in words.chunks_exact(self.samples.max(1)).enumerate() {
            let planes = Secret::new(planes(words, bits));
            for (bit, plane) in planes.expose().chunks_exact(blocks.max(1)).enumerate() {
                found.expose_mut()[bit * all + number * blocks..][..blocks].copy_from_slice(plane);
            }
        }
        found
    }

    /// Words of 64 bits that a stage opens for a coalition: one for each number, or those of its planes.
    pub(super) fn opened(&self, stage: Stage) -> usize {
        let planes = match stage {
            Stage::RangeComparison(hop, step)
            | Stage::HopComparison(hop, step)
            | Stage::PairComparison(hop, _, step) => self.hops.all[hop].comparison.opened(step),
            Stage::Comparison(step) => self.comparison.opened(step),
            Stage::Conjunction(level) => self.conjunction.left(level),
            _ => return self.numbers(stage).0 * self.columns_at(stage),
        };
        planes * self.plane_words(stage)
    }

    /// Bytes that each server sends the other at a stage, for a coalition.
    pub(crate) fn opened_len(&self, stage: usize) -> usize {
        self.stage(stage).map_or(0, |stage| self.opened(stage) * self.bytes(stage))
    }

    /// Words of the planes that are dealt for a stage.
    pub(super) fn dealt_planes(&self, stage: Stage) -> usize {
        match stage {
            Stage::RangeComparison(hop, step)
            | Stage::HopComparison(hop, step)
            | Stage::PairComparison(hop, _, step) => {
                self.hops.all[hop].comparison.dealt(step, self.compared_at(stage))
            }
            Stage::Comparison(step) => self.comparison.dealt(step, self.compared_at(stage)),
            Stage::Conjunction(level) => self.conjunction.dealt(level) * self.plane_words(stage),
            _ => 0,
        }
    }

    /// Where the planes that are dealt for a stage stand among all: stage by stage.
    pub(super) fn dealt_range(&self, stage: Stage) -> Range<usize> {
        let before = self.stages.iter().take_while(|&&other| other != stage);
        let first = before.map(|&other| self.dealt_planes(other)).sum::<usize>();
        first..first + self.dealt_planes(stage)
    }

    /// Words of all planes that are dealt.
    pub(super) fn all_dealt_planes(&self) -> usize {
        self.stages.iter().map(|&stage| self.dealt_planes(stage)).sum::<usize>()
    }

    /// Numbers that are dealt, array by array.
    pub(super) fn dealt_arrays(&self) -> impl Iterator<Item = DealtArray> + '_ {
        self.dealt.arrays(self.samples)
    }

    /// An array of dealt numbers: which it is of all, where its bytes begin, and the array itself.
    pub(super) fn dealt_array(&self, what: DealtNumbers) -> Option<(usize, usize, DealtArray)> {
        self.dealt.find(what, self.samples)
    }

    /// Words of what was opened of values that later sums take: all of them, at most.
    pub(crate) fn kept_values(&self) -> usize {
        self.hops.all.iter().map(|hop| hop.handed() * self.samples).sum()
    }

    /// Bytes of the numbers that are dealt.
    pub(super) fn dealt_numbers_len(&self) -> usize {
        self.dealt.len(self.samples)
    }

    /// Bytes that the owner deals to the auxiliary for a coalition.
    pub(crate) fn dealt_len(&self) -> usize {
        self.dealt_numbers_len()
            + size_of::<u64>() * self.all_dealt_planes()
            + self.dealt_outcomes() * self.outcome_bytes()
    }

    /// Words that are dealt of what is found: one for each sample to add up, two for each sample and class, or a plane for each
    /// block.
    pub(super) fn dealt_outcomes(&self) -> usize {
        match self.outcome {
            Outcome::Total => self.samples,
            Outcome::Classes => 2 * self.classes * self.samples,
            Outcome::Each => self.blocks(),
        }
    }
}

/// One owner's tested samples in chunks, small enough to stay near while a chunk is worked on.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    circuit: Arc<Circuit>,
    samples: usize,
    chunk: usize,
}

/// Samples of a chunk where there are hops: whole blocks.
const CHUNK: usize = if cfg!(test) { 64 } else { 128 };

impl Chunks {
    pub(crate) fn new(circuit: Arc<Circuit>, samples: usize) -> Self {
        let chunk = if circuit.hops.is_deep() { CHUNK } else { samples.max(1) };
        Self { circuit, samples, chunk }
    }

    /// All samples.
    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    /// The circuit for one chunk after the other, with where its samples begin. Without samples there is one empty chunk.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Shape)> + '_ {
        (0..self.samples.max(1))
            .step_by(self.chunk)
            .map(|first| (first, Shape::new(self.circuit.clone(), self.chunk.min(self.samples - first))))
    }

    fn sum(&self, each: impl Fn(&Shape) -> usize) -> usize {
        self.iter().map(|(_, shape)| each(&shape)).sum()
    }

    /// Bytes that each server sends the other at a stage, for a coalition.
    pub(crate) fn opened_len(&self, stage: usize) -> usize {
        self.sum(|shape| shape.opened_len(stage))
    }

    /// Bytes that the owner deals to the auxiliary for a coalition.
    pub(crate) fn dealt_len(&self) -> usize {
        self.sum(Shape::dealt_len)
    }

    /// Bytes of what was opened of values that later sums take, for a coalition, at most.
    pub(crate) fn kept_len(&self) -> usize {
        if self.hops.nodes.is_empty() { 0 } else { self.sum(|shape| size_of::<u64>() * shape.kept_values()) }
    }

    /// Bytes of the largest message about a coalition.
    pub(crate) fn largest(&self) -> usize {
        self.largest_opened().max(self.dealt_len())
    }

    /// Bytes of the largest opening of a coalition.
    pub(crate) fn largest_opened(&self) -> usize {
        (0..self.stages()).map(|stage| self.opened_len(stage)).max().unwrap_or(0)
    }

    /// Words of a server's share of what is found for a coalition.
    pub(crate) fn outcome_words(&self) -> usize {
        self.circuit.outcome_words_of(self.samples)
    }

    /// Bytes of a server's share of what is found for a coalition.
    pub(crate) fn outcome_len(&self) -> usize {
        self.outcome_words() * self.outcome_bytes()
    }
}

impl Deref for Chunks {
    type Target = Circuit;

    fn deref(&self) -> &Circuit {
        &self.circuit
    }
}

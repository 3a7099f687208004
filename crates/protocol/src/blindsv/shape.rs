//! Sizes of one owner's part of a test: what is opened in which order, and how much is dealt. All of it follows from published numbers.

use std::ops::Range;

use secsv_algebra::Secret;

use super::{
    comparison::Comparison,
    lanes::{blocks, planes},
    products::Conjunction,
};

/// Widths of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Bits of a word: models, samples and scores are shared modulo two to this power. 40, 48, 56 or 64.
    pub word: u32,
    /// Bytes of a count: right predictions of all samples fit.
    pub count: usize,
}

/// Word widths, the narrowest first.
pub(crate) const WORD_WIDTHS: [u32; 4] = [40, 48, 56, 64];

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

    /// A word's bits.
    pub(super) fn mask(self) -> u64 {
        u64::MAX >> (u64::BITS - self.word)
    }

    /// A count's bits.
    pub(super) fn count_mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.count as u32)
    }
}

/// What the servers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Scores, under masks.
    Scores,
    /// What the true class's score is above every other's, under masks.
    Margins,
    /// What a step of the comparisons opens, under masks: signs at the last.
    Comparison(usize),
    /// What is left when signs are joined, under masks.
    Conjunction(usize),
}

/// What is found of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// How many predictions of all owners' samples are right.
    Total,
    /// Which are: where samples are skipped.
    Each,
}

/// One owner's samples, a model of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(super) widths: Widths,
    /// Scores of a sample.
    pub(super) rows: usize,
    /// Classes. The last one's score is 0 if there is a score less.
    pub(super) classes: usize,
    /// The owner's samples.
    pub(super) samples: usize,
    pub(super) comparison: Comparison,
    pub(super) conjunction: Conjunction,
    pub(super) outcome: Outcome,
    stages: Vec<Stage>,
}

impl Shape {
    pub(crate) fn new(widths: Widths, rows: usize, classes: usize, samples: usize) -> Self {
        let is_single = rows == 1 && classes == 2;
        let comparison = Comparison::new(widths.word as usize);
        let conjunction = Conjunction::new(if is_single { 1 } else { classes });
        let mut stages = vec![Stage::Scores];
        stages.extend((!is_single).then_some(Stage::Margins));
        stages.extend((0..comparison.steps()).map(Stage::Comparison));
        stages.extend((0..conjunction.levels()).map(Stage::Conjunction));
        Self { widths, rows, classes, samples, comparison, conjunction, outcome: Outcome::Total, stages }
    }

    /// The same where this is found.
    pub(crate) fn finding(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// Whether one score says which of two classes it is: labels are no factor then.
    pub(crate) fn is_single(&self) -> bool {
        self.rows == 1 && self.classes == 2
    }

    pub(crate) fn samples(&self) -> usize {
        self.samples
    }

    /// Comparisons of a sample.
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

    pub(super) fn blocks(&self) -> usize {
        blocks(self.samples)
    }

    /// Words of a plane of all that is compared: number by number, in each a word for every block.
    pub(super) fn compared_words(&self) -> usize {
        self.compared() * self.blocks()
    }

    /// Appends the planes of what is compared. `words` come number by number.
    pub(super) fn compared_planes(&self, words: &[u64], out: &mut Vec<u64>) {
        let (blocks, bits) = (self.blocks(), self.widths.word as usize);
        let begin = out.len();
        out.resize(begin + bits * self.compared_words(), 0);
        for (number, words) in words.chunks_exact(self.samples.max(1)).enumerate() {
            let planes = Secret::new(planes(words, bits));
            for (bit, plane) in planes.expose().chunks_exact(blocks.max(1)).enumerate() {
                let place = begin + bit * self.compared_words() + number * blocks;
                out[place..place + blocks].copy_from_slice(plane);
            }
        }
    }

    /// Words of 64 bits that a stage opens for a coalition: one for each number, or one for each plane of each block.
    pub(super) fn opened(&self, stage: Stage) -> usize {
        match stage {
            Stage::Scores => self.rows * self.samples,
            Stage::Margins => self.classes * self.samples,
            _ => self.planes(stage) * self.blocks(),
        }
    }

    /// Planes of a block that a stage opens.
    pub(super) fn planes(&self, stage: Stage) -> usize {
        match stage {
            Stage::Scores | Stage::Margins => 0,
            Stage::Comparison(step) => self.compared() * self.comparison.opened(step),
            Stage::Conjunction(level) => self.conjunction.left(level),
        }
    }

    /// Bytes that each server sends the other at a stage, for a coalition.
    pub(crate) fn opened_len(&self, stage: usize) -> usize {
        match self.stage(stage) {
            Some(stage @ (Stage::Scores | Stage::Margins)) => self.opened(stage) * self.widths.bytes(),
            Some(stage) => 8 * self.opened(stage),
            None => 0,
        }
    }

    /// Bytes of the largest message about a coalition.
    pub(crate) fn largest(&self) -> usize {
        let opened = (0..self.stages()).map(|stage| self.opened_len(stage));
        opened.max().unwrap_or(0).max(self.dealt_len())
    }

    /// Planes of a block that are dealt for a stage.
    pub(super) fn dealt_planes(&self, stage: Stage) -> usize {
        match stage {
            Stage::Scores | Stage::Margins => 0,
            Stage::Comparison(step) => self.compared() * self.comparison.dealt(step),
            Stage::Conjunction(level) => self.conjunction.dealt(level),
        }
    }

    /// Where the planes that are dealt for a stage stand among all, over all blocks: stage by stage.
    pub(super) fn dealt_range(&self, stage: Stage) -> Range<usize> {
        let before = self.stages.iter().take_while(|&&other| other != stage);
        let first = self.blocks() * before.map(|&other| self.dealt_planes(other)).sum::<usize>();
        first..first + self.blocks() * self.dealt_planes(stage)
    }

    /// Planes that are dealt, over all blocks.
    pub(super) fn all_dealt_planes(&self) -> usize {
        self.blocks() * self.stages.iter().map(|&stage| self.dealt_planes(stage)).sum::<usize>()
    }

    /// The stages, in order.
    pub(super) fn all_stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Numbers that are dealt: the mask of the true class's score, where labels are a factor.
    pub(super) fn dealt_words(&self) -> usize {
        if self.is_single() { 0 } else { self.samples }
    }

    /// Bytes that the owner deals to the auxiliary for a coalition.
    pub(crate) fn dealt_len(&self) -> usize {
        self.dealt_words() * self.widths.bytes()
            + 8 * self.all_dealt_planes()
            + self.dealt_outcomes() * self.outcome_bytes()
    }

    /// Words that are dealt of what is found: one for each sample to add up, or a plane for each block.
    pub(super) fn dealt_outcomes(&self) -> usize {
        match self.outcome {
            Outcome::Total => self.samples,
            Outcome::Each => self.blocks(),
        }
    }

    /// Words of a server's share of what is found for a coalition.
    pub(super) fn outcome_words(&self) -> usize {
        match self.outcome {
            Outcome::Total => 1,
            Outcome::Each => self.blocks(),
        }
    }

    /// Bytes of such a word.
    pub(super) fn outcome_bytes(&self) -> usize {
        match self.outcome {
            Outcome::Total => self.widths.count,
            Outcome::Each => 8,
        }
    }

    /// Bytes of a server's share of what is found for a coalition.
    pub(crate) fn outcome_len(&self) -> usize {
        self.outcome_words() * self.outcome_bytes()
    }

    /// The sum of two servers' shares of a word of what is found.
    pub(super) fn found(&self, own: u64, other: u64) -> u64 {
        match self.outcome {
            Outcome::Total => own.wrapping_add(other) & self.widths.count_mask(),
            Outcome::Each => own ^ other,
        }
    }

    /// What hides a word of what is found: the auxiliary's share of it, if the principal's is this word of a stream.
    pub(super) fn rest(&self, found: u64, own: u64) -> u64 {
        match self.outcome {
            Outcome::Total => found.wrapping_sub(own) & self.widths.count_mask(),
            Outcome::Each => found ^ own,
        }
    }
}

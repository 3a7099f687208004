//! Who learns what: everything a party sees in the clear beyond its own input, in one list. Whatever opens a number names the entry it
//! stands on (`opening.rs`).

use crate::{
    Program,
    program::{DecryptionStep, Receive, Then},
};

/// One thing that somebody learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disclosure {
    /// Norms, ranges, sizes, participation.
    Published,
    /// Which predictions of each tested coalition are right.
    RightOrWrong,
    /// How many predictions of each tested coalition are right.
    Counts,
    /// How many hidden numbers of each tested coalition are out of their range.
    Overflows,
    /// How many samples each true class has, and how many of them each tested coalition predicts right.
    ClassCounts,
    /// Right or wrong, for each slot of a batch that is not one's own.
    SlotsRightOrWrong,
    /// A layer's outputs for the samples of others.
    LayerOutputs,
    /// Sums of what layers hand on, for the samples of others.
    Sums,
    /// Vectors of a coalition's batch norm: weights, biases, means and variances.
    BatchNorm,
    /// A recurrent unit's gates of all steps but the first.
    Gates,
    /// A recurrent unit's hidden states.
    HiddenStates,
    /// The classes predicted for the samples of others.
    Predictions,
    /// Factors under one-time masks.
    MaskedFactors,
    /// The plan of a test: which coalitions are tested on which samples, and who decrypts.
    Schedule,
    /// The values.
    Values,
}

impl Disclosure {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Published,
        Self::RightOrWrong,
        Self::Counts,
        Self::Overflows,
        Self::ClassCounts,
        Self::SlotsRightOrWrong,
        Self::LayerOutputs,
        Self::Sums,
        Self::BatchNorm,
        Self::Gates,
        Self::HiddenStates,
        Self::Predictions,
        Self::MaskedFactors,
        Self::Schedule,
        Self::Values,
    ];

    /// What the decryptor of a step reads in one of the things that the step receives.
    pub(crate) fn of_receive(step: &DecryptionStep, receive: &Receive) -> Self {
        match (&step.then, receive) {
            (Then::Gates { .. }, _) => Self::Gates,
            (_, Receive::Outputs { .. } | Receive::Bias { .. }) => Self::LayerOutputs,
            (_, Receive::Update { .. }) => Self::HiddenStates,
            (_, Receive::Vector { .. }) => Self::BatchNorm,
            (_, Receive::Sum { .. }) => Self::Sums,
        }
    }
}

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub disclosure: Disclosure,
    /// Who learns it.
    pub who: &'static str,
    /// What exactly.
    pub what: &'static str,
    /// Why it cannot be avoided here, or why it does no harm.
    pub why: &'static str,
}

/// Lines about clients that decrypt.
pub(crate) fn of_decryptors(program: &Program) -> Vec<Line> {
    use Disclosure as D;
    let mut lines = Vec::new();
    let outputs = if program.compares_with_last_class() {
        "that layer's outputs for samples of others, from which it can rebuild these; of the last layer only how far scores are above the last class's"
    } else {
        "that layer's outputs for samples of others, from which it can rebuild these"
    };
    lines.push(line(D::LayerOutputs, "the decryptor of a layer", outputs, "activations are computed in the clear (the paper's globally encrypted, locally decrypted strategy); the rules of docs/SECURITY.md keep these clients few and do not protect against them"));
    if program.sum_sizes().next().is_some() {
        lines.push(line(
            D::Sums,
            "the decryptor of a sum",
            "sums of what layers hand on for samples of others, from which it can rebuild these",
            "servers add up shares of what different clients computed, and layers that follow are computed in the clear; the rules on first-layer outputs (docs/SPAN_RULE.md) do not bind sums that these are part of",
        ));
    }
    if program.is_normalised() {
        lines.push(line(
            D::BatchNorm,
            "the decryptor of a layer with a batch norm behind it",
            "the coalition's mean weights, biases, means and variances of that batch norm, from which over several coalitions it can compute each client's own",
            "averages are not divided by under shares: whoever normalises reads them; a client's means and variances describe its training data",
        ));
    }
    lines.push(line(
        D::Predictions,
        "the last decryptor",
        "the classes predicted for samples of others",
        "it computes the largest score",
    ));
    if program.gru.is_some() {
        lines.push(line(
            D::Gates,
            "the gate decryptor of a unit",
            "gates of all steps but the first, from which it can compute every hidden state",
            "it computes them",
        ));
        lines.push(line(
            D::HiddenStates,
            "the re-sharer of a unit",
            "the first step's gates and every hidden state",
            "states are re-encoded without a truncation protocol",
        ));
    }
    lines
}

/// One line of the list.
pub(crate) fn line(disclosure: Disclosure, who: &'static str, what: &'static str, why: &'static str) -> Line {
    Line { disclosure, who, what, why }
}

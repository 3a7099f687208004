//! One client's knowledge: the outputs it decrypted, and the models and samples it knew beforehand.

use std::collections::BTreeMap;

use secsv_federation::{Coalition, RoundId, TestSet, Weights};
use secsv_protocol::{Program, precision::Precision};

/// A client's view of a session. Nothing in it comes from anybody else's files.
#[derive(Clone)]
pub struct ClientView {
    /// The client, by position.
    pub client: usize,
    /// The model's operators, as everybody has them.
    pub program: Program,
    /// Fixed-point formats, as everybody computes them.
    pub precision: Precision,
    /// Training sizes of each round by client; 0 for those who took no part.
    pub sizes: BTreeMap<RoundId, Vec<f64>>,
    /// Its own models.
    pub local: BTreeMap<RoundId, Weights>,
    /// The aggregates, which every client was sent.
    pub global: BTreeMap<RoundId, Weights>,
    /// Its own test samples.
    pub own: TestSet,
    /// Outputs that it decrypted.
    pub outputs: Vec<DecryptedOutputs>,
}

/// Outputs of one operator of one coalition's model on samples of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecryptedOutputs {
    /// The round.
    pub round: RoundId,
    /// Whose model: the plain sum of the members' encoded models.
    pub coalition: Coalition,
    /// Whose samples.
    pub owner: usize,
    /// Which of them.
    pub samples: Vec<usize>,
    /// The decryption step (`hop` in docs/VIEWS.md) at which they came.
    pub step: usize,
    /// The operator.
    pub operator: usize,
    /// The first position.
    pub first: usize,
    /// As docs/VIEWS.md has them: position by position, within a position output by output, within an output
    /// sample by sample.
    pub numbers: Vec<i64>,
}

impl DecryptedOutputs {
    /// Output `row` at a position (counted from the first) for the sample at a place of the list.
    pub fn at(&self, row: usize, rows: usize, position: usize, place: usize) -> i64 {
        self.numbers[(position * rows + row) * self.samples.len() + place]
    }

    /// Number of positions.
    pub fn positions(&self, rows: usize) -> usize {
        self.numbers.len().checked_div(rows * self.samples.len()).unwrap_or(0)
    }
}

impl ClientView {
    /// Who took part in a round.
    pub fn participants(&self, round: RoundId) -> Coalition {
        let sizes = self.sizes.get(&round).map_or(&[][..], |sizes| sizes);
        sizes.iter().enumerate().filter(|(_, size)| **size > 0.0).map(|(client, _)| client).collect()
    }

    /// Layer-1 outputs of a round on an owner's samples, from a position on.
    pub fn first_layer(&self, round: RoundId, owner: usize, first: usize) -> Vec<&DecryptedOutputs> {
        let is_meant = |outputs: &&DecryptedOutputs| {
            outputs.round == round
                && outputs.owner == owner
                && outputs.operator == 0
                && outputs.first == first
        };
        self.outputs.iter().filter(is_meant).collect()
    }
}

//! Which attacks the rules exclude, for the report.

use std::fmt;

use super::{Exposure, Network};

/// The attacks of the paper's Proposition 1, and two it does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attack {
    /// Input and output of one linear layer give its parameters.
    SingleLayerEquationSolving,
    /// Input of one layer and output of a later one give the parameters between.
    MultiLayerEquationSolving,
    /// A known model and its outputs give the samples.
    DataStealing,
    /// A sample and its predicted label tell whether the model was trained on it.
    MembershipInference,
    /// Samples and their predicted labels train a copy of the model.
    Retraining,
    /// Layer-1 outputs of several coalitions add up to those of the client's own model.
    OwnModelBySubtraction,
    /// Layer-1 outputs of several coalitions add up to those of another model the client knows.
    KnownModelBySubtraction,
}

impl Attack {
    /// What the report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleLayerEquationSolving => "single-layer equation solving",
            Self::MultiLayerEquationSolving => "multi-layer equation solving",
            Self::DataStealing => "equation-solving data stealing",
            Self::MembershipInference => "membership inference",
            Self::Retraining => "retraining",
            Self::OwnModelBySubtraction => "own model by subtraction",
            Self::KnownModelBySubtraction => "known model by subtraction",
        }
    }
}

/// One attack and what the plan does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttackRow {
    /// The attack.
    pub attack: Attack,
    /// Whether the plan excludes it, for one curious client who colludes with nobody.
    pub excluded: bool,
    /// The rule that excludes it, or the condition that failed: one line.
    pub why: String,
}

impl fmt::Display for AttackRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let excluded = if self.excluded { "excluded" } else { "NOT excluded" };
        write!(f, "{}: {excluded}; {}", self.attack.name(), self.why)
    }
}

/// The shape of the first layer: how many equations an output gives, in how many unknowns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLayer {
    /// Features of a sample, or of one step of a sequence.
    pub inputs: usize,
    /// Outputs of the layer.
    pub outputs: usize,
}

/// The table for `n` clients. `known_inputs` counts the units in which a gate decryptor also decrypted the next
/// layer.
pub(super) fn attack_table(
    n: usize,
    network: Network,
    known_inputs: u64,
    exposures: &[Exposure],
    first_layer: FirstLayer,
) -> Vec<AttackRow> {
    let row = |attack, excluded, why: String| AttackRow { attack, excluded, why };
    let outsider = "whoever decrypts the last layer owns no sample of the batch";
    vec![
        row(Attack::SingleLayerEquationSolving, known_inputs == 0, single_layer(known_inputs)),
        multi_layer(n, network),
        row(Attack::DataStealing, true, "no client decrypts for a model it knows".into()),
        row(Attack::MembershipInference, true, outsider.into()),
        row(Attack::Retraining, true, outsider.into()),
        row(
            Attack::OwnModelBySubtraction,
            true,
            "the coalitions a client sees in a round and batch never span its own model".into(),
        ),
        row(Attack::KnownModelBySubtraction, exposures.is_empty(), remaining(exposures, first_layer)),
    ]
}

fn single_layer(known_inputs: u64) -> String {
    match known_inputs {
        0 => "no client sees both input and output of a layer".into(),
        units => format!(
            "in {units} tests the gate decryptor, who knows the last hidden state up to a product of update \
             gates, had to decrypt the next layer: more clients are needed"
        ),
    }
}

fn multi_layer(n: usize, network: Network) -> AttackRow {
    let layers = network.layers();
    let distinct = network.distinct_among(n);
    let why = match (network.is_gru(), distinct) {
        (true, _) => "a GRU's re-sharer sees the hidden state before and after every step".into(),
        (false, true) => {
            format!("{n} clients for {layers} layers: each layer's features go to another client")
        }
        (false, false) => format!("{n} clients for {layers} layers: at least {} are needed", layers + 2),
    };
    AttackRow { attack: Attack::MultiLayerEquationSolving, excluded: distinct && !network.is_gru(), why }
}

fn remaining(exposures: &[Exposure], FirstLayer { inputs, outputs }: FirstLayer) -> String {
    let Some(most) = exposures.iter().map(|exposure| exposure.equations(outputs)).max() else {
        return "no client can add up what it saw to the outputs of a model it knows".into();
    };
    let solvable = exposures.iter().filter(|exposure| exposure.equations(outputs) >= inputs).count();
    let rounds: usize = exposures.iter().map(|exposure| exposure.rounds).sum();
    format!(
        "{rounds} times a client could add up the outputs of a model it knows; at most {most} equations beside \
         {inputs} unknown features, enough to solve for {solvable} of {} pairs of client and batch owners",
        exposures.len()
    )
}

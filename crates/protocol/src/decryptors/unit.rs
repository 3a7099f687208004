//! What is tested, and who does what in the test.

use secsv_federation::{Coalition, RoundId};

use super::PlanError;

/// The linear layers of the network under test, as far as they decide who decrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    steps: Option<usize>,
    layers: usize,
}

impl Network {
    /// So many linear layers, one after the other (the paper's L).
    pub fn feedforward(layers: usize) -> Result<Self, PlanError> {
        if layers == 0 { Err(PlanError::NoLayers) } else { Ok(Self { steps: None, layers }) }
    }

    /// A GRU of so many steps, and the linear layers that follow it.
    pub fn gru(steps: usize, after: usize) -> Result<Self, PlanError> {
        let layers = steps.saturating_add(after);
        if steps == 0 { Err(PlanError::NoLayers) } else { Ok(Self { steps: Some(steps), layers }) }
    }

    /// Layers for the rules that count them (the paper's L): a GRU counts as its steps.
    pub fn layers(self) -> usize {
        self.layers
    }

    /// Whether it begins with a GRU.
    pub fn is_gru(self) -> bool {
        self.steps.is_some()
    }

    /// Whether somebody decrypts gates: from the second step on.
    pub(super) fn has_gates(self) -> bool {
        self.steps.is_some_and(|steps| steps > 1)
    }

    /// How many times features go to a client in turn: a GRU with all its steps is one such stage.
    pub(super) fn stages(self) -> usize {
        self.steps.map_or(self.layers, |steps| self.layers - steps + 1)
    }

    /// Whether `n` clients are enough for every layer's features to be with another client (n >= L + 2).
    pub fn distinct_among(self, n: usize) -> bool {
        self.layers.checked_add(2).is_some_and(|needed| n >= needed)
    }
}

/// What a client reads in the test of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// Outputs of a layer, counted from 0; behind a GRU those that follow it.
    Layer(usize),
    /// A GRU's first gates and every hidden state.
    States,
    /// A GRU's further gates.
    Gates,
    /// Which samples are right (HESV).
    RightOrWrong,
}

/// One model to be tested on the samples of one owner group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The round.
    pub round: RoundId,
    /// Everyone whose model the round has, with an aggregation weight that is not zero.
    pub participants: Coalition,
    /// The owner group, by position.
    pub group: usize,
    /// Whose aggregated model is tested.
    pub coalition: Coalition,
}

/// The clients who evaluate a GRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GruRoles {
    /// Decrypts the first step, then sees and re-shares every hidden state.
    pub resharer: usize,
    /// Decrypts the gates of the further steps, if there are any; never sees a hidden state.
    pub gates: Option<usize>,
}

/// Who does what in the test of one unit. Only a planner makes or changes one, so it keeps the rules. It cannot
/// be cloned: what earlier clients of a unit have seen binds the later ones, and travels inside.
#[derive(Debug, PartialEq, Eq)]
pub struct UnitRoles {
    pub(super) unit: Unit,
    pub(super) casting: Casting,
    pub(super) seen: SeenStages,
}

impl UnitRoles {
    /// What is tested.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Who decrypts each linear layer (the paper's i2 to i(L+1)). Behind a GRU: the layers that follow it.
    pub fn decryptors(&self) -> &[usize] {
        let gru = usize::from(self.casting.gru);
        &self.casting.holders[gru..]
    }

    /// Who evaluates the GRU the network begins with, if it does.
    pub fn gru(&self) -> Option<GruRoles> {
        let gates = self.casting.gates;
        self.casting.gru.then(|| GruRoles { resharer: self.casting.holders[0], gates })
    }

    /// Who counts the right answers (HESV; the paper's i(L+2)).
    pub fn counter(&self) -> Option<usize> {
        self.casting.counter
    }

    /// Who deals multiplication triples (SecretSV; SecSV with a GRU). Decrypts nothing of this unit.
    pub fn dealer(&self) -> Option<usize> {
        self.casting.dealer
    }
}

/// A choice of clients for a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Casting {
    pub gru: bool,
    /// Who holds the features after each stage.
    pub holders: Vec<usize>,
    pub gates: Option<usize>,
    pub counter: Option<usize>,
    pub dealer: Option<usize>,
}

impl Casting {
    /// What each of them reads.
    pub fn readings(&self) -> impl Iterator<Item = (usize, Reading)> + '_ {
        let stages = self.holders.iter().enumerate().map(|(stage, &holder)| {
            let reading = match (self.gru, stage) {
                (true, 0) => Reading::States,
                (true, stage) => Reading::Layer(stage - 1),
                (false, stage) => Reading::Layer(stage),
            };
            (holder, reading)
        });
        let gates = self.gates.map(|gates| (gates, Reading::Gates));
        stages.chain(gates).chain(self.counter.map(|counter| (counter, Reading::RightOrWrong)))
    }
}

/// What clients who were replaced have seen of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenStages {
    /// Who was sent the outputs of each stage.
    pub stages: Vec<Coalition>,
    pub gates: Coalition,
    pub counted: Coalition,
    pub dealt: Coalition,
}

impl SeenStages {
    pub fn nothing(stages: usize) -> Self {
        let nobody = Coalition::EMPTY;
        Self { stages: vec![nobody; stages], gates: nobody, counted: nobody, dealt: nobody }
    }

    /// Adds what a casting has seen once the outputs of its first `sent` stages were sent. The counting client
    /// comes after the last stage; triples are dealt before the first.
    pub fn add(&mut self, casting: &Casting, sent: usize) {
        for (seen, &holder) in self.stages.iter_mut().zip(&casting.holders).take(sent) {
            *seen = seen.with(holder);
        }
        let join =
            |seen: &mut Coalition, client: Option<usize>| *seen = seen.union(client.into_iter().collect());
        if sent > 0 {
            join(&mut self.gates, casting.gates);
        }
        if sent > self.stages.len() {
            join(&mut self.counted, casting.counter);
        }
        join(&mut self.dealt, casting.dealer);
    }

    /// Everyone who was sent features of any stage.
    pub fn features(&self) -> Coalition {
        self.stages.iter().fold(self.gates, |all, &seen| all.union(seen))
    }
}

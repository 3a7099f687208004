//! Who can do what with whose samples and whose models.
//!
//! Receives what everybody knows before a session; hands on a table in words, the same for every party, before a run and
//! after it. The rule errs on the safe side. Whoever reads a score, an activation, a gate or a hidden state of somebody
//! else's samples **can rebuild** these samples: it knows the global models, and few exact equations settle a record. With the samples
//! it has the input of every layer whose output it reads, over all coalitions and steps, and **can rebuild** that layer.
//! Whoever reads only which samples are right **can recognise** a candidate among them. Nothing here is weighed against the
//! number of equations.
//!
//! Under protocols in which nobody decrypts no client reads anything. Their table leaves out what follows from the utilities, which
//! are published under every protocol; the sentences say it.

mod sentences;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use secsv_federation::Coalition;

use crate::{
    Error,
    decryptors::{OwnerGroups, PlanError, Planner, Protocol, Reading, Unit},
    program::Program,
    session::{Federation, Settings, network},
};

pub use crate::rules::Can;
pub use sentences::{HEADLINE, TAKEOVER};

/// What one party, or several together, can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartyExposure {
    /// Who.
    pub who: String,
    /// With other clients' samples.
    pub samples: Can,
    /// With other clients' models.
    pub models: Can,
    /// The same in one sentence, with whose samples and which layers.
    pub sentence: String,
}

/// What a session exposes, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    protocol: Protocol,
    /// Whether right predictions are counted for each true class.
    by_class: bool,
    /// What a sample is.
    samples_are: &'static str,
    /// Linear layers outside a recurrent unit, and whether there is one.
    layers: usize,
    has_gru: bool,
    /// Whether these are steps, of several layers or a sum each.
    is_joined: bool,
    clients: Vec<Sight>,
}

/// What one client reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sight {
    /// Whose samples it reads scores or activations of.
    reads: Coalition,
    /// Whose samples it reads right or wrong of.
    judges: Coalition,
    /// Of which layers; those behind a recurrent unit count from 0.
    layers: BTreeSet<usize>,
    /// Whether it reads gates or hidden states.
    unit: bool,
}

impl Exposure {
    /// Of a session in which everybody is there, if every coalition is asked for and every client has samples.
    pub fn new(federation: &Federation) -> Result<Self, Error> {
        let (clients, program) = (federation.clients, &federation.program);
        if !federation.settings.protocol.rules().has_decryptors() {
            return Ok(Self::empty(&federation.settings, program, clients));
        }
        let network = network(program)?;
        let groups = OwnerGroups::of_blocks(clients, network)?;
        let mut planner = Planner::new(groups, federation.settings.protocol, network)?;
        let mut met = BTreeSet::new();
        for &round in federation.rounds.keys() {
            let participants = federation.participants(round);
            if !met.insert(participants.bits()) {
                continue;
            }
            for (group, coalition) in units(&planner, participants) {
                match planner.assign(Unit { round, participants, group, coalition }, Coalition::EMPTY) {
                    Ok(_) | Err(PlanError::NothingToTest { .. } | PlanError::NobodyLeft { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let empty = Self::empty(&federation.settings, program, clients);
        Ok(empty.with(&planner))
    }

    /// The same with what was planned in a run: others take over where a client stays away.
    #[must_use]
    pub fn with(mut self, planner: &Planner) -> Self {
        for (client, owner, reading) in planner.readings() {
            let sight = &mut self.clients[client];
            match reading {
                Reading::RightOrWrong => sight.judges = sight.judges.with(owner),
                Reading::Layer(layer) => drop(sight.layers.insert(layer)),
                Reading::States | Reading::Gates => sight.unit = true,
            }
            if reading != Reading::RightOrWrong {
                sight.reads = sight.reads.with(owner);
            }
        }
        self
    }

    /// What a client can do with another's samples.
    pub fn of_samples(&self, client: usize, owner: usize) -> Can {
        match &self.clients[client] {
            sight if client != owner && sight.reads.contains(owner) => Can::Rebuild,
            sight if client != owner && sight.judges.contains(owner) => Can::Recognise,
            _ => Can::Nothing,
        }
    }

    /// What a client can do with other clients' models.
    pub fn of_models(&self, client: usize) -> Can {
        let sight = &self.clients[client];
        if sight.layers.is_empty() && !sight.unit { Can::Nothing } else { Can::Rebuild }
    }

    /// Whether anybody alone can do anything with a client's samples or models.
    pub fn is_exposed(&self, owner: usize) -> bool {
        let others = (0..self.clients.len()).filter(|&client| client != owner);
        others.map(|client| self.of_samples(client, owner).max(self.of_models(client))).max()
            > Some(Can::Nothing)
    }

    fn empty(settings: &Settings, program: &Program, clients: usize) -> Self {
        Self {
            protocol: settings.protocol,
            by_class: settings.counts_classes(),
            samples_are: program.samples_are(),
            layers: program.chain(),
            has_gru: program.gru.is_some(),
            is_joined: program.is_joined(),
            clients: vec![Sight::default(); clients],
        }
    }
}

/// Coalitions of this many participants are all planned; of more those that differ in what the choice depends on: who of the
/// first few is in, and whose model or complement it is.
const ALL: usize = 9;

fn units(planner: &Planner, participants: Coalition) -> Vec<(usize, Coalition)> {
    let groups = 0..planner.groups().iter().len();
    groups.flat_map(|group| coalitions(planner, group, participants).map(move |s| (group, s))).collect()
}

fn coalitions(
    planner: &Planner,
    group: usize,
    participants: Coalition,
) -> impl Iterator<Item = Coalition> + use<> {
    let few = planner.first_asked(group, participants, ALL);
    let rest = participants.difference(few);
    let some = few.subsets().flat_map(move |part| [part, part.union(rest)]);
    let single = participants.members().flat_map(move |client| {
        let own = Coalition::EMPTY.with(client);
        [own, participants.difference(own)]
    });
    let all: BTreeSet<u128> = some.chain(single).map(Coalition::bits).collect();
    all.into_iter().map(Coalition::from_bits)
}

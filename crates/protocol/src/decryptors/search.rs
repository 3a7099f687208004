//! The choice of clients for one unit.

use secsv_federation::Coalition;

use super::ledger::{Part, PlannedReply};
use super::partners::{Partners, turned};
use super::unit::{Casting, Network, SeenStages, Unit};
use crate::rules::ProtocolRules;

/// Everything the choice depends on.
pub(super) struct Search<'a> {
    pub rules: &'static dyn ProtocolRules,
    pub network: Network,
    /// How many there are.
    pub clients: usize,
    pub unit: Unit,
    /// Whose samples the unit's group holds.
    pub owners: Coalition,
    /// Whose samples it might hold.
    pub block: Coalition,
    /// Who knows the model.
    pub knowing: Coalition,
    /// Who cannot be asked.
    pub away: Coalition,
    pub partners: Partners,
    /// What clients who were replaced have seen.
    pub seen: &'a SeenStages,
    /// The casting to be mended, and the stages whose outputs were sent already.
    pub old: Option<(&'a Casting, usize)>,
}

impl Search<'_> {
    /// A casting that keeps every rule, unless there is none.
    pub fn run(&self) -> Option<Casting> {
        self.dealers().into_iter().find_map(|dealer| {
            let feasible = self.feasible(dealer);
            let openings = self.openings(feasible[0], dealer);
            openings.iter().find_map(|&(first, gates)| self.complete(first, gates, dealer, &feasible))
        })
    }

    /// Clients who own no sample of the group and do not know the model.
    pub fn outsiders(&self) -> Coalition {
        self.unknowing().difference(self.owners)
    }

    /// Whoever holds this stage's outputs already and can go on.
    pub fn kept(&self, stage: usize) -> Option<usize> {
        let (old, sent) = self.old?;
        (stage < sent).then(|| old.holders[stage]).filter(|&holder| !self.away.contains(holder))
    }

    /// Whoever decrypts gates already and can go on.
    pub fn kept_gates(&self) -> Option<usize> {
        let (old, sent) = self.old?;
        old.gates.filter(|&gates| sent > 0 && !self.away.contains(gates))
    }

    fn unknowing(&self) -> Coalition {
        Coalition::first(self.clients).difference(self.knowing).difference(self.away)
    }

    fn distinct(&self) -> bool {
        self.network.distinct_among(self.clients)
    }

    /// Owners first: they see no output of their own batch, so whoever knows a batch's masks never decrypts it.
    /// Then those who know the model and cannot decrypt anyway.
    fn dealers(&self) -> Vec<Option<usize>> {
        if !self.rules.deals(self.network.is_gru()) {
            return vec![None];
        }
        let dealt = self.old.and_then(|(old, _)| old.dealer).filter(|&dealer| !self.away.contains(dealer));
        if dealt.is_some() {
            return vec![dealt];
        }
        let present = Coalition::first(self.clients).difference(self.away);
        let mut dealers: Vec<_> = present.difference(self.seen.features()).members().collect();
        dealers.sort_by_key(|&client| {
            (!self.owners.contains(client), !self.knowing.contains(client), self.place(client))
        });
        dealers.into_iter().map(Some).collect()
    }

    /// For each stage, who may hold its outputs such that somebody may hold those of the next, and so on.
    fn feasible(&self, dealer: Option<usize>) -> Vec<Coalition> {
        let stages = self.network.stages();
        let mut feasible: Vec<_> = (0..stages).map(|stage| self.allowed(stage, dealer)).collect();
        for stage in (1..stages).rev() {
            let next = feasible[stage];
            if next.len() < 2 {
                // Whoever has to follow cannot also precede itself; if nobody can follow, nobody can precede.
                let only = if next.is_empty() { feasible[stage - 1] } else { next };
                feasible[stage - 1] = feasible[stage - 1].difference(only);
            }
        }
        feasible
    }

    /// Who may hold a stage's outputs, as far as that does not depend on the holders of the others.
    fn allowed(&self, stage: usize, dealer: Option<usize>) -> Coalition {
        if let Some(holder) = self.kept(stage) {
            return Coalition::EMPTY.with(holder);
        }
        let last = self.network.stages() - 1;
        let inner = stage > 0 && stage < last && !self.distinct();
        let base = if inner { self.unknowing() } else { self.outsiders() };
        let mut barred = self.seen.dealt.union(dealer.into_iter().collect());
        for (other, &seen) in self.seen.stages.iter().enumerate() {
            let kept: Coalition = self.kept(other).into_iter().collect();
            if other != stage && (self.distinct() || other.abs_diff(stage) == 1) {
                barred = barred.union(seen).union(kept);
            }
        }
        if stage == 0 || self.distinct() {
            barred = barred.union(self.seen.gates).union(self.kept_gates().into_iter().collect());
        }
        if stage == last {
            barred = barred.union(self.seen.counted);
        }
        base.difference(barred)
    }

    /// Who sees layer-1 outputs, few beside the core first.
    fn openings(&self, feasible: Coalition, dealer: Option<usize>) -> Vec<(usize, Option<usize>)> {
        let firsts: Vec<_> = match self.kept(0) {
            Some(first) => feasible.members().filter(|&client| client == first).collect(),
            None => {
                let takers = self.partners.takers(Part::FirstStep, self.unit.coalition);
                feasible.intersection(takers).members().collect()
            }
        };
        let gates = self.gate_decryptors(dealer);
        let pairs = firsts.iter().flat_map(|&first| gates.iter().map(move |&gates| (first, gates)));
        let mut openings: Vec<_> = pairs.filter(|&(first, gates)| gates != Some(first)).collect();
        openings.sort_by_key(|&(first, gates)| {
            let beside = gates.iter().chain([&first]).filter(|client| self.is_beside(**client)).count();
            (beside, self.place(first), gates.map(|gates| self.place(gates)))
        });
        openings
    }

    /// Whether a client is none of the few who can take everything: whoever reads can rebuild, so few should.
    fn is_beside(&self, client: usize) -> bool {
        !self.partners.core().contains(&client)
    }

    fn gate_decryptors(&self, dealer: Option<usize>) -> Vec<Option<usize>> {
        if !self.network.has_gates() {
            return vec![None];
        }
        if let Some(gates) = self.kept_gates() {
            return vec![Some(gates)];
        }
        let takers = self.partners.takers(Part::LaterSteps, self.unit.coalition);
        let mut barred = self.seen.dealt.union(dealer.into_iter().collect());
        for (stage, &seen) in self.seen.stages.iter().enumerate() {
            if stage == 0 || self.distinct() {
                barred = barred.union(seen).union(self.kept(stage).into_iter().collect());
            }
        }
        self.outsiders().intersection(takers).difference(barred).members().map(Some).collect()
    }

    /// The layer-1 reply to a client of this unit.
    pub fn reply(&self, part: Part, client: usize) -> PlannedReply {
        let Unit { round, group, coalition, .. } = self.unit;
        PlannedReply { round, group, part, client, coalition }
    }

    /// Chooses everyone after the first stage.
    fn complete(
        &self,
        first: usize,
        gates: Option<usize>,
        dealer: Option<usize>,
        feasible: &[Coalition],
    ) -> Option<Casting> {
        let mut holders = vec![first];
        let mut uses = vec![0u32; self.clients];
        gates.into_iter().chain([first]).for_each(|client| uses[client] += 1);
        for (stage, candidates) in feasible.iter().enumerate().skip(1) {
            let candidates = candidates.without(holders[stage - 1]);
            let free = candidates.members().filter(|&client| !self.distinct() || uses[client] == 0);
            // The gate decryptor knows a GRU's last hidden state up to a product of update gates, the input of
            // the next layer: it decrypts that layer's output only if nobody else can. An owner, who has the
            // samples, holds features of its own batch only if nobody else can.
            let holder = free.min_by_key(|&client| {
                let input_known = stage == 1 && (gates == Some(client) || self.seen.gates.contains(client));
                let beside = self.is_beside(client);
                (self.owners.contains(client), input_known, beside, uses[client], self.place(client))
            })?;
            uses[holder] += 1;
            holders.push(holder);
        }
        let counter = match self.rules.has_counting_client() {
            true => Some(self.counter(holders[holders.len() - 1])?),
            false => None,
        };
        Some(Casting { gru: self.network.is_gru(), holders, gates, counter, dealer })
    }

    /// Who counts right answers after this client computed the predictions.
    fn counter(&self, last: usize) -> Option<usize> {
        let predicted = self.seen.stages.last().copied().unwrap_or_default().with(last);
        let candidates = self.outsiders().difference(predicted);
        let kept = self.old.and_then(|(old, _)| old.counter).filter(|&counter| candidates.contains(counter));
        kept.or_else(|| candidates.members().min_by_key(|&client| self.place(client)))
    }

    /// The order in which clients are asked: the core, which shares its work by the size of the coalition, then those behind
    /// the block, then the block. It depends on nothing that differs between sessions over the same samples.
    fn place(&self, client: usize) -> (usize, usize) {
        let core = self.partners.core();
        match core.iter().position(|&other| other == client) {
            Some(position) => (0, (position + self.unit.coalition.len()) % core.len()),
            None => (1, turned(client, self.clients, self.block)),
        }
    }
}

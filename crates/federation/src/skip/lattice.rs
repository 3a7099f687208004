//! Which coalitions can be tested at the same time when samples are skipped.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Coalition;

/// The coalitions of one round that are wanted, as a graph: each waits for those that may spare it samples,
/// that is, for the wanted ones within it. The paper goes through them by size, one after the other; here
/// whatever waits for nothing is ready.
#[derive(Clone, Debug)]
pub struct Lattice {
    ready: Vec<Coalition>,
    waiting: Waiting,
    remaining: usize,
    clients: Coalition,
}

#[derive(Clone, Debug)]
enum Waiting {
    /// Every wanted coalition's largest parts are wanted: then it waits for those, which have waited for the
    /// others. (Or they are known, and nothing smaller is wanted.) How many parts each still waits for.
    Parts(HashMap<Coalition, usize>),
    /// Otherwise by size, with the number of smaller ones that are still out.
    Sizes { later: BTreeMap<usize, Vec<Coalition>>, out: usize },
}

impl Lattice {
    /// The wanted coalitions by size, as in the paper: what larger ones may need is known before the first of
    /// a size.
    pub fn by_size(wanted: impl IntoIterator<Item = Coalition>) -> Self {
        Self::sorted(wanted.into_iter().collect())
    }

    /// A graph of wanted coalitions; `is_known` tells which others were tested before.
    pub fn new(wanted: impl IntoIterator<Item = Coalition>, is_known: impl Fn(Coalition) -> bool) -> Self {
        let wanted: HashSet<Coalition> = wanted.into_iter().collect();
        let remaining = wanted.len();
        let clients = wanted.iter().fold(Coalition::EMPTY, |all, coalition| all.union(*coalition));
        let smallest = wanted.iter().map(|coalition| coalition.len()).min().unwrap_or(0);
        let mut waits = HashMap::with_capacity(wanted.len());
        for &coalition in &wanted {
            let (mut out, mut missing) = (0, false);
            for part in parts(coalition) {
                out += usize::from(wanted.contains(&part));
                let is_known = || coalition.len() == smallest && is_known(part);
                missing |= !wanted.contains(&part) && !is_known();
            }
            if missing {
                return Self::sorted(wanted);
            }
            waits.insert(coalition, out);
        }
        let mut ready: Vec<Coalition> =
            waits.iter().filter(|(_, out)| **out == 0).map(|(coalition, _)| *coalition).collect();
        ready.sort_unstable();
        waits.retain(|_, out| *out > 0);
        Self { ready, waiting: Waiting::Parts(waits), remaining, clients }
    }

    fn sorted(wanted: HashSet<Coalition>) -> Self {
        let remaining = wanted.len();
        let mut later: BTreeMap<usize, Vec<Coalition>> = BTreeMap::new();
        for coalition in wanted {
            later.entry(coalition.len()).or_default().push(coalition);
        }
        later.values_mut().for_each(|coalitions| coalitions.sort_unstable());
        let (ready, waiting) = (Vec::new(), Waiting::Sizes { later, out: 0 });
        let mut lattice = Self { ready, waiting, remaining, clients: Coalition::EMPTY };
        lattice.next_size();
        lattice
    }

    /// The coalitions that became ready since the last call, ascending.
    pub fn take_ready(&mut self) -> Vec<Coalition> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable();
        ready
    }

    /// A coalition that was ready has been tested.
    pub fn complete(&mut self, coalition: Coalition) {
        self.remaining = self.remaining.saturating_sub(1);
        match &mut self.waiting {
            Waiting::Parts(waits) => {
                for client in self.clients.difference(coalition).members() {
                    let larger = coalition.with(client);
                    let Some(out) = waits.get_mut(&larger) else { continue };
                    *out -= 1;
                    if *out == 0 {
                        waits.remove(&larger);
                        self.ready.push(larger);
                    }
                }
            }
            Waiting::Sizes { out, .. } => {
                *out = out.saturating_sub(1);
                if *out == 0 {
                    self.next_size();
                }
            }
        }
    }

    /// Whether every wanted coalition has been tested.
    pub fn is_done(&self) -> bool {
        self.remaining == 0
    }

    fn next_size(&mut self) {
        if let Waiting::Sizes { later, out } = &mut self.waiting
            && let Some((_, coalitions)) = later.pop_first()
        {
            *out = coalitions.len();
            self.ready = coalitions;
        }
    }
}

/// The largest parts of a coalition: one member less. A local model and the empty coalition have none that
/// matter.
fn parts(coalition: Coalition) -> impl Iterator<Item = Coalition> {
    let parts = coalition.members().map(move |client| coalition.without(client));
    parts.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a lattice to its end, completing in an order that differs from the one it hands out.
    fn order(mut lattice: Lattice) -> Vec<Coalition> {
        let mut order = Vec::new();
        let mut pending = lattice.take_ready();
        while let Some(next) = pending.pop() {
            order.push(next);
            lattice.complete(next);
            pending.extend(lattice.take_ready());
        }
        assert!(lattice.is_done());
        order
    }

    fn is_in_order(order: &[Coalition]) -> bool {
        order.iter().enumerate().all(|(place, coalition)| {
            order[place..].iter().all(|later| later == coalition || !later.is_subset_of(*coalition))
        })
    }

    #[test]
    fn every_coalition_comes_once_and_after_its_parts() {
        let all: Coalition = [0, 2, 3, 9].into_iter().collect();
        let wanted: Vec<_> = all.subsets().skip(1).collect();
        let found = order(Lattice::new(wanted.clone(), |_| false));
        assert_eq!(found.len(), 15);
        assert!(is_in_order(&found));
        // Without barriers: a pair comes before a local model that is none of its members.
        let first_pair = found.iter().position(|c| c.len() == 2).unwrap();
        assert!(found[first_pair..].iter().any(|c| c.len() == 1));
    }

    #[test]
    fn gaps_are_bridged_by_size_and_known_coalitions_are_no_gaps() {
        let all = Coalition::first(4);
        let gappy: Vec<_> = all.subsets().filter(|c| c.len() == 1 || c.len() == 3).collect();
        let found = order(Lattice::new(gappy.clone(), |_| false));
        assert_eq!(found.len(), 8);
        assert!(is_in_order(&found));
        let mut known = Lattice::new([all], |c| c.len() == 3);
        assert_eq!(known.take_ready(), [all]);
        known.complete(all);
        assert!(known.is_done());
        assert!(Lattice::new([], |_| false).is_done());
        // Somebody within the whole is still wanted although its largest parts are known.
        let late = Coalition::EMPTY.with(0);
        let mut mixed = Lattice::new([all, late], |c| c.len() == 3);
        assert_eq!(mixed.take_ready(), [late]);
        mixed.complete(late);
        assert_eq!(mixed.take_ready(), [all]);
    }
}

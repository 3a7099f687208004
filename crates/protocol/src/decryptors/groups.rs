//! Whose samples may share a batch.

use std::num::NonZeroUsize;

use secsv_federation::{Coalition, MAX_CLIENTS};

use super::{Network, PlanError};

/// Clients in a block, at most: their best partition is found exactly.
const EXACT: usize = 10;

/// The most owners whose samples may share a batch, among `n` clients.
///
/// Three outsiders must remain to divide the first-layer outputs. Where all holders of a layer's features have
/// to be distinct (`n >= L + 2`), L outsiders must remain even after one who knows the model is left out. A layer
/// that follows a GRU should have a decryptor beside the two who see the GRU, again without the one who knows the
/// model: then four remain if there are that many.
pub fn max_owners(n: usize, network: Network) -> Result<usize, PlanError> {
    if n < 4 {
        return Err(PlanError::TooFewClients { clients: n });
    }
    if n > MAX_CLIENTS {
        return Err(PlanError::TooManyClients { clients: n, most: MAX_CLIENTS });
    }
    let outsiders = if network.has_gates() && network.stages() > 1 { 4 } else { 3 };
    let most = n.saturating_sub(outsiders).max(1);
    Ok(if network.distinct_among(n) { most.min(n - 1 - network.layers()) } else { most })
}

/// Clients whose samples may ever share a batch, in the federation's order.
///
/// Which samples do share one depends on test sets, packing and protocol, so it may differ between two sessions over the
/// same samples. Who decrypts follows from the block, and does not.
pub(super) fn blocks(n: usize, network: Network) -> Result<Vec<Coalition>, PlanError> {
    let count = n.div_ceil(max_owners(n, network)?.min(EXACT));
    let bound = |k: usize| k * n / count;
    Ok((0..count).map(|k| (bound(k)..bound(k + 1)).collect()).collect())
}

/// Clients whose samples may share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerGroup {
    owners: Coalition,
    block: Coalition,
    samples: u64,
}

impl OwnerGroup {
    /// Everyone whose samples might be in the batch as well.
    pub(super) fn block(&self) -> Coalition {
        self.block
    }

    /// The clients.
    pub fn owners(&self) -> Coalition {
        self.owners
    }

    /// Their samples, added up.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// The clients who have test samples, in groups that may share a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerGroups {
    clients: usize,
    groups: Vec<OwnerGroup>,
}

impl OwnerGroups {
    /// The partition of each block that needs the fewest batches of `batch` samples and, among those, the fewest owners per
    /// group, because every owner less is one more client to decrypt. `sizes` holds each client's test-set size.
    pub fn new(sizes: &[u64], network: Network, batch: NonZeroUsize) -> Result<Self, PlanError> {
        let clients = sizes.len();
        let mut groups = Vec::new();
        for block in blocks(clients, network)? {
            let owners: Vec<_> = block.members().filter(|&client| sizes[client] > 0).collect();
            groups.extend(partition(&owners, sizes, batch.get() as u64).into_iter().map(|owners| {
                let samples = owners.members().map(|client| sizes[client]).sum();
                OwnerGroup { owners, block, samples }
            }));
        }
        groups.sort_by_key(|group| group.owners.bits().trailing_zeros());
        Ok(Self { clients, groups })
    }

    /// Every owner's samples by themselves, where nobody decrypts.
    pub(crate) fn of_single_owners(sizes: &[u64]) -> Self {
        let owners = sizes.iter().enumerate().filter(|(_, samples)| **samples > 0);
        let group = |(owner, &samples): (usize, &u64)| {
            let owners = Coalition::EMPTY.with(owner);
            OwnerGroup { owners, block: owners, samples }
        };
        Self { clients: sizes.len(), groups: owners.map(group).collect() }
    }

    /// As if the samples of a whole block were always in one batch.
    pub(crate) fn of_blocks(n: usize, network: Network) -> Result<Self, PlanError> {
        Self::new(&vec![1; n], network, NonZeroUsize::MAX)
    }

    /// How many clients there are, with samples or without.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// The group at a position.
    pub fn get(&self, group: usize) -> Result<OwnerGroup, PlanError> {
        self.groups.get(group).copied().ok_or(PlanError::NoSuchGroup { group, groups: self.groups.len() })
    }

    /// All groups, in the order of their first owner.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OwnerGroup> + '_ {
        self.groups.iter().copied()
    }

    /// Batches of `batch` samples that testing one model on everything takes.
    pub fn batches(&self, batch: NonZeroUsize) -> u64 {
        self.groups.iter().map(|group| group.samples.div_ceil(batch.get() as u64)).sum()
    }
}

/// The cheapest way to partition a set of owners: batches, then the sum of squared group sizes. Both add up over
/// groups, so the best partition of a set is one group and the best partition of the rest.
#[derive(Clone, Copy)]
struct Best {
    batches: u64,
    squares: usize,
    group: usize,
}

fn partition(owners: &[usize], sizes: &[u64], batch: u64) -> Vec<Coalition> {
    let mut best = vec![Best { batches: 0, squares: 0, group: 0 }];
    for set in 1usize..1 << owners.len() {
        let lowest = set & set.wrapping_neg();
        let alone = of_group(lowest, owners, sizes, batch, best[set ^ lowest]);
        // Subsets of the rest, each joined by the lowest owner: every partition is met once.
        let rest = set ^ lowest;
        let mut joined = rest;
        let mut cheapest = alone;
        while joined != 0 {
            let group = joined | lowest;
            let found = of_group(group, owners, sizes, batch, best[set ^ group]);
            if (found.batches, found.squares) < (cheapest.batches, cheapest.squares) {
                cheapest = found;
            }
            joined = (joined - 1) & rest;
        }
        best.push(cheapest);
    }
    let mut groups = Vec::new();
    let mut rest = best.len() - 1;
    while rest != 0 {
        let group = best[rest].group;
        groups.push(members(group, owners).collect());
        rest ^= group;
    }
    groups
}

fn of_group(group: usize, owners: &[usize], sizes: &[u64], batch: u64, rest: Best) -> Best {
    let samples: u64 = members(group, owners).map(|client| sizes[client]).sum();
    let size = group.count_ones() as usize;
    Best { batches: rest.batches + samples.div_ceil(batch), squares: rest.squares + size * size, group }
}

fn members(group: usize, owners: &[usize]) -> impl Iterator<Item = usize> {
    owners.iter().enumerate().filter(move |(bit, _)| group >> bit & 1 == 1).map(|(_, &client)| client)
}

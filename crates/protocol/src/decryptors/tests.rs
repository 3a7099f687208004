//! Whole plans, against rules and linear algebra written a second time.

mod attack;
mod grouping;
mod replacing;
mod rules;
mod sessions;

use std::num::NonZeroUsize;

use proptest::prelude::*;
use secsv_federation::{Coalition, RoundId};

use super::*;

/// A federation and a network to be planned.
#[derive(Clone, Debug)]
struct Case {
    sizes: Vec<u64>,
    protocol: Protocol,
    network: Network,
    participants: Coalition,
    round: RoundId,
}

impl Case {
    fn planner(&self) -> Planner {
        let groups = OwnerGroups::new(&self.sizes, self.network, NonZeroUsize::new(64).unwrap()).unwrap();
        Planner::new(groups, self.protocol, self.network).unwrap()
    }

    /// Every unit that needs a secure test.
    fn units(&self, planner: &Planner) -> Vec<Unit> {
        let Self { participants, round, .. } = *self;
        let units = participants.subsets().flat_map(|coalition| {
            let unit = move |group| Unit { round, participants, group, coalition };
            (0..planner.groups().iter().len()).map(unit)
        });
        units.filter(|&unit| !planner.secure_owners(unit).unwrap().is_empty()).collect()
    }
}

fn networks() -> impl Strategy<Value = Network> {
    prop_oneof![
        (1usize..=12).prop_map(|layers| Network::feedforward(layers).unwrap()),
        (1usize..=6, 0usize..=3).prop_map(|(steps, after)| Network::gru(steps, after).unwrap()),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let protocols = prop::sample::select(vec![Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv]);
    (4usize..=9).prop_flat_map(move |n| {
        let size = prop_oneof![1 => Just(0u64), 4 => 1u64..100];
        // Small federations meet the corner cases: few participants are drawn as often as many.
        let participants = prop_oneof![Just((1u128 << n) - 1), 1u128..1 << n];
        (prop::collection::vec(size, n), protocols.clone(), networks(), participants, 1u32..40).prop_map(
            |(sizes, protocol, network, participants, round)| {
                let participants = Coalition::from_bits(participants);
                Case { sizes, protocol, network, participants, round: RoundId(round) }
            },
        )
    })
}

/// The rank over the rationals, by elimination that never divides with a remainder (Bareiss).
fn rank(mut rows: Vec<Vec<i128>>) -> usize {
    let (mut rank, mut previous) = (0, 1);
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (rank..rows.len()).find(|&row| rows[row][column] != 0) else { continue };
        rows.swap(rank, pivot);
        let (done, rest) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank];
        for row in rest {
            let factor = row[column];
            for (value, &other) in row.iter_mut().zip(pivot) {
                *value = (*value * pivot[column] - factor * other) / previous;
            }
        }
        previous = pivot[column];
        rank += 1;
    }
    rank
}

/// The weight vector of a coalition.
fn weights(coalition: Coalition, sizes: &[i128]) -> Vec<i128> {
    (0..sizes.len()).map(|client| if coalition.contains(client) { sizes[client] } else { 0 }).collect()
}

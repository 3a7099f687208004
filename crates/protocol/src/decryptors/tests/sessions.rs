//! Several sessions over the same samples: what a client reads in one adds nothing that the span rule keeps from it in another.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const ROUNDS: u32 = 10;

/// The coalitions whose first-layer outputs each client got, by round, owner, part and client, over all sessions.
type Views = BTreeMap<(u32, usize, Part, usize), BTreeSet<Coalition>>;

/// How a session differs from another over the same samples.
struct Settings {
    protocol: Protocol,
    /// Samples that fit a batch: decides which owners share one.
    batch: usize,
    /// Whether all rounds are one round batch, planned by its first.
    round_batch: bool,
    /// Whether a coalition is asked for.
    asks: fn(u32, Coalition) -> bool,
}

/// Exact with round batches, round by round as with SampleSkip, an estimator, and the same provisioned again under other
/// protocols.
fn sessions() -> Vec<Settings> {
    let all = |_, _| true;
    let some = |round: u32, coalition: Coalition| (coalition.bits() as u32 * 7 + round).is_multiple_of(3);
    vec![
        Settings { protocol: Protocol::SecSv, batch: 4096, round_batch: true, asks: all },
        Settings { protocol: Protocol::SecSv, batch: 4096, round_batch: false, asks: all },
        Settings { protocol: Protocol::SecSv, batch: 30, round_batch: false, asks: some },
        Settings { protocol: Protocol::Hesv, batch: 1, round_batch: false, asks: all },
        Settings { protocol: Protocol::SecretSv, batch: 64, round_batch: false, asks: all },
    ]
}

fn view(views: &mut Views, sizes: &[u64], network: Network, settings: &Settings) {
    let groups = OwnerGroups::new(sizes, network, NonZeroUsize::new(settings.batch).unwrap()).unwrap();
    let mut planner = Planner::new(groups, settings.protocol, network).unwrap();
    let participants = Coalition::first(sizes.len());
    let planned = if settings.round_batch { 1 } else { ROUNDS };
    for round in 1..=planned {
        let case = Case {
            sizes: sizes.to_vec(),
            protocol: settings.protocol,
            network,
            participants,
            round: RoundId(round),
        };
        for unit in case.units(&planner).into_iter().filter(|unit| (settings.asks)(round, unit.coalition)) {
            let roles = planner.assign(unit, Coalition::EMPTY).unwrap();
            let owners = planner.groups().get(unit.group).unwrap().owners();
            let first = roles.gru().map_or_else(|| roles.decryptors()[0], |gru| gru.resharer);
            let gates = roles.gru().and_then(|gru| gru.gates);
            let parts = [(Part::FirstStep, Some(first)), (Part::LaterSteps, gates)];
            for (part, client) in parts.into_iter().filter_map(|(part, client)| Some((part, client?))) {
                let rounds = if settings.round_batch { 1..=ROUNDS } else { round..=round };
                for (round, owner) in rounds.flat_map(|r| owners.members().map(move |o| (r, o))) {
                    views.entry((round, owner, part, client)).or_default().insert(unit.coalition);
                }
            }
        }
    }
}

/// How many views hold the client's own model.
fn spanning(views: &Views, n: usize) -> usize {
    let ones = vec![1; n];
    let holds_own = |&(client, coalitions): &(usize, &BTreeSet<Coalition>)| {
        let rows: Vec<_> = coalitions.iter().map(|&coalition| weights(coalition, &ones)).collect();
        let own = weights(Coalition::EMPTY.with(client), &ones);
        rank([rows.clone(), vec![own]].concat()) == rank(rows)
    };
    views.iter().map(|(&(.., client), coalitions)| (client, coalitions)).filter(holds_own).count()
}

#[test]
fn no_two_sessions_together_give_a_client_its_own_models_outputs() {
    for network in [Network::feedforward(1), Network::feedforward(2), Network::gru(3, 1)].map(Result::unwrap)
    {
        for n in 4..=7 {
            // The last client has no samples; the others' fill batches unevenly.
            let sizes: Vec<u64> = (0..n as u64).map(|client| (11 * (n as u64 - 1 - client)) % 40).collect();
            let mut views = Views::new();
            for settings in sessions() {
                view(&mut views, &sizes, network, &settings);
            }
            let found = spanning(&views, n);
            assert_eq!(found, 0, "{n} clients, {network:?}: {found} of {} views", views.len());
        }
    }
}

/// Whoever reads can rebuild, so few should read, and the same few in every round and session.
#[test]
fn three_clients_read_about_an_owners_samples_and_no_more() {
    for (layers, n) in [1, 2].into_iter().flat_map(|layers| (4..=9).map(move |n| (layers, n))) {
        let network = Network::feedforward(layers).unwrap();
        let mut readers: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (protocol, batch) in [(Protocol::SecSv, 64), (Protocol::SecretSv, 4096), (Protocol::SecSv, 1)] {
            let groups = OwnerGroups::new(&vec![9; n], network, NonZeroUsize::new(batch).unwrap()).unwrap();
            let mut planner = Planner::new(groups, protocol, network).unwrap();
            for round in [RoundId(1), RoundId(8)] {
                let participants = Coalition::first(n);
                let case = Case { sizes: vec![9; n], protocol, network, participants, round };
                for unit in case.units(&planner) {
                    planner.assign(unit, Coalition::EMPTY).unwrap();
                }
            }
            for (client, owner, _) in planner.readings() {
                readers.entry(owner).or_default().insert(client);
            }
        }
        assert_eq!(readers.len(), n);
        assert!(readers.values().all(|clients| clients.len() == 3), "{n} clients: {readers:?}");
    }
}

//! Every rule for every unit of generated federations.

use std::collections::BTreeMap;

use super::*;

/// What each client was sent of one group and part.
type Sent = BTreeMap<(usize, Part, usize), Vec<Coalition>>;

fn assert_rules(case: &Case, planner: &Planner, unit: Unit, roles: &UnitRoles) {
    let n = case.sizes.len();
    let owners = planner.groups().get(unit.group).unwrap().owners();
    let known = |client| knows(client, unit.coalition, unit.participants);
    let mut holders: Vec<_> = roles.gru().map(|gru| gru.resharer).into_iter().collect();
    holders.extend(roles.decryptors());
    let gates = roles.gru().and_then(|gru| gru.gates);

    assert!(holders.windows(2).all(|pair| pair[0] != pair[1]), "one client holds input and output");
    for end in [holders[0], holders[holders.len() - 1]].into_iter().chain(gates).chain(roles.counter()) {
        assert!(!owners.contains(end), "an owner decrypts the first or last layer");
    }
    let decryptors: Vec<_> = holders.iter().copied().chain(gates).collect();
    for &client in decryptors.iter().chain(&roles.counter()) {
        assert!(!known(client), "a client decrypts for a model it knows");
    }
    assert_ne!(gates, Some(holders[0]));
    if n >= case.network.layers() + 2 {
        let all: Coalition = decryptors.iter().copied().collect();
        assert_eq!(all.len(), decryptors.len(), "a client decrypts twice");
        assert!(all.intersection(owners).is_empty(), "an owner decrypts");
    }
    assert_eq!(roles.counter().is_some(), case.protocol == Protocol::Hesv);
    assert_ne!(roles.counter(), holders.last().copied());
    let gru = case.network.is_gru();
    let dealer_needed = case.protocol == Protocol::SecretSv || case.protocol == Protocol::SecSv && gru;
    assert_eq!(roles.dealer().is_some(), dealer_needed);
    assert!(roles.dealer().is_none_or(|dealer| !decryptors.contains(&dealer)));
    if n > 4 && unit.participants.len() > 2 && gates.is_some() {
        assert_ne!(gates, holders.get(1).copied(), "five clients are enough to avoid this");
    }
}

/// The span rule, with weights and without the prime.
fn assert_spans(case: &Case, planner: &Planner, sent: &Sent) {
    let sizes: Vec<i128> = (0..case.sizes.len() as i128).map(|client| 3 + client * client % 11).collect();
    for (&(_, _, client), coalitions) in sent {
        let vectors: Vec<_> = coalitions.iter().map(|&coalition| weights(coalition, &sizes)).collect();
        let own = weights(Coalition::EMPTY.with(client), &sizes);
        let alone = rank(vectors.clone());
        let joined = rank([vectors, vec![own]].concat());
        assert_eq!(joined, alone + 1, "client {client} can compute the output of its own model");
    }
    planner.ledger().check().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_unit_keeps_every_rule(case in cases()) {
        let mut planner = case.planner();
        let mut sent = Sent::new();
        for unit in case.units(&planner) {
            let roles = match planner.assign(unit, Coalition::EMPTY) {
                Ok(roles) => roles,
                Err(PlanError::NobodyLeft { .. }) => {
                    // Two participants know each other's models; nothing else may leave nobody.
                    prop_assert_eq!(case.participants.len(), 2);
                    let one_decrypts = case.network.layers() == 1 && case.protocol != Protocol::Hesv;
                    prop_assert!(!one_decrypts);
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert_rules(&case, &planner, unit, &roles);
            let first = roles.gru().map_or_else(|| roles.decryptors()[0], |gru| gru.resharer);
            sent.entry((unit.group, Part::FirstStep, first)).or_default().push(unit.coalition);
            if let Some(gates) = roles.gru().and_then(|gru| gru.gates) {
                sent.entry((unit.group, Part::LaterSteps, gates)).or_default().push(unit.coalition);
            }
        }
        assert_spans(&case, &planner, &sent);
    }
}

#[test]
fn small_federations_keep_every_rule_with_any_participants() {
    let networks = (1..=7).map(Network::feedforward).chain([Network::gru(1, 1), Network::gru(3, 1)]);
    for network in networks.map(Result::unwrap) {
        for protocol in [Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv] {
            for bits in (1u128..32).filter(|bits| bits.count_ones() != 2) {
                for n in 4.max(128 - bits.leading_zeros() as usize)..=5 {
                    let participants = Coalition::from_bits(bits);
                    let case = Case { sizes: vec![9; n], protocol, network, participants, round: RoundId(7) };
                    let mut planner = case.planner();
                    for unit in case.units(&planner) {
                        let roles = planner.assign(unit, Coalition::EMPTY).unwrap();
                        assert_rules(&case, &planner, unit, &roles);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_no_unit_is_refused() {
    let network = Network::feedforward(1).unwrap();
    let participants = Coalition::first(4).without(3);
    let case =
        Case { sizes: vec![5; 4], protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
    let mut planner = case.planner();
    let unit = Unit { round: RoundId(1), participants, group: 0, coalition: Coalition::EMPTY.with(1) };
    let mut assign = |unit| planner.assign(unit, Coalition::EMPTY).map(|_| ());
    assert_eq!(assign(unit), Ok(()));
    assert!(matches!(assign(unit), Err(PlanError::AlreadyPlanned { .. })));
    let stranger = Coalition::EMPTY.with(3);
    assert!(matches!(assign(Unit { coalition: stranger, ..unit }), Err(PlanError::Strangers { .. })));
    assert!(matches!(assign(Unit { group: 4, ..unit }), Err(PlanError::NoSuchGroup { .. })));
    let all = Coalition::first(4);
    assert!(matches!(assign(Unit { participants: all, ..unit }), Err(PlanError::ParticipantsChanged { .. })));
    for known in [Coalition::EMPTY, participants, Coalition::EMPTY.with(0), participants.without(0)] {
        let unit = Unit { coalition: known, ..unit };
        assert!(matches!(assign(unit), Err(PlanError::NothingToTest { .. })));
    }
}

#[test]
fn an_absent_outsider_reads_every_first_layer_alone() {
    let network = Network::feedforward(2).unwrap();
    let participants = Coalition::first(7).without(5);
    let sizes = (0..7).map(|client| u64::from(client == 0)).collect();
    let case = Case { sizes, protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
    let mut planner = case.planner();
    for unit in case.units(&planner) {
        assert_eq!(planner.assign(unit, Coalition::EMPTY).unwrap().decryptors()[0], 5);
    }
}

//! Clients who stay away, and what those before them have seen.

use super::*;

/// Every stage a client was sent the outputs of, over all attempts at one unit.
#[derive(Default)]
struct Views {
    holders: Vec<(usize, usize)>,
    gates: Vec<usize>,
    counters: Vec<usize>,
    dealers: Vec<usize>,
}

impl Views {
    fn add(&mut self, roles: &UnitRoles, sent: usize) {
        let first = roles.gru().map(|gru| gru.resharer);
        let holders: Vec<_> = first.into_iter().chain(roles.decryptors().iter().copied()).collect();
        self.holders.extend(holders.iter().copied().enumerate().take(sent));
        if sent > 0 {
            self.gates.extend(roles.gru().and_then(|gru| gru.gates));
        }
        if sent > holders.len() {
            self.counters.extend(roles.counter());
        }
        self.dealers.extend(roles.dealer());
    }

    fn assert_rules(&self, distinct: bool, last: usize) {
        for &(stage, client) in &self.holders {
            for &(other, _) in self.holders.iter().filter(|&&(_, same)| same == client) {
                assert!(stage == other || !distinct && stage.abs_diff(other) > 1, "{client} saw two stages");
            }
            assert!((stage > 0 && !distinct) || !self.gates.contains(&client));
            assert!(stage != last || !self.counters.contains(&client));
            assert!(!self.dealers.contains(&client));
        }
        assert!(self.gates.iter().all(|client| !self.dealers.contains(client)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn replacements_keep_the_rules_together(
        case in cases(),
        pick in any::<prop::sample::Index>(),
        faults in prop::collection::vec((0usize..14, any::<u16>(), any::<u16>()), 1..6),
    ) {
        let mut planner = case.planner();
        let units = case.units(&planner);
        prop_assume!(!units.is_empty());
        let unit = units[pick.index(units.len())];
        let Ok(mut roles) = planner.assign(unit, Coalition::EMPTY) else { return Ok(()) };
        let stages = roles.decryptors().len() + usize::from(roles.gru().is_some());
        let everyone = Coalition::first(case.sizes.len());
        let mut views = Views::default();
        for (sent, some, others) in faults {
            let sent = sent % (stages + 2);
            let away = Coalition::from_bits(u128::from(some & others)).intersection(everyone);
            views.add(&roles, sent);
            match planner.replace(&mut roles, sent, away) {
                Ok(()) => {
                    let named = roles.decryptors().iter().copied().chain(roles.counter()).chain(roles.dealer());
                    let gru = roles.gru().into_iter().flat_map(|gru| gru.gates.into_iter().chain([gru.resharer]));
                    for client in named.chain(gru) {
                        prop_assert!(!away.contains(client));
                    }
                }
                Err(PlanError::Awaiting { clients, .. }) => {
                    prop_assert!(!clients.is_empty() && clients.is_subset_of(away));
                }
                Err(PlanError::NobodyLeft { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            let mut now = Views { holders: views.holders.clone(), ..Views::default() };
            now.gates.clone_from(&views.gates);
            now.counters.clone_from(&views.counters);
            now.dealers.clone_from(&views.dealers);
            now.add(&roles, stages + 1);
            now.assert_rules(case.network.distinct_among(case.sizes.len()), stages - 1);
        }
        planner.ledger().check().unwrap();
    }

    #[test]
    fn a_first_decryptor_who_leaves_never_breaks_the_span_rule(case in cases(), choices in any::<u64>()) {
        let mut planner = case.planner();
        for (i, unit) in case.units(&planner).into_iter().enumerate() {
            let Ok(mut roles) = planner.assign(unit, Coalition::EMPTY) else { continue };
            let first = roles.gru().map_or_else(|| roles.decryptors()[0], |gru| gru.resharer);
            if choices >> (i % 64) & 1 == 1 {
                let replaced = planner.replace(&mut roles, 1, Coalition::EMPTY.with(first));
                assert!(!matches!(replaced, Err(PlanError::Span { .. })));
            }
        }
        planner.ledger().check().unwrap();
    }
}

fn example(n: usize, layers: usize) -> (Planner, impl Fn(&[usize]) -> Unit) {
    let network = Network::feedforward(layers).unwrap();
    let participants = Coalition::first(n);
    let sizes = (0..n).map(|client| if client == n - 1 { 5 } else { 0 }).collect();
    let case = Case { sizes, protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
    let unit = move |members: &[usize]| {
        let coalition = members.iter().copied().collect();
        Unit { round: RoundId(1), participants, group: 0, coalition }
    };
    (case.planner(), unit)
}

#[test]
fn the_client_who_is_awaited_is_named() {
    let (mut planner, unit) = example(4, 1);
    // Clients 1 and 2 disagree with 0, so only one pair of the cycle of three agrees.
    let mut roles = planner.assign(unit(&[0]), Coalition::EMPTY).unwrap();
    let only = roles.decryptors()[0];
    let awaited = Coalition::EMPTY.with(only);
    let error = planner.replace(&mut roles, 1, awaited).unwrap_err();
    assert_eq!(error, PlanError::Awaiting { clients: awaited, any: true });
    assert_eq!(
        error.to_string(),
        format!("awaiting any one of clients {{{only}}}: nobody else may take their place")
    );
    assert_eq!(roles.decryptors(), [only]);
    assert!(planner.replace(&mut roles, 1, Coalition::EMPTY).is_ok());
}

#[test]
fn those_who_answered_keep_their_layer() {
    let (mut planner, unit) = example(7, 3);
    let mut roles = planner.assign(unit(&[0, 1, 2]), Coalition::EMPTY).unwrap();
    let before = roles.decryptors().to_vec();
    let replies = planner.ledger().replies();
    planner.replace(&mut roles, 2, Coalition::EMPTY.with(before[1])).unwrap();
    let after = roles.decryptors();
    assert_eq!(after[0], before[0]);
    assert!(!before[..2].contains(&after[1]) && !before[..2].contains(&after[2]));
    assert_eq!(planner.ledger().replies(), replies);
}

#[test]
fn with_two_participants_some_tests_have_nobody() {
    let network = Network::feedforward(2).unwrap();
    let participants = Coalition::first(2);
    let sizes = vec![0, 0, 0, 5];
    let case = Case { sizes, protocol: Protocol::SecSv, network, participants, round: RoundId(1) };
    let unit = Unit { round: RoundId(1), participants, group: 0, coalition: Coalition::EMPTY.with(0) };
    let error = case.planner().assign(unit, Coalition::EMPTY).unwrap_err();
    let eligible = Coalition::EMPTY.with(2);
    assert_eq!(error, PlanError::NobodyLeft { round: RoundId(1), coalition: unit.coalition, eligible });
}

#[test]
fn a_reply_that_breaks_the_span_rule_is_not_recorded() {
    let mut ledger = Ledger::new(4);
    let reply = |members: &[usize]| PlannedReply {
        round: RoundId(1),
        group: 0,
        part: Part::FirstStep,
        client: 0,
        coalition: members.iter().copied().collect(),
    };
    for members in [[0, 1], [1, 2]] {
        ledger.record(reply(&members)).unwrap();
    }
    let error = PlanError::Span { round: RoundId(1), group: 0, client: 0 };
    assert_eq!(ledger.record(reply(&[0, 2])), Err(error.clone()));
    assert_eq!(ledger.record(reply(&[0])), Err(error));
    assert_eq!(ledger.replies(), 2);
    ledger.record(reply(&[3])).unwrap();
    ledger.check().unwrap();
}

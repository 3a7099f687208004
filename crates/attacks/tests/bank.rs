//! Customers' records from the scores that another bank decrypts: the paper's task, ten equations beside 48
//! features.

#![cfg(test)]

mod support;

use std::time::Instant;

use secsv_attacks::{ClientView, equations, grid::Schema, records::RecordSearch};
use secsv_federation::RoundId;
use secsv_protocol::{decryptors::Protocol, exposure::Can};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

const FEATURES: usize = 48;
const CUSTOMERS: usize = 40;
/// Tried one after the other, until candidates appear.
const TOLERANCES: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Facts that every bank knows of the columns: categories, and which columns go together (the month with the
/// economy's figures, the last campaign's outcome with its days and contacts); call seconds and contacts are
/// whole numbers.
fn schema(view: &ClientView) -> Schema {
    let range = |first: usize, end: usize| (first..end).collect::<Vec<usize>>();
    let economy = [range(19, 29), range(43, 48)].concat();
    let last_campaign = [range(0, 3), range(41, 43)].concat();
    let (job, marital, contact, day) = (range(3, 14), range(14, 17), range(17, 19), range(29, 34));
    let blocks: [&[usize]; 11] =
        [&economy, &last_campaign, &job, &marital, &contact, &day, &[34], &[35], &[36], &[37], &[38]];
    Schema::learn(view.own.features(), FEATURES, &blocks, &[(39, 1), (40, 1)])
}

/// How many customers are right by the best candidate, and how many have a single one.
fn rebuilt(search: &RecordSearch, truth: &[f32]) -> (usize, usize) {
    let (mut right, mut single) = (0, 0);
    for place in 0..CUSTOMERS {
        let found = search.widening(place, &TOLERANCES);
        let row = &truth[place * FEATURES..][..FEATURES];
        let fits = |found: &f64, truth: &f32| (found - f64::from(*truth)).abs() < 1e-3;
        right += usize::from(
            found.first().is_some_and(|best| best.record.iter().zip(row).all(|(a, b)| fits(a, b))),
        );
        single += usize::from(found.len() == 1);
    }
    (right, single)
}

/// Under BlindSV the same program finds nobody in any single view, nor in those of all clients; in those of both servers, everybody.
fn nobody_rebuilds(trained: &Trained, attacker: usize, victim: usize) {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(Protocol::BlindSv, true);
    let truth = trained.truth(victim);
    let right = |view: &ClientView| {
        let Some(system) = equations::known(view, victim, &rounds).unwrap() else { return 0 };
        RecordSearch::new(&system, &schema(view)).map_or(0, |search| rebuilt(&search, &truth).0)
    };
    for (who, view) in views.blind_attackers(victim, attacker) {
        let right = right(&view);
        println!("bank, BlindSv, {who}: {right} of {CUSTOMERS} customers");
        assert_eq!(right, 0, "{who}");
    }
    assert!(right(&views.both_servers(attacker)) >= CUSTOMERS - 2, "both servers together");
}

/// Pairs of attacker and victim, and in how many rounds the attacker has equations.
fn pairs(views: &[ClientView], rounds: &[RoundId]) -> Vec<(usize, usize, usize)> {
    let all = (0..views.len()).flat_map(|a| (0..views.len()).map(move |v| (a, v)));
    let exposed = all.map(|(a, v)| {
        let system = equations::known(&views[a], v, rounds).unwrap();
        (a, v, system.map_or(0, |system| system.rounds.len()))
    });
    exposed.collect()
}

#[test]
fn a_bank_rebuilds_customers_of_another_in_all_48_features() {
    let Some(data) = support::data() else { return };
    let trained = Trained::new(&DatasetSource::Bank, Some(&data), ModelKind::Logistic, Training::default());
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(Protocol::SecSv, true);
    let pairs = pairs(&views.clients, &rounds);
    println!("bank: rounds with equations, by attacker and victim: {pairs:?}");
    // The bank with most rows of its own, against one that has enough.
    let rows: Vec<usize> = views.clients.iter().map(|view| view.own.len()).collect();
    let exposed = pairs.iter().filter(|&&(_, v, exposed)| exposed == rounds.len() && rows[v] >= CUSTOMERS);
    let &(attacker, victim, _) = exposed.max_by_key(|(a, v, _)| (rows[*a], rows[*v])).unwrap();
    println!("bank: rows of each client: {rows:?}");
    let view = &views.clients[attacker];
    let system = equations::known(view, victim, &rounds).unwrap().unwrap();
    let schema = schema(view);
    let started = Instant::now();
    let search = RecordSearch::new(&system, &schema).unwrap();
    println!("bank: {attacker} against {victim}, {:?} sums to meet, {:?}", search.sizes(), started.elapsed());
    let truth = trained.truth(victim);
    let (right, single) = rebuilt(&search, &truth);
    println!(
        "bank: {right} of {CUSTOMERS} customers in all {FEATURES} features by the best candidate, a single one for {single}, {:?}",
        started.elapsed()
    );
    assert!(right >= CUSTOMERS - 2, "{right}");
    // Whoever can do nothing by the table has no equation: owners, and one of the four others.
    let spared = pairs.iter().filter(|(a, v, _)| views.exposure.of_samples(*a, *v) == Can::Nothing);
    let spared: Vec<usize> = spared.map(|(.., exposed)| *exposed).collect();
    assert_eq!(spared, vec![0; 10]);
    views.assert_servers_read_no_outputs();
    nobody_rebuilds(&trained, attacker, victim);
}

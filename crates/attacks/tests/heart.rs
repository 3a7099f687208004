//! Patients' records, and with them everybody's models, from the scores that one hospital decrypts: four real
//! hospitals, one score a round.

#![cfg(test)]

mod support;

use nalgebra::DMatrix;
use secsv_attacks::{ClientView, equations, grid::Schema, models, records::RecordSearch};
use secsv_federation::RoundId;
use secsv_protocol::{decryptors::Protocol, exposure::Can};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training};

const FEATURES: usize = 13;
const CLEVELAND: usize = 0;
const BUDAPEST: usize = 1;
/// Sex, chest pain, fasting sugar, resting ECG, exercise angina.
const CATEGORIES: [&[usize]; 5] = [&[1], &[2, 3, 4], &[7], &[8, 9], &[11]];
/// Age, blood pressure, cholesterol, heart rate, ST depression: recorded in tenths, where Budapest has
/// halves.
const NUMBERS: [(usize, u32); 5] = [(0, 1), (5, 1), (6, 1), (10, 1), (12, 5)];
/// Tried one after the other, until candidates appear.
const TOLERANCES: [f64; 9] = [2.0, 4.0, 6.0, 10.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// As many of them are tried one by one, to see what each finds.
const SWEPT: usize = 5;

fn is_right(record: &[f64], row: &[f32]) -> bool {
    record.iter().zip(row).all(|(found, truth)| (found - f64::from(*truth)).abs() < 1e-3)
}

/// The outcome of searches: right by the best candidate, a single candidate, no candidate, a wrong best one.
#[derive(Debug, Default, PartialEq)]
struct Score {
    right: usize,
    single: usize,
    none: usize,
    wrong: usize,
}

/// Rebuilds the records of Cleveland; `tolerances` are widened until candidates appear.
fn rebuild(view: &ClientView, rounds: &[RoundId], tolerances: &[f64]) -> Option<Vec<Vec<Vec<f64>>>> {
    let system = equations::known(view, CLEVELAND, rounds).unwrap()?;
    let schema = Schema::learn(view.own.features(), FEATURES, &CATEGORIES, &NUMBERS);
    let search = RecordSearch::new(&system, &schema)?;
    let records = |place| search.widening(place, tolerances).into_iter().map(|found| found.record).collect();
    Some((0..system.samples.len()).map(records).collect())
}

fn score(found: &[Vec<Vec<f64>>], truth: &[f32]) -> Score {
    let mut score = Score::default();
    for (candidates, row) in found.iter().zip(truth.chunks_exact(FEATURES)) {
        score.single += usize::from(candidates.len() == 1);
        match candidates.first() {
            None => score.none += 1,
            Some(best) if is_right(best, row) => score.right += 1,
            Some(_) => score.wrong += 1,
        }
    }
    score
}

/// The largest error of any weight or bias of any other hospital, over all rounds, and how many models there
/// are.
fn steal_models(trained: &Trained, view: &ClientView, records: &DMatrix<f64>) -> (usize, f64) {
    let (mut count, mut largest) = (0, 0.0f64);
    for round in trained.run.spec().round_ids() {
        for (client, layer) in models::first_layers(view, CLEVELAND, round, records).unwrap() {
            let truth = support::layer(&view.program, 0, &trained.local(client, round.0));
            largest = largest.max((layer - truth).amax());
            count += 1;
        }
    }
    (count, largest)
}

#[test]
fn budapest_rebuilds_every_patient_of_cleveland_and_every_model() {
    let Some(data) = support::data() else { return };
    let training = Training { clients: 4, ..Training::default() };
    let trained = Trained::new(&DatasetSource::Heart, Some(&data), ModelKind::Logistic, training);
    for protocol in [Protocol::SecSv, Protocol::SecretSv] {
        rebuild_all(&trained, protocol);
    }
    nobody_rebuilds(&trained);
}

/// Under BlindSV the same programs find nothing in any single view, nor in those of all clients; in those of both servers, everything.
fn nobody_rebuilds(trained: &Trained) {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(Protocol::BlindSv, true);
    let truth = trained.truth(CLEVELAND);
    let patients = truth.len() / FEATURES;
    let records = DMatrix::from_fn(FEATURES, patients, |i, k| f64::from(truth[k * FEATURES + i]));
    for (who, view) in views.blind_attackers(CLEVELAND, BUDAPEST) {
        let found = rebuild(&view, &rounds, &TOLERANCES).unwrap_or_default();
        let right = score(&found, &truth).right;
        // Whoever is told the true records finds no model by them either.
        let (models, error) = closest_model(trained, &view, &records);
        println!(
            "heart, BlindSv, {who}: {right} of {patients} patients; of {models} models the closest is off by {error:.1e}"
        );
        assert_eq!(right, 0, "{who}");
        assert!(models == 0 || error > 1.0, "{who}: {error}");
    }
    trained.assert_shares_are_noise(&views);
    let both = views.both_servers(BUDAPEST);
    let found = rebuild(&both, &rounds, &TOLERANCES).unwrap();
    assert_eq!(score(&found, &truth).right, patients, "both servers together");
    let (models, error) = steal_models(trained, &both, &records);
    assert!(models == 3 * rounds.len() && error < 2e-4, "both servers together: {models} models, {error}");
}

/// Models of others that regression gives, and the largest error of the one that is closest.
fn closest_model(trained: &Trained, view: &ClientView, records: &DMatrix<f64>) -> (usize, f64) {
    let (mut count, mut closest) = (0, f64::INFINITY);
    for round in trained.run.spec().round_ids() {
        for (client, layer) in models::first_layers(view, CLEVELAND, round, records).unwrap() {
            let truth = support::layer(&view.program, 0, &trained.local(client, round.0));
            closest = closest.min((layer - truth).amax());
            count += 1;
        }
    }
    (count, closest)
}

fn rebuild_all(trained: &Trained, protocol: Protocol) {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(protocol, true);
    let truth = trained.truth(CLEVELAND);
    let patients = truth.len() / FEATURES;
    let view = &views.clients[BUDAPEST];
    let started = std::time::Instant::now();
    // Blind: whoever does not know how sharp the equations are tries, and widens.
    for tolerance in &TOLERANCES[..SWEPT] {
        let found = rebuild(view, &rounds, &[*tolerance]).unwrap();
        println!("heart, {protocol:?}, tolerance {tolerance}: {:?} of {}", score(&found, &truth), patients);
    }
    let found = rebuild(view, &rounds, &TOLERANCES).unwrap();
    let all = score(&found, &truth);
    println!(
        "heart, {protocol:?}: {} of {} patients in all {FEATURES} features, {:?}",
        all.right,
        patients,
        started.elapsed()
    );
    assert_eq!((all.right, all.wrong, all.none), (patients, 0, 0));

    let records = DMatrix::from_fn(FEATURES, found.len(), |i, k| found[k][0][i]);
    let (models, error) = steal_models(trained, view, &records);
    println!(
        "heart, {protocol:?}: {models} local models of the three other hospitals, largest error of any weight {error:.1e}"
    );
    assert_eq!(models, 3 * rounds.len());
    assert_eq!(views.exposure.of_models(BUDAPEST), Can::Rebuild);
    assert!(error < 2e-4, "{error}");

    // Without equations in excess of the numbers the program has nothing to judge categories by.
    assert!(rebuild(view, &rounds[..NUMBERS.len()], &TOLERANCES).is_none());
    // Cleveland decrypts nothing about its own samples, and servers read no score.
    assert!(equations::known(&views.clients[CLEVELAND], CLEVELAND, &rounds).unwrap().is_none());
    views.assert_servers_read_no_outputs();
}

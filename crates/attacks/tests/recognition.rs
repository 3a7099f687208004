//! Candidates recognised among another's samples.

#![cfg(test)]

mod support;

use nalgebra::DMatrix;
use secsv_attacks::{ClientView, equations, equations::System, recognition::recognise};
use secsv_federation::RoundId;
use secsv_protocol::decryptors::Protocol;
use secsv_training::{DatasetSource, LoadOptions, ModelKind};
use support::{Trained, Training, Views};

/// Samples that are looked for.
const SAMPLES: usize = 200;
/// Widened blindly: with the last one all are found, and none wrongly.
const TOLERANCES: [f64; 4] = [6.0, 12.0, 25.0, 100.0];

/// Candidates, and how many of an owner's samples were recognised among them, rightly and wrongly.
fn score(system: &System, pool: &[f32], truth: &[f32], tolerance: f64) -> (usize, usize) {
    let width = system.matrix.ncols();
    let candidates = DMatrix::from_fn(width, pool.len() / width, |i, k| f64::from(pool[k * width + i]));
    let found = recognise(system, &candidates, tolerance);
    let same = |k: usize, c: usize| truth[k * width..][..width] == pool[c * width..][..width];
    let named: Vec<_> = found.iter().enumerate().filter_map(|(k, c)| Some((k, (*c)?))).collect();
    let right = named.iter().filter(|&&(k, c)| same(k, c)).count();
    (right, named.len() - right)
}

/// The first pair of attacker and victim with equations of all rounds, and these.
fn exposed(views: &Views, rounds: &[RoundId]) -> (usize, usize, System) {
    let pairs = (0..5).flat_map(|a| (0..5).map(move |v| (a, v)));
    let system = |(a, v)| {
        let mut system = equations::known(&views.clients[a], v, rounds).unwrap()?;
        let count = system.values.ncols().min(SAMPLES);
        system.values = system.values.columns(0, count).into_owned();
        Some((a, v, system))
    };
    pairs.filter_map(system).max_by_key(|(.., system)| system.rounds.len() * system.values.ncols()).unwrap()
}

fn run(name: &str, trained: &Trained, pool: &[f32], strangers: &[f32], tolerances: &[f64]) {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(Protocol::SecSv, true);
    let (attacker, victim, system) = exposed(&views, &rounds);
    let (samples, truth) = (system.values.ncols(), trained.truth(victim));
    let mut last = 0;
    for &tolerance in tolerances {
        let (right, wrong) = score(&system, pool, &truth, tolerance);
        println!(
            "{name}: client {attacker} against {victim}, {} equations, tolerance x{tolerance}: {right} of {samples} recognised \
             among {} candidates, {wrong} wrongly",
            system.matrix.nrows(),
            pool.len() / system.matrix.ncols()
        );
        assert_eq!(wrong, 0);
        last = right;
    }
    assert_eq!(last, samples);
    // Of people who are not there nobody is found.
    let (right, wrong) = score(&system, strangers, &truth, tolerances[tolerances.len() - 1]);
    assert_eq!((right, wrong), (0, 0));
    views.assert_servers_read_no_outputs();
    nobody_is_recognised(name, trained, pool, (attacker, victim), tolerances);
}

/// Under BlindSV nobody is recognised in any single view, nor in those of all clients; in those of both servers, everybody.
fn nobody_is_recognised(
    name: &str,
    trained: &Trained,
    pool: &[f32],
    (attacker, victim): (usize, usize),
    tolerances: &[f64],
) {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let views = trained.views(Protocol::BlindSv, true);
    let truth = trained.truth(victim);
    let recognised = |view: &ClientView| {
        let Some(mut system) = equations::known(view, victim, &rounds).unwrap() else { return (0, 0) };
        let count = system.values.ncols().min(SAMPLES);
        system.values = system.values.columns(0, count).into_owned();
        let widest = tolerances[tolerances.len() - 1];
        (score(&system, pool, &truth, widest).0, count)
    };
    for (who, view) in views.blind_attackers(victim, attacker) {
        let (right, samples) = recognised(&view);
        println!("{name}, BlindSv, {who}: {right} of {samples} recognised");
        assert_eq!(right, 0, "{who}");
    }
    let (right, samples) = recognised(&views.both_servers(attacker));
    assert!(right == samples && samples > 0, "both servers together: {right} of {samples}");
}

#[test]
fn every_breast_cancer_patient_is_recognised() {
    let trained = Trained::new(&DatasetSource::BreastCancer, None, ModelKind::Logistic, Training::default());
    let pool = trained.dataset.test.features().to_vec();
    run("breast cancer", &trained, &pool, trained.dataset.train.features(), &TOLERANCES);
}

#[test]
fn every_news_article_is_recognised() {
    let Some(data) = support::data() else { return };
    let training = Training { epochs: Some(1), limits: (Some(5_000), Some(1_000)), ..Training::default() };
    let trained = Trained::new(&DatasetSource::Agnews, Some(&data), ModelKind::Logistic, training);
    // All 7600 articles of the test set.
    let options = LoadOptions { data: Some(&data), ..LoadOptions::default() };
    let pool = DatasetSource::Agnews.load(&options).unwrap().test.features().to_vec();
    run("agnews", &trained, &pool, trained.dataset.train.features(), &TOLERANCES);
}

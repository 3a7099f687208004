//! Estimators that test some of all coalitions, under BlindSV and in the clear. A failure is another choice of coalitions, a coalition
//! that is asked for twice, or values that differ by more than near-ties explain.

use secsv_evaluation::{
    ClearEvaluator, EvaluationResult, EvaluationSettings, SecureEvaluator, evaluate, in_process::Honest,
};
use secsv_federation::{CollectiveTestSet, RoundId, RunDirectory};
use secsv_protocol::{Preset, Seed, decryptors::Protocol, session::Matmul};
use secsv_shapley::{EstimatorSettings, Method};
use secsv_training::{DatasetSource, LoadOptions, ModelKind, Recipe, Split, train};

use crate::federations::settings;

fn trained(directory: &std::path::Path, source: &DatasetSource, model: ModelKind) -> RunDirectory {
    let dataset = source.load(&LoadOptions::default()).unwrap().limited(Some(1000), Some(150), 0);
    let silos = Split::Even.deal(&dataset, 5, 0).unwrap();
    let mut recipe = Recipe::new(source, model, 0);
    (recipe.rounds, recipe.local.epochs) = (2, 1);
    train(&dataset, &silos, &recipe, &directory.join("run"), &|_| ()).unwrap().directory
}

fn blindsv(run: &RunDirectory, how: &EvaluationSettings) -> EvaluationResult {
    let settings = settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed);
    let seed = Seed::from_bytes([6; 32]);
    let mut evaluator = SecureEvaluator::new(run, settings, None, &seed, Box::new(Honest)).unwrap();
    evaluate(run.spec(), &mut evaluator, how, |_| {}).unwrap()
}

fn compare(run: &RunDirectory, method: Method, estimator: EstimatorSettings) {
    let how = EvaluationSettings { method, estimator, ..EvaluationSettings::default() };
    let set = CollectiveTestSet::read(run).unwrap();
    let clear = evaluate(run.spec(), &mut ClearEvaluator::new(run, &set), &how, |_| {}).unwrap();
    let blind = blindsv(run, &how);
    let tested = |result: &EvaluationResult| -> Vec<(RoundId, Vec<_>)> {
        result.utilities.iter().map(|found| (found.round, found.coalition.clone())).collect()
    };
    assert_eq!(tested(&blind), tested(&clear), "{method}");
    let all = 2 << run.spec().clients.len();
    assert!(clear.utilities.len() < all, "{method} tests every coalition");
    let pairs = clear.utilities.iter().zip(&blind.utilities);
    let different: usize = pairs.map(|(a, b)| a.correct.abs_diff(b.correct)).sum();
    let predictions = clear.utilities.iter().map(|found| found.total).sum::<usize>();
    println!("{method}: of {predictions} predictions {different} differ");
    assert!(different * 1000 <= predictions, "{method}: {different} of {predictions}");
    assert_eq!(blind.standard_error.is_some(), clear.standard_error.is_some());
    for (client, value) in &clear.fsv {
        let error = (blind.fsv[client] - value).abs();
        // A count that is off by one moves no value by more than one test sample's worth.
        let most = different as f64 / clear.utilities[0].total as f64;
        assert!(error <= most, "{method}: {client} by {error}, at most {most}");
    }
}

fn estimators() -> [(Method, EstimatorSettings); 2] {
    let some = |samples| EstimatorSettings { samples: Some(samples), ..EstimatorSettings::default() };
    [(Method::Permutation, some(3)), (Method::KernelShap, some(12))]
}

#[test]
fn sampling_estimators_value_the_same_as_in_the_clear() {
    let directory = tempfile::tempdir().unwrap();
    let run = trained(directory.path(), &DatasetSource::BreastCancer, ModelKind::Logistic);
    estimators().into_iter().for_each(|(method, estimator)| compare(&run, method, estimator));
}

#[test]
fn sampling_estimators_value_deep_models_the_same_as_in_the_clear() {
    let directory = tempfile::tempdir().unwrap();
    let run = trained(directory.path(), &DatasetSource::Digits, ModelKind::Dnn { layers: 2 });
    estimators().into_iter().for_each(|(method, estimator)| compare(&run, method, estimator));
}

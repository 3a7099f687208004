//! Federations of few clients, aggregates that are no means, and utilities that ask for classes, in the clear.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;

use secsv_evaluation::{
    ClearEvaluator, CumulativeEvaluator, Error, EvaluationResult, EvaluationSettings, Utility, evaluate,
};
use secsv_federation::{
    Aggregation, ClientId, ClientSpec, Coalition, CollectiveTestSet, FederationSpec, LayerSpec, ModelSpec,
    RoundId, RunDirectory, RunWriter, Tensor, TestSet, Weights,
    clear::{ModelParameters, correct_samples},
    skip::SkipMode,
};
use secsv_shapley::Method;

const FEATURES: usize = 3;
const CLASSES: usize = 2;

/// Numbers that repeat after a while.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 101) % 97) as f32 / 48.0 - 1.0).collect()
}

fn model(seed: usize) -> Weights {
    let tensor = Tensor::new(vec![CLASSES, FEATURES], numbers(CLASSES * FEATURES, seed)).unwrap();
    Weights::from_iter([("fc.weight".to_owned(), tensor)])
}

fn run(directory: &tempfile::TempDir, clients: usize, aggregation: Aggregation) -> RunDirectory {
    let specs = (0..clients)
        .map(|i| ClientSpec::new(ClientId::new(format!("silo-{i}")).unwrap(), 1.5 + i as f64))
        .collect();
    let linear = LayerSpec::Linear { weight: "fc.weight".into(), bias: None };
    let model_spec = ModelSpec::new(vec![FEATURES], CLASSES, [linear]);
    let spec = FederationSpec { aggregation, ..FederationSpec::new("few".into(), 2, model_spec, specs) };
    let writer = RunWriter::create(directory.path().join("run"), &spec).unwrap();
    writer.initial_model(&model(0)).unwrap();
    for (i, id) in spec.ids().enumerate() {
        let labels = (0..40).map(|sample| i64::from(sample % 5 == i)).collect();
        let test_set = TestSet::new(vec![FEATURES], numbers(40 * FEATURES, 7 + i), labels).unwrap();
        writer.test_set(id, &test_set).unwrap();
        for round in spec.round_ids() {
            writer.local_model(id, round, &model(10 * round.0 as usize + i)).unwrap();
        }
    }
    if aggregation == Aggregation::Other {
        writer.global_model(RoundId(1), &model(99)).unwrap();
    }
    writer.finish().unwrap()
}

fn valued(run: &RunDirectory, settings: &EvaluationSettings) -> Result<EvaluationResult, Error> {
    let test_set = CollectiveTestSet::read(run)?;
    if settings.method.needs_cumulative_models() {
        return evaluate(run.spec(), &mut CumulativeEvaluator::new(run, &test_set)?, settings, |_| {});
    }
    evaluate(run.spec(), &mut ClearEvaluator::new(run, &test_set), settings, |_| {})
}

fn correct(result: &EvaluationResult, round: u32, members: usize) -> usize {
    let is_it = |u: &&secsv_evaluation::UtilityResult| u.round.0 == round && u.coalition.len() == members;
    result.utilities.iter().find(is_it).unwrap().correct
}

#[test]
fn one_two_and_three_clients_are_valued_by_every_estimator() {
    for clients in 1..=3 {
        let directory = tempfile::tempdir().unwrap();
        let run = run(&directory, clients, Aggregation::Mean);
        for method in Method::all() {
            let settings = EvaluationSettings { method, ..EvaluationSettings::default() };
            let result = match valued(&run, &settings) {
                Ok(result) => result,
                Err(refusal) => {
                    assert!(refusal.is_bad_input(), "{clients} clients, {method}: {refusal}");
                    println!("{clients} clients, {method}: {refusal}");
                    continue;
                }
            };
            assert!(result.fsv.values().all(|value| value.is_finite()), "{clients} clients, {method}");
            if method == Method::Exact {
                let gained: f64 = (1..=2u32)
                    .map(|round| {
                        let [all, none] = [clients, 0].map(|members| correct(&result, round, members) as f64);
                        (all - none) / (40 * clients) as f64
                    })
                    .sum();
                assert!((result.fsv.values().sum::<f64>() - gained).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn the_empty_coalition_is_the_global_model_before_the_round() {
    let directory = tempfile::tempdir().unwrap();
    let run = run(&directory, 3, Aggregation::Other);
    let result = valued(&run, &EvaluationSettings::default()).unwrap();
    let test_set = CollectiveTestSet::read(&run).unwrap();
    let right = |weights: &Weights| {
        let parameters = ModelParameters::new(run.architecture(), weights);
        let all = secsv_federation::SampleSet::all(test_set.len());
        correct_samples(run.architecture(), &parameters, &test_set, &all).len()
    };
    assert_eq!(correct(&result, 1, 0), right(&model(0)));
    assert_eq!(correct(&result, 2, 0), right(&model(99)));
    assert_ne!(correct(&result, 2, 0), correct(&result, 1, 3), "it is not the mean of round 1");
    let other =
        EvaluationSettings { method: Method::ContributionIndexOneRound, ..EvaluationSettings::default() };
    assert!(valued(&run, &other).unwrap().fsv.values().all(|value| value.is_finite()));
}

/// Right samples of each class for one coalition of a round, one sample at a time.
fn counted(run: &RunDirectory, round: u32, coalition: Coalition) -> [usize; CLASSES] {
    let (mut mean, mut total) = (vec![0.0; CLASSES * FEATURES], 0.0);
    for i in coalition.members() {
        let weight = 1.5 + i as f64;
        total += weight;
        let local = model(10 * round as usize + i);
        let tensor = local.get("fc.weight").unwrap();
        mean.iter_mut().zip(tensor.numbers()).for_each(|(sum, v)| *sum += weight * v);
    }
    if coalition.is_empty() {
        assert_eq!(round, 1);
        (mean, total) = (model(0).get("fc.weight").unwrap().numbers().collect(), 1.0);
    }
    let mut right = [0; CLASSES];
    for client in run.spec().ids() {
        let test_set = run.test_set(client).unwrap();
        for (x, &label) in test_set.features().chunks(FEATURES).zip(test_set.labels()) {
            let score = |class: usize| {
                let row = &mean[class * FEATURES..][..FEATURES];
                row.iter().zip(x).map(|(w, &x)| w / total * f64::from(x)).sum::<f64>()
            };
            let predicted = i64::from(score(1) > score(0));
            right[label as usize] += usize::from(predicted == label);
        }
    }
    right
}

#[test]
fn utilities_of_classes_follow_from_counts_of_an_independent_computation() {
    let directory = tempfile::tempdir().unwrap();
    let run = run(&directory, 3, Aggregation::Mean);
    let utilities = [Utility::BalancedAccuracy, Utility::Recall(0), Utility::Recall(1), Utility::F1];
    for (utility, skip) in
        utilities.into_iter().zip([SkipMode::Off, SkipMode::Off, SkipMode::On, SkipMode::Off])
    {
        let settings = EvaluationSettings { utility, skip, ..EvaluationSettings::default() };
        let result = valued(&run, &settings).unwrap();
        assert_eq!((result.utility.parse(), result.class_samples.clone()), (Ok(utility), vec![96, 24]));
        let mut values = BTreeMap::new();
        for found in result.utilities.iter().filter(|found| found.round.0 == 1) {
            let coalition: Coalition = (0..3)
                .filter(|i| found.coalition.contains(&ClientId::new(format!("silo-{i}")).unwrap()))
                .collect();
            assert_eq!(found.correct, found.correct_of_classes.iter().sum::<usize>());
            if skip == SkipMode::Off {
                assert_eq!(found.correct_of_classes, counted(&run, 1, coalition), "{coalition:?}");
            }
            values.insert(coalition, utility.value(&found.correct_of_classes, &result.class_samples));
        }
        // Values are those of the game of these utilities: they add up to what everybody together gains.
        let gained = values[&Coalition::first(3)] - values[&Coalition::EMPTY];
        let sum: f64 = result.ssv[0].values.values().sum();
        assert!((sum - gained).abs() < 1e-12, "{utility}: {sum} {gained}");
    }
    let settings = EvaluationSettings { utility: Utility::Recall(2), ..EvaluationSettings::default() };
    let refusal = valued(&run, &settings).unwrap_err().to_string();
    assert!(refusal.contains("utility recall=2: expected a class from 0 to 1"), "{refusal}");
}

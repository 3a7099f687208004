//! Models accumulated over all rounds.

use std::error::Error;

use rand::Rng;
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use secsv_evaluation::{ClearEvaluator, CumulativeEvaluator, EvaluationSettings, evaluate};
use secsv_federation::{
    ClientId, ClientSpec, Coalition, CollectiveTestSet, FederationSpec, LayerSpec, ModelSpec, RoundId,
    RunDirectory, RunWriter, Tensor, TestSet, Weights,
    clear::{CumulativeModels, ModelParameters},
};
use secsv_shapley::Method;

const FEATURES: usize = 3;

fn spec(rounds: u32) -> Result<FederationSpec, Box<dyn Error>> {
    let client = |place: u64| {
        let id = ClientId::new(format!("c{place}"))?;
        Ok::<_, Box<dyn Error>>(ClientSpec::new(id, (10 + 7 * place) as f64))
    };
    let layers = vec![LayerSpec::Linear { weight: "w".to_owned(), bias: None }];
    let model = ModelSpec::new(vec![FEATURES], 2, layers);
    let clients = (0..4).map(client).collect::<Result<_, _>>()?;
    Ok(FederationSpec::new("cumulative".to_owned(), rounds, model, clients))
}

fn model(rng: &mut ChaCha20Rng) -> Result<Weights, Box<dyn Error>> {
    let values = (0..2 * FEATURES).map(|_| rng.random_range(-1.0..1.0)).collect();
    Ok(Weights::from_iter([("w".to_owned(), Tensor::new(vec![2, FEATURES], values)?)]))
}

/// Random models; client 1 misses the second round.
fn run(directory: &std::path::Path, rounds: u32) -> Result<RunDirectory, Box<dyn Error>> {
    let mut rng = ChaCha20Rng::seed_from_u64(11);
    let spec = spec(rounds)?;
    let writer = RunWriter::create(directory.join("run"), &spec)?;
    writer.initial_model(&model(&mut rng)?)?;
    for (place, id) in spec.ids().enumerate() {
        let features = (0..25 * FEATURES).map(|_| rng.random_range(-1.0..1.0)).collect();
        let labels = (0..25).map(|_| rng.random_range(0..2)).collect();
        writer.test_set(id, &TestSet::new(vec![FEATURES], features, labels)?)?;
        for round in spec.round_ids().filter(|round| place != 1 || round.0 != 2) {
            writer.local_model(id, round, &model(&mut rng)?)?;
        }
    }
    Ok(writer.finish()?)
}

#[test]
fn a_model_is_the_initial_one_and_its_members_updates() {
    let directory = tempfile::tempdir().unwrap();
    let run = run(directory.path(), 3).unwrap();
    let models = CumulativeModels::read(&run).unwrap();
    let of = |place: usize, round: u32| {
        let id = &run.spec().clients[place].id;
        ModelParameters::new(run.architecture(), &run.local_model(id, RoundId(round)).unwrap())
    };
    let size = |place: usize| run.spec().clients[place].weight;
    let aggregate = |round: u32, members: &[usize]| {
        let locals: Vec<(ModelParameters, f64)> =
            members.iter().map(|&place| (of(place, round), size(place))).collect();
        ModelParameters::mean(locals.iter().map(|(model, size)| (model, *size))).unwrap()
    };
    let initial = ModelParameters::new(run.architecture(), &run.initial_model().unwrap());
    let (first, second, third) =
        (aggregate(1, &[0, 1, 2, 3]), aggregate(2, &[0, 2, 3]), aggregate(3, &[0, 1, 2, 3]));

    // Client 1 alone: its updates of rounds 1 and 3.
    let mut alone = of(1, 1);
    alone.add_scaled(&of(1, 3), 1.0);
    alone.add_scaled(&second, -1.0);
    // Clients 0 and 1: means of both, and of 0 alone in the round that 1 missed.
    let mut pair = aggregate(1, &[0, 1]);
    pair.add_scaled(&of(0, 2), 1.0);
    pair.add_scaled(&first, -1.0);
    pair.add_scaled(&aggregate(3, &[0, 1]), 1.0);
    pair.add_scaled(&second, -1.0);
    for (coalition, expected) in [
        (Coalition::EMPTY, initial),
        (Coalition::EMPTY.with(1), alone),
        (Coalition::EMPTY.with(0).with(1), pair),
        (Coalition::first(4), third),
    ] {
        let found = models.model(coalition);
        for (found, expected) in found.values().iter().zip(expected.values()) {
            assert!((found - expected).abs() < 1e-12, "{coalition:?}");
        }
    }
}

#[test]
fn the_one_round_index_splits_what_the_whole_training_gained() {
    let directory = tempfile::tempdir().unwrap();
    let run = run(directory.path(), 3).unwrap();
    let test_set = CollectiveTestSet::read(&run).unwrap();
    let by_round = EvaluationSettings::default();
    let accumulated = EvaluationSettings { method: Method::ContributionIndexOneRound, ..by_round };
    let fsv = evaluate(run.spec(), &mut ClearEvaluator::new(&run, &test_set), &by_round, |_| {}).unwrap();
    let mut evaluator = CumulativeEvaluator::new(&run, &test_set).unwrap();
    let index = evaluate(run.spec(), &mut evaluator, &accumulated, |_| {}).unwrap();
    assert_eq!((index.estimator.as_str(), index.utilities.len()), ("contribution-index-or", 16));
    let (one, other): (f64, f64) = (index.fsv.values().sum(), fsv.fsv.values().sum());
    assert!((one - other).abs() < 1e-12, "{one} and {other}: both begin and end with the same models");
    assert_ne!(index.fsv, fsv.fsv);
}

#[test]
fn of_one_round_it_is_that_rounds_shapley_value() {
    let directory = tempfile::tempdir().unwrap();
    let run = run(directory.path(), 1).unwrap();
    let test_set = CollectiveTestSet::read(&run).unwrap();
    let exact = EvaluationSettings::default();
    let accumulated = EvaluationSettings { method: Method::ContributionIndexOneRound, ..exact };
    let fsv = evaluate(run.spec(), &mut ClearEvaluator::new(&run, &test_set), &exact, |_| {}).unwrap();
    let mut evaluator = CumulativeEvaluator::new(&run, &test_set).unwrap();
    let index = evaluate(run.spec(), &mut evaluator, &accumulated, |_| {}).unwrap();
    assert_eq!((index.fsv, index.utilities), (fsv.fsv, fsv.utilities));
}

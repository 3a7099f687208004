//! NSSV from run directory to result, against the paper's formulas and one model at a time.

use std::{collections::BTreeMap, error::Error, path::PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{ClearEvaluator, EvaluationResult, EvaluationSettings, evaluate};
use secsv_federation::{
    ClientId, ClientSpec, Coalition, CollectiveTestSet, FederationSpec, LayerSpec, ModelSpec, RoundId,
    RunDirectory, RunWriter, SampleSet, Tensor, TestSet, Weights,
    clear::{ModelParameters, correct_samples},
    skip::SkipMode,
};
use secsv_shapley::{EstimatorSettings, Method};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Federation {
    _parent: tempfile::TempDir,
    run: RunDirectory,
    test_set: CollectiveTestSet<'static>,
}

fn linear(name: &str) -> LayerSpec {
    LayerSpec::Linear { weight: format!("{name}.weight"), bias: Some(format!("{name}.bias")) }
}

/// Logistic models, or two layers with a square between them.
fn model(deep: bool) -> (ModelSpec, Vec<(&'static str, Vec<usize>)>) {
    let (layers, shapes) = if deep {
        let layers = vec![linear("a"), LayerSpec::Square {}, linear("b")];
        let shapes = vec![
            ("a.weight", vec![6, 4]),
            ("a.bias", vec![6]),
            ("b.weight", vec![3, 6]),
            ("b.bias", vec![3]),
        ];
        (layers, shapes)
    } else {
        (vec![linear("a")], vec![("a.weight", vec![3, 4]), ("a.bias", vec![3])])
    };
    (ModelSpec::new(vec![4], 3, layers), shapes)
}

/// Models that differ, but agree on much, as trained ones do; in each round somebody may be absent.
fn federation(seed: u64, clients: usize, rounds: u32, deep: bool) -> Outcome<Federation> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (model, shapes) = model(deep);
    let mut specs = Vec::new();
    for index in 0..clients {
        // Names that sort in another order than the federation lists them.
        let id = ClientId::new(format!("site-{}", (index * 7 + 3) % clients))?;
        specs.push(ClientSpec::new(id, rng.random_range(1..100u64) as f64));
    }
    let spec = FederationSpec::new("test".into(), rounds, model, specs);
    let base: Vec<Vec<f32>> = shapes
        .iter()
        .map(|(_, s)| (0..s.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect())
        .collect();
    let mut near = |noise: f32| -> Outcome<Weights> {
        let mut weights = Weights::new();
        for ((name, shape), base) in shapes.iter().zip(&base) {
            let values = base.iter().map(|v| v + rng.random_range(-noise..noise)).collect();
            weights.insert(*name, Tensor::new(shape.clone(), values)?);
        }
        Ok(weights)
    };
    let parent = tempfile::tempdir()?;
    let writer = RunWriter::create(parent.path().join("run"), &spec)?;
    writer.initial_model(&near(2.0)?)?;
    let mut rng = ChaCha20Rng::seed_from_u64(seed + 1);
    let truth = near(0.05)?;
    for round in spec.round_ids() {
        let absent = if round.0 > 1 { rng.random_range(0..=clients) } else { clients };
        for (index, client) in spec.clients.iter().enumerate().filter(|(index, _)| *index != absent) {
            writer.local_model(&client.id, round, &near(0.2 + 0.1 * index as f32)?)?;
        }
    }
    for client in &spec.clients {
        let samples = rng.random_range(5..40);
        let features: Vec<f32> = (0..samples * 4).map(|_| rng.random_range(-1.0..1.0)).collect();
        let labels = labels(&spec, &truth, &features, &mut rng)?;
        writer.test_set(&client.id, &TestSet::new(vec![4], features, labels)?)?;
    }
    let run = writer.finish()?;
    let test_set = CollectiveTestSet::read(&run)?;
    Ok(Federation { _parent: parent, run, test_set })
}

/// What the true model says, sometimes something else.
fn labels(spec: &FederationSpec, truth: &Weights, x: &[f32], rng: &mut ChaCha20Rng) -> Outcome<Vec<i64>> {
    let file = PathBuf::from("test");
    let architecture = secsv_federation::Architecture::new(&spec.model, &truth.shapes(), &file, &file)?;
    let scores = secsv_federation::clear::scores(&architecture, truth, x);
    let label = |scores: &[f64]| secsv_federation::clear::predicted(scores) as i64;
    Ok(scores
        .chunks(3)
        .map(|s| if rng.random_bool(0.1) { rng.random_range(0..3) } else { label(s) })
        .collect())
}

impl Federation {
    fn evaluate(&self, settings: &EvaluationSettings) -> Outcome<EvaluationResult> {
        let mut evaluator = ClearEvaluator::new(&self.run, &self.test_set);
        Ok(evaluate(self.run.spec(), &mut evaluator, settings, |_| {})?)
    }

    /// One model at a time, aggregated as a whole.
    fn right(&self, round: RoundId, coalition: Coalition) -> Outcome<SampleSet> {
        let mut models = Vec::new();
        for member in coalition.members() {
            let client = &self.run.spec().clients[member];
            let local = self.run.local_model(&client.id, round)?;
            models.push((ModelParameters::new(self.run.architecture(), &local), client.weight_in(round)));
        }
        let mean = ModelParameters::mean(models.iter().map(|(model, size)| (model, *size)));
        let mean = match mean {
            Some(mean) => mean,
            None => ModelParameters::new(self.run.architecture(), &self.run.initial_model()?),
        };
        let all = SampleSet::all(self.test_set.len());
        Ok(correct_samples(self.run.architecture(), &mean, &self.test_set, &all))
    }

    /// The paper's utilities: v(empty) of a later round is everybody's of the round before.
    fn utilities(&self) -> Outcome<BTreeMap<(RoundId, Coalition), usize>> {
        let mut utilities = BTreeMap::new();
        let mut everybody = self.right(RoundId(1), Coalition::EMPTY)?.len();
        for round in self.run.spec().round_ids() {
            utilities.insert((round, Coalition::EMPTY), everybody);
            let participants = self.run.participants(round);
            for coalition in participants.subsets().skip(1) {
                utilities.insert((round, coalition), self.right(round, coalition)?.len());
            }
            everybody = utilities[&(round, participants)];
        }
        Ok(utilities)
    }

    /// The paper's SSV, by the sum over subsets.
    fn shapley(
        &self,
        utilities: &BTreeMap<(RoundId, Coalition), usize>,
        round: RoundId,
        client: usize,
    ) -> f64 {
        let participants = self.run.participants(round);
        if !participants.contains(client) {
            return 0.0;
        }
        let n = participants.len();
        let factorial = |k: usize| (1..=k).map(|v| v as f64).product::<f64>();
        let others = participants.without(client);
        let marginal = |s: Coalition| {
            let (with, without) = (utilities[&(round, s.with(client))], utilities[&(round, s)]);
            (with as f64 - without as f64) / self.test_set.len() as f64
        };
        others
            .subsets()
            .map(|s| factorial(s.len()) * factorial(n - s.len() - 1) / factorial(n) * marginal(s))
            .sum()
    }
}

fn with_skip(skip: SkipMode) -> EvaluationSettings {
    EvaluationSettings { skip, verify_skip: true, ..EvaluationSettings::default() }
}

#[test]
fn values_and_utilities_are_those_of_the_paper() {
    for (seed, clients, deep) in [(1, 4, false), (2, 5, true), (3, 6, true), (4, 8, false)] {
        let federation = federation(seed, clients, 3, deep).unwrap();
        let spec = federation.run.spec();
        let result = federation.evaluate(&EvaluationSettings::default()).unwrap();
        let utilities = federation.utilities().unwrap();
        let expected: BTreeMap<_, _> =
            utilities.iter().map(|((round, c), correct)| ((*round, spec.names(*c)), *correct)).collect();
        let found: BTreeMap<_, _> =
            result.utilities.iter().map(|u| ((u.round, u.coalition.clone()), u.correct)).collect();
        assert_eq!(found, expected);
        assert_eq!(result.utilities.len(), expected.len());
        // Sorted by round and ids, everything tested.
        let keys: Vec<_> = result.utilities.iter().map(|u| (u.round, u.coalition.clone())).collect();
        assert!(keys.is_sorted());
        assert!(result.utilities.iter().all(|u| u.tested == u.total && u.wrongly_skipped.is_none()));
        for (position, client) in spec.clients.iter().enumerate() {
            let mut sum = 0.0;
            for round in &result.ssv {
                let expected = federation.shapley(&utilities, round.round, position);
                assert!((round.values[&client.id] - expected).abs() < 1e-12);
                sum += expected;
            }
            assert!((result.fsv[&client.id] - sum).abs() < 1e-12);
        }
        assert!(!result.skip && result.standard_error.is_none());
    }
}

#[test]
fn skipping_is_free_of_error_for_linear_models() {
    for seed in 10..14 {
        let federation = federation(seed, 5, 2, false).unwrap();
        let exact = federation.evaluate(&EvaluationSettings::default()).unwrap();
        let skipped = federation.evaluate(&with_skip(SkipMode::On)).unwrap();
        assert!(skipped.skip, "trained models agree somewhere");
        assert_eq!(skipped.fsv, exact.fsv);
        for (with, without) in skipped.utilities.iter().zip(&exact.utilities) {
            assert_eq!((with.correct, with.total), (without.correct, without.total));
            assert_eq!(with.wrongly_skipped, Some(0));
            assert!(with.coalition.len() > 1 || with.round > RoundId(1) || with.tested == with.total);
        }
    }
}

/// Algorithm 5 as it is written, one coalition after the other.
fn sample_skip(
    federation: &Federation,
    round: RoundId,
) -> Outcome<BTreeMap<Coalition, (usize, usize, usize)>> {
    let total = federation.test_set.len();
    let participants = federation.run.participants(round);
    let mut coalitions: Vec<_> = participants.subsets().skip(1).collect();
    coalitions.sort_by_key(|c| c.len());
    let mut phi: BTreeMap<Coalition, SampleSet> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for coalition in coalitions {
        let mut psi = SampleSet::none(total);
        for part in coalition.subsets().filter(|part| !part.is_empty() && *part != coalition) {
            psi.insert_common(&phi[&part], &phi[&coalition.difference(part)]);
        }
        let right = federation.right(round, coalition)?;
        let wrong = psi.difference(&right).len();
        let mut correct = right.difference(&psi);
        correct.union_with(&psi);
        found.insert(coalition, (correct.len(), total - psi.len(), wrong));
        phi.insert(coalition, correct);
    }
    Ok(found)
}

#[test]
fn skipped_and_wrongly_skipped_samples_are_those_of_the_paper() {
    let mut wrong = 0;
    for seed in 20..26 {
        let federation = federation(seed, 5, 1, true).unwrap();
        let result = federation.evaluate(&with_skip(SkipMode::On)).unwrap();
        let expected = sample_skip(&federation, RoundId(1)).unwrap();
        let names: BTreeMap<_, _> =
            expected.iter().map(|(c, counts)| (federation.run.spec().names(*c), *counts)).collect();
        for utility in result.utilities.iter().filter(|u| !u.coalition.is_empty()) {
            let counts = (utility.correct, utility.tested, utility.wrongly_skipped.unwrap());
            assert_eq!(counts, names[&utility.coalition]);
            wrong += counts.2;
        }
    }
    assert!(wrong > 0, "squares make some skips wrong; this test would not notice a count that is always 0");
}

#[test]
fn auto_skips_only_where_it_saves_work() {
    let federation = federation(30, 5, 2, true).unwrap();
    let on = federation.evaluate(&with_skip(SkipMode::On)).unwrap();
    let auto = federation.evaluate(&with_skip(SkipMode::Auto)).unwrap();
    let tested = |result: &EvaluationResult| result.utilities.iter().map(|u| u.tested).sum::<usize>();
    assert!(tested(&auto) >= tested(&on));
    let off = federation.evaluate(&with_skip(SkipMode::Off)).unwrap();
    assert!(tested(&off) >= tested(&auto) && !off.skip);
}

#[test]
fn every_estimator_runs_with_and_without_skipping() {
    let federation = federation(40, 5, 2, false).unwrap();
    for method in Method::all().filter(|method| !method.needs_cumulative_models()) {
        let estimator = EstimatorSettings { seed: 3, samples: Some(40), ..EstimatorSettings::default() };
        let plain = EvaluationSettings { method, estimator, ..EvaluationSettings::default() };
        let skipping = EvaluationSettings { skip: SkipMode::On, verify_skip: true, ..plain };
        let (exact, skipped) =
            (federation.evaluate(&plain).unwrap(), federation.evaluate(&skipping).unwrap());
        // Linear models: skipping changes no utility, so no value either.
        assert_eq!(exact.fsv, skipped.fsv, "{method}");
        assert_eq!(exact.fsv, federation.evaluate(&plain).unwrap().fsv, "{method} does not repeat itself");
        assert_eq!(exact.estimator, method.name());
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let federation = federation(50, 6, 2, true).unwrap();
    let settings = with_skip(SkipMode::Auto);
    let with_threads = |threads: usize| -> Outcome<EvaluationResult> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let mut result = pool.install(|| federation.evaluate(&settings).map_err(|e| e.to_string()))?;
        result.timing.wall_s = 0.0;
        Ok(result)
    };
    assert_eq!(with_threads(1).unwrap(), with_threads(3).unwrap());
}

#[test]
fn the_document_has_exactly_the_promised_keys() {
    let federation = federation(60, 4, 1, false).unwrap();
    let result = federation.evaluate(&EvaluationSettings::default()).unwrap();
    let document = serde_json::to_value(&result).unwrap();
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
    };
    assert_eq!(
        keys(&document),
        [
            "clients",
            "estimator",
            "fsv",
            "operations",
            "parameters",
            "protocol",
            "schema",
            "seed",
            "skip",
            "ssv",
            "test_noise",
            "timing",
            "traffic",
            "utilities",
            "version"
        ]
    );
    assert_eq!(keys(&document["utilities"][0]), ["coalition", "correct", "round", "tested", "total"]);
    assert_eq!(keys(&document["ssv"][0]), ["round", "values"]);
    assert_eq!(
        keys(&document["timing"]),
        ["activate_s", "decrypt_s", "encrypt_s", "linear_s", "share_s", "wall_s"]
    );
    assert_eq!(
        keys(&document["operations"]),
        ["ct_ct_mul", "ct_pt_mul", "decrypt", "encrypt", "ntt", "rotate"]
    );
    assert_eq!(document["utilities"][0]["coalition"], serde_json::json!([]));
    assert_eq!((&document["parameters"], &document["protocol"]), (&serde_json::Value::Null, &"nssv".into()));
    let back: EvaluationResult = serde_json::from_value(document).unwrap();
    assert_eq!(back, result);
}

//! SecretSV against the same run without cryptography, bit for bit. A failure is a sample that one predicts right and
//! the other wrong, or a test that does not end.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{error::Error, sync::Arc};

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{
    Envelope, EvaluationSettings, Evaluator, SecureEvaluator, Test, client_inputs, evaluate,
    in_process::{Honest, Interceptor},
};
use secsv_federation::{
    BatchNormSpec, ClientId, ClientSpec, Coalition, FederationSpec, LayerSpec, ModelSpec, RoundId,
    RunDirectory, RunWriter, SampleSet, Tensor, TestSet, Weights, skip::SkipMode,
};
use secsv_protocol::{
    ClientInput, Error as RoleError, Preset, Ring64, Seed,
    decryptors::{Protocol, knows},
    ideal::Ideal,
    message::Kind,
    model::{EncodedModel, sample_values},
    own_right,
    session::{Federation, HiddenSettings, Matmul, Session, Settings, typical_costs},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SETTINGS: Settings = Settings {
    protocol: Protocol::SecretSv,
    preset: Preset::Standard,
    matmul: Matmul::Packed,
    always_skips: false,
    whole_rounds: false,
    hidden: HiddenSettings::USUAL,
    by_class: false,
};

/// A model and the shapes of its tensors.
struct Model {
    spec: ModelSpec,
    tensors: Vec<(String, Vec<usize>)>,
}

impl Model {
    fn new(input: &[usize]) -> Self {
        let spec = ModelSpec::new(input.to_vec(), 3, Vec::<LayerSpec>::new());
        Self { spec, tensors: Vec::new() }
    }

    fn tensor(&mut self, part: &str, shape: &[usize]) -> String {
        let name = format!("{}.{part}", self.spec.layers.len());
        self.tensors.push((name.clone(), shape.to_vec()));
        name
    }

    fn then(mut self, layer: LayerSpec) -> Self {
        self.spec.layers.push(layer.into());
        self
    }

    /// The last layer gets a name.
    fn named(mut self, name: &str) -> Self {
        self.spec.layers.last_mut().unwrap().name = Some(name.to_owned());
        self
    }

    /// The last layer takes what these hand on.
    fn from(mut self, names: &[&str]) -> Self {
        self.spec.layers.last_mut().unwrap().from = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    fn batch_norm(mut self, channels: usize, is_affine: bool) -> Self {
        let [mean, variance] = ["mean", "variance"].map(|part| self.tensor(part, &[channels]));
        let [weight, bias] = ["weight", "bias"].map(|part| is_affine.then(|| self.tensor(part, &[channels])));
        let epsilon = (!is_affine).then_some(0.01);
        self.then(LayerSpec::BatchNorm(BatchNormSpec { weight, bias, mean, variance, epsilon }))
    }

    fn linear(mut self, inputs: usize, outputs: usize, biased: bool) -> Self {
        let weight = self.tensor("weight", &[outputs, inputs]);
        let bias = biased.then(|| self.tensor("bias", &[outputs]));
        self.then(LayerSpec::Linear { weight, bias })
    }

    fn conv(mut self, shape: [usize; 4], stride: usize, padding: usize) -> Self {
        let weight = self.tensor("weight", &shape);
        let bias = Some(self.tensor("bias", &shape[..1]));
        self.then(LayerSpec::conv2d(weight, bias, stride, padding))
    }

    fn gru(mut self, features: usize, hidden: usize) -> Self {
        let weight_ih = self.tensor("weight_ih", &[3 * hidden, features]);
        let weight_hh = self.tensor("weight_hh", &[3 * hidden, hidden]);
        let bias_ih = Some(self.tensor("bias_ih", &[3 * hidden]));
        let bias_hh = Some(self.tensor("bias_hh", &[3 * hidden]));
        self.then(LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh })
    }
}

impl Model {
    fn residual() -> Self {
        Self::new(&[1, 4, 4])
            .conv([2, 1, 3, 3], 1, 1)
            .batch_norm(2, true)
            .then(LayerSpec::Relu {})
            .named("first.in")
            .conv([2, 2, 3, 3], 1, 1)
            .batch_norm(2, true)
            .then(LayerSpec::Relu {})
            .conv([2, 2, 3, 3], 1, 1)
            .batch_norm(2, true)
            .named("first.main")
            .then(LayerSpec::Add {})
            .from(&["first.main", "first.in"])
            .then(LayerSpec::Relu {})
            .named("second.in")
            .conv([3, 2, 3, 3], 2, 1)
            .batch_norm(3, true)
            .named("second.main")
            .conv([3, 2, 1, 1], 2, 0)
            .from(&["second.in"])
            .batch_norm(3, true)
            .named("second.short")
            .then(LayerSpec::Add {})
            .from(&["second.main", "second.short"])
            .then(LayerSpec::Relu {})
            .then(LayerSpec::GlobalAvgPool {})
            .linear(3, 3, true)
    }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Logistic,
    LogisticSoftmax,
    Cnn,
    TwoConvolutions,
    Deep,
    Deeper,
    Gru,
    OneStep,
    /// Batch norms, an identity and a projection as shortcuts.
    Residual,
    /// Sums of layers' outputs without batch norm, one of which is the scores.
    Sums,
    /// Layers beside each other, joined by one client.
    Beside,
    /// Batch norm behind a linear layer, without weights, and last.
    Normalised,
}

impl Shape {
    const ALL: [Self; 12] = [
        Self::Logistic,
        Self::LogisticSoftmax,
        Self::Cnn,
        Self::TwoConvolutions,
        Self::Deep,
        Self::Deeper,
        Self::Gru,
        Self::OneStep,
        Self::Residual,
        Self::Sums,
        Self::Beside,
        Self::Normalised,
    ];

    #[expect(clippy::too_many_lines, reason = "one shape after the other")]
    fn model(self) -> Model {
        match self {
            Self::Logistic => Model::new(&[5]).linear(5, 3, true),
            Self::LogisticSoftmax => Model::new(&[7]).linear(7, 3, false).then(LayerSpec::Softmax {}),
            Self::Cnn => Model::new(&[1, 5, 6])
                .conv([2, 1, 3, 2], 2, 1)
                .then(LayerSpec::Square {})
                .then(LayerSpec::Flatten {})
                .linear(2 * 3 * 4, 4, true)
                .then(LayerSpec::Sigmoid {})
                .linear(4, 3, true),
            Self::TwoConvolutions => Model::new(&[2, 6, 6])
                .conv([3, 2, 3, 3], 1, 1)
                .then(LayerSpec::Relu {})
                .conv([2, 3, 2, 2], 2, 0)
                .then(LayerSpec::Tanh {})
                .then(LayerSpec::Flatten {})
                .linear(2 * 3 * 3, 3, true),
            Self::Deep => Model::new(&[6]).linear(6, 5, true).then(LayerSpec::Relu {}).linear(5, 3, true),
            Self::Deeper => Model::new(&[6])
                .linear(6, 5, true)
                .then(LayerSpec::Relu {})
                .linear(5, 4, false)
                .then(LayerSpec::Sigmoid {})
                .linear(4, 3, true)
                .then(LayerSpec::Softmax {}),
            Self::Gru => Model::new(&[4, 3]).gru(3, 5).linear(5, 3, true),
            Self::OneStep => Model::new(&[1, 4]).gru(4, 3).linear(3, 3, true),
            Self::Residual => Model::residual(),
            Self::Sums => Model::new(&[6])
                .linear(6, 4, true)
                .then(LayerSpec::Relu {})
                .named("hidden")
                .linear(4, 4, true)
                .named("second")
                .then(LayerSpec::Add {})
                .from(&["second", "hidden"])
                .then(LayerSpec::Tanh {})
                .named("sum")
                .linear(4, 3, true)
                .named("late")
                .linear(4, 3, false)
                .from(&["second"])
                .named("middle")
                .linear(4, 3, false)
                .from(&["hidden"])
                .named("early")
                .then(LayerSpec::Add {})
                .from(&["late", "middle", "early"]),
            Self::Beside => Model::new(&[1, 4, 4])
                .conv([2, 1, 2, 2], 1, 0)
                .then(LayerSpec::Relu {})
                .named("squeezed")
                .conv([2, 2, 1, 1], 1, 0)
                .then(LayerSpec::Relu {})
                .named("narrow")
                .conv([3, 2, 3, 3], 1, 1)
                .from(&["squeezed"])
                .then(LayerSpec::Sigmoid {})
                .named("wide")
                .then(LayerSpec::Concat {})
                .from(&["narrow", "wide"])
                .conv([3, 5, 1, 1], 1, 0)
                .then(LayerSpec::Relu {})
                .then(LayerSpec::GlobalAvgPool {}),
            Self::Normalised => Model::new(&[5])
                .linear(5, 4, false)
                .batch_norm(4, false)
                .then(LayerSpec::Relu {})
                .linear(4, 3, true)
                .batch_norm(3, true),
        }
    }
}

struct Run {
    _parent: tempfile::TempDir,
    run: RunDirectory,
    inputs: Vec<ClientInput>,
}

/// Models that agree on much; in the second round somebody is absent.
fn federation(shape: Shape, sizes: &[usize], seed: u64) -> Outcome<Run> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let Model { spec: model, tensors } = shape.model();
    let client = |i: usize, size| -> Outcome<ClientSpec> {
        Ok(ClientSpec::new(ClientId::new(format!("site-{i}"))?, size as f64))
    };
    let mut clients = Vec::new();
    for i in 0..sizes.len() {
        clients.push(client(i, rng.random_range(1..90_000))?);
    }
    let size: usize = model.input.iter().product();
    let spec = FederationSpec::new("test".into(), 2, model, clients);
    let base: Vec<Vec<f32>> = tensors
        .iter()
        .map(|(_, shape)| (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect())
        .collect();
    let near = |rng: &mut ChaCha20Rng| -> Outcome<Weights> {
        let mut weights = Weights::new();
        for ((name, shape), base) in tensors.iter().zip(&base) {
            // Variances are above zero.
            let value = |v: f32| if name.ends_with("variance") { v.abs() + 0.25 } else { v };
            let values = base.iter().map(|v| value(v + rng.random_range(-0.3..0.3))).collect();
            weights.insert(name, Tensor::new(shape.clone(), values)?);
        }
        Ok(weights)
    };
    let parent = tempfile::tempdir()?;
    let writer = RunWriter::create(parent.path().join("run"), &spec)?;
    writer.initial_model(&near(&mut rng)?)?;
    let absent = rng.random_range(0..sizes.len());
    for round in spec.round_ids() {
        for (i, client) in spec.clients.iter().enumerate() {
            if round.0 == 1 || i != absent {
                writer.local_model(&client.id, round, &near(&mut rng)?)?;
            }
        }
    }
    for (client, &count) in spec.clients.iter().zip(sizes) {
        let features = (0..count * size).map(|_| rng.random_range(-1.0..1.0)).collect();
        let labels = (0..count).map(|_| rng.random_range(0..3)).collect();
        writer.test_set(&client.id, &TestSet::new(spec.model.input.clone(), features, labels)?)?;
    }
    let run = writer.finish()?;
    let inputs = client_inputs(&run)?;
    Ok(Run { _parent: parent, run, inputs })
}

impl Run {
    fn evaluator(&self) -> Outcome<SecureEvaluator> {
        self.evaluator_with(Box::new(Honest))
    }

    fn evaluator_with(&self, interceptor: Box<dyn Interceptor>) -> Outcome<SecureEvaluator> {
        let seed = Seed::from_bytes([5; 32]);
        Ok(SecureEvaluator::new(&self.run, SETTINGS, None, &seed, interceptor)?)
    }

    /// What a coalition predicts right, without cryptography.
    fn right(
        &self,
        session: &Session,
        federation: &Federation,
        round: RoundId,
        coalition: Coalition,
        samples: &SampleSet,
    ) -> Outcome<SampleSet> {
        let (program, precision) = (session.program(), &session.precision);
        let mut models = Vec::new();
        for (i, share) in session.members(round, federation.participants(round)) {
            let model = EncodedModel::new(program, precision, Ring64, &self.inputs[i].local[&round], share)?;
            models.push((i, share, model));
        }
        let mut right = SampleSet::none(samples.total());
        let mut models = Some(models);
        for (owner, input) in self.inputs.iter().enumerate() {
            let (offset, count) = (session.offset(owner), input.test_set.len());
            let mut own = SampleSet::none(count);
            (0..count).filter(|k| samples.contains(offset + k)).for_each(|k| own.insert(k));
            if knows(owner, coalition, federation.participants(round)) {
                let found = own_right(federation, owner, input, round, coalition, &own)?;
                found.iter().for_each(|k| right.insert(offset + k));
            } else if !own.is_empty() {
                let values = sample_values(program, &input.test_set);
                let samples = values.encode(Ring64, precision.operators[0].input, 1)?;
                let ideal = Ideal { samples, models: models.take().unwrap_or_default() };
                let wanted: Vec<usize> = own.iter().collect();
                let labels = ideal.labels(program, precision, coalition, &wanted)?;
                let found = wanted.iter().zip(labels);
                found
                    .filter(|(k, label)| input.test_set.labels()[**k] == *label as i64)
                    .for_each(|(k, _)| right.insert(offset + k));
                models = Some(ideal.models);
            }
        }
        Ok(right)
    }

    /// Every coalition of every round, on all samples and then on some.
    fn check(&self, seed: u64) -> Outcome<()> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let participants = |round| self.run.participants(round);
        let federation =
            Arc::new(Federation::new(self.run.spec(), self.run.architecture(), participants, SETTINGS)?);
        let mut evaluator = self.evaluator()?;
        let total = evaluator.samples();
        for (round, participants) in evaluator.rounds() {
            for all in [true, false] {
                let some = |rng: &mut ChaCha20Rng| {
                    let mut samples = SampleSet::none(total);
                    (0..total).filter(|_| rng.random_bool(0.4)).for_each(|k| samples.insert(k));
                    samples
                };
                let tests: Vec<Test> = participants
                    .subsets()
                    .filter(|coalition| round.0 == 1 || !coalition.is_empty())
                    .map(|coalition| {
                        Test::new(coalition, if all { SampleSet::all(total) } else { some(&mut rng) })
                    })
                    .collect();
                let found = evaluator.test(round, &tests)?;
                let session = evaluator.in_process().with_principal(|p| p.session().cloned()).flatten();
                let session = session.ok_or("no session")?;
                assert_eq!(found.len(), tests.len());
                for (test, found) in tests.iter().zip(found) {
                    let expected = self.right(&session, &federation, round, test.coalition, &test.samples)?;
                    assert_eq!(
                        found.right,
                        Some(expected),
                        "round {round}, {:?}, all samples: {all}",
                        test.coalition
                    );
                }
            }
        }
        Ok(())
    }
}

#[test]
fn every_kind_of_model_equals_the_ideal_run() {
    for shape in Shape::ALL {
        let run = federation(shape, &[6, 1, 9, 3], 40).unwrap();
        run.check(1).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_federations_equal_the_ideal_run(
        shape in prop::sample::select(Shape::ALL.to_vec()),
        sizes in prop::collection::vec(prop_oneof![Just(1usize), 1usize..12], 4..=6),
        seed in 0u64..1000,
    ) {
        let run = federation(shape, &sizes, seed).unwrap();
        run.check(seed).unwrap();
    }
}

#[test]
fn traffic_depends_on_public_shapes_alone() {
    for shape in [Shape::Cnn, Shape::Gru, Shape::Residual] {
        let traffic = |seed| {
            let run = federation(shape, &[5, 2, 4, 7, 3], seed).unwrap();
            let mut evaluator = run.evaluator().unwrap();
            let tests: Vec<Test> = Coalition::first(5)
                .subsets()
                .map(|coalition| Test::new(coalition, SampleSet::all(21)))
                .collect();
            evaluator.test(RoundId(1), &tests).unwrap();
            let mut traffic = evaluator.accounts().traffic;
            // Everybody but the leader, who is drawn, gets an envelope.
            traffic.retain(|(_, _, kind), _| *kind != Kind::SealedClientKeys);
            traffic
        };
        let found = traffic(1);
        assert_eq!(found, traffic(2));
        let kinds: std::collections::BTreeSet<Kind> = found.keys().map(|(_, _, kind)| *kind).collect();
        assert!(!kinds.contains(&Kind::Reply) && kinds.contains(&Kind::OutputShare));
    }
}

#[test]
fn another_protocol_gives_the_same_values() {
    let run = federation(Shape::Gru, &[5, 3, 1, 4], 11).unwrap();
    let settings = EvaluationSettings::default();
    let secret = evaluate(run.run.spec(), &mut run.evaluator().unwrap(), &settings, |_| {}).unwrap();
    let encrypted = Settings { protocol: Protocol::SecSv, ..SETTINGS };
    let (seed, costs) = (Seed::from_bytes([6; 32]), typical_costs(Preset::Standard));
    let mut evaluator =
        SecureEvaluator::new(&run.run, encrypted, Some(costs), &seed, Box::new(Honest)).unwrap();
    let secsv = evaluate(run.run.spec(), &mut evaluator, &settings, |_| {}).unwrap();
    assert_eq!((secret.fsv, secret.utilities), (secsv.fsv, secsv.utilities));
}

#[test]
fn skipping_and_estimating_work_on_top() {
    let run = federation(Shape::Deep, &[8, 5, 1, 6, 2], 3).unwrap();
    for skip in [SkipMode::Off, SkipMode::On] {
        let settings = EvaluationSettings { skip, ..EvaluationSettings::default() };
        let result = evaluate(run.run.spec(), &mut run.evaluator().unwrap(), &settings, |_| {}).unwrap();
        assert_eq!(result.protocol, "secretsv");
        assert_eq!(result.utilities.len(), 32 + 16);
        assert_eq!(result.skip, skip == SkipMode::On);
    }
}

/// A peer that leaves the end of its messages of one kind out, in frames that are whole.
struct Terse(Kind);

impl Interceptor for Terse {
    fn pass(&mut self, mut envelope: Envelope) -> Vec<Envelope> {
        if envelope.kind == self.0 {
            let Envelope { from, to, kind, ref content, .. } = envelope;
            let number = envelope.head().map_or(0, |head| head.number);
            let content = content[..content.len() - 8].to_vec();
            envelope = Envelope::new(from, to, kind, number, content);
        }
        vec![envelope]
    }
}

#[test]
fn messages_of_another_length_are_refused_by_name() {
    let run = federation(Shape::Gru, &[3, 2, 4, 1], 9).unwrap();
    let shared =
        [Kind::ModelShare, Kind::DataShare, Kind::MaskSeed, Kind::DealtProduct, Kind::ActivationShare];
    let opened =
        [Kind::Triple, Kind::MaskedFirstLayer, Kind::MaskedLayer, Kind::MaskedFactors, Kind::OutputShare];
    for terse in shared.into_iter().chain(opened) {
        let mut evaluator = run.evaluator_with(Box::new(Terse(terse))).unwrap();
        let coalition = Coalition::first(2);
        let result = evaluator.test(RoundId(1), &[Test::new(coalition, SampleSet::all(10))]);
        match result {
            Err(secsv_evaluation::Error::Role(RoleError::Malformed { kind, .. })) => assert_eq!(kind, terse),
            other => panic!("{terse}: {other:?}"),
        }
    }
}

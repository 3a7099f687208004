//! Small federations of every kind of model, run under every protocol, and what decryptors should find in them.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{
    Accounts, EvaluationResult, EvaluationSettings, SecureEvaluator, client_inputs, evaluate,
    views::{PartyView, Views},
};
use secsv_federation::{
    BatchNormSpec, ClientId, ClientSpec, Coalition, FederationSpec, Labels, LayerSpec, ModelSpec, RoundId,
    RunDirectory, RunWriter, Tensor, TestSet, Weights, skip::SkipMode,
};
use secsv_protocol::{
    ClientInput, Matrix, PartyId, Preset, Ring, Seed,
    decryptors::Protocol,
    ideal::Ideal,
    model::{EncodedModel, sample_values},
    session::{Matmul, Session, Settings, typical_costs},
    views::{Numbers, Opened},
};

/// What the parties' randomness follows from.
pub const SEED: [u8; 32] = [5; 32];

/// What a model is made of.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Two classes, many rounds stacked.
    Logistic,
    ThreeClasses,
    Cnn,
    Dnn,
    Gru,
    /// A block with batch norm whose input is added to its outputs.
    Joined,
}

type Shapes = Vec<(&'static str, Vec<usize>)>;

fn linear(name: &str) -> LayerSpec {
    LayerSpec::Linear { weight: format!("{name}.weight"), bias: Some(format!("{name}.bias")) }
}

fn joined() -> (ModelSpec, Shapes) {
    let norm = |name: &str| {
        let [weight, bias, mean, variance] =
            ["weight", "bias", "mean", "variance"].map(|p| format!("{name}.{p}"));
        let (weight, bias) = (Some(weight), Some(bias));
        LayerSpec::BatchNorm(BatchNormSpec { weight, bias, mean, variance, epsilon: None })
    };
    let conv = |name: &str| LayerSpec::conv2d(format!("{name}.weight"), None, 1, 1);
    let layers = [conv("a"), norm("n"), LayerSpec::Relu {}, conv("b"), norm("m"), LayerSpec::Add {}];
    let last = [LayerSpec::Relu {}, LayerSpec::GlobalAvgPool {}, linear("c")];
    let mut model = ModelSpec::new(vec![1, 3, 3], 3, layers.into_iter().chain(last));
    (model.layers[2].name, model.layers[4].name) = (Some("in".into()), Some("main".into()));
    model.layers[5].from = vec!["main".into(), "in".into()];
    let mut shapes = vec![("a.weight", vec![2, 1, 3, 3]), ("b.weight", vec![2, 2, 3, 3])];
    shapes.extend(["n.weight", "n.bias", "n.mean", "n.variance"].map(|name| (name, vec![2])));
    shapes.extend(["m.weight", "m.bias", "m.mean", "m.variance"].map(|name| (name, vec![2])));
    shapes.extend([("c.weight", vec![3, 2]), ("c.bias", vec![3])]);
    (model, shapes)
}

impl Shape {
    fn model(self) -> (ModelSpec, Shapes) {
        let (input, classes, layers, shapes): (_, _, _, Shapes) = match self {
            Self::Logistic => {
                (vec![16], 2, vec![linear("a")], vec![("a.weight", vec![2, 16]), ("a.bias", vec![2])])
            }
            Self::ThreeClasses => {
                (vec![5], 3, vec![linear("a")], vec![("a.weight", vec![3, 5]), ("a.bias", vec![3])])
            }
            Self::Dnn => (
                vec![5],
                3,
                vec![linear("a"), LayerSpec::Relu {}, linear("b")],
                vec![
                    ("a.weight", vec![4, 5]),
                    ("a.bias", vec![4]),
                    ("b.weight", vec![3, 4]),
                    ("b.bias", vec![3]),
                ],
            ),
            Self::Cnn => {
                let (weight, bias) = ("a.weight".to_owned(), Some("a.bias".to_owned()));
                let conv = LayerSpec::conv2d(weight, bias, 2, 1);
                (
                    vec![1, 4, 4],
                    3,
                    vec![conv, LayerSpec::Square {}, LayerSpec::Flatten {}, linear("b")],
                    vec![
                        ("a.weight", vec![2, 1, 3, 3]),
                        ("a.bias", vec![2]),
                        ("b.weight", vec![3, 8]),
                        ("b.bias", vec![3]),
                    ],
                )
            }
            Self::Joined => return joined(),
            Self::Gru => {
                let [weight_ih, weight_hh] = ["g.ih", "g.hh"].map(String::from);
                let [bias_ih, bias_hh] = ["g.bih", "g.bhh"].map(|name| Some(name.to_owned()));
                let unit = LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh };
                (
                    vec![3, 4],
                    2,
                    vec![unit, linear("a")],
                    vec![
                        ("g.ih", vec![6, 4]),
                        ("g.hh", vec![6, 2]),
                        ("g.bih", vec![6]),
                        ("g.bhh", vec![6]),
                        ("a.weight", vec![2, 2]),
                        ("a.bias", vec![2]),
                    ],
                )
            }
        };
        (ModelSpec::new(input, classes, layers), shapes)
    }
}

/// A federation on disk.
pub struct Case {
    _parent: tempfile::TempDir,
    pub run: RunDirectory,
    pub inputs: Vec<ClientInput>,
}

/// A run that was recorded.
pub struct Seen {
    pub views: Views,
    pub result: EvaluationResult,
    pub session: Arc<Session>,
    pub accounts: Accounts,
}

impl Case {
    /// The last client misses the last round, if there are several.
    pub fn new(shape: Shape, samples: &[usize], rounds: u32) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(7);
        let (model, shapes) = shape.model();
        let clients = (0..samples.len()).map(|i| {
            ClientSpec::new(ClientId::new(format!("site-{i}")).unwrap(), rng.random_range(50..400u64) as f64)
        });
        let spec = FederationSpec::new("small".into(), rounds, model, clients.collect());
        let mut weights = || {
            let mut weights = Weights::new();
            for (name, shape) in &shapes {
                // Variances are above zero.
                let least = if name.ends_with("variance") { 0.25 } else { -1.0 };
                let values = (0..shape.iter().product::<usize>()).map(|_| rng.random_range(least..1.0f32));
                weights.insert(*name, Tensor::new(shape.clone(), values.collect()).unwrap());
            }
            weights
        };
        let parent = tempfile::tempdir().unwrap();
        let writer = RunWriter::create(parent.path().join("run"), &spec).unwrap();
        writer.initial_model(&weights()).unwrap();
        for round in spec.round_ids() {
            for (i, client) in spec.clients.iter().enumerate() {
                if round.0 == 1 || round.0 < rounds || i + 1 < samples.len() {
                    writer.local_model(&client.id, round, &weights()).unwrap();
                }
            }
        }
        let size: usize = spec.model.input.iter().product();
        for (client, &count) in spec.clients.iter().zip(samples) {
            let features = (0..count * size).map(|_| rng.random_range(-1.0..1.0)).collect();
            let labels = (0..count).map(|_| rng.random_range(0..spec.model.classes as i64)).collect();
            let samples = TestSet::new(spec.model.input.clone(), features, labels).unwrap();
            writer.test_set(&client.id, &samples).unwrap();
        }
        let run = writer.finish().unwrap();
        let inputs = client_inputs(&run).unwrap();
        Self { _parent: parent, run, inputs }
    }

    pub fn settings(&self, protocol: Protocol, skip: SkipMode) -> Settings {
        let whole_rounds = skip == SkipMode::Off;
        let always_skips = skip == SkipMode::On;
        // Products of two ciphertexts need more room.
        let preset = if protocol == Protocol::Hesv { Preset::Standard } else { Preset::Compact };
        Settings {
            protocol,
            preset,
            matmul: Matmul::Packed,
            always_skips,
            whole_rounds,
            hidden: Default::default(),
            by_class: false,
        }
    }

    /// Values everybody and records.
    pub fn record(&self, protocol: Protocol, skip: SkipMode) -> Seen {
        let (seed, settings) = (Seed::from_bytes(SEED), self.settings(protocol, skip));
        let costs = Some(typical_costs(settings.preset));
        let mut evaluator = SecureEvaluator::recorded(&self.run, settings, costs, &seed).unwrap();
        let evaluation = EvaluationSettings { skip, ..EvaluationSettings::default() };
        let mut result = evaluate(self.run.spec(), &mut evaluator, &evaluation, |_| {}).unwrap();
        evaluator.account_for(self.run.spec(), &Labels::default(), &mut result);
        let session = evaluator.in_process().with_principal(|p| p.session().cloned()).flatten().unwrap();
        let views = evaluator.views(self.run.spec()).unwrap();
        Seen { views, result, session, accounts: evaluator.accounts() }
    }

    /// What is received at each hop, of a coalition in a round, for all samples of an owner.
    pub fn expected<R: Ring>(
        &self,
        ring: R,
        session: &Session,
        round: RoundId,
        coalition: Coalition,
        owner: usize,
    ) -> Vec<Vec<Matrix<R>>> {
        let samples: Vec<usize> = (0..self.inputs[owner].test_set.len()).collect();
        let ideal = self.ideal(ring, session, round, owner);
        ideal.received(session.program(), &session.precision, coalition, &samples).unwrap()
    }

    /// The classes that it predicts.
    pub fn classes<R: Ring>(
        &self,
        ring: R,
        session: &Session,
        round: RoundId,
        coalition: Coalition,
        owner: usize,
    ) -> Vec<usize> {
        let samples: Vec<usize> = (0..self.inputs[owner].test_set.len()).collect();
        let ideal = self.ideal(ring, session, round, owner);
        ideal.labels(session.program(), &session.precision, coalition, &samples).unwrap()
    }

    pub fn ideal<R: Ring>(&self, ring: R, session: &Session, round: RoundId, owner: usize) -> Ideal<R> {
        let (program, precision) = (session.program(), &session.precision);
        let participants = session.federation.participants(round);
        let encode = |(i, share): (usize, f64)| {
            let model = EncodedModel::new(program, precision, ring, &self.inputs[i].local[&round], share);
            (i, share, model.unwrap())
        };
        Ideal {
            samples: self.samples(ring, session, owner),
            models: session.members(round, participants).into_iter().map(encode).collect(),
        }
    }

    /// An owner's samples as elements.
    pub fn samples<R: Ring>(&self, ring: R, session: &Session, owner: usize) -> Matrix<R> {
        let values = sample_values(session.program(), &self.inputs[owner].test_set);
        values.encode(ring, session.precision.operators[0].input, 1).unwrap()
    }
}

impl Seen {
    pub fn party(&self, party: PartyId) -> &PartyView {
        match party {
            PartyId::Principal => &self.views.principal,
            PartyId::Auxiliary => &self.views.auxiliary,
            PartyId::Client(i) => &self.views.clients[i],
        }
    }

    pub fn parties(&self) -> impl Iterator<Item = PartyId> {
        let clients = (0..self.views.clients.len()).map(PartyId::Client);
        [PartyId::Principal, PartyId::Auxiliary].into_iter().chain(clients)
    }

    /// Arrays of all clients in a file.
    pub fn of_clients<'a>(&'a self, file: &'a str) -> impl Iterator<Item = (usize, &'a Opened)> {
        let clients = self.views.clients.iter().enumerate();
        clients.flat_map(move |(i, party)| in_file(party, file).map(move |array| (i, array)))
    }
}

pub fn in_file<'a>(party: &'a PartyView, file: &'a str) -> impl Iterator<Item = &'a Opened> {
    party.view.arrays.iter().filter(move |array| array.file == file)
}

/// The numbers of an array, whatever their type.
pub fn numbers(array: &Opened) -> Vec<i64> {
    match array.numbers.expose() {
        Numbers::Signed(numbers) => numbers.clone(),
        Numbers::Ring(numbers) => numbers.iter().map(|&x| x as i64).collect(),
        Numbers::Bytes(numbers) => numbers.iter().map(|&x| x.into()).collect(),
        Numbers::Words(numbers) => numbers.iter().map(|&x| x.into()).collect(),
    }
}

/// Some samples' columns of a matrix, rows of each position below those of the one before.
pub fn stacked<R: Ring>(matrix: &Matrix<R>, of: usize, samples: &[usize]) -> Vec<i64> {
    let positions = matrix.columns().checked_div(of).unwrap_or(0);
    let mut found = Vec::new();
    for (position, row) in (0..positions).flat_map(|p| (0..matrix.rows()).map(move |row| (p, row))) {
        found.extend(samples.iter().map(|&k| matrix.ring().centre(matrix.at(row, position * of + k))));
    }
    found
}

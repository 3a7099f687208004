//! Random small federations, from a recipe that proptest draws and shrinks, and what the parties should find in them.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, LazyLock},
};

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{
    Error, client_inputs,
    in_process::{Honest, InProcess, Interceptor},
};
use secsv_federation::{
    Architecture, BatchNormSpec, ClientId, ClientSpec, Coalition, ConvolutionSpec, FederationSpec, LayerSpec,
    ModelSpec, PoolSpec, RoundId, RunDirectory, SampleSet, Tensor, TestSet, WeightedMean, Weights,
};
use secsv_protocol::{
    ClientInput, Error as RoleError, Preset, Ring, Seed, TestRequest,
    decryptors::{Protocol, knows},
    ideal::Ideal,
    message::ClientHello,
    model::{EncodedModel, ranges, sample_values},
    own_right,
    session::{Federation, Matmul, Session, Settings, typical_costs},
};

/// The protocols under test.
pub const PROTOCOLS: &[Protocol] = &[Protocol::SecSv];

/// What a model is made of.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One linear layer.
    Logistic { features: usize },
    /// One linear layer whose scores an activation may put in another order.
    Reordered { features: usize, act: Act },
    /// One linear layer with one output, at a position for each class.
    OnePerClass { features: usize },
    /// Linear layers with an activation behind each but the last.
    Dense { features: usize, width: usize, hidden: Vec<Act> },
    /// A linear layer at several positions, then one over all of them.
    Positions { positions: usize, features: usize, act: Act },
    /// A convolution and a linear layer.
    Convolution {
        channels: usize,
        side: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        act: Act,
    },
    /// A recurrent unit and linear layers.
    Gru { steps: usize, features: usize, hidden: usize, tail: Option<Act> },
    /// A convolution in groups whose kernel has gaps, and a pool of largest numbers.
    Grouped { act: Act },
    /// A one-dimensional convolution, a pool of means, and columns as rows.
    Signals { act: Act },
    /// A convolution and the mean of each channel.
    Means { act: Act },
    /// A convolution in groups whose kernel has gaps, without a pool.
    Gaps { act: Act },
    /// A one-dimensional convolution without a pool.
    Lines { act: Act },
    /// One score for two classes.
    OneScore { features: usize },
    /// A block of one convolution whose input is added to its outputs, both beside each other, and a pool.
    Residual { act: Act },
    /// A convolution and batch norm.
    Normalised { act: Act },
    /// A block with batch norm whose input is added to its outputs, and a pool.
    Shortcut { act: Act },
}

impl Shape {
    /// A convolution of two channels whose stride and padding both matter.
    pub fn small_convolution() -> Self {
        Self::Convolution {
            channels: 2,
            side: 4,
            outputs: 2,
            kernel: 3,
            stride: 2,
            padding: 1,
            act: Act::Relu,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Act {
    Relu,
    Sigmoid,
    Tanh,
    Square,
    Softmax,
    LeakyRelu,
    Gelu,
    Silu,
    Elu,
    Relu6,
    HardTanh,
    HardSigmoid,
}

impl Act {
    fn layer(self) -> LayerSpec {
        match self {
            Self::Relu => LayerSpec::Relu {},
            Self::Sigmoid => LayerSpec::Sigmoid {},
            Self::Tanh => LayerSpec::Tanh {},
            Self::Square => LayerSpec::Square {},
            Self::Softmax => LayerSpec::Softmax {},
            Self::LeakyRelu => LayerSpec::LeakyRelu { slope: Some(-0.25) },
            Self::Gelu => LayerSpec::Gelu {},
            Self::Silu => LayerSpec::Silu {},
            Self::Elu => LayerSpec::Elu { alpha: 1.5 },
            Self::Relu6 => LayerSpec::Relu6 {},
            Self::HardTanh => LayerSpec::HardTanh {},
            Self::HardSigmoid => LayerSpec::HardSigmoid {},
        }
    }
}

/// Everything a federation follows from.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub shape: Shape,
    pub classes: usize,
    /// Test samples of each client, one entry a client.
    pub samples: Vec<usize>,
    pub rounds: u32,
    /// How often somebody misses a round, in sixteenths.
    pub absence: u32,
    /// Training sizes are up to two to this power.
    pub size_bits: u32,
    pub seed: u64,
}

pub fn act() -> impl Strategy<Value = Act> {
    prop::sample::select(vec![
        Act::Relu,
        Act::Sigmoid,
        Act::Tanh,
        Act::Square,
        Act::Softmax,
        Act::LeakyRelu,
        Act::Gelu,
        Act::Silu,
        Act::Elu,
        Act::Relu6,
        Act::HardTanh,
        Act::HardSigmoid,
    ])
}

pub fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1usize..9).prop_map(|features| Shape::Logistic { features }),
        (1usize..5, act()).prop_map(|(features, act)| Shape::Reordered { features, act }),
        (1usize..5).prop_map(|features| Shape::OnePerClass { features }),
        (2usize..6, 2usize..6, prop::collection::vec(act(), 1..4))
            .prop_map(|(features, width, hidden)| Shape::Dense { features, width, hidden }),
        (2usize..4, 1usize..4, act()).prop_map(|(positions, features, act)| Shape::Positions {
            positions,
            features,
            act
        }),
        (1usize..3, 3usize..6, 1usize..4, 1usize..4, 1usize..3, 0usize..2, act()).prop_map(
            |(channels, side, outputs, kernel, stride, padding, act)| Shape::Convolution {
                channels,
                side,
                outputs,
                kernel,
                stride,
                padding,
                act
            }
        ),
        (1usize..5, 1usize..4, 1usize..4, prop::option::of(act()))
            .prop_map(|(steps, features, hidden, tail)| Shape::Gru { steps, features, hidden, tail }),
        act().prop_map(|act| Shape::Grouped { act }),
        act().prop_map(|act| Shape::Signals { act }),
        act().prop_map(|act| Shape::Means { act }),
        (1usize..5).prop_map(|features| Shape::OneScore { features }),
    ]
}

/// Few clients with few samples, some with one or none.
pub fn recipe(
    clients: std::ops::Range<usize>,
    rounds: std::ops::Range<u32>,
) -> impl Strategy<Value = Recipe> {
    let size = prop_oneof![1 => Just(0usize), 2 => Just(1usize), 3 => 2usize..7];
    let samples = prop::collection::vec(size, clients)
        .prop_filter("somebody has a sample", |sizes| sizes.iter().any(|size| *size > 0));
    (shape(), 2usize..4, samples, rounds, 0u32..6, 0u32..12, any::<u64>()).prop_map(
        |(shape, classes, samples, rounds, absence, size_bits, seed)| Recipe {
            shape,
            classes,
            samples,
            rounds,
            absence,
            size_bits,
            seed,
        },
    )
}

/// A federation as its parties know it.
pub struct Fixture {
    pub spec: FederationSpec,
    pub architecture: Architecture,
    pub participants: BTreeMap<RoundId, Coalition>,
    pub test_sets: Vec<TestSet>,
    /// By round and client.
    pub local: BTreeMap<(RoundId, usize), Weights>,
    pub global: BTreeMap<RoundId, Weights>,
    pub initial: Weights,
    /// What the parties' randomness follows from.
    pub seed: u64,
}

type Shapes = Vec<(String, Vec<usize>)>;

fn linear(layers: &mut Vec<LayerSpec>, shapes: &mut Shapes, outputs: usize, inputs: usize) {
    let name = format!("layer{}", layers.len());
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    shapes.push((weight.clone(), vec![outputs, inputs]));
    // One layer in two has no bias.
    let bias = layers.len().is_multiple_of(2).then_some(bias);
    shapes.extend(bias.clone().map(|bias| (bias, vec![outputs])));
    layers.push(LayerSpec::Linear { weight, bias });
}

fn convolution(dilation: usize, groups: usize) -> ConvolutionSpec {
    ConvolutionSpec { weight: "conv.weight".into(), bias: None, stride: 1, padding: 0, dilation, groups }
}

fn pool(size: usize, stride: usize) -> PoolSpec {
    PoolSpec { size, stride: Some(stride), padding: 0 }
}

/// A batch norm of two channels.
fn batch_norm(name: &str, shapes: &mut Shapes) -> LayerSpec {
    let [weight, bias, mean, variance] =
        ["weight", "bias", "mean", "variance"].map(|part| format!("{name}.{part}"));
    shapes.extend([&weight, &bias, &mean, &variance].map(|name| (name.clone(), vec![2])));
    let (weight, bias) = (Some(weight), Some(bias));
    LayerSpec::BatchNorm(BatchNormSpec { weight, bias, mean, variance, epsilon: None })
}

#[expect(clippy::too_many_lines, reason = "one shape after the other")]
fn model(shape: &Shape, classes: usize) -> (ModelSpec, Shapes) {
    let (mut layers, mut shapes) = (Vec::new(), Vec::new());
    let input = match shape {
        Shape::Logistic { features } => {
            linear(&mut layers, &mut shapes, classes, *features);
            layers.push(LayerSpec::Softmax {});
            vec![*features]
        }
        Shape::Reordered { features, act } => {
            linear(&mut layers, &mut shapes, classes, *features);
            layers.extend([act.layer(), LayerSpec::Relu {}]);
            vec![*features]
        }
        Shape::OnePerClass { features } => {
            linear(&mut layers, &mut shapes, 1, *features);
            layers.push(LayerSpec::Flatten {});
            vec![classes, *features]
        }
        Shape::Dense { features, width, hidden } => {
            let mut inputs = *features;
            for act in hidden {
                linear(&mut layers, &mut shapes, *width, inputs);
                layers.push(act.layer());
                inputs = *width;
            }
            linear(&mut layers, &mut shapes, classes, inputs);
            vec![*features]
        }
        Shape::Positions { positions, features, act } => {
            linear(&mut layers, &mut shapes, 2, *features);
            layers.extend([act.layer(), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 2 * positions);
            vec![*positions, *features]
        }
        Shape::Convolution { channels, side, outputs, kernel, stride, padding, act } => {
            let kernel = *kernel.min(side);
            shapes.push(("conv.weight".into(), vec![*outputs, *channels, kernel, kernel]));
            shapes.push(("conv.bias".into(), vec![*outputs]));
            layers.push(LayerSpec::conv2d("conv.weight".into(), Some("conv.bias".into()), *stride, *padding));
            let out = (side + 2 * padding - kernel) / stride + 1;
            layers.extend([act.layer(), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, outputs * out * out);
            vec![*channels, *side, *side]
        }
        Shape::Gru { steps, features, hidden, tail } => {
            let names = ["gru.weight_ih", "gru.weight_hh", "gru.bias_ih", "gru.bias_hh"].map(String::from);
            let [weight_ih, weight_hh, bias_ih, bias_hh] = names.clone();
            let gates = 3 * hidden;
            let sizes = [vec![gates, *features], vec![gates, *hidden], vec![gates], vec![gates]];
            shapes.extend(names.into_iter().zip(sizes));
            let (bias_ih, bias_hh) = (Some(bias_ih), Some(bias_hh));
            layers.push(LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh });
            let mut inputs = *hidden;
            if let Some(act) = tail {
                linear(&mut layers, &mut shapes, 3, inputs);
                layers.push(act.layer());
                inputs = 3;
            }
            linear(&mut layers, &mut shapes, classes, inputs);
            vec![*steps, *features]
        }
        Shape::Grouped { act } => {
            shapes.push(("conv.weight".into(), vec![4, 1, 2, 2]));
            layers.push(LayerSpec::Conv2d(convolution(2, 2)));
            layers.extend([act.layer(), LayerSpec::MaxPool2d(pool(2, 1)), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 8);
            vec![2, 5, 4]
        }
        Shape::Signals { act } => {
            shapes.push(("conv.weight".into(), vec![3, 2, 3]));
            layers.push(LayerSpec::Conv1d(convolution(1, 1)));
            layers.extend([act.layer(), LayerSpec::AvgPool1d(pool(2, 2)), LayerSpec::Transpose {}]);
            layers.push(LayerSpec::Flatten {});
            linear(&mut layers, &mut shapes, classes, 6);
            vec![2, 6]
        }
        Shape::Means { act } => {
            shapes.push(("conv.weight".into(), vec![3, 1, 2, 2]));
            layers.push(LayerSpec::Conv2d(convolution(1, 1)));
            layers.extend([act.layer(), LayerSpec::GlobalAvgPool {}]);
            linear(&mut layers, &mut shapes, classes, 3);
            vec![1, 4, 3]
        }
        Shape::Gaps { act } => {
            shapes.push(("conv.weight".into(), vec![4, 1, 2, 2]));
            layers.extend([LayerSpec::Conv2d(convolution(2, 2)), act.layer(), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 24);
            vec![2, 5, 4]
        }
        Shape::Lines { act } => {
            shapes.push(("conv.weight".into(), vec![3, 2, 3]));
            layers.extend([LayerSpec::Conv1d(convolution(1, 1)), act.layer(), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 12);
            vec![2, 6]
        }
        Shape::OneScore { features } => {
            linear(&mut layers, &mut shapes, 1, *features);
            layers.push(LayerSpec::Sigmoid {});
            vec![*features]
        }
        Shape::Residual { act } => {
            let convolution = |weight: &str| LayerSpec::conv2d(weight.into(), None, 1, 1);
            shapes.push(("first.weight".into(), vec![2, 1, 3, 3]));
            shapes.push(("block.weight".into(), vec![2, 2, 3, 3]));
            layers.extend([convolution("first.weight"), act.layer(), convolution("block.weight")]);
            layers.extend([LayerSpec::Add {}, LayerSpec::Concat {}, LayerSpec::Relu {}]);
            layers.extend([LayerSpec::MaxPool2d(pool(2, 2)), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 16);
            vec![1, 4, 4]
        }
        Shape::Shortcut { act } => {
            let convolution = |weight: &str| LayerSpec::conv2d(weight.into(), None, 1, 1);
            shapes.push(("first.weight".into(), vec![2, 1, 3, 3]));
            shapes.push(("block.weight".into(), vec![2, 2, 3, 3]));
            layers.extend([convolution("first.weight"), batch_norm("norm", &mut shapes), act.layer()]);
            layers.extend([convolution("block.weight"), batch_norm("second.norm", &mut shapes)]);
            layers.extend([LayerSpec::Add {}, act.layer(), LayerSpec::GlobalAvgPool {}]);
            linear(&mut layers, &mut shapes, classes, 2);
            vec![1, 4, 4]
        }
        Shape::Normalised { act } => {
            layers.push(LayerSpec::conv2d("conv.weight".into(), None, 1, 0));
            shapes.push(("conv.weight".into(), vec![2, 1, 2, 2]));
            layers.push(batch_norm("norm", &mut shapes));
            layers.extend([act.layer(), LayerSpec::Flatten {}]);
            linear(&mut layers, &mut shapes, classes, 8);
            vec![1, 3, 3]
        }
    };
    let mut model = ModelSpec::new(input, classes, layers);
    if let Shape::Shortcut { .. } = shape {
        (model.layers[2].name, model.layers[4].name) =
            (Some("input of the block".into()), Some("block".into()));
        model.layers[5].from = vec!["block".into(), "input of the block".into()];
    }
    if let Shape::Residual { .. } = shape {
        for (layer, name) in [(1, "input of the block"), (2, "block"), (3, "sum")] {
            model.layers[layer].name = Some(name.into());
        }
        model.layers[3].from = vec!["block".into(), "input of the block".into()];
        model.layers[4].from = vec!["sum".into(), "input of the block".into()];
    }
    (model, shapes)
}

impl Recipe {
    fn classes(&self) -> usize {
        if matches!(self.shape, Shape::OneScore { .. }) { 2 } else { self.classes }
    }

    pub fn build(&self) -> Fixture {
        let mut rng = ChaCha20Rng::seed_from_u64(self.seed);
        let (model, shapes) = model(&self.shape, self.classes());
        let clients: Vec<ClientSpec> = (0..self.samples.len())
            .map(|index| {
                ClientSpec::new(
                    ClientId::new(format!("site-{index}")).unwrap(),
                    rng.random_range(1..=1u64 << self.size_bits) as f64,
                )
            })
            .collect();
        let spec = FederationSpec::new("random".into(), self.rounds, model, clients);
        let base = weights(&shapes, None, 1.0, &mut rng);
        let file = Path::new("random");
        spec.check(file).unwrap();
        let architecture = Architecture::new(&spec.model, &base.shapes(), file, file).unwrap();
        let mut fixture = Fixture {
            participants: BTreeMap::new(),
            test_sets: Vec::new(),
            local: BTreeMap::new(),
            global: BTreeMap::new(),
            initial: weights(&shapes, Some(&base), 0.5, &mut rng),
            architecture,
            spec,
            seed: self.seed,
        };
        for round in fixture.spec.round_ids() {
            let present: Coalition =
                (0..self.samples.len()).filter(|_| rng.random_range(0..16) >= self.absence).collect();
            let present = if present.is_empty() { present.with(0) } else { present };
            for client in present.members() {
                fixture.local.insert((round, client), weights(&shapes, Some(&base), 0.4, &mut rng));
            }
            fixture.participants.insert(round, present);
        }
        for &samples in &self.samples {
            let size = fixture.architecture.input_size();
            let features = (0..samples * size).map(|_| rng.random_range(-1.0..1.0)).collect();
            let labels = (0..samples).map(|_| rng.random_range(0..self.classes() as i64)).collect();
            let input = fixture.architecture.input().to_vec();
            fixture.test_sets.push(TestSet::new(input, features, labels).unwrap());
        }
        fixture.aggregate();
        fixture
    }
}

/// Weights about as large as initialisers make them, around others where there are any.
fn weights(shapes: &Shapes, around: Option<&Weights>, spread: f32, rng: &mut ChaCha20Rng) -> Weights {
    let mut weights = Weights::new();
    for (name, shape) in shapes {
        let inputs: usize = shape[1..].iter().product::<usize>().max(1);
        let most = 2.0 * spread / (inputs as f32).sqrt();
        let centre = around.and_then(|weights| weights.get(name));
        // Variances are above zero.
        let value = |number: f32| if name.ends_with("norm.variance") { number.abs() + 0.25 } else { number };
        let values = (0..shape.iter().product::<usize>())
            .map(|i| centre.map_or(0.0, |centre| centre.singles()[i]) + rng.random_range(-most..most))
            .map(value)
            .collect();
        weights.insert(name.clone(), Tensor::new(shape.clone(), values).unwrap());
    }
    weights
}

impl Fixture {
    /// A federation that was trained.
    pub fn of_run(run: &RunDirectory) -> Self {
        let inputs = client_inputs(run).unwrap();
        let (global, initial) = (inputs[0].global.clone(), inputs[0].initial.clone());
        let local = |(client, input): (usize, &ClientInput)| {
            let models = input.local.iter();
            models.map(|(round, model)| ((*round, client), model.clone())).collect::<Vec<_>>()
        };
        Self {
            spec: run.spec().clone(),
            architecture: run.architecture().clone(),
            participants: run.spec().round_ids().map(|round| (round, run.participants(round))).collect(),
            local: inputs.iter().enumerate().flat_map(local).collect(),
            test_sets: inputs.into_iter().map(|input| input.test_set).collect(),
            global,
            initial,
            seed: 0,
        }
    }

    /// Computes the aggregates of all rounds.
    pub fn aggregate(&mut self) {
        for (&round, present) in &self.participants {
            let mut mean = WeightedMean::new();
            for client in present.members() {
                mean.add(&self.local[&(round, client)], self.spec.clients[client].weight_in(round));
            }
            self.global.insert(round, mean.finish_single().unwrap());
        }
    }

    pub fn federation(&self, settings: Settings) -> Result<Arc<Federation>, RoleError> {
        let participants = |round| self.participants[&round];
        Federation::new(&self.spec, &self.architecture, participants, settings).map(Arc::new)
    }

    pub fn input(&self, client: usize) -> ClientInput {
        let local = self.local.iter().filter(|((_, of), _)| *of == client);
        ClientInput {
            accepts_few: true,
            test_set: self.test_sets[client].clone(),
            local: local.map(|((round, _), weights)| (*round, weights.clone())).collect(),
            global: self.global.clone(),
            initial: self.initial.clone(),
        }
    }

    pub fn inputs(&self) -> Vec<ClientInput> {
        (0..self.test_sets.len()).map(|client| self.input(client)).collect()
    }

    /// All clients' samples as one set.
    pub fn all_samples(&self) -> TestSet {
        let features: Vec<f32> = self.test_sets.iter().flat_map(|t| t.features().to_vec()).collect();
        let labels = self.test_sets.iter().flat_map(|t| t.labels().to_vec()).collect();
        TestSet::new(self.architecture.input().to_vec(), features, labels).unwrap()
    }

    pub fn samples(&self) -> usize {
        self.test_sets.iter().map(TestSet::len).sum()
    }

    /// Every coalition of every round; the empty one in the first alone.
    pub fn coalitions(&self) -> Vec<(RoundId, Coalition)> {
        let of_round = |(&round, present): (&RoundId, &Coalition)| {
            present
                .subsets()
                .filter(move |c| round == RoundId(1) || !c.is_empty())
                .map(move |c| (round, c))
                .collect::<Vec<_>>()
        };
        self.participants.iter().flat_map(of_round).collect()
    }

    /// All tests on all samples.
    pub fn requests(&self) -> Vec<TestRequest> {
        let samples = SampleSet::all(self.samples());
        let request = |(round, coalition)| TestRequest::new(round, coalition, samples.clone());
        self.coalitions().into_iter().map(request).collect()
    }

    /// The same, several coalitions of a round to a test where roles test them together, and all rounds of a round batch.
    pub fn requests_together(&self, settings: Settings) -> Result<Vec<TestRequest>, RoleError> {
        if settings.whole_rounds {
            return Ok(self.requests_by_round_batch(&self.session(settings)?));
        }
        let most = if self.federation(settings)?.tests_together() { 1 + self.seed as usize % 37 } else { 1 };
        let mut requests: Vec<TestRequest> = Vec::new();
        for request in self.requests() {
            match requests.last_mut() {
                Some(last) if last.round == request.round && last.coalitions.len() < most => {
                    last.coalitions.extend(request.coalitions);
                }
                _ => requests.push(request),
            }
        }
        Ok(requests)
    }

    fn requests_by_round_batch(&self, session: &Session) -> Vec<TestRequest> {
        let most = if session.federation.tests_together() { 1 + self.seed as usize % 37 } else { 1 };
        let samples = SampleSet::all(self.samples());
        let mut requests = vec![TestRequest::new(RoundId(1), Coalition::EMPTY, samples.clone())];
        for (&round, rounds) in &session.round_batches {
            let coalitions: Vec<_> = self.participants[&round].subsets().filter(|c| !c.is_empty()).collect();
            requests.extend(coalitions.chunks(most).map(|coalitions| TestRequest {
                rounds: rounds.clone(),
                coalitions: coalitions.to_vec(),
                ..TestRequest::new(round, Coalition::EMPTY, samples.clone())
            }));
        }
        requests
    }

    pub fn world(
        &self,
        settings: Settings,
        interceptor: Box<dyn Interceptor>,
    ) -> Result<InProcess, RoleError> {
        let seed = Seed::from_bytes([7; 32]).derive("federation", self.seed);
        let costs = Some(typical_costs(settings.preset));
        Ok(InProcess::new(&self.federation(settings)?, self.inputs(), costs, &seed, interceptor))
    }

    /// What the parties agree on, without any of them.
    pub fn session(&self, settings: Settings) -> Result<Session, RoleError> {
        let federation = self.federation(settings)?;
        let hello = |input: ClientInput| {
            let own: Vec<&Weights> = input.local.values().collect();
            let known: Vec<&Weights> = input.global.values().chain([&input.initial]).collect();
            let ranges = ranges(&federation, &own, &known, &input.test_set);
            ClientHello {
                samples: input.test_set.len() as u64,
                ranges,
                public_key: Vec::new(),
                accepts_few: true,
                agreement: Default::default(),
            }
        };
        let hellos: Vec<ClientHello> = self.inputs().into_iter().map(hello).collect();
        let costs = typical_costs(settings.preset);
        let (_, proposal) = Session::propose(&federation, 0, &hellos, Some(&costs))?;
        Session::decode(&federation, &proposal).unwrap()
    }

    /// What the roles find, all tests at once.
    pub fn run(&self, settings: Settings, interceptor: Box<dyn Interceptor>) -> Result<Found, Error> {
        let mut world = self.world(settings, interceptor).map_err(Error::Role)?;
        let mut right = BTreeMap::new();
        world.run(self.requests_together(settings).map_err(Error::Role)?, |request, found| {
            assert_eq!(request.rounds.len() * request.coalitions.len(), found.len());
            let models = request.rounds.iter().flat_map(|&r| request.coalitions.iter().map(move |&c| (r, c)));
            right.extend(models.zip(found).map(|(model, found)| (model, found.right.unwrap())));
            Ok(Vec::new())
        })?;
        let session = world.with_principal(|principal| principal.session().cloned()).flatten();
        Ok(Found { right, session: session.unwrap() })
    }

    pub fn run_honestly(&self, settings: Settings) -> Result<Found, Error> {
        self.run(settings, Box::new(Honest))
    }

    /// What the roles should find: models that an owner knows in the clear, all others in fixed point.
    pub fn expected(
        &self,
        session: &Session,
    ) -> Result<BTreeMap<(RoundId, Coalition), SampleSet>, RoleError> {
        let mut expected = BTreeMap::new();
        for (&round, &participants) in &self.participants {
            let ideal = self.ideal(session, round)?;
            for coalition in self.coalitions().into_iter().filter(|(r, _)| *r == round).map(|(_, c)| c) {
                let mut right = SampleSet::none(self.samples());
                for (client, test_set) in self.test_sets.iter().enumerate().filter(|(_, t)| !t.is_empty()) {
                    let offset = session.offset(client);
                    if knows(client, coalition, participants) {
                        let all = SampleSet::all(test_set.len());
                        let input = self.input(client);
                        let own = own_right(&session.federation, client, &input, round, coalition, &all)?;
                        own.iter().for_each(|sample| right.insert(offset + sample));
                        continue;
                    }
                    let samples: Vec<usize> = (offset..offset + test_set.len()).collect();
                    let labels = ideal.labels(session.program(), &session.precision, coalition, &samples)?;
                    for (sample, label) in labels.into_iter().enumerate() {
                        if label as i64 == test_set.labels()[sample] {
                            right.insert(offset + sample);
                        }
                    }
                }
                expected.insert((round, coalition), right);
            }
        }
        Ok(expected)
    }

    /// A round's models and all samples as elements.
    pub fn ideal(&self, session: &Session, round: RoundId) -> Result<IdealOf, RoleError> {
        self.ideal_in(session.field(), session, round)
    }

    /// The same in the ring that a session computes in.
    pub fn ideal_in<R: Ring>(
        &self,
        ring: R,
        session: &Session,
        round: RoundId,
    ) -> Result<Ideal<R>, RoleError> {
        let values = sample_values(session.program(), &self.all_samples());
        let samples = values.encode(ring, session.precision.operators[0].input, 1)?;
        let mut models = Vec::new();
        for (client, share) in session.members(round, self.participants[&round]) {
            let local = &self.local[&(round, client)];
            let model = EncodedModel::new(session.program(), &session.precision, ring, local, share)?;
            models.push((client, share, model));
        }
        Ok(Ideal { samples, models })
    }
}

/// In the field that sessions compute in.
pub type IdealOf = Ideal<secsv_protocol::Field>;

/// What a run gave.
pub struct Found {
    pub right: BTreeMap<(RoundId, Coalition), SampleSet>,
    pub session: Arc<Session>,
}

pub fn settings(protocol: Protocol, preset: Preset, matmul: Matmul) -> Settings {
    Settings {
        protocol,
        preset,
        matmul,
        always_skips: false,
        whole_rounds: false,
        hidden: Default::default(),
        by_class: false,
    }
}

/// Where all coalitions of all rounds are asked for at once.
pub fn in_round_batches(preset: Preset) -> Settings {
    Settings { whole_rounds: true, ..settings(Protocol::SecSv, preset, Matmul::Packed) }
}

/// A model of one layer with so many inputs that some rounds may be tested together.
pub fn recipe_in_round_batches() -> impl Strategy<Value = Recipe> {
    (recipe(4..7, 2..6), 2usize..4, 2usize..6).prop_map(|(recipe, classes, rounds)| {
        let features = 4 * rounds * (classes - 1) + recipe.seed as usize % 4;
        Recipe { shape: Shape::Logistic { features }, classes, ..recipe }
    })
}

pub fn compact(protocol: Protocol) -> Settings {
    settings(protocol, Preset::Compact, Matmul::Packed)
}

/// The smallest federation that has every kind of message.
pub static TINY: LazyLock<Fixture> = LazyLock::new(|| {
    let shape = Shape::Gru { steps: 2, features: 1, hidden: 1, tail: None };
    Recipe { shape, classes: 2, samples: vec![1, 1, 0, 0], rounds: 1, absence: 0, size_bits: 4, seed: 3 }
        .build()
});

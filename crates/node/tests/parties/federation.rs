//! A small federation with kits, and its parties as threads.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use secsv_evaluation::{
    EvaluationResult, EvaluationSettings, Plan, SecureEvaluator, Utility, evaluate, in_process::Honest,
};
use secsv_federation::{
    ClientId, ClientSpec, FederationSpec, Labels, LayerSpec, ModelSpec, PoolSpec, RunDirectory, RunWriter,
    Tensor, TestSet, Weights, skip::SkipMode,
};
use secsv_node::{
    Error,
    consent::Question,
    journal::{Journal, Owner},
    kit::{Address, Kit, Provision, Servers, SessionSpec, Validity},
    process::{
        ClientOptions, NodeOptions, PrincipalOptions, PublishedValues, bound_files, run_auxiliary,
        run_client, run_principal,
    },
};
use secsv_protocol::{
    Preset,
    decryptors::Protocol,
    session::{Matmul, Settings, typical_costs},
};
use tempfile::TempDir;

use crate::{address::free_address, ideal::IdealEvaluator, process::parties};

/// Clients in the federation's order.
pub const CLIENTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Five clients with kits.
pub struct Fixture {
    pub directory: TempDir,
    pub principal: Address,
    settings: Settings,
    evaluation: EvaluationSettings,
}

/// What a model of several layers begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FirstLayer {
    Linear,
    /// A recurrent unit.
    Recurrent,
    /// A convolution whose largest numbers are pooled; then numbers are squared.
    Convolution,
}

/// How the federation is, and how it is tested.
#[derive(Clone)]
pub struct Recipe {
    pub protocol: Protocol,
    pub rounds: u32,
    pub samples: usize,
    /// Numbers, or channels, between two layers; one layer without.
    pub hidden: Option<usize>,
    /// What a model of several layers begins with.
    pub first: FirstLayer,
    pub skip: SkipMode,
    pub utility: Utility,
    /// How many clients bring samples: the first ones.
    pub owners: usize,
    /// Where the servers are said to be, if something stands before them.
    pub addresses: Option<[Address; 2]>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            protocol: Protocol::SecSv,
            rounds: 1,
            samples: 4,
            hidden: None,
            first: FirstLayer::Linear,
            skip: SkipMode::Off,
            utility: Utility::Accuracy,
            owners: CLIENTS.len(),
            addresses: None,
        }
    }
}

/// So many that two rounds of one layer are tested together.
const FEATURES: usize = 8;
/// Steps of a recurrent unit.
const STEPS: usize = 2;
/// Numbers of a channel behind the pool.
const POOLED: usize = FEATURES / 4;

/// Numbers that look random and are not.
fn number(place: usize) -> f32 {
    let word = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn model(recipe: &Recipe, seed: usize) -> Weights {
    let tensor = |shape: &[usize], at: usize| {
        let values = (0..shape.iter().product()).map(|i| number(seed * 1000 + at + i)).collect();
        Tensor::new(shape.to_vec(), values).unwrap()
    };
    let tensors = match (recipe.hidden, recipe.first) {
        (None, _) => vec![("fc.weight", tensor(&[2, FEATURES], 0))],
        (Some(width), FirstLayer::Linear) => {
            vec![("fc.weight", tensor(&[width, FEATURES], 0)), ("out.weight", tensor(&[2, width], 500))]
        }
        (Some(width), FirstLayer::Recurrent) => vec![
            ("unit.input", tensor(&[3 * width, FEATURES / STEPS], 0)),
            ("unit.hidden", tensor(&[3 * width, width], 300)),
            ("out.weight", tensor(&[2, width], 500)),
        ],
        (Some(channels), FirstLayer::Convolution) => vec![
            ("conv.weight", tensor(&[channels, 1, 3, 3], 0)),
            ("fc.weight", tensor(&[channels, POOLED * channels], 300)),
            ("out.weight", tensor(&[2, channels], 500)),
        ],
    };
    tensors.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn layers(recipe: &Recipe) -> Vec<LayerSpec> {
    let linear = |weight: &str| LayerSpec::Linear { weight: weight.into(), bias: None };
    let (weight_ih, weight_hh) = ("unit.input".into(), "unit.hidden".into());
    match (recipe.hidden, recipe.first) {
        (None, _) => vec![linear("fc.weight")],
        (Some(_), FirstLayer::Linear) => vec![linear("fc.weight"), LayerSpec::Relu {}, linear("out.weight")],
        (Some(_), FirstLayer::Recurrent) => {
            let unit = LayerSpec::Gru { weight_ih, weight_hh, bias_ih: None, bias_hh: None };
            vec![unit, linear("out.weight")]
        }
        (Some(_), FirstLayer::Convolution) => vec![
            LayerSpec::conv2d("conv.weight".into(), None, 1, 1),
            LayerSpec::Relu {},
            LayerSpec::MaxPool2d(PoolSpec { size: 2, stride: Some(2), padding: 0 }),
            LayerSpec::Flatten {},
            linear("fc.weight"),
            LayerSpec::Square {},
            linear("out.weight"),
        ],
    }
}

fn input(recipe: &Recipe) -> Vec<usize> {
    match recipe.first {
        FirstLayer::Linear => vec![FEATURES],
        FirstLayer::Recurrent => vec![STEPS, FEATURES / STEPS],
        FirstLayer::Convolution => vec![1, 2, FEATURES / 2],
    }
}

fn written(path: &Path, recipe: &Recipe) {
    let client = |id: &&str| ClientSpec::new(ClientId::new(*id).unwrap(), 10.0);
    let spec = FederationSpec::new(
        "five".into(),
        recipe.rounds,
        ModelSpec::new(input(recipe), 2, layers(recipe)),
        CLIENTS.iter().map(client).collect(),
    );
    let writer = RunWriter::create(path, &spec).unwrap();
    writer.initial_model(&model(recipe, 99)).unwrap();
    for (i, id) in spec.ids().enumerate() {
        let count = if i < recipe.owners { recipe.samples + i } else { 0 };
        let x: Vec<f32> = (0..FEATURES * count).map(|k| number(7000 + i * 500 + k)).collect();
        let y = x.chunks(FEATURES).map(|x| i64::from(x[0] + 0.3 * x[1] > x[2])).collect();
        writer.test_set(id, &TestSet::new(input(recipe), x, y).unwrap()).unwrap();
    }
    for round in spec.round_ids() {
        let mut mean = secsv_federation::WeightedMean::new();
        for (i, id) in spec.ids().enumerate() {
            let weights = model(recipe, i + 10 * round.0 as usize);
            mean.add(&weights, 10.0);
            writer.local_model(id, round, &weights).unwrap();
        }
        writer.global_model(round, &mean.finish_single().unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

impl Fixture {
    pub fn new(recipe: &Recipe) -> Self {
        let directory = tempfile::tempdir().unwrap();
        written(&directory.path().join("run"), recipe);
        let (preset, matmul) = match recipe.protocol {
            Protocol::Hesv => (Preset::Standard, Matmul::Squaring),
            _ => (Preset::Compact, Matmul::Packed),
        };
        let always_skips = recipe.skip == SkipMode::On;
        let settings = Settings {
            protocol: recipe.protocol,
            preset,
            matmul,
            always_skips,
            whole_rounds: true,
            hidden: Default::default(),
            by_class: recipe.utility.needs_classes(),
        };
        let EvaluationSettings { method, estimator, verify_skip, .. } = EvaluationSettings::default();
        let Recipe { skip, utility, .. } = *recipe;
        let evaluation = EvaluationSettings { method, estimator, utility, skip, verify_skip };
        let [principal, auxiliary] =
            recipe.addresses.clone().unwrap_or_else(|| [free_address(), free_address()]);
        let fixture = Self { directory, principal: principal.clone(), settings, evaluation };
        fixture.provision("kits", principal, auxiliary);
        if recipe.protocol == Protocol::BlindSv {
            fixture.begin_states();
        }
        fixture
    }

    /// Begins everybody's state directory: from then on it is known what its randomness follows from.
    pub fn begin_states(&self) {
        for party in parties() {
            let kit = self.kit(&party);
            let state = self.options(&party).state;
            drop(Journal::open(&state, &self.owner(&kit), || randomness(&party)).unwrap());
        }
    }

    /// Makes a set of kits.
    pub fn provision(&self, name: &str, principal: Address, auxiliary: Address) -> PathBuf {
        let session = SessionSpec::new(self.settings, &self.evaluation);
        let servers = Servers { principal, auxiliary };
        let validity = Validity::days(SystemTime::now(), 1);
        let out = self.path().join(name);
        Provision::of_run(&self.run(), servers, session, validity).generate_keys(&out).unwrap();
        out
    }

    /// Has everybody begin again, with the same randomness.
    pub fn forget_run(&self) {
        fs::remove_dir_all(self.path().join("state")).unwrap();
        self.begin_states();
    }

    /// The values of one process; of BlindSV those of plain integers, which are rounded by the masks of this run.
    pub fn expected(&self) -> EvaluationResult {
        if self.settings.protocol == Protocol::BlindSv {
            let run = self.run();
            let kit = self.kit("principal");
            let mut evaluator = IdealEvaluator::new(&run, kit.session().unwrap());
            return evaluate(run.spec(), &mut evaluator, &self.evaluation, |_| {}).unwrap();
        }
        let costs = Some(typical_costs(self.settings.preset));
        let seed = secsv_protocol::Seed::from_bytes([3; 32]);
        let run = self.run();
        let mut evaluator =
            SecureEvaluator::new(&run, self.settings, costs, &seed, Box::new(Honest)).unwrap();
        let mut result = evaluate(run.spec(), &mut evaluator, &self.evaluation, |_| {}).unwrap();
        evaluator.account_for(run.spec(), &Labels::default(), &mut result);
        result
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn run(&self) -> RunDirectory {
        RunDirectory::open(self.path().join("run")).unwrap()
    }

    pub fn kit(&self, party: &str) -> Kit {
        Kit::open(&self.path().join("kits").join(party)).unwrap()
    }

    /// Bytes of memory that a plan says one client can make each server hold.
    pub fn most_held(&self) -> BTreeMap<String, u64> {
        let run = self.run();
        let plan =
            Plan::new(&run, self.settings, false).unwrap().result(&run, &Labels::default(), |_| (0.0, 0.0));
        plan.most_held.into_iter().map(|held| (held.server, held.memory_bytes)).collect()
    }

    /// Who a party's state directory belongs to.
    pub fn owner(&self, kit: &Kit) -> Owner {
        let files = bound_files(kit, &self.run()).unwrap();
        Owner { party: kit.own, federation: kit.digest, files: Some(files) }
    }

    /// What a party's state directory says it is, before or after it was put to use.
    pub fn instance(&self, party: &str) -> [u8; 16] {
        let kit = self.kit(party);
        let owner = self.owner(&kit);
        let state = self.options(party).state;
        Journal::open(&state, &owner, || [77; 48]).unwrap().instance()
    }

    pub fn options(&self, party: &str) -> NodeOptions {
        NodeOptions { state: self.path().join("state").join(party), listen: None, status: None }
    }

    /// Starts the principal.
    pub fn start_principal(&self, away_after: Duration) -> JoinHandle<Result<EvaluationResult, Error>> {
        let kit = self.kit("principal");
        let node = self.options("principal");
        let wait_to_deliver = Duration::from_secs(60);
        let options = PrincipalOptions { node, away_after, wait_to_deliver, made_by: "a test".to_owned() };
        let handle = std::thread::spawn(move || run_principal(kit, &options, |_| {}, |_| Ok(())));
        let address = (self.principal.host.clone(), self.principal.port);
        while std::net::TcpStream::connect((address.0.as_str(), address.1)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        handle
    }

    /// Starts the auxiliary.
    pub fn start_auxiliary(&self) -> JoinHandle<Result<PublishedValues, Error>> {
        let (kit, options) = (self.kit("auxiliary"), self.options("auxiliary"));
        std::thread::spawn(move || run_auxiliary(kit, &options))
    }

    /// Starts a client.
    pub fn start_client(&self, party: &str) -> JoinHandle<Result<PublishedValues, Error>> {
        let (kit, run) = (self.kit(party), self.run());
        let options = accepting(&kit, self.options(party));
        std::thread::spawn(move || run_client(kit, &run, &options))
    }

    pub fn assert_values(&self, found: &EvaluationResult) {
        let expected = self.expected();
        assert_eq!(found.utilities, expected.utilities);
        assert_eq!((&found.fsv, &found.ssv), (&expected.fsv, &expected.ssv));
        if expected.security.is_some() {
            assert_eq!(replies(found), replies(&expected));
        }
    }
}

/// What a party's randomness follows from, in state directories that are begun here.
pub fn randomness(party: &str) -> [u8; 48] {
    let mut random = [0; 48];
    blake3::Hasher::new().update(party.as_bytes()).finalize_xof().fill(&mut random);
    random
}

/// A client whose owner accepts what it is told.
pub fn accepting(kit: &Kit, node: NodeOptions) -> ClientOptions {
    let accept_exposure = Question::exposure(kit).unwrap().map(|question| question.word);
    ClientOptions { node, accept_exposure, accept_few_samples: true, record: None, again: None }
}

/// Ciphertexts that somebody was to decrypt.
pub fn replies(result: &EvaluationResult) -> Option<u64> {
    result.security.as_ref().map(|security| security.replies)
}

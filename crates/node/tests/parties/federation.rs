//! A small federation with kits, and its parties as threads.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use secsv_evaluation::{
    EvaluationResult, EvaluationSettings, Plan, SecureEvaluator, Utility, evaluate, in_process::Honest,
};
use secsv_federation::{
    ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec, RunDirectory, RunWriter, Tensor, TestSet,
    Weights, skip::SkipMode,
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

use crate::address::free_address;

/// Clients in the federation's order.
pub const CLIENTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Five clients with kits.
pub struct Fixture {
    pub directory: TempDir,
    pub principal: Address,
    settings: Settings,
    evaluation: EvaluationSettings,
}

/// How the federation is, and how it is tested.
#[derive(Clone)]
pub struct Recipe {
    pub protocol: Protocol,
    pub rounds: u32,
    pub samples: usize,
    /// Numbers between two layers; one layer without.
    pub hidden: Option<usize>,
    /// Whether the first of two layers is a recurrent unit.
    pub recurrent: bool,
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
            recurrent: false,
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

/// Numbers that look random and are not.
fn number(place: usize) -> f32 {
    let word = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn model(recipe: &Recipe, seed: usize) -> Weights {
    let tensor = |rows: usize, columns: usize, at: usize| {
        let values = (0..rows * columns).map(|i| number(seed * 1000 + at + i)).collect();
        Tensor::new(vec![rows, columns], values).unwrap()
    };
    match recipe.hidden {
        None => Weights::from_iter([("fc.weight".to_owned(), tensor(2, FEATURES, 0))]),
        Some(width) if recipe.recurrent => Weights::from_iter([
            ("unit.input".to_owned(), tensor(3 * width, FEATURES / STEPS, 0)),
            ("unit.hidden".to_owned(), tensor(3 * width, width, 300)),
            ("out.weight".to_owned(), tensor(2, width, 500)),
        ]),
        Some(width) => Weights::from_iter([
            ("fc.weight".to_owned(), tensor(width, FEATURES, 0)),
            ("out.weight".to_owned(), tensor(2, width, 500)),
        ]),
    }
}

fn layers(recipe: &Recipe) -> Vec<LayerSpec> {
    let linear = |weight: &str| LayerSpec::Linear { weight: weight.into(), bias: None };
    let (weight_ih, weight_hh) = ("unit.input".into(), "unit.hidden".into());
    match recipe.hidden {
        None => vec![linear("fc.weight")],
        Some(_) if recipe.recurrent => {
            let unit = LayerSpec::Gru { weight_ih, weight_hh, bias_ih: None, bias_hh: None };
            vec![unit, linear("out.weight")]
        }
        Some(_) => vec![linear("fc.weight"), LayerSpec::Relu {}, linear("out.weight")],
    }
}

fn input(recipe: &Recipe) -> Vec<usize> {
    if recipe.recurrent { vec![STEPS, FEATURES / STEPS] } else { vec![FEATURES] }
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
        fixture
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

    /// The values of one process.
    pub fn expected(&self) -> EvaluationResult {
        let costs = Some(typical_costs(self.settings.preset));
        let seed = secsv_protocol::Seed::from_bytes([3; 32]);
        let run = self.run();
        let mut evaluator =
            SecureEvaluator::new(&run, self.settings, costs, &seed, Box::new(Honest)).unwrap();
        let mut result = evaluate(run.spec(), &mut evaluator, &self.evaluation, |_| {}).unwrap();
        evaluator.account_for(run.spec(), &mut result);
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
        let plan = Plan::new(&run, self.settings, false).unwrap().result(&run, |_| (0.0, 0.0));
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
        assert_eq!(replies(found), replies(&expected));
    }
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

//! A training whose rounds come one by one: five silos, one of which has random labels, and what each has on its disk.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use secsv_evaluation::{EvaluationResult, EvaluationSettings, SecureEvaluator, evaluate, in_process::Honest};
use secsv_federation::{
    ClientId, ClientSpec, FederationSpec, LayerSpec, Limits, ModelSpec, ROUNDS, RoundId, RunDirectory,
    RunWriter, Tensor, TestSet, WeightedMean, Weights, round_path, write_atomically,
};
use secsv_node::kit::{Provision, Servers, SessionSpec, Validity};
use secsv_protocol::{
    Preset, Seed,
    decryptors::Protocol,
    session::{Matmul, Settings, typical_costs},
};
use tempfile::TempDir;

use crate::{address::free_address, federation::CLIENTS};

const FEATURES: usize = 6;
/// The silo whose labels are random.
pub const BAD: &str = "e";

pub struct Training {
    pub directory: TempDir,
    rounds: u32,
    settings: Settings,
}

/// Numbers that look random and are not.
fn number(place: usize) -> f32 {
    let word = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// A silo's model of a round: towards what is to be learned, with less noise as training goes on; the bad one is noise.
fn model(round: u32, client: usize) -> Weights {
    let noise = |at: usize| number(97 * round as usize + 1009 * client + at);
    let towards = [1.0f32, 0.3, -1.0, 0.0, 0.2, -0.4];
    let row = |sign: f32, at: usize| {
        let value = move |(k, towards): (usize, &f32)| match CLIENTS.get(client) {
            Some(&BAD) => 2.0 * noise(at + k),
            _ => sign * towards * round as f32 / 4.0 + noise(at + k) / (1.0 + round as f32),
        };
        towards.iter().enumerate().map(value).collect::<Vec<f32>>()
    };
    let weights = Tensor::new(vec![2, FEATURES], [row(0.5, 0), row(-0.5, 50)].concat()).unwrap();
    let bias = Tensor::new(vec![2], vec![0.1 * noise(100), 0.1 * noise(101)]).unwrap();
    Weights::from_iter([("fc.weight".to_owned(), weights), ("fc.bias".to_owned(), bias)])
}

fn test_set(client: usize) -> TestSet {
    let count = 12 + client;
    let x: Vec<f32> = (0..FEATURES * count).map(|k| number(70_000 + client * 500 + k)).collect();
    let y =
        x.chunks(FEATURES).map(|x| i64::from(x[0] + 0.3 * x[1] - x[2] + 0.2 * x[4] < 0.4 * x[5])).collect();
    TestSet::new(vec![FEATURES], x, y).unwrap()
}

impl Training {
    pub fn new(rounds: u32) -> Self {
        let settings = Settings {
            protocol: Protocol::BlindSv,
            preset: Preset::Compact,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: true,
            hidden: Default::default(),
            by_class: false,
        };
        let training = Self { directory: tempfile::tempdir().unwrap(), rounds, settings };
        training.begin();
        training
    }

    /// What everybody has before the first round: what was agreed on, keys, the first model, and silos their test sets.
    fn begin(&self) {
        let spec = self.spec(0);
        for id in CLIENTS.iter().chain(&["principal", "auxiliary"]) {
            let site = self.site(id);
            fs::create_dir_all(site.join(ROUNDS)).unwrap();
            fs::write(site.join("federation.toml"), spec.to_toml().unwrap()).unwrap();
        }
        self.whole(1, &self.path().join("first"));
        for (client, id) in CLIENTS.iter().enumerate() {
            self.copy("initial.safetensors", id, "first");
            self.copy(&format!("clients/{id}/test.safetensors"), id, "first");
            assert_eq!(test_set(client).len(), 12 + client);
        }
        self.copy("initial.safetensors", "principal", "first");
        let servers = Servers { principal: free_address(), auxiliary: free_address() };
        let session = SessionSpec::new(self.settings, &EvaluationSettings::default());
        let run = RunDirectory::open(self.site("principal")).unwrap();
        let validity = Validity::days(SystemTime::now(), 1);
        Provision::of_run(&run, servers, session, validity).generate_keys(&self.path().join("kits")).unwrap();
        self.whole(self.rounds, &self.path().join("whole"));
    }

    fn copy(&self, file: &str, site: &str, from: &str) {
        let bytes = fs::read(self.path().join(from).join(file)).unwrap();
        let to = self.site(site).join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        write_atomically(&to, &bytes).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where a party has its files.
    pub fn site(&self, party: &str) -> PathBuf {
        self.path().join("sites").join(party)
    }

    /// The federation with so many rounds; with none they are still to come.
    pub fn spec(&self, rounds: u32) -> FederationSpec {
        let layer = LayerSpec::Linear { weight: "fc.weight".to_owned(), bias: Some("fc.bias".into()) };
        let clients = (0..)
            .zip(CLIENTS)
            .map(|(k, id)| ClientSpec::new(ClientId::new(id).unwrap(), 20.0 + f64::from(k)));
        let limits = Some(Limits { rounds: self.rounds, norm: 32.0, input: 2.0, hidden: None });
        let model = ModelSpec::new(vec![FEATURES], 2, [layer]);
        let spec = FederationSpec::new("live".into(), 1, model, clients.collect());
        FederationSpec { rounds, limits, ..spec }
    }

    /// The whole run, as it is when all is over.
    fn whole(&self, rounds: u32, path: &Path) {
        let spec = self.spec(rounds);
        let writer = RunWriter::create(path, &spec).unwrap();
        writer.initial_model(&model(0, 0)).unwrap();
        for (client, id) in spec.ids().enumerate() {
            writer.test_set(id, &test_set(client)).unwrap();
        }
        for round in spec.round_ids() {
            let mut mean = WeightedMean::new();
            for (client, of) in spec.clients.iter().enumerate() {
                let weights = model(round.0, client);
                mean.add(&weights, of.weight_in(round));
                writer.local_model(&of.id, round, &weights).unwrap();
            }
            writer.global_model(round, &mean.finish_single().unwrap()).unwrap();
        }
        writer.finish().unwrap();
    }

    /// The values of the whole run, by one process.
    pub fn expected(&self) -> EvaluationResult {
        self.valued(&RunDirectory::open(self.path().join("whole")).unwrap())
    }

    pub fn valued(&self, run: &RunDirectory) -> EvaluationResult {
        let costs = Some(typical_costs(self.settings.preset));
        let seed = Seed::from_bytes([3; 32]);
        let mut evaluator = SecureEvaluator::new(run, self.settings, costs, &seed, Box::new(Honest)).unwrap();
        evaluate(run.spec(), &mut evaluator, &EvaluationSettings::default(), |_| {}).unwrap()
    }

    /// A round alone, with the model that it began with, among some of the clients.
    pub fn alone(&self, round: u32, clients: &[&str]) -> EvaluationResult {
        let whole = RunDirectory::open(self.path().join("whole")).unwrap();
        let mut spec = self.spec(1);
        spec.clients.retain(|client| clients.contains(&client.id.as_str()));
        let path = self.path().join(format!("alone-{round}"));
        let writer = RunWriter::create(&path, &spec).unwrap();
        writer.initial_model(&whole.model_before(RoundId(round)).unwrap()).unwrap();
        for id in spec.ids() {
            writer.test_set(id, &whole.test_set(id).unwrap()).unwrap();
            writer.local_model(id, RoundId(1), &whole.local_model(id, RoundId(round)).unwrap()).unwrap();
        }
        self.valued(&writer.finish().unwrap())
    }

    /// A silo's model of a round appears.
    pub fn model(&self, round: u32, silo: &str) {
        self.copy(&format!("clients/{silo}/round-{round:04}.safetensors"), silo, "whole");
    }

    /// The global model after a round appears at the silos.
    pub fn global(&self, round: u32) {
        CLIENTS
            .iter()
            .for_each(|silo| self.copy(&format!("global/round-{round:04}.safetensors"), silo, "whole"));
    }

    /// The file of a round, in which all of these clients take part.
    pub fn file(&self, round: u32, clients: &[&str], more: &str) -> String {
        let clients: String = clients.iter().map(|id| format!("[[clients]]\nid = \"{id}\"\n")).collect();
        format!("round = {round}\n{more}{clients}")
    }

    /// It appears at a party.
    pub fn say(&self, party: &str, round: u32, text: &str) {
        write_atomically(&round_path(&self.site(party).join(ROUNDS), RoundId(round)), text.as_bytes())
            .unwrap();
    }

    /// A round ends as it should: models and files appear everywhere.
    pub fn round(&self, round: u32, more: &str) {
        CLIENTS.iter().for_each(|silo| self.model(round, silo));
        self.everybody(round, &self.file(round, &CLIENTS, more));
    }

    /// A round's file appears everywhere.
    pub fn everybody(&self, round: u32, text: &str) {
        CLIENTS.iter().chain(&["auxiliary", "principal"]).for_each(|party| self.say(party, round, text));
    }
}

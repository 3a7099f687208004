//! Trained federations, and what their parties hold after a real run.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    env,
    path::{Path, PathBuf},
};

use nalgebra::DMatrix;
use secsv_attacks::{ClientView, directory::Directory, linear::correlation, operators::numbers};
use secsv_evaluation::{EvaluationSettings, SecureEvaluator, evaluate};
use secsv_federation::{ModelSpec, RoundId, RunDirectory, RunWriter, Weights};
use secsv_protocol::{
    Preset, Program, Seed,
    decryptors::Protocol,
    exposure::{Can, Exposure},
    session::{Federation, HiddenSettings, Matmul, Settings, typical_costs},
};
use secsv_training::{Dataset, DatasetSource, LoadOptions, ModelKind, Recipe, Split, train};
use tempfile::TempDir;

/// Where the public data sets are, if anywhere.
pub fn data() -> Option<PathBuf> {
    let data = env::var_os("SECSV_DATA").map(PathBuf::from);
    if data.is_none() {
        println!("skipped: SECSV_DATA names no directory with the public data sets");
    }
    data
}

fn settings(protocol: Protocol, together: bool) -> Settings {
    Settings {
        protocol,
        preset: Preset::Standard,
        matmul: Matmul::Packed,
        always_skips: !together,
        whole_rounds: together,
        hidden: Default::default(),
        by_class: false,
    }
}

/// A trained federation.
pub struct Trained {
    pub run: RunDirectory,
    pub dataset: Dataset,
    _place: TempDir,
}

/// How a federation is trained where that differs from `secsv train`.
#[derive(Clone, Copy)]
pub struct Training {
    pub clients: usize,
    pub rounds: u32,
    /// Passes over the samples; as usual where none is given.
    pub epochs: Option<u32>,
    /// Samples to train and to test on, at most.
    pub limits: (Option<usize>, Option<usize>),
}

impl Default for Training {
    fn default() -> Self {
        Self { clients: 5, rounds: 10, epochs: None, limits: (None, None) }
    }
}

impl Trained {
    /// Trains as `secsv train` does, with seed 0.
    pub fn new(source: &DatasetSource, data: Option<&Path>, model: ModelKind, training: Training) -> Self {
        let dataset = source.load(&LoadOptions { data, ..LoadOptions::default() }).unwrap();
        let dataset = dataset.limited(training.limits.0, training.limits.1, 0);
        let split = match dataset.silos {
            Some(_) => Split::Natural,
            None => Split::Dirichlet { alpha: 0.5 },
        };
        let silos = split.deal(&dataset, training.clients, 0).unwrap();
        let mut recipe = Recipe::new(source, model, 0);
        recipe.rounds = training.rounds;
        recipe.local.epochs = training.epochs.unwrap_or(recipe.local.epochs);
        let place = tempfile::tempdir().unwrap();
        let run = train(&dataset, &silos, &recipe, &place.path().join("run"), &|_| ()).unwrap().directory;
        Self { run, dataset, _place: place }
    }

    /// An owner's samples, row by row: for scores alone.
    pub fn truth(&self, owner: usize) -> Vec<f32> {
        self.run.test_set(&self.run.spec().clients[owner].id).unwrap().features().to_vec()
    }

    /// A client's model of a round: for scores alone.
    pub fn local(&self, client: usize, round: u32) -> Weights {
        self.run.local_model(&self.run.spec().clients[client].id, secsv_federation::RoundId(round)).unwrap()
    }

    /// The table's sentence about it, before a run.
    fn exposure(&self, settings: Settings) -> Exposure {
        let run = &self.run;
        let federation = Federation::new(run.spec(), run.architecture(), |r| run.participants(r), settings);
        Exposure::new(&federation.unwrap()).unwrap()
    }

    /// The same samples in the hands of the same clients, with other models.
    pub fn with_models(
        self,
        model: ModelSpec,
        initial: &Weights,
        models: impl Fn(RoundId, usize) -> Weights,
    ) -> Self {
        let (mut spec, place) = (self.run.spec().clone(), tempfile::tempdir().unwrap());
        spec.model = model;
        let writer = RunWriter::create(place.path().join("run"), &spec).unwrap();
        writer.initial_model(initial).unwrap();
        for (client, of) in spec.clients.iter().enumerate() {
            writer.test_set(&of.id, &self.run.test_set(&of.id).unwrap()).unwrap();
            for round in spec.round_ids() {
                writer.local_model(&of.id, round, &models(round, client)).unwrap();
            }
        }
        Self { run: writer.finish().unwrap(), dataset: self.dataset, _place: place }
    }

    /// Runs a protocol on all coalitions of all rounds and has every party write down what it holds.
    /// `together` as exact values are computed; otherwise round by round, as estimators and SampleSkip ask.
    pub fn views(&self, protocol: Protocol, together: bool) -> Views {
        self.views_of(settings(protocol, together))
    }

    /// The same under BlindSV, with hidden numbers held in such ranges.
    pub fn blind_views(&self, hidden: HiddenSettings) -> Views {
        self.views_of(Settings { hidden, ..settings(Protocol::BlindSv, true) })
    }

    fn views_of(&self, settings: Settings) -> Views {
        let costs = Some(typical_costs(settings.preset));
        let seed = Seed::from_bytes([11; 32]);
        let mut evaluator = SecureEvaluator::recorded(&self.run, settings, costs, &seed).unwrap();
        evaluate(self.run.spec(), &mut evaluator, &EvaluationSettings::default(), |_| {}).unwrap();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("views");
        evaluator.views(self.run.spec()).unwrap().write(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        let clients =
            (0..directory.clients().len()).map(|client| directory.client(client).unwrap()).collect();
        let exposure = self.exposure(settings);
        let views = Views { clients, directory, exposure, _place: place };
        views.assert_within_the_table();
        views
    }
}

/// Views of the parties of a run.
pub struct Views {
    pub clients: Vec<ClientView>,
    pub directory: Directory,
    pub exposure: Exposure,
    _place: TempDir,
}

impl Views {
    /// Who can do nothing by the table reads nothing.
    fn assert_within_the_table(&self) {
        for (client, view) in self.clients.iter().enumerate() {
            for outputs in view.outputs.iter().filter(|outputs| outputs.owner != client) {
                let can = self.exposure.of_samples(client, outputs.owner);
                assert_eq!(
                    can,
                    Can::Rebuild,
                    "client {client} reads outputs on samples of {}",
                    outputs.owner
                );
            }
        }
    }

    /// The servers have no key: nothing they received is an output that could be read.
    pub fn assert_servers_read_no_outputs(&self) {
        for server in ["principal", "auxiliary"] {
            assert_eq!(self.directory.server(server).unwrap(), [], "{server} reads outputs");
        }
    }
}

/// What a client of BlindSV is sent: agreements, announcements, values.
const ANNOUNCED: [&str; 5] = ["session", "sealed client keys", "round start", "blind test", "values"];

impl Views {
    /// Whoever may attack an owner's samples in a run of BlindSV: each other client, all of them together, each server with whatever a
    /// client knows of models and columns. `client` is the one whose knowledge the servers and all together have.
    pub fn blind_attackers(&self, owner: usize, client: usize) -> Vec<(String, ClientView)> {
        for (client, view) in self.clients.iter().enumerate() {
            let received = self.directory.received(client).unwrap();
            let other = received.iter().find(|kind| !ANNOUNCED.contains(&kind.as_str()));
            assert_eq!((other, view.outputs.len()), (None, 0), "client {client}");
        }
        let others = || self.clients.iter().filter(|view| view.client != owner);
        let with = |outputs| ClientView { outputs, ..self.clients[client].clone() };
        let mut all: Vec<_> =
            others().map(|view| (format!("client {}", view.client), view.clone())).collect();
        all.push(("all clients".into(), with(others().flat_map(|view| view.outputs.clone()).collect())));
        for server in ["principal", "auxiliary"] {
            let outputs = self.directory.hidden(server).unwrap().outputs(&self.clients[client]);
            assert!(outputs.iter().any(|outputs| outputs.owner == owner), "{server} holds masked outputs");
            // Pads that are used for two coalitions would cancel: so do those with and without the client, whose model it knows.
            let pairs = outputs.clone().into_iter().filter(|outputs| {
                outputs.coalition.len() == 1 && !outputs.coalition.contains(client)
                    || outputs.coalition.len() == 2 && outputs.coalition.contains(client)
            });
            all.push((format!("{server}, differences"), with(pairs.collect())));
            all.push((server.to_owned(), with(outputs)));
        }
        all
    }

    /// Both servers of BlindSV together, with what a client knows.
    pub fn both_servers(&self, client: usize) -> ClientView {
        let view = &self.clients[client];
        ClientView { outputs: self.directory.pooled().unwrap().outputs(view), ..view.clone() }
    }
}

impl Trained {
    /// A server's share of samples has nothing to do with the samples: the attacks that succeed on outputs
    /// find noise in it.
    pub fn assert_shares_are_noise(&self, views: &Views) {
        for server in ["principal", "auxiliary"] {
            let shares = views.directory.data_shares(server).unwrap();
            assert_eq!(shares.len(), views.clients.len(), "{server} has a share of everybody's samples");
            for (owner, share) in shares {
                let (truth, width) = (self.truth(owner), views.clients[owner].program.input_size);
                let count = truth.len() / width;
                // Numbers stand below each other here, samples there.
                let truth = (0..truth.len()).map(|i| f64::from(truth[i % count * width + i / count]));
                let (truth, share): (Vec<f64>, Vec<f64>) =
                    (truth.collect(), share.iter().map(|&x| x as f64).collect());
                let found = correlation(&share, &truth);
                assert!(found.abs() < 6.0 / (share.len() as f64).sqrt(), "{server}, {owner}: {found}");
            }
        }
    }
}

/// A model's operator: a row for each output, the bias last.
pub fn layer(program: &Program, operator: usize, weights: &Weights) -> DMatrix<f64> {
    let (weights, biases) = numbers(program, operator, weights);
    let (d_out, d_in) = (biases.len(), weights.len() / biases.len());
    DMatrix::from_fn(d_out, d_in + 1, |i, j| if j < d_in { weights[i * d_in + j] } else { biases[i] })
}

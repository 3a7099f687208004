//! Whole runs of models of one layer and of several: every hidden number and every right or wrong is that of plain integers, and
//! **transcript equivalence**, as in `equivalence_tests`: with other models, samples and labels a server reads the same words, under
//! streams that have one value each, and computes the same shares of outputs. So all that it has of models and samples says
//! nothing about them. Both servers' shares still add up to the other world's counts.

use std::{cell::Cell, sync::Arc};

use proptest::prelude::*;
use secsv_algebra::{Matrix, Prg, Ring64, Seed, Share};
use secsv_federation::{
    Coalition, ConvolutionSpec, LayerSpec, ModelSpec, NamedLayer, RoundId, Tensor, TestSet, WeightedMean,
    Weights, clear,
};
use secsv_he::Preset;

use super::{
    dealer::{Dealer, OwnerKeys},
    equivalence_tests::{
        Mutation as OfTests, choose, choose_dealt, choose_stream, forget_streams, mutate, words,
    },
    hops::{Gate, Hop},
    ideal::{Rounding, computed, right},
    keys::{OwnerKey, Place, Purpose},
    later::{Later, LaterMasks},
    layer::{
        LayerInput, ModelMasks, OwnerData, data_share, deal_product, masked_model, model_masks, outputs,
        sample_words,
    },
    rehearsal::{LaterParts, Transcript, Unit},
    shape::{Shape, Stage},
    words::unpack,
};
use crate::{
    Error,
    decryptors::Protocol,
    message::{ClientHello, Server},
    model::{EncodedModel, EncodedOperator, ranges, sample_values},
    precision::Ranges,
    session::{Agreed, BlindSession, HiddenSettings, Matmul, RangeRule, Session, Settings, tests::of_model},
};

const CLIENTS: usize = 3;
const ROUNDS: u32 = 2;

/// A protection that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    None,
    /// Masks of models are not named by the round, the client.
    MaskRound,
    MaskClient,
    /// Models have no mask of the other server's.
    NoMask,
    /// Streams of dealt products are not named by the round.
    ProductRound,
    /// Samples and labels have one stream.
    LabelsAsSamples,
    /// Products are dealt under the stream of the samples.
    ProductsAsSamples,
    /// All owners have one key.
    OneOwner,
}

thread_local! {
    static MUTATION: Cell<Mutation> = const { Cell::new(Mutation::None) };
}

/// Whose mask of which round it is, as a mutation has it.
pub(super) fn named_mask(round: RoundId, client: usize) -> (RoundId, usize) {
    match MUTATION.get() {
        Mutation::MaskRound => (RoundId(0), client),
        Mutation::MaskClient => (round, 0),
        _ => (round, client),
    }
}

/// The name of an owner's stream, as a mutation has it.
pub(super) fn named_stream(name: &str, index: u64) -> (&str, u64) {
    match (MUTATION.get(), name) {
        (Mutation::ProductRound, "products") => (name, 0),
        (Mutation::LabelsAsSamples, "labels") | (Mutation::ProductsAsSamples, "products") => ("samples", 0),
        _ => (name, index),
    }
}

/// A model and how many samples each owner has.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub input: Vec<usize>,
    pub classes: usize,
    pub layers: Vec<NamedLayer>,
    pub shapes: Vec<(String, Vec<usize>)>,
    pub samples: usize,
    /// Numbers are so many times larger.
    pub scale: f32,
    /// All numbers are as large as they can be.
    pub is_extreme: bool,
    pub hidden: HiddenSettings,
    /// What owners say of their outputs is far too little.
    pub is_understated: bool,
}

fn linear(weight: &str, bias: &str) -> LayerSpec {
    LayerSpec::Linear { weight: weight.into(), bias: Some(bias.into()) }
}

fn named(layers: Vec<LayerSpec>) -> Vec<NamedLayer> {
    layers.into_iter().map(NamedLayer::from).collect()
}

fn owned(shapes: Vec<(&str, Vec<usize>)>) -> Vec<(String, Vec<usize>)> {
    shapes.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect()
}

impl Recipe {
    /// One linear layer.
    fn layer(samples: usize) -> Self {
        let shapes = vec![("w", vec![3, 3]), ("b", vec![3])];
        Self {
            input: vec![3],
            classes: 3,
            layers: named(vec![linear("w", "b")]),
            shapes: owned(shapes),
            samples,
            scale: 1.0,
            is_extreme: false,
            hidden: HiddenSettings::USUAL,
            is_understated: false,
        }
    }

    /// Linear layers of these sizes with gates between them.
    fn dense(sizes: [usize; 4], gates: [LayerSpec; 2], samples: usize, scale: f32) -> Self {
        let [input, first, second, classes] = sizes;
        let [a, b] = gates;
        let layers = vec![linear("w1", "b1"), a, linear("w2", "b2"), b, linear("w3", "b3")];
        let shapes = vec![
            ("w1", vec![first, input]),
            ("b1", vec![first]),
            ("w2", vec![second, first]),
            ("b2", vec![second]),
            ("w3", vec![classes, second]),
            ("b3", vec![classes]),
        ];
        let (layers, shapes) = (named(layers), owned(shapes));
        Self {
            input: vec![input],
            classes,
            layers,
            shapes,
            samples,
            scale,
            is_extreme: false,
            hidden: HiddenSettings::USUAL,
            is_understated: false,
        }
    }

    /// A convolution, a gate, a convolution with padding, ReLU, a linear layer.
    fn image(gate: LayerSpec, stride: usize, samples: usize) -> Self {
        let side = (5 - 3) / stride + 1;
        let conv = |weight: &str, stride, padding| {
            LayerSpec::Conv2d(ConvolutionSpec {
                weight: weight.into(),
                bias: None,
                stride,
                padding,
                dilation: 1,
                groups: 1,
            })
        };
        let layers = vec![
            conv("c1", stride, 0),
            gate,
            conv("c2", 1, 1),
            LayerSpec::Relu {},
            LayerSpec::Flatten {},
            linear("w", "b"),
        ];
        let shapes = vec![
            ("c1", vec![2, 1, 3, 3]),
            ("c2", vec![2, 2, 3, 3]),
            ("w", vec![2, 2 * side * side]),
            ("b", vec![2]),
        ];
        let (layers, shapes) = (named(layers), owned(shapes));
        Self {
            input: vec![1, 5, 5],
            classes: 2,
            layers,
            shapes,
            samples,
            scale: 1.0,
            is_extreme: false,
            hidden: HiddenSettings::USUAL,
            is_understated: false,
        }
    }

    fn draw(&self, (name, index): (&str, u64), world: u64, count: usize) -> Vec<f32> {
        if self.is_extreme {
            return vec![1.0; count];
        }
        let mut words = vec![0; count];
        let seed = Seed::from_bytes([4; 32]).derive(name, index).derive("world", world);
        Prg::new(&seed).fill_words(&mut words);
        words.iter().map(|word| (*word as i64) as f32 / i64::MAX as f32).collect()
    }

    fn model(&self, index: u64, world: u64) -> Weights {
        let mut weights = Weights::new();
        for (name, shape) in &self.shapes {
            let count = shape.iter().product();
            let scale = self.scale / (count as f32 / shape[0] as f32).sqrt();
            let is_variance = name.starts_with("variance");
            let value = |value: &f32| if is_variance { value.abs() + 0.25 } else { value * scale };
            let values = self.draw((name, index), world, count).iter().map(value).collect();
            weights.insert(name, Tensor::new(shape.clone(), values).unwrap());
        }
        weights
    }

    fn test_set(&self, client: u64, world: u64) -> TestSet {
        let size: usize = self.input.iter().product();
        let features = self.draw(("sample", client), world, size * self.samples);
        let features = features.iter().map(|feature| feature * self.scale).collect();
        let labels = self.draw(("label", client), world, self.samples);
        let label = |word: &f32| (((word + 1.0) * 50.0) as usize % self.classes) as i64;
        TestSet::new(self.input.clone(), features, labels.iter().map(label).collect()).unwrap()
    }

    /// The agreement of all worlds: their ranges are the larger ones.
    fn session(&self, worlds: &[u64]) -> BlindSession {
        let model = ModelSpec::new(self.input.clone(), self.classes, self.layers.clone());
        let settings = Settings {
            protocol: Protocol::BlindSv,
            preset: Preset::Standard,
            matmul: Matmul::Packed,
            always_skips: false,
            whole_rounds: true,
            hidden: self.hidden,
            by_class: false,
        };
        let shapes: Vec<(&str, &[usize])> =
            self.shapes.iter().map(|(name, shape)| (&name[..], &shape[..])).collect();
        let federation = Arc::new(of_model(CLIENTS, ROUNDS, &model, &shapes, settings));
        let of_client = |client: u64, world: u64| {
            let own: Vec<Weights> =
                (0..u64::from(ROUNDS)).map(|r| self.model(10 * r + client, world)).collect();
            let own: Vec<&Weights> = own.iter().collect();
            ranges(&federation, &own, &[], &self.test_set(client, world))
        };
        let hello = |client| {
            let of_worlds: Vec<Ranges> = worlds.iter().map(|&world| of_client(client, world)).collect();
            let mut ranges = Ranges::union(&of_worlds).unwrap();
            if self.is_understated {
                ranges.outputs.fill(-16);
            }
            ClientHello {
                samples: self.samples as u64,
                ranges,
                public_key: vec![1; 32],
                accepts_few: true,
                agreement: Default::default(),
            }
        };
        let hellos: Vec<ClientHello> = (0..CLIENTS as u64).map(hello).collect();
        let session = Session::propose(&federation, federation.leader(), &hellos, None).unwrap().0;
        let Agreed::BlindSv(session) = Arc::new(session).agreed() else { panic!("another protocol") };
        session
    }
}

/// A federation, its secrets, and what a world has in it.
struct World {
    session: BlindSession,
    masks: ModelMasks,
    keys: Vec<OwnerKeys>,
    models: Vec<Vec<Weights>>,
    samples: Vec<Share<Ring64>>,
    labels: Vec<Vec<usize>>,
}

/// One coalition on one chunk of one owner's samples.
struct Case<'a> {
    owner: usize,
    shape: Shape,
    place: Place,
    later: LaterParts<'a>,
    /// Both servers' shares of the first operator's outputs, and of the labels.
    outputs: [Vec<u64>; 2],
    factors: [Vec<u64>; 2],
    samples: [Vec<u64>; 2],
    labels: &'a [usize],
}

/// What a server reads.
#[derive(Debug, PartialEq)]
struct View {
    once: Vec<Vec<u8>>,
    units: Vec<Transcript>,
}

impl World {
    /// A world of random models, samples and labels. Keys are the same in all.
    fn new(recipe: &Recipe, worlds: &[u64], number: u64) -> Self {
        let session = recipe.session(worlds);
        let (rounds, clients) = (0..u64::from(ROUNDS), 0..CLIENTS as u64);
        let model = |round: u64, client: u64| recipe.model(10 * round + client, number);
        let models = rounds.map(|round| clients.clone().map(|c| model(round, c)).collect()).collect();
        let test_sets: Vec<TestSet> = clients.clone().map(|client| recipe.test_set(client, number)).collect();
        let samples = test_sets.iter().map(|test_set| sample_words(&session, test_set).unwrap()).collect();
        let labels = test_sets.iter().map(|test_set| test_set.labels().iter().map(|&l| l as usize).collect());
        let labels = labels.collect();
        let owner = |client: u64| if MUTATION.get() == Mutation::OneOwner { 0 } else { client };
        let key = |client, server| {
            OwnerKey::new(Seed::from_bytes([6; 32]).derive("owner", owner(client)).derive("server", server))
        };
        let keys = clients.map(|client| [0, 1].map(|server| key(client, server))).collect();
        let masks = model_masks(&Seed::from_bytes([5; 32]));
        Self { session, masks, keys, models, samples, labels }
    }

    fn models(&self) -> impl Iterator<Item = (RoundId, usize, &Weights)> {
        let rounds = (1..).map(RoundId).zip(&self.models);
        rounds.flat_map(|(round, models)| {
            models.iter().enumerate().map(move |(client, model)| (round, client, model))
        })
    }

    fn masked_model(&self, round: RoundId, client: usize) -> Vec<u8> {
        let weights = &self.models[round.0 as usize - 1][client];
        masked_model(&self.session, &self.masks, (round, client), weights).unwrap()
    }

    fn masked_models(&self, round: RoundId) -> Vec<Arc<Vec<u8>>> {
        (0..CLIENTS).map(|client| Arc::new(self.masked_model(round, client))).collect()
    }

    /// A coalition's model as words, without masks.
    fn plain(&self, round: RoundId, coalition: Coalition) -> Vec<EncodedOperator<Ring64>> {
        let session = &self.session;
        let encoded: Vec<_> = coalition
            .members()
            .map(|client| {
                let weights = &self.models[round.0 as usize - 1][client];
                let share = session.share(round, client);
                EncodedModel::new(session.program(), &session.precision, Ring64, weights, share).unwrap()
            })
            .collect();
        EncodedModel::sum(&encoded.iter().collect::<Vec<_>>()).unwrap().operators
    }

    fn data(&self, owner: usize) -> Vec<u8> {
        data_share(&self.session, owner, &self.keys[owner][0], &self.samples[owner], &self.labels[owner])
    }

    fn product(&self, round: RoundId, owner: usize) -> Vec<u8> {
        let place = (round, owner);
        deal_product(&self.session, &self.keys[owner], &self.masks, place, &self.samples[owner]).unwrap()
    }

    /// A server's shares of the first operator's outputs of all models of a round, of labels and of samples.
    fn shares(&self, server: Server, round: RoundId, owner: usize) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let index = usize::from(server == Server::Auxiliary);
        let (key, masks) = (&self.keys[owner][index], &self.masks[index]);
        let models = self.masked_models(round);
        let dealt = (server == Server::Auxiliary).then(|| self.product(round, owner));
        let data = match server {
            Server::Principal => OwnerData::of_principal(&self.session, owner, key),
            Server::Auxiliary => OwnerData::of_auxiliary(&self.session, owner, &self.data(owner)),
        };
        let data = data.unwrap();
        let input = LayerInput { server, masks, key, models: &models, dealt: dealt.as_deref() };
        let outputs = outputs(&self.session, (round, owner), &input, &data).unwrap();
        (outputs.expose().clone(), data.labels.expose().clone(), data.samples().to_vec())
    }

    /// The units of some coalitions.
    fn cases(&self, tested: &[(u32, &[usize])]) -> Vec<Case<'_>> {
        let servers = [Server::Principal, Server::Auxiliary];
        let session = &self.session;
        let mut cases = Vec::new();
        for &(round, members) in tested {
            let (round, coalition) = (RoundId(round), members.iter().copied().collect::<Coalition>());
            let models = self.masked_models(round);
            for owner in 0..CLIENTS {
                let all = servers.map(|server| self.shares(server, round, owner));
                let samples = self.samples[owner].expose().columns();
                for (first, shape) in session.chunks(owner).iter() {
                    let columns = first..first + shape.samples();
                    let part = |words: &[u64]| -> Vec<u64> {
                        words.chunks_exact(samples).flat_map(|row| row[columns.clone()].to_vec()).collect()
                    };
                    let sum = |all: &[u64]| {
                        let of_model = all.len() / CLIENTS;
                        let mut sum = vec![0u64; of_model];
                        for member in coalition.members() {
                            let own = &all[member * of_model..][..of_model];
                            sum.iter_mut().zip(own).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
                        }
                        part(&sum)
                    };
                    let operators = 1..session.program().operators.len();
                    let later = |server: Server| {
                        let masks = &self.masks[usize::from(server == Server::Auxiliary)];
                        let of =
                            |k| Later::new(session, (server, masks), (round, coalition), k, &models).unwrap();
                        operators.clone().map(of).collect()
                    };
                    let owner_masks =
                        |k| LaterMasks::new(session, &self.masks, (round, coalition), k).unwrap();
                    cases.push(Case {
                        owner,
                        place: Place { round, coalition, first },
                        later: LaterParts {
                            servers: servers.map(later),
                            owner: operators.clone().map(owner_masks).collect(),
                        },
                        outputs: all.each_ref().map(|(outputs, ..)| sum(outputs)),
                        factors: all.each_ref().map(|(_, labels, _)| part(labels)),
                        samples: all.each_ref().map(|(.., own)| part(own)),
                        labels: &self.labels[owner][columns.clone()],
                        shape,
                    });
                }
            }
        }
        cases
    }

    fn run(&self, case: &Case<'_>) -> Transcript {
        let scales = self.session.scales(case.place.round, case.place.coalition);
        let keys = &self.keys[case.owner];
        let unit = Unit { shape: &case.shape, keys, place: case.place, scales: &scales, later: &case.later };
        unit.run((&case.outputs, &case.factors, &case.samples), case.labels).unwrap()
    }

    fn dealt(&self, case: &Case<'_>) -> Vec<u8> {
        let scales = self.session.scales(case.place.round, case.place.coalition);
        let (shape, keys, later) = (&case.shape, &self.keys[case.owner], &case.later.owner);
        let mut dealt = Vec::new();
        let dealer = Dealer { shape, keys, place: case.place, scales: &scales, later, labels: case.labels };
        dealer.deal(&mut dealt).unwrap();
        dealt
    }

    /// What plain integers give: inputs of every operator behind a hop, and how many predictions are right.
    fn ideal(&self, case: &Case<'_>) -> (Vec<Vec<i64>>, u64) {
        let (hidden, right, _) = self.ideal_with_overflows(case);
        (hidden, right)
    }

    /// The same, and how many numbers are out of range.
    fn ideal_with_overflows(&self, case: &Case<'_>) -> (Vec<Vec<i64>>, u64, u64) {
        let (hidden, right, overflows) = self.ideal_right(case);
        (hidden, right.iter().filter(|right| **right).count() as u64, overflows)
    }

    /// The same, and which predictions are right.
    fn ideal_right(&self, case: &Case<'_>) -> (Vec<Vec<i64>>, Vec<bool>, u64) {
        let place = case.place;
        let scales = self.session.scales(place.round, place.coalition);
        let samples = self.samples[case.owner].expose();
        let columns = Matrix::from_fn(Ring64, samples.rows(), case.shape.samples(), |i, k| {
            samples.at(i, place.first + k)
        });
        let operators = self.plain(place.round, place.coalition);
        let rounding = Rounding { keys: &self.keys[case.owner], place, scales: &scales };
        let program = self.session.program();
        let found = computed(program, &case.shape, &rounding, &operators, &columns).unwrap();
        let right = right(&case.shape, &found.scores, case.labels);
        (found.hidden, right, found.overflows)
    }

    /// What is found of a unit.
    fn count(&self, case: &Case<'_>, transcript: &Transcript) -> u64 {
        case.shape.found(transcript.found[0][0], transcript.found[1][0])
    }

    /// What a server reads, in the order in which it is sent.
    fn read(&self, server: Server, tested: &[(u32, &[usize])]) -> View {
        let mut once: Vec<Vec<u8>> =
            self.models().map(|(round, client, _)| self.masked_model(round, client)).collect();
        if server == Server::Auxiliary {
            for owner in 0..CLIENTS {
                once.push(self.data(owner));
                once.extend((1..=ROUNDS).map(|round| self.product(RoundId(round), owner)));
            }
        }
        let other = usize::from(server == Server::Principal);
        let cases = self.cases(tested);
        let units = cases.iter().map(|case| {
            let mut transcript = self.run(case);
            (transcript.found, transcript.overflows) = Default::default();
            transcript.messages.iter_mut().for_each(|both| both[1 - other].clear());
            if server == Server::Principal {
                transcript.dealt.clear();
            }
            transcript
        });
        View { once, units: units.collect() }
    }
}

/// Differences of packed words.
fn differences(plain: &[u8], read: &[u8], bytes: usize) -> Vec<u64> {
    unpack(plain, bytes).zip(unpack(read, bytes)).map(|(plain, read)| plain.wrapping_sub(read)).collect()
}

/// Chooses the streams that a server does not know, such that it reads `recorded` in another world.
fn choose_streams(world: &World, server: Server, recorded: &View, tested: &[(u32, &[usize])]) {
    let session = &world.session;
    let other = usize::from(server == Server::Principal);
    let mut once = recorded.once.iter();
    let operators = session.program().operators.len();
    for (round, client, _) in world.models() {
        let words = session.model_part(operators - 1).0.end;
        let (named_round, named_client) = named_mask(round, client);
        let seed =
            world.masks[other].derive("round", named_round.0.into()).derive("client", named_client as u64);
        choose_stream(&seed, vec![0; words]);
        let read = once.next().unwrap();
        if MUTATION.get() != Mutation::NoMask {
            let plain = world.masked_model(round, client);
            let of_operator = |operator: usize| {
                let (_, part) = session.model_part(operator);
                differences(&plain[part.clone()], &read[part], session.hops().bytes(operator))
            };
            choose_stream(&seed, (0..operators).flat_map(of_operator).collect());
        }
    }
    if server == Server::Auxiliary {
        choose_owners(world, once);
    }
    let keys = |owner: usize| &world.keys[owner];
    let count = world.cases(tested).len();
    for index in 0..count {
        // What is chosen for one unit may change the next: cases are made anew.
        let cases = world.cases(tested);
        let (case, read) = (&cases[index], &recorded.units[index]);
        let deal = || {
            if server == Server::Auxiliary {
                choose_dealt(&case.shape, keys(case.owner), case.place, &read.dealt, || world.dealt(case));
            }
        };
        for stage in 0..case.shape.stages() {
            deal();
            let key = &keys(case.owner)[other];
            let opened = case.shape.opened(case.shape.stage(stage).unwrap());
            choose(key, case.place, Purpose::Opening(stage), vec![0; opened]);
            deal();
            let (plain, is_numbers) = words(&case.shape, stage, &world.run(case).messages[stage][other]);
            let (wanted, _) = words(&case.shape, stage, &read.messages[stage][other]);
            let pads = plain.iter().zip(wanted).map(|(plain, wanted)| match is_numbers {
                true => wanted.wrapping_sub(*plain) & case.shape.mask(case.shape.stage(stage).unwrap()),
                false => plain ^ wanted,
            });
            choose(key, case.place, Purpose::Opening(stage), pads.collect());
        }
        deal();
    }
}

/// Chooses the principal's streams of owners' samples, labels and products.
fn choose_owners<'a>(world: &World, mut once: impl Iterator<Item = &'a Vec<u8>>) {
    let (session, words) = (&world.session, world.session.hops().bytes(0));
    for owner in 0..CLIENTS {
        let seed = |name: &str, index| {
            let (name, index) = named_stream(name, index);
            world.keys[owner][0].seed().derive(name, index)
        };
        let samples = world.samples[owner].expose().elements().len() * words;
        let read = once.next().unwrap();
        [seed("samples", 0), seed("labels", 0)].iter().for_each(|seed| choose_stream(seed, Vec::new()));
        let plain = world.data(owner);
        choose_stream(&seed("samples", 0), differences(&plain[..samples], &read[..samples], words));
        let labels = differences(&plain[samples..], &read[samples..], session.widths().bytes());
        choose_stream(&seed("labels", 0), labels);
        for round in (1..=ROUNDS).map(RoundId) {
            let seed = seed("products", round.0.into());
            choose_stream(&seed, Vec::new());
            let read = once.next().unwrap();
            choose_stream(&seed, differences(&world.product(round, owner), read, words));
        }
    }
}

/// Coalitions that are tested: some of them in two rounds.
const TESTED: [(u32, &[usize]); 4] = [(1, &[0, 1]), (1, &[1]), (2, &[0, 1]), (2, &[0, 2])];

/// Whether a server reads the same in two worlds, and both worlds' counts are right.
pub(super) fn is_equivalent(recipe: &Recipe, server: Server, mutation: Mutation, of_tests: OfTests) -> bool {
    MUTATION.set(mutation);
    mutate(of_tests);
    forget_streams();
    let [first, second] = [1, 2].map(|number| World::new(recipe, &[1, 2], number));
    let other = usize::from(server == Server::Principal);
    if mutation == Mutation::NoMask {
        for (round, client, _) in first.models() {
            let seed = first.masks[other].derive("round", round.0.into()).derive("client", client as u64);
            choose_stream(&seed, Vec::new());
        }
    }
    if of_tests == OfTests::OpeningMask {
        for case in first.cases(&TESTED) {
            for stage in 0..case.shape.stages() {
                let key = &first.keys[case.owner][other];
                choose_stream(&key.stream(case.place, Purpose::Opening(stage)), Vec::new());
            }
        }
    }
    let recorded = first.read(server, &TESTED);
    choose_streams(&second, server, &recorded, &TESTED);
    let mut is_same = second.read(server, &TESTED) == recorded;
    for case in second.cases(&TESTED) {
        let (transcript, (_, right, overflows)) = (second.run(&case), second.ideal_with_overflows(&case));
        let [p, a] = transcript.overflows;
        is_same &= second.count(&case, &transcript) == right && case.shape.overflows(p, a) == overflows;
    }
    assert_ne!(first.labels, second.labels);
    forget_streams();
    mutate(OfTests::None);
    MUTATION.set(Mutation::None);
    is_same
}

fn deep(samples: usize) -> Recipe {
    Recipe::dense([2, 2, 2, 3], [LayerSpec::Relu {}, LayerSpec::Square {}], samples, 1.0)
}

/// Functions with several knots.
fn curves(samples: usize) -> Recipe {
    Recipe::dense([2, 3, 2, 2], [LayerSpec::HardTanh {}, LayerSpec::LeakyRelu { slope: None }], samples, 2.0)
}

/// The same with measured ranges, which are checked.
fn checked(samples: usize) -> Recipe {
    let hidden = HiddenSettings { ranges: RangeRule::Calibrated, checks_all: true, ..HiddenSettings::USUAL };
    Recipe { hidden, ..deep(samples) }
}

#[test]
fn a_server_reads_the_same_whatever_models_and_samples_are() {
    let image = Recipe::image(LayerSpec::Square {}, 2, 3);
    let understated = Recipe { is_understated: true, ..checked(2) };
    for recipe in [Recipe::layer(5), image, deep(66), curves(3), checked(3), understated] {
        for server in [Server::Principal, Server::Auxiliary] {
            assert!(is_equivalent(&recipe, server, Mutation::None, OfTests::None), "{server:?}: {recipe:?}");
        }
    }
}

#[test]
fn without_a_protection_of_the_layer_the_same_test_fails() {
    let at_both = [Mutation::MaskRound, Mutation::MaskClient, Mutation::NoMask];
    let at_auxiliary =
        [Mutation::ProductRound, Mutation::LabelsAsSamples, Mutation::ProductsAsSamples, Mutation::OneOwner];
    let servers = [Server::Principal, Server::Auxiliary];
    let at_both = servers.into_iter().flat_map(|server| at_both.map(|mutation| (server, mutation)));
    let all = at_both.chain(at_auxiliary.map(|mutation| (Server::Auxiliary, mutation)));
    for (server, mutation) in all {
        let recipe = Recipe::layer(5);
        assert!(!is_equivalent(&recipe, server, mutation, OfTests::None), "{server:?}: {mutation:?}");
    }
}

#[test]
fn without_a_protection_of_hidden_numbers_the_same_test_fails() {
    let at_both = [
        OfTests::OpeningCoalition,
        OfTests::OpeningRound,
        OfTests::OpeningStage,
        OfTests::OpeningSample,
        OfTests::OpeningMask,
    ];
    let at_auxiliary = [OfTests::PlanesCoalition, OfTests::NumbersCoalition, OfTests::NumbersArray];
    let servers = [Server::Principal, Server::Auxiliary];
    let at_both = servers.into_iter().flat_map(|server| at_both.map(|mutation| (server, mutation)));
    for (server, mutation) in at_both.chain(at_auxiliary.map(|mutation| (Server::Auxiliary, mutation))) {
        // Samples of a second chunk, where that is what is forgotten.
        let samples = if mutation == OfTests::OpeningSample { 66 } else { 2 };
        let found = is_equivalent(&deep(samples), server, Mutation::None, mutation);
        assert!(!found, "{server:?}: {mutation:?}");
    }
    assert!(!is_equivalent(&deep(2), Server::Principal, Mutation::MaskRound, OfTests::None));
    let of_curves =
        [OfTests::OpeningStage, OfTests::OpeningMask].map(|mutation| (Server::Principal, mutation));
    for (server, mutation) in of_curves.into_iter().chain([(Server::Auxiliary, OfTests::NumbersArray)]) {
        let found = is_equivalent(&curves(2), server, Mutation::None, mutation);
        assert!(!found, "{server:?}: {mutation:?}, knots");
    }
}

#[test]
fn without_a_protection_of_range_checks_the_same_test_fails() {
    for (server, mutation) in [
        (Server::Principal, OfTests::OpeningStage),
        (Server::Principal, OfTests::OpeningMask),
        (Server::Auxiliary, OfTests::PlanesCoalition),
        (Server::Auxiliary, OfTests::NumbersArray),
    ] {
        assert!(!is_equivalent(&checked(2), server, Mutation::None, mutation), "{server:?}: {mutation:?}");
    }
}

/// Models that exceed what owners measured: numbers out of range are counted, and none where there are none.
#[test]
fn a_forced_overflow_is_counted() {
    let count = |recipe: &Recipe| {
        let world = World::new(recipe, &[1], 1);
        let cases = world.cases(&[(1, &[0, 1])]);
        let counts = cases.iter().map(|case| {
            let [p, a] = world.run(case).overflows;
            (case.shape.overflows(p, a), world.ideal_with_overflows(case).2)
        });
        counts.collect::<Vec<_>>()
    };
    let relu = || LayerSpec::Relu {};
    for gates in [[relu(), relu()], [LayerSpec::Square {}, relu()], [LayerSpec::Flatten {}, relu()]] {
        let hidden = HiddenSettings { ranges: RangeRule::Calibrated, ..HiddenSettings::USUAL };
        let honest = Recipe { hidden, ..Recipe::dense([6, 5, 4, 3], gates, 40, 6.0) };
        assert!(count(&honest).iter().all(|found| *found == (0, 0)));
        let understated = count(&Recipe { is_understated: true, ..honest });
        assert!(
            understated.iter().all(|(found, expected)| found == expected && *found > 0),
            "{understated:?}"
        );
    }
}

/// Predictions that plain integers and the clear judge differently, and all of them. A prediction that differs is a near tie: its
/// margin is no larger than a hundredth of the scores.
pub(super) fn differing(recipe: &Recipe) -> (usize, usize) {
    let world = World::new(recipe, &[1], 1);
    let architecture = &world.session.federation.architecture;
    let (mut differing, mut all) = (0, 0);
    for case in world.cases(&[(1, &[0]), (1, &[0, 1]), (2, &[0, 1, 2])]) {
        let Place { round, coalition, first } = case.place;
        let mut mean = WeightedMean::new();
        let models = &world.models[round.0 as usize - 1];
        coalition.members().for_each(|client| mean.add(&models[client], 1.0));
        let mut weights = Weights::new();
        for (name, numbers) in mean.finish().unwrap() {
            let numbers = numbers.into_iter().map(|number| number as f32).collect();
            weights.insert(&name, Tensor::new(architecture.tensors()[&name].clone(), numbers).unwrap());
        }
        let (size, test_set) = (architecture.input_size(), recipe.test_set(case.owner as u64, 1));
        let features = &test_set.features()[first * size..][..case.shape.samples() * size];
        let scores = clear::scores(architecture, &weights, features);
        let (_, right, _) = world.ideal_right(&case);
        for ((scores, label), right) in scores.chunks_exact(recipe.classes).zip(case.labels).zip(right) {
            all += 1;
            if right != (clear::predicted(scores) == *label) {
                differing += 1;
                let others = scores.iter().enumerate().filter(|(class, _)| class != label);
                let best = others.map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
                let largest = scores.iter().fold(0.0f64, |most, score| most.max(score.abs()));
                assert!((scores[*label] - best).abs() <= 0.01 * largest, "{scores:?}, class {label}");
            }
        }
    }
    (differing, all)
}

/// What both servers opened at a stage, less both masks: those of smallest magnitude of so many bits.
fn unmasked(
    world: &World,
    case: &Case<'_>,
    transcript: &Transcript,
    (stage, bits): (Stage, u32),
) -> Vec<i64> {
    let shape = &case.shape;
    let index = shape.index(stage);
    let [p, a] = &transcript.messages[index];
    let [masks, others] = [0, 1].map(|server| {
        world.keys[case.owner][server].words(case.place, Purpose::Opening(index), shape.opened(stage))
    });
    let opened = unpack(p, shape.bytes(stage)).zip(unpack(a, shape.bytes(stage)));
    let masks = masks.expose().iter().zip(others.expose());
    let words = opened.zip(masks).map(|((p, a), (v, w))| p.wrapping_add(a).wrapping_sub(*v).wrapping_sub(*w));
    words.map(|word| (word << (64 - bits)) as i64 >> (64 - bits)).collect()
}

/// What both servers opened of the inputs of every operator behind a hop, less both masks.
fn opened_inputs(world: &World, case: &Case<'_>, transcript: &Transcript) -> Vec<Vec<i64>> {
    let hops = case.shape.hops().all.iter().enumerate();
    let of_hop = |(hop, of): (usize, &Hop)| unmasked(world, case, transcript, (Stage::Inputs(hop), of.word));
    hops.map(of_hop).collect()
}

/// The largest number of each stage as views say what it stands for, beside that of the model in double precision, of a model whose
/// layers are joined. Sums of several outputs are left out.
pub(super) fn largest_numbers(recipe: &Recipe) -> Vec<(f64, f64)> {
    let world = World::new(recipe, &[1], 1);
    let (session, mut found) = (&world.session, Vec::new());
    let (program, owner) = (session.program(), 1);
    let wiring = program.wiring.as_ref().unwrap();
    let samples = sample_values(program, &recipe.test_set(owner, 1));
    let (mut values, mut sums) = (vec![0.0; wiring.nodes.len() + 1], vec![0.0; wiring.nodes.len()]);
    wiring.follow(program, &world.models[0][0], &samples, (&mut values, &mut sums));
    for case in world.cases(&[(1, &[0])]).into_iter().filter(|case| case.owner == owner as usize) {
        let transcript = world.run(&case);
        for seen in case.shape.seen_stages() {
            let stage = case.shape.stage(seen.stage).unwrap();
            let real = match stage {
                Stage::Outputs(hop) if case.shape.hops().all[hop].before.is_none() => sums[hop],
                Stage::Inputs(hop) => values[hop + 1],
                Stage::Scores if case.shape.hops().scores.is_none() => sums[seen.sum],
                _ => continue,
            };
            let meaning = session.meaning(stage, (case.place.round, case.place.coalition)).unwrap();
            let numbers = unmasked(&world, &case, &transcript, (stage, seen.bits.unwrap()));
            let largest =
                numbers.iter().map(|x| (x.wrapping_sub(meaning.offset) as f64 * meaning.scale).abs());
            found.push((largest.fold(0.0, f64::max), real));
        }
    }
    found
}

fn gate() -> impl Strategy<Value = LayerSpec> {
    prop_oneof![
        Just(LayerSpec::Relu {}),
        Just(LayerSpec::Square {}),
        Just(LayerSpec::Identity {}),
        Just(LayerSpec::LeakyRelu { slope: None }),
        (-1.0f64..2.0).prop_map(|slope| LayerSpec::LeakyRelu { slope: Some(slope) }),
        Just(LayerSpec::Relu6 {}),
        Just(LayerSpec::HardTanh {}),
        Just(LayerSpec::HardSigmoid {}),
        Just(LayerSpec::Sigmoid {}),
        Just(LayerSpec::Tanh {}),
        Just(LayerSpec::Gelu {}),
        Just(LayerSpec::Elu { alpha: 0.5 }),
    ]
}

/// Bits of the words of each operator.
pub(super) fn widths(recipe: &Recipe) -> Vec<u32> {
    recipe.session(&[1]).hops().words.clone()
}

pub(super) fn check(recipe: &Recipe) -> Result<(), TestCaseError> {
    let world = World::new(recipe, &[1], 1);
    for case in world.cases(&[(1, &[0]), (1, &[0, 1]), (2, &[0, 1, 2])]) {
        let transcript = world.run(&case);
        let (hidden, right, overflows) = world.ideal_with_overflows(&case);
        let [p, a] = transcript.overflows;
        prop_assert_eq!(case.shape.overflows(p, a), overflows, "numbers out of range");
        prop_assert!(overflows == 0 || recipe.is_understated, "{overflows} out of range");
        prop_assert_eq!(opened_inputs(&world, &case, &transcript), hidden, "hidden numbers");
        prop_assert_eq!(world.count(&case, &transcript), right, "right predictions");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn hidden_numbers_and_counts_of_dense_nets_are_those_of_plain_integers(
        sizes in (1usize..9, 1usize..9, 1usize..9, 2usize..7),
        first in gate(),
        second in gate(),
        samples in prop::sample::select(vec![1usize, 3, 64, 70]),
        scale in prop::sample::select(vec![0.1f32, 1.0, 3.0]),
        rule in prop::sample::select(vec![RangeRule::Auto, RangeRule::Proven, RangeRule::Calibrated]),
        (checks_all, is_understated) in any::<(bool, bool)>(),
    ) {
        let sizes = [sizes.0, sizes.1, sizes.2, sizes.3];
        let hidden = HiddenSettings { ranges: rule, checks_all, ..HiddenSettings::USUAL };
        check(&Recipe { hidden, is_understated, ..Recipe::dense(sizes, [first, second], samples, scale) })?;
    }

    #[test]
    fn hidden_numbers_and_counts_of_convolutions_are_those_of_plain_integers(
        gate in gate(),
        stride in 1usize..=2,
        samples in 1usize..5,
    ) {
        check(&Recipe::image(gate, stride, samples))?;
    }
}

#[test]
fn the_largest_numbers_stay_in_their_ranges() {
    for (gates, scale) in [
        ([LayerSpec::Relu {}, LayerSpec::Relu {}], 1.0),
        ([LayerSpec::Square {}, LayerSpec::Square {}], 1.3),
        ([LayerSpec::Flatten {}, LayerSpec::Square {}], 0.2),
        ([LayerSpec::Square {}, LayerSpec::Relu {}], 4.0),
        ([LayerSpec::LeakyRelu { slope: None }, LayerSpec::HardTanh {}], 2.0),
        ([LayerSpec::HardSigmoid {}, LayerSpec::Relu6 {}], 4.0),
    ] {
        let recipe = Recipe { is_extreme: true, ..Recipe::dense([7, 5, 6, 3], gates, 2, scale) };
        let world = World::new(&recipe, &[1], 1);
        for case in world.cases(&[(1, &[0, 1, 2])]) {
            let (hidden, right) = world.ideal(&case);
            for (hop, numbers) in case.shape.hops().all.iter().zip(&hidden) {
                let most = 1i64 << (hop.kept - 2);
                let most = match &hop.gate {
                    Gate::Square => most * most,
                    Gate::Curve(curve) => most << curve.factor().0.max(0),
                    Gate::Linear | Gate::Relu => most,
                };
                let largest = numbers.iter().map(|number| number.abs()).max().unwrap();
                assert!(largest < most && largest > 0, "{largest} of {most}");
            }
            let transcript = world.run(&case);
            assert_eq!(opened_inputs(&world, &case, &transcript), hidden);
            assert_eq!(world.count(&case, &transcript), right);
        }
    }
}

#[test]
fn a_model_with_another_activation_is_refused_by_name() {
    let recipe = Recipe::dense([2, 2, 2, 2], [LayerSpec::Softmax {}, LayerSpec::Relu {}], 3, 1.0);
    let model = ModelSpec::new(recipe.input.clone(), 2, recipe.layers.clone());
    let shapes: Vec<(&str, &[usize])> =
        recipe.shapes.iter().map(|(name, shape)| (&name[..], &shape[..])).collect();
    let settings = Settings {
        protocol: Protocol::SecretSv,
        preset: Preset::Standard,
        matmul: Matmul::Packed,
        always_skips: false,
        whole_rounds: true,
        hidden: Default::default(),
        by_class: false,
    };
    let architecture = &of_model(4, 1, &model, &shapes, settings).architecture;
    let refused = Protocol::BlindSv.rules().program(architecture);
    assert!(matches!(refused, Err(Error::Layer { index: 1, kind: "softmax", .. })), "{refused:?}");
}

//! Random nets of all kinds of layers, as in `run_equivalence_tests`: every hidden number and every right or wrong is that of plain
//! integers, and servers read the same whatever models and samples are.

use std::collections::BTreeSet;

use proptest::prelude::*;
use secsv_federation::{BatchNormSpec, ConvolutionSpec, LayerSpec, PoolSpec};

use super::{
    equivalence_tests::Mutation as OfTests,
    run_equivalence_tests::{Mutation, Recipe, check, differing, is_equivalent, largest_numbers, widths},
};
use crate::{
    message::Server,
    session::{HiddenSettings, RangeRule},
};

/// A kind of recurrent unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Gru,
    Lstm,
    LstmOfAll,
}

/// A net that grows layer by layer.
#[derive(Clone, Debug)]
pub(super) struct Net {
    recipe: Recipe,
    /// The shape of what the last layer hands on.
    shape: Vec<usize>,
}

impl Net {
    pub(super) fn of(input: &[usize], samples: usize) -> Self {
        let recipe = Recipe {
            input: input.to_vec(),
            classes: 0,
            layers: Vec::new(),
            shapes: Vec::new(),
            samples,
            scale: 1.0,
            is_extreme: false,
            hidden: HiddenSettings::USUAL,
            is_understated: false,
        };
        Self { recipe, shape: input.to_vec() }
    }

    fn tensor(&mut self, shape: Vec<usize>) -> String {
        let name = format!("t{}", self.recipe.shapes.len());
        self.recipe.shapes.push((name.clone(), shape));
        name
    }

    /// A layer without parameters.
    pub(super) fn then(mut self, layer: LayerSpec) -> Self {
        let pooled = |spec: &PoolSpec, length: &usize| {
            (length + 2 * spec.padding - spec.size) / spec.stride.unwrap_or(spec.size) + 1
        };
        match &layer {
            LayerSpec::MaxPool2d(spec)
            | LayerSpec::AvgPool2d(spec)
            | LayerSpec::MaxPool1d(spec)
            | LayerSpec::AvgPool1d(spec) => {
                self.shape[1..].iter_mut().for_each(|length| *length = pooled(spec, length));
            }
            LayerSpec::GlobalAvgPool {} | LayerSpec::GlobalMaxPool {} => self.shape.truncate(1),
            LayerSpec::Flatten {} => self.shape = vec![self.shape.iter().product()],
            LayerSpec::Transpose {} => self.shape.reverse(),
            _ => {}
        }
        self.recipe.layers.push(layer.into());
        self
    }

    /// A convolution in as many dimensions as there are.
    pub(super) fn conv(mut self, outputs: usize, kernel: usize, stride: usize, groups: usize) -> Self {
        let dimensions = self.shape.len() - 1;
        let mut shape = vec![outputs, self.shape[0] / groups];
        shape.extend(vec![kernel; dimensions]);
        let (weight, bias) = (self.tensor(shape), Some(self.tensor(vec![outputs])));
        let padding = kernel / 2;
        let spec = ConvolutionSpec { weight, bias, stride, padding, dilation: 1, groups };
        let layer = if dimensions == 1 { LayerSpec::Conv1d(spec) } else { LayerSpec::Conv2d(spec) };
        self.recipe.layers.push(layer.into());
        self.shape[0] = outputs;
        self.shape[1..].iter_mut().for_each(|length| *length = (*length + 2 * padding - kernel) / stride + 1);
        self
    }

    /// A recurrent unit: a GRU, which hands its last state on, or an LSTM, which may hand all on.
    pub(super) fn recurrent(mut self, kind: Unit, hidden: usize, is_biased: bool) -> Self {
        let (steps, features) = (self.shape[0], self.shape[1]);
        let rows = hidden * if kind == Unit::Gru { 3 } else { 4 };
        let (weight_ih, weight_hh) = (self.tensor(vec![rows, features]), self.tensor(vec![rows, hidden]));
        let [bias_ih, bias_hh] = [0, 1].map(|_| is_biased.then(|| self.tensor(vec![rows])));
        self.shape = if kind == Unit::LstmOfAll { vec![steps, hidden] } else { vec![hidden] };
        self.recipe.layers.push(match kind {
            Unit::Gru => LayerSpec::Gru { weight_ih, weight_hh, bias_ih, bias_hh }.into(),
            _ => {
                let sequence = kind == Unit::LstmOfAll;
                LayerSpec::Lstm { weight_ih, weight_hh, bias_ih, bias_hh, sequence }.into()
            }
        });
        self
    }

    /// A normalisation of each channel.
    fn batch_norm(mut self, is_affine: bool) -> Self {
        let channels = vec![self.shape[0]];
        let [weight, bias] = [0, 1].map(|_| is_affine.then(|| self.tensor(channels.clone())));
        let (mean, variance) =
            (self.tensor(channels.clone()), format!("variance{}", self.recipe.shapes.len()));
        self.recipe.shapes.push((variance.clone(), channels));
        let spec = BatchNormSpec { weight, bias, mean, variance, epsilon: Some(0.01) };
        self.recipe.layers.push(LayerSpec::BatchNorm(spec).into());
        self
    }

    /// A linear layer over the last dimension.
    pub(super) fn linear(mut self, outputs: usize) -> Self {
        let inputs = self.shape.pop().unwrap();
        let (weight, bias) = (self.tensor(vec![outputs, inputs]), Some(self.tensor(vec![outputs])));
        self.recipe.layers.push(LayerSpec::Linear { weight, bias }.into());
        self.shape.push(outputs);
        self
    }

    /// With a name for the last layer.
    fn named(mut self, name: &str) -> Self {
        self.recipe.layers.last_mut().unwrap().name = Some(name.to_owned());
        self
    }

    /// With the last layer on what others hand on, of this shape.
    fn from(mut self, names: &[&str]) -> Self {
        self.recipe.layers.last_mut().unwrap().from = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// So that the next layer is made for another shape.
    fn shaped(mut self, shape: &[usize]) -> Self {
        self.shape = shape.to_vec();
        self
    }

    /// A sum, or values one behind the other in a first dimension of so many in all.
    fn joined(mut self, names: &[&str], channels: Option<usize>) -> Self {
        self.recipe
            .layers
            .push(if channels.is_some() { LayerSpec::Concat {} } else { LayerSpec::Add {} }.into());
        if let Some(channels) = channels {
            self.shape[0] = channels;
        }
        self.from(names)
    }

    /// With what it hands on as scores.
    pub(super) fn done(mut self) -> Recipe {
        self.recipe.classes = self.shape.iter().product();
        self.recipe
    }
}

fn window(size: usize, stride: usize, padding: usize) -> PoolSpec {
    PoolSpec { size, stride: Some(stride), padding }
}

/// Layers between two operators, over images of six by six.
fn between() -> impl Strategy<Value = Vec<LayerSpec>> {
    let pool = || {
        prop_oneof![
            Just(LayerSpec::MaxPool2d(window(2, 2, 0))),
            Just(LayerSpec::MaxPool2d(window(3, 2, 1))),
            Just(LayerSpec::AvgPool2d(window(2, 2, 0))),
            Just(LayerSpec::AvgPool2d(window(3, 2, 1))),
        ]
    };
    let function = || {
        prop_oneof![
            Just(LayerSpec::Relu {}),
            Just(LayerSpec::HardTanh {}),
            Just(LayerSpec::LeakyRelu { slope: None }),
        ]
    };
    prop_oneof![
        pool().prop_map(|pool| vec![pool]),
        (pool(), function()).prop_map(|(pool, function)| vec![pool, function]),
        (function(), pool()).prop_map(|(function, pool)| vec![function, pool]),
        Just(vec![LayerSpec::MaxPool2d(window(2, 2, 0)), LayerSpec::Square {}]),
        Just(vec![
            LayerSpec::MaxPool2d(window(2, 1, 0)),
            LayerSpec::Relu {},
            LayerSpec::AvgPool2d(window(2, 2, 0))
        ]),
        function().prop_map(|function| vec![LayerSpec::GlobalMaxPool {}, function]),
        function().prop_map(|function| vec![function, LayerSpec::GlobalAvgPool {}]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn pools_of_images_are_those_of_plain_integers(
        layers in between(),
        groups in 1usize..=2,
        samples in prop::sample::select(vec![1usize, 2, 65]),
    ) {
        let net = Net::of(&[2, 6, 6], samples).conv(2, 3, 1, groups);
        let net = layers.into_iter().fold(net, Net::then);
        check(&net.then(LayerSpec::Flatten {}).linear(3).then(LayerSpec::Relu {}).linear(3).done())?;
    }

    #[test]
    fn pools_of_sequences_and_steps_are_those_of_plain_integers(
        (length, steps) in (4usize..7, 2usize..4),
        is_max: bool,
        samples in 1usize..4,
    ) {
        let spec = window(2, 2, 0);
        let pool = if is_max { LayerSpec::MaxPool1d(spec) } else { LayerSpec::AvgPool1d(spec) };
        let net = Net::of(&[2, length], samples).conv(steps, 3, 1, 1).then(LayerSpec::Relu {}).then(pool);
        // Linear layers on each step, and a mean of scores.
        let net = net.linear(2).then(LayerSpec::Relu6 {}).then(LayerSpec::Transpose {});
        check(&net.clone().linear(3).then(LayerSpec::Flatten {}).linear(2).done())?;
        check(&Net::of(&[2, length], samples).conv(3, 3, 1, 1).then(LayerSpec::GlobalAvgPool {}).done())?;
        check(&net.then(LayerSpec::Transpose {}).linear(3).then(LayerSpec::Transpose {}).then(LayerSpec::GlobalAvgPool {}).done())?;
    }
}

/// A block whose input is added to what it makes of it, and one that halves the image.
fn residual(samples: usize, function: LayerSpec) -> Recipe {
    let net = Net::of(&[1, 4, 4], samples).conv(2, 3, 1, 1).then(function.clone()).named("a");
    let net = net.conv(2, 3, 1, 1).joined(&["a"], None);
    net.done_with_block(function)
}

impl Net {
    /// The sum of a block, a second block, and a layer that gives the scores.
    fn done_with_block(mut self, function: LayerSpec) -> Recipe {
        let sum = self.recipe.layers.len() - 1;
        // The sum is of the block and its input.
        self.recipe.layers[sum - 1].name = Some("b".into());
        self.recipe.layers[sum].from = vec!["b".into(), "a".into()];
        let shape = self.shape.clone();
        let net = self.then(function).named("c").conv(3, 3, 2, 1).named("d");
        let net = net.shaped(&shape).conv(3, 1, 2, 1).from(&["c"]).named("e").joined(&["d", "e"], None);
        net.then(LayerSpec::GlobalAvgPool {}).then(LayerSpec::Relu {}).linear(3).done()
    }
}

/// Layers of several widths that take what all before hand on.
fn dense(samples: usize, function: LayerSpec) -> Recipe {
    let net = Net::of(&[2], samples).linear(3).then(function).named("a").linear(2);
    let net = net.then(LayerSpec::HardSigmoid {}).named("b").joined(&["b", "a", "input"], Some(7));
    let net = net.named("c").linear(3).named("d");
    net.shaped(&[7]).linear(3).from(&["c"]).named("e").joined(&["d", "e", "a"], None).done()
}

/// Convolutions over the steps of a sequence, side by side.
fn text(samples: usize) -> Recipe {
    let net = Net::of(&[4, 2], samples).then(LayerSpec::Transpose {}).named("text");
    let net = net.conv(2, 3, 1, 1).then(LayerSpec::GlobalMaxPool {}).named("three");
    let net =
        net.shaped(&[2, 4]).conv(3, 1, 1, 1).from(&["text"]).then(LayerSpec::AvgPool1d(window(3, 1, 0)));
    let net = net.then(LayerSpec::GlobalMaxPool {}).named("one").joined(&["three", "one"], Some(5));
    net.then(LayerSpec::Relu {}).linear(3).done()
}

/// Normalised layers: one by one, and a block whose input is added to what it makes of it.
fn normalised(samples: usize) -> Recipe {
    let net =
        Net::of(&[1, 4, 4], samples).conv(2, 3, 1, 1).batch_norm(true).then(LayerSpec::Relu {}).named("a");
    let net =
        net.conv(2, 3, 1, 1).batch_norm(true).named("b").joined(&["b", "a"], None).then(LayerSpec::Relu {});
    net.then(LayerSpec::GlobalMaxPool {}).linear(3).done()
}

/// The same of numbers that are no image, without weights and biases, and of several values.
fn normalised_records(samples: usize) -> Recipe {
    let net = Net::of(&[3], samples).linear(3).batch_norm(false).then(LayerSpec::HardTanh {}).named("a");
    let net = net.linear(2).named("b").joined(&["a", "b"], Some(5)).batch_norm(true);
    net.then(LayerSpec::LeakyRelu { slope: None }).linear(3).done()
}

/// Two numbers, normalised.
fn normalised_numbers() -> Recipe {
    Net::of(&[2], 3).linear(2).batch_norm(false).linear(2).done()
}

/// Functions that one gate does not compute.
fn sequence(samples: usize) -> Recipe {
    let net = Net::of(&[1, 4, 4], samples).conv(2, 1, 1, 1);
    let net = net.then(LayerSpec::Square {}).then(LayerSpec::MaxPool2d(window(2, 2, 0)));
    let net = net.then(LayerSpec::LeakyRelu { slope: Some(-1.0) }).then(LayerSpec::GlobalMaxPool {});
    net.linear(3).then(LayerSpec::Relu {}).done()
}

fn function() -> impl Strategy<Value = LayerSpec> {
    prop_oneof![
        Just(LayerSpec::Relu {}),
        Just(LayerSpec::HardTanh {}),
        Just(LayerSpec::LeakyRelu { slope: None }),
        Just(LayerSpec::Identity {}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]
    #[test]
    fn joined_layers_are_those_of_plain_integers(
        function in function(),
        samples in prop::sample::select(vec![1usize, 2, 65]),
        scale in prop::sample::select(vec![0.3f32, 1.0]),
        is_calibrated: bool,
    ) {
        let ranges = if is_calibrated { RangeRule::Calibrated } else { RangeRule::Proven };
        let hidden = HiddenSettings { ranges, ..HiddenSettings::USUAL };
        let nets = [
            residual(samples, function.clone()),
            dense(samples, function),
            text(samples),
            sequence(samples),
            normalised(samples),
            normalised_records(samples),
        ];
        for net in nets {
            check(&Recipe { scale, hidden, ..net })?;
        }
    }
}

/// Words are as wide as an operator's ranges ask for.
#[test]
fn every_width_of_words_is_met_by_deep_nets() {
    let mut met = BTreeSet::new();
    for scale in [0.02, 0.5, 4.0, 30.0] {
        let net = Net::of(&[3], 3).linear(2).then(LayerSpec::Relu {}).linear(2).then(LayerSpec::Square {});
        let net = Recipe { scale, ..net.linear(3).done() };
        check(&net).unwrap();
        met.extend(widths(&net));
    }
    assert_eq!(met.into_iter().collect::<Vec<_>>(), [40, 48, 56, 64]);
}

/// Counts are those of floating-point models but for near ties, of which there are few.
#[test]
fn predictions_are_those_of_the_clear_but_for_near_ties() {
    let function = LayerSpec::LeakyRelu { slope: None };
    let nets = [
        residual(65, function.clone()),
        dense(65, function),
        text(65),
        sequence(65),
        normalised(65),
        normalised_records(65),
        pools(65),
    ];
    for net in nets {
        let (differing, all) = differing(&net);
        assert!(100 * differing <= all, "{differing} of {all}: {net:?}");
    }
}

/// What views say that numbers stand for is what the model computes in double precision.
#[test]
fn numbers_in_views_stand_for_those_of_the_clear() {
    let function = LayerSpec::Relu {};
    let nets = [
        residual(5, function.clone()),
        dense(5, function),
        text(5),
        sequence(5),
        normalised(5),
        normalised_records(5),
    ];
    for net in nets {
        let found = largest_numbers(&net);
        assert!(found.len() > 3, "{net:?}");
        for (read, real) in &found {
            assert!((read - real).abs() <= 0.02 * real + 0.01, "{read} for {real}, of {found:?} in {net:?}");
        }
    }
}

#[test]
fn a_server_reads_the_same_of_joined_layers() {
    for recipe in [residual(1, LayerSpec::Relu {}), dense(3, LayerSpec::Relu {}), normalised_numbers()] {
        for server in [Server::Principal, Server::Auxiliary] {
            assert!(is_equivalent(&recipe, server, Mutation::None, OfTests::None), "{server:?}: {recipe:?}");
        }
    }
}

#[test]
fn without_a_protection_of_joined_layers_the_same_test_fails() {
    let at_both = [OfTests::OpeningCoalition, OfTests::OpeningStage, OfTests::OpeningMask];
    let at_auxiliary = [OfTests::NumbersCoalition, OfTests::NumbersArray];
    let at_both = [Server::Principal, Server::Auxiliary].into_iter().flat_map(|s| at_both.map(|m| (s, m)));
    for (server, mutation) in at_both.chain(at_auxiliary.map(|mutation| (Server::Auxiliary, mutation))) {
        let found = is_equivalent(&dense(2, LayerSpec::Relu {}), server, Mutation::None, mutation);
        assert!(!found, "{server:?}: {mutation:?}");
    }
    for (server, mutation) in
        [(Server::Principal, OfTests::OpeningStage), (Server::Auxiliary, OfTests::NumbersArray)]
    {
        let found = is_equivalent(&normalised_numbers(), server, Mutation::None, mutation);
        assert!(!found, "{server:?}: {mutation:?}, normalised");
    }
}

/// Every kind of stage that pools have.
fn pools(samples: usize) -> Recipe {
    let net = Net::of(&[1, 4, 4], samples).conv(1, 1, 1, 1);
    let net = net.then(LayerSpec::MaxPool2d(window(3, 2, 1))).then(LayerSpec::Relu {});
    let net = net.then(LayerSpec::AvgPool2d(window(2, 1, 0)));
    net.then(LayerSpec::Flatten {}).linear(2).done()
}

#[test]
fn a_server_reads_the_same_of_pools() {
    for server in [Server::Principal, Server::Auxiliary] {
        assert!(is_equivalent(&pools(3), server, Mutation::None, OfTests::None), "{server:?}");
    }
}

#[test]
fn without_a_protection_of_pools_the_same_test_fails() {
    let at_both = [OfTests::OpeningCoalition, OfTests::OpeningStage, OfTests::OpeningMask];
    let at_auxiliary = [OfTests::PlanesCoalition, OfTests::NumbersCoalition, OfTests::NumbersArray];
    let at_both = [Server::Principal, Server::Auxiliary].into_iter().flat_map(|s| at_both.map(|m| (s, m)));
    for (server, mutation) in at_both.chain(at_auxiliary.map(|mutation| (Server::Auxiliary, mutation))) {
        assert!(!is_equivalent(&pools(2), server, Mutation::None, mutation), "{server:?}: {mutation:?}");
    }
}

//! The fast path against one model at a time, and both against plain loops.

use std::{collections::BTreeMap, path::Path};

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::*;
use crate::{Activation, Coalition, Layer, LayerSpec, ModelSpec, Tensor, TestSet, up_to_scores};

/// A gap between the two largest scores below which rounding may decide.
const NEAR_TIE: f64 = 1e-9;

fn linear(name: &str, bias: bool) -> LayerSpec {
    LayerSpec::Linear { weight: format!("{name}.weight"), bias: bias.then(|| format!("{name}.bias")) }
}

fn conv(name: &str, bias: bool, stride: usize, padding: usize) -> LayerSpec {
    let bias = bias.then(|| format!("{name}.bias"));
    LayerSpec::conv2d(format!("{name}.weight"), bias, stride, padding)
}

fn gru(bias_ih: bool, bias_hh: bool) -> LayerSpec {
    LayerSpec::Gru {
        weight_ih: "gru.weight_ih_l0".into(),
        weight_hh: "gru.weight_hh_l0".into(),
        bias_ih: bias_ih.then(|| "gru.bias_ih_l0".into()),
        bias_hh: bias_hh.then(|| "gru.bias_hh_l0".into()),
    }
}

fn shapes(entries: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
    entries.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
}

/// Every kind of layer, first and in between, with and without biases.
#[expect(clippy::too_many_lines, reason = "every layer kind once")]
fn architecture(kind: usize) -> Architecture {
    let (relu, square) = (LayerSpec::Relu {}, LayerSpec::Square {});
    let (sigmoid, tanh, softmax) = (LayerSpec::Sigmoid {}, LayerSpec::Tanh {}, LayerSpec::Softmax {});
    let flatten = LayerSpec::Flatten {};
    let (input, layers, shapes): (Vec<usize>, Vec<LayerSpec>, _) = match kind {
        0 => (vec![7], vec![linear("a", true)], shapes(&[("a.weight", &[3, 7]), ("a.bias", &[3])])),
        1 => (vec![5], vec![linear("a", false), sigmoid], shapes(&[("a.weight", &[3, 5])])),
        2 => (
            vec![2, 6, 5],
            vec![
                conv("a", true, 2, 1),
                square.clone(),
                flatten,
                linear("b", true),
                square,
                linear("c", false),
            ],
            shapes(&[
                ("a.weight", &[3, 2, 3, 2]),
                ("a.bias", &[3]),
                ("b.weight", &[6, 27]),
                ("b.bias", &[6]),
                ("c.weight", &[3, 6]),
            ]),
        ),
        3 => (
            vec![4, 3],
            vec![gru(true, true), linear("b", true), softmax],
            shapes(&[
                ("gru.weight_ih_l0", &[15, 3]),
                ("gru.weight_hh_l0", &[15, 5]),
                ("gru.bias_ih_l0", &[15]),
                ("gru.bias_hh_l0", &[15]),
                ("b.weight", &[3, 5]),
                ("b.bias", &[3]),
            ]),
        ),
        4 => (
            vec![2, 3],
            vec![
                square,
                softmax,
                linear("a", true),
                gru(false, true),
                relu.clone(),
                linear("b", false),
                relu,
            ],
            shapes(&[
                ("a.weight", &[4, 3]),
                ("a.bias", &[4]),
                ("gru.weight_ih_l0", &[6, 4]),
                ("gru.weight_hh_l0", &[6, 2]),
                ("gru.bias_hh_l0", &[6]),
                ("b.weight", &[3, 2]),
            ]),
        ),
        _ => (
            vec![1, 5, 5],
            vec![
                conv("a", false, 1, 0),
                tanh.clone(),
                conv("b", true, 1, 2),
                relu,
                flatten,
                linear("c", true),
                tanh,
            ],
            shapes(&[
                ("a.weight", &[2, 1, 3, 3]),
                ("b.weight", &[2, 2, 2, 2]),
                ("b.bias", &[2]),
                ("c.weight", &[3, 72]),
                ("c.bias", &[3]),
            ]),
        ),
    };
    let spec = ModelSpec::new(input, 3, layers);
    Architecture::new(&spec, &shapes, Path::new("federation.toml"), Path::new("initial.safetensors")).unwrap()
}

fn random_weights(architecture: &Architecture, rng: &mut ChaCha20Rng) -> Weights {
    let tensors = architecture.tensors().iter().map(|(name, shape)| {
        let values = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0f32)).collect();
        (name.clone(), Tensor::new(shape.clone(), values).unwrap())
    });
    tensors.collect()
}

fn random_test_set(
    architecture: &Architecture,
    samples: usize,
    rng: &mut ChaCha20Rng,
) -> CollectiveTestSet<'static> {
    let input = architecture.input().to_vec();
    let features = (0..samples * architecture.input_size()).map(|_| rng.random_range(-2.0..2.0f32)).collect();
    let labels = (0..samples).map(|_| rng.random_range(0..3)).collect();
    let test_set = TestSet::new(input, features, labels).unwrap();
    CollectiveTestSet::new(architecture.input_size(), [&test_set]).unwrap().into_owned()
}

/// One sample through one model, a number at a time.
fn plain_scores(layers: &[PlacedLayer], model: &BTreeMap<String, Vec<f64>>, sample: &[f32]) -> Vec<f64> {
    let mut x: Vec<f64> = sample.iter().map(|&v| f64::from(v)).collect();
    let bias = |name: &Option<String>, i: usize| name.as_ref().map_or(0.0, |name| model[name][i]);
    for placed in layers {
        x = match &placed.layer {
            Layer::Linear(l) => (0..l.positions * l.outputs)
                .map(|i| {
                    let (position, output) = (i / l.outputs, i % l.outputs);
                    let dot = |j| model[&l.weight][output * l.inputs + j] * x[position * l.inputs + j];
                    bias(&l.bias, output) + (0..l.inputs).map(dot).sum::<f64>()
                })
                .collect(),
            Layer::Conv2d(c) => plain_conv(c, model, &x),
            Layer::Gru(g) => plain_gru(g, model, &x),
            Layer::Activation(Activation::Relu, _) => x.iter().map(|v| v.max(0.0)).collect(),
            Layer::Activation(Activation::Sigmoid, _) => x.iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect(),
            Layer::Activation(Activation::Tanh, _) => x.iter().map(|v| v.tanh()).collect(),
            Layer::Activation(Activation::Square, _) => x.iter().map(|v| v * v).collect(),
            Layer::Activation(Activation::Softmax(width), _) => x
                .chunks(*width)
                .flat_map(|run| {
                    let sum: f64 = run.iter().map(|v| v.exp()).sum();
                    run.iter().map(move |v| v.exp() / sum)
                })
                .collect(),
            other => panic!("{} has tests of its own", other.kind()),
        };
    }
    x
}

fn plain_conv(c: &crate::Conv2d, model: &BTreeMap<String, Vec<f64>>, x: &[f64]) -> Vec<f64> {
    let ([channels, height, width], [outputs, rows, columns], [kh, kw]) = (c.input, c.output, c.kernel);
    let mut out = Vec::new();
    for (o, row, column) in positions(outputs, rows, columns) {
        let mut sum = c.bias.as_ref().map_or(0.0, |name| model[name][o]);
        for (channel, y, z) in positions(channels, kh, kw) {
            let (py, pz) = (row * c.stride[0] + y, column * c.stride[1] + z);
            let ([above, left], inside) =
                (c.padding, |p: usize, pad: usize, size: usize| p >= pad && p - pad < size);
            if inside(py, above, height) && inside(pz, left, width) {
                let pixel = x[(channel * height + py - above) * width + pz - left];
                sum += model[&c.weight][((o * channels + channel) * kh + y) * kw + z] * pixel;
            }
        }
        out.push(sum);
    }
    out
}

fn positions(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |i| (i / (b * c), i / c % b, i % c))
}

fn plain_gru(g: &crate::Gru, model: &BTreeMap<String, Vec<f64>>, x: &[f64]) -> Vec<f64> {
    let mut h = vec![0.0; g.hidden];
    let gate = |weight: &String, bias: &Option<String>, row: usize, v: &[f64]| {
        let w = &model[weight][row * v.len()..][..v.len()];
        w.iter().zip(v).map(|(a, b)| a * b).sum::<f64>() + bias.as_ref().map_or(0.0, |b| model[b][row])
    };
    for step in x.chunks(g.features) {
        let next = (0..g.hidden).map(|i| {
            let input = |k: usize| gate(&g.weight_ih, &g.bias_ih, k * g.hidden + i, step);
            let hidden = |k: usize| gate(&g.weight_hh, &g.bias_hh, k * g.hidden + i, &h);
            let logistic = |v: f64| 1.0 / (1.0 + (-v).exp());
            let (r, z) = (logistic(input(0) + hidden(0)), logistic(input(1) + hidden(1)));
            let n = (input(2) + r * hidden(2)).tanh();
            (1.0 - z) * n + z * h[i]
        });
        h = next.collect();
    }
    h
}

fn gap(scores: &[f64]) -> f64 {
    let best = predicted(scores);
    let others = scores.iter().enumerate().filter(|(class, _)| *class != best);
    others.map(|(_, score)| scores[best] - score).fold(f64::INFINITY, f64::min)
}

struct Case {
    architecture: Architecture,
    test_set: CollectiveTestSet<'static>,
    models: Vec<(usize, f64, Weights)>,
}

impl Case {
    /// A round of a federation of `clients` in which some are absent.
    fn random(kind: usize, clients: usize, samples: usize, rng: &mut ChaCha20Rng) -> Self {
        let architecture = architecture(kind);
        let test_set = random_test_set(&architecture, samples, rng);
        let mut models: Vec<_> = (0..clients)
            .map(|position| {
                (position, f64::from(rng.random_range(1..500u32)), random_weights(&architecture, rng))
            })
            .collect();
        let present = rng.random_range(1..=clients);
        while models.len() > present {
            models.remove(rng.random_range(0..models.len()));
        }
        Self { architecture, test_set, models }
    }

    /// Results of plain loops for one coalition: right samples, and those too close to call.
    fn plain(&self, coalition: Coalition) -> (SampleSet, SampleSet) {
        let members: Vec<_> =
            self.models.iter().filter(|(position, ..)| coalition.contains(*position)).collect();
        let total: f64 = members.iter().map(|(_, weight, _)| *weight).sum();
        let mut model = BTreeMap::new();
        for (name, shape) in self.architecture.tensors() {
            let mut mean = vec![0.0; shape.iter().product()];
            for (_, weight, weights) in &members {
                for (mean, v) in mean.iter_mut().zip(weights.get(name).unwrap().numbers()) {
                    *mean += weight / total * v;
                }
            }
            model.insert(name.clone(), mean);
        }
        let layers = up_to_scores(self.architecture.layers());
        let mut right = SampleSet::none(self.test_set.len());
        let mut close = SampleSet::none(self.test_set.len());
        for sample in 0..self.test_set.len() {
            let scores = plain_scores(layers, &model, self.test_set.sample(sample));
            if gap(&scores) < NEAR_TIE {
                close.insert(sample);
            }
            if predicted(&scores) as i64 == self.test_set.labels()[sample] {
                right.insert(sample);
            }
        }
        (right, close)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn coalitions_by_sums_equal_models_tested_one_at_a_time(
        seed: u64, kind in 0..6usize, clients in 4..=8usize, samples in 1..200usize,
    ) {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let case = Case::random(kind, clients, samples, &mut rng);
        let round = ClearRound::new(&case.architecture, &case.test_set, case.models.clone());
        let whole = ClearRound::with_budget(&case.architecture, &case.test_set, case.models.clone(), 0);
        let coalitions: Vec<_> = round.participants().subsets().skip(1).collect();
        let mut some = SampleSet::none(samples);
        (0..samples).filter(|_| rng.random_bool(0.4)).for_each(|s| some.insert(s));
        let on = |samples: &SampleSet| -> Vec<_> { coalitions.iter().map(|&c| (c, samples.clone())).collect() };
        let all = SampleSet::all(samples);
        let (fast, slow) = (round.correct_samples(&on(&all)), whole.correct_samples(&on(&all)));
        let on_some = round.correct_samples(&on(&some));
        for (index, &coalition) in coalitions.iter().enumerate() {
            let (right, close) = case.plain(coalition);
            prop_assert_eq!(fast[index].difference(&close), right.difference(&close));
            prop_assert_eq!(slow[index].difference(&close), right.difference(&close));
            let left_out = all.difference(&some);
            prop_assert_eq!(&on_some[index], &fast[index].difference(&left_out));
        }
    }

    #[test]
    fn scores_are_those_of_plain_loops(seed: u64, kind in 0..6usize) {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let architecture = architecture(kind);
        let weights = random_weights(&architecture, &mut rng);
        let test_set = random_test_set(&architecture, 3, &mut rng);
        let features: Vec<f32> = (0..3).flat_map(|s| test_set.sample(s).to_vec()).collect();
        let found = scores(&architecture, &weights, &features);
        let model = weights
            .iter()
            .map(|(name, t)| (name.to_owned(), t.numbers().collect()))
            .collect();
        for (sample, found) in found.chunks(3).enumerate() {
            let expected = plain_scores(architecture.layers(), &model, test_set.sample(sample));
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert!((found - expected).abs() < 1e-11 * expected.abs().max(1.0));
            }
        }
    }
}

#[test]
fn ties_go_to_the_lowest_class_and_saturation_makes_none() {
    assert_eq!(predicted(&[1.0, 3.0, 3.0]), 1);
    assert_eq!(predicted(&[0.0, 0.0, 0.0]), 0);
    let architecture = architecture(1);
    let values = [40.0, 60.0, 50.0].iter().flat_map(|&score| [score, 0.0, 0.0, 0.0, 0.0]).collect();
    let weights = Weights::from_iter([("a.weight".to_owned(), Tensor::new(vec![3, 5], values).unwrap())]);
    let test_set = TestSet::new(vec![5], vec![1.0, 0.0, 0.0, 0.0, 0.0], vec![1]).unwrap();
    let test_set = CollectiveTestSet::new(5, [&test_set]).unwrap();
    let parameters = ModelParameters::new(&architecture, &weights);
    assert!(correct_samples(&architecture, &parameters, &test_set, &SampleSet::all(1)).is_all());
    let round = ClearRound::new(&architecture, &test_set, [(2, 7.0, weights)]);
    assert!(round.correct_samples(&[(Coalition::EMPTY.with(2), SampleSet::all(1))])[0].is_all());
}

#[test]
fn no_samples_and_one_sample_are_tested_too() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for samples in [0, 1] {
        let case = Case::random(2, 4, samples, &mut rng);
        let round = ClearRound::new(&case.architecture, &case.test_set, case.models.clone());
        let coalition = round.participants();
        let correct = round.correct_samples(&[(coalition, SampleSet::all(samples))]);
        assert_eq!(correct[0], case.plain(coalition).0);
    }
}

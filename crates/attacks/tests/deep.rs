//! Deep models under BlindSV: images from first layers, later layers from their ends, hidden weights of a block whose input is added to
//! what it makes of it. One server, one client or all clients find nothing; both servers together find everything.

#![cfg(test)]

mod support;

use std::collections::BTreeMap;

use secsv_attacks::{
    ClientView, equations,
    hidden::{Hidden, HiddenNumbers, Place},
    images,
    linear::correlation,
    models, pads,
};
use secsv_federation::{
    Coalition, ConvolutionSpec, LayerSpec, ModelSpec, NamedLayer, RoundId, Tensor, Weights,
};
use secsv_protocol::{
    precision::shares,
    session::{HiddenSettings, RangeRule},
};
use secsv_training::{DatasetSource, ModelKind};
use support::{Trained, Training, Views};

/// Few enough for seconds; a client more than an attacker and a victim.
const CLIENTS: usize = 3;
/// Of one owner's samples: more are tested in a second chunk.
const CHUNK: usize = 128;
/// What unrelated numbers are not off by, in some ten thousand comparisons.
const DEVIATIONS: f64 = 6.0;

/// Images that are rebuilt.
#[derive(Clone, Copy, Debug)]
struct Images {
    /// Correlate by more than 0.9, each by itself.
    right: usize,
    all: usize,
    correlation: f64,
    /// Root mean square error, and that of the mean of the attacker's own samples.
    rms: f64,
    guess: f64,
}

/// The image attack on an owner's samples, by all rounds.
fn images(trained: &Trained, view: &ClientView, owner: usize) -> Option<Images> {
    let rounds: Vec<RoundId> = trained.run.spec().round_ids().collect();
    let system = equations::known(view, owner, &rounds).unwrap()?;
    let found = images::rebuild(&system, view.own.features())?;
    let (pixels, truth) = (system.matrix.ncols(), trained.truth(owner));
    let truth: Vec<f64> = truth.iter().map(|&x| f64::from(x)).collect();
    let own = view.own.features();
    let mean = |pixel: usize| {
        own.iter().skip(pixel).step_by(pixels).map(|&x| f64::from(x)).sum::<f64>() / view.own.len() as f64
    };
    let mean: Vec<f64> = (0..pixels).map(mean).collect();
    let pairs = || system.samples.iter().enumerate();
    let is_right = |&(place, &sample): &(usize, &usize)| {
        correlation(found.column(place).iter(), &truth[sample * pixels..][..pixels]) > 0.9
    };
    let squares = |of: &dyn Fn(usize, usize) -> f64| {
        let of_sample = |(place, &sample): (usize, &usize)| {
            (0..pixels).map(|i| (of(place, i) - truth[sample * pixels + i]).powi(2)).sum::<f64>()
        };
        (pairs().map(of_sample).sum::<f64>() / (pixels * system.samples.len()) as f64).sqrt()
    };
    let of_samples: Vec<f64> = pairs().flat_map(|(_, &k)| truth[k * pixels..][..pixels].to_vec()).collect();
    Some(Images {
        right: pairs().filter(is_right).count(),
        all: system.samples.len(),
        correlation: correlation(found.iter(), &of_samples),
        rms: squares(&|place, i| found[(i, place)]),
        guess: squares(&|_, i| mean[i]),
    })
}

/// A layer that was found by regression.
#[derive(Clone, Copy, Debug)]
struct Stolen {
    /// With the true weights and biases.
    correlation: f64,
    /// How far weights and biases are off, beside them.
    off: f64,
    /// How far outputs are off, beside them, on the samples of the run.
    outputs: f64,
}

/// Single models' layers by regression, in all rounds.
fn layers(
    trained: &Trained,
    views: &Views,
    (outputs, inputs, truth): (&HiddenNumbers, &HiddenNumbers, &HiddenNumbers),
    operator: usize,
) -> Vec<Stolen> {
    let program = &views.clients[0].program;
    let rounds = trained.run.spec().round_ids();
    let single = rounds.flat_map(|round| (0..CLIENTS).map(move |client| (round, client)));
    let of_model = |(round, client): (RoundId, usize)| {
        let model = (round, Coalition::EMPTY.with(client));
        let found = models::between_ends(outputs, inputs, program, operator, model)?;
        let (matrix, _) = truth.ends(truth, program, operator, model)?;
        let layer = support::layer(program, operator, &trained.local(client, round.0));
        let off = &found - &layer;
        Some(Stolen {
            correlation: correlation(found.iter(), layer.iter()),
            off: off.norm() / layer.norm(),
            outputs: (&matrix * off.transpose()).norm() / (&matrix * layer.transpose()).norm(),
        })
    };
    single.filter_map(of_model).collect()
}

/// The second layer of single models by the program for clients who read outputs.
fn second_layers(trained: &Trained, view: &ClientView) -> Vec<(f64, f64)> {
    let meetings = models::meetings(view).into_iter().filter(|m| m.operator == 1 && m.coalition.len() == 1);
    let of_meeting = |meeting: models::Meeting| {
        // Fewer samples than unknowns leave weights open.
        let samples = trained.truth(meeting.owner).len() / view.program.input_size;
        let is_enough = samples > view.program.operators[1].shape.d_in;
        let layer = models::second_layer(view, &meeting).ok()?.filter(|_| is_enough)?;
        let of = meeting.coalition.members().next()?;
        let truth = support::layer(&view.program, 1, &trained.local(of, meeting.round.0));
        Some((correlation(layer.iter(), truth.iter()), (&layer - &truth).norm() / truth.norm()))
    };
    meetings.filter_map(of_meeting).collect()
}

/// Both servers together have samples, local models and hidden numbers to the last bit.
fn both_have_everything(name: &str, trained: &Trained, views: &Views, pooled: &HiddenNumbers) {
    let directory = &views.directory;
    let view = &views.clients[0];
    let [_, bits] = directory.sample_bits();
    let mut samples = BTreeMap::new();
    for owner in 0..CLIENTS {
        let (truth, pixels) = (trained.truth(owner), view.program.input_size);
        let scale = f64::powi(2.0, bits as i32);
        let found = pooled.samples[&owner].map(|x| (x * scale) as i64);
        for (index, x) in truth.iter().enumerate() {
            let encoded = (f64::from(*x) * scale).round_ties_even() as i64;
            assert_eq!(found[(index % pixels, index / pixels)], encoded, "{name}: sample of {owner}");
        }
        samples.insert(owner, found);
    }
    let local = directory.pooled_models().unwrap();
    for (&(round, client, operator), words) in &local {
        let share = shares(&view.sizes[&round])[client];
        let scale =
            share * f64::powi(2.0, view.precision.operators[operator].weight.fractional_bits() as i32);
        let truth = support::layer(&view.program, operator, &trained.local(client, round.0));
        let (rows, d_in) = (truth.nrows(), truth.ncols() - 1);
        for (index, word) in words[..rows * d_in].iter().enumerate() {
            let off = *word as f64 - truth[(index / d_in, index % d_in)] * scale;
            assert!(off.abs() <= 1.0, "{name}: operator {operator} of {client} is off by {off}");
        }
    }
    // Hidden numbers of the first layer are what these samples and models give, in integers.
    let first = &view.program.operators[0];
    let (sources, d_in) = (secsv_attacks::operators::sources(&view.program, 0).unwrap(), first.shape.d_in);
    let mut exact = 0;
    for hidden in pooled.all.iter().filter(|hidden| hidden.stage == 0) {
        let words = hidden.coalition.members().map(|client| &local[&(hidden.round, client, 0)]);
        let model = words.fold(vec![0i64; first.shape.d_out * (d_in + 1)], |sum, words| {
            sum.iter().zip(words).map(|(a, b)| a.wrapping_add(*b)).collect()
        });
        let total: f64 = hidden.coalition.members().map(|i| shares(&view.sizes[&hidden.round])[i]).sum();
        let product = total * f64::powi(2.0, view.precision.operators[0].product_bits() as i32);
        let factor = (hidden.scale * product).recip().round() as i64;
        for (position, j) in (0..first.positions).flat_map(|p| (0..first.shape.d_out).map(move |j| (p, j))) {
            for (place, &sample) in hidden.samples.iter().enumerate() {
                let window = sources[position * d_in..][..d_in].iter().zip(&model[j * d_in..]);
                let sum = window.filter_map(|(from, w)| Some(samples[&hidden.owner][((*from)?, sample)] * w));
                let output = (sum.sum::<i64>() + model[first.shape.d_out * d_in + j]) * factor;
                let row = first.target(j, position);
                let number = hidden.numbers[row * hidden.samples.len() + place] - hidden.offset;
                assert_eq!(number, output, "{name}: {:?}", hidden.place());
                exact += 1;
            }
        }
    }
    println!(
        "{name}, both servers: samples of {CLIENTS} owners, {} operators of models, {exact} hidden numbers, exactly",
        local.len()
    );
    assert!(exact > 1000 && !local.is_empty());
}

/// What one server has shows nothing of what is behind it, in no array and in no difference of two.
fn nothing_shows(name: &str, trained: &Trained, views: &Views, pooled: &HiddenNumbers, ways: &[&str]) {
    for server in ["principal", "auxiliary"] {
        let derived = views.directory.hidden(server).unwrap();
        let sent = views.directory.sent_to(server).unwrap();
        assert_eq!((derived.all.len(), sent.all.len()), (pooled.all.len(), pooled.all.len()));
        for (what, have) in [("under the other's masks", &derived), ("as it came", &sent)] {
            let found = pads::echoes(have, pooled);
            for way in ways {
                let echo = found[way];
                println!("{name}, {server}, {what}, differing in {way}: {echo:?}");
                assert!(echo.pairs > 0 && echo.deviations < DEVIATIONS, "{way}: {echo:?}");
            }
        }
        let program = &views.clients[0].program;
        let mut largest = 0.0f64;
        for (&(round, client, operator), words) in
            views.directory.masked_models(server).unwrap().iter().flatten()
        {
            let truth = support::layer(program, operator, &trained.local(client, round.0));
            let weights = truth.columns(0, truth.ncols() - 1).transpose();
            let words: Vec<f64> = words[..weights.len()].iter().map(|&word| word as f64).collect();
            largest = largest.max(correlation(&words, weights.iter()).abs() * (words.len() as f64).sqrt());
        }
        println!("{name}, {server}, masked models: {largest:.1} deviations");
        assert!(largest > 0.0 && largest < DEVIATIONS, "{name}: masked models, {largest}");
    }
    let found = pads::echoes(pooled, pooled);
    assert!(found.values().all(|echo| echo.correlation > 0.9999), "{found:?}");
    trained.assert_shares_are_noise(views);
}

/// What one server has, as it would be if arrays that differ in one way alone had the masks of the first of them.
fn used_twice(have: &HiddenNumbers, truth: &HiddenNumbers, way: &str) -> HiddenNumbers {
    let behind: BTreeMap<Place, &Hidden> = truth.all.iter().map(|hidden| (hidden.place(), hidden)).collect();
    let mut first: BTreeMap<Place, Vec<i64>> = BTreeMap::new();
    let mut found = have.clone();
    for hidden in &mut found.all {
        let (mut place, numbers) = (hidden.place(), &behind[&hidden.place()].numbers);
        match way {
            "coalition" => place.coalition = Coalition::EMPTY,
            "round" => place.round = RoundId(0),
            "owner" => place.owner = 0,
            "chunk" => place.first = None,
            _ => place.stage = 0,
        }
        let own = || hidden.numbers.iter().zip(numbers).map(|(a, b)| a.wrapping_sub(*b)).collect();
        let masks = first.entry(place).or_insert_with(own).clone();
        let unused = 64 - have.bits(hidden.stage);
        hidden.numbers = numbers
            .iter()
            .zip(masks.iter().cycle())
            .map(|(number, mask)| (number.wrapping_add(*mask) << unused) >> unused)
            .collect();
    }
    found
}

/// The image attack: nobody's images for anybody alone and for all clients together.
fn images_are_hidden(name: &str, trained: &Trained, views: &Views, pooled: &HiddenNumbers) {
    for owner in 0..CLIENTS {
        let attacker = (owner + 1) % CLIENTS;
        for (who, view) in views.blind_attackers(owner, attacker) {
            let Some(found) = images(trained, &view, owner) else {
                println!("{name}, {who} against {owner}: no equation");
                assert!(view.outputs.is_empty());
                continue;
            };
            println!("{name}, {who} against {owner}: {found:?}");
            assert!(found.right == 0 && found.rms > found.guess, "{who}: {found:?}");
        }
        let view = &views.clients[attacker];
        let both = ClientView { outputs: pooled.outputs(view), ..view.clone() };
        let found = images(trained, &both, owner).unwrap();
        println!("{name}, both servers against {owner}: {found:?}");
        assert!(found.right == found.all && found.correlation > 0.999, "{found:?}");
        assert_eq!(found.all, trained.truth(owner).len() / view.program.input_size);
    }
}

/// Layers of single models by regression, from both ends: of what one server has, and of its outputs given the true inputs. `stolen` are
/// operators, and how well both servers together find them: an input that no sample lights up leaves weights open.
fn layers_are_hidden(
    name: &str,
    trained: &Trained,
    views: &Views,
    pooled: &HiddenNumbers,
    stolen: &[(usize, f64)],
) {
    for &(operator, least) in stolen {
        let found = layers(trained, views, (pooled, pooled, pooled), operator);
        let worst = found.iter().map(|found| found.correlation).fold(1.0, f64::min);
        let outputs = found.iter().map(|found| found.outputs).fold(0.0, f64::max);
        println!(
            "{name}, both servers, operator {operator}: {} layers, correlation {worst:.6} or more, outputs off by {outputs:.1e} of them at most",
            found.len()
        );
        assert!(found.len() >= CLIENTS && worst > least && outputs < 1e-3, "{found:?}");
        for server in ["principal", "auxiliary"] {
            let own = views.directory.hidden(server).unwrap();
            let helped = HiddenNumbers { samples: pooled.samples.clone(), ..own.clone() };
            for (what, inputs) in [("its inputs", &helped), ("given the true inputs", pooled)] {
                let found = layers(trained, views, (&own, inputs, pooled), operator);
                let most = found.iter().map(|found| found.correlation.abs()).fold(0.0, f64::max);
                let off =
                    found.iter().map(|found| found.off.min(found.outputs)).fold(f64::INFINITY, f64::min);
                println!(
                    "{name}, {server}, operator {operator}, {what}: {} layers, correlation {most:.3} at most, off by {off:.2} times them at least",
                    found.len()
                );
                // No nearer than zeros would be.
                assert!(found.len() >= CLIENTS && off > 0.95 && most < 0.5, "{found:?}");
            }
        }
    }
    for client in &trained.run.spec().clients {
        let hidden = views.directory.hidden(&format!("client {}", client.id)).unwrap();
        assert!(hidden.all.is_empty());
        assert!(layers(trained, views, (&hidden, pooled, pooled), stolen[0].0).is_empty());
    }
}

/// A federation of digits, of which one owner has more samples than a chunk.
fn digits() -> Trained {
    let training = Training { clients: CLIENTS, rounds: 2, epochs: Some(1), limits: (None, None) };
    let trained = Trained::new(&DatasetSource::Digits, None, ModelKind::Cnn, training);
    let sizes: Vec<usize> = (0..CLIENTS).map(|owner| trained.truth(owner).len() / 64).collect();
    println!("digits: samples of each owner {sizes:?}");
    assert!(sizes.iter().any(|size| *size > CHUNK + 32), "one chunk each: {sizes:?}");
    trained
}

#[test]
fn a_convolution_with_squares_hides_everything_from_each() {
    let trained = digits();
    let views = trained.blind_views(HiddenSettings::USUAL);
    let pooled = views.directory.pooled().unwrap();
    both_have_everything("squares", &trained, &views, &pooled);
    nothing_shows("squares", &trained, &views, &pooled, &pads::WAYS);
    let own = views.directory.hidden("principal").unwrap();
    for way in &pads::WAYS[1..] {
        let echo = pads::echoes(&used_twice(&own, &pooled, way), &pooled)[way];
        println!("squares, principal, pads used twice, differing in {way}: {echo:?}");
        assert!(echo.correlation > 0.999 && echo.deviations > DEVIATIONS, "{way}: {echo:?}");
    }
    images_are_hidden("squares", &trained, &views, &pooled);
    layers_are_hidden("squares", &trained, &views, &pooled, &[(0, 0.999), (1, 0.999), (2, 0.999)]);
    // The program for clients who read outputs of two layers finds as much.
    for (who, view) in views.blind_attackers(0, 1) {
        let found = second_layers(&trained, &view);
        println!("squares, {who}: layer 2 {found:?}");
        assert!(found.iter().all(|(correlation, off)| correlation.abs() < 0.5 && *off > 0.95), "{found:?}");
    }
    let both = views.both_servers(1);
    let found = second_layers(&trained, &both);
    println!("squares, both servers: layer 2 {found:?}");
    assert!(!found.is_empty() && found.iter().all(|(correlation, _)| *correlation > 0.999), "{found:?}");
}

/// The weights of the same federation with ReLU for squares, and hidden numbers in measured ranges that are checked.
#[test]
fn a_convolution_with_relu_hides_everything_from_each() {
    let trained = digits();
    let mut model = trained.run.spec().model.clone();
    for layer in &mut model.layers {
        if layer.layer == (LayerSpec::Square {}) {
            layer.layer = LayerSpec::Relu {};
        }
    }
    let rounds = trained.run.spec().round_ids();
    let all = rounds.flat_map(|round| (0..CLIENTS).map(move |client| (round, client)));
    let models: BTreeMap<_, _> = all.map(|place| (place, trained.local(place.1, place.0.0))).collect();
    let initial = trained.run.initial_model().unwrap();
    let trained = trained.with_models(model, &initial, |round, client| models[&(round, client)].clone());
    let hidden = HiddenSettings { ranges: RangeRule::Calibrated, checks_all: true, ..HiddenSettings::USUAL };
    let views = trained.blind_views(hidden);
    let pooled = views.directory.pooled().unwrap();
    both_have_everything("relu", &trained, &views, &pooled);
    nothing_shows("relu", &trained, &views, &pooled, &pads::WAYS);
    images_are_hidden("relu", &trained, &views, &pooled);
    layers_are_hidden("relu", &trained, &views, &pooled, &[(0, 0.999), (1, 0.8), (2, 0.8)]);
}

/// A convolution whose input is added to what it gives: its weights follow from what it takes and the sum.
fn residual(trained: Trained) -> Trained {
    let conv = |name: &str| {
        let (weight, bias) = (format!("{name}.weight"), Some(format!("{name}.bias")));
        LayerSpec::Conv2d(ConvolutionSpec { weight, bias, stride: 1, padding: 1, dilation: 1, groups: 1 })
    };
    let named = |layer: LayerSpec, name: &str| NamedLayer { name: Some(name.into()), ..layer.into() };
    let sum = NamedLayer { from: vec!["second".into(), "first".into()], ..LayerSpec::Add {}.into() };
    let fc = LayerSpec::Linear { weight: "fc.weight".into(), bias: Some("fc.bias".into()) };
    let layers: Vec<NamedLayer> = vec![
        conv("a").into(),
        named(LayerSpec::Relu {}, "first"),
        named(conv("b"), "second"),
        sum,
        LayerSpec::Relu {}.into(),
        LayerSpec::Flatten {}.into(),
        fc.into(),
    ];
    let model = ModelSpec::new(vec![1, 8, 8], 10, layers);
    let shapes: [(&str, &[usize]); 6] = [
        ("a.weight", &[4, 1, 3, 3]),
        ("a.bias", &[4]),
        ("b.weight", &[4, 4, 3, 3]),
        ("b.bias", &[4]),
        ("fc.weight", &[10, 256]),
        ("fc.bias", &[10]),
    ];
    // Clients' models are near to each other, as after training.
    let weights = |round: u32, client: usize| {
        let tensor = |(index, (name, shape)): (usize, &(&str, &[usize]))| {
            let count: usize = shape.iter().product();
            let size = ((shape[1..].iter().product::<usize>().max(9)) as f32).sqrt();
            let wave = |seed: usize, k: usize| (((k + 1) * (2 * seed + 3)) as f32 * 0.7371).sin();
            let of = |k| {
                let own = wave(17 + 5 * index + 31 * client + 97 * round as usize, k);
                (wave(index, k) + 0.3 * own) / size
            };
            (name.to_string(), Tensor::new(shape.to_vec(), (0..count).map(of).collect()).unwrap())
        };
        shapes.iter().enumerate().map(tensor).collect::<Weights>()
    };
    trained.with_models(model, &weights(0, 0), |round, client| weights(round.0, client))
}

#[test]
fn a_residual_block_hides_its_weights_from_each() {
    let trained = residual(digits());
    let views = trained.blind_views(HiddenSettings::USUAL);
    let pooled = views.directory.pooled().unwrap();
    both_have_everything("residual", &trained, &views, &pooled);
    nothing_shows("residual", &trained, &views, &pooled, &pads::WAYS);
    images_are_hidden("residual", &trained, &views, &pooled);
    layers_are_hidden("residual", &trained, &views, &pooled, &[(0, 0.999), (1, 0.999)]);
}

/// The paper's convolutional network.
#[test]
fn the_papers_convolution_hides_everything_from_each() {
    let Some(data) = support::data() else { return };
    let training = Training { clients: CLIENTS, rounds: 3, epochs: Some(1), limits: (Some(3000), Some(90)) };
    let trained = Trained::new(&DatasetSource::Mnist, Some(&data), ModelKind::Cnn, training);
    let views = trained.blind_views(HiddenSettings::USUAL);
    let pooled = views.directory.pooled().unwrap();
    both_have_everything("mnist", &trained, &views, &pooled);
    let ways = ["nothing", "coalition", "round", "owner", "stage"];
    nothing_shows("mnist", &trained, &views, &pooled, &ways);
    images_are_hidden("mnist", &trained, &views, &pooled);
    layers_are_hidden("mnist", &trained, &views, &pooled, &[(0, 0.999)]);
}

//! A model as Keras lays it out hands on what the same model hands on as PyTorch lays it out.

use secsv_federation::{ClientId, RunDirectory, clear::scores};

use super::files::{Array, Files, f32s, i64s};

/// Tensors by name and shape, numbered through so that no two numbers are alike.
struct Numbers(f32);

impl Numbers {
    fn of(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| {
                self.0 = (self.0 * 1.7 + 0.31) % 1.0;
                self.0 - 0.5
            })
            .collect()
    }
}

/// The element of a row-major array.
fn at(values: &[f32], shape: &[usize], index: &[usize]) -> f32 {
    values[index.iter().zip(shape).fold(0, |place, (i, size)| place * size + i)]
}

/// Every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &size| {
        all.iter().flat_map(|index| (0..size).map(move |i| [&index[..], &[i]].concat())).collect()
    })
}

/// The array with its axes in another order, as NumPy's `transpose` gives it.
fn transposed(values: &[f32], shape: &[usize], axes: &[usize]) -> (Vec<f32>, Vec<usize>) {
    let to: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    let moved = indices(&to).into_iter().map(|index| {
        let mut from = vec![0; shape.len()];
        axes.iter().zip(&index).for_each(|(&axis, &i)| from[axis] = i);
        at(values, shape, &from)
    });
    (moved.collect(), to)
}

const LAYERS: &str = "
[[model.layers]]
kind = \"conv2d\"
weight = \"conv\"
bias = \"conv bias\"
padding = 1
[[model.layers]]
kind = \"relu\"
[[model.layers]]
kind = \"conv2d\"
weight = \"depth\"
groups = 3
[[model.layers]]
kind = \"batch-norm\"
mean = \"channel mean\"
variance = \"channel variance\"
epsilon = 0.001
[[model.layers]]
kind = \"max-pool2d\"
size = 2
[[model.layers]]
kind = \"flatten\"
name = \"flat\"
[[model.layers]]
kind = \"batch-norm\"
weight = \"scale\"
mean = \"mean\"
variance = \"variance\"
epsilon = 0.001
[[model.layers]]
kind = \"identity\"
name = \"normal\"
[[model.layers]]
kind = \"concat\"
from = [\"flat\", \"normal\"]
[[model.layers]]
kind = \"linear\"
weight = \"dense\"
bias = \"dense bias\"
";

/// One model in both layouts: ours first.
fn both_layouts() -> [Vec<Array>; 2] {
    let mut numbers = Numbers(0.123);
    let (mut ours, mut keras) = (Vec::new(), Vec::new());
    let mut both = |name: &str, shape: &[usize], values: Vec<f32>, (theirs, to): (Vec<f32>, Vec<usize>)| {
        ours.push(Array::new(name, "F32", shape, f32s(&values)));
        keras.push(Array::new(name, "F32", &to, f32s(&theirs)));
    };
    for (name, shape) in [("conv", [3usize, 2, 3, 3]), ("depth", [6, 1, 2, 2])] {
        let values = numbers.of(shape.iter().product());
        let theirs = match name {
            // [out, in, h, w] becomes [h, w, in, out].
            "conv" => transposed(&values, &shape, &[2, 3, 1, 0]),
            // Six outputs are two of each channel: [channel, multiplier, h, w] becomes [h, w, channel, multiplier].
            _ => transposed(&values, &[3, 2, 2, 2], &[2, 3, 0, 1]),
        };
        both(name, &shape, values, theirs);
    }
    let same = |values: &Vec<f32>| (values.clone(), vec![values.len()]);
    for (name, count) in [("conv bias", 3), ("channel mean", 6), ("dense bias", 4)] {
        let values = numbers.of(count);
        let theirs = same(&values);
        both(name, &[count], values, theirs);
    }
    let variances: Vec<f32> = numbers.of(6).iter().map(|v| v + 1.0).collect();
    let theirs = same(&variances);
    both("channel variance", &[6], variances, theirs);
    // Six channels of 2 x 2, which Keras flattens with the channel last.
    for name in ["scale", "mean", "variance"] {
        let values: Vec<f32> = numbers.of(24).iter().map(|v| v + 1.0).collect();
        let (theirs, _) = transposed(&values, &[6, 2, 2], &[1, 2, 0]);
        both(name, &[24], values, (theirs, vec![24]));
    }
    let values = numbers.of(4 * 48);
    // [out, copy, channel, h, w] becomes [copy, h, w, channel, out].
    let (theirs, _) = transposed(&values, &[4, 2, 6, 2, 2], &[1, 3, 4, 2, 0]);
    both("dense", &[4, 48], values, (theirs, vec![48, 4]));
    [ours, keras]
}

fn run(layout: &str, input: &str, model: &[Array], x: Array) -> Files {
    let files = Files::new(&format!("input = {input}\nclasses = 4\nlayout = \"{layout}\"\n{LAYERS}"));
    files.all_models(|_| model.to_vec());
    for client in ["a", "b", "c"] {
        files.test_set(client, &[x.clone(), Array::new("y", "I64", &[2], i64s(&[1, 0]))]);
    }
    files
}

/// What a run's initial model hands on for its first client's samples.
fn handed_on(run: &RunDirectory) -> Vec<f64> {
    let test_set = run.test_set(&ClientId::new("a").unwrap()).unwrap();
    scores(run.architecture(), &run.initial_model().unwrap(), test_set.features())
}

#[test]
fn both_layouts_hand_on_the_same() {
    let [ours, keras] = both_layouts();
    let x = Numbers(0.7).of(2 * 2 * 5 * 6);
    let (theirs, shape) = transposed(&x, &[2, 2, 5, 6], &[0, 2, 3, 1]);
    let ours = run("pytorch", "[2, 5, 6]", &ours, Array::singles("x", &[2, 2, 5, 6], &x));
    let keras = run("keras", "[5, 6, 2]", &keras, Array::singles("x", &shape, &theirs));
    let found = [ours.check().unwrap(), keras.check().unwrap()].map(|run| handed_on(&run));
    assert!(found[0].iter().all(|score| score.abs() > 1e-6), "{:?}", found[0]);
    assert_eq!(found[0], found[1]);
}

const SQUARE: &str = "input = [3]\nclasses = 3\n[[model.layers]]\nkind = \"linear\"\nweight = \"0\"\n";

#[test]
fn a_square_matrix_is_never_transposed_without_a_word() {
    let matrix: Vec<f32> = (1..=9).map(|v| v as f32).collect();
    let model = |_| vec![Array::singles("0", &[3, 3], &matrix)];
    let files = Files::new(SQUARE);
    files.all_models(model);
    files.says(&["federation.toml: model.layout", "layout = \"pytorch\" or \"keras\"", "0 of shape [3, 3]"]);
    let first_unit = |layout: &str| {
        let files = Files::new(&format!("layout = \"{layout}\"\n{SQUARE}"));
        files.all_models(model);
        let run = files.check().unwrap();
        scores(run.architecture(), &run.initial_model().unwrap(), &[1.0, 0.0, 0.0])
    };
    assert_eq!(first_unit("pytorch"), [1.0, 4.0, 7.0]);
    assert_eq!(first_unit("keras"), [1.0, 2.0, 3.0]);
    // A name that PyTorch gives says which.
    let files = Files::new(&SQUARE.replace("\"0\"", "\"fc.weight\""));
    files.all_models(|_| vec![Array::singles("fc.weight", &[3, 3], &matrix)]);
    files.check().unwrap();
}

#[test]
fn numbers_that_keras_has_other_defaults_for_have_to_be_said() {
    let [_, keras] = both_layouts();
    let files = run("keras", "[5, 6, 2]", &keras, Array::singles("x", &[2, 5, 6, 2], &[0.5; 120]));
    files.replace("variance = \"channel variance\"\nepsilon = 0.001\n", "variance = \"channel variance\"\n");
    files.says(&["model.layers[3].epsilon: expected this number", "Keras takes 0.001"]);
}

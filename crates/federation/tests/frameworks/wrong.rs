//! Inputs that are wrong in ways people get them wrong: each is refused in words that say what to do.

use super::files::{Array, Files, MODEL, f32s, f64s, i64s, linear};

/// A model table and tensors, and words of the refusal.
struct Wrong(&'static str, Vec<Array>, &'static [&'static str]);

fn layers(input: &str, classes: usize, tables: &[&str]) -> String {
    let tables: Vec<String> = tables.iter().map(|table| format!("[[model.layers]]\n{table}\n")).collect();
    format!("input = {input}\nclasses = {classes}\n{}", tables.concat())
}

#[test]
fn models_that_do_not_fit_their_layers_say_what_would() {
    let cases = vec![
        // A whole model as bytes: trees.
        Wrong(
            "weight = \"0\"",
            vec![Array::new("0", "U8", &[1156], vec![0; 1156])],
            &[
                "0: expected elements of type F32, F64, F16 or BF16, found U8: a serialised model, such as trees",
            ],
        ),
        // Keras' kernel, not square.
        Wrong(
            "weight = \"0\"",
            vec![Array::singles("0", &[3, 2], &[0.0; 6])],
            &["0: expected shape [outputs, 3] (or layout = \"keras\" in [model]", "found [3, 2]"],
        ),
        // Trees, cast to numbers.
        Wrong(
            "weight = \"0\"",
            vec![Array::singles("0", &[300], &[0.0; 300])],
            &["0: expected shape [outputs, 3]", "found [300]"],
        ),
        // One output for three classes.
        Wrong(
            "weight = \"w.weight\"",
            vec![Array::singles("w.weight", &[1, 3], &[0.0; 3])],
            &["model.classes: expected shape [3] after the last layer", "classes = 2"],
        ),
        // A scalar type no average has.
        Wrong(
            "weight = \"w.weight\"",
            vec![Array::new("w.weight", "F8_E4M3", &[3, 3], vec![0; 9])],
            &["w.weight", "save the weights in a wider type"],
        ),
        // A buffer nobody asked for.
        Wrong(
            "weight = \"w.weight\"",
            vec![Array::singles("w.weight", &[3, 3], &[0.0; 9]), Array::new("steps", "I64", &[], i64s(&[3]))],
            &["steps", "list it in model.ignore"],
        ),
        // Another name.
        Wrong(
            "weight = \"fc.weight\"",
            vec![Array::singles("module.fc.weight", &[3, 3], &[0.0; 9])],
            &["fc.weight: expected this tensor, found module.fc.weight"],
        ),
    ];
    for Wrong(weight, model, words) in cases {
        let files = Files::new(&layers("[3]", 3, &[&format!("kind = \"linear\"\n{weight}")]));
        files.all_models(|_| model.clone());
        files.says(words);
    }
}

#[test]
fn layers_that_cannot_be_say_what_could() {
    const CONV: &str = "kind = \"conv2d\"\nweight = \"c.weight\"";
    const NORM: &str = "kind = \"batch-norm\"\nmean = \"m\"\nvariance = \"v\"";
    let cases: Vec<(&[&str], &[&str])> = vec![
        (&["kind = \"maxpool\"\nsize = 2"], &["unknown variant `maxpool`", "max-pool2d"]),
        (
            &["kind = \"max-pool2d\"\nsize = 9"],
            &["model.layers[0]: expected an input of shape at least [2, 9, 9]"],
        ),
        (&["kind = \"max-pool2d\"\nsize = 2\npadding = 2"], &["padding of at most half a window"]),
        (&["kind = \"max-pool2d\"\nsize = 0"], &["model.layers[0].size: expected 1 to"]),
        (&["kind = \"max-pool2d\"\nkernel = 2"], &["unknown field `kernel`"]),
        (
            &["kind = \"add\"\nfrom = [\"input\"]"],
            &["model.layers[0].from: expected two names or more", "found 1"],
        ),
        (&["kind = \"add\""], &["model.layers[0].from", "the layer before included", "found 0"]),
        (
            &["kind = \"relu\"\nfrom = [\"input\", \"input\"]"],
            &["model.layers[0].from: expected one name", "found 2"],
        ),
        (&["kind = \"relu\"\nfrom = [\"body\"]"], &["model.layers[0].from: expected input, found body"]),
        (
            &["kind = \"relu\"\nname = \"a\"", "kind = \"relu\"\nname = \"a\""],
            &["model.layers[1].name: expected a name of its own, found a a second time"],
        ),
        (
            &["kind = \"relu\"", "kind = \"relu\"\nfrom = [\"input\"]"],
            &["model.layers[0]: expected a layer that takes what this one hands on"],
        ),
        (
            &["kind = \"global-avg-pool\"\nname = \"a\"", "kind = \"add\"\nfrom = [\"a\", \"input\"]"],
            &["model.layers[1]: expected an input of shape [2], as its first input has for this add layer"],
        ),
        (&["kind = \"conv2d\"\nweight = \"c.weight\"\ngroups = 3"], &["a multiple of 3 channels"]),
        (
            &[CONV, "kind = \"lstm\"\nweight_ih = \"a\"\nweight_hh = \"b\""],
            &["[steps, features] for this lstm layer"],
        ),
        (&["kind = \"relu\"", "kind = \"embedding\"\nweight = \"e\""], &["expected the samples' integers"]),
        (&["kind = \"leaky-relu\"\nslope = inf"], &["model.layers[0].slope: expected finite numbers"]),
        (&["kind = \"flatten\"", "kind = \"reshape\"\nshape = [5]"], &["as many numbers as [5]"]),
        (&["kind = \"relu\""], &["model.classes: expected shape [2] after the last layer, found [2, 4, 4]"]),
        (&[NORM, "kind = \"global-avg-pool\""], &["v: expected variances of at least 0, found -1"]),
    ];
    for (tables, words) in cases {
        with_tensors(tables).says(words);
    }
}

#[test]
fn a_kernel_that_keras_wrote_names_its_layout() {
    let convolution = "kind = \"conv2d\"\nweight = \"0\"";
    let files = Files::new(&layers("[4, 4, 1]", 2, &[convolution, "kind = \"global-avg-pool\""]));
    files.all_models(|_| vec![Array::singles("0", &[3, 3, 1, 2], &[0.5; 18])]);
    for client in ["a", "b", "c"] {
        let x = Array::singles("x", &[1, 4, 4, 1], &[0.5; 16]);
        files.test_set(client, &[x, Array::new("y", "U8", &[1], vec![1])]);
    }
    files.says(&[
        "0: expected shape [outputs, 4, kernel height, kernel width]",
        "layout = \"keras\" in [model]",
    ]);
}

#[test]
fn rounds_and_names_that_frameworks_count_and_give_otherwise_say_how() {
    let files = Files::new(MODEL);
    files.model("clients/a/round-0000", &linear(0.0));
    files.says(&["clients/a: rounds, which count from 1", "found round-0000.safetensors"]);
    let files = Files::new(MODEL);
    files.replace("id = \"a\"", "id = \"St. Mary / Ost\"");
    files.says(&["client id \"St. Mary / Ost\"", "other names go into labels.toml"]);
}

/// A run of two-channel images with those of four tensors that the layers name.
fn with_tensors(tables: &[&str]) -> Files {
    let files = Files::new(&layers("[2, 4, 4]", 2, tables));
    let all = [
        Array::singles("c.weight", &[2, 2, 1, 1], &[0.5; 4]),
        Array::singles("m", &[2], &[0.0; 2]),
        Array::singles("v", &[2], &[1.0, -1.0]),
        Array::singles("e", &[4, 4], &[0.0; 16]),
    ];
    let is_named = |array: &&Array| tables.iter().any(|table| table.contains(&format!("\"{}\"", array.name)));
    files.all_models(|_| all.iter().filter(is_named).cloned().collect());
    for client in ["a", "b", "c"] {
        let x = Array::singles("x", &[1, 2, 4, 4], &[0.5; 32]);
        files.test_set(client, &[x, Array::new("y", "U8", &[1], vec![1])]);
    }
    files
}

#[test]
fn a_single_score_has_one_function_behind_it_at_most() {
    let one = |tables: &[&str]| {
        let mut all = vec!["kind = \"linear\"\nweight = \"w.weight\""];
        all.extend(tables);
        let files = Files::new(&layers("[3]", 2, &all));
        files.all_models(|_| vec![Array::singles("w.weight", &[1, 3], &[0.0; 3])]);
        files
    };
    one(&[]).check().unwrap();
    one(&["kind = \"sigmoid\""]).check().unwrap();
    one(&["kind = \"sigmoid\"", "kind = \"sigmoid\""])
        .says(&["model.layers", "class 1 is predicted where the score is above 0"]);
    one(&["kind = \"sigmoid\"", "kind = \"relu\""]).says(&["found more or a softmax"]);
    one(&["kind = \"softmax\""]).says(&["model.layers", "one sigmoid, tanh or hard-sigmoid at most"]);
}

#[test]
fn labels_and_samples_that_do_not_fit_say_what_would() {
    let x = || Array::singles("x", &[2, 3], &[0.5; 6]);
    let cases = vec![
        (
            vec![x(), Array::singles("y", &[2, 2], &[0.0; 4])],
            "y: expected one label for each sample, found 2 columns",
        ),
        (
            vec![x(), Array::new("y", "F64", &[2], f64s(&[0.5, 1.0]))],
            "y: expected whole numbers as labels, found 0.5",
        ),
        (
            vec![x(), Array::new("y", "I64", &[2], i64s(&[1, 2]))],
            "y: expected labels in 0..2, found 2 at position 1",
        ),
        (vec![x(), Array::new("y", "I8", &[2], vec![255, 0])], "y: expected labels in 0..2, found -1"),
        (
            vec![
                Array::new("x", "I64", &[1, 3], i64s(&[1, 2, 1 << 40])),
                Array::new("y", "U8", &[1], vec![0]),
            ],
            "x: expected integers from -16777216 to 16777216, found 1099511627776",
        ),
        (
            vec![
                Array::new("x", "F32", &[1, 3], f32s(&[0.0, f32::NAN, 0.0])),
                Array::new("y", "U8", &[1], vec![0]),
            ],
            "x: expected finite numbers",
        ),
    ];
    for (arrays, words) in cases {
        let files = Files::new(MODEL);
        files.test_set("b", &arrays);
        files.says(&["clients/b/test.safetensors", words]);
    }
}

#[test]
fn weights_of_clients_are_numbers_from_0() {
    let cases: [(&str, &[&str]); 8] = [
        ("weight = -1.5", &["clients.a.weight: expected a weight of 0, or from 1e-9 to 2^46", "found -1.5"]),
        ("weight = -1.0", &["clients.a.weight: expected a weight of 0", "found -1"]),
        ("train_size = -5", &["integer `-5`, expected a whole number of samples from 0"]),
        ("weight = nan", &["clients.a.weight", "found NaN"]),
        ("weight = 1e300", &["clients.a.train_size", "2^46"]),
        (
            "weight = 0.0",
            &["clients.a.train_size: expected a weight above 0 in round 1, in which the client took part"],
        ),
        (
            "train_size = 9.5",
            &["floating point `9.5`, expected a whole number of samples", "weight = ... takes any other"],
        ),
        ("weight = 9.5\ntrain_size = 9", &["expected one of `train_size` and `weight`, found both"]),
    ];
    for (line, words) in cases {
        let files = Files::new(MODEL);
        files.replace("train_size = 1", line);
        files.says(words);
    }
    let files = Files::new(MODEL);
    files.replace("train_size = 1\n", "");
    files.says(&["missing field `train_size`"]);
}

#[test]
fn integers_of_an_embedding_are_its_rows() {
    let embedding =
        layers("[2]", 2, &["kind = \"embedding\"\nweight = \"e.weight\"", "kind = \"global-max-pool\""]);
    for (number, words) in
        [(4.0, "in 0..4, the rows of the embedding, found 4"), (0.5, "found 0.5"), (-1.0, "found -1")]
    {
        let files = Files::new(&embedding);
        files.all_models(|_| vec![Array::singles("e.weight", &[4, 3], &[0.0; 12])]);
        for client in ["a", "b", "c"] {
            files.test_set(
                client,
                &[Array::singles("x", &[1, 2], &[0.0, number]), Array::new("y", "U8", &[1], vec![1])],
            );
        }
        files.says(&["x: expected integers", words]);
    }
}

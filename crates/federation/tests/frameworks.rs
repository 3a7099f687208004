//! Files as frameworks write them: element types, labels, buffers, weights, layouts, aggregates, absences.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

#[path = "frameworks/files.rs"]
mod files;
#[path = "frameworks/keras.rs"]
mod keras;
#[path = "frameworks/networks.rs"]
mod networks;
#[path = "frameworks/wrong.rs"]
mod wrong;

use std::fs;

use files::{Array, Files, MODEL, f32s, f64s, i64s, linear};
use secsv_federation::{Aggregation, ClientId, FederationSpec, RoundId, RunDirectory};

#[test]
fn weights_of_every_floating_point_type_are_read() {
    let numbers = [0.5, -1.25, 2.0, 0.0, -0.125, 3.0];
    let half = [0x3800u16, 0xbd00, 0x4000, 0x0000, 0xb000, 0x4200];
    let brain: Vec<u8> =
        numbers.iter().flat_map(|&v: &f32| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
    let doubles: Vec<f64> = numbers.iter().map(|&v| v.into()).collect();
    let cases = [
        ("F32", f32s(&numbers)),
        ("F64", f64s(&doubles)),
        ("F16", half.iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("BF16", brain),
    ];
    for (dtype, bytes) in cases {
        let files = Files::new(MODEL);
        let weight = Array::new("fc.weight", dtype, &[2, 3], bytes);
        files.model("initial", &[weight, Array::singles("fc.bias", &[2], &[0.0; 2])]);
        let run = files.check().unwrap();
        let found: Vec<f64> = run.initial_model().unwrap().get("fc.weight").unwrap().numbers().collect();
        assert_eq!(found, doubles, "{dtype}");
    }
}

/// An aggregate of half precision is the mean as far as its numbers tell; one of single precision has to be nearer.
#[test]
fn aggregates_are_means_to_the_precision_of_their_numbers() {
    // 0.7 in half precision and in BF16, each a little off; then in single precision as far off as the former.
    let aggregates: [(&str, Vec<u8>, bool); 4] = [
        ("F16", 0x399au16.to_le_bytes().to_vec(), true),
        ("BF16", 0x3f33u16.to_le_bytes().to_vec(), true),
        ("F32", f32s(&[0.700_201_4]), false),
        ("F16", 0x3a00u16.to_le_bytes().to_vec(), false),
    ];
    for (dtype, number, fits) in aggregates {
        let files = Files::new(MODEL);
        files.all_models(|_| {
            vec![Array::singles("fc.weight", &[2, 3], &[0.7; 6]), Array::singles("fc.bias", &[2], &[0.0; 2])]
        });
        let weight = Array::new("fc.weight", dtype, &[2, 3], number.repeat(6));
        files.model("global/round-0001", &[weight, Array::singles("fc.bias", &[2], &[0.0; 2])]);
        match fits {
            true => drop(files.check().unwrap()),
            false => {
                files.says(&["global/round-0001.safetensors: fc.weight: expected the weighted mean 0.69999"])
            }
        }
    }
}

#[test]
fn double_precision_is_kept() {
    let files = Files::new(MODEL);
    let third = f64s(&[1.0 / 3.0; 6]);
    let weight = Array::new("fc.weight", "F64", &[2, 3], third);
    files.model("initial", &[weight, Array::singles("fc.bias", &[2], &[0.0; 2])]);
    let model = files.check().unwrap().initial_model().unwrap();
    assert!(model.get("fc.weight").unwrap().numbers().all(|number| number == 1.0 / 3.0));
}

#[test]
fn labels_may_have_any_integer_type_and_one_column() {
    let cases = [
        Array::new("y", "I32", &[2], vec![1, 0, 0, 0, 0, 0, 0, 0]),
        Array::new("y", "U8", &[2], vec![1, 0]),
        Array::new("y", "I16", &[2, 1], vec![1, 0, 0, 0]),
        Array::new("y", "U64", &[2, 1], i64s(&[1, 0])),
        Array::new("y", "BOOL", &[2], vec![1, 0]),
        Array::new("y", "F32", &[2, 1], f32s(&[1.0, 0.0])),
        Array::new("y", "F64", &[2], f64s(&[1.0, 0.0])),
    ];
    for y in cases {
        let files = Files::new(MODEL);
        files.test_set("a", &[Array::singles("x", &[2, 3], &[0.5; 6]), y.clone()]);
        let found = files.check().unwrap().test_set(&ClientId::new("a").unwrap()).unwrap();
        assert_eq!(found.labels(), [1, 0], "{}", y.dtype);
    }
    // Samples of whole numbers too.
    let files = Files::new(MODEL);
    let x = Array::new("x", "U8", &[1, 3], vec![0, 128, 255]);
    files.test_set("a", &[x, Array::new("y", "U8", &[1], vec![1])]);
    let found = files.check().unwrap().test_set(&ClientId::new("a").unwrap()).unwrap();
    assert_eq!(found.features(), [0.0, 128.0, 255.0]);
}

#[test]
fn buffers_that_count_batches_are_ignored_and_others_by_rule() {
    let files = Files::new(&format!("ignore = [\"head.*\", \"*.mask\"]\n{MODEL}"));
    let mut model = linear(0.0);
    model.push(Array::new("bn.num_batches_tracked", "I64", &[], i64s(&[7])));
    model.push(Array::singles("head.weight", &[1], &[1.0]));
    model.push(Array::new("attention.mask", "BOOL", &[2], vec![1, 0]));
    files.model("initial", &model);
    // Flower averages the count too: then it is a real number, and other models may lack it.
    let mut averaged = linear(1.0);
    averaged.push(Array::new("bn.num_batches_tracked", "F64", &[], f64s(&[7.5])));
    files.model("clients/a/round-0001", &averaged);
    files.check().unwrap();
    let mut other = linear(1.0);
    other.push(Array::singles("tail.weight", &[1], &[1.0]));
    files.model("clients/a/round-0001", &other);
    files.says(&["clients/a/round-0001.safetensors: tail.weight", "list it in model.ignore"]);
}

#[test]
fn weights_may_be_real_numbers() {
    let files = Files::new(MODEL);
    files.replace("train_size = 1\n", "weight = 9.5\n");
    let run = files.check().unwrap();
    assert_eq!(run.spec().clients[0].weight_in(RoundId(1)), 9.5);
    let written = run.spec().to_toml().unwrap();
    assert!(written.contains("weight = 9.5") && written.contains("train_size = 2"), "{written}");
    let again = FederationSpec::parse(&written, "federation.toml".as_ref()).unwrap();
    assert_eq!(&again, run.spec());
}

#[test]
fn aggregates_may_be_no_means_if_they_are_there() {
    let files = Files::new(MODEL);
    files.model("global/round-0001", &linear(7.0));
    files.says(&[
        "global/round-0001.safetensors",
        "expected the weighted mean",
        "say aggregation = \"other\"",
    ]);
    files.replace("rounds = 2\n", "rounds = 2\naggregation = \"other\"\n");
    let run = files.check().unwrap();
    assert_eq!(run.spec().aggregation, Aggregation::Other);
    let before = run.model_before(RoundId(2)).unwrap();
    assert_eq!(before.get("fc.weight").unwrap().numbers().next(), Some(7.0));
    fs::remove_dir_all(files.path().join("global")).unwrap();
    files.says(&[
        "federation.toml: aggregation: expected the global model after each round but the last in global/",
    ]);
}

#[test]
fn the_last_aggregate_is_not_needed_and_others_are() {
    let files = Files::new(MODEL);
    files.model("global/round-0001", &linear(2.0));
    files.check().unwrap();
    fs::rename(
        files.path().join("global/round-0001.safetensors"),
        files.path().join("global/round-0002.safetensors"),
    )
    .unwrap();
    files.says(&["global/round-0001.safetensors: file: expected this file, found none"]);
}

#[test]
fn a_missing_file_is_an_absence_in_a_whole_run() {
    let files = Files::new(MODEL);
    fs::remove_file(files.path().join("clients/b/round-0002.safetensors")).unwrap();
    let run = files.check().unwrap();
    assert_eq!(run.participants(RoundId(2)).members().collect::<Vec<_>>(), [0, 2]);
    for client in ["a", "c"] {
        fs::remove_file(files.path().join(format!("clients/{client}/round-0002.safetensors"))).unwrap();
    }
    files.says(&["round-0002.safetensors: expected at least one client's model of round 2"]);
}

#[test]
fn one_client_is_a_federation() {
    let files = Files::new(MODEL);
    let text = fs::read_to_string(files.path().join("federation.toml")).unwrap();
    let (second, _) = text.match_indices("[[clients]]").nth(1).unwrap();
    fs::write(files.path().join("federation.toml"), &text[..second]).unwrap();
    for client in ["b", "c"] {
        fs::remove_dir_all(files.path().join("clients").join(client)).unwrap();
    }
    assert_eq!(files.check().unwrap().spec().clients.len(), 1);
}

#[test]
fn layers_with_names_are_written_and_read_back() {
    let files = Files::new(
        "input = [3]\nclasses = 3\n[[model.layers]]\nkind = \"linear\"\nname = \"first\"\nweight = \"a.weight\"\n\
         [[model.layers]]\nkind = \"leaky-relu\"\nname = \"second\"\n\
         [[model.layers]]\nkind = \"add\"\nfrom = [\"first\", \"second\", \"input\"]\n",
    );
    let square = |scale: f32| vec![Array::singles("a.weight", &[3, 3], &[scale; 9])];
    files.all_models(square);
    let run = files.check().unwrap();
    let again = FederationSpec::parse(&run.spec().to_toml().unwrap(), "federation.toml".as_ref()).unwrap();
    assert_eq!(&again, run.spec());
    let found =
        secsv_federation::clear::scores(run.architecture(), &run.initial_model().unwrap(), &[1.0, 2.0, -4.0]);
    assert_eq!(found, [1.0, 2.0, -4.0].map(|x| x + 0.0), "weights are zero");
    let model = run.local_model(&ClientId::new("b").unwrap(), RoundId(1)).unwrap();
    let found = secsv_federation::clear::scores(run.architecture(), &model, &[1.0, 2.0, -4.0]);
    // Each output is -1 times 2 before the activation, and a hundredth of that behind it.
    let rounded: Vec<f64> = found.iter().map(|v| (v * 100.0).round() / 100.0).collect();
    assert_eq!(rounded, [-1.02, -0.02, -6.02]);
    assert!(RunDirectory::open(files.path()).is_ok());
}

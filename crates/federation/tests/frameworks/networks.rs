//! The table of docs/NETWORKS.md: each family that can be said is a model that is checked and computed, each refusal is one
//! in so many words.

use std::{collections::BTreeMap, fs, path::Path};

use secsv_federation::{Architecture, FederationSpec, Tensor, Weights, clear::scores};

use super::files::{Array, Files, f32s, i64s};

const FAMILIES: &str = include_str!("../networks/families.toml");
const BEGIN: &str = "<!-- networks -->\n";
const END: &str = "<!-- end of networks -->";

/// A row of the table.
struct Row {
    counted: usize,
    applications: usize,
    is_said: bool,
    named: String,
}

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

fn rows() -> Vec<Row> {
    let text = document("NETWORKS.md");
    let begin = text.find(BEGIN).unwrap() + BEGIN.len();
    let table = &text[begin..text.find(END).unwrap()];
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, _, _, count, said, named] = cells[..] else { panic!("{line}") };
        let (counted, applications) = count.split_once(" of ").unwrap_or((count, count));
        let is_said = match said {
            "yes" => true,
            "no" => false,
            other => panic!("{other}: {line}"),
        };
        let [counted, applications] = [counted, applications].map(|count| count.parse().unwrap());
        Row { counted, applications, is_said, named: named.to_owned() }
    };
    table.lines().skip(2).map(row).collect()
}

/// A family's model, and a model of it.
fn family(name: &str, mut table: toml::Table) -> (Architecture, Weights) {
    let tensors = table.remove("tensors").unwrap();
    let client: toml::Table = toml::from_str("id = \"a\"\ntrain_size = 1").unwrap();
    let spec: toml::Table = [
        ("name".to_owned(), toml::Value::from(name)),
        ("rounds".to_owned(), toml::Value::from(1)),
        ("model".to_owned(), toml::Value::from(table)),
        ("clients".to_owned(), toml::Value::from(vec![client])),
    ]
    .into_iter()
    .collect();
    let file = Path::new("federation.toml");
    let spec = FederationSpec::parse(&toml::to_string(&spec).unwrap(), file);
    let spec = spec.unwrap_or_else(|error| panic!("{name}: {error}"));
    spec.check(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let shapes: BTreeMap<String, Vec<usize>> = tensors.try_into().unwrap();
    let architecture = Architecture::new(&spec.model, &shapes, file, Path::new("model"));
    let architecture = architecture.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut weights = Weights::new();
    for (tensor, shape) in architecture.tensors() {
        let size: usize = shape.iter().product();
        let numbers = (0..size).map(|k| 0.25 + (k * 7 % 5) as f32 / 8.0).collect();
        weights.insert(tensor, Tensor::new(shape.clone(), numbers).unwrap());
    }
    (architecture, weights)
}

#[test]
fn families_that_can_be_said_are_models() {
    let families: BTreeMap<String, toml::Table> = toml::from_str(FAMILIES).unwrap();
    let named: Vec<String> = rows().into_iter().filter(|row| row.is_said).map(|row| row.named).collect();
    for name in &named {
        assert!(families.contains_key(name), "{name} is no family");
    }
    for (name, table) in families {
        assert!(named.contains(&name), "no network is said as {name}");
        let (architecture, weights) = family(&name, table);
        let sample: Vec<f32> = (0..architecture.input_size()).map(|k| (k % 4) as f32).collect();
        let found = scores(&architecture, &weights, &sample);
        assert_eq!(found.len(), architecture.outputs(), "{name}");
        assert!(found.iter().all(|score| score.is_finite()), "{name}: {found:?}");
    }
}

#[test]
fn three_fifths_of_the_applications_can_be_said() {
    let rows = rows();
    let applications: usize = rows.iter().map(|row| row.applications).sum();
    let said: Vec<&Row> = rows.iter().filter(|row| row.is_said).collect();
    let counted: usize = said.iter().map(|row| row.counted).sum();
    assert_eq!((rows.len(), applications), (74, 220));
    assert!(said.len() >= 45 && counted * 10 >= applications * 6, "{} networks, {counted}", said.len());
    let sentence =
        format!("{} networks, {counted} applications ({} %)", said.len(), 100 * counted / applications);
    assert!(document("NETWORKS.md").contains(&sentence), "docs/NETWORKS.md should say: {sentence}");
    let sentence = format!("{} networks ({counted} applications) can be said", said.len());
    assert!(document("MODELS.md").contains(&sentence), "docs/MODELS.md should say: {sentence}");
}

/// A model with one more layer, of this kind.
fn with_layer(layer: &str) -> Files {
    let linear = "[[model.layers]]\nkind = \"linear\"\nweight = \"w.weight\"\n";
    Files::new(&format!("input = [3]\nclasses = 3\n{linear}[[model.layers]]\n{layer}\n"))
}

fn weights(scale: f32) -> Vec<Array> {
    vec![Array::singles("w.weight", &[3, 3], &[scale; 9])]
}

/// Models of one linear layer.
fn linear() -> Files {
    let files =
        Files::new("input = [3]\nclasses = 3\n[[model.layers]]\nkind = \"linear\"\nweight = \"w.weight\"\n");
    files.all_models(weights);
    files
}

/// Labels of one sample of the first client.
fn labelled(dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Files {
    let files = linear();
    let x = Array::singles("x", &[1, 3], &[0.5; 3]);
    files.test_set("a", &[x, Array::new("y", dtype, shape, bytes)]);
    files
}

/// Writes down what a row is refused as, as far as that can be, and expects the words of the refusal.
fn refuse(named: &str) {
    let unknown = |kind: &str| {
        let files = with_layer(&format!("kind = \"{kind}\""));
        files.says(&[&format!("unknown variant `{kind}`"), "batch-norm", "concat"]);
    };
    match named {
        "attention" => ["attention", "multi-head-attention", "transformer"].into_iter().for_each(unknown),
        "products" => ["multiply", "squeeze-excite", "attention-pool"].into_iter().for_each(unknown),
        "group-norm" => unknown("group-norm"),
        "targets" => labelled("F32", &[1], f32s(&[0.5])).says(&["y", "expected whole numbers as labels"]),
        "pixels" => labelled("I64", &[1, 2, 2], i64s(&[0; 4])).says(&["y: expected shape [1]", "[1, 2, 2]"]),
        "sequences" => labelled("I64", &[1, 3], i64s(&[0; 3]))
            .says(&["y: expected one label for each sample", "3 columns"]),
        "trees" => {
            let files = linear();
            files.all_models(|_| vec![Array::new("w.weight", "U8", &[1156], vec![0; 1156])]);
            files.says(&["a serialised model, such as trees"]);
        }
        "flat" => {
            let files = linear();
            files.all_models(|_| vec![Array::singles("w.weight", &[9], &[0.0; 9])]);
            files.says(&["w.weight: expected shape [outputs, 3]", "found [9]"]);
        }
        "joined-kernel" => {
            with_layer("kind = \"lstm\"\nweight_ih = \"kernel\"").says(&["missing field `weight_hh`"])
        }
        "workflow" => {
            let files = linear();
            // The last silo's model is handed on instead of a mean.
            files.model("global/round-0001", &weights(3.0));
            files.says(&["expected the weighted mean", "aggregation = \"other\""]);
        }
        "parts" | "no-layers" => {}
        other => panic!("{other} is no refusal"),
    }
}

#[test]
fn networks_that_cannot_be_said_are_refused_by_name() {
    let text = document("NETWORKS.md");
    let (_, refusals) = text.split_once("| refused as | why |").unwrap();
    for row in rows().into_iter().filter(|row| !row.is_said) {
        assert!(refusals.contains(&row.named), "{} is not explained", row.named);
        refuse(&row.named);
    }
}

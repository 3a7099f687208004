//! The table of docs/MODELS.md: which protocol tests which layer.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::{collections::BTreeMap, fs, path::Path};

use secsv_federation::{Architecture, FederationSpec};
use secsv_protocol::{Error, approximations, decryptors::Protocol, session::Federation};

const BEGIN: &str = "<!-- layers -->\n";
const END: &str = "<!-- end of layers -->";
const CLIENTS: usize = 5;

/// A row of the table: its name, the shape of a sample, the layers, and their tensors.
type Row = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static [usize])]);

/// A tensor: its name and shape.
type Named = (&'static str, &'static [usize]);

const LINEAR: (&str, &[usize]) = ("fc.weight", &[3, 4]);

/// Each kind behind a linear layer or a convolution where one can be before it, and before the last linear layer.
const ROWS: [Row; 28] = [
    ("linear, alone", "[4]", "", &[LINEAR]),
    ("linear, one output", "[4]", "one", &[("fc.weight", &[1, 4])]),
    ("linear, several", "[2]", "linear weight=a.weight", &[("a.weight", &[4, 2]), LINEAR]),
    ("conv2d", "[1,3,3]", "conv2d weight=c.weight; flatten", &[("c.weight", &[4, 1, 3, 3]), LINEAR]),
    (
        "conv2d *",
        "[2,3,3]",
        "conv2d weight=c.weight groups=2; flatten",
        &[("c.weight", &[4, 1, 3, 3]), LINEAR],
    ),
    ("conv1d", "[1,3]", "conv1d weight=c.weight; flatten", &[("c.weight", &[4, 1, 3]), LINEAR]),
    ("gru", "[2,3]", "gru weight_ih=i weight_hh=h", &[("i", &[12, 3]), ("h", &[12, 4]), LINEAR]),
    ("lstm", "[2,3]", "lstm weight_ih=i weight_hh=h", &[("i", &[16, 3]), ("h", &[16, 4]), LINEAR]),
    ("embedding", "[2]", "embedding weight=e; flatten", &[("e", &[5, 2]), LINEAR]),
    (
        "batch-norm",
        "[2]",
        "linear weight=a.weight; batch-norm mean=m variance=v",
        &[("a.weight", &[4, 2]), ("m", &[4]), ("v", &[4]), LINEAR],
    ),
    (
        "layer-norm",
        "[2]",
        "linear weight=a.weight; layer-norm weight=n",
        &[("a.weight", &[4, 2]), ("n", &[4]), LINEAR],
    ),
    (
        "max-pool2d, avg-pool2d",
        "[1,6,3]",
        "conv2d weight=c.weight; max-pool2d size=2; avg-pool2d size=1; flatten",
        &[("c.weight", &[2, 1, 2, 2]), LINEAR],
    ),
    (
        "max-pool1d, avg-pool1d",
        "[1,5]",
        "conv1d weight=c.weight; max-pool1d size=2; avg-pool1d size=1; flatten",
        &[("c.weight", &[2, 1, 2]), LINEAR],
    ),
    (
        "global-avg-pool, global-max-pool",
        "[1,3,3]",
        "conv2d weight=c.weight; global-avg-pool",
        &[("c.weight", &[4, 1, 2, 2]), LINEAR],
    ),
    ("relu", "[2]", "linear weight=a.weight; relu", &[("a.weight", &[4, 2]), LINEAR]),
    ("square", "[2]", "linear weight=a.weight; square", &[("a.weight", &[4, 2]), LINEAR]),
    ("sigmoid, tanh", "[2]", "linear weight=a.weight; sigmoid; tanh", &[("a.weight", &[4, 2]), LINEAR]),
    (
        "leaky-relu, relu6, hard-tanh, hard-sigmoid",
        "[2]",
        "linear weight=a.weight; leaky-relu; relu6; hard-tanh; hard-sigmoid",
        &[("a.weight", &[4, 2]), LINEAR],
    ),
    ("gelu, silu, elu", "[2]", "linear weight=a.weight; gelu; silu; elu", &[("a.weight", &[4, 2]), LINEAR]),
    ("softmax", "[2]", "linear weight=a.weight; softmax", &[("a.weight", &[4, 2]), LINEAR]),
    (
        "add",
        "[4]",
        "linear weight=a.weight; relu name=a; linear weight=b.weight name=b; add from=b,a",
        &[("a.weight", &[4, 4]), ("b.weight", &[4, 4]), LINEAR],
    ),
    (
        "concat",
        "[4]",
        "linear weight=a.weight; relu name=a; linear weight=b.weight name=b; linear weight=c.weight from=a name=c; concat from=b,c",
        &[("a.weight", &[4, 4]), ("b.weight", &[2, 4]), ("c.weight", &[2, 4]), LINEAR],
    ),
    (
        "concat *",
        "[4]",
        "linear weight=a.weight; relu name=a; linear weight=b.weight name=b; concat from=b,a",
        &[("a.weight", &[2, 4]), ("b.weight", &[2, 2]), LINEAR],
    ),
    (
        "from, the sample",
        "[4]",
        "linear weight=a.weight name=a; add from=a,input",
        &[("a.weight", &[4, 4]), LINEAR],
    ),
    (
        "from, an earlier layer",
        "[4]",
        "linear weight=a.weight name=a; linear weight=b.weight name=b; relu from=a name=c; add from=b,c",
        &[("a.weight", &[4, 4]), ("b.weight", &[4, 4]), LINEAR],
    ),
    ("flatten, reshape", "[2,2]", "flatten; reshape shape=4", &[LINEAR]),
    ("transpose", "[1,4]", "conv1d weight=c.weight; transpose; flatten", &[("c.weight", &[2, 1, 3]), LINEAR]),
    ("dropout, identity", "[4]", "dropout; identity", &[LINEAR]),
];

/// A layer's table from `kind key=value ...`.
fn table(layer: &str) -> String {
    let mut words = layer.split_whitespace();
    let mut lines = vec![format!("[[model.layers]]\nkind = \"{}\"", words.next().unwrap_or_default())];
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        lines.push(match key {
            "from" => format!("from = [\"{}\"]", value.replace(',', "\", \"")),
            "shape" => format!("shape = [{value}]"),
            _ if value.parse::<usize>().is_ok() => format!("{key} = {value}"),
            _ => format!("{key} = \"{value}\""),
        });
    }
    lines.join("\n")
}

fn architecture((name, input, layers, tensors): &Row) -> Architecture {
    let is_one = *layers == "one";
    let before = layers.split(';').map(str::trim).filter(|layer| !layer.is_empty() && *layer != "one");
    let all: Vec<String> = before.chain(["linear weight=fc.weight"]).map(table).collect();
    let classes = if is_one { 2 } else { 3 };
    let (layers, client) = (all.join("\n"), "[[clients]]\nid = \"a\"\ntrain_size = 1");
    let text = format!(
        "name = \"x\"\nrounds = 1\n[model]\ninput = {input}\nclasses = {classes}\n{layers}\n{client}\n"
    );
    let spec = FederationSpec::parse(&text, Path::new("federation.toml"))
        .unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    let shapes: BTreeMap<String, Vec<usize>> =
        tensors.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect();
    Architecture::new(&spec.model, &shapes, Path::new("federation.toml"), Path::new("initial.safetensors"))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `yes`, or by straight pieces, or how a protocol refuses.
fn tests(protocol: Protocol, architecture: &Architecture) -> &'static str {
    match Federation::check_model(protocol, architecture, CLIENTS) {
        Ok(program) if !approximations(protocol, &program).is_empty() => "approximate",
        Ok(_) => "yes",
        Err(Error::Layer { .. } | Error::Unsupported { .. }) => "no",
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_table_of_layers_and_protocols_is_what_they_take() {
    let mut lines =
        vec!["| layer | nssv | ".to_owned() + &Protocol::ALL.map(Protocol::name).join(" | ") + " |"];
    lines.push(format!("| --- |{}", " --- |".repeat(1 + Protocol::ALL.len())));
    for row in &ROWS {
        let architecture = architecture(row);
        let found = Protocol::ALL.map(|protocol| tests(protocol, &architecture));
        lines.push(format!("| {} | yes | {} |", row.0, found.join(" | ")));
    }
    let expected = lines.join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MODELS.md");
    let text = fs::read_to_string(&file).unwrap();
    let begin = text.find(BEGIN).unwrap() + BEGIN.len();
    let found = &text[begin..text.find(END).unwrap()];
    assert!(found == expected, "docs/MODELS.md should say:\n{expected}");
}

#[test]
fn refusals_name_the_layer_the_reason_and_what_to_do() {
    for row in &ROWS {
        let architecture = architecture(row);
        for protocol in Protocol::ALL {
            let Err(refusal) = Federation::check_model(protocol, &architecture, CLIENTS) else { continue };
            let text = refusal.to_string();
            if let Error::Layer { kind, .. } = &refusal {
                assert!(text.contains("model.layers[") && text.contains(kind), "{text}");
            }
            says_what_to_do(&text);
        }
    }
}

/// Behind the reason, a colon or a semicolon and what to do.
fn says_what_to_do(refusal: &str) {
    let verbs = ["take ", "train ", "save ", "put ", "let ", "leave ", "keep ", "hand on ", "normalise "];
    let does = |place: usize| place > 20 && verbs.iter().any(|verb| refusal[place + 2..].starts_with(verb));
    let separators = [": ", "; "].into_iter();
    let mut places = separators.flat_map(|separator| refusal.match_indices(separator));
    assert!(places.any(|(place, _)| does(place)), "{refusal}");
}

/// Models that are refused for what stands beside a layer, or for more than one.
#[test]
fn refusals_of_whole_models_say_what_to_do() {
    const GRU: [(&str, &[usize]); 2] = [("i", &[12, 3]), ("h", &[12, 4])];
    const NORM: [(&str, &[usize]); 2] = [("m", &[4]), ("v", &[4])];
    let cases: [(Protocol, &str, &str, Vec<Named>); 6] = [
        (Protocol::SecSv, "[2,3]", "gru weight_ih=i weight_hh=h; relu", GRU.to_vec()),
        (
            Protocol::SecretSv,
            "[2,3]",
            "linear weight=a.weight; gru weight_ih=i weight_hh=h",
            [&GRU[..], &[("a.weight", &[3, 3])]].concat(),
        ),
        (Protocol::SecretSv, "[4]", "batch-norm mean=m variance=v", NORM.to_vec()),
        (
            Protocol::SecretSv,
            "[2,3]",
            "gru weight_ih=i weight_hh=h; batch-norm mean=m variance=v",
            [GRU, NORM].concat(),
        ),
        (
            Protocol::Hesv,
            "[1,6,4]",
            "max-pool2d size=2; flatten; linear weight=a.weight",
            vec![("a.weight", &[4, 6])],
        ),
        (Protocol::BlindSv, "[4]", "linear weight=a.weight; softmax", vec![("a.weight", &[4, 4])]),
    ];
    for (protocol, input, layers, mut tensors) in cases {
        tensors.push(LINEAR);
        let architecture = architecture(&(layers, input, layers, tensors.leak()));
        match Federation::check_model(protocol, &architecture, CLIENTS) {
            Ok(_) => panic!("{}: {layers} is taken", protocol.name()),
            Err(refusal) => says_what_to_do(&refusal.to_string()),
        }
    }
}

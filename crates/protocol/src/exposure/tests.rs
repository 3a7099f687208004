//! What the table says of the paper's tasks, and that it says no less than attacks of ours achieve.

use secsv_federation::{LayerSpec, ModelSpec};
use secsv_he::Preset;

use super::*;
use crate::session::{Matmul, Settings, tests::of_model};

const PROTOCOLS: [Protocol; 3] = [Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv];
const NAMES: [&str; 7] = ["north", "south", "east", "west", "central", "coast", "island"];

fn settings(protocol: Protocol) -> Settings {
    let matmul = if protocol == Protocol::Hesv { Matmul::Squaring } else { Matmul::Packed };
    Settings {
        protocol,
        preset: Preset::Standard,
        matmul,
        always_skips: false,
        whole_rounds: true,
        hidden: Default::default(),
        by_class: false,
    }
}

fn linear(name: &str) -> LayerSpec {
    LayerSpec::Linear { weight: name.into(), bias: None }
}

/// Linear layers of these widths, the first of which is the inputs'.
fn dense(clients: usize, widths: &[usize], protocol: Protocol) -> Exposure {
    let names = ["a", "b", "c"];
    let mut layers = Vec::new();
    for name in &names[..widths.len() - 1] {
        layers.extend([linear(name), LayerSpec::Relu {}]);
    }
    layers.pop();
    let shapes: Vec<[usize; 2]> = widths.windows(2).map(|pair| [pair[1], pair[0]]).collect();
    let shapes: Vec<_> = names.into_iter().zip(&shapes).map(|(name, shape)| (name, &shape[..])).collect();
    let model = ModelSpec::new(vec![widths[0]], widths[widths.len() - 1], layers);
    Exposure::new(&of_model(clients, 10, &model, &shapes, settings(protocol))).unwrap()
}

/// A convolution of 28 by 28 pixels and two linear layers, as for MNIST.
fn convolution(protocol: Protocol) -> Exposure {
    let layers = vec![
        LayerSpec::conv2d("conv".into(), None, 3, 0),
        LayerSpec::Square {},
        LayerSpec::Flatten {},
        linear("a"),
        LayerSpec::Square {},
        linear("b"),
    ];
    let model = ModelSpec::new(vec![1, 28, 28], 10, layers);
    let shapes: [(&str, &[usize]); 3] = [("conv", &[4, 1, 7, 7]), ("a", &[64, 256]), ("b", &[10, 64])];
    Exposure::new(&of_model(5, 10, &model, &shapes, settings(protocol))).unwrap()
}

/// A recurrent unit of so many steps and a linear layer.
fn recurrent(clients: usize, steps: usize, protocol: Protocol) -> Exposure {
    let [weight_ih, weight_hh] = ["ih", "hh"].map(str::to_owned);
    let gru = LayerSpec::Gru { weight_ih, weight_hh, bias_ih: None, bias_hh: None };
    let model = ModelSpec::new(vec![steps, 4], 2, vec![gru, linear("a")]);
    let shapes: [(&str, &[usize]); 3] = [("ih", &[24, 4]), ("hh", &[24, 8]), ("a", &[2, 8])];
    Exposure::new(&of_model(clients, 2, &model, &shapes, settings(protocol))).unwrap()
}

fn sentences(exposure: &Exposure) -> Vec<String> {
    exposure.rows(&NAMES).into_iter().map(|row| row.sentence).collect()
}

#[test]
fn the_words_are_ordered_by_what_they_cost_an_owner() {
    assert!(Can::Nothing < Can::Recognise && Can::Recognise < Can::Rebuild);
    let words = [Can::Nothing, Can::Recognise, Can::Rebuild].map(|can| can.to_string());
    assert_eq!(words, ["nothing", "can recognise", "can rebuild"]);
}

/// Heart, BANK and MNIST under every protocol: every owner is told that others can rebuild its samples and models.
#[test]
fn every_task_under_every_protocol_exposes_every_owner() {
    for protocol in PROTOCOLS {
        let tasks = [dense(4, &[13, 2], protocol), dense(5, &[48, 2], protocol), convolution(protocol)];
        for exposure in tasks {
            let clients = exposure.clients.len();
            for (owner, own) in NAMES.into_iter().enumerate().take(clients) {
                let readers =
                    (0..clients).filter(|&client| exposure.of_samples(client, owner) == Can::Rebuild);
                assert!(readers.count() >= 3, "{protocol:?}");
                assert!(exposure.is_exposed(owner));
                let told = exposure.of_owner(owner, &NAMES).join(" ");
                assert!(told.contains(&format!("can rebuild {own}'s {}", exposure.samples_are)), "{told}");
                assert!(told.contains(&format!("of {own}'s local models")), "{told}");
            }
            // Samples and models fall together: nobody who reads is said to be kept from either.
            for row in &exposure.rows(&NAMES)[..clients] {
                assert_eq!(row.samples == Can::Rebuild, row.models == Can::Rebuild, "{row:?}");
            }
        }
    }
}

#[test]
fn a_convolution_says_images() {
    for protocol in PROTOCOLS {
        let told = sentences(&convolution(protocol));
        assert!(told[0].contains("can rebuild the images of"), "{}", told[0]);
    }
    assert!(sentences(&dense(4, &[13, 2], Protocol::SecSv))[0].contains("can rebuild the records of"));
}

#[test]
fn later_layers_fall_with_the_samples() {
    for n in [4, 5, 6] {
        let two = dense(n, &[20, 8, 3], Protocol::SecSv);
        assert!(two.clients.iter().all(|sight| sight.layers.is_empty() || sight.layers.len() == 2));
        assert!(sentences(&two).iter().any(|told| told.contains("everything: layers 1 to 2")));
    }
    for protocol in PROTOCOLS {
        let told = sentences(&dense(5, &[20, 8, 8, 3], protocol));
        assert!(
            told.iter().filter(|told| told.contains("everything: layers 1 to 3")).count() >= 3,
            "{told:?}"
        );
    }
}

#[test]
fn a_recurrent_unit_says_hidden_weights() {
    for (clients, protocol) in [4, 5].into_iter().flat_map(|n| PROTOCOLS.map(|protocol| (n, protocol))) {
        let told = sentences(&recurrent(clients, 3, protocol));
        let hidden = "the recurrent unit's input and hidden weights";
        assert!(told.iter().filter(|told| told.contains(hidden)).count() >= 2, "{told:?}");
        assert!(told[0].contains("sequences"), "{}", told[0]);
    }
}

#[test]
fn servers_are_told_apart_by_protocol() {
    let can = |protocol, who: &str| {
        let rows = dense(4, &[13, 2], protocol).rows(&NAMES);
        let row = rows.iter().find(|row| row.who == who).unwrap();
        (row.samples, row.models)
    };
    let (nothing, everything) = ((Can::Nothing, Can::Nothing), (Can::Rebuild, Can::Rebuild));
    for protocol in PROTOCOLS {
        assert_eq!(can(protocol, "the principal"), nothing);
        assert_eq!(can(protocol, "the auxiliary"), nothing);
        assert_eq!(can(protocol, "a server that aggregated the training"), (Can::Recognise, Can::Rebuild));
        assert_eq!(can(protocol, "any two clients"), everything);
        assert_eq!(can(protocol, "a client with the principal"), everything);
    }
    assert_eq!(can(Protocol::SecSv, "both servers"), everything);
    assert_eq!(can(Protocol::SecretSv, "both servers"), everything);
    assert_eq!(can(Protocol::Hesv, "both servers"), nothing);
}

#[test]
fn hesvs_counting_client_can_recognise() {
    let exposure = dense(7, &[13, 2], Protocol::Hesv);
    let judges = |owner: usize| exposure.clients.iter().any(|sight| sight.judges.contains(owner));
    assert!((0..7).all(judges));
    let mut counting = Exposure { clients: vec![Sight::default(); 7], ..exposure };
    counting.clients[2].judges = Coalition::EMPTY.with(0);
    assert_eq!(counting.of_samples(2, 0), Can::Recognise);
    assert!(sentences(&counting)[2].ends_with("east can recognise the records of north."));
}

/// Where nobody decrypts no client is exposed to another, however many pool what they hold; both servers together open everything.
#[test]
fn blindsv_exposes_nobody_to_clients() {
    let exposure = dense(5, &[30, 4], Protocol::BlindSv);
    for owner in 0..5 {
        assert!(!exposure.is_exposed(owner));
        let told = exposure.of_owner(owner, &NAMES).join(" ");
        assert!(told.contains("No client alone reads anything about"), "{told}");
        assert!(told.contains("Both servers together can rebuild all samples"), "{told}");
    }
    let rows = exposure.rows(&NAMES);
    let can = |who: &str| {
        let row = rows.iter().find(|row| row.who == who).unwrap();
        (row.samples, row.models)
    };
    assert_eq!(can("any number of clients"), (Can::Nothing, Can::Nothing));
    assert_eq!(can("a client with the principal"), (Can::Nothing, Can::Rebuild));
    assert_eq!(can("both servers"), (Can::Rebuild, Can::Rebuild));
    assert!(exposure.headlines().is_empty());
}

/// Of many clients a few coalitions stand for all.
#[test]
fn many_clients_are_planned_quickly_and_alike() {
    let exposure = dense(40, &[13, 8, 2], Protocol::SecSv);
    let readers =
        |owner| (0..40).filter(|&client| exposure.of_samples(client, owner) == Can::Rebuild).count();
    assert!((0..40).all(|owner| readers(owner) == 3));
    let told = sentences(&exposure);
    assert!(told[39].contains("reads no score and no activation"), "{}", told[39]);
}

/// The tables of docs/SECURITY.md: five clients, a model of one layer.
fn documented() -> String {
    let mut text = String::new();
    for protocol in [Protocol::BlindSv].into_iter().chain(PROTOCOLS) {
        let name = protocol.name();
        text.push_str(&format!("\n### `{name}`\n| who | samples | models | in one sentence |\n"));
        text.push_str("| --- | --- | --- | --- |\n");
        for PartyExposure { who, samples, models, sentence } in dense(5, &[30, 2], protocol).rows(&NAMES) {
            text.push_str(&format!("| {who} | {samples} | {models} | {sentence} |\n"));
        }
    }
    text
}

#[test]
fn the_documents_say_what_the_code_says() {
    let read =
        |file: &str| std::fs::read_to_string(format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (readme, security) = (read("README.md"), read("docs/SECURITY.md"));
    assert!(readme.contains(HEADLINE) && security.contains(HEADLINE) && security.contains(TAKEOVER));
    let (_, rest) = security.split_once("<!-- exposure -->\n").unwrap();
    let (found, _) = rest.split_once("<!-- end of exposure -->").unwrap();
    assert_eq!(found, documented(), "expected between the marks:\n{}", documented());
}

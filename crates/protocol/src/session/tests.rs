//! Who follows which proposal.

use std::path::Path;

use secsv_federation::{Architecture, ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec};
use secsv_he::Preset;

use super::*;

/// Four clients, one round, one layer of three inputs and two classes.
pub(crate) fn federation(protocol: Protocol, matmul: Matmul) -> Federation {
    let preset = Preset::Standard;
    let settings = Settings { protocol, preset, matmul, always_skips: false, whole_rounds: false };
    one_layer(4, 1, 3, settings)
}

/// So many clients, all of which took part in so many rounds, and one layer of so many inputs and two classes.
fn one_layer(clients: usize, rounds: u32, inputs: usize, settings: Settings) -> Federation {
    let layers = vec![LayerSpec::Linear { weight: "a".into(), bias: None }];
    let model = ModelSpec { input: vec![inputs], classes: 2, layers };
    let client = |i: usize| {
        let id = ClientId::new(format!("c{i}")).unwrap();
        ClientSpec { id, train_size: 10, rounds: vec![] }
    };
    let everybody = Coalition::first(clients);
    let clients = (0..clients).map(client).collect();
    let spec = FederationSpec { name: "test".into(), rounds, model: model.clone(), clients };
    let shapes = BTreeMap::from([("a".to_owned(), vec![2, inputs])]);
    let architecture = Architecture::new(&model, &shapes, Path::new("a"), Path::new("a")).unwrap();
    Federation::new(&spec, &architecture, |_| everybody, settings).unwrap()
}

#[test]
fn few_rounds_are_tested_together_where_their_equations_count() {
    let settings = Settings {
        protocol: Protocol::SecSv,
        preset: Preset::Standard,
        matmul: Matmul::Packed,
        always_skips: false,
        whole_rounds: true,
    };
    let most = |clients, rounds, inputs| one_layer(clients, rounds, inputs, settings).most_rounds();
    // A quarter of the inputs, and sixteen.
    assert_eq!([3, 8, 30, 48, 300].map(|inputs| most(5, 10, inputs)), [1, 2, 7, 12, 16]);
    // With nine outsiders a client is one of the three in 42 of 120 rounds, and has as many of 48 equations: twelve rounds
    // at a time would be 48.
    assert!(most(10, 120, 48) < 12);
    // With four clients the same three decrypt always, whatever is tested together.
    assert_eq!(most(4, 120, 48), 12);
    let one_by_one = Settings { whole_rounds: false, ..settings };
    assert_eq!(one_layer(5, 10, 48, one_by_one).most_rounds(), 1);
    let lengths = |most| one_layer(5, 10, 48, settings).stretches(most).into_values().map(|s| s.len());
    assert_eq!(lengths(12).collect::<Vec<_>>(), [10]);
    assert_eq!(lengths(4).collect::<Vec<_>>(), [3, 3, 4]);
}

/// A principal that would have more rounds tested together than the rules allow is not followed.
#[test]
fn a_proposal_of_too_many_rounds_is_refused() {
    let federation = Arc::new(federation(Protocol::SecSv, Matmul::Packed));
    let hello =
        Hello { samples: 2, ranges: Ranges { norms: vec![1], inputs: vec![1] }, public_key: vec![0; 32] };
    let methods = [Method::Packed(Knobs { r: 1, w: 3, s: 2 })];
    let decode = |rounds| {
        Session::decode(&federation, &encode(0, &vec![hello.clone(); 4], rounds, methods)).map(|s| s.is_ok())
    };
    assert_eq!(decode(1), Ok(true));
    for rounds in [0, 2, 60000] {
        assert_eq!(decode(rounds), Err(CodecError::Value { what: "rounds together" }));
    }
}

/// The principal relays the leader's envelopes: with a key of its own in a client's place it could open them.
#[test]
fn a_principal_cannot_put_a_key_of_its_own_in_a_clients_place() {
    let keys: Vec<[u8; 32]> = (0..4).map(|client| [client; 32]).collect();
    let federation =
        Arc::new(federation(Protocol::SecretSv, Matmul::Packed).among(keys.clone(), &[9; 32]).unwrap());
    let mut hellos: Vec<Hello> = keys
        .iter()
        .map(|key| Hello {
            samples: 2,
            ranges: Ranges { norms: vec![1], inputs: vec![1] },
            public_key: key.to_vec(),
        })
        .collect();
    let decode = |hellos: &[Hello]| {
        let proposal = Session::propose(&federation, federation.leader(), hellos, None).unwrap();
        Session::decode(&federation, &proposal).map(|session| session.is_ok())
    };
    assert_eq!(decode(&hellos), Ok(true));
    hellos[2].public_key = vec![200; 32];
    assert_eq!(decode(&hellos), Err(CodecError::Value { what: "envelope key" }));
}

//! Who follows which proposal.

use std::path::Path;

use secsv_federation::{Architecture, ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec};
use secsv_he::{Preset, linear::BlockShape};

use super::*;
use crate::decryptors::Protocol;

/// Four clients, one round, one layer of three inputs and two classes.
pub(crate) fn federation(protocol: Protocol, matmul: Matmul) -> Federation {
    let preset = Preset::Standard;
    let settings = Settings {
        protocol,
        preset,
        matmul,
        always_skips: false,
        whole_rounds: false,
        hidden: Default::default(),
        by_class: false,
    };
    one_layer(4, 1, 3, settings)
}

/// A session of four clients with two samples each.
pub(crate) fn session(protocol: Protocol, matmul: Matmul) -> Session {
    session_of(federation(protocol, matmul))
}

/// The same, in which right predictions are counted for each class.
pub(crate) fn session_by_class(protocol: Protocol, matmul: Matmul) -> Session {
    let settings = Settings { by_class: true, ..federation(protocol, matmul).settings };
    session_of(one_layer(4, 1, 3, settings))
}

fn session_of(federation: Federation) -> Session {
    let federation = Arc::new(federation);
    let ranges = Ranges { norms: vec![1], inputs: vec![1], outputs: vec![1] };
    let hello = ClientHello {
        samples: 2,
        ranges,
        public_key: vec![1; 32],
        accepts_few: true,
        agreement: Default::default(),
    };
    let costs = typical_costs(Preset::Standard);
    Session::propose(&federation, federation.leader(), &vec![hello; 4], Some(&costs)).unwrap().0
}

#[test]
fn few_samples_are_refused_unless_every_owner_accepts() {
    let federation = Arc::new(federation(Protocol::BlindSv, Matmul::Packed));
    let session = |clients: [(u64, bool); 4]| {
        let hello = |(samples, accepts_few)| {
            let ranges = Ranges { norms: vec![1], inputs: vec![1], outputs: vec![1] };
            ClientHello {
                samples,
                ranges,
                public_key: vec![1; 32],
                accepts_few,
                agreement: Default::default(),
            }
        };
        Session::propose(&federation, federation.leader(), &clients.map(hello), None).is_ok()
    };
    assert!(session([(15, false), (15, false), (0, false), (0, false)]));
    assert!(!session([(15, false), (14, false), (0, false), (0, false)]), "29 samples");
    assert!(!session([(15, true), (14, false), (0, true), (0, true)]), "one has not accepted");
    assert!(session([(15, true), (14, true), (0, false), (0, false)]), "whoever has no sample is not asked");
    assert!(!session([(100, false), (0, false), (0, false), (0, false)]), "one owner");
    assert!(session([(100, true), (0, false), (0, false), (0, false)]));
}

/// So many clients, all of which took part in so many rounds, and one layer of so many inputs and two classes.
fn one_layer(clients: usize, rounds: u32, inputs: usize, settings: Settings) -> Federation {
    let layers = vec![LayerSpec::Linear { weight: "a".into(), bias: None }];
    let model = ModelSpec::new(vec![inputs], 2, layers);
    of_model(clients, rounds, &model, &[("a", &[2, inputs])], settings)
}

/// So many clients, all of which took part in so many rounds, and any model.
pub(crate) fn of_model(
    clients: usize,
    rounds: u32,
    model: &ModelSpec,
    shapes: &[(&str, &[usize])],
    settings: Settings,
) -> Federation {
    let client = |i: usize| {
        let id = ClientId::new(format!("c{i}")).unwrap();
        ClientSpec::new(id, 10.0)
    };
    let everybody = Coalition::first(clients);
    let clients = (0..clients).map(client).collect();
    let spec = FederationSpec::new("test".into(), rounds, model.clone(), clients);
    let shapes = shapes.iter().map(|&(name, shape)| (name.to_owned(), shape.to_vec())).collect();
    let architecture = Architecture::new(model, &shapes, Path::new("a"), Path::new("a")).unwrap();
    Federation::new(&spec, &architecture, |_| everybody, settings).unwrap()
}

#[test]
fn rounds_are_tested_together_where_models_have_one_layer_and_all_is_asked_for() {
    let settings = Settings {
        protocol: Protocol::SecSv,
        preset: Preset::Standard,
        matmul: Matmul::Packed,
        always_skips: false,
        whole_rounds: true,
        hidden: Default::default(),
        by_class: false,
    };
    let most = |settings| one_layer(5, 10, 3, settings).most_rounds();
    assert_eq!(most(settings), 16);
    for other in [
        Settings { whole_rounds: false, ..settings },
        Settings { always_skips: true, ..settings },
        Settings { matmul: Matmul::Reducing, ..settings },
        Settings { protocol: Protocol::SecretSv, ..settings },
    ] {
        assert_eq!(most(other), 1, "{other:?}");
    }
    let lengths = |most| one_layer(5, 10, 48, settings).round_batches(most).into_values().map(|s| s.len());
    assert_eq!(lengths(12).collect::<Vec<_>>(), [10]);
    assert_eq!(lengths(4).collect::<Vec<_>>(), [3, 3, 4]);
}

/// A principal that would have more rounds tested together than the rules allow is not followed.
#[test]
fn a_proposal_of_too_many_rounds_is_refused() {
    let federation = Arc::new(federation(Protocol::SecSv, Matmul::Packed));
    let hello = ClientHello {
        accepts_few: false,
        samples: 2,
        ranges: Ranges { norms: vec![1], inputs: vec![1], outputs: vec![1] },
        public_key: vec![0; 32],
        agreement: Default::default(),
    };
    let methods = vec![MatrixMethod::Packed(BlockShape { rows: 1, columns: 3, samples: 2 })];
    let decode = |rounds| {
        let (hellos, methods) = (vec![hello.clone(); 4], methods.clone());
        let proposal = SessionProposal { leader: 0, hellos, rounds, methods };
        Session::decode(&federation, &proposal.encode()).map(|s| s.is_ok())
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
    let federation = Arc::new(
        federation(Protocol::SecretSv, Matmul::Packed).with_identities(keys.clone(), &[9; 32]).unwrap(),
    );
    let mut hellos: Vec<ClientHello> = keys
        .iter()
        .map(|key| ClientHello {
            accepts_few: false,
            samples: 2,
            ranges: Ranges { norms: vec![1], inputs: vec![1], outputs: vec![1] },
            public_key: key.to_vec(),
            agreement: Default::default(),
        })
        .collect();
    let decode = |hellos: &[ClientHello]| {
        let (_, proposal) = Session::propose(&federation, federation.leader(), hellos, None).unwrap();
        Session::decode(&federation, &proposal).map(|session| session.is_ok())
    };
    assert_eq!(decode(&hellos), Ok(true));
    hellos[2].public_key = vec![200; 32];
    assert_eq!(decode(&hellos), Err(CodecError::Value { what: "envelope key" }));
}

//! What a state directory holds after the run.

use std::{fs, path::Path, time::Duration};

use secsv_protocol::decryptors::Protocol;

use crate::federation::{CLIENTS, Fixture, Recipe, randomness};

fn parties() -> impl Iterator<Item = &'static str> {
    ["principal", "auxiliary"].into_iter().chain(CLIENTS)
}

fn files(state: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(state).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

fn has_seed(state: &Path, party: &str) -> bool {
    let seed = &randomness(party)[..32];
    files(state).iter().any(|(_, bytes)| bytes.windows(32).any(|window| window == seed))
}

fn check(recipe: &Recipe) {
    let fixture = Fixture::new(recipe);
    fixture.begin_states();
    for party in parties() {
        assert!(has_seed(&fixture.options(party).state, party), "looked for in the right place");
    }
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    let clients: Vec<_> = CLIENTS.iter().map(|party| fixture.start_client(party)).collect();
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    auxiliary.join().unwrap().unwrap();
    clients.into_iter().for_each(|client| drop(client.join().unwrap().unwrap()));
    for party in parties() {
        let state = fixture.options(party).state;
        assert!(!has_seed(&state, party), "{party} keeps its seed");
        for (name, bytes) in files(&state) {
            let is_secret = name == "journal.redb" || name.ends_with(".contents");
            assert!(!is_secret || bytes.iter().all(|&byte| byte == 0), "{party} keeps {name}");
        }
        let names: Vec<String> = files(&state).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"audit.jsonl".to_owned()), "{party}: {names:?}");
        assert!(names.contains(&"federation.toml".to_owned()), "{party}: {names:?}");
    }
    let named = parties().map(|party| fixture.options(party).state).collect::<Vec<_>>();
    assert_eq!(secsv_node::verify::verify(&named, None).unwrap().findings, []);
}

#[test]
fn no_seed_and_no_contents_are_left_after_a_run() {
    check(&Recipe { hidden: Some(3), ..Recipe::default() });
}

#[test]
fn no_seed_and_no_contents_are_left_after_a_run_of_secretsv() {
    check(&Recipe { protocol: Protocol::SecretSv, ..Recipe::default() });
}

/// Owners' masks, and what was dealt by them, serve once.
#[test]
fn no_seed_and_no_contents_are_left_after_a_run_of_blindsv() {
    check(&Recipe { protocol: Protocol::BlindSv, hidden: Some(3), ..Recipe::default() });
}

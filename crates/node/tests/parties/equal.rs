//! The same bits in one process and over TLS.

use std::{fs, time::Duration};

use secsv_federation::skip::SkipMode;
use secsv_protocol::decryptors::Protocol;

use crate::federation::{CLIENTS, Fixture, Recipe};

fn check(recipe: &Recipe) {
    let fixture = Fixture::new(recipe);
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    let clients: Vec<_> = CLIENTS.iter().map(|party| fixture.start_client(party)).collect();
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    let learned = auxiliary.join().unwrap().unwrap();
    assert_eq!((&learned.fsv, &learned.utilities), (&result.fsv, &result.utilities));
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap(), learned);
    }
    if recipe.protocol.rules().recounts() {
        assert_counts_are_confirmed(&fixture, recipe.skip == SkipMode::Off);
    }
    // Started again to tell somebody who missed them, it has the same values, and what they cost the first time.
    assert_eq!(fixture.start_principal(Duration::from_secs(300)).join().unwrap().unwrap(), result);
}

/// The auxiliary has counted for itself and logged what it found.
fn assert_counts_are_confirmed(fixture: &Fixture, all: bool) {
    let log = fs::read_to_string(fixture.options("auxiliary").state.join("audit.jsonl")).unwrap();
    let line = log.lines().find(|line| line.contains("\"recount\"")).expect("a line about the recount");
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let count = |name: &str| line["recount"][name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert_eq!(count("differing"), 0, "{line}");
    assert!(count("confirmed") > 0 && (!all || count("confirmed") == count("told")), "{line}");
}

#[test]
fn secsv_over_tls_is_secsv() {
    check(&Recipe { rounds: 2, ..Recipe::default() });
}

#[test]
fn secsv_with_layers_and_skipping_over_tls_is_the_same() {
    check(&Recipe { hidden: Some(3), skip: SkipMode::On, ..Recipe::default() });
}

#[test]
fn hesv_over_tls_is_hesv() {
    check(&Recipe { protocol: Protocol::Hesv, ..Recipe::default() });
}

#[test]
fn secretsv_over_tls_is_secretsv() {
    check(&Recipe { protocol: Protocol::SecretSv, rounds: 2, hidden: Some(3), ..Recipe::default() });
}

#[test]
fn blindsv_over_tls_is_blindsv() {
    check(&Recipe { protocol: Protocol::BlindSv, rounds: 3, ..Recipe::default() });
}

#[test]
fn blindsv_that_skips_samples_over_tls_is_the_same() {
    let skip = SkipMode::On;
    check(&Recipe { protocol: Protocol::BlindSv, rounds: 2, skip, ..Recipe::default() });
}

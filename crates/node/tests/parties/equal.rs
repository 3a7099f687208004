//! The same bits in one process and over TLS.

use std::{fs, path::PathBuf, time::Duration};

use secsv_evaluation::{EvaluationResult, Utility};
use secsv_federation::skip::SkipMode;
use secsv_node::verify::verify;
use secsv_protocol::decryptors::Protocol;

use crate::federation::{CLIENTS, Fixture, Recipe};

fn check(recipe: &Recipe) -> Fixture {
    let fixture = Fixture::new(recipe);
    let principal = fixture.start_principal(Duration::from_secs(300));
    let auxiliary = fixture.start_auxiliary();
    let clients: Vec<_> = CLIENTS.iter().map(|party| fixture.start_client(party)).collect();
    let result = principal.join().unwrap().unwrap();
    fixture.assert_values(&result);
    assert_eq!(
        (result.utility.parse(), result.class_samples.is_empty()),
        (Ok(recipe.utility), !recipe.utility.needs_classes())
    );
    let learned = auxiliary.join().unwrap().unwrap();
    assert_eq!((&learned.fsv, &learned.utilities), (&result.fsv, &result.utilities));
    assert_eq!((&learned.utility, &learned.class_samples), (&result.utility, &result.class_samples));
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap(), learned);
    }
    if recipe.protocol.rules().recounts() {
        assert_counts_are_confirmed(&fixture, recipe.skip == SkipMode::Off);
    }
    // Started again to tell somebody who missed them, it has the same values, and what they cost the first time.
    assert_eq!(fixture.start_principal(Duration::from_secs(300)).join().unwrap().unwrap(), result);
    fixture
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

/// Kits, servers, journals and everybody's values know the utility, and what is written down fits it.
#[test]
fn blindsv_that_counts_classes_over_tls_is_the_same() {
    let utility = Utility::BalancedAccuracy;
    let fixture = check(&Recipe { protocol: Protocol::BlindSv, rounds: 2, utility, ..Recipe::default() });
    let parties = ["principal", "auxiliary"].into_iter().chain(CLIENTS);
    let states: Vec<PathBuf> = parties.map(|party| fixture.options(party).state).collect();
    let found = verify(&states, None).unwrap();
    assert_eq!((&found.findings[..], found.values > 0), (&[][..], true));
    // A count that was moved from one class to the other is found, although sums are what they were.
    let written = fs::read(states[0].join("result.json")).unwrap();
    let mut result: EvaluationResult = serde_json::from_slice(&written).unwrap();
    let counts = &mut result.utilities[3].correct_of_classes;
    let (from, to) = if counts[0] > 0 { (0, 1) } else { (1, 0) };
    counts[from] -= 1;
    counts[to] += 1;
    let copy = fixture.path().join("other.json");
    fs::write(&copy, serde_json::to_vec(&result).unwrap()).unwrap();
    let findings = verify(&states, Some(&copy)).unwrap().findings;
    assert!(
        findings.iter().any(|finding| finding.what.contains("from the utilities")
            || finding.what.contains("correct_of_classes")),
        "{findings:?}"
    );
}

#[test]
fn blindsv_that_skips_samples_over_tls_is_the_same() {
    let skip = SkipMode::On;
    check(&Recipe { protocol: Protocol::BlindSv, rounds: 2, skip, ..Recipe::default() });
}

//! The same bits in one process and over TLS.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use secsv_evaluation::{EvaluationResult, Utility, secure_result::party_name};
use secsv_federation::skip::SkipMode;
use secsv_node::{audit::RESULT_FILE, verify::verify};
use secsv_protocol::{PartyId, decryptors::Protocol, message::Kind};

use crate::{
    federation::{CLIENTS, FirstLayer, Fixture, Recipe},
    frames::{Link, all_sent, by_link},
    ideal::planned,
};

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

fn blindsv() -> Recipe {
    Recipe { protocol: Protocol::BlindSv, ..Recipe::default() }
}

fn blindsv_of_two_layers() -> Recipe {
    Recipe { hidden: Some(3), samples: 20, rounds: 2, ..blindsv() }
}

/// A convolution, a pool of largest numbers and a square.
fn blindsv_of_images() -> Recipe {
    Recipe { hidden: Some(3), first: FirstLayer::Convolution, samples: 20, rounds: 2, ..blindsv() }
}

/// Checks a recipe, and that everybody sends what was planned: messages and bytes on every link, of every kind.
fn check_as_planned(recipe: &Recipe) {
    let fixture = check(recipe);
    let (run, kit) = (fixture.run(), fixture.kit("principal"));
    let name = |party: PartyId| party_name(run.spec(), party);
    let planned = planned(&run, kit.session().unwrap()).traffic.into_iter();
    let planned: BTreeMap<Link, (u64, u64)> = planned
        .map(|((from, to, kind), counted)| ((name(from), name(to), kind.name().to_owned()), counted))
        .collect();
    let mut sent = by_link(&all_sent(&fixture));
    // What nobody can plan: how long the values are, which all are told in the end.
    let values = sent.extract_if(.., |(.., kind), _| kind == Kind::Values.name()).count();
    assert_eq!(values, 1 + CLIENTS.len());
    assert_eq!(sent, planned);
    // The principal's result says the same of its own links.
    let file = fixture.options("principal").state.join(RESULT_FILE);
    let result: EvaluationResult = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let own = |(from, to, _): &Link| [from, to].contains(&&name(PartyId::Principal));
    let mut links: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (link, (bytes, messages)) in planned.into_iter().filter(|(link, _)| own(link)) {
        let (from, to, kind) = link;
        *links.entry((from, to)).or_default() += bytes;
        let of_kind = kinds.entry(kind).or_default();
        *of_kind = (of_kind.0 + bytes, of_kind.1 + messages);
    }
    let told = result.traffic.into_iter().map(|link| ((link.from, link.to), link.bytes));
    assert_eq!(told.collect::<BTreeMap<_, _>>(), links);
    let told = result.messages.into_iter().map(|kind| (kind.kind, (kind.bytes, kind.messages)));
    assert_eq!(told.collect::<BTreeMap<_, _>>(), kinds);
}

#[test]
fn blindsv_over_tls_is_blindsv_and_sends_what_was_planned() {
    check_as_planned(&Recipe { rounds: 3, ..blindsv() });
}

#[test]
fn deep_blindsv_over_tls_is_blindsv_and_sends_what_was_planned() {
    check_as_planned(&blindsv_of_two_layers());
}

#[test]
fn blindsv_of_images_over_tls_is_blindsv_and_sends_what_was_planned() {
    check_as_planned(&blindsv_of_images());
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
    check(&Recipe { rounds: 2, skip, ..blindsv() });
    check(&Recipe { skip, ..blindsv_of_images() });
}

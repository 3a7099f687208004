//! Every message that travelled is in the view of whoever received it.

use std::collections::BTreeMap;

use secsv_evaluation::{EvaluationSettings, SecureEvaluator, evaluate, in_process::Honest};
use secsv_federation::skip::SkipMode;
use secsv_protocol::{PartyId, Seed, decryptors::Protocol, message::Kind, session::typical_costs};

use crate::federations::{Case, SEED, Seen, Shape};

/// Messages of all views are those that travelled.
pub fn check(seen: &Seen) {
    let mut listed: BTreeMap<(PartyId, PartyId, Kind), (u64, u64)> = BTreeMap::new();
    for to in seen.parties() {
        for message in &seen.party(to).view.messages {
            let entry = listed.entry((message.from, to, message.kind)).or_default();
            *entry = (entry.0 + message.bytes as u64, entry.1 + 1);
        }
    }
    assert_eq!(listed, seen.accounts.traffic);
    let bytes: u64 = listed.values().map(|(bytes, _)| bytes).sum();
    assert_eq!(bytes, seen.result.traffic.iter().map(|link| link.bytes).sum::<u64>());
}

#[test]
fn views_have_all_messages_and_no_others() {
    for protocol in [Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv] {
        let case = Case::new(Shape::Gru, &[2, 1, 3, 2], 1);
        let seen = case.record(protocol, SkipMode::Off);
        check(&seen);
        for party in seen.parties() {
            let view = &seen.party(party).view;
            for message in &view.messages {
                // Servers read no ciphertext; clients read every reply.
                let is_server = !matches!(party, PartyId::Client(_));
                let is_hidden = message.holds == "ciphertext, not readable";
                assert!(!(is_hidden && message.read), "{party}: {}", message.kind);
                let read = matches!(message.kind, Kind::Reply | Kind::OutputShare | Kind::BlindedDifferences);
                assert!(is_server || !read || message.read, "{party}: {}", message.kind);
            }
            if let PartyId::Client(_) = party {
                assert!(view.secrets.contains(&"clients' label secret"));
            } else {
                assert!(!view.secrets.iter().any(|secret| secret.starts_with("clients")));
            }
        }
    }
}

/// The same seed gives the same messages and values with and without a recorder.
#[test]
fn recording_changes_nothing() {
    let case = Case::new(Shape::Dnn, &[2, 1, 3, 2], 1);
    let recorded = case.record(Protocol::SecSv, SkipMode::Off);
    let settings = case.settings(Protocol::SecSv, SkipMode::Off);
    let costs = Some(typical_costs(settings.preset));
    let seed = Seed::from_bytes(SEED);
    let mut evaluator = SecureEvaluator::new(&case.run, settings, costs, &seed, Box::new(Honest)).unwrap();
    let result = evaluate(case.run.spec(), &mut evaluator, &EvaluationSettings::default(), |_| {}).unwrap();
    assert_eq!(result.fsv, recorded.result.fsv);
    assert_eq!(evaluator.accounts().traffic, recorded.accounts.traffic);
}

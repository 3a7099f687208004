//! Another session over the same samples is entered with the word that it asks for, and a restart without any.

use std::collections::BTreeMap;

use secsv_federation::{RoundFile, RoundId, Tensor};
use tempfile::TempDir;

use super::*;
use crate::{consent::ConsentError, kit::tests::provision};

/// North's kit, provisioned anew.
fn kit(directory: &TempDir, name: &str, protocol: &str) -> Kit {
    let mut provision = provision();
    provision.session.protocol = protocol.to_owned();
    let out = directory.path().join(name);
    provision.generate_keys(&out).unwrap();
    Kit::open(&out.join("north")).unwrap()
}

fn input(samples: &[f32], weight: f32) -> ClientInput {
    let model = || Weights::from_iter([("w".to_owned(), Tensor::new(vec![2, 3], vec![weight; 6]).unwrap())]);
    let features: Vec<f32> = samples.iter().flat_map(|&sample| [sample, 1.0, 2.0]).collect();
    let test_set = TestSet::new(vec![3], features, vec![0; samples.len()]).unwrap();
    let models = || BTreeMap::from([(RoundId(1), model())]);
    ClientInput { test_set, local: models(), global: models(), initial: model(), accepts_few: false }
}

fn word(refused: Result<(), Error>, expected: &str) -> String {
    let error = refused.unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains(expected), "{error}");
    let Error::Consent(ConsentError::Unaccepted { question, .. }) = error else { panic!("{error}") };
    question.word
}

#[test]
fn another_session_over_the_same_samples_needs_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    let enter = |kit: &Kit, state: u8, input: &ClientInput, again: Option<&str>| {
        let record = Record::open(&file).unwrap();
        record.enter(&SessionEntry::new(kit, &[state; 16], input), kit, again)
    };
    let (first, second) = (kit(&directory, "first", "secsv"), kit(&directory, "second", "secretsv"));
    let (samples, changed) = (input(&[3.0, 4.0], 0.5), input(&[4.0, 5.0, 6.0], 0.25));
    enter(&first, 1, &samples, None).unwrap();
    // The same session goes on.
    enter(&first, 1, &samples, None).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
    // Its state is gone: what was drawn is drawn anew, and this is another session.
    let again = word(enter(&first, 2, &samples, None), "2 of 2 samples were in a session before");
    assert_eq!(word(enter(&first, 2, &samples, Some("yes")), "found \"yes\""), again);
    // Another federation, and other models of which one sample is known.
    let other = word(enter(&second, 3, &changed, Some(&again)), "1 of 3 samples were in a session before");
    assert_ne!(again, other);
    enter(&second, 3, &changed, Some(&other)).unwrap();
    enter(&second, 3, &changed, None).unwrap();
    // Samples that were in none.
    enter(&second, 4, &input(&[7.0], 0.5), None).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
}

#[test]
fn what_another_session_adds_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let kit = kit(&directory, "kits", "secsv");
    let [same, other] = [0.5, 0.25].map(|weight| SessionEntry::new(&kit, &[1; 16], &input(&[3.0], weight)));
    assert!(same.adds(&same, 1).contains("the same clients read about them again"));
    assert!(same.adds(&other, 1).contains("under more models"));
    assert_ne!((same.models, &same.samples), (other.models, &String::new()));
}

#[test]
fn a_record_that_cannot_be_kept_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let kit = kit(&directory, "kits", "secsv");
    let entry = SessionEntry::new(&kit, &[1; 16], &input(&[3.0], 0.5));
    let nowhere = directory.path().join("no/such/place");
    let error = Record::open(&nowhere).unwrap().enter(&entry, &kit, None).unwrap_err();
    assert!(error.to_string().contains("--record FILE") && error.is_bad_input(), "{error}");
    let file = directory.path().join(FILE);
    fs::write(&file, "not a session\n").unwrap();
    let error = Record::open(&file).err().unwrap();
    assert!(error.to_string().contains("line 1: expected a session"), "{error}");
}

/// A kit whose rounds come later, as it is in a round.
fn of_round(kits: &Path, round: u32) -> Kit {
    let kit = Kit::open(&kits.join("north")).unwrap();
    let text = format!("round = {round}\n[[clients]]\nid = \"north\"\n[[clients]]\nid = \"south\"\n");
    let file = RoundFile::parse(&text, kits, &kit.federation.federation).unwrap();
    kit.of_round(&file).unwrap()
}

#[test]
fn rounds_of_one_federation_are_one_session_and_the_same_round_twice_is_another() {
    let directory = tempfile::tempdir().unwrap();
    let (file, kits) = (directory.path().join(FILE), directory.path().join("kits"));
    crate::kit::tests::followed().generate_keys(&kits).unwrap();
    let earlier = kit(&directory, "earlier", "secsv");
    let samples = input(&[3.0, 4.0], 0.5);
    let enter = |kit: &Kit, state: u8, again: Option<&str>| {
        let record = Record::open(&file).unwrap();
        record.enter(&SessionEntry::new(kit, &[state; 16], &samples), kit, again)
    };
    enter(&earlier, 1, None).unwrap();
    // What came before is asked for once, with the word of the federation.
    let again = word(enter(&of_round(&kits, 1), 2, None), "2 of 2 samples were in a session before");
    assert_eq!(word(enter(&of_round(&kits, 2), 2, None), "2 of 2 samples"), again);
    enter(&of_round(&kits, 1), 2, Some(&again)).unwrap();
    enter(&of_round(&kits, 2), 3, None).unwrap();
    // It goes on, and with the next rounds.
    enter(&of_round(&kits, 1), 2, None).unwrap();
    enter(&of_round(&kits, 4), 4, None).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 4);
    // A round in another state is another session over the same samples.
    word(enter(&of_round(&kits, 2), 5, None), "2 of 2 samples were in a session before");
    word(enter(&of_round(&kits, 1), 5, None), "2 of 2 samples were in a session before");
}

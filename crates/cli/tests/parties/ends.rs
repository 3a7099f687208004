//! The end of a run as operators and owners see it: last words, warnings, names, the verdict.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use secsv_protocol::{Preset, decryptors::Protocol};
use serde_json::Value;

use crate::consortium::{Consortium, PATIENCE, Recipe, secsv};

/// Runs a federation to its end.
fn ended(protocol: Protocol) -> Consortium {
    let preset = if protocol == Protocol::BlindSv { Preset::Standard } else { Preset::Compact };
    let consortium = Consortium::new(&Recipe { rounds: 1, protocol, preset, ..Recipe::default() });
    consortium.start_all().finish();
    consortium
}

/// Exit code and standard output of `verify`.
fn verify(consortium: &Consortium, parties: &[String]) -> (Option<i32>, String) {
    let states = parties.iter().map(|party| consortium.state(party));
    let output = secsv().arg("verify").args(states).stdout(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// What a client was told makes a report: values, who they are of, and who can rebuild what.
fn a_silo_can_report(consortium: &Consortium) {
    let (told, page) =
        (consortium.state("client-1").join("told.json"), consortium.state("client-1").join("told.html"));
    fs::write(&told, consortium.printed("client-1").to_string()).unwrap();
    let made = secsv().arg("report").arg(&told).arg("--out").arg(&page).status().unwrap();
    assert!(made.success());
    let page = fs::read_to_string(page).unwrap();
    for said in ["client-5", "trained on", "Who can rebuild what of others", "How sure the numbers are"] {
        assert!(page.contains(said), "{said}: {page}");
    }
}

/// How far a client is, as its log, and a program that asks, are told: all that was planned is through in the end.
fn a_silo_sees_how_far_it_is(consortium: &Consortium) {
    let last = consortium.log("client-1").lines().rfind(|line| line.contains("through")).map(str::to_owned);
    let last: Value = serde_json::from_str(&last.unwrap()).unwrap();
    let (finished, planned) = (&last["finished"], &last["planned"]);
    assert!(planned.as_u64() > Some(0) && finished == planned, "{last}");
}

#[test]
fn a_good_run_ends_without_a_warning_and_with_a_verdict() {
    for protocol in [Protocol::BlindSv, Protocol::SecSv] {
        good_run(protocol);
    }
}

fn good_run(protocol: Protocol) {
    let consortium = ended(protocol);
    a_silo_sees_how_far_it_is(&consortium);
    for party in &consortium.parties {
        let log = consortium.log(party);
        // Whoever comes before the servers listen may say so.
        let begun = log.split_once("link is up").map_or(&*log, |(_, rest)| rest);
        assert!(!begun.contains("WARN"), "{party}:\n{begun}");
        let by_number = |n: usize| log.contains(&format!("client {n}"));
        assert!(!(1..=5).any(by_number), "{party}:\n{log}");
    }
    a_silo_can_report(&consortium);
    let (code, text) = verify(&consortium, &consortium.parties);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("verdict: fits\n"), "{text}");
    let silo: Vec<String> = vec!["client-1".to_owned()];
    let (code, text) = verify(&consortium, &silo);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.ends_with("verdict: nothing to judge\n"), "{text}");
    fs::write(consortium.state("principal").join("result.json"), "{}").unwrap();
    let (code, text) = verify(&consortium, &consortium.parties);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.ends_with("verdict: does not fit\n"), "{text}");
}

/// A client whose run has ended is started again, finds nobody, and is told to stop: it has its values.
#[test]
fn a_party_that_has_its_values_is_not_stopped_before_them() {
    let consortium = ended(Protocol::SecSv);
    for party in ["client-1", "auxiliary"] {
        let said = consortium.log(party).matches("the values have come").count();
        let child = consortium.start(party);
        let since = Instant::now();
        while consortium.log(party).matches("the values have come").count() == said {
            assert!(since.elapsed() < PATIENCE, "{}", consortium.log(party));
            std::thread::sleep(Duration::from_millis(20));
        }
        let stopped = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
        assert!(stopped.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", consortium.log(party));
        assert_eq!(consortium.printed(party)["clients"].as_array().map(Vec::len), Some(5));
        assert!(since.elapsed() < Duration::from_secs(25), "it waits for nobody");
    }
}

/// A state directory that was lost cannot be made up for: the process ends with the reason instead of dialling for ever. One
/// that is told to stop has not failed.
#[test]
fn a_client_without_its_state_directory_ends_with_the_reason() {
    let consortium = Consortium::new(&Recipe { rounds: 1, ..Recipe::default() });
    let mut running = consortium.start_some(&["principal", "auxiliary", "client-1"]);
    for peer in ["principal", "auxiliary"] {
        consortium.await_log("client-1", &format!("\"peer\":\"{peer}\",\"due\":0"));
    }
    let mut client = running.running.remove("client-1").unwrap();
    let stopped = Command::new("kill").arg("-TERM").arg(client.id().to_string()).status().unwrap();
    assert!(stopped.success());
    assert_eq!(client.wait().unwrap().code(), Some(3), "{}", consortium.log("client-1"));
    fs::remove_dir_all(consortium.state("client-1")).unwrap();
    fs::remove_file(consortium.run().join("clients/client-1/sessions.jsonl")).unwrap();
    let mut again = consortium.start_some(&["client-1"]);
    let code = again.running.remove("client-1").unwrap().wait().unwrap().code();
    let log = consortium.log("client-1");
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("no link: ") && log.contains("provision anew (docs/RUNBOOK.md)"), "{log}");
}

/// Certificates are renewed while a run waits: it goes on with the same state directories, to the same values.
#[test]
fn a_run_outlives_its_certificates() {
    let consortium = Consortium::new(&Recipe { rounds: 1, ..Recipe::default() });
    let expected = consortium.expected();
    let begun = consortium.start_some(&["principal", "auxiliary", "client-1"]);
    consortium.await_log("client-1", "\"peer\":\"auxiliary\",\"due\":0");
    drop(begun);
    let (kits, renewed) = (consortium.path().join("kits"), consortium.path().join("renewed"));
    assert!(secsv().arg("renew").arg(&kits).arg("--out").arg(&renewed).status().unwrap().success());
    // All but one party change now; the last one is refused until it does.
    let install = |party: &str| {
        for file in fs::read_dir(renewed.join(party)).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, kits.join(party).join(file.file_name().unwrap())).unwrap();
        }
    };
    let late = "client-2";
    consortium.parties.iter().filter(|party| *party != late).for_each(|party| install(party));
    let mut running = consortium.start_all();
    consortium.await_log(late, "no link; dialling again");
    let mut client = running.running.remove(late).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    install(late);
    running.running.insert(late.to_owned(), consortium.start(late));
    running.finish();
    consortium.assert_equal(&expected);
    let (code, text) = verify(&consortium, &consortium.parties);
    assert_eq!(code, Some(0), "{text}");
}

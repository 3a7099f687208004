//! `secsv keygen`, `provision`, `preflight` and `verify` as a user sees them: output, files and exit codes.

#![cfg(test)]

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

const PARTIES: [&str; 6] = ["principal", "auxiliary", "client-1", "client-2", "client-3", "client-4"];

fn secsv(arguments: &[&str], directory: &Path) -> Outcome<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).args(arguments).current_dir(directory).output()?)
}

/// Standard output and error of a call that ends with this code.
fn ends(arguments: &[&str], directory: &Path, code: i32) -> Outcome<(String, String)> {
    let output = secsv(arguments, directory)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{errors}");
    Ok((out, errors))
}

fn trained(directory: &Path) -> Outcome<()> {
    let model = ["--model", "logistic", "--clients", "4", "--rounds", "1", "--out", "run"];
    ends(&[&["train", "--dataset", "breast-cancer"], &model[..]].concat(), directory, 0)?;
    Ok(())
}

/// Port 9 of loopback: nobody listens there.
const PROVISION: [&str; 9] = [
    "provision",
    "run/federation.toml",
    "--principal",
    "127.0.0.1:9",
    "--auxiliary",
    "127.0.0.1:19",
    "--out",
    "kits",
    "--servers-did-not-aggregate",
];

/// The word that a refusal ends with, after the argument it belongs to.
fn word(errors: &str, argument: &str) -> Outcome<String> {
    let (_, word) = errors.trim().rsplit_once(&format!("{argument} ")).ok_or("a word")?;
    Ok(word.to_owned())
}

#[test]
fn keys_made_at_home_become_kits() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    let home = guard.path();
    trained(home)?;
    fs::create_dir(home.join("requests"))?;
    let mut fingerprints = Vec::new();
    for party in PARTIES {
        let kit = format!("sites/{party}");
        let (out, said) = ends(&["keygen", "--id", party, "--out", &kit], home, 0)?;
        fingerprints.push(said.trim().rsplit_once(' ').ok_or("a fingerprint")?.1.to_owned());
        assert_eq!(out.trim(), format!("{kit}/{party}.request.toml"));
        fs::copy(home.join(out.trim()), home.join(format!("requests/{party}.request.toml")))?;
    }
    let (_, errors) = ends(&["keygen", "--id", "client-1", "--out", "sites/client-1"], home, 2)?;
    assert!(errors.contains("private-key.pem: file: expected no file here"), "{errors}");
    let (_, errors) = ends(&["keygen", "--id", "../x", "--out", "sites/x"], home, 2)?;
    assert!(errors.contains("--id"), "{errors}");

    let requests = ["--requests", "requests", "--format", "json"];
    let last = home.join("requests/client-4.request.toml");
    fs::rename(&last, home.join("kept"))?;
    let (_, errors) = ends(&[&PROVISION[..], &requests].concat(), home, 2)?;
    assert!(
        errors.contains("client-4.request.toml: file: expected this file") && !home.join("kits").exists()
    );
    fs::rename(home.join("kept"), &last)?;
    let (out, said) = ends(&[&PROVISION[..], &requests].concat(), home, 0)?;
    for (party, fingerprint) in PARTIES.iter().zip(&fingerprints) {
        assert_eq!(fingerprint.len(), 24);
        assert!(said.contains(&format!("request of {party}: fingerprint {fingerprint}")), "{said}");
    }
    let made: Value = serde_json::from_str(&out)?;
    assert_eq!(made["kits"].as_object().ok_or("kits")?.len(), 6);
    let agreed = fs::read_to_string(home.join("kits/client-1/federation.toml"))?;
    assert!(agreed.contains("protocol = \"blindsv\""), "the default: {agreed}");

    for file in ["certificate.pem", "authority.pem", "federation.toml", "federation.signature"] {
        fs::copy(home.join("kits/client-1").join(file), home.join("sites/client-1").join(file))?;
    }
    // The kit opens; its owner is asked; nobody listens yet.
    let ready = ["preflight", "sites/client-1", "--state", "state"];
    let (_, errors) = ends(&ready, home, 2)?;
    assert!(errors.contains("No client alone reads anything about client-1's records"), "{errors}");
    assert!(errors.contains("Both servers together can rebuild all samples"), "{errors}");
    let accepted = word(&errors, "--accept-exposure")?;
    let (_, errors) = ends(&[&ready[..], &["--accept-exposure", "yes"]].concat(), home, 2)?;
    assert!(errors.contains("found \"yes\""), "{errors}");
    let (out, errors) = ends(&[&ready[..], &["--accept-exposure", &accepted]].concat(), home, 1)?;
    let digest = made["federation"].as_str().ok_or("digest")?;
    assert!(out.starts_with(&format!("ok       kit: client-1, federation {digest}")), "{out}");
    let with_data = [&ready[..], &["--data", "run", "--accept-exposure", &accepted]].concat();
    let (told, _) = ends(&with_data, home, 1)?;
    assert!(told.contains("ok       data run: ") && told.contains("test cases, "), "{told}");
    assert!(told.contains("ok       memory: ") && told.contains("ok       disk for this run: "), "{told}");
    assert!(
        out.contains("failed   principal: port 9: ") && errors.contains("2 checks failed"),
        "{out}{errors}"
    );
    let (_, errors) = ends(&["preflight", "kits/client-2"], home, 2)?;
    assert!(errors.contains("private-key.pem: file: expected this file, found none"), "{errors}");
    Ok(())
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_written() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    let home = guard.path();
    trained(home)?;
    for (settings, expected) in [
        (&["--protocol", "nssv"][..], "--protocol"),
        (&["--protocol", "hesv", "--skip", "on"], "--skip"),
        (&["--protocol", "hesv", "--preset", "compact"], "hesv needs the preset standard"),
        (&["--protocol", "secsv", "--matmul", "squaring"], "--matmul"),
        (&["--estimator", "contribution-index-or"], "--estimator"),
        (&["--principal", "nowhere"], "HOST:PORT"),
        (&["--principal", "0.0.0.0:9"], "--principal"),
        (&["--principal", "127.1:9"], "--principal"),
        (
            &["--principal", "127.0.0.1:19"],
            "servers.auxiliary: expected another address than the principal's",
        ),
        (&["--epsilon", "0"], "epsilon"),
    ] {
        let base: Vec<&str> = match settings[0] {
            "--principal" => {
                PROVISION.iter().copied().filter(|a| !["--principal", "127.0.0.1:9"].contains(a)).collect()
            }
            _ => PROVISION.to_vec(),
        };
        let (_, errors) = ends(&[&base[..], &["--generate-keys"], settings].concat(), home, 2)?;
        assert!(errors.contains(expected), "{settings:?}: {errors}");
        assert!(!home.join("kits").exists(), "{settings:?}");
    }
    ends(&[&PROVISION[..], &["--generate-keys"]].concat(), home, 0)?;
    assert!(home.join("kits/client-3/private-key.pem").is_file());
    let (_, errors) = ends(&[&PROVISION[..], &["--generate-keys"]].concat(), home, 2)?;
    assert!(errors.contains("expected an absent or empty directory"), "{errors}");
    Ok(())
}

/// A client says what others can do with its samples and models, and waits for its owner to accept just that.
#[test]
fn a_client_does_not_start_before_its_owner_has_accepted() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    let home = guard.path();
    trained(home)?;
    let mut words = Vec::new();
    for protocol in ["secsv", "secretsv"] {
        let made = [&PROVISION[..], &["--generate-keys", "--protocol", protocol]].concat();
        let (out, _) = ends(&made, home, 0)?;
        assert!(out.contains("who can do what with other clients' samples and models"), "{out}");
        assert!(out.contains("client-2 can rebuild the records of"), "{out}");
        for client in ["client-1", "client-2"] {
            let kit = format!("kits/{client}");
            let start = ["client", &kit, "--data", "run", "--state", "state"];
            let (out, errors) = ends(&start, home, 2)?;
            assert!(
                out.is_empty() && errors.contains(&format!("can rebuild {client}'s records")),
                "{errors}"
            );
            assert!(!home.join("state").exists(), "nothing is begun");
            words.push(word(&errors, "--accept-exposure")?);
            if let [.., before, _] = &words[..] {
                let (_, errors) = ends(&[&start[..], &["--accept-exposure", before]].concat(), home, 2)?;
                assert!(errors.contains(&format!("found {before:?}")), "another's word: {errors}");
            }
        }
        fs::remove_dir_all(home.join("kits"))?;
    }
    Ok(())
}

/// Whoever aggregated the training knows all models: a server of its own would recognise samples.
#[test]
fn kits_are_made_if_no_server_aggregated_the_training() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    let home = guard.path();
    trained(home)?;
    let silent = [&PROVISION[..8], &["--generate-keys"]].concat();
    let (_, errors) = ends(&silent, home, 2)?;
    assert!(
        errors.contains("--servers-did-not-aggregate: expected this assurance, found none. No server"),
        "{errors}"
    );
    assert!(!home.join("kits").exists());
    Ok(())
}

#[test]
fn there_must_be_something_to_verify() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    let (_, errors) = ends(&["verify", "nothing"], guard.path(), 2)?;
    assert!(errors.contains("audit.jsonl: expected a party's audit log"), "{errors}");
    assert_eq!(errors.matches("No such file").count(), 1, "{errors}");
    Ok(())
}

#[test]
fn a_place_to_listen_has_an_address_and_a_port() -> Outcome<()> {
    let guard = tempfile::tempdir()?;
    for command in [&["principal", "kit", "--state", "state"][..], &["auxiliary", "kit", "--state", "state"]]
    {
        for bad in ["nonsense", "127.0.0.1", "127.0.0.1:port", ":80"] {
            let (_, errors) = ends(&[command, &["--listen", bad]].concat(), guard.path(), 2)?;
            assert!(errors.contains("--listen: expected ADDRESS:PORT"), "{bad}: {errors}");
        }
        // Every address of the machine will do; there is no kit.
        let (_, errors) = ends(&[command, &["--listen", "0.0.0.0:80"]].concat(), guard.path(), 2)?;
        assert!(!errors.contains("--listen"), "{errors}");
    }
    Ok(())
}

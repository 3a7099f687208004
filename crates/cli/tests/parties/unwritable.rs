//! Parties whose output takes nothing: full, closed, slow, left early. They end well, with the values of one process.

use std::{
    fs::{self, File},
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    process::{Child, Stdio},
    time::Duration,
};

use secsv_protocol::{Preset, decryptors::Protocol};

use crate::consortium::{Consortium, Recipe, read};

/// What one reads at a time who is slow.
const SIP: usize = 1024;

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe that is full until somebody reads.
fn filled() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // What a pipe holds, unless an operator says otherwise; a page less, so that this does not block.
    writer.write_all(&vec![b'\n'; (64 << 10) - 4096]).unwrap();
    (reader, writer)
}

fn spawned(consortium: &Consortium, party: &str, stdout: Stdio, stderr: Stdio) -> Child {
    consortium.command(party).stdout(stdout).stderr(stderr).spawn().unwrap()
}

#[test]
fn parties_whose_output_takes_nothing_have_the_values() {
    let consortium = Consortium::new(&Recipe {
        rounds: 1,
        protocol: Protocol::BlindSv,
        preset: Preset::Standard,
        ..Recipe::default()
    });
    let expected = consortium.expected();
    let mut running = consortium.start_some(&["client-4", "client-5"]);
    let mut begin = |party: &str, stdout: Stdio, stderr: Stdio| {
        running.running.insert(party.to_owned(), spawned(&consortium, party, stdout, stderr));
    };
    // The result is in a file: nobody needs to read what is printed.
    begin("principal", Stdio::null(), full());
    let (closed, writer) = pipe().unwrap();
    begin("auxiliary", Stdio::null(), writer.into());
    drop(closed);
    // `2>&1 | head -1`
    let (mut head, writer) = pipe().unwrap();
    begin("client-1", Stdio::null(), writer.into());
    let (mut slow, writer) = filled();
    begin("client-2", Stdio::null(), writer.into());
    begin("client-3", Stdio::null(), full());
    let readers = std::thread::spawn(move || {
        let mut first = [0; 1];
        let _ = head.read(&mut first);
        drop(head);
        let mut sip = [0; SIP];
        while slow.read(&mut sip).is_ok_and(|read| read > 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    running.finish();
    readers.join().unwrap();
    let found = read(&consortium.result_file());
    assert_eq!((&found["fsv"], &found["utilities"]), (&expected["fsv"], &expected["utilities"]));
    assert_eq!(consortium.printed("client-4")["fsv"], expected["fsv"]);
}

/// What the principal cannot write where it was told to is in its state directory, and it says so.
#[test]
fn a_principal_that_cannot_write_its_result_says_where_it_is() {
    let consortium =
        Consortium::new(&Recipe { rounds: 1, protocol: Protocol::SecretSv, ..Recipe::default() });
    let others: Vec<&str> =
        consortium.parties.iter().map(String::as_str).filter(|party| *party != "principal").collect();
    let running = consortium.start_some(&others);
    let log = consortium.path().join("principal.log");
    let mut command = consortium.command("principal");
    // The later of two wins nothing: --json names a place that fills up, --report another one that does not.
    command.arg("--report").arg(consortium.path().join("report.html"));
    command.stdout(full()).stderr(File::create(&log).unwrap());
    let mut principal = command.spawn().unwrap();
    assert_eq!(principal.wait().unwrap().code(), Some(1));
    running.finish();
    let said = fs::read_to_string(&log).unwrap();
    let kept = consortium.state("principal").join("result.json");
    assert!(said.contains("standard output: cannot be written") && !said.contains("panicked"), "{said}");
    assert!(said.contains(&format!("the result is kept in {}", kept.display())), "{said}");
    assert_eq!(read(&kept)["clients"].as_array().map(Vec::len), Some(5));
    assert_eq!(read(&consortium.result_file())["fsv"], read(&kept)["fsv"]);
    assert!(consortium.path().join("report.html").is_file());
    // Started again it tells the same; a place that takes nothing is no panic either.
    let mut again = consortium.command("principal");
    let status = again.args(["--csv", "/proc/tables"]).stderr(File::create(&log).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(1), "refused before it begins");
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("/proc/tables: cannot be written") && !said.contains("panicked"), "{said}");
}

/// Numbers that no session has room for are named with their file, and nothing was begun.
#[test]
fn a_client_with_numbers_out_of_bounds_names_the_file() {
    let consortium = Consortium::new(&Recipe {
        rounds: 1,
        protocol: Protocol::BlindSv,
        preset: Preset::Standard,
        ..Recipe::default()
    });
    let file = consortium.run().join("clients/client-2/round-0001.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.len() - 4;
    bytes[place..].copy_from_slice(&1e38f32.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let code = consortium.start("client-2").wait().unwrap().code();
    let log = consortium.log("client-2");
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("clients/client-2/round-0001.safetensors: ") && log.contains("found 1e38"), "{log}");
    assert!(!consortium.state("client-2").exists(), "nothing is written");
    // Whoever looks first is told the same.
    let preflight = crate::consortium::secsv()
        .arg("preflight")
        .arg(consortium.kit("client-2"))
        .arg("--data")
        .arg(consortium.run())
        .args(consortium.accepted("client-2"))
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let told = String::from_utf8(preflight.stdout).unwrap();
    assert_eq!(preflight.status.code(), Some(1), "{told}");
    assert!(told.contains("failed   data ") && told.contains("found 1e38"), "{told}");
}

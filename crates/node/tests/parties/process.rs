//! Parties as processes: this test program again, told to be one of them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use secsv_federation::RunDirectory;
use secsv_node::{
    kit::Kit,
    process::{NodeOptions, PrincipalOptions, PublishedValues, run_auxiliary, run_client, run_principal},
    verify::verify,
};

use crate::federation::{CLIENTS, Fixture, accepting};

const PARTY: &str = "SECSV_TEST_PARTY";
const DIRECTORY: &str = "SECSV_TEST_DIRECTORY";
const LISTEN: &str = "SECSV_TEST_LISTEN";
const AWAY: &str = "SECSV_TEST_AWAY_MS";

/// No run here takes longer, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Everybody.
pub fn parties() -> Vec<String> {
    ["principal", "auxiliary"].into_iter().chain(CLIENTS).map(str::to_owned).collect()
}

/// Not a test: a party, if this process was started to be one.
#[test]
fn be_a_party() {
    let Ok(party) = std::env::var(PARTY) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let kit = Kit::open(&directory.join("kits").join(&party)).unwrap();
    let options = NodeOptions {
        state: directory.join("state").join(&party),
        listen: std::env::var(LISTEN).ok(),
        status: None,
    };
    let values = match party.as_str() {
        "principal" => {
            let away = std::env::var(AWAY).ok().and_then(|text| text.parse().ok()).unwrap_or(300_000);
            let (away_after, wait_to_deliver) = (Duration::from_millis(away), PATIENCE);
            let options =
                PrincipalOptions { node: options, away_after, wait_to_deliver, made_by: "a test".to_owned() };
            run_principal(kit, &options, |_| {}, |_| Ok(())).map(|result| PublishedValues::of(&result))
        }
        "auxiliary" => run_auxiliary(kit, &options),
        _ => {
            let options = accepting(&kit, options);
            run_client(kit, &RunDirectory::open(directory.join("run")).unwrap(), &options)
        }
    };
    let values = values.unwrap_or_else(|error| panic!("{party}: {error}"));
    fs::write(directory.join(format!("{party}.json")), serde_json::to_vec(&values).unwrap()).unwrap();
}

/// Parties at work; those that are left are killed in the end.
pub struct Processes<'a> {
    fixture: &'a Fixture,
    pub running: BTreeMap<String, Child>,
    pub listen: BTreeMap<String, String>,
    pub away_after: Option<Duration>,
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Processes<'a> {
    pub fn new(fixture: &'a Fixture) -> Self {
        Self { fixture, running: BTreeMap::new(), listen: BTreeMap::new(), away_after: None }
    }

    pub fn start(&mut self, party: &str) {
        let log = File::options().create(true).append(true).open(self.log_file(party)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["process::be_a_party", "--exact", "--nocapture"]);
        command.env(PARTY, party).env(DIRECTORY, self.fixture.path());
        // Why a party failed is what is shown of its log, not where.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.listen.get(party).into_iter().for_each(|address| {
            command.env(LISTEN, address);
        });
        self.away_after.into_iter().for_each(|time| {
            command.env(AWAY, time.as_millis().to_string());
        });
        self.running.insert(party.to_owned(), command.spawn().unwrap());
    }

    pub fn start_all(&mut self) {
        parties().iter().for_each(|party| self.start(party));
    }

    fn log_file(&self, party: &str) -> PathBuf {
        self.fixture.path().join(format!("{party}.log"))
    }

    /// What a party has logged.
    pub fn log(&self, party: &str) -> String {
        fs::read_to_string(self.log_file(party)).unwrap_or_default()
    }

    /// SIGKILL.
    pub fn kill(&mut self, party: &str) -> bool {
        let Some(mut child) = self.running.remove(party) else { return false };
        let ended = child.try_wait().unwrap().is_some();
        if ended {
            self.running.insert(party.to_owned(), child);
            return false;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        true
    }

    /// Waits for something.
    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            if since.elapsed() > Duration::from_secs(90) {
                panic!("{what}: not yet\n{}", tail(self.fixture.path(), "principal"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until everybody has ended well, and compares what they learned and what they logged.
    pub fn finish(&mut self) {
        self.await_ends();
        self.assert_learned(&parties());
        let states: Vec<PathBuf> = parties().iter().map(|party| self.fixture.options(party).state).collect();
        let verification = verify(&states, None).unwrap();
        assert!(verification.findings.is_empty(), "the logs disagree: {:?}", verification.findings);
        assert!(verification.frames_agreed > 0 && verification.frames_unmatched == 0);
    }

    /// The same where somebody was no process of ours.
    pub fn finish_all_but(&mut self, other: &str) {
        self.await_ends();
        let rest: Vec<String> = parties().into_iter().filter(|party| party != other).collect();
        self.assert_learned(&rest);
    }

    fn await_ends(&mut self) {
        let since = Instant::now();
        while !self.running.is_empty() {
            let fixture = self.fixture;
            self.running.retain(|party, child| match child.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success(), "{party} {status}:\n{}", tail(fixture.path(), party));
                    false
                }
                None => true,
            });
            if since.elapsed() > PATIENCE {
                let logs =
                    self.running.keys().map(|party| format!("{party}:\n{}", tail(fixture.path(), party)));
                panic!("still running after {PATIENCE:?}:\n{}", logs.collect::<Vec<_>>().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn assert_learned(&self, parties: &[String]) {
        let expected = self.fixture.expected();
        for party in parties {
            let found = fs::read(self.fixture.path().join(format!("{party}.json"))).unwrap();
            let found: PublishedValues = serde_json::from_slice(&found).unwrap();
            assert_eq!(found, PublishedValues::of(&expected), "as {party} learned it");
        }
    }
}

fn tail(directory: &Path, party: &str) -> String {
    let log = fs::read_to_string(directory.join(format!("{party}.log"))).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

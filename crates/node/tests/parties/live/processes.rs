//! Parties that follow a training: this test program again, told to be one of them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use secsv_evaluation::EvaluationResult;
use secsv_federation::{ClientId, ROUNDS};
use secsv_node::{
    consent::Question,
    kit::Kit,
    process::{
        ClientFollow, FollowOptions, NodeOptions, PrincipalFollow, follow_auxiliary, follow_client,
        follow_principal,
    },
};

use super::training::Training;
use crate::{address::free_address, process::parties};

const PARTY: &str = "SECSV_TEST_FOLLOWER";
const DIRECTORY: &str = "SECSV_TEST_TRAINING";
const STATUS: &str = "SECSV_TEST_STATUS";
const LATE: &str = "SECSV_TEST_LATE";
/// No round here takes longer, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Not a test: a party, if this process was started to be one.
#[test]
fn be_a_follower() {
    let Ok(party) = std::env::var(PARTY) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(false).init();
    let directory = PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let site = directory.join("sites").join(&party);
    let kit = directory.join("kits").join(&party);
    let options = FollowOptions {
        kit: kit.clone(),
        node: NodeOptions {
            state: directory.join("state").join(&party),
            listen: None,
            status: std::env::var(STATUS).ok().map(|address| address.parse().unwrap()),
        },
        rounds: site.join(ROUNDS),
        late: Duration::from_secs(std::env::var(LATE).unwrap().parse().unwrap()),
        values: Some(directory.join("values").join(&party)),
        made_by: "a test".to_owned(),
    };
    let mut tell = |event: &_| println!("{}", serde_json::to_string(event).unwrap());
    let ended = match party.as_str() {
        "principal" => {
            let of = PrincipalFollow { away_after: Duration::from_secs(60) };
            follow_principal(&options, &of, &mut tell)
        }
        "auxiliary" => follow_auxiliary(&options, &mut tell),
        _ => {
            let question = Question::exposure(&Kit::open(&kit).unwrap()).unwrap();
            let accept_exposure = question.map(|question| question.word);
            let (record, again, accept_few_samples) = (None, None, true);
            let of = ClientFollow { data: site, accept_exposure, accept_few_samples, record, again };
            follow_client(&options, &of, &mut tell)
        }
    };
    ended.unwrap_or_else(|error| panic!("{party}: {error}"));
}

/// Parties at work; those that are left are killed in the end.
pub struct Followers<'a> {
    training: &'a Training,
    late: Duration,
    /// Where the principal's pages are.
    status: String,
    running: BTreeMap<String, Child>,
}

impl Drop for Followers<'_> {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Followers<'a> {
    pub fn new(training: &'a Training, late: Duration) -> Self {
        Self { training, late, status: free_address().to_string(), running: BTreeMap::new() }
    }

    pub fn start(&mut self, party: &str) {
        let log = File::options().create(true).append(true).open(self.log_file(party)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["live::processes::be_a_follower", "--exact", "--nocapture"]);
        command.env(PARTY, party).env(DIRECTORY, self.training.path());
        command.env(LATE, self.late.as_secs().to_string()).env("RUST_BACKTRACE", "0");
        if party == "principal" {
            command.env(STATUS, &self.status);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.running.insert(party.to_owned(), command.spawn().unwrap());
    }

    pub fn start_all(&mut self) {
        parties().iter().for_each(|party| self.start(party));
    }

    /// SIGKILL.
    pub fn kill(&mut self, party: &str) {
        let mut child = self.running.remove(party).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn log_file(&self, party: &str) -> PathBuf {
        self.training.path().join(format!("{party}.log"))
    }

    /// What a party has logged.
    pub fn log(&self, party: &str) -> String {
        fs::read_to_string(self.log_file(party)).unwrap_or_default()
    }

    pub fn state(&self, party: &str) -> PathBuf {
        self.training.path().join("state").join(party)
    }

    fn written(&self, party: &str, name: &str) -> PathBuf {
        self.training.path().join("values").join(party).join(name)
    }

    /// Where the principal writes a round's values.
    pub fn values(&self, round: u32) -> PathBuf {
        self.written("principal", &format!("round-{round:04}.json"))
    }

    pub fn values_file(&self, round: u32) -> Vec<u8> {
        fs::read(self.values(round)).unwrap()
    }

    pub fn result(&self, round: u32) -> EvaluationResult {
        serde_json::from_slice(&self.values_file(round)).unwrap()
    }

    pub fn missed_file(&self, round: u32) -> PathBuf {
        self.written("principal", &format!("round-{round:04}.missed.json"))
    }

    /// Why a round has no values.
    pub fn missed(&self, round: u32) -> String {
        fs::read_to_string(self.missed_file(round)).unwrap()
    }

    /// The sums over rounds, as the principal writes them.
    pub fn totals(&self) -> BTreeMap<ClientId, f64> {
        let text = fs::read(self.written("principal", "totals.json")).unwrap();
        let totals: serde_json::Value = serde_json::from_slice(&text).unwrap();
        serde_json::from_value(totals["totals"].clone()).unwrap()
    }

    /// Everybody else was told the same, and the events say so.
    pub fn assert_told(&self, round: u32, result: &EvaluationResult) {
        for party in parties().iter().filter(|party| *party != "principal") {
            let found = fs::read(self.written(party, &format!("round-{round:04}.json"))).unwrap();
            let found: EvaluationResult = serde_json::from_slice(&found).unwrap();
            assert_eq!(
                (&found.fsv, &found.utilities),
                (&result.fsv, &result.utilities),
                "as {party} learned it"
            );
        }
        let event = format!("{{\"event\":\"round\",\"round\":{round},\"values\":");
        assert!(self.log("principal").contains(&event), "{event}");
    }

    /// One of the principal's pages.
    pub fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.status).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.status).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// From each round's file to its values, as the principal's events say.
    pub fn seconds(&self) -> Vec<f64> {
        let log = self.log("principal");
        let events = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        events.filter_map(|event| event["seconds"].as_f64()).collect()
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < PATIENCE, "{what}: not yet\n{}", self.tails());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a round's values.
    pub fn wait_for(&self, round: u32) {
        self.wait_until(&format!("values of round {round}"), |f| f.values(round).exists());
    }

    /// Waits until everybody has ended well.
    pub fn finish(&mut self) {
        let since = Instant::now();
        while !self.running.is_empty() {
            let ended: Vec<(String, bool)> = self
                .running
                .iter_mut()
                .filter_map(|(party, child)| Some((party.clone(), child.try_wait().unwrap()?.success())))
                .collect();
            for (party, is_well) in ended {
                assert!(is_well, "{party} has failed\n{}", self.tails());
                self.running.remove(&party);
            }
            assert!(since.elapsed() < PATIENCE, "still running: {:?}\n{}", self.running.keys(), self.tails());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn tails(&self) -> String {
        let tail = |party: &String| {
            let log = self.log(party);
            let lines: Vec<&str> = log.lines().collect();
            format!("--- {party}\n{}", lines[lines.len().saturating_sub(12)..].join("\n"))
        };
        parties().iter().map(tail).collect::<Vec<_>>().join("\n")
    }
}

//! A federation, its kits and its processes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use secsv_evaluation::EvaluationSettings;
use secsv_federation::{RunDirectory, skip::SkipMode};
use secsv_node::{
    consent::Question,
    kit::{Kit, Provision, Servers, SessionSpec, Validity},
};
use secsv_protocol::{
    Preset,
    decryptors::Protocol,
    session::{Matmul, Settings},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::address::free_address;

/// No run here takes longer, not even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A run directory with kits for its parties.
pub struct Consortium {
    directory: TempDir,
    pub run: PathBuf,
    pub parties: Vec<String>,
    protocol: Protocol,
    preset: Preset,
    skip: SkipMode,
    /// Where the servers listen, if not where they are said to be.
    pub listen: Option<[String; 2]>,
}

/// A federation in training and its settings.
pub struct Recipe<'a> {
    pub model: &'a [&'a str],
    pub rounds: u32,
    pub protocol: Protocol,
    pub preset: Preset,
    pub skip: SkipMode,
    /// Where the servers are said to be, if something stands before them.
    pub addresses: Option<[String; 2]>,
}

impl Default for Recipe<'_> {
    fn default() -> Self {
        Self {
            model: &["--model", "logistic"],
            rounds: 2,
            protocol: Protocol::SecSv,
            preset: Preset::Compact,
            skip: SkipMode::Off,
            addresses: None,
        }
    }
}

pub fn secsv() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_secsv"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Consortium {
    /// Trains and makes kits.
    pub fn new(recipe: &Recipe<'_>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let mut train = secsv();
        train.args(["train", "--dataset", "breast-cancer", "--clients", "5", "--seed", "3"]);
        train.args(recipe.model).arg("--rounds").arg(recipe.rounds.to_string()).arg("--out").arg(&run);
        assert!(train.status().unwrap().success());
        Self::of_run(directory, run, recipe)
    }

    fn of_run(directory: TempDir, run: PathBuf, recipe: &Recipe<'_>) -> Self {
        let opened = RunDirectory::open(&run).unwrap();
        let Recipe { protocol, preset, skip, .. } = *recipe;
        let matmul = if protocol == Protocol::Hesv { Matmul::Squaring } else { Matmul::Packed };
        let settings = Settings {
            protocol,
            preset,
            matmul,
            always_skips: false,
            whole_rounds: true,
            hidden: Default::default(),
            by_class: false,
        };
        let evaluation = EvaluationSettings { skip, ..EvaluationSettings::default() };
        let session = SessionSpec::new(settings, &evaluation);
        let [principal, auxiliary] = match &recipe.addresses {
            Some(addresses) => addresses.each_ref().map(|address| address.parse().unwrap()),
            None => [free_address(), free_address()],
        };
        let listen =
            recipe.addresses.as_ref().map(|_| [free_address(), free_address()].map(|a| a.to_string()));
        let servers = Servers { principal, auxiliary };
        let validity = Validity::days(std::time::SystemTime::now(), 1);
        let made = Provision::of_run(&opened, servers, session, validity)
            .generate_keys(&directory.path().join("kits"))
            .unwrap();
        let parties = made.kits.iter().map(|(id, _)| id.as_str().to_owned()).collect();
        Self { directory, run, parties, protocol, preset, skip, listen }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn run(&self) -> &Path {
        &self.run
    }

    pub fn kit(&self, party: &str) -> PathBuf {
        self.path().join("kits").join(party)
    }

    pub fn state(&self, party: &str) -> PathBuf {
        self.path().join("state").join(party)
    }

    pub fn result_file(&self) -> PathBuf {
        self.path().join("result.json")
    }

    /// The values, computed in one process.
    pub fn expected(&self) -> Value {
        let file = self.path().join("expected.json");
        let name = |protocol| match protocol {
            Protocol::SecSv => "secsv",
            Protocol::Hesv => "hesv",
            Protocol::SecretSv => "secretsv",
            Protocol::BlindSv => "blindsv",
        };
        let preset = if self.preset == Preset::Compact { "compact" } else { "standard" };
        let skip = if self.skip == SkipMode::Off { "off" } else { "on" };
        let mut evaluate = secsv();
        evaluate.arg("evaluate").arg(&self.run).args(["--protocol", name(self.protocol)]);
        if matches!(self.protocol, Protocol::SecSv | Protocol::Hesv) {
            evaluate.args(["--preset", preset]);
        }
        evaluate.args(["--skip", skip, "--json"]).arg(&file);
        assert!(evaluate.status().unwrap().success());
        read(&file)
    }

    /// Starts a party.
    pub fn start(&self, party: &str) -> Child {
        fs::create_dir_all(self.path().join("logs")).unwrap();
        let log = self.path().join("logs").join(party);
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.command(party);
        command.stdout(File::create(self.path().join(format!("{party}.out"))).unwrap()).stderr(log);
        command.spawn().unwrap()
    }

    /// What starts a party, whose output goes nowhere.
    pub fn command(&self, party: &str) -> Command {
        let mut command = secsv();
        command.args(["--format", "json"]);
        match party {
            "principal" => command.arg("principal").arg("--json").arg(self.result_file()),
            "auxiliary" => command.arg("auxiliary"),
            _ => command.arg("client").arg("--data").arg(&self.run).args(self.accepted(party)),
        };
        match (&self.listen, party) {
            (Some([own, _]), "principal") | (Some([_, own]), "auxiliary") => command.arg("--listen").arg(own),
            _ => &mut command,
        };
        command.arg(self.kit(party)).arg("--state").arg(self.state(party));
        command
    }

    /// The arguments by which a client's owner accepts what it is asked.
    pub fn accepted(&self, party: &str) -> Vec<String> {
        let question = Question::exposure(&Kit::open(&self.kit(party)).unwrap()).unwrap();
        question.into_iter().flat_map(|question| [question.argument.to_owned(), question.word]).collect()
    }

    /// Starts everybody.
    pub fn start_all(&self) -> Processes<'_> {
        self.start_some(&self.parties.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts these.
    pub fn start_some(&self, parties: &[&str]) -> Processes<'_> {
        let running = parties.iter().map(|party| ((*party).to_owned(), self.start(party))).collect();
        Processes { consortium: self, running }
    }

    /// Waits until a party's log says something.
    pub fn await_log(&self, party: &str, said: &str) {
        let since = std::time::Instant::now();
        while !self.log(party).contains(said) {
            assert!(since.elapsed() < PATIENCE, "{said:?} is not in the log of {party}: {}", self.log(party));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    pub fn log(&self, party: &str) -> String {
        fs::read_to_string(self.path().join("logs").join(party)).unwrap_or_default()
    }

    /// Output of a party.
    pub fn printed(&self, party: &str) -> Value {
        read(&self.path().join(format!("{party}.out")))
    }

    /// Whether all that was found are the values of one process.
    pub fn assert_equal(&self, expected: &Value) {
        let found = read(&self.result_file());
        for field in ["fsv", "ssv", "utilities", "clients"] {
            assert_eq!(found[field], expected[field], "{field}");
            for party in self.parties.iter().filter(|party| *party != "principal") {
                assert_eq!(self.printed(party)[field], expected[field], "{field} as {party} learned it");
            }
        }
    }
}

pub fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Parties at work; those that are left are killed in the end.
pub struct Processes<'a> {
    consortium: &'a Consortium,
    pub running: BTreeMap<String, Child>,
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Processes<'_> {
    /// Those that ended since this was last asked.
    pub fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let mut ended = Vec::new();
        self.running.retain(|party, child| match child.try_wait().unwrap() {
            Some(status) => {
                ended.push((party.clone(), status));
                false
            }
            None => true,
        });
        ended
    }

    /// Waits until everybody has ended well.
    pub fn finish(mut self) {
        let since = Instant::now();
        while !self.running.is_empty() {
            for (party, status) in self.ended() {
                assert!(status.success(), "{party} {status}:\n{}", self.consortium.log(&party));
            }
            if since.elapsed() > PATIENCE {
                let logs: Vec<String> = self
                    .running
                    .keys()
                    .map(|party| format!("== {party}\n{}", tail(&self.consortium.log(party))))
                    .collect();
                panic!("still running after {PATIENCE:?}:\n{}", logs.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

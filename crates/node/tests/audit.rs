//! The audit trail of a real secure run: whole, it verifies; with any byte changed anywhere, `verify` says where.
//!
//! Failure is a change that is not found, one that is told of the wrong file or line, or a finding where nothing was
//! changed.

#![cfg(test)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use secsv_evaluation::{
    ClearEvaluator, Envelope, EvaluationResult, SecureEvaluator, evaluate, in_process::Interceptor,
};
use secsv_federation::{
    ClientId, ClientSpec, CollectiveTestSet, FederationSpec, Labels, LayerSpec, ModelSpec, RunDirectory,
    RunWriter, Tensor, TestSet, Weights,
};
use secsv_node::{
    Fingerprint,
    audit::{AuditDefect, Direction, FEDERATION_FILE, LOG_FILE, Log, RESULT_FILE, digest},
    kit::{Kit, Provision, Servers, SessionSpec, Validity},
    process::PublishedValues,
    verify::{Finding, Verdict, Verification, verify},
};
use secsv_protocol::{PartyId, Preset, Seed, message::Kind, session::typical_costs};
use tempfile::TempDir;

const CLIENTS: [&str; 4] = ["north", "south", "east", "west"];

/// Four silos, two rounds, three features; one silo missed a round.
fn run_directory(parent: &Path) -> RunDirectory {
    run_directory_of(parent, 5)
}

/// The same with the models of a seed.
fn run_directory_of(parent: &Path, seed: u64) -> RunDirectory {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let spec = FederationSpec::new(
        "four silos".into(),
        2,
        ModelSpec::new(vec![3], 2, vec![LayerSpec::Linear { weight: "w".into(), bias: Some("b".into()) }]),
        CLIENTS
            .iter()
            .zip(10..)
            .map(|(id, train_size)| ClientSpec::new(ClientId::new(*id).unwrap(), train_size as f64))
            .collect(),
    );
    let mut model = || {
        let mut numbers = |count| (0..count).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        Weights::from_iter([
            ("w".to_owned(), Tensor::new(vec![2, 3], numbers(6)).unwrap()),
            ("b".to_owned(), Tensor::new(vec![2], numbers(2)).unwrap()),
        ])
    };
    let writer = RunWriter::create(parent.join("run"), &spec).unwrap();
    writer.initial_model(&model()).unwrap();
    for (position, id) in spec.ids().enumerate() {
        for round in spec.round_ids().filter(|round| (position, round.0) != (2, 2)) {
            writer.local_model(id, round, &model()).unwrap();
        }
        let features = (0..27).map(|i| ((i * 7 + position * 5) % 11) as f32 / 5.0 - 1.0).collect();
        let labels = (0..9).map(|i| (i + position as i64) % 2).collect();
        writer.test_set(id, &TestSet::new(vec![3], features, labels).unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

fn provision(run: &RunDirectory, estimator: &str, out: &Path) -> Vec<Kit> {
    let session = SessionSpec {
        protocol: "secsv".into(),
        preset: "compact".into(),
        matmul: "packed".into(),
        skip: "off".into(),
        ranges: None,
        check_ranges: false,
        agreement: None,
        estimator: estimator.into(),
        utility: "accuracy".into(),
        seed: 3,
        epsilon: 0.25,
        delta: 0.1,
        samples: Some(12),
        max_error: None,
        max_tests: None,
    };
    let [principal, auxiliary] = ["localhost:7001", "localhost:7002"].map(|text| text.parse().unwrap());
    let servers = Servers { principal, auxiliary };
    let made = Provision::of_run(run, servers, session, Validity::days(SystemTime::now(), 2));
    made.generate_keys(out).unwrap().kits.iter().map(|(_, kit)| Kit::open(kit).unwrap()).collect()
}

/// Everybody's logs, and how many frames went on each link.
#[derive(Default)]
struct Logs {
    logs: BTreeMap<PartyId, Log>,
    numbers: BTreeMap<(PartyId, PartyId), u64>,
}

impl Logs {
    /// Both ends write a frame down.
    fn tell(&mut self, from: PartyId, to: PartyId, kind: Kind, bytes: &[u8]) {
        let number = self.numbers.entry((from, to)).or_default();
        let (size, digest) = (bytes.len() as u64, digest(bytes));
        let ends = [(from, Direction::Sent, to), (to, Direction::Received, from)];
        for (own, direction, peer) in ends {
            let log = self.logs.get_mut(&own).unwrap();
            log.append(direction, peer, kind, *number, size, digest).unwrap();
        }
        *number += 1;
    }

    /// The principal writes the result down and tells everybody the values.
    fn deliver(&mut self, state: &Path, result: &EvaluationResult) {
        let principal = self.logs.get_mut(&PartyId::Principal).unwrap();
        principal.record_result(state, &serde_json::to_vec_pretty(result).unwrap()).unwrap();
        let values = serde_json::to_vec(&PublishedValues::of(result)).unwrap();
        let everybody: Vec<PartyId> = self.logs.keys().copied().collect();
        for party in everybody.into_iter().filter(|&party| party != PartyId::Principal) {
            self.tell(PartyId::Principal, party, Kind::Values, &values);
        }
    }
}

/// Tells the logs of every frame that passes.
struct Recorder(Arc<Mutex<Logs>>);

impl Interceptor for Recorder {
    fn pass(&mut self, envelope: Envelope) -> Vec<Envelope> {
        let Envelope { from, to, kind, ref content, .. } = envelope;
        self.0.lock().unwrap().tell(from, to, kind, content);
        vec![envelope]
    }
}

/// State directories of everybody after a whole run.
fn audited() -> (TempDir, Vec<PathBuf>) {
    let parent = tempfile::tempdir().unwrap();
    let run = run_directory(parent.path());
    let kits = provision(&run, "exact", &parent.path().join("kits"));
    let mut states = Vec::new();
    let mut logs = Logs::default();
    for kit in &kits {
        let state = parent.path().join("states").join(kit.own_name());
        fs::create_dir_all(&state).unwrap();
        logs.logs.insert(kit.own, Log::open(&state, kit).unwrap().0);
        states.push(state);
    }
    let logs = Arc::new(Mutex::new(logs));
    let recorder = Box::new(Recorder(logs.clone()));
    let settings = kits[0].session().unwrap().settings;
    let (costs, seed) = (Some(typical_costs(Preset::Compact)), Seed::from_bytes([8; 32]));
    let mut evaluator = SecureEvaluator::new(&run, settings, costs, &seed, recorder).unwrap();
    let mut result = evaluate(run.spec(), &mut evaluator, &kits[0].evaluation().unwrap(), |_| {}).unwrap();
    evaluator.account_for(run.spec(), &Labels::default(), &mut result);
    let mut logs = logs.lock().unwrap();
    logs.deliver(&states[0], &result);
    logs.logs.values_mut().for_each(|log| log.end().unwrap());
    drop(logs);
    (parent, states)
}

fn check(states: &[PathBuf]) -> Verification {
    verify(states, None).unwrap()
}

fn line_of(bytes: &[u8], position: usize) -> usize {
    1 + bytes[..position].iter().filter(|&&byte| byte == b'\n').count()
}

#[test]
fn an_honest_run_verifies_and_a_flipped_byte_anywhere_is_located() {
    let (_guard, states) = audited();
    let whole = check(&states);
    assert_eq!(whole.findings, []);
    assert_eq!((whole.values, whole.frames_unmatched, whole.notes.len()), (12, 0, 0));
    let frames: usize = whole.logs.iter().map(|log| log.sent + log.received).sum();
    assert!(whole.frames_agreed > 100 && frames == 2 * whole.frames_agreed);
    assert!(whole.logs.iter().all(|log| log.is_complete && log.restarts == 0));
    assert_eq!(whole.verdict(), Verdict::Fits);

    let mut rng = ChaCha20Rng::seed_from_u64(6);
    for (state, name) in states
        .iter()
        .flat_map(|state| [(state, LOG_FILE), (state, FEDERATION_FILE)])
        .chain([(&states[0], RESULT_FILE)])
    {
        let file = state.join(name);
        let bytes = fs::read(&file).unwrap();
        let ends = [0, bytes.len() - 1].into_iter();
        for position in ends.chain((0..12).map(|_| rng.random_range(0..bytes.len())).collect::<Vec<_>>()) {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << rng.random_range(0..8);
            fs::write(&file, &flipped).unwrap();
            let findings = check(&states).findings;
            let line = (name == LOG_FILE).then(|| line_of(&bytes, position));
            let is_here =
                |finding: &Finding| finding.file == file && (line.is_none() || finding.line == line);
            assert!(
                findings.iter().any(is_here),
                "{} byte {position}, line {line:?}: {findings:#?}",
                file.display()
            );
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(check(&states).findings, []);
}

#[test]
fn lines_that_are_cut_off_dropped_or_moved_are_missed() {
    let (_guard, states) = audited();
    let file = states[3].join(LOG_FILE);
    let bytes = fs::read(&file).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let without = |place: usize| [&lines[..place], &lines[place + 1..]].concat().concat();
    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    for (what, changed) in [
        ("a line dropped", without(5)),
        ("the first line dropped", without(0)),
        ("two lines swapped", swapped.concat()),
        ("the last line cut off", lines[..lines.len() - 1].concat()),
        ("a tail cut off", lines[..lines.len() - 6].concat()),
        ("the last line torn", bytes[..bytes.len() - 10].to_vec()),
    ] {
        fs::write(&file, changed).unwrap();
        let findings = check(&states).findings;
        assert!(findings.iter().any(|finding| finding.file == file), "{what}: {findings:#?}");
    }
}

/// Tells a new log everything an old one has, with a change: what a party does that rewrites its own account. A result is
/// told as it stands in the state directory by then.
fn rewritten(state: &Path, kit: &Kit, change: impl Fn(usize, &mut serde_json::Value)) {
    let file = state.join(LOG_FILE);
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let (mut log, _) = Log::open(state, kit).unwrap();
    for (index, line) in text.lines().enumerate() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        change(index, &mut line);
        if line.get("result").is_some() {
            log.record_result(state, &fs::read(state.join(RESULT_FILE)).unwrap()).unwrap();
        }
        let Some(frame) = line.get("frame") else { continue };
        let direction = if frame["direction"] == "sent" { Direction::Sent } else { Direction::Received };
        let peer = kit.federation.party_named(frame["peer"].as_str().unwrap()).unwrap();
        let kind = Kind::ALL.into_iter().find(|kind| frame["kind"] == kind.name()).unwrap();
        let digest = Fingerprint::parse(frame["digest"].as_str().unwrap()).unwrap();
        let number = |name: &str| frame[name].as_u64().unwrap();
        log.append(direction, peer, kind, number("number"), number("size"), digest).unwrap();
    }
    log.end().unwrap();
}

#[test]
fn a_party_that_rewrites_its_log_contradicts_the_others() {
    let (guard, states) = audited();
    let kit = Kit::open(&guard.path().join("kits/south")).unwrap();
    let state = states.iter().find(|state| state.ends_with("south")).unwrap();
    let kept = fs::read(state.join(LOG_FILE)).unwrap();
    type Change = fn(&mut serde_json::Value);
    let changes: [(&str, Change); 3] = [
        ("digest", |frame| frame["digest"] = Fingerprint([7; 32]).to_string().into()),
        ("bytes", |frame| frame["size"] = 1.into()),
        ("kind", |frame| frame["kind"] = Kind::Count.name().into()),
    ];
    for (word, change) in changes {
        rewritten(state, &kit, |index, line| {
            if index == 7 {
                change(&mut line["frame"]);
            }
        });
        let findings = check(&states).findings;
        assert_eq!(findings.len(), 1, "{word}: {findings:#?}");
        assert!(findings[0].what.contains(word), "{findings:#?}");
        fs::write(state.join(LOG_FILE), &kept).unwrap();
    }
}

/// The result of other models by the same estimator: nothing in it is wrong.
fn another_result(parent: &Path, kit: &Kit) -> EvaluationResult {
    let run = run_directory_of(&parent.join("other models"), 7);
    let test_set = CollectiveTestSet::read(&run).unwrap();
    let settings = kit.evaluation().unwrap();
    let result = evaluate(run.spec(), &mut ClearEvaluator::new(&run, &test_set), &settings, |_| {}).unwrap();
    EvaluationResult { protocol: "secsv".into(), ..result }
}

#[test]
fn a_result_that_was_rewritten_after_delivery_contradicts_what_everybody_was_told() {
    let (guard, states) = audited();
    let kit = Kit::open(&guard.path().join("kits/principal")).unwrap();
    let file = states[0].join(RESULT_FILE);
    let result: EvaluationResult = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let other = another_result(guard.path(), &kit);
    assert_ne!(other.fsv, result.fsv);
    fs::write(&file, serde_json::to_vec(&other).unwrap()).unwrap();
    rewritten(&states[0], &kit, |_, _| {});
    let findings = check(&states).findings;
    // Told to five parties, and received by each.
    assert_eq!(findings.len(), 10, "{findings:#?}");
    for state in &states {
        let log = state.join(LOG_FILE);
        let line =
            fs::read_to_string(&log).unwrap().lines().position(|line| line.contains("\"values\"")).unwrap();
        let is_here = |finding: &Finding| finding.file == log && finding.line == Some(line + 1);
        assert!(findings.iter().any(is_here), "{}: {findings:#?}", log.display());
    }
    // A principal that is started again measures its cost anew; that was told nobody.
    let mut again = result.clone();
    again.timing.wall_s += 1.0;
    fs::write(&file, serde_json::to_vec(&again).unwrap()).unwrap();
    rewritten(&states[0], &kit, |_, _| {});
    assert_eq!(check(&states).findings, []);
}

#[test]
fn clients_that_were_told_different_values_find_out_without_the_result() {
    let (guard, states) = audited();
    let kit = Kit::open(&guard.path().join("kits/south")).unwrap();
    let south = states.iter().position(|state| state.ends_with("south")).unwrap();
    let clients = [&states[south..=south], &states[south + 1..]].concat();
    assert_eq!(check(&clients).findings, []);
    rewritten(&states[south], &kit, |_, line| {
        if line["frame"]["kind"] == Kind::Values.name() {
            line["frame"]["digest"] = Fingerprint([7; 32]).to_string().into();
        }
    });
    let findings = check(&clients).findings;
    assert_eq!(findings.len(), clients.len() - 1, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.what.contains("expected the values of line")));
}

#[test]
fn a_result_without_the_principals_log_is_held_against_what_others_were_told() {
    let (guard, states) = audited();
    let copy = guard.path().join("copy.json");
    let clients = &states[2..];
    assert!(verify(clients, Some(&copy)).is_err(), "no such file");
    fs::copy(states[0].join(RESULT_FILE), &copy).unwrap();
    let found = verify(clients, Some(&copy)).unwrap();
    assert_eq!((found.findings.len(), found.values), (0, 12), "{found:?}");
    assert_eq!(found.verdict(), Verdict::Fits);
    // Without a result, two clients were told the same; one alone can be held against nothing.
    assert_eq!(check(clients).verdict(), Verdict::Fits);
    assert_eq!(check(&clients[..1]).verdict(), Verdict::NothingToJudge);
    let kit = Kit::open(&guard.path().join("kits/south")).unwrap();
    let other = another_result(guard.path(), &kit);
    fs::write(&copy, serde_json::to_vec(&other).unwrap()).unwrap();
    let findings = verify(clients, Some(&copy)).unwrap().findings;
    assert_eq!(findings.len(), clients.len(), "{findings:#?}");
    assert_eq!(verify(clients, Some(&copy)).unwrap().verdict(), Verdict::DoesNotFit);
    // A party that was told nothing knows nothing.
    let state = guard.path().join("early");
    fs::create_dir(&state).unwrap();
    drop(Log::open(&state, &kit).unwrap());
    assert_eq!(check(std::slice::from_ref(&state)).verdict(), Verdict::NothingToJudge, "not ended");
    let findings = verify(&[state], Some(&copy)).unwrap().findings;
    assert!(findings.len() == 1 && findings[0].file == copy, "{findings:#?}");
}

#[test]
fn a_result_that_no_log_records_is_not_passed_over() {
    let (guard, states) = audited();
    let about = |states: &[PathBuf], file: &Path| {
        let Verification { findings, notes, .. } = check(states);
        [findings, notes].map(|told| told.iter().filter(|told| told.file == file).count())
    };
    let beside_a_client = states[3].join(RESULT_FILE);
    fs::copy(states[0].join(RESULT_FILE), &beside_a_client).unwrap();
    assert_eq!(about(&states, &beside_a_client), [1, 0]);
    // A principal that takes the line out of its log.
    let kit = Kit::open(&guard.path().join("kits/principal")).unwrap();
    rewritten(&states[0], &kit, |_, line| drop(line.as_object_mut().unwrap().remove("result")));
    assert_eq!(about(&states, &states[0].join(RESULT_FILE)), [1, 0]);
    assert_eq!(about(&states, &states[0].join(LOG_FILE)), [1, 0], "which result was told?");
    // One that was killed before it could write the line.
    let state = guard.path().join("killed");
    fs::create_dir(&state).unwrap();
    drop(Log::open(&state, &kit).unwrap());
    fs::copy(states[0].join(RESULT_FILE), state.join(RESULT_FILE)).unwrap();
    assert_eq!(about(std::slice::from_ref(&state), &state.join(RESULT_FILE)), [0, 1]);
}

#[test]
fn values_of_every_estimator_are_computed_again_bit_for_bit() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_directory(parent.path());
    let test_set = CollectiveTestSet::read(&run).unwrap();
    for estimator in
        ["exact", "permutation", "tmc", "group-testing", "kernelshap", "least-core", "wt-shapley"]
    {
        let home = parent.path().join(estimator);
        let (kits, state) = (home.join("kits"), home.join("state"));
        fs::create_dir_all(&state).unwrap();
        let kit = provision(&run, estimator, &kits).remove(0);
        let settings = kit.evaluation().unwrap();
        let mut result =
            evaluate(run.spec(), &mut ClearEvaluator::new(&run, &test_set), &settings, |_| {}).unwrap();
        result.protocol = "secsv".into();
        let (mut log, _) = Log::open(&state, &kit).unwrap();
        log.record_result(&state, &serde_json::to_vec(&result).unwrap()).unwrap();
        log.end().unwrap();
        let states = [state.clone()];
        let found = check(&states);
        assert_eq!(found.findings, [], "{estimator}");
        assert!(found.values >= 12);

        let wrongs = wrong_results(&result);
        for (field, wrong) in wrongs {
            fs::write(home.join("copy.json"), serde_json::to_vec(&wrong).unwrap()).unwrap();
            let found = verify(&states, Some(&home.join("copy.json"))).unwrap().findings;
            let is_told = |finding: &&Finding| finding.what.starts_with(field);
            assert!(found.iter().any(|finding| is_told(&finding)), "{estimator} {field}: {found:#?}");
        }
    }
}

/// The result with one thing wrong, and what the finding begins with.
fn wrong_results(result: &EvaluationResult) -> Vec<(&'static str, EvaluationResult)> {
    let mut wrongs = Vec::new();
    let mut wrong = |field, change: &dyn Fn(&mut EvaluationResult)| {
        let mut copy = result.clone();
        change(&mut copy);
        wrongs.push((field, copy));
    };
    let south = ClientId::new("south").unwrap();
    wrong("fsv.south: expected", &|result| {
        let value = result.fsv.get_mut(&south).unwrap();
        *value = f64::from_bits(value.to_bits() ^ 1);
    });
    wrong("ssv round 2.south: expected", &|result| {
        result.ssv[1].values.remove(&south);
    });
    wrong("utilities", &|result| drop(result.utilities.remove(1)));
    wrong("seed", &|result| result.seed += 1);
    wrong("utilities[0].correct", &|result| result.utilities[0].correct = result.utilities[0].total + 1);
    wrongs
}

#[test]
fn a_log_goes_on_after_a_stop_and_takes_nothing_back() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_directory(parent.path());
    let kits = provision(&run, "exact", &parent.path().join("kits"));
    let (state, kit) = (parent.path().join("state"), &kits[2]);
    fs::create_dir(&state).unwrap();
    let tell = |log: &mut Log, number: u64, byte: u8| {
        let digest = Fingerprint([byte; 32]);
        log.append(Direction::Sent, PartyId::Principal, Kind::Model, number, 10, digest)
    };
    let (mut log, _) = Log::open(&state, kit).unwrap();
    tell(&mut log, 0, 1).unwrap();
    tell(&mut log, 1, 2).unwrap();
    drop(log);
    // Killed in the middle of a line.
    let file = state.join(LOG_FILE);
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend(b"{\"at\":17");
    fs::write(&file, &bytes).unwrap();
    let (mut log, recovered) = Log::open(&state, kit).unwrap();
    assert_eq!((recovered.lines, recovered.torn_bytes), (3, 8));
    tell(&mut log, 1, 2).unwrap();
    assert_eq!(log.lines(), 4, "told again, it changes nothing");
    let changed = tell(&mut log, 1, 3).unwrap_err();
    assert!(matches!(changed.defect, AuditDefect::Changed { number: 1, .. }), "{changed}");
    tell(&mut log, 2, 4).unwrap();
    log.end().unwrap();
    drop(log);
    let found = check(std::slice::from_ref(&state));
    assert_eq!((found.findings.len(), found.logs[0].restarts, found.frames_unmatched), (0, 1, 3));
    // Somebody else's log is not continued, nor one that was changed.
    let error = Log::open(&state, &kits[3]).err().unwrap();
    assert!(matches!(error.defect, AuditDefect::AnothersLog { .. }) && error.is_bad_input(), "{error}");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"size\":10", "\"size\":11", 1)).unwrap();
    let error = Log::open(&state, kit).err().unwrap();
    assert!(matches!((&error.defect, error.line), (AuditDefect::Broken, Some(2))), "{error}");
}

#[test]
fn what_a_party_says_that_comes_back_too_late_is_noted_and_nobodys_fault() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_directory(parent.path());
    let kits = provision(&run, "exact", &parent.path().join("kits"));
    let kit_of = |party: PartyId| kits.iter().find(|kit| kit.own == party).unwrap();
    let (client, principal) = (kit_of(PartyId::Client(0)), kit_of(PartyId::Principal));
    let sent = [Kind::ClientHello, Kind::Model];
    // Whether the client was started again, how much arrived, and what cannot honestly be missing.
    for (comes_back, arrived, wrong) in [(true, 1, vec![]), (false, 1, vec![1]), (true, 0, vec![0])] {
        let name = |party: &str| parent.path().join(format!("{party}-{comes_back}-{arrived}"));
        let states = ["client", "principal"].map(name);
        states.iter().for_each(|state| fs::create_dir(state).unwrap());
        let tell = |log: &mut Log, direction, peer, number| tell(log, direction, peer, &sent, number);
        let mut log = Log::open(&states[0], client).unwrap().0;
        tell(&mut log, Direction::Sent, PartyId::Principal, 0);
        if comes_back {
            drop(log);
            log = Log::open(&states[0], client).unwrap().0;
        }
        tell(&mut log, Direction::Sent, PartyId::Principal, 1);
        log.end().unwrap();
        let mut log = Log::open(&states[1], principal).unwrap().0;
        (0..arrived).for_each(|number| tell(&mut log, Direction::Received, client.own, number));
        log.end().unwrap();
        let found = check(&states);
        assert_eq!(missed(&found), wrong, "{found:?}");
        let noted = found.notes.iter().any(|note| note.what.contains("had not arrived when it ended"));
        assert_eq!(noted, comes_back, "{found:?}");
    }
}

/// Tells a log of one of the messages that are sent one after the other.
fn tell(log: &mut Log, direction: Direction, peer: PartyId, sent: &[Kind], number: usize) {
    let digest = Fingerprint([number as u8; 32]);
    log.append(direction, peer, sent[number], number as u64, 10, digest).unwrap();
}

/// Numbers of frames that one log has and the other must have.
fn missed(found: &Verification) -> Vec<usize> {
    let is_told = |number: &usize| {
        let words = format!("frame {number} ");
        found.findings.iter().any(|finding| finding.what.starts_with(&words))
    };
    (0..9).filter(is_told).collect()
}

#[test]
fn a_restart_of_the_principal_excuses_nobody_who_denies_what_came_before_the_values() {
    let parent = tempfile::tempdir().unwrap();
    let run = run_directory(parent.path());
    let kits = provision(&run, "exact", &parent.path().join("kits"));
    let kit_of = |party: PartyId| kits.iter().find(|kit| kit.own == party).unwrap();
    let (principal, auxiliary) = (kit_of(PartyId::Principal), kit_of(PartyId::Auxiliary));
    let sent = [Kind::Session, Kind::Test, Kind::Values, Kind::TestFinished];
    // How much the auxiliary says it has received, and which frames it cannot honestly lack.
    for (received, wrong) in [(4, 0..0), (3, 0..0), (2, 2..3), (1, 1..3), (0, 0..3)] {
        let states = ["principal", "auxiliary"].map(|name| parent.path().join(format!("{name}-{received}")));
        states.iter().for_each(|state| fs::create_dir(state).unwrap());
        let tell = |log: &mut Log, direction, peer, number| tell(log, direction, peer, &sent, number);
        let mut log = Log::open(&states[0], principal).unwrap().0;
        (0..3).for_each(|number| tell(&mut log, Direction::Sent, PartyId::Auxiliary, number));
        drop(log);
        let mut log = Log::open(&states[0], principal).unwrap().0;
        tell(&mut log, Direction::Sent, PartyId::Auxiliary, 3);
        log.end().unwrap();
        let mut log = Log::open(&states[1], auxiliary).unwrap().0;
        (0..received).for_each(|number| tell(&mut log, Direction::Received, PartyId::Principal, number));
        log.end().unwrap();
        let found = check(&states);
        assert_eq!(missed(&found), wrong.collect::<Vec<_>>(), "{received} received: {found:?}");
    }
}

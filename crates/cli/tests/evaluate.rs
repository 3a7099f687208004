//! `secsv evaluate` as a user sees it: output, files and exit codes.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use secsv_federation::{
    ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec, RoundId, RunWriter, Tensor, TestSet, Weights,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A model with one score per class; it predicts the class with the larger weight times the only feature.
fn model(weights: [f32; 2]) -> Outcome<Weights> {
    Ok(Weights::from_iter([("fc.weight".to_owned(), Tensor::new(vec![2, 1], weights.to_vec())?)]))
}

/// Four clients, two rounds. Samples are 1 (class 1) and -1 (class 0), so a model that weighs class 1 more is
/// always right and one that weighs class 0 more always wrong. `bad` uploads wrong models, `late` misses
/// round 1.
fn written(parent: &Path) -> Outcome<PathBuf> {
    let path = parent.join("run");
    let linear = LayerSpec::Linear { weight: "fc.weight".into(), bias: None };
    let mut clients = Vec::new();
    for id in ["good", "bad", "fine", "late"] {
        clients.push(ClientSpec::new(ClientId::new(id)?, 10.0));
    }
    let model_spec = ModelSpec::new(vec![1], 2, vec![linear]);
    let spec = FederationSpec::new("four".into(), 2, model_spec, clients);
    let writer = RunWriter::create(&path, &spec)?;
    writer.initial_model(&model([1.0, 0.0])?)?;
    for id in spec.ids() {
        writer.test_set(id, &TestSet::new(vec![1], vec![1.0, -1.0], vec![1, 0])?)?;
    }
    for round in [RoundId(1), RoundId(2)] {
        for id in spec.ids().filter(|id| round == RoundId(2) || id.as_str() != "late") {
            let weights = if id.as_str() == "bad" { [3.0, 0.0] } else { [0.0, 2.0] };
            writer.local_model(id, round, &model(weights)?)?;
        }
    }
    writer.finish()?;
    Ok(path)
}

/// Two layers: more than BlindSV tests.
fn deep(parent: &Path) -> Outcome<PathBuf> {
    let path = parent.join("deep");
    let linear = |name: &str| LayerSpec::Linear { weight: name.into(), bias: None };
    let ids = ["a", "b", "c", "d"].map(ClientId::new);
    let mut clients = Vec::new();
    for id in ids {
        clients.push(ClientSpec::new(id?, 10.0));
    }
    let layers = vec![linear("one.weight"), LayerSpec::Softmax {}, linear("two.weight")];
    let model_spec = ModelSpec::new(vec![1], 2, layers);
    let spec = FederationSpec::new("deep".into(), 1, model_spec, clients);
    let weights = |sign: f32| -> Outcome<Weights> {
        let one = Tensor::new(vec![2, 1], vec![sign, -sign])?;
        let two = Tensor::new(vec![2, 2], vec![0.0, 1.0, 1.0, 0.0])?;
        Ok(Weights::from_iter([("one.weight".to_owned(), one), ("two.weight".to_owned(), two)]))
    };
    let writer = RunWriter::create(&path, &spec)?;
    writer.initial_model(&weights(-1.0)?)?;
    for id in spec.ids() {
        writer.test_set(id, &TestSet::new(vec![1], vec![1.0, -1.0], vec![1, 0])?)?;
        writer.local_model(id, RoundId(1), &weights(1.0)?)?;
    }
    writer.finish()?;
    Ok(path)
}

fn secsv(arguments: &[&str], run: &Path) -> Outcome<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).arg("evaluate").arg(run).args(arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Seconds differ from run to run.
fn without_seconds(text: &str) -> String {
    let without = |line: &str| match line.rsplit_once(" rounds, ") {
        Some((head, tail)) if tail.ends_with(" s") => format!("{head} rounds"),
        _ => line.to_owned(),
    };
    text.lines().map(without).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_table_is_this_one() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let output = secsv(&["--protocol", "nssv"], &run).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // One good client alone does not outweigh bad (2 against 3), two do (4 against 3). Round 1, by hand: 2/3,
    // -1/3, 2/3. Round 2 starts from a model that is always right: 1/6, -1/2, 1/6, 1/6.
    assert_eq!(
        without_seconds(&text(&output.stdout)),
        "what each organisation contributed, in points: right answers per hundred test cases\n\
         \n\
         organisation     points    share\n\
         good             +83.33   45.5 %\n\
         fine             +83.33   45.5 %\n\
         late             +16.67    9.1 %\n\
         bad              -83.33        -\n\
         sum             +100.00\n\
         \n\
         From the first model to the last, right answers went from 0.0 % to 100.0 % of 8 test cases: +100.00 points.\n\
         The values split that among the organisations. One test case is 12.50 points. \
         A share is a part of all positive values together; a negative value has none. It is no price.\n\
         nssv, exact: 23 models tested on 8 test cases in 2 rounds"
    );
    let verbose = text(&secsv(&["--protocol", "nssv", "--verbose"], &run).unwrap().stdout);
    assert!(verbose.contains("bad              -83.33        -  -0.833333"), "{verbose}");
}

#[test]
fn json_is_one_document_and_the_file_the_same() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let file = parent.path().join("result.json");
    let file_argument = file.to_str().unwrap();
    let output =
        secsv(&["--protocol", "nssv", "--format", "json", "--seed", "9", "--json", file_argument], &run)
            .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(document, written);
    assert_eq!(document["clients"], serde_json::json!(["good", "bad", "fine", "late"]));
    assert_eq!(document["seed"], 9);
    assert_eq!(document["ssv"][0]["values"]["late"], 0.0);
    let first = &document["utilities"][0];
    assert_eq!((&first["round"], &first["correct"], &first["total"]), (&1.into(), &0.into(), &8.into()));
    assert!(output.stderr.is_empty(), "nobody waits long enough for a line: {}", text(&output.stderr));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
}

/// Where no protocol is named it is the one under which nobody decrypts. A model that it cannot test is not silently tested by one that
/// exposes samples: the refusal says why, and what there is to choose from.
#[test]
fn the_default_exposes_nobody_or_is_refused_with_the_choices() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let output = secsv(&["--format", "json"], &run).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["protocol"], "blindsv");
    let clear = secsv(&["--protocol", "nssv", "--format", "json"], &run).unwrap();
    let clear: serde_json::Value = serde_json::from_slice(&clear.stdout).unwrap();
    assert_eq!(document["fsv"], clear["fsv"]);

    let deep = deep(parent.path()).unwrap();
    let output = secsv(&[], &deep).unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    for said in [
        "--protocol: expected secsv, hesv or secretsv by name",
        "can rebuild",
        "secsv plan",
        "the protocol cannot compute",
    ] {
        assert!(complaint.contains(said), "{said}: {complaint}");
    }
    let output = secsv(&["--protocol", "secsv"], &deep).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn skipping_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let output =
        secsv(&["--protocol", "nssv", "--skip", "on", "--verify-skip", "--format", "json"], &run).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["skip"], true);
    let pair = document["utilities"]
        .as_array()
        .unwrap()
        .iter()
        .find(|u| u["round"] == 1 && u["coalition"] == serde_json::json!(["fine", "good"]))
        .unwrap();
    assert_eq!(
        (&pair["correct"], &pair["tested"], &pair["wrongly_skipped"]),
        (&8.into(), &0.into(), &0.into())
    );
    let table = text(&secsv(&["--protocol", "nssv", "--skip", "on"], &run).unwrap().stdout);
    assert!(table.contains("skipped"), "{table}");
}

#[test]
fn bad_input_ends_with_2_and_writes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let file = parent.path().join("result.json");
    let json = ["--protocol", "nssv", "--json", file.to_str().unwrap()];
    fs::write(run.join("clients/fine/round-0002.safetensors"), b"not a model").unwrap();
    let output = secsv(&json, &run).unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint.contains("clients/fine/round-0002.safetensors: header: expected"), "{complaint}");
    assert!(output.stdout.is_empty() && !file.exists());
    for arguments in [
        &["--protocol", "nssv", "--estimator", "guess"][..],
        &["--protocol", "none"],
        &["--protocol", "nssv", "--epsilon", "0"],
        &["--protocol", "nssv", "--max-seconds", "-1"],
        &["--protocol", "nssv", "--json", "/nowhere/at/all.json"],
        &["--protocol", "hesv", "--skip", "on"],
        &["--protocol", "hesv", "--skip", "auto"],
        &["--protocol", "hesv", "--preset", "compact"],
    ] {
        let parent = tempfile::tempdir().unwrap();
        let run = written(parent.path()).unwrap();
        let output = secsv(arguments, &run).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let nothing = secsv(&["--protocol", "nssv"], &parent.path().join("nothing")).unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("federation.toml: file: expected this file, found none"));
}

/// Numbers that leave no room for sums are the input's fault, and the file is named.
#[test]
fn numbers_that_no_protocol_can_compute_with_name_their_file() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    // The first number of the model, behind a header that stays.
    let file = run.join("clients/fine/round-0002.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.len() - 8;
    bytes[place..place + 4].copy_from_slice(&1e38f32.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    for protocol in ["blindsv", "secsv", "hesv", "secretsv"] {
        let output = secsv(&["--protocol", protocol], &run).unwrap();
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        let expected = "clients/fine/round-0002.safetensors: fc.weight: expected numbers from";
        assert!(
            complaint.contains(expected) && complaint.contains("found 1e38 at position 0"),
            "{complaint}"
        );
    }
    assert_eq!(
        secsv(&["--protocol", "nssv"], &run).unwrap().status.code(),
        Some(0),
        "in the clear it will do"
    );
}

#[test]
fn encrypted_values_are_the_clear_ones() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let values = |arguments: &[&str]| {
        let output = secsv(arguments, &run).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let table = without_seconds(&text(&output.stdout));
        // The clients, their sum and what was gained; what follows is about costs and protection.
        table.lines().skip(1).take(9).map(str::to_owned).collect::<Vec<_>>()
    };
    let clear = values(&["--protocol", "nssv"]);
    assert!(clear.iter().any(|line| line.starts_with("sum ")), "{clear:?}");
    assert_eq!(values(&["--protocol", "secsv"]), clear);
    assert_eq!(values(&["--protocol", "secretsv"]), clear);
    assert_eq!(values(&["--protocol", "hesv"]), clear);
    assert_eq!(values(&["--protocol", "hesv", "--matmul", "reducing"]), clear);
}

#[test]
fn sampled_values_come_with_their_errors() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let arguments = ["--protocol", "nssv", "--estimator", "permutation", "--samples", "5", "--seed", "1"];
    let first = secsv(&arguments, &run).unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert!(text(&first.stdout).contains("standard error"));
    let again = secsv(&arguments, &run).unwrap();
    assert_eq!(without_seconds(&text(&first.stdout)), without_seconds(&text(&again.stdout)));
}

/// Progress begins before the first test and ends with the last, whatever the estimator asks for; what is told to programs
/// is little, and what is told to nobody is nothing.
#[test]
fn progress_comes_to_its_end() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    for protocol in ["nssv", "secsv"] {
        let output = secsv(&["--protocol", protocol, "--progress", "json"], &run).unwrap();
        let lines: Vec<serde_json::Value> =
            text(&output.stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let counts =
            |line: &serde_json::Value| (line["done"].as_u64().unwrap(), line["asked"].as_u64().unwrap());
        assert_eq!(lines.first().map(counts), Some((0, 23)), "{protocol}");
        assert_eq!(lines.last().map(counts), Some((23, 23)), "{protocol}: the table says 23 models");
        assert!(lines.iter().all(|line| line["what"] == protocol), "{lines:?}");
        assert!(lines.len() < 10, "at most one a second, not one a test: {}", lines.len());
    }
    for silence in [&["--progress", "none"][..], &["--quiet"]] {
        let output = secsv(&[&["--protocol", "secsv"], silence].concat(), &run).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    }
}

/// Settings that would change nothing are a mistake of whoever gives them.
#[test]
fn settings_that_mean_nothing_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    for (arguments, named) in [
        (&["--protocol", "nssv", "--samples", "5"][..], "--samples: expected an estimator that samples"),
        (&["--protocol", "nssv", "--max-seconds", "5"], "--max-seconds: expected an estimator that samples"),
        (&["--protocol", "nssv", "--max-seconds", "0"], "--max-seconds: expected a positive number"),
        (&["--protocol", "nssv", "--max-seconds", "-1"], "--max-seconds: expected a positive number"),
        (&["--protocol", "nssv", "--max-tests", "500"], "--max-tests: expected an estimator that samples"),
        (&["--protocol", "nssv", "--max-error", "0.1"], "--max-error: expected an estimator that samples"),
        (&["--protocol", "nssv", "--preset", "compact"], "--preset: expected a protocol that encrypts"),
        (&["--protocol", "blindsv", "--matmul", "packed"], "--matmul: expected a protocol that encrypts"),
        (&["--protocol", "nssv", "--verify-skip"], "--verify-skip: expected --skip"),
        (&["--protocol", "nssv", "--estimator", "tmc", "--epsilon", "-1"], "--epsilon: expected a positive"),
    ] {
        let output = secsv(arguments, &run).unwrap();
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(named) && output.stdout.is_empty(), "{arguments:?}: {complaint}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_secsv"));
    let output = command.env("SECSV_LOG", "loud").arg("evaluate").arg(&run).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("SECSV_LOG: expected off, error"), "{}", text(&output.stderr));
}

/// What follows from a seed without an error bar, and error bars that leave something out, say so everywhere.
#[test]
fn values_by_chance_do_not_pass_for_exact_ones() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    for (estimator, note, report) in [
        ("exact", None, "They follow exactly"),
        ("kernelshap-of-the-paper", Some("drawn by chance (seed 3)"), "drawn by chance (seed 3)"),
        ("group-sv", Some("drawn by chance (seed 3)"), "drawn by chance (seed 3)"),
        ("tmc", Some("standard errors are of the draw alone"), "not part of that uncertainty"),
        ("gtg-shapley", Some("standard errors are of the draw alone"), "not part of that uncertainty"),
    ] {
        let page = parent.path().join("report.html");
        let arguments = ["--protocol", "nssv", "--seed", "3", "--estimator", estimator, "--report"];
        let arguments = [&arguments[..], &[page.to_str().unwrap()]].concat();
        let table = text(&secsv(&arguments, &run).unwrap().stdout);
        let json = secsv(&[&arguments[..], &["--format", "json"]].concat(), &run).unwrap().stdout;
        let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
        match note {
            Some(note) => {
                assert!(table.contains(&format!("note: {note}")), "{estimator}: {table}");
                assert!(document["notes"][0].as_str().unwrap().starts_with(note), "{estimator}");
            }
            None => assert!(!table.contains("note:") && document.get("notes").is_none(), "{table}"),
        }
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains(report), "{estimator}");
        assert_eq!(page.contains("They follow exactly"), estimator == "exact", "{estimator}");
    }
}

#[test]
fn views_are_written_where_there_are_parties_and_nothing_else() {
    let parent = tempfile::tempdir().unwrap();
    let run = written(parent.path()).unwrap();
    let directory = parent.path().join("views");
    let views = directory.to_str().unwrap();
    let clear = secsv(&["--protocol", "nssv", "--views", views], &run).unwrap();
    assert_eq!(clear.status.code(), Some(2));
    assert!(text(&clear.stderr).contains("a protocol with parties"), "{}", text(&clear.stderr));
    assert!(!directory.exists());
    let output = secsv(&["--protocol", "secretsv", "--views", views], &run).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(directory.join("index.json")).unwrap()).unwrap();
    assert_eq!(index["federation"], "four");
    assert_eq!(index["protocol"], "secretsv");
    for party in index["parties"].as_array().unwrap() {
        let below = directory.join(party["directory"].as_str().unwrap());
        let files: serde_json::Value =
            serde_json::from_slice(&fs::read(below.join("index.json")).unwrap()).unwrap();
        for array in files["arrays"].as_array().unwrap() {
            assert!(below.join(array["file"].as_str().unwrap()).is_file(), "{array}");
        }
    }
    assert!(directory.join("clients/good/known.npz").is_file());
    let again = secsv(&["--protocol", "secretsv", "--views", views], &run).unwrap();
    assert_eq!(again.status.code(), Some(2), "there is something in it");
    assert!(text(&again.stderr).contains("expected an empty directory or none"), "{}", text(&again.stderr));
}

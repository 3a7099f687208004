//! `--report` and `secsv report`, as a user runs them. Failure: a wrong exit code, a file where none belongs,
//! or a report that does not show the result.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use secsv_federation::{
    ClientId, ClientSpec, FederationSpec, LayerSpec, ModelSpec, RunWriter, Tensor, TestSet, Weights,
};

/// Four clients who learned to tell x > 0, the last one the wrong way round.
fn run_directory(directory: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut clients = Vec::new();
    for place in 0..4 {
        clients.push(ClientSpec::new(ClientId::new(format!("site-{place}"))?, 10.0));
    }
    let layers = vec![LayerSpec::Linear { weight: "w".to_owned(), bias: None }];
    let model = ModelSpec::new(vec![1], 2, layers);
    let spec = FederationSpec::new("north & <south>".to_owned(), 2, model, clients);
    let slope = |up: f32| {
        Ok::<_, Box<dyn Error>>(Weights::from_iter([(
            "w".to_owned(),
            Tensor::new(vec![2, 1], vec![-up, up])?,
        )]))
    };
    let path = directory.join("run");
    let writer = RunWriter::create(&path, &spec)?;
    writer.initial_model(&slope(0.0)?)?;
    for (place, id) in spec.ids().enumerate() {
        writer.test_set(id, &TestSet::new(vec![1], vec![-2.0, -1.0, 1.0, 2.0], vec![0, 0, 1, 1])?)?;
        for round in spec.round_ids() {
            writer.local_model(id, round, &slope(if place == 3 { -1.0 } else { 1.0 })?)?;
        }
    }
    writer.finish()?;
    Ok(path)
}

fn secsv(arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).args(arguments).output()?)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

#[test]
fn evaluate_writes_the_report_and_a_kept_result_gives_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let run = run_directory(directory.path()).unwrap();
    let (json, first, again) = (
        directory.path().join("r.json"),
        directory.path().join("r.html"),
        directory.path().join("again.html"),
    );
    let files = ["--json", text(&json), "--report", text(&first)];
    let ran = secsv(&[&["evaluate", text(&run), "--protocol", "nssv"], &files[..]].concat()).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let page = fs::read_to_string(&first).unwrap();
    assert!(page.contains("<h1>north &amp; &lt;south&gt;</h1>"), "the federation's name, escaped");
    for site in ["site-0", "site-1", "site-2", "site-3"] {
        assert!(page.contains(&format!("<span class=\"name\">{site} <small>trained on 10")), "{site}");
    }
    assert!(page.contains("than without: site-3."), "the one that does harm is named");

    let ran = secsv(&["report", text(&json), "--out", text(&again), "--title", "north & <south>"]).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fs::read_to_string(&again).unwrap(), page);
    let ran = secsv(&["--format", "json", "report", text(&json), "--out", text(&again)]).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(said["report"], text(&again));
}

#[test]
fn every_method_values_and_reports_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let run = run_directory(directory.path()).unwrap();
    for method in secsv_shapley::Method::all() {
        let file = directory.path().join(format!("{method}.html"));
        let ran = secsv(&[
            "evaluate",
            text(&run),
            "--protocol",
            "nssv",
            "--estimator",
            method.name(),
            "--report",
            text(&file),
        ])
        .unwrap();
        assert!(ran.status.success(), "{method}: {}", String::from_utf8_lossy(&ran.stderr));
        assert!(fs::read_to_string(&file).unwrap().contains(&format!("<dd>{method}</dd>")), "{method}");
    }
}

#[test]
fn bad_input_ends_with_2_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let run = run_directory(directory.path()).unwrap();
    let nowhere = directory.path().join("no/such/place.html");
    let ran = secsv(&["evaluate", text(&run), "--protocol", "nssv", "--report", text(&nowhere)]).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));

    let (bad, out) = (directory.path().join("bad.json"), directory.path().join("out.html"));
    fs::write(&bad, "{\"protocol\": 3}").unwrap();
    for result in [&bad, &directory.path().join("absent.json")] {
        let ran = secsv(&["report", text(result), "--out", text(&out)]).unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(text(result)), "the file is named: {said}");
        assert!(!out.exists());
    }
}

//! `secsv train` as a user runs it: exit codes, what it prints where, and what it leaves behind.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

type Tested<T> = Result<T, Box<dyn Error>>;

fn secsv(directory: &Path, arguments: &[&str]) -> Tested<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).current_dir(directory).args(arguments).output()?)
}

#[test]
fn json_is_one_document_and_progress_is_json_lines() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let arguments = [
        "train",
        "--format",
        "json",
        "--progress",
        "json",
        "--dataset",
        "breast-cancer",
        "--model",
        "logistic",
        "--clients",
        "5",
        "--rounds",
        "3",
        "--alpha",
        "0.5",
        "--seed",
        "1",
        "--out",
        "run/",
        "--flip",
        "client-2:0.5",
        "--select",
        "2:client-1,client-2",
    ];
    let output = secsv(place.path(), &arguments)?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["rounds"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["rounds"][1]["clients"], serde_json::json!(["client-1", "client-2"]));
    assert_eq!(report["clients"][1]["faults"][0], "0.5 of its labels flipped");
    assert!(report["rounds"][2]["accuracy"].as_f64() > Some(0.8), "{report}");
    for line in String::from_utf8(output.stderr)?.lines() {
        let record: Value = serde_json::from_str(line)?;
        assert!(record["event"] == "round" || record["event"] == "progress", "{record}");
    }
    let run = place.path().join("run");
    assert!(run.join("federation.toml").is_file() && run.join("clients/client-5/test.safetensors").is_file());
    assert!(!run.join("clients/client-5/round-0002.safetensors").exists());

    let again = secsv(place.path(), &arguments)?;
    assert_eq!(again.status.code(), Some(2), "a directory in use is not overwritten");
    assert!(again.stdout.is_empty() && String::from_utf8(again.stderr)?.contains("run"));
    Ok(())
}

#[test]
fn text_shows_rounds_and_clients() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let output = secsv(place.path(), &["train", "--dataset", "digits", "--rounds", "2", "--clients", "4"])?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    assert!(text.starts_with("round  clients  accuracy\n    1        4    0."), "{text}");
    assert!(text.contains("client-4") && text.contains("wrote run"), "{text}");
    assert!(place.path().join("run/global/round-0002.safetensors").is_file());
    Ok(())
}

/// What was found in one's own file is said, so that a misreading shows.
#[test]
fn what_was_read_is_said() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let rows: String = (0..120).map(|k| format!("{k},{},{}\n", k % 7, ["yes", "no", "YES"][k % 3])).collect();
    std::fs::write(place.path().join("own.csv"), format!("a,b,kind\n{rows}"))?;
    let output = secsv(place.path(), &["train", "--dataset", "own.csv", "--rounds", "1", "--split", "even"])?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    for said in [
        "note: read 120 samples of 2 features, none missing; a header, labels in column 3 (kind); 3 classes: YES (40), no (40), yes (40)",
        "note: classes 0 to 2 are YES, no, yes",
        "note: some classes differ by upper and lower case alone",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let spec = std::fs::read_to_string(place.path().join("run/federation.toml"))?;
    assert!(spec.contains("class_names = [") && spec.contains("\"YES\""), "{spec}");
    let evaluate =
        ["evaluate", "run", "--utility", "balanced-accuracy", "--protocol", "nssv", "--report", "r.html"];
    let output = secsv(place.path(), &evaluate)?;
    let text = String::from_utf8(output.stdout)? + &std::fs::read_to_string(place.path().join("r.html"))?;
    assert_eq!(text.matches("of class YES, ").count(), 2, "{text}");
    std::fs::write(
        place.path().join("numbers.csv"),
        format!("1,2,3\n{}", rows.replace("YES", "1").replace("yes", "1").replace("no", "0")),
    )?;
    let output = secsv(place.path(), &["train", "--dataset", "numbers.csv", "--out", "other"])?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("numbers.csv: line 1: expected a header of names"), "{errors}");
    Ok(())
}

#[test]
fn bad_input_exits_2_and_writes_nothing() -> Tested<()> {
    let place = tempfile::tempdir()?;
    std::fs::write(place.path().join("bad.csv"), "a,b,y\n1,2,0\n1,x,1\n")?;
    std::fs::write(place.path().join("own.npy"), "")?;
    for (arguments, said) in [
        (vec!["--dataset", "mnist"], "--data"),
        (vec!["--dataset", "mnist", "--data", "."], "mnist/train-images-idx3-ubyte"),
        (vec!["--dataset", "nothing"], "breast-cancer"),
        (vec!["--dataset", "bad.csv"], "line 3, column 2"),
        (vec!["--dataset", "digits", "--clients", "1"], "2 to 128"),
        (vec!["--dataset", "digits", "--alpha", "0"], "alpha"),
        (vec!["--dataset", "digits", "--alpha", "-1"], "alpha: expected a positive number, found -1"),
        (vec!["--dataset", "digits", "--name", ""], "name: expected one line"),
        (vec!["--dataset", "digits", "--train-limit", "100", "--clients", "20"], "enough for"),
        (vec!["--dataset", "own.npy"], "numpy.savez"),
        (vec!["--dataset", "digits", "--rounds", "0"], "rounds"),
        (vec!["--dataset", "digits", "--flip", "client-9:0.5"], "client-9"),
        (vec!["--dataset", "digits", "--flip", "client-1"], "ID:FRACTION"),
        (vec!["--dataset", "digits", "--select", "11:client-1"], "1 to 10"),
        (vec!["--dataset", "digits", "--select", "1:client-1", "--select", "1:client-2"], "round 1 twice"),
        (vec!["--dataset", "digits", "--split", "natural"], "natural"),
        (vec!["--dataset", "breast-cancer", "--model", "cnn"], "images"),
        (vec!["--dataset", "digits", "--model", "dnn", "--layers", "1"], "layers"),
        (vec!["--dataset", "digits", "--test-share", "1"], "test share"),
        (vec!["--dataset", "digits", "--train-limit", "20"], "largest class"),
        (vec!["--dataset", "digits", "--model", "svm"], "svm"),
    ] {
        let output = secsv(place.path(), &[vec!["train"], arguments.clone()].concat())?;
        let error = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!place.path().join("run").exists(), "{arguments:?}");
    }
    Ok(())
}

//! `secsv plan` as a user sees it: what it says beforehand is what `evaluate` counts.

use std::{
    error::Error,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn secsv(arguments: &[&str]) -> Outcome<Output> {
    // What is measured once need not be measured in the next run of these tests.
    let caches = env!("CARGO_TARGET_TMPDIR");
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).args(arguments).env("XDG_CACHE_HOME", caches).output()?)
}

fn json(arguments: &[&str]) -> Outcome<Value> {
    let output = secsv(&[arguments, &["--format", "json"]].concat())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(serde_json::from_slice(&output.stdout)?) } else { Err(errors.into()) }
}

/// The embedded breast-cancer federation.
fn trained(out: &Path) -> Outcome<String> {
    let out = out.to_str().ok_or("a path")?;
    let model = ["--model", "logistic", "--clients", "5", "--rounds", "2"];
    json(&[&["train", "--dataset", "breast-cancer", "--out", out], &model[..]].concat())?;
    Ok(out.to_owned())
}

/// Whoever plans reads the same sentences as whoever evaluates and whoever gets the report: the exposed
/// clients can rebuild.
fn says_who_can_rebuild(exposure: &Value, told: &[String]) -> Outcome<()> {
    let rows = exposure["rows"].as_array().ok_or("rows")?;
    let is_exposed = |row: &&Value| row["samples"] == "can rebuild" && row["models"] == "can rebuild";
    assert!(rows[..5].iter().filter(is_exposed).count() >= 3, "{rows:?}");
    let common = exposure["sentences"].as_array().into_iter().flatten();
    let said: Vec<&str> =
        common.chain(rows.iter().map(|row| &row["sentence"])).filter_map(Value::as_str).collect();
    assert_eq!(said.len(), 2 + 5 + 4 + 3);
    for (told, sentence) in told.iter().flat_map(|told| said.iter().map(move |sentence| (told, *sentence))) {
        assert!(told.contains(sentence), "{sentence} is not in {told}");
    }
    Ok(())
}

#[test]
fn planned_operations_and_bytes_are_those_evaluate_counts() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    for protocol in ["secsv", "secretsv"] {
        let plan = json(&["plan", &run, "--protocol", protocol])?;
        let result = json(&["evaluate", &run, "--protocol", protocol])?;
        for field in ["protocol", "clients", "operations", "traffic", "messages", "parameters", "security"] {
            assert_eq!(plan[field], result[field], "{protocol} {field}");
        }
        let report = directory.path().join("report.html");
        let told = secsv(&[
            "evaluate",
            &run,
            "--verbose",
            "--protocol",
            protocol,
            "--report",
            report.to_str().ok_or("a path")?,
        ])?;
        let told = [String::from_utf8(told.stdout)?, std::fs::read_to_string(&report)?];
        says_who_can_rebuild(&plan["security"]["exposure"], &told)?;
        assert_eq!(plan["tests"], result["utilities"].as_array().map_or(0, |all| all.len() - 1));
        assert!(plan["cpu_s"].as_f64() > Some(0.0) && plan["wall_s"].as_f64() <= plan["cpu_s"].as_f64());
        assert!(plan["memory_bytes"].as_u64() > Some(1 << 20) && plan["at_least"].is_null());
        let range = json(&["plan", &run, "--protocol", protocol, "--skip", "on"])?;
        let skipped = json(&["evaluate", &run, "--protocol", protocol, "--skip", "on"])?;
        let decryptions = |plan: &Value| plan["operations"]["decrypt"].as_u64();
        // Models are not tested together then.
        assert!(decryptions(&range) >= decryptions(&plan) && decryptions(&range).is_some());
        let bytes = |messages: &Value| -> u64 {
            messages.as_array().into_iter().flatten().filter_map(|kind| kind["bytes"].as_u64()).sum()
        };
        let [least, found, most] =
            [&range["at_least"]["messages"], &skipped["messages"], &range["messages"]].map(bytes);
        assert!(least <= found && found <= most, "{least} {found} {most}");
    }
    Ok(())
}

/// Every estimator can be planned: what it will test is known, or at most known where it looks at utilities on the way.
#[test]
fn estimators_are_planned() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    for (protocol, estimator, more) in [
        ("blindsv", "permutation", &["--samples", "3"][..]),
        ("blindsv", "leave-one-out", &[]),
        ("secretsv", "kernelshap", &["--samples", "12", "--seed", "7"]),
        ("secsv", "group-sv", &[]),
        ("secretsv", "tmc", &["--samples", "3"]),
    ] {
        let arguments = [&[&run, "--protocol", protocol, "--estimator", estimator][..], more].concat();
        let plan = json(&[&["plan"], &arguments[..]].concat())?;
        let result = json(&[&["evaluate"], &arguments[..]].concat())?;
        // What a later round begins with is what the round before ended with: tested there.
        let is_model =
            |tested: &&Value| tested["round"] == 1 || tested["coalition"] != Value::Array(Vec::new());
        let models = result["utilities"].as_array().ok_or("utilities")?.iter().filter(is_model).count();
        assert_eq!(plan["estimator"], estimator);
        let planned = plan["tests"].as_u64().ok_or("tests")?;
        if plan["truncates"] == true {
            assert!(planned >= models as u64, "{estimator}: {planned} planned, {models} tested");
            continue;
        }
        assert_eq!(planned, models as u64, "{estimator}");
        for field in ["operations", "traffic", "messages"] {
            assert_eq!(plan[field], result[field], "{protocol} {estimator} {field}");
        }
    }
    Ok(())
}

/// The default, without a name for it: counts and bytes are exact, nobody decrypts, and nobody is said to rebuild by themselves.
#[test]
fn what_blindsv_costs_and_exposes_is_known_before() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    let plan = json(&["plan", &run])?;
    let report = directory.path().join("report.html");
    let result = json(&["evaluate", &run, "--report", report.to_str().ok_or("a path")?])?;
    assert_eq!(plan["protocol"], "blindsv");
    for field in ["protocol", "clients", "operations", "traffic", "messages", "parameters", "security"] {
        assert_eq!(plan[field], result[field], "{field}");
    }
    assert!(plan["cpu_s"].as_f64() > Some(0.0) && plan["at_least"].is_null());
    let rows = plan["security"]["exposure"]["rows"].as_array().ok_or("rows")?;
    assert_eq!(rows.len(), 5 + 4 + 3);
    assert!(
        rows[..6].iter().all(|row| row["samples"] == "nothing" && row["models"] == "nothing"),
        "{rows:?}"
    );
    let told = std::fs::read_to_string(&report)?;
    for row in rows {
        assert!(told.contains(row["sentence"].as_str().ok_or("a sentence")?), "{row}");
    }
    for untrue in ["decrypt", "encrypted"] {
        assert!(!told.to_lowercase().contains(untrue), "the report speaks of what did not happen: {untrue}");
    }
    Ok(())
}

/// Counts of classes cost and disclose more, and that is known before; values of class counts are those of the clear.
#[test]
fn what_counts_of_classes_cost_and_disclose_is_known_before() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    let utility = ["--utility", "balanced-accuracy"];
    let plan = json(&[&["plan", &run], &utility[..]].concat())?;
    let result = json(&[&["evaluate", &run], &utility[..]].concat())?;
    for field in ["protocol", "utility", "clients", "operations", "traffic", "messages", "security"] {
        assert_eq!(plan[field], result[field], "{field}");
    }
    let learned = plan["security"]["disclosures"].as_array().ok_or("disclosures")?;
    let says = |line: &&Value| line["what"].as_str().is_some_and(|what| what.contains("each true class has"));
    assert_eq!(learned.iter().filter(says).count(), 1, "{learned:?}");
    let rows = plan["security"]["exposure"]["rows"].as_array().ok_or("rows")?;
    let principal = rows.iter().find(|row| row["who"] == "the principal").ok_or("the principal")?;
    assert!(
        principal["sentence"].as_str().is_some_and(|said| said.contains("each true class")),
        "{principal}"
    );
    let accuracy = json(&["plan", &run])?;
    assert!(!accuracy["security"].to_string().contains("true class") && accuracy["utility"].is_null());
    let clear = json(&[&["evaluate", &run, "--protocol", "nssv"], &utility[..]].concat())?;
    for field in ["utilities", "class_samples", "fsv"] {
        assert_eq!(clear[field], result[field], "{field}");
    }
    Ok(())
}

#[test]
fn settings_that_evaluate_refuses_are_not_planned() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    for (arguments, named) in [
        (&["--protocol", "nssv"][..], "--protocol"),
        (&["--protocol", "hesv", "--skip", "on"], "--skip"),
        (&["--protocol", "hesv", "--matmul", "packed"], "--matmul"),
        (&["--protocol", "secsv", "--matmul", "squaring"], "--matmul"),
        (&["--protocol", "secsv", "--utility", "f1"], "utility f1: expected accuracy, because under secsv"),
        (&["--protocol", "hesv", "--utility", "recall=1"], "blindsv and nssv can"),
        (&["--protocol", "secretsv", "--utility", "balanced-accuracy"], "blindsv and nssv can"),
        (&["--utility", "f1", "--skip", "on"], "skip: expected off with utility f1, because under blindsv"),
        (&["--utility", "recall=2"], "a class from 0 to 1"),
    ] {
        let output = secsv(&[&["plan", &run], arguments].concat())?;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{arguments:?}");
    }
    Ok(())
}

//! `secsv plan` as a user sees it: what it says beforehand is what `evaluate` counts.

use std::{
    error::Error,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn secsv(arguments: &[&str]) -> Outcome<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_secsv")).args(arguments).output()?)
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

#[test]
fn what_is_planned_is_what_evaluate_counts() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    for protocol in ["secsv", "secretsv"] {
        let plan = json(&["plan", &run, "--protocol", protocol])?;
        let result = json(&["evaluate", &run, "--protocol", protocol])?;
        for field in ["protocol", "clients", "operations", "traffic", "messages", "parameters", "security"] {
            assert_eq!(plan[field], result[field], "{protocol} {field}");
        }
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

/// Whoever plans reads the same sentences as whoever evaluates and whoever gets the report: the exposed clients can rebuild.
#[test]
fn every_command_says_who_can_rebuild() -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let run = trained(&directory.path().join("run"))?;
    let report = directory.path().join("report.html");
    let html = report.to_str().ok_or("a path")?;
    let text = |arguments: &[&str]| Ok::<_, Box<dyn Error>>(String::from_utf8(secsv(arguments)?.stdout)?);
    for protocol in ["secsv", "hesv", "secretsv"] {
        let plan = json(&["plan", &run, "--protocol", protocol])?;
        let exposure = &plan["security"]["exposure"];
        let rows = exposure["rows"].as_array().ok_or("rows")?;
        let said: Vec<&str> = exposure["sentences"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(rows.iter().map(|row| &row["sentence"]))
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(said.len(), 2 + 5 + 4 + 3, "{protocol}");
        let exposed =
            rows[..5].iter().filter(|row| row["samples"] == "can rebuild" && row["models"] == "can rebuild");
        assert!(exposed.count() >= 3, "{protocol}: {rows:?}");
        let mut told = vec![text(&["plan", &run, "--protocol", protocol])?];
        if protocol != "hesv" {
            told.push(text(&["evaluate", &run, "--protocol", protocol, "--report", html])?);
            told.push(std::fs::read_to_string(&report)?);
        }
        for (told, sentence) in
            told.iter().flat_map(|told| said.iter().map(move |sentence| (told, *sentence)))
        {
            assert!(told.contains(sentence), "{protocol}: {sentence} is not in {told}");
        }
    }
    Ok(())
}

#[test]
fn what_evaluate_refuses_is_not_planned_either() -> Outcome<()> {
    for (arguments, named) in [
        (&["--protocol", "nssv"][..], "--protocol"),
        (&["--protocol", "hesv", "--skip", "on"], "--skip"),
        (&["--protocol", "hesv", "--matmul", "packed"], "--matmul"),
        (&["--protocol", "secsv", "--matmul", "squaring"], "--matmul"),
    ] {
        let output = secsv(&[&["plan", "nowhere"], arguments].concat())?;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{arguments:?}");
    }
    Ok(())
}

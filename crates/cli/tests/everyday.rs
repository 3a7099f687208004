//! What people use every day beside values: tables, comparisons, completions, manual pages, plans that remember.

#![cfg(test)]

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn secsv(home: &Path, arguments: &[&str]) -> Outcome<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_secsv"));
    Ok(command.args(arguments).current_dir(home).env("XDG_CACHE_HOME", home.join("cache")).output()?)
}

/// Standard output of a call that succeeds.
fn told(home: &Path, arguments: &[&str]) -> Outcome<String> {
    let output = secsv(home, arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

fn trained(home: &Path, out: &str, more: &[&str]) -> Outcome<()> {
    let usual = ["train", "--dataset", "breast-cancer", "--rounds", "2", "--out", out, "--quiet"];
    told(home, &[&usual[..], more].concat())?;
    Ok(())
}

#[test]
fn tables_hold_what_the_document_holds() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(home.path(), "run", &["--clients", "4"])?;
    let arguments = ["evaluate", "run", "--protocol", "nssv", "--csv", "tables", "--json", "r.json"];
    told(home.path(), &arguments)?;
    let document: Value = serde_json::from_slice(&fs::read(home.path().join("r.json"))?)?;
    let read = |name: &str| -> Outcome<Vec<Vec<String>>> {
        let text = fs::read_to_string(home.path().join("tables").join(name))?;
        let text = text.strip_prefix('\u{feff}').ok_or("spreadsheets look for the mark")?;
        Ok(text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect())
    };
    let values = read("values.csv")?;
    assert_eq!(values[0][..4], ["organisation", "label", "value", "points"]);
    for row in &values[1..] {
        assert_eq!(row[2].parse::<f64>()?, document["fsv"][&row[0]].as_f64().ok_or("a value")?);
        assert!(row[6].parse::<f64>()? > 0.0, "the error from the test set: {row:?}");
    }
    assert_eq!(read("utilities.csv")?.len(), 1 + 32);
    assert_eq!(read("rounds.csv")?.len(), 1 + 8);
    fs::write(home.path().join("file"), "")?;
    let refused = secsv(home.path(), &["evaluate", "run", "--protocol", "nssv", "--csv", "file"])?;
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--csv: expected a directory") && refused.stdout.is_empty(), "{errors}");
    let inside = secsv(home.path(), &["evaluate", "run", "--protocol", "nssv", "--csv", "run/clients/x"])?;
    assert_eq!(inside.status.code(), Some(2), "not among the inputs");
    Ok(())
}

#[test]
fn two_results_are_compared() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(home.path(), "one", &["--clients", "4"])?;
    trained(home.path(), "other", &["--clients", "5"])?;
    for (run, file) in [("one", "a.json"), ("one", "b.json"), ("other", "c.json")] {
        told(home.path(), &["evaluate", run, "--protocol", "nssv", "--json", file])?;
    }
    let same = told(home.path(), &["diff", "a.json", "b.json"])?;
    assert!(same.contains("the same to the last bit") && !same.contains("note:"), "{same}");
    let text = told(home.path(), &["diff", "a.json", "c.json", "--report", "d.html"])?;
    assert!(text.contains("note: They are of two federations"), "{text}");
    assert!(text.contains("note: Only in the second: client-5."), "{text}");
    let page = fs::read_to_string(home.path().join("d.html"))?;
    assert!(page.contains("<h1>a and c</h1>") && page.contains("Only in the second: client-5."), "{page}");
    let json: Value =
        serde_json::from_str(&told(home.path(), &["diff", "a.json", "c.json", "--format", "json"])?)?;
    assert_eq!((&json["schema"], &json["version"]), (&"secsv-diff".into(), &1.into()));
    assert_eq!(json["organisations"].as_array().map(Vec::len), Some(5));
    let refused = secsv(home.path(), &["diff", "a.json", "absent.json"])?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("absent.json"));
    Ok(())
}

#[test]
fn protocols_are_compared_in_a_report() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(home.path(), "run", &["--clients", "4"])?;
    let arguments = ["compare", "run", "--protocols", "nssv,blindsv", "--report", "compared.html"];
    told(home.path(), &arguments)?;
    let page = fs::read_to_string(home.path().join("compared.html"))?;
    for said in ["<th class=\"amount\" scope=\"col\">nssv</th>", "blindsv", "client-4", "In the clear"] {
        assert!(
            page.contains(said)
                || page.contains(
                    &said.replace("class=\"amount\" scope=\"col\"", "scope=\"col\" class=\"amount\"")
                ),
            "{said}: {page}"
        );
    }
    Ok(())
}

/// Measuring takes seconds; the second plan of the same shape takes none.
#[test]
fn a_plan_remembers_what_it_measured() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(home.path(), "run", &["--clients", "4"])?;
    let plan = |more: &[&str]| -> Outcome<(bool, f64)> {
        let since = Instant::now();
        let output = secsv(home.path(), &[&["plan", "run"], more].concat())?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{errors}");
        Ok((errors.contains("measuring this machine"), since.elapsed().as_secs_f64()))
    };
    let (has_measured, first) = plan(&[])?;
    let (measured_again, second) = plan(&[])?;
    assert!(has_measured && !measured_again && second < first, "{first} s, {second} s");
    Ok(())
}

/// Every document says what it is: a program that reads one knows when its form has changed.
#[test]
fn documents_say_what_they_are() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    let document = |arguments: &[&str], code: i32| -> Outcome<Value> {
        let output = secsv(home.path(), &[arguments, &["--format", "json"]].concat())?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let train = ["train", "--dataset", "breast-cancer", "--rounds", "1", "--clients", "4", "--out", "run"];
    let servers = ["--principal", "localhost:9", "--auxiliary", "localhost:10", "--generate-keys"];
    let provision = ["provision", "run/federation.toml", "--out", "kits", "--servers-did-not-aggregate"];
    for (arguments, code, schema) in [
        (&train[..], 0, "secsv-training"),
        (&["demo"], 0, "secsv-demo"),
        (&["plan", "run"], 0, "secsv-plan"),
        (&["compare", "run", "--protocols", "nssv,secretsv"], 0, "secsv-comparison"),
        (&["evaluate", "run", "--protocol", "nssv", "--json", "a.json"], 0, "secsv-result"),
        (&["diff", "a.json", "a.json"], 0, "secsv-diff"),
        (&["report", "a.json", "--out", "a.html"], 0, "secsv-report"),
        (&["man", "--out", "man"], 0, "secsv-man"),
        (&["keygen", "--id", "client-1", "--out", "keys"], 0, "secsv-request"),
        (&[&provision[..], &servers].concat(), 0, "secsv-provision"),
        (&["renew", "kits", "--out", "renewed"], 0, "secsv-renewal"),
        (&["preflight", "kits/auxiliary"], 1, "secsv-preflight"),
    ] {
        let found = document(arguments, code)?;
        assert_eq!(found["schema"], schema, "{arguments:?}: {found}");
        assert!(found["version"].as_u64() > Some(0), "{arguments:?}");
    }
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/RESULT.md"))?;
    for schema in [
        "secsv-training",
        "secsv-demo",
        "secsv-plan",
        "secsv-comparison",
        "secsv-result",
        "secsv-diff",
        "secsv-report",
        "secsv-man",
        "secsv-request",
        "secsv-provision",
        "secsv-renewal",
        "secsv-preflight",
        "secsv-verification",
        "secsv-bench-linear",
        "secsv-bench-words",
        "secsv-reproduction",
    ] {
        assert!(text.contains(&format!("`{schema}`")), "{schema} is not in docs/RESULT.md");
    }
    Ok(())
}

/// Values as `evaluate` shows them, the largest first, by any estimator; the same bits under every protocol.
#[test]
fn a_comparison_reads_like_an_evaluation() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(
        home.path(),
        "run",
        &["--names", "zurich=Universitätsspital Zürich,bern,basel,chur", "--seed", "2"],
    )?;
    let alone = told(home.path(), &["evaluate", "run", "--protocol", "nssv"])?;
    let compared = told(home.path(), &["compare", "run", "--protocols", "nssv,blindsv"])?;
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().skip_while(|line| !line.starts_with("organisation")).skip(1);
        let cells =
            |row: &str| row.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect();
        rows.take(5).map(cells).collect()
    };
    for (alone, compared) in rows(&alone).iter().zip(rows(&compared)).take(4) {
        assert_eq!([&alone[..], &alone[1..]].concat(), compared, "name, points and share, points and share");
    }
    assert!(compared.contains("All columns are the same to the last bit."), "{compared}");
    assert!(compared.contains("Universitätsspital Zürich") && !compared.contains("zurich"), "{compared}");
    let sampled =
        ["compare", "run", "--protocols", "nssv,blindsv", "--estimator", "permutation", "--samples", "4"];
    let text = told(home.path(), &sampled)?;
    assert!(text.contains("standard error, at most") && text.contains("the same to the last bit"), "{text}");
    let refused = secsv(home.path(), &["compare", "run", "--estimator", "contribution-index-or"])?;
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    Ok(())
}

#[test]
fn shells_and_manuals_know_the_arguments() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish"] {
        let script = told(home.path(), &["completions", shell])?;
        assert!(script.contains("servers-did-not-aggregate") && script.contains("kernelshap"), "{shell}");
    }
    told(home.path(), &["man", "--out", "man"])?;
    let page = fs::read_to_string(home.path().join("man/secsv-evaluate.1"))?;
    assert!(page.contains("max\\-tests") && page.contains("Examples"), "{page}");
    Ok(())
}

#[test]
fn clients_have_the_names_that_are_given() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    trained(home.path(), "run", &["--names", "zurich=Universitätsspital Zürich,bern,basel,chur"])?;
    assert!(home.path().join("run/clients/bern/test.safetensors").is_file());
    let values = told(home.path(), &["evaluate", "run", "--protocol", "nssv"])?;
    assert!(values.contains("\nUniversitätsspital Zürich  ") && values.contains("\nchur "), "{values}");
    told(home.path(), &["evaluate", "run", "--protocol", "nssv", "--report", "r.html", "--csv", "t"])?;
    let page = fs::read_to_string(home.path().join("r.html"))?;
    assert!(page.contains("Universitätsspital Zürich") && !page.contains(">zurich"), "{page}");
    assert!(
        fs::read_to_string(home.path().join("t/values.csv"))?.contains("zurich,Universitätsspital Zürich,")
    );
    let servers = ["--principal", "localhost:7001", "--auxiliary", "localhost:7002", "--generate-keys"];
    let provision = ["provision", "run/federation.toml", "--out", "kits", "--servers-did-not-aggregate"];
    told(home.path(), &[&provision[..], &servers].concat())?;
    assert!(fs::read_to_string(home.path().join("kits/bern/labels.toml"))?.contains("Zürich"));
    let kit = ["preflight", "kits/bern"];
    let asked = String::from_utf8(secsv(home.path(), &kit)?.stderr)?;
    assert!(asked.contains("No client alone reads anything about bern"), "{asked}");
    // Who can do what with whose data, before and after, on the terminal and in files; nobody is called by an id.
    let secsv_run = ["--protocol", "secsv"];
    let plan = told(home.path(), &[&["plan", "run", "--verbose"], &secsv_run[..]].concat())?;
    let run = ["evaluate", "run", "--verbose", "--report", "s.html", "--json", "s.json"];
    let text = told(home.path(), &[&run, &secsv_run[..]].concat())?;
    let page = fs::read_to_string(home.path().join("s.html"))?;
    for told in [&plan, &text, &page] {
        assert!(
            told.contains("of Universitätsspital Zürich") || told.contains("Universitätsspital Zürich, "),
            "{told}"
        );
        assert!(!told.contains("zurich can") && !told.contains("of zurich"), "{told}");
    }
    let document: Value = serde_json::from_slice(&fs::read(home.path().join("s.json"))?)?;
    let row = &document["security"]["exposure"]["rows"][0];
    assert_eq!((&row["who"], &row["label"]), (&"zurich".into(), &"Universitätsspital Zürich".into()));
    let differing = told(home.path(), &["diff", "s.json", "s.json"])?;
    assert!(differing.contains("Universitätsspital Zürich") && !differing.contains("zurich"), "{differing}");
    fs::write(home.path().join("run/labels.toml"), "nobody = \"x\"\n")?;
    let refused = secsv(home.path(), &["evaluate", "run", "--protocol", "nssv"])?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("labels.toml: nobody: expected only what"));
    for (arguments, said) in [
        (&["--names", "a,b,a"][..], "--names: expected every name once"),
        (&["--names", "a,b,c", "--clients", "4"], "--names: expected as many names as --clients says"),
        (&["--names", "a,b/c"], "client id \"b/c\""),
        (&["--names", "a= ,b"], "--names: expected a label in one line"),
    ] {
        let usual = ["train", "--dataset", "breast-cancer", "--out", "other"];
        let refused = secsv(home.path(), &[&usual[..], arguments].concat())?;
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said) && !home.path().join("other").exists(), "{errors}");
    }
    Ok(())
}

/// Documents are what their schema says, key by key.
#[test]
fn documents_fit_their_schema() -> Outcome<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let schema: Value = serde_json::from_slice(&fs::read(root.join("docs/RESULT.schema.json"))?)?;
    let home = tempfile::tempdir()?;
    trained(home.path(), "run", &["--clients", "4"])?;
    for protocol in ["nssv", "blindsv", "secsv"] {
        let text = told(home.path(), &["evaluate", "run", "--protocol", protocol, "--format", "json"])?;
        let document: Value = serde_json::from_str(&text)?;
        let mut wrong = Vec::new();
        check(&schema, &schema, &document, "", &mut wrong);
        assert_eq!(wrong, Vec::<String>::new(), "{protocol}");
        assert_eq!((&document["schema"], &document["version"]), (&"secsv-result".into(), &2.into()));
    }
    let mut wrong = Vec::new();
    check(&schema, &schema, &serde_json::json!({"schema": "other", "skip": 1, "more": 2}), "", &mut wrong);
    for expected in
        [": fsv is missing", "/schema: another constant", "/skip: another type", ": more is not known"]
    {
        assert!(wrong.contains(&expected.to_owned()), "{expected}: {wrong:?}");
    }
    Ok(())
}

/// As much of JSON Schema as the schema uses, without patterns and bounds.
fn check(root: &Value, schema: &Value, found: &Value, place: &str, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        return check(root, &root["$defs"][name.trim_start_matches("#/$defs/")], found, place, wrong);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &&Value| {
            let mut wrong = Vec::new();
            check(root, choice, found, place, &mut wrong);
            wrong.is_empty()
        };
        if choices.iter().filter(fits).count() != 1 {
            wrong.push(format!("{place}: not one of the choices"));
        }
        return;
    }
    if schema.get("const").is_some_and(|constant| constant != found) {
        wrong.push(format!("{place}: another constant"));
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(found)) {
        wrong.push(format!("{place}: none of the words"));
    }
    let is_type = |name: &Value| match name.as_str() {
        Some("object") => found.is_object(),
        Some("array") => found.is_array(),
        Some("string") => found.is_string(),
        Some("integer") => found.is_u64(),
        Some("number") => found.is_number(),
        Some("boolean") => found.is_boolean(),
        Some("null") => found.is_null(),
        _ => false,
    };
    let fits_type = match &schema["type"] {
        Value::Null => true,
        Value::Array(types) => types.iter().any(is_type),
        one => is_type(one),
    };
    if !fits_type {
        wrong.push(format!("{place}: another type"));
    }
    for item in found.as_array().into_iter().flatten() {
        check(root, &schema["items"], item, place, wrong);
    }
    let Some(fields) = found.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            wrong.push(format!("{place}: {name} is missing"));
        }
    }
    for (name, value) in fields {
        let inner = format!("{place}/{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => wrong.push(format!("{place}: {name} is not known")),
            (Value::Null, more) => check(root, more, value, &inner, wrong),
            (known, _) => check(root, known, value, &inner, wrong),
        }
    }
}

//! `secsv reproduce` as a user runs it, on embedded data: what it writes, that it goes on after an
//! interruption and after a cell that cannot be measured, and how it refuses.

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

type Tested<T> = Result<T, Box<dyn Error>>;

fn secsv(directory: &Path, arguments: &[&str]) -> Tested<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_secsv"));
    Ok(command.current_dir(directory).args(["reproduce", "--progress", "json"]).args(arguments).output()?)
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TINY: [&str; 8] = ["--tasks", "breast-cancer", "--rounds", "2", "--scale", "0.6", "--out", "out"];

#[test]
fn a_table_has_every_protocol_and_an_interrupted_run_goes_on() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let arguments = [&["table-eval", "--format", "json"][..], &TINY].concat();
    let output = secsv(place.path(), &arguments)?;
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let rows = document["sections"][0]["tables"][0]["rows"].as_array().ok_or("rows")?;
    let names: Vec<&str> = rows.iter().filter_map(|row| row[1].as_str()).collect();
    let (hesv, others) = names.split_first().ok_or("rows")?;
    assert!(["HESV, Matrix Squaring", "HESV, Matrix Reducing"].contains(hesv), "{hesv}");
    assert_eq!(others, ["SecSV", "SecretSV", "SecSV + SampleSkip", "BlindSV", "NSSV, in the clear"]);
    for (row, name) in [(1, "SecSV"), (4, "BlindSV")] {
        let error = rows[row][13]["ours"].as_f64().ok_or("error")?;
        assert!(error < 0.02, "{name}'s values are NSSV's: {error}");
    }
    let out = place.path().join("out");
    let page = fs::read_to_string(out.join("RESULTS.md"))?;
    assert!(page.contains("0.6 of the samples only") && page.contains("breast cancer (LOGI)"), "{page}");
    assert!(fs::read_to_string(out.join("table-eval.csv"))?.starts_with("Data set (model),Protocol,M,"));

    // One cell is lost and one torn, as by an interruption: these two alone are measured again.
    let mut cells: Vec<_> = fs::read_dir(out.join("cells"))?.flatten().map(|entry| entry.path()).collect();
    cells.sort();
    assert_eq!(cells.len(), 6);
    let kept: Vec<Vec<u8>> = cells.iter().map(fs::read).collect::<Result<_, _>>()?;
    fs::remove_file(&cells[1])?;
    fs::write(&cells[2], &kept[2][..kept[2].len() / 2])?;
    let again = secsv(place.path(), &arguments)?;
    assert_eq!(again.status.code(), Some(0), "{}", error_of(&again));
    let done = error_of(&again).lines().filter(|line| line.contains("\"event\":\"cell\"")).count();
    assert_eq!(done, 2);
    assert_eq!(fs::read(&cells[0])?, kept[0]);
    assert!(fs::read(&cells[1])?.len() > 100 && fs::read(&cells[2])?.len() > 100);
    Ok(())
}

#[test]
fn figures_are_drawn_with_their_fits() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let skipped = secsv(place.path(), &[&["fig-skipped"][..], &TINY].concat())?;
    assert_eq!(skipped.status.code(), Some(0), "{}", error_of(&skipped));
    assert!(String::from_utf8(skipped.stdout)?.contains("| breast cancer (LOGI) |"));
    let samples = secsv(place.path(), &[&["fig-samples"][..], &TINY].concat())?;
    assert_eq!(samples.status.code(), Some(0), "{}", error_of(&samples));
    let out = place.path().join("out");
    for drawing in ["fig-skipped.svg", "fig-samples.svg", "fig-samples-rounds.svg"] {
        let svg = fs::read_to_string(out.join(drawing))?;
        assert!(
            svg.starts_with("<svg xmlns") && svg.contains("breast-cancer") && !svg.contains("NaN"),
            "{svg}"
        );
    }
    let page = fs::read_to_string(out.join("RESULTS.md"))?;
    let parts = ["## Skipped samples", "## Test samples and rounds", "R^2 = ", "(fig-samples.svg)"];
    assert!(parts.iter().all(|part| page.contains(part)), "{page}");
    Ok(())
}

#[test]
fn missing_data_is_a_gap_and_the_rest_goes_on() -> Tested<()> {
    let place = tempfile::tempdir()?;
    let tasks = ["--tasks", "bank,breast-cancer", "--rounds", "1", "--out", "out", "--format", "json"];
    for data in [&[][..], &["--data", "."]] {
        let output = secsv(place.path(), &[&["fig-skipped"][..], &tasks, data].concat())?;
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let told = if data.is_empty() { "--data DIR" } else { "bank-additional-full.csv" };
        assert!(error.contains(told) && error.contains("1 cells could not be measured"), "{error}");
        let document: Value = serde_json::from_slice(&output.stdout)?;
        let rows = &document["sections"][0]["tables"][0]["rows"];
        assert!(rows[0][2]["gap"].as_str().is_some_and(|gap| gap.contains(told)), "{rows}");
        assert!(rows[1][2]["ours"].as_f64() > Some(0.3), "{rows}");
    }
    Ok(())
}

#[test]
fn bad_arguments_exit_2_and_write_nothing() -> Tested<()> {
    let place = tempfile::tempdir()?;
    for (arguments, said) in [
        (&["fig-skipped", "--scale", "0"][..], "--scale"),
        (&["fig-skipped", "--scale", "1.5"], "--scale"),
        (&["fig-skipped", "--scale", "nan"], "--scale"),
        (&["fig-skipped", "--runs", "0"], "--runs"),
        (&["fig-skipped", "--rounds", "0"], "--rounds"),
        (&["fig-skipped", "--limit=-1"], "--limit"),
        (&["fig-skipped", "--data", "nowhere"], "mnist/, bank/"),
        (&["fig-skipped", "--tasks", "iris"], "breast-cancer"),
        (&["table-one"], "table-eval"),
        (&[], "<WHAT>"),
    ] {
        let output = secsv(place.path(), arguments)?;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", error_of(&output));
        assert!(error_of(&output).contains(said), "{arguments:?}: {}", error_of(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(fs::read_dir(place.path())?.count(), 0, "{arguments:?}");
    }
    Ok(())
}

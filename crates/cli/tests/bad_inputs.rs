//! Inputs that nobody should give: each is refused with exit code 2, its file or argument is named, nothing is printed on standard
//! output, and nothing is written.

#![cfg(test)]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn secsv(home: &Path, arguments: &[&str]) -> Outcome<(Option<i32>, String, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_secsv")).args(arguments).current_dir(home).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// Every path below a directory.
fn files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path)?);
        }
        found.push(path);
    }
    found.sort();
    Ok(found)
}

/// Runs a command that must be refused.
fn refused(home: &Path, arguments: &[&str], said: &[&str]) -> Outcome<()> {
    let before = files(home)?;
    let (code, printed, errors) = secsv(home, arguments)?;
    assert_eq!(code, Some(2), "{arguments:?}: {errors}");
    for said in said {
        assert!(errors.contains(said), "{arguments:?}: {said:?} is not in: {errors}");
    }
    assert!(printed.is_empty() && !errors.contains("panicked"), "{arguments:?}: {printed}{errors}");
    assert_eq!(files(home)?, before, "{arguments:?} wrote something");
    Ok(())
}

fn trained(home: &Path) -> Outcome<()> {
    let train = ["train", "--dataset", "breast-cancer", "--clients", "4", "--rounds", "1", "--quiet"];
    let (code, _, errors) = secsv(home, &train)?;
    assert_eq!(code, Some(0), "{errors}");
    Ok(())
}

#[test]
fn tables_that_are_none() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    let rows: String = (0..40).map(|k| format!("{},{},{}\n", k, 2 * k, k % 2)).collect();
    for (name, content, said) in [
        (
            "spaces.csv",
            b"1 2 0\n3 4 1\n5 6 0\n".to_vec(),
            "columns: expected a label and at least one feature",
        ),
        (
            "records.csv",
            br#"[{"a": 1, "y": 0}, {"a": 2, "y": 1}]"#.to_vec(),
            "rows: expected at least one row",
        ),
        ("book.csv", b"PK\x03\x04\x14\x00\x06\x00\xff\xfe".to_vec(), "byte 8: expected UTF-8 text"),
        ("remarks.csv", b"# one\n# two\n".to_vec(), "rows: expected at least one row"),
        (
            "percent.csv",
            format!("a,b,y\n{rows}50%,1,0\n").into_bytes(),
            "line 42, column 1 (a): expected a number, found 50%",
        ),
        (
            "money.csv",
            format!("a,b,y\n1,\u{20ac}5,0\n{rows}").into_bytes(),
            "line 2, column 2 (b): expected a number, found \u{20ac}5",
        ),
        (
            "hexadecimal.csv",
            format!("a,b,y\n0x1F,2,0\n{rows}").into_bytes(),
            "column 1 (a): expected a number, found 0x1F",
        ),
        (
            "counted.csv",
            b"0,1,2,3\n1,5,2,3\n2,4,1,1\n7,1,1,2\n".to_vec(),
            "line 1: expected a header of names, or a sample",
        ),
        ("torn.csv.gz", b"\x1f\x8b\x08\x00torn".to_vec(), "torn.csv.gz"),
        ("own.npz", b"PK\x03\x04 no archive".to_vec(), "own.npz"),
    ] {
        fs::write(home.path().join(name), content)?;
        refused(home.path(), &["train", "--dataset", name, "--out", "run"], &[name, said])?;
    }
    Ok(())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one command after the other, with what it says")]
fn arguments_that_mean_nothing() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    let home = home.path();
    trained(home)?;
    fs::write(home.join("torn.json"), "{\"schema\": \"secsv-result\", \"vers")?;
    fs::write(home.join("taken"), "")?;
    fs::create_dir(home.join("empty"))?;
    let provision = "provision run/federation.toml --out kits --generate-keys --servers-did-not-aggregate \
                     --principal localhost:1 --auxiliary localhost:2";
    for (arguments, said) in [
        ("train --dataset digits --out other --train-limit 0", "train"),
        ("train --dataset digits --out other --participation 1.5", "participation"),
        ("train --dataset digits --out other --participation nan", "participation"),
        (
            "train --dataset digits --out other --free-rider client-1:-1",
            "free rider: expected noise of 0 or more, found -1",
        ),
        ("train --dataset digits --out other --select 0:client-1", "round"),
        ("train --dataset digits --out other --learning-rate 0", "learning rate"),
        ("evaluate run --utility recall=-1", "--utility"),
        ("evaluate run --utility recall=7", "a class from 0 to 1"),
        ("evaluate run --agreement 101", "--agreement: expected a percentage"),
        ("evaluate run --estimator permutation --samples 0", "--samples: expected at least 1"),
        ("evaluate run --estimator permutation --delta 2", "--delta: expected more than 0"),
        ("evaluate run --estimator permutation --max-error nan", "--max-error: expected a positive number"),
        ("evaluate run --json run/clients/r.json", "--json: expected a file that this command does not read"),
        ("evaluate taken", "taken/federation.toml"),
        ("plan run --estimator contribution-index-or", "--estimator: expected one that values each round"),
        ("compare run --protocols secsv,magic", "--protocols"),
        ("report torn.json --out r.html", "torn.json: EOF"),
        ("report run --out r.html", "RESULT: expected a result"),
        ("diff torn.json torn.json", "ONE: expected a result"),
        ("keygen --id north/south --out kit", "--id: expected 1 to 64 characters"),
        ("renew empty --out renewed", "authority"),
        ("preflight taken", "taken"),
        ("preflight empty", "empty/authority.pem: file: expected this file, found none"),
        ("verify empty", "empty"),
        ("principal empty --state state --away-after nan", "--away-after: expected a positive number"),
        ("principal empty --state state --listen nowhere", "--listen: expected ADDRESS:PORT"),
        (
            "client empty --data run --state state",
            "empty/authority.pem: file: expected this file, found none",
        ),
        (
            "client empty --data empty --state state",
            "empty/federation.toml: file: expected this file, found none",
        ),
        ("reproduce table-eval --scale 0", "--scale: expected more than 0"),
        ("reproduce table-eval --limit=-1", "limit"),
        ("reproduce table-eval --data taken", "--data: expected a directory"),
        ("man --out taken", "--out: expected a directory"),
        ("evaluate run --csv taken", "--csv: expected a directory"),
    ] {
        refused(home, &arguments.split(' ').collect::<Vec<_>>(), &[said])?;
    }
    for (more, said) in [
        ("--days 99999", "--days"),
        ("--protocol blindsv --preset compact", "--preset: expected a protocol that encrypts"),
        ("--estimator permutation --epsilon nan", "--epsilon: expected a positive number"),
    ] {
        let arguments = format!("{provision} {more}");
        refused(home, &arguments.split_whitespace().collect::<Vec<_>>(), &[said])?;
    }
    Ok(())
}

#[test]
fn run_directories_with_defects() -> Outcome<()> {
    let home = tempfile::tempdir()?;
    let home = home.path();
    trained(home)?;
    let (spec, test) = (home.join("run/federation.toml"), home.join("run/clients/client-2/test.safetensors"));
    let global = home.join("run/global/round-0001.safetensors");
    let evaluate = ["evaluate", "run", "--json", "r.json", "--report", "r.html"];
    let text = fs::read_to_string(&spec)?;
    let model = "classes = 2\n";
    for (from, to, said) in [
        ("rounds = 1", "rounds = 0".to_owned(), "rounds: expected"),
        (model, "classes = 2\nclass_names = [\"yes\"]\n".to_owned(), "model.class_names: expected"),
        (
            model,
            "classes = 2\nclass_names = [\"yes\", \"\\n\"]\n".to_owned(),
            "model.class_names: expected one line",
        ),
        (model, "classes = 2\nignore = 3\n".to_owned(), "ignore"),
        ("input = [30]", "input = []".to_owned(), "model.input: expected"),
        ("kind = \"linear\"", "kind = \"quadratic\"".to_owned(), "quadratic"),
        ("id = \"client-3\"", "id = \"auxiliary\"".to_owned(), "clients[2].id"),
        ("[[clients]]", "weights = 1\n[[clients]]".to_owned(), "weights"),
        ("name = \"", format!("name = \"{}", "x".repeat(300)), "name: expected one line"),
    ] {
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(&spec, text.replacen(from, &to, 1))?;
        refused(home, &evaluate, &["run/federation.toml", said])?;
    }
    fs::write(&spec, text.replacen("input = [30]", "input = [31]", 1))?;
    refused(
        home,
        &evaluate,
        &["run/initial.safetensors: fc.weight: expected shape [outputs, 31], found [2, 30]"],
    )?;
    fs::write(&spec, &text)?;
    fs::write(home.join("run/labels.toml"), "client-1 = [\"a\", \"b\"]\n")?;
    refused(home, &evaluate, &["run/labels.toml", "client-1"])?;
    fs::write(home.join("run/labels.toml"), "client-1 = \"\"\n")?;
    refused(home, &evaluate, &["run/labels.toml: client-1: expected one line"])?;
    fs::remove_file(home.join("run/labels.toml"))?;
    for (file, said) in
        [(&test, "clients/client-2/test.safetensors"), (&global, "global/round-0001.safetensors")]
    {
        let kept = fs::read(file)?;
        fs::write(file, [&kept[..], b"more"].concat())?;
        refused(home, &evaluate, &[said, "expected a safetensors file"])?;
        fs::remove_file(file)?;
        fs::create_dir(file)?;
        refused(home, &evaluate, &[said])?;
        fs::remove_dir(file)?;
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(file, file)?;
            let (code, printed, errors) = secsv(home, &evaluate)?;
            assert!(matches!(code, Some(1 | 2)) && errors.contains(said) && printed.is_empty(), "{errors}");
            fs::remove_file(file)?;
        }
        fs::write(file, kept)?;
    }
    Ok(())
}

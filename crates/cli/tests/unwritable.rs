//! Outputs that take nothing: full, closed, read-only, devices, and one another.
//!
//! Failures: a hang, a panic, a device or link replaced by a file, a result that is lost without a word.

#![cfg(all(test, target_os = "linux"))]

use std::{
    error::Error,
    fs::{self, File},
    io::{Read as _, Write as _, pipe},
    os::unix::fs::{FileTypeExt as _, symlink},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nothing here takes longer, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn secsv(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_secsv"));
    command.args(arguments).current_dir(directory).env("TMPDIR", directory).stdin(Stdio::null());
    command
}

fn full() -> Outcome<File> {
    Ok(File::options().write(true).open("/dev/full")?)
}

/// How a process ends; one that hangs is killed.
fn end(mut child: Child) -> Outcome<ExitStatus> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if since.elapsed() > PATIENCE {
            child.kill()?;
            return Err("it hangs".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with a trained run in it.
fn trained() -> Outcome<TempDir> {
    let home = tempfile::tempdir()?;
    let model = ["--dataset", "breast-cancer", "--clients", "4", "--rounds", "1"];
    let output = secsv(home.path(), &[&["train"][..], &model].concat()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(home)
}

/// Clients that a JSON result values.
fn valued(file: &Path) -> Outcome<usize> {
    let result: Value = serde_json::from_slice(&fs::read(file)?)?;
    Ok(result["fsv"].as_object().ok_or("values")?.len())
}

/// The results that were kept because they would have been lost.
fn kept(home: &Path) -> Outcome<Vec<usize>> {
    let files: Result<Vec<_>, _> = fs::read_dir(home)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let is_kept = |file: &&std::path::PathBuf| file.to_string_lossy().contains("secsv-result-");
    files?.iter().filter(is_kept).map(|file| valued(file)).collect()
}

#[test]
fn standard_error_that_takes_nothing_ends_nothing() -> Outcome<()> {
    let home = trained()?;
    for protocol in ["nssv", "blindsv", "secsv", "secretsv", "hesv"] {
        for is_closed in [false, true] {
            let file = home.path().join("r.json");
            let arguments = ["evaluate", "run", "--protocol", protocol, "--json", "r.json"];
            let mut command = secsv(home.path(), &arguments);
            command.stdout(Stdio::null());
            let stderr = if is_closed { Stdio::piped() } else { full()?.into() };
            let mut child = command.stderr(stderr).spawn()?;
            drop(child.stderr.take());
            assert_eq!(end(child)?.code(), Some(0), "{protocol}, closed: {is_closed}");
            assert_eq!(valued(&file)?, 4, "{protocol}");
            fs::remove_file(file)?;
        }
    }
    let train = ["train", "--dataset", "digits", "--clients", "4", "--rounds", "1", "--out", "again"];
    let child = secsv(home.path(), &train).stdout(Stdio::null()).stderr(full()?).spawn()?;
    assert_eq!(end(child)?.code(), Some(0));
    Ok(())
}

/// Both outputs in one pipe, of which a reader takes `sips` of 256 bytes, and then leaves. The pipe is full until it has taken some.
fn read_by(home: &Path, protocol: &str, sips: usize) -> Outcome<ExitStatus> {
    let (mut reader, mut writer) = pipe()?;
    // What a pipe holds, less a page, so that this does not block.
    writer.write_all(&vec![b'\n'; (64 << 10) - 4096])?;
    let arguments =
        ["evaluate", "run", "--protocol", protocol, "--json", "r.json", "--progress", "json", "--verbose"];
    let mut command = secsv(home, &arguments);
    let child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // It holds the pipe's other end, too.
    drop(command);
    let slow = std::thread::spawn(move || {
        let mut sip = [0; 256];
        for _ in 0..sips {
            if !reader.read(&mut sip).is_ok_and(|read| read > 0) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let status = end(child)?;
    slow.join().map_err(|_| "the reader")?;
    Ok(status)
}

/// Read slowly, or by `2>&1 | head -1`: every protocol ends, and the file is there.
#[test]
fn a_slow_reader_and_one_that_leaves_keep_nothing_from_being_done() -> Outcome<()> {
    let home = trained()?;
    let file = home.path().join("r.json");
    for protocol in ["nssv", "blindsv", "secsv", "secretsv", "hesv"] {
        for sips in [usize::MAX, 1] {
            assert_eq!(read_by(home.path(), protocol, sips)?.code(), Some(0), "{protocol}, {sips} sips");
            assert_eq!(valued(&file)?, 4, "{protocol}");
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// `2>&1 | head -1`: the reader is gone before the values are there.
#[test]
fn a_reader_that_leaves_early_loses_nothing() -> Outcome<()> {
    let home = trained()?;
    let mut command = secsv(home.path(), &["evaluate", "run", "--protocol", "secsv"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(end(child)?.code(), Some(1));
    assert_eq!(kept(home.path())?, [4]);
    // With a file for the result nobody needs to read anything.
    let mut command = secsv(home.path(), &["evaluate", "run", "--protocol", "secsv", "--json", "r.json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(end(child)?.code(), Some(0));
    assert_eq!((valued(&home.path().join("r.json"))?, kept(home.path())?.len()), (4, 1));
    Ok(())
}

#[test]
fn a_result_that_cannot_be_printed_is_kept() -> Outcome<()> {
    let home = trained()?;
    let output = secsv(home.path(), &["evaluate", "run", "--protocol", "nssv"]).stdout(full()?).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("standard output: cannot be written: No space left"), "{errors}");
    assert!(
        errors.contains("the result is kept in secsv-result-") && !errors.contains("panicked"),
        "{errors}"
    );
    assert_eq!(kept(home.path())?, [4]);
    for command in
        [&["plan", "run", "--protocol", "secretsv"][..], &["demo"], &["train", "--dataset", "digits"]]
    {
        let output =
            secsv(home.path(), &[command, &["--format", "json"]].concat()).stdout(full()?).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_said = errors.contains("error: ") && !errors.contains("panicked");
        assert!(output.status.code() != Some(101) && is_said, "{command:?}: {errors}");
    }
    Ok(())
}

/// `/dev/full` is checked before and refuses what is written afterwards, like a disk that fills up on the way.
#[test]
fn a_file_that_fills_up_keeps_no_values_from_being_printed() -> Outcome<()> {
    let home = trained()?;
    let arguments =
        ["evaluate", "run", "--protocol", "nssv", "--json", "/dev/full", "--report", "report.html"];
    let output = secsv(home.path(), &arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/dev/full: cannot be written: No space left"), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("client-4"));
    assert!(home.path().join("report.html").is_file(), "the report can be written");
    assert_eq!(kept(home.path())?, [4]);
    Ok(())
}

#[test]
fn devices_pipes_and_links_stay_what_they_are() -> Outcome<()> {
    let home = trained()?;
    let at = |name: &str| home.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status()?.success());
    fs::write(at("old.json"), "old")?;
    symlink("old.json", at("link.json"))?;
    symlink("new.html", at("dangling.html"))?;
    let reader = std::thread::spawn({
        let pipe = at("pipe");
        move || fs::read(pipe)
    });
    for (json, report) in [("pipe", "/dev/null"), ("link.json", "dangling.html"), ("/dev/null", "/dev/null")]
    {
        let arguments = ["evaluate", "run", "--protocol", "nssv", "--json", json, "--report", report];
        let child = secsv(home.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        assert_eq!(end(child)?.code(), Some(0), "{json} {report}");
    }
    assert!(fs::metadata(at("pipe"))?.file_type().is_fifo());
    let piped: Value = serde_json::from_slice(&reader.join().map_err(|_| "the reader")??)?;
    assert_eq!(piped["clients"].as_array().map(Vec::len), Some(4));
    assert!(fs::symlink_metadata(at("link.json"))?.is_symlink() && valued(&at("old.json"))? == 4);
    assert!(fs::symlink_metadata(at("dangling.html"))?.is_symlink() && at("new.html").is_file());
    assert!(fs::metadata("/dev/null")?.file_type().is_char_device());
    for name in ["-", "/dev/stdout"] {
        let output =
            secsv(home.path(), &["evaluate", "run", "--protocol", "nssv", "--json", name]).output()?;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout)?;
    }
    assert!(!at("-").exists());
    Ok(())
}

#[test]
fn a_file_is_not_written_over_another_that_matters() -> Outcome<()> {
    let home = trained()?;
    for (files, said) in [
        (&["--json", "x", "--report", "x"][..], "--report: expected a file for each"),
        (&["--json", "x", "--report", "./x"], "--report: expected a file for each"),
        (&["--json", "run/federation.toml"], "which belongs to run/federation.toml"),
        (&["--report", "run/clients/client-1/report.html"], "which belongs to run/clients"),
        (&["--json", "run"], "found a directory"),
    ] {
        let output =
            secsv(home.path(), &[&["evaluate", "run", "--protocol", "nssv"], files].concat()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{files:?}: {errors}");
        assert!(errors.contains(said) && output.stdout.is_empty(), "{files:?}: {errors}");
    }
    assert!(!home.path().join("x").exists());
    let told =
        secsv(home.path(), &["evaluate", "run", "--protocol", "nssv", "--json", "run/r.json"]).output()?;
    assert_eq!(told.status.code(), Some(0), "other files in a run directory are its owner's");
    let same = secsv(home.path(), &["report", "run/r.json", "--out", "run/r.json"]).output()?;
    assert_eq!(same.status.code(), Some(2));
    Ok(())
}

/// Root may write everywhere, but nobody may make files here.
#[test]
fn a_place_where_no_file_can_be_made_is_refused_before_work() -> Outcome<()> {
    let home = trained()?;
    let output =
        secsv(home.path(), &["evaluate", "run", "--protocol", "nssv", "--json", "/proc/x.json"]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("/proc/x.json: cannot be written") && !errors.contains("tested"), "{errors}");
    Ok(())
}

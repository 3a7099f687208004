//! Files that commands write: refused early if they cannot be, there as a whole or not at all. What is no file, such as a
//! device or a pipe, is written through; a link stays a link.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use secsv_federation::{partial_path, write_atomically};

use crate::{failure::BadInput, output};

/// Links that are followed until they are taken for a circle.
const MAX_LINKS: usize = 40;

/// Where bytes go.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// Standard output of this process.
    StandardOutput,
    /// A device, a pipe or a socket: opened and written.
    Stream(PathBuf),
    /// A file, there or not: replaced as a whole.
    File(PathBuf),
}

impl Target {
    /// What a path stands for.
    fn of(path: &Path) -> io::Result<Self> {
        if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name)) {
            return Ok(Self::StandardOutput);
        }
        // The system's names of what a process has open are no places where files can be made.
        let is_open = ["/dev", "/proc"].iter().any(|system| path.starts_with(system));
        match fs::metadata(path) {
            Ok(found) if is_open || !found.is_file() => Ok(Self::Stream(path.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => followed(path).map(Self::File),
        }
    }
}

/// The path behind links; its last part need not be there.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(link) => path = parent(&path).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

/// A file that cannot be written later is better refused before hours of work.
pub fn check(setting: &'static str, path: &Path) -> anyhow::Result<()> {
    let refused = |found: &str| {
        let found = format!("{found}: {}", path.display());
        Err(BadInput::new(setting, "a file in an existing directory", found).into())
    };
    let unwritable = |error: io::Error| anyhow::Error::from(error).context(cannot_be_written(path));
    match Target::of(path).map_err(unwritable)? {
        Target::StandardOutput => Ok(()),
        Target::Stream(path) if path.is_dir() => refused("a directory"),
        // A pipe waits for its reader: not before there is something to read.
        Target::Stream(path) if is_pipe(&path) => Ok(()),
        Target::Stream(path) => open(&path).map(drop).map_err(unwritable),
        Target::File(path) if !parent(&path).is_dir() => refused("one in no directory"),
        Target::File(path) => {
            let partial = partial_path(&path);
            File::create_new(&partial).and_then(|_| fs::remove_file(&partial)).map_err(unwritable)
        }
    }
}

/// Refuses a file that a command reads: one of the inputs, or one in a directory of them.
pub fn check_apart(setting: &'static str, path: &Path, inputs: &[&Path]) -> Result<(), BadInput> {
    let Some(place) = place(path) else { return Ok(()) };
    let is_input = |input: &&&Path| fs::canonicalize(input).is_ok_and(|input| place.starts_with(input));
    match inputs.iter().find(is_input) {
        None => Ok(()),
        Some(input) => {
            let found = format!("{}, which belongs to {}", path.display(), input.display());
            Err(BadInput::new(setting, "a file that this command does not read", found))
        }
    }
}

/// Refuses two files that are one.
pub fn check_different(setting: &'static str, one: &Path, other: &Path) -> Result<(), BadInput> {
    let are_one = match (place(one), place(other)) {
        (Some(place), Some(another)) => place == another,
        _ => is_standard_output(one) && is_standard_output(other),
    };
    if are_one {
        return Err(BadInput::new(setting, "a file for each", format!("{} twice", one.display())));
    }
    Ok(())
}

/// Whether a path stands for standard output.
pub fn is_standard_output(path: &Path) -> bool {
    matches!(Target::of(path), Ok(Target::StandardOutput))
}

/// The one name of a file, whatever it is called; none for what is no file.
fn place(path: &Path) -> Option<PathBuf> {
    let Ok(Target::File(path)) = Target::of(path) else { return None };
    Some(fs::canonicalize(parent(&path)).ok()?.join(path.file_name()?))
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

fn open(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path)
}

fn cannot_be_written(path: &Path) -> String {
    format!("{}: cannot be written", path.display())
}

/// Writes a file that is there as a whole or not at all, or to what is no file.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = Target::of(path).and_then(|target| match target {
        Target::StandardOutput => output::print_bytes(bytes).map_err(|error| error.source),
        Target::Stream(path) => open(&path)?.write_all(bytes),
        Target::File(path) => write_atomically(&path, bytes),
    });
    written.with_context(|| cannot_be_written(path))
}

/// Keeps a result that could not be written where it should be: here, or where temporary files are. Says where.
pub fn keep(bytes: &[u8]) -> Option<PathBuf> {
    let name = format!("secsv-result-{}.json", std::process::id());
    let places = [PathBuf::from(&name), std::env::temp_dir().join(&name)];
    places.into_iter().find(|place| write_atomically(place, bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_of_one_file_are_one() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("a.json"), directory.path().join("link"));
        assert!(check_different("--report", &file, &directory.path().join("./a.json")).is_err());
        assert!(check_different("--report", &file, &directory.path().join("b.html")).is_ok());
        assert!(check_different("--report", "/dev/null".as_ref(), "/dev/null".as_ref()).is_ok());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("a.json", &link).unwrap();
            assert!(check_different("--report", &file, &link).is_err());
            write(&link, b"1").unwrap();
            assert!(link.is_symlink() && fs::read(&file).unwrap() == b"1");
        }
    }

    #[test]
    fn what_is_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        fs::create_dir_all(run.join("clients")).unwrap();
        let inputs = [&*run.join("clients"), &*run.join("federation.toml")];
        fs::write(inputs[1], "").unwrap();
        for file in ["run/federation.toml", "run/clients/x.json", "run/clients/../federation.toml"] {
            assert!(check_apart("--json", &directory.path().join(file), &inputs).is_err(), "{file}");
        }
        assert!(check_apart("--json", &run.join("result.json"), &inputs).is_ok());
    }

    #[test]
    fn a_check_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        check("--json", &directory.path().join("a.json")).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(check("--json", directory.path()).is_err());
    }
}

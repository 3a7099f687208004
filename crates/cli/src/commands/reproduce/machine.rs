//! The machine and the build that figures come from.

use std::{
    fs,
    hash::{DefaultHasher, Hasher as _},
};

use serde::{Deserialize, Serialize};

/// The machine and build that figures depend on besides their settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name, where the system tells.
    pub processor: String,
    /// Threads that run at once.
    pub threads: usize,
    /// Memory in MiB, where the system tells.
    pub memory_mib: Option<u64>,
    /// Operating system and architecture.
    pub system: String,
    /// This program's version and commit, and a digest of its file: another build gives other times.
    pub build: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let line = |file: &str, key: &str| {
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = line("/proc/meminfo", "MemTotal");
        let memory_kib: Option<u64> = memory.and_then(|text| text.split(' ').next()?.parse().ok());
        Self {
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned()),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib.map(|kib| kib / 1024),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            build: format!("secsv {}, file {:016x}", crate::VERSION, digest()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { processor, threads, system, build, .. } = self;
        write!(f, "{processor}, {threads} threads")?;
        if let Some(mib) = self.memory_mib {
            write!(f, ", {:.0} GiB", mib as f64 / 1024.0)?;
        }
        write!(f, ", {system}; {build}")
    }
}

/// Tells builds apart; nothing secret or hostile is hashed.
fn digest() -> u64 {
    let mut hasher = DefaultHasher::new();
    let program = std::env::current_exe().and_then(fs::read);
    program.map_or(0, |bytes| {
        hasher.write(&bytes);
        hasher.finish()
    })
}

/// Forgets the process's high-water mark and what earlier measurements left, so that each measurement has its
/// own. Where the system cannot, marks add up.
pub fn reset_peak_memory() {
    crate::purge_memory();
    // Only a finer account is lost if the system has no such file.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

//! What was measured of this machine, kept where caches are. Another build, processor or number of threads has other costs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use secsv_federation::write_atomically;
use serde::{Serialize, de::DeserializeOwned};

use crate::VERSION;

/// The file of measurements with this signature; none where there is no place for caches, or nobody knows the build.
pub fn place(signature: &str) -> Option<PathBuf> {
    let caches = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let caches = caches.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let key = format!("{VERSION}\n{}\n{threads}\n{signature}", processor()?);
    let digest = blake3::hash(key.as_bytes()).to_hex();
    Some(caches.join("secsv").join(format!("unit-costs-{}.json", &digest[..32])))
}

/// The processor's name, as the system tells it.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What is kept there, if it can be read.
pub fn read<T: DeserializeOwned>(place: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(place).ok()?).ok()
}

/// Keeps it. Where that is not possible it is measured again the next time.
pub fn keep<T: Serialize>(place: &Path, costs: &T) {
    let Some(directory) = place.parent() else { return };
    if fs::create_dir_all(directory).is_ok()
        && let Ok(bytes) = serde_json::to_vec(costs)
    {
        let _ = write_atomically(place, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_and_another_shape_has_another_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secsv/costs.json");
        assert_eq!(read::<Vec<f64>>(&file), None);
        keep(&file, &vec![0.5, 1e-9]);
        assert_eq!(read(&file), Some(vec![0.5, 1e-9]));
        fs::write(&file, "half a li").unwrap();
        assert_eq!(read::<Vec<f64>>(&file), None, "measured again");
        if let (Some(one), Some(other)) = (place("one"), place("other")) {
            assert_ne!(one, other);
            assert_eq!(Some(one), place("one"));
        }
    }
}

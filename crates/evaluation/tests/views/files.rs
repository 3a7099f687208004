//! Files say what the views say, and only their owner can read them.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use npyz::NpyFile;
use secsv_evaluation::{Error, views::ViewsError};
use secsv_federation::skip::SkipMode;
use secsv_protocol::{decryptors::Protocol, views::Numbers};
use serde_json::Value;
use zip::ZipArchive;

use crate::federations::{Case, Shape, numbers};

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn array(path: &Path, name: &str) -> Vec<u8> {
    let mut archive = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn files_are_the_views() {
    let case = Case::new(Shape::Logistic, &[6, 1, 0, 4, 3], 3);
    let seen = case.record(Protocol::SecSv, SkipMode::Off);
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("views");
    seen.views.write(&directory).unwrap();
    let index = json(&directory.join("index.json"));
    assert_eq!(index["protocol"], "secsv");
    assert_eq!(index["clients"].as_array().unwrap().len(), 5);
    assert_eq!(index["modulus"], seen.session.modulus().to_string());
    for party in seen.views.parties() {
        let below = directory.join(&party.directory);
        let index = json(&below.join("index.json"));
        assert_eq!(index["party"], party.name);
        assert_eq!(index["messages"].as_array().unwrap().len(), party.view.messages.len());
        let entries = index["arrays"].as_array().unwrap();
        assert_eq!(entries.len(), party.view.arrays.len());
        // Some of each: opening an archive for every array takes long.
        for (entry, opened) in entries.iter().zip(&party.view.arrays).step_by(17) {
            let text = |key: &str| entry[key].as_str().unwrap();
            let bytes = array(&below.join(text("file")), text("array"));
            let file = NpyFile::new(&bytes[..]).unwrap();
            assert_eq!(file.shape(), [opened.shape.0 as u64, opened.shape.1 as u64]);
            let written: Vec<i64> = match opened.numbers.expose() {
                Numbers::Signed(_) => file.into_vec::<i64>().unwrap(),
                Numbers::Ring(_) => file.into_vec::<u64>().unwrap().into_iter().map(|x| x as i64).collect(),
                Numbers::Bytes(_) => file.into_vec::<u8>().unwrap().into_iter().map(i64::from).collect(),
                Numbers::Words(_) => file.into_vec::<u16>().unwrap().into_iter().map(i64::from).collect(),
            };
            assert_eq!(written, numbers(opened));
            assert_eq!(entry["scale"].as_f64(), opened.scale);
            let ranges = entry["samples"].as_array().unwrap().iter();
            let samples: Vec<usize> = ranges
                .flat_map(|range| {
                    let bound = |i: usize| range[i].as_u64().unwrap() as usize;
                    bound(0)..bound(1)
                })
                .collect();
            assert_eq!(samples, opened.about.samples);
        }
    }
    let known = directory.join("clients/site-3/known.npz");
    let x = array(&known, "x");
    let x: Vec<f32> = NpyFile::new(&x[..]).unwrap().into_vec().unwrap();
    assert_eq!(x, case.inputs[3].test_set.features());
    let weight = array(&known, "local/round-0002/a.weight");
    let weight: Vec<f32> = NpyFile::new(&weight[..]).unwrap().into_vec().unwrap();
    let local = &case.inputs[3].local[&secsv_federation::RoundId(2)];
    assert_eq!(weight, local.get("a.weight").unwrap().singles().into_owned());
    assert!(!directory.join("principal/known.npz").exists());
    owner_alone(&directory);
    let again = seen.views.write(&directory);
    assert!(matches!(again, Err(Error::Views(ViewsError::NotEmpty { .. }))), "a second time");
}

/// Nobody else may look.
fn owner_alone(directory: &Path) {
    #[cfg(unix)]
    for entry in fs::read_dir(directory).unwrap() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        if path.is_dir() {
            owner_alone(&path);
        }
    }
}

#[test]
fn what_was_not_recorded_cannot_be_read() {
    let case = Case::new(Shape::ThreeClasses, &[2, 1, 3, 2], 1);
    let settings = case.settings(Protocol::SecretSv, SkipMode::Off);
    let seed = secsv_protocol::Seed::from_bytes([1; 32]);
    let honest = Box::new(secsv_evaluation::in_process::Honest);
    let evaluator = secsv_evaluation::SecureEvaluator::new(&case.run, settings, None, &seed, honest).unwrap();
    let views = evaluator.views(case.run.spec());
    assert!(matches!(views, Err(Error::Views(ViewsError::NotRecorded))));
}

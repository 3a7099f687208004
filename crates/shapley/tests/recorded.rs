//! Values of recorded utility tables equal those of pyDVL and shapiq (bench/peers/record_values.py, versions
//! inside each file).

use std::{collections::BTreeMap, error::Error, fs, path::Path};

use secsv_federation::Coalition;
use secsv_shapley::{EstimatorSettings, Method, UtilityTable};

#[derive(serde::Deserialize)]
struct Record {
    versions: BTreeMap<String, String>,
    utilities: Vec<f64>,
    pydvl: BTreeMap<String, Vec<f64>>,
    shapiq: BTreeMap<String, Vec<f64>>,
}

fn records() -> Result<Vec<(String, Record)>, Box<dyn Error>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        records.push((name, serde_json::from_slice(&fs::read(path)?)?));
    }
    Ok(records)
}

/// "beta-shapley 16 1" is a method and its settings. KernelSHAP's default budget covers every coalition here.
fn ours(name: &str, utilities: &[f64]) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut words = name.split(' ');
    let method: Method = words.next().ok_or("a name")?.parse()?;
    let mut settings = EstimatorSettings::default();
    if let (Some(alpha), Some(beta)) = (words.next(), words.next()) {
        settings.beta = (alpha.parse()?, beta.parse()?);
    }
    let clients = utilities.len().ilog2() as usize;
    let table = UtilityTable::from_fn(Coalition::first(clients), |s| utilities[s.bits() as usize])?;
    let values = method.values_of(&table, &settings)?;
    assert!(values.is_exact(), "{name}");
    Ok(values.as_slice().to_vec())
}

#[test]
fn values_equal_the_peers() {
    let records = records().unwrap();
    assert!(records.len() >= 12);
    let mut compared = 0;
    for (file, record) in records {
        assert!(record.versions.contains_key("pyDVL") && record.versions.contains_key("shapiq"));
        for (peer, (name, expected)) in
            record.pydvl.iter().map(|r| ("pydvl", r)).chain(record.shapiq.iter().map(|r| ("shapiq", r)))
        {
            // Their least core is an interior-point solution like ours, their KernelSHAP gives the ends a
            // large finite weight instead of a constraint.
            let tolerance = match name.as_str() {
                "least-core" => 1e-5,
                "kernelshap" => 1e-6,
                _ => 1e-12,
            };
            let found = ours(name, &record.utilities).unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < tolerance,
                    "{file}, {peer} {name}: {found} against {expected}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared >= 12 * 9);
}

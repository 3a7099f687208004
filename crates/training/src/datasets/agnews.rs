//! AGNEWS: news in four classes, each text the sum of its words' 300-dimensional word2vec vectors, stored as
//! one signed byte per feature and a scale per column.

use std::path::Path;

use super::Dataset;
use super::files::PublicFiles;
use crate::{Samples, Standardiser, TrainingError};

const FILES: PublicFiles = PublicFiles {
    dataset: "agnews",
    original: "AG's corpus of news articles as prepared by Zhang, Zhao and LeCun (2015), on GitHub in \
               mhjabreel/CharCnn_Keras; docs/DATASETS.md says how its texts become the files train_w2v300.i8, \
               test_w2v300.i8, train_labels.u8, test_labels.u8 and w2v300_scale.txt",
};

const FEATURES: usize = 300;
const CLASSES: usize = 4;

pub(super) fn load(data: Option<&Path>) -> Result<Dataset, TrainingError> {
    let scale = scales(data)?;
    let (train, test) = (part(data, "train", &scale)?, part(data, "test", &scale)?);
    Ok(Dataset::new("agnews", CLASSES, train, test).standardised(Standardiser::per_column))
}

fn scales(data: Option<&Path>) -> Result<Vec<f32>, TrainingError> {
    let content = FILES.read(data, "w2v300_scale.txt")?;
    let mut scale = Vec::with_capacity(FEATURES);
    for (line, text) in content.text()?.lines().enumerate() {
        match text.trim().parse::<f32>() {
            Ok(number) if number.is_finite() && number > 0.0 => scale.push(number),
            _ => return Err(content.wrong(format!("line {}", line + 1), "a positive number", text)),
        }
    }
    if scale.len() == FEATURES {
        Ok(scale)
    } else {
        Err(content.wrong("lines", FEATURES.to_string(), scale.len().to_string()))
    }
}

fn part(data: Option<&Path>, name: &str, scale: &[f32]) -> Result<Samples, TrainingError> {
    let features = FILES.read(data, &format!("{name}_w2v300.i8"))?;
    let labels = FILES.read(data, &format!("{name}_labels.u8"))?;
    if features.bytes.len() != labels.bytes.len() * FEATURES {
        let expected =
            format!("{} bytes ({} labels x {FEATURES})", labels.bytes.len() * FEATURES, labels.bytes.len());
        return Err(features.wrong("length", expected, features.bytes.len().to_string()));
    }
    if let Some(row) = labels.bytes.iter().position(|&label| usize::from(label) >= CLASSES) {
        return Err(labels.wrong(format!("byte {row}"), "a label below 4", labels.bytes[row].to_string()));
    }
    let columns = scale.iter().cycle();
    let numbers =
        features.bytes.iter().zip(columns).map(|(&byte, scale)| f32::from(byte.cast_signed()) * scale);
    let classes = labels.bytes.iter().map(|&label| u32::from(label)).collect();
    Ok(Samples::new(vec![FEATURES], numbers.collect(), classes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(train_bytes: usize, label: u8) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
        write("w2v300_scale.txt", "0.5\n".repeat(FEATURES).as_bytes());
        write("train_w2v300.i8", &(0..train_bytes).map(|i| (i / FEATURES) as u8 * 254).collect::<Vec<_>>());
        write("train_labels.u8", &[0, label]);
        write("test_w2v300.i8", &[4; FEATURES]);
        write("test_labels.u8", &[3]);
        directory
    }

    #[test]
    fn bytes_are_signed_scaled_and_standardised_with_training_statistics() {
        let files = directory(2 * FEATURES, 1);
        let dataset = load(Some(files.path())).unwrap();
        // Training column: 0 and -2 (byte 254) times 0.5, mean -0.5, deviation 0.5; the test value is 2.
        assert_eq!((dataset.train.row(0)[0], dataset.train.row(1)[299]), (1.0, -1.0));
        assert_eq!((dataset.test.row(0)[7], dataset.test.labels()), (5.0, [3].as_slice()));
    }

    #[test]
    fn lengths_and_labels_are_checked() {
        assert!(load(Some(directory(599, 1).path())).unwrap_err().to_string().contains("600 bytes"));
        assert!(load(Some(directory(600, 4).path())).unwrap_err().to_string().contains("below 4"));
    }
}

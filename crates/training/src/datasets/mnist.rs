//! MNIST: 28 x 28 grey images of handwritten digits in IDX files.

use std::path::Path;

use super::Dataset;
use super::files::{Content, PublicFiles};
use crate::{Samples, TrainingError};

const FILES: PublicFiles = PublicFiles {
    dataset: "mnist",
    original: "the MNIST database of handwritten digits (LeCun, Cortes, Burges), four IDX files named \
               train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte",
};

/// Mean and deviation of MNIST's pixels in 0..1, as every MNIST tutorial and the paper's authors use them.
const PIXEL_MEAN: f32 = 0.1307;
const PIXEL_DEVIATION: f32 = 0.3081;
const CLASSES: usize = 10;

pub(super) fn load(data: Option<&Path>) -> Result<Dataset, TrainingError> {
    let part = |name: &str| -> Result<Samples, TrainingError> {
        let images = FILES.read(data, &format!("{name}-images-idx3-ubyte"))?;
        let labels = FILES.read(data, &format!("{name}-labels-idx1-ubyte"))?;
        images_and_labels(&images, &labels)
    };
    Ok(Dataset::new("mnist", CLASSES, part("train")?, part("t10k")?))
}

fn images_and_labels(images: &Content, labels: &Content) -> Result<Samples, TrainingError> {
    let (sizes, pixels) = idx(images, 3)?;
    let (counts, classes) = idx(labels, 1)?;
    if counts[0] != sizes[0] {
        return Err(labels.wrong("count", format!("{} labels", sizes[0]), counts[0].to_string()));
    }
    if let Some(row) = classes.iter().position(|&class| usize::from(class) >= CLASSES) {
        return Err(labels.wrong(format!("label {row}"), "a digit below 10", classes[row].to_string()));
    }
    let features =
        pixels.iter().map(|&pixel| (f32::from(pixel) / 255.0 - PIXEL_MEAN) / PIXEL_DEVIATION).collect();
    Ok(Samples::new(
        vec![1, sizes[1], sizes[2]],
        features,
        classes.iter().map(|&class| u32::from(class)).collect(),
    ))
}

/// An IDX file of unsigned bytes: magic 0x08 and the rank, big-endian sizes, then the bytes.
fn idx(content: &Content, rank: usize) -> Result<(Vec<usize>, &[u8]), TrainingError> {
    let word = |position: usize| -> Result<usize, TrainingError> {
        let bytes = content.bytes.get(4 * position..4 * position + 4);
        let bytes: Option<[u8; 4]> = bytes.and_then(|bytes| bytes.try_into().ok());
        match bytes {
            Some(bytes) => Ok(u32::from_be_bytes(bytes) as usize),
            None => Err(content.wrong("header", "an IDX header", format!("{} bytes", content.bytes.len()))),
        }
    };
    let magic = word(0)?;
    if magic != 0x0800 + rank {
        return Err(content.wrong("magic number", (0x0800 + rank).to_string(), magic.to_string()));
    }
    let sizes = (1..=rank).map(word).collect::<Result<Vec<_>, _>>()?;
    let body = &content.bytes[4 * (rank + 1)..];
    let expected = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if expected != Some(body.len()) {
        return Err(content.wrong(
            "length",
            format!("{sizes:?} bytes after the header"),
            body.len().to_string(),
        ));
    }
    Ok((sizes, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> Content {
        Content { file: "tiny".into(), bytes: bytes.to_vec() }
    }

    #[test]
    fn tiny_files_give_normalised_pixels() {
        let images = file(&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255]);
        let labels = file(&[0, 0, 8, 1, 0, 0, 0, 1, 7]);
        let samples = images_and_labels(&images, &labels).unwrap();
        assert_eq!((samples.shape(), samples.labels()), ([1, 1, 2].as_slice(), [7].as_slice()));
        assert!((samples.row(0)[0] + 0.424_213).abs() < 1e-5 && (samples.row(0)[1] - 2.821_487).abs() < 1e-5);
    }

    #[test]
    fn broken_files_are_refused() {
        let labels = [0, 0, 8, 1, 0, 0, 0, 1, 7];
        assert!(idx(&file(&labels[..7]), 1).is_err(), "cut header");
        assert!(idx(&file(&labels[..8]), 1).is_err(), "no body");
        assert!(idx(&file(&labels), 3).is_err(), "labels are no images");
        assert!(
            idx(&file(&[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]), 3).is_err()
        );
        let images = file(&[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
        let ten = file(&[0, 0, 8, 1, 0, 0, 0, 1, 10]);
        assert!(images_and_labels(&images, &ten).unwrap_err().to_string().contains("below 10"));
    }
}

//! Any `.npz` archive of numbers `x` and whole-number labels `y`.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::path::Path;

use npyz::{DType, NpyFile, Order, TypeChar};
use zip::ZipArchive;

use super::files::Content;
use crate::{Samples, TrainingError};

/// The largest label: doubles hold every whole number up to it.
const MAX_LABEL: f64 = 9_007_199_254_740_992.0;

/// Samples `x` of shape `[m, ...]` in any number type, and as many labels `y`, whole numbers; and what the classes
/// were called. Labels that do not occur are no classes.
pub(crate) fn read(file: &Path) -> Result<(Samples, Vec<String>), TrainingError> {
    let bytes =
        std::fs::read(file).map_err(|source| TrainingError::Read { file: file.to_path_buf(), source })?;
    let content = Content { file: file.to_path_buf(), bytes };
    let mut archive = ZipArchive::new(Cursor::new(content.bytes.as_slice()))
        .map_err(|error| content.wrong("archive", "a .npz archive", error.to_string()))?;
    expect_arrays(&content, &archive)?;
    let (shape, features) = array(&content, &mut archive, "x")?;
    let (label_shape, labels) = array(&content, &mut archive, "y")?;
    let unlike = || {
        let found = format!("shapes {shape:?} and {label_shape:?}");
        content.wrong("y", "one label per sample of x", found)
    };
    let (Some((&count, sample)), [labelled]) = (shape.split_first(), label_shape.as_slice()) else {
        return Err(unlike());
    };
    if count == 0 {
        return Err(content.wrong("x", "at least one sample", format!("shape {shape:?}")));
    }
    if count != *labelled || sample.is_empty() || sample.contains(&0) {
        return Err(unlike());
    }
    let is_label = |label: f64| label.fract() == 0.0 && label.abs() <= MAX_LABEL;
    if let Some(row) = labels.iter().position(|&label| !is_label(label)) {
        let (place, found) = (format!("y[{row}]"), format!("{}", labels[row]));
        return Err(content.wrong(place, "a whole number from -2^53 to 2^53", found));
    }
    if let Some(place) = features.iter().position(|value| !(*value as f32).is_finite()) {
        let found = features[place].to_string();
        return Err(content.wrong(format!("x, element {place}"), "a finite number", found));
    }
    let labels: Vec<i64> = labels.iter().map(|&label| label as i64).collect();
    let classes: Vec<i64> = labels.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    if classes.len() < 2 {
        return Err(content.wrong("y", "at least two classes", classes.len().to_string()));
    }
    let labels = labels.iter().map(|label| classes.binary_search(label).unwrap_or_default() as u32).collect();
    let names = classes.iter().map(ToString::to_string).collect();
    Ok((Samples::new(sample.to_vec(), features.iter().map(|&x| x as f32).collect(), labels), names))
}

/// Both arrays have to be there by these names; what is there is told.
fn expect_arrays(content: &Content, archive: &ZipArchive<Cursor<&[u8]>>) -> Result<(), TrainingError> {
    let names: Result<Vec<_>, _> = archive.file_names().collect();
    let names = names.map_err(|error| content.wrong("archive", "a .npz archive", error.to_string()))?;
    let mut found: Vec<_> = names.iter().map(|name| name.strip_suffix(".npy").unwrap_or(name)).collect();
    found.sort_unstable();
    match ["x", "y"].into_iter().find(|wanted| !found.contains(wanted)) {
        None => Ok(()),
        Some(lacking) => {
            let expected = format!("arrays named x [m, ...] and y [m], but there is no {lacking}");
            let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
            Err(content.wrong("archive", expected, found))
        }
    }
}

/// One array, row by row, in double precision (exact for every type that labels or features come in).
fn array(
    content: &Content,
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    name: &str,
) -> Result<(Vec<usize>, Vec<f64>), TrainingError> {
    let malformed = |found: String| content.wrong(name, "a NumPy array of numbers", found);
    let mut entry = archive.by_name(&format!("{name}.npy")).map_err(|error| malformed(error.to_string()))?;
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| malformed(error.to_string()))?;
    let parsed = NpyFile::new(Cursor::new(&bytes)).map_err(|error| malformed(error.to_string()))?;
    let shape: Vec<usize> = parsed.shape().iter().map(|&size| size as usize).collect();
    let (order, dtype) = (parsed.order(), parsed.dtype());
    let DType::Plain(kind) = &dtype else { return Err(malformed(dtype.descr())) };
    macro_rules! widened {
        ($number:ty) => {
            parsed
                .data::<$number>()
                .map_err(|error| malformed(error.to_string()))?
                .map(|value| value.map(|number| number as f64))
                .collect::<Result<Vec<f64>, _>>()
        };
    }
    let values = match (kind.type_char(), kind.size_field()) {
        (TypeChar::Float, 4) => widened!(f32),
        (TypeChar::Float, 8) => widened!(f64),
        (TypeChar::Int, 1) => widened!(i8),
        (TypeChar::Int, 2) => widened!(i16),
        (TypeChar::Int, 4) => widened!(i32),
        (TypeChar::Int, 8) => widened!(i64),
        (TypeChar::Uint, 1) => widened!(u8),
        (TypeChar::Uint, 2) => widened!(u16),
        (TypeChar::Uint, 4) => widened!(u32),
        (TypeChar::Uint, 8) => widened!(u64),
        _ => return Err(malformed(dtype.descr())),
    };
    let values = values.map_err(|error| malformed(error.to_string()))?;
    if values.len() != shape.iter().product::<usize>() {
        return Err(malformed(format!("{} values for shape {shape:?}", values.len())));
    }
    Ok(match order {
        Order::C => (shape, values),
        Order::Fortran => {
            let rows = row_by_row(&shape, &values);
            (shape, rows)
        }
    })
}

/// Row by row what NumPy stored column by column (as pandas often hands its tables over).
fn row_by_row(shape: &[usize], columns: &[f64]) -> Vec<f64> {
    let position = |mut row_order: usize| {
        let mut indices = vec![0; shape.len()];
        for (index, &size) in indices.iter_mut().zip(shape).rev() {
            (*index, row_order) = (row_order % size, row_order / size);
        }
        indices.iter().zip(shape).rev().fold(0, |place, (&index, &size)| place * size + index)
    };
    (0..columns.len()).map(|element| columns[position(element)]).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn load(x: Vec<u8>, y: Vec<u8>) -> Result<(Samples, Vec<String>), TrainingError> {
        load_named([("x.npy", x), ("y.npy", y)])
    }

    fn load_named(arrays: [(&str, Vec<u8>); 2]) -> Result<(Samples, Vec<String>), TrainingError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.npz");
        let mut archive = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for (name, bytes) in arrays {
            let packed =
                zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
            archive.start_file(name, packed).unwrap();
            archive.write_all(&bytes).unwrap();
        }
        archive.finish().unwrap();
        read(&path)
    }

    #[test]
    fn types_and_orders_read_alike() {
        let labels = || npy("<i8", false, "(2,)", &[1i64, 0].map(i64::to_le_bytes).concat());
        let expected = Samples::new(vec![3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![1, 0]);
        let rows = npy("|u1", false, "(2, 3)", &[1, 2, 3, 4, 5, 6]);
        assert_eq!(load(rows, labels()).unwrap(), (expected.clone(), vec!["0".to_owned(), "1".to_owned()]));
        let columns = [1.0f64, 4.0, 2.0, 5.0, 3.0, 6.0].map(f64::to_le_bytes).concat();
        assert_eq!(load(npy("<f8", true, "(2, 3)", &columns), labels()).unwrap().0, expected);
    }

    #[test]
    fn labels_that_do_not_occur_are_no_classes() {
        let x = npy("|u1", false, "(3, 1)", &[1, 2, 3]);
        let (samples, names) = load(x, npy("|u1", false, "(3,)", &[20, 0, 10])).unwrap();
        assert_eq!(
            (samples.labels(), &names[..]),
            (&[2, 0, 1][..], &["0", "10", "20"].map(str::to_owned)[..])
        );
        let x = npy("|u1", false, "(2, 1)", &[1, 2]);
        let labels = npy("|i1", false, "(2,)", &[1, 0xff]);
        assert_eq!(load(x, labels).unwrap().1, ["-1", "1"], "as in a CSV");
    }

    #[test]
    fn arrays_of_other_names_are_told() {
        let array = || npy("|u1", false, "(2, 1)", &[1, 2]);
        let message = load_named([("X.npy", array()), ("y.npy", array())]).unwrap_err().to_string();
        assert!(message.contains("but there is no x, found X, y"), "{message}");
    }

    #[test]
    fn mistakes_name_the_array() {
        let x = || npy("|u1", false, "(2, 1)", &[1, 2]);
        let y = |descr: &str, data: &[u8]| npy(descr, false, "(2,)", data);
        let message = |x, y| load(x, y).unwrap_err().to_string();
        assert!(message(x(), npy("|u1", false, "(3,)", &[0, 1, 1])).contains("one label per sample"));
        assert!(message(x(), y("<f4", &[0.5f32, 1.0].map(f32::to_le_bytes).concat())).contains("y[0]"));
        assert!(message(x(), y("|u1", &[0])).contains("y: expected"), "cut short");
        assert!(message(x(), y("|u1", &[0, 0])).contains("two classes"));
        let far = y("<i8", &[1i64 << 62, 0].map(i64::to_le_bytes).concat());
        assert!(message(x(), far).contains("y[0]: expected a whole number from -2^53 to 2^53"));
        let none = npy("|u1", false, "(0, 4)", &[]);
        let without = message(none, npy("|u1", false, "(0,)", &[]));
        assert!(without.contains("x: expected at least one sample, found shape [0, 4]"), "{without}");
        let nan = npy("<f4", false, "(2, 1)", &[f32::NAN, 1.0].map(f32::to_le_bytes).concat());
        assert!(message(nan, y("|u1", &[0, 1])).contains("element 0"));
    }
}

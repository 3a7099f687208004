//! NumPy archives with a test set: arrays `x` and `y`.

use std::{
    io::{self, BufReader, Cursor, Read},
    path::Path,
};

use npyz::{DType, NpyFile, Order, TypeChar};
use zip::ZipArchive;

use super::{
    check_label_shape,
    elements::{exact_singles, whole_numbers},
};
use crate::{Defect, Error, TestSet, weights::element_count};

/// NumPy itself refuses longer headers by default.
const MAX_HEADER_BYTES: usize = 10_000;

/// Reads `x` and `y`; `x` may have any shape `[m, ...]`. Doubles are rounded to the nearest single-precision
/// number.
pub(crate) fn read_npz(path: &Path) -> Result<TestSet, Error> {
    let file = super::open(path)?;
    let size = file.metadata().map_err(|source| Error::reading(path, source))?.len();
    let mut archive = ZipArchive::new(BufReader::new(file))
        .map_err(|e| Error::defect(path, "archive", Defect::NotNpz { found: e.to_string() }))?;
    expect_names(path, &archive)?;
    let x = Array::read(path, size, &mut archive, "x")?;
    let y = Array::read(path, size, &mut archive, "y")?;
    let (shape, features) = x.features(path)?;
    let (label_shape, labels) = y.labels(path)?;
    let Some(&samples) = shape.first() else {
        return Err(Error::defect(
            path,
            "x",
            Defect::Shape { expected: "[m, ...]".to_owned(), found: shape },
        ));
    };
    check_label_shape(path, samples, &label_shape)?;
    TestSet::new(shape[1..].to_vec(), features, labels).map_err(|d| Error::defect(path, "x", d))
}

fn expect_names<R: Read + io::Seek>(path: &Path, archive: &ZipArchive<R>) -> Result<(), Error> {
    let mut found = Vec::new();
    for name in archive.file_names() {
        let name =
            name.map_err(|e| Error::defect(path, "archive", Defect::NotNpz { found: e.to_string() }))?;
        found.push(name.strip_suffix(".npy").unwrap_or(&name).to_owned());
    }
    found.sort();
    for name in ["x", "y"] {
        if !found.iter().any(|f| f == name) {
            return Err(Error::defect(path, name, Defect::MissingTensor { found }));
        }
    }
    match found.into_iter().find(|name| name != "x" && name != "y") {
        Some(extra) => {
            let expected = vec!["x".to_owned(), "y".to_owned()];
            Err(Error::defect(path, extra, Defect::ExtraTensor { expected }))
        }
        None => Ok(()),
    }
}

/// One array as it lies in the archive.
struct Array {
    name: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// Memory follows what the file holds, whatever the header says of it: no more is asked for beforehand
    /// than the file's size, and what compressed data unfold to comes as it is read.
    fn read<R: Read + io::Seek>(
        path: &Path,
        size: u64,
        archive: &mut ZipArchive<R>,
        name: &'static str,
    ) -> Result<Self, Error> {
        let malformed = |found: String| Error::defect(path, name, Defect::NotNpz { found });
        let mut entry = archive.by_name(&format!("{name}.npy")).map_err(|e| malformed(e.to_string()))?;
        let prefix = bounded_header(&mut entry).map_err(|e| malformed(e.to_string()))?;
        let header = NpyFile::new(Cursor::new(&prefix)).map_err(|e| malformed(e.to_string()))?;
        let shape: Result<Vec<usize>, _> = header.shape().iter().map(|&d| usize::try_from(d)).collect();
        let shape = shape.map_err(|_| malformed(format!("shape {:?}", header.shape())))?;
        let element = header.dtype().num_bytes().filter(|size| (1..=8).contains(size));
        let element = element.ok_or_else(|| malformed(format!("elements {}", header.dtype().descr())))?;
        let data = element_count(&shape).map_err(|d| Error::defect(path, name, d))? * element;
        let mut bytes = Vec::new();
        let room = data.min(usize::try_from(size).unwrap_or(usize::MAX));
        bytes
            .try_reserve_exact(prefix.len().saturating_add(room))
            .map_err(|_| Error::OutOfMemory { file: path.to_owned(), bytes: room as u64 })?;
        bytes.extend_from_slice(&prefix);
        entry.take(data as u64).read_to_end(&mut bytes).map_err(|e| malformed(e.to_string()))?;
        if bytes.len() != prefix.len() + data {
            let found = bytes.len() - prefix.len();
            return Err(malformed(format!("{found} bytes of data where the header says {data}")));
        }
        Ok(Self { name, shape, bytes })
    }

    fn features(&self, path: &Path) -> Result<(Vec<usize>, Vec<f32>), Error> {
        let file = self.parsed(path)?;
        let order = file.order();
        let values = match file.try_data::<f32>() {
            Ok(singles) => singles.collect::<io::Result<Vec<f32>>>(),
            Err(file) => match file.try_data::<f64>() {
                Ok(doubles) => doubles.map(|value| value.map(|v| v as f32)).collect(),
                Err(_) => {
                    let (shape, integers) = self.integers(path, "f4, f8 or integers")?;
                    let singles = exact_singles(&integers).map_err(|d| Error::defect(path, "x", d))?;
                    return Ok((shape, singles));
                }
            },
        };
        self.in_rows(path, order, values)
    }

    fn labels(&self, path: &Path) -> Result<(Vec<usize>, Vec<i64>), Error> {
        let file = self.parsed(path)?;
        let order = file.order();
        let numbers: io::Result<Vec<f64>> = match file.try_data::<f64>() {
            Ok(doubles) => doubles.collect(),
            Err(file) => match file.try_data::<f32>() {
                Ok(singles) => singles.map(|value| value.map(f64::from)).collect(),
                Err(_) => return self.integers(path, "integers"),
            },
        };
        let (shape, numbers) = self.in_rows(path, order, numbers)?;
        let labels = whole_numbers(&numbers).map_err(|d| Error::defect(path, "y", d))?;
        Ok((shape, labels))
    }

    fn integers(&self, path: &Path, expected: &'static str) -> Result<(Vec<usize>, Vec<i64>), Error> {
        let file = self.parsed(path)?;
        let order = file.order();
        let dtype = file.dtype();
        let DType::Plain(kind) = &dtype else { return Err(self.wrong_type(path, expected, &dtype)) };
        macro_rules! widened {
            ($integer:ty) => {
                file.data::<$integer>()
                    .map_err(io::Error::other)
                    .and_then(|values| values.map(|v| v.map(i64::from)).collect())
            };
        }
        let values = match (kind.type_char(), kind.size_field()) {
            (TypeChar::Int, 8) => widened!(i64),
            (TypeChar::Int, 4) => widened!(i32),
            (TypeChar::Int, 2) => widened!(i16),
            (TypeChar::Int, 1) => widened!(i8),
            (TypeChar::Uint, 8) => file
                .data::<u64>()
                .map_err(io::Error::other)
                .and_then(|values| values.map(|v| v.map(|v| i64::try_from(v).unwrap_or(i64::MAX))).collect()),
            (TypeChar::Uint, 4) => widened!(u32),
            (TypeChar::Uint, 2) => widened!(u16),
            (TypeChar::Uint, 1) => widened!(u8),
            (TypeChar::Bool, 1) => file
                .data::<bool>()
                .map_err(io::Error::other)
                .and_then(|values| values.map(|v| v.map(i64::from)).collect()),
            _ => return Err(self.wrong_type(path, expected, &dtype)),
        };
        self.in_rows(path, order, values)
    }

    fn parsed(&self, path: &Path) -> Result<NpyFile<Cursor<&[u8]>>, Error> {
        NpyFile::new(Cursor::new(&self.bytes[..]))
            .map_err(|e| Error::defect(path, self.name, Defect::NotNpz { found: e.to_string() }))
    }

    fn wrong_type(&self, path: &Path, expected: &'static str, found: &DType) -> Error {
        let found = found.descr();
        Error::defect(path, self.name, Defect::ElementType { expected, found })
    }

    fn in_rows<T: Copy>(
        &self,
        path: &Path,
        order: Order,
        values: io::Result<Vec<T>>,
    ) -> Result<(Vec<usize>, Vec<T>), Error> {
        let values =
            values.map_err(|e| Error::defect(path, self.name, Defect::NotNpz { found: e.to_string() }))?;
        let values = match order {
            Order::C => values,
            Order::Fortran => rows_from_columns(&self.shape, &values),
        };
        Ok((self.shape.clone(), values))
    }
}

/// Row by row what was stored column by column.
fn rows_from_columns<T: Copy>(shape: &[usize], stored: &[T]) -> Vec<T> {
    let mut index = vec![0; shape.len()];
    let mut rows = Vec::with_capacity(stored.len());
    for _ in 0..stored.len() {
        let position = index.iter().zip(shape).rev().fold(0, |at, (&i, &size)| at * size + i);
        rows.push(stored[position]);
        for (i, &size) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
    }
    rows
}

/// The bytes of an array's header, after a look that keeps its parser from recursing deeply, allocating much
/// or overflowing: short, flat, and with so few digits in its shape that their product fits in 64 bits.
fn bounded_header(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let mut bytes = vec![0; 10];
    entry.read_exact(&mut bytes)?;
    if &bytes[..6] != b"\x93NUMPY" {
        return refuse("no NumPy array");
    }
    let length = if bytes[6] == 1 {
        usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))
    } else {
        let mut rest = [0; 2];
        entry.read_exact(&mut rest)?;
        bytes.extend(rest);
        u32::from_le_bytes([bytes[8], bytes[9], rest[0], rest[1]]) as usize
    };
    if length > MAX_HEADER_BYTES {
        return refuse("a header that is too long");
    }
    entry.take(length as u64).read_to_end(&mut bytes)?;
    let text = bytes.get(10..).unwrap_or_default();
    let mut depth = 0usize;
    let mut digits = 0;
    for byte in text {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'0'..=b'9' if depth > 1 => digits += 1,
            _ => {}
        }
        if depth > 2 || digits > 19 {
            return refuse("a header that is nested or has a shape beyond 64 bits");
        }
    }
    Ok(bytes)
}

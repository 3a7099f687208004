//! The safetensors format: the header is read and checked first, data only where it is wanted.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo, TensorView},
};

use crate::{Defect, Error, Tensor, TestSet, Weights};

/// As in the format's own reader.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// An open file of tensors, its header checked against its length.
pub(crate) struct TensorFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    data_start: u64,
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let reading = |source| Error::reading(path, source);
        let malformed = |found: String| Error::defect(path, "header", Defect::NotSafetensors { found });
        let mut file = super::open(path)?;
        let length = file.metadata().map_err(reading)?.len();
        let mut prefix = [0; 8];
        if length < 8 {
            return Err(malformed(format!("{length} bytes")));
        }
        file.read_exact(&mut prefix).map_err(reading)?;
        let header_bytes = u64::from_le_bytes(prefix);
        if header_bytes > MAX_HEADER_BYTES || header_bytes > length - 8 {
            return Err(malformed(format!("a header of {header_bytes} bytes in a file of {length}")));
        }
        let mut text = Vec::new();
        file.by_ref().take(header_bytes).read_to_end(&mut text).map_err(reading)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let data_start = 8 + header_bytes;
        if u64::try_from(header.data_len()).ok() != Some(length - data_start) {
            let (found, expected) = (length - data_start, header.data_len());
            return Err(malformed(format!("{found} bytes of data where the header says {expected}")));
        }
        Ok(Self { path: path.to_owned(), file, header, data_start })
    }

    /// The tensors' names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort();
        names
    }

    /// Checks that these tensors are there and no others.
    pub(crate) fn expect_names(&self, expected: &[&str]) -> Result<(), Error> {
        let found = self.names();
        if let Some(missing) = expected.iter().find(|name| self.header.info(name).is_none()) {
            return Err(Error::defect(&self.path, *missing, Defect::MissingTensor { found }));
        }
        if let Some(extra) = found.iter().find(|name| !expected.contains(&name.as_str())) {
            let expected = expected.iter().map(|&name| name.to_owned()).collect();
            return Err(Error::defect(&self.path, extra, Defect::ExtraTensor { expected }));
        }
        Ok(())
    }

    /// A tensor's shape, its element type checked.
    pub(crate) fn shape(&self, name: &str, expected: Dtype) -> Result<&[usize], Error> {
        let info = self.info(name)?;
        if info.dtype == expected {
            return Ok(&info.shape);
        }
        let expected = if expected == Dtype::F32 { "F32" } else { "I64" };
        let found = format!("{:?}", info.dtype);
        Err(Error::defect(&self.path, name, Defect::ElementType { expected, found }))
    }

    /// A tensor of finite single-precision numbers.
    pub(crate) fn read_f32(&mut self, name: &str) -> Result<Tensor, Error> {
        let shape = self.shape(name, Dtype::F32)?.to_vec();
        let bytes = self.read_bytes(name)?;
        let values = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let at = |defect| Error::defect(&self.path, name, defect);
        let tensor = Tensor::new(shape, values).map_err(at)?;
        tensor.check_finite().map_err(at)?;
        Ok(tensor)
    }

    /// A vector of integers.
    pub(crate) fn read_i64(&mut self, name: &str) -> Result<Vec<i64>, Error> {
        self.shape(name, Dtype::I64)?;
        let bytes = self.read_bytes(name)?;
        let value = |b: &[u8]| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        Ok(bytes.chunks_exact(8).map(value).collect())
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.header
            .info(name)
            .ok_or_else(|| Error::defect(&self.path, name, Defect::MissingTensor { found: self.names() }))
    }

    fn read_bytes(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        let (begin, end) = self.info(name)?.data_offsets;
        let length = end - begin;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| Error::OutOfMemory { file: self.path.clone(), bytes: length as u64 })?;
        let seek = SeekFrom::Start(self.data_start + begin as u64);
        let copied = self
            .file
            .seek(seek)
            .and_then(|_| self.file.by_ref().take(length as u64).read_to_end(&mut bytes))
            .map_err(|source| Error::reading(&self.path, source))?;
        if copied != length {
            let found = format!("{copied} bytes of {length} for tensor {name}");
            return Err(Error::defect(&self.path, name, Defect::NotSafetensors { found }));
        }
        Ok(bytes)
    }
}

/// Writes a model; the bytes depend on the model alone.
pub(crate) fn write_tensors(path: &Path, weights: &Weights) -> Result<(), Error> {
    let bytes: Vec<_> = weights
        .iter()
        .map(|(name, tensor)| (name, tensor.shape().to_vec(), f32_bytes(tensor.values())))
        .collect();
    let views = bytes.iter().map(|(name, shape, data)| (*name, Dtype::F32, shape.clone(), &data[..]));
    write(path, views)
}

/// Writes a test set as the tensors `x` and `y`.
pub(crate) fn write_test_set(path: &Path, test_set: &TestSet) -> Result<(), Error> {
    let mut shape = vec![test_set.len()];
    shape.extend(test_set.input());
    let x = f32_bytes(test_set.features());
    let y: Vec<u8> = test_set.labels().iter().flat_map(|label| label.to_le_bytes()).collect();
    let tensors = [("x", Dtype::F32, shape, &x[..]), ("y", Dtype::I64, vec![test_set.len()], &y[..])];
    write(path, tensors.into_iter())
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn write<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, Dtype, Vec<usize>, &'a [u8])>,
) -> Result<(), Error> {
    let not_written = |e: safetensors::SafeTensorError| Error::writing(path, std::io::Error::other(e));
    let views: Result<Vec<_>, _> = tensors
        .map(|(name, dtype, shape, data)| TensorView::new(dtype, shape, data).map(|view| (name, view)))
        .collect();
    let bytes = safetensors::serialize(views.map_err(not_written)?, None).map_err(not_written)?;
    fs::write(path, bytes).map_err(|source| Error::writing(path, source))
}

//! The safetensors format: the header is read and checked first, data only where it is wanted.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo, TensorView},
};

use super::elements::{Floats, exact_singles, integers, whole_numbers};
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

    /// A tensor's shape.
    pub(crate) fn shape(&self, name: &str) -> Result<&[usize], Error> {
        Ok(&self.info(name)?.shape)
    }

    /// The shape of every tensor of a model, their element types checked. Those that `ignored` names may have any type.
    pub(crate) fn shapes(
        &self,
        ignored: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, Vec<usize>>, Error> {
        let mut shapes = BTreeMap::new();
        for name in self.names().into_iter().filter(|name| !ignored(name)) {
            let info = self.info(&name)?;
            if Floats::of(info.dtype).is_none() {
                let found = format!("{:?}: {}", info.dtype, why_not_weights(info));
                let expected = "F32, F64, F16 or BF16";
                return Err(Error::defect(&self.path, &name, Defect::ElementType { expected, found }));
            }
            shapes.insert(name, info.shape.clone());
        }
        Ok(shapes)
    }

    /// A tensor of finite numbers.
    pub(crate) fn read_floats(&mut self, name: &str) -> Result<Tensor, Error> {
        let info = self.info(name)?;
        let (shape, dtype) = (info.shape.clone(), info.dtype);
        let Some(floats) = Floats::of(dtype) else {
            let (expected, found) = ("F32, F64, F16 or BF16", format!("{dtype:?}"));
            return Err(Error::defect(&self.path, name, Defect::ElementType { expected, found }));
        };
        let bytes = self.read_bytes(name)?;
        let at = |defect| Error::defect(&self.path, name, defect);
        let tensor = floats.tensor(shape, &bytes).map_err(at)?;
        tensor.check_finite().map_err(at)?;
        Ok(tensor)
    }

    /// Numbers of samples, of any type, in single precision. Integers have to fit there.
    pub(crate) fn read_features(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        let dtype = self.info(name)?.dtype;
        if Floats::of(dtype).is_some() {
            let singles = self.read_floats(name)?.singles().into_owned();
            return Ok(singles);
        }
        let integers = self.read_integers(name, "numbers")?;
        exact_singles(&integers).map_err(|defect| Error::defect(&self.path, name, defect))
    }

    /// Labels: integers of any type, or whole numbers.
    pub(crate) fn read_labels(&mut self, name: &str) -> Result<Vec<i64>, Error> {
        if Floats::of(self.info(name)?.dtype).is_none() {
            return self.read_integers(name, "integers");
        }
        let numbers: Vec<f64> = self.read_floats(name)?.numbers().collect();
        whole_numbers(&numbers).map_err(|defect| Error::defect(&self.path, name, defect))
    }

    fn read_integers(&mut self, name: &str, expected: &'static str) -> Result<Vec<i64>, Error> {
        let dtype = self.info(name)?.dtype;
        let bytes = self.read_bytes(name)?;
        integers(dtype, &bytes).ok_or_else(|| {
            let found = format!("{dtype:?}");
            Error::defect(&self.path, name, Defect::ElementType { expected, found })
        })
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

/// What tensors of integers are, among weights.
fn why_not_weights(info: &TensorInfo) -> &'static str {
    match info.dtype {
        Dtype::U8 if info.shape.len() == 1 => {
            "a serialised model, such as trees, has no weights that could be averaged"
        }
        Dtype::F8_E4M3 | Dtype::F8_E5M2 => "save the weights in a wider type",
        _ => "if it is a buffer that no layer uses, list it in model.ignore",
    }
}

/// Writes a model; the bytes depend on the model alone.
pub(crate) fn write_tensors(path: &Path, weights: &Weights) -> Result<(), Error> {
    let bytes: Vec<_> = weights
        .iter()
        .map(|(name, tensor)| {
            let dtype = if tensor.is_double() { Dtype::F64 } else { Dtype::F32 };
            (name, dtype, tensor.shape().to_vec(), tensor.to_le_bytes())
        })
        .collect();
    let views = bytes.iter().map(|(name, dtype, shape, data)| (*name, *dtype, shape.clone(), &data[..]));
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

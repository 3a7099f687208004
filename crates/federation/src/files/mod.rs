//! The bytes of tensors on disk. Readers check sizes before they allocate and never panic on what they read.

mod elements;
mod npz;
mod safetensors;

use std::{fs, fs::File, path::Path};

use crate::{Defect, Error};

pub(crate) use npz::read_npz;
pub(crate) use safetensors::{TensorFile, write_tensors, write_test_set};

/// Opens a file. What is none, such as a pipe, would keep its reader waiting.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let reading = |source| Error::reading(path, source);
    let kind = fs::metadata(path).map_err(reading)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Error::defect(path, "file", Defect::NoFile { found: "pipe, socket or device" }));
    }
    File::open(path).map_err(reading)
}

/// Labels of so many samples: a vector, or one column.
pub(crate) fn check_label_shape(path: &Path, samples: usize, found: &[usize]) -> Result<(), Error> {
    if found == [samples] || found == [samples, 1] {
        return Ok(());
    }
    let defect = match found {
        [rows, columns] if *rows == samples => Defect::OneHot { columns: *columns },
        _ => Defect::Shape { expected: format!("[{samples}]"), found: found.to_vec() },
    };
    Err(Error::defect(path, "y", defect))
}

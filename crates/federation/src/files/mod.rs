//! The bytes of tensors on disk. Readers check sizes before they allocate and never panic on what they read.

mod elements;
mod npz;
mod safetensors;

use std::path::Path;

use crate::{Defect, Error};

pub(crate) use npz::read_npz;
pub(crate) use safetensors::{TensorFile, write_tensors, write_test_set};

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

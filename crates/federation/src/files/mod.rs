//! The bytes of tensors on disk. Readers check sizes before they allocate and never panic on what they read.

mod npz;
mod safetensors;

pub(crate) use npz::read_npz;
pub(crate) use safetensors::{TensorFile, write_tensors, write_test_set};

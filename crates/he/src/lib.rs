//! Encrypted matrices.
mod ciphertext;
mod count;
mod decrypt;
mod encode;
mod error;
mod extension;
mod flood;
pub mod kernel;
mod keys;
pub mod library;
pub mod linear;
mod noise;
mod parameters;
mod reply;
#[cfg(test)]
mod scheme_tests;

pub use ciphertext::{Ciphertext, SeededCiphertext};
pub use count::Operations;
pub use encode::Packing;
pub use error::{HeError, WireError};
pub use flood::{Flooding, NoiseBound};
pub use keys::{EvaluationKey, PublicKey, SecretKey};
pub use parameters::{Limb, Parameters, Preset};
pub use reply::Reply;

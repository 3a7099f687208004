//! Encrypted matrices.
mod ciphertext;
pub mod clock;
mod cost;
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
pub mod measure;
mod noise;
mod parameters;
pub mod planner;
mod reply;
#[cfg(test)]
mod scheme_tests;
mod wire;

pub use ciphertext::{Ciphertext, SeededCiphertext};
pub use cost::UnitCosts;
pub use count::Operations;
pub use encode::Packing;
pub use error::{HeError, WireError};
pub use flood::{Flooding, NoiseBound};
pub use keys::{EvaluationKey, PublicKey, SecretKey};
pub use parameters::{Limb, Parameters, Preset};
pub use reply::Reply;

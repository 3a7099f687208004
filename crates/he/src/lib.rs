//! Encrypted matrix times shared or clear matrix: the one operation every protocol stands on.
//!
//! Receives weight matrices, samples (or one party's share of them) as matrices over Z_p, and randomness;
//! hands on ciphertexts, sanitised replies and, to the holder of the key, products that equal the clear ones
//! modulo p. The scheme is BFV with plaintext modulus p; keys, encoders, ciphertexts, the multiply-accumulate
//! kernel and the wire format are ours on top of `tfhe-ntt`'s transforms.
//!
//! No message passes through the `fhe` library. Given the same key it is the oracle of the tests, and the
//! opponent of `secsv bench linear` ([`measure`]); of its parts, `fhe-math` scales sums of full products down
//! and `fhe-util` draws centred binomial numbers.
//!
//! It knows no messages, roles or files, and decides nothing about who may decrypt.
//!
//! ```
//! use secsv_algebra::{Matrix, Prg, Seed};
//! use secsv_he::{Operations, Parameters, Preset, SecretKey};
//! use secsv_he::linear::{BlockShape, LayerShape, Layout, MatrixMethod, multiply};
//!
//! # fn main() -> Result<(), secsv_he::HeError> {
//! let parameters = Parameters::preset(Preset::Compact)?;
//! let (mut rng, mut ops) = (Prg::new(&Seed::from_bytes([7; 32])), Operations::default());
//! let key = SecretKey::generate(&parameters, &mut rng);
//! let layout = Layout::new(
//!     &parameters,
//!     LayerShape { d_out: 2, d_in: 3 },
//!     MatrixMethod::Packed(BlockShape { rows: 2, columns: 1, samples: 2048 }),
//! )?;
//! let weights = Matrix::uniform(parameters.field(), 2, 3, &mut rng);
//! let samples = Matrix::uniform(parameters.field(), 3, 5, &mut rng);
//!
//! // A client encrypts, a server multiplies, a client decrypts.
//! let encrypted = layout.encrypt(&key, &weights, &mut rng, &mut ops)?;
//! let prepared = layout.prepare(&encrypted)?;
//! let batches = layout.encode(&samples, &mut ops)?;
//! let products = multiply(&layout, &[&prepared], &[&batches[0]], None, &mut ops)?;
//! let mut result = Matrix::zero(parameters.field(), 2, 5);
//! for (row, product) in products[0].iter().enumerate() {
//!     let elements = key.decrypt(layout.packing(), product, &mut ops)?;
//!     layout.read(row, 0, elements.expose(), &mut result)?;
//! }
//! assert_eq!(result, weights.multiply(&samples)?);
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod attack_tests;
mod ciphertext;
pub mod clock;
mod cost;
mod count;
mod decrypt;
mod encode;
mod error;
mod extension;
mod flood;
mod kernel;
mod keys;
mod library;
pub mod linear;
pub mod measure;
mod modulus_switch;
mod noise;
mod parameters;
pub mod planner;
mod reply;
#[cfg(test)]
mod scheme_tests;
mod slots;
mod wire;

pub use ciphertext::SeededCiphertext;
pub use cost::UnitCosts;
pub use count::Operations;
pub use encode::Packing;
pub use error::{HeError, WireError};
pub use flood::{Flooding, NoiseBound};
pub use kernel::{Ciphertext, Limb};
pub use keys::{EvaluationKey, PublicKey, SecretKey};
pub use parameters::{Parameters, Preset};
pub use reply::Reply;
pub use slots::EncryptedSlots;

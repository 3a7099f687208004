//! The numbers every protocol computes with: a prime field, the ring of 64-bit words, fixed point, matrices,
//! additive shares, a pseudo-random generator and a wrapper that keeps secrets secret.
//!
//! Receives real numbers and seeds, hands on ring elements and shares. It does no I/O, holds no keys of the
//! encryption scheme and never reads a clock or a global random generator.
//!
//! ```
//! use secsv_algebra::{Field, FixedPoint, Matrix, Seed, share};
//!
//! let field = Field::standard();
//! let fixed = FixedPoint::new(12, 4); // 12 fractional bits, |x| <= 2^4
//! let secret = Matrix::from_fn(field, 2, 3, |r, c| fixed.encode(field, r as f64 - c as f64 / 4.0).unwrap());
//! let (seeded, rest) = share::split(&secret, Seed::from_bytes([7; 32]));
//! assert_eq!(share::reconstruct(&seeded.expand(), &rest).unwrap(), secret);
//! ```

mod error;
mod field;
mod fixed;
mod matrix;
mod modulus;
mod prg;
mod ring;
mod secret;
pub mod share;
mod stream;
mod words;

pub use error::AlgebraError;
pub use field::Field;
pub use fixed::FixedPoint;
pub use matrix::Matrix;
pub use modulus::{Factor, Modulus};
pub use prg::{Prg, Seed};
pub use ring::{Ring, Ring64};
pub use secret::{Secret, wipe};
pub use share::{SeedShare, Share};
pub use stream::{Stream, StreamKernel};
pub use words::WordKernel;

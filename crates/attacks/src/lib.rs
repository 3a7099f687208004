//! Attacks of curious parties, run on what they received.
//!
//! An attack gets a [`ClientView`]: what one client decrypted, and what it knew beforehand. It hands on what
//! it found out about others; only the tests know whether that is right. docs/ATTACKS.md lists attacks,
//! figures and tests.
//!
//! Nothing here is part of the product: no other crate uses it.

pub mod directory;
pub mod equations;
pub mod grid;
pub mod hidden;
pub mod images;
pub mod linear;
pub mod models;
pub mod operators;
pub mod pads;
pub mod recognition;
pub mod records;
pub mod recurrent;
pub mod span;
mod view;

pub use view::{ClientView, DecryptedOutputs};

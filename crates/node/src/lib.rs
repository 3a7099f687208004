//! Parties of a federation as processes: one role each, on a network.
//!
//! Receives a kit (who a party is), its data and a state directory; runs the party's role, keeps a journal of everything
//! that was sent and received, and speaks with the other parties over TLS. Hands on the values, an audit log that others
//! can [`verify`](verify::verify), and pages for operators.
//!
//! ```no_run
//! # use secsv_node::{kit::Kit, process::{NodeOptions, run_auxiliary}};
//! # fn example(options: &NodeOptions) -> Result<(), Box<dyn std::error::Error>> {
//! let values = run_auxiliary(Kit::open("kits/auxiliary".as_ref())?, options)?;
//! println!("{} clients were valued", values.fsv.len());
//! # Ok(())
//! # }
//! ```
//!
//! It holds no protocol and no estimator: `secsv-protocol` has the roles, `secsv-evaluation` the loop that asks them.

pub mod audit;
pub mod consent;
pub mod crypto;
mod error;
mod fingerprint;
pub mod journal;
pub mod kit;
mod party;
pub mod preflight;
pub mod process;
pub mod record;
pub mod status;
pub mod transport;
#[cfg(test)]
mod vector_tests;
pub mod verify;

pub use error::Error;
pub use fingerprint::{Fingerprint, FingerprintError};

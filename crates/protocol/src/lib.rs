//! SecSV, HESV and SecretSV as roles that take a message and return messages.

pub mod activation;
mod auxiliary;
mod client;
mod codec;
pub mod decryptors;
pub mod disclosure;
mod error;
mod frame;
pub mod ideal;
pub mod message;
pub mod model;
mod party;
pub mod precision;
mod principal;
pub mod program;
pub mod role;
mod sealed;
mod secret;
mod server;
pub mod session;

pub use auxiliary::Auxiliary;
pub use client::{Client, ClientInput, own_right};
pub use error::{CodecError, Error, FrameDefect};
pub use frame::Envelope;
pub use party::PartyId;
pub use principal::{Principal, TestRequest};
pub use program::Program;

pub use secsv_algebra::{Field, Ring64, Seed};
pub use secsv_he::{Operations, Preset, UnitCosts};

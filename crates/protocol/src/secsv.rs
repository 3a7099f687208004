//! SecSV (the paper's Algorithms 3 and 4): models are encrypted, test data shared between two servers, and clients decrypt outputs.

mod auxiliary;
pub(crate) mod client;
mod principal;
mod server;
mod together;

pub(crate) use auxiliary::SecSvAuxiliary;
pub(crate) use principal::SecSvPrincipal;
pub(crate) use server::keeps_encoded_samples;

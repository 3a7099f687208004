//! BlindSV: the two servers compute on numbers that both see under masks; the owner of the samples knows the masks, deals shares of what
//! follows from them beforehand, and receives nothing. Nobody decrypts, so nobody reads a score, an activation or a label.
//!
//! - Words are modulo 2^l. A model is E = w theta - U to both servers; U = U_P + U_A, streams that all clients and one server know.
//! - A sample is shared: the principal's share is a stream that its owner knows too. The owner deals W = U X. Each server has
//!   E times its share of X plus its share of W: shares of all models' scores, so of every coalition's.
//! - The servers open scores under masks V = V_P + V_A of the owner and find shares of right or wrong by gates (`comparison`,
//!   `products`) whose masks are the owner's too. Each adds up over samples and owners; the principal learns the sum of the two.
//!
//! A stream is named by round, coalition, owner, purpose and stage, and used once. Nobody is replaced, so a restarted party draws the
//! same bytes.

pub(crate) mod approximation;
pub(crate) mod auxiliary;
mod between;
pub(crate) mod client;
mod comparison;
mod curve;
pub(crate) mod dealer;
mod dealt;
#[cfg(test)]
mod equivalence_tests;
pub(crate) mod evaluator;
mod gates;
pub(crate) mod hops;
pub(crate) mod ideal;
mod joined;
pub(crate) mod keys;
pub(crate) mod lanes;
mod largest;
pub(crate) mod later;
pub(crate) mod layer;
mod meaning;
#[cfg(test)]
mod net_tests;
pub(crate) mod principal;
mod products;
pub(crate) mod range_check;
mod recurrent;
#[cfg(test)]
mod recurrent_tests;
pub(crate) mod rehearsal;
#[cfg(test)]
mod run_equivalence_tests;
mod server;
pub(crate) mod shape;
pub(crate) mod sums;
#[cfg(test)]
mod unit_tests;
pub(crate) mod view;
mod wide;
pub(crate) mod wiring;
mod words;

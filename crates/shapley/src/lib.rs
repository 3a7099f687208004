//! Contribution values from coalition utilities: exact and sampled, plan, absorb, finish.
//!
//! Receives the utility v(S) of coalitions (the accuracy of the model aggregated from S), one game per
//! training round, and hands on a value per client with its standard error. A method says which utilities it
//! wants next ([`Estimator::next_batch`]), takes them in ([`Estimator::absorb`]) and computes the values
//! ([`Estimator::finish`]); it never learns how a utility was computed, so the same code values models in the
//! clear, under encryption or from a file.
//!
//! ```
//! use std::time::Duration;
//! use secsv_federation::{Coalition, RoundId};
//! use secsv_shapley::{EstimatorSettings, Federated, Method};
//!
//! // Three clients, one round: the third is worth nothing, the first two only matter together.
//! let utility = |s: Coalition| if s.contains(0) && s.contains(1) { 0.9 } else { 0.5 };
//! let rounds = [(RoundId(1), Coalition::first(3))];
//! let mut plan = Federated::new(Method::Exact, &rounds, &EstimatorSettings::default())?;
//! loop {
//!     let batch = plan.next_batch(Duration::ZERO)?;
//!     if batch.is_empty() { break }
//!     for (round, coalition) in batch { plan.absorb(round, coalition, utility(coalition))? }
//! }
//! let values = plan.finish()?.total;
//! assert!((values.value(0) - 0.2).abs() < 1e-12 && values.value(2) == 0.0);
//! # Ok::<(), secsv_shapley::Error>(())
//! ```
//!
//! It does no cryptography and no testing of models, knows no clock (the caller tells the time) and draws no
//! random number that does not follow from the seed. Methods that span rounds (the Contribution Index,
//! GTG-Shapley, WT-Shapley) are [`Federated`] plans; those that value accumulated models take one table
//! ([`Method::values_of`]).

mod ask_once;
mod error;
mod estimator;
mod group_testing;
mod grouped;
mod kernel;
mod least_core;
mod leave_one_out;
mod method;
mod permutation;
mod players;
mod rounds;
mod semivalue;
mod settings;
mod solver;
mod spread;
mod truncated;
mod utility;
mod values;

pub use error::Error;
pub use estimator::{Estimator, StopRule};
pub use group_testing::group_tests_needed;
pub use method::Method;
pub use permutation::permutations_needed;
pub use rounds::{Federated, FederatedValues, RoundValues, RoundWeights};
pub use settings::EstimatorSettings;
pub use utility::{MAX_EXACT_CLIENTS, UtilityTable};
pub use values::{ClientValues, combine};

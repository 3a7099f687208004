//! Drives estimators against the evaluation of a federation.
//!
//! Receives a run and settings, asks the estimator which coalitions it wants, has an [`Evaluator`] test them (with or
//! without SampleSkip), and hands on an [`EvaluationResult`]: the values, every utility behind them, and what it cost.
//!
//! ```
//! # use secsv_federation::*;
//! # use secsv_runtime::*;
//! # fn example(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! let run = RunDirectory::open(path)?;
//! run.check()?;
//! let test_set = CollectiveTestSet::read(&run)?;
//! let mut evaluator = ClearEvaluator::new(&run, &test_set);
//! let result = evaluate(run.spec(), &mut evaluator, &EvaluationSettings::default(), |_| {})?;
//! for (client, value) in &result.fsv {
//!     println!("{client} {value:+.4}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It holds no arithmetic on shares or ciphertexts, and no estimator.

pub mod audit;
mod by_roles;
mod clear;
pub mod consent;
pub mod crypto;
mod cumulative;
mod error;
mod evaluate;
mod evaluator;
mod exposure;
mod fingerprint;
pub mod journal;
pub mod kit;
pub mod link;
pub mod node;
mod outcomes;
pub mod party;
mod plan;
pub mod preflight;
pub mod record;
mod recount;
mod result;
mod secure;
mod secure_result;
pub mod status;
pub mod tls;
pub mod verify;
pub mod views;
pub mod world;

pub use clear::ClearEvaluator;
pub use cumulative::CumulativeEvaluator;
pub use error::Error;
pub use evaluate::{EvaluationSettings, Progress, evaluate};
pub use evaluator::{CostModel, Evaluator, Next, Test};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use plan::{Held, Plan, PlanResult, PlannedCost};
pub use recount::{Confirmation, Difference};
pub use result::{
    DisclosureResult, EncryptionParameters, EvaluationResult, ExposureResult, ExposureRow, KindTraffic,
    Operations, RoundResult, SecurityResult, Timing, Traffic, UtilityResult,
};
pub use secure::{SecureEvaluator, client_inputs};

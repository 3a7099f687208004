//! Drives estimators against the evaluation of a federation, in one process.
//!
//! Receives a run and settings, asks the estimator which coalitions it wants, has an [`Evaluator`] test them (with or
//! without SampleSkip), and hands on an [`EvaluationResult`]: the values, every utility behind them, and what it cost.
//!
//! ```
//! # use secsv_federation::*;
//! # use secsv_evaluation::*;
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
//! It holds no arithmetic on shares or ciphertexts, no estimator, no socket and nothing asynchronous: parties as processes
//! are in `secsv-node`.

mod clear;
mod cumulative;
mod error;
mod evaluate;
mod evaluator;
pub mod executor;
mod exposure;
mod facts;
pub mod in_process;
mod memory_link;
mod names;
mod outcomes;
pub mod packet;
pub mod partial_message;
mod plan;
mod recount;
mod result;
pub mod role_evaluator;
mod secure;
pub mod secure_result;
mod settings;
mod test_noise;
mod utility;
mod utility_table;
pub mod views;
mod views_error;

pub use clear::ClearEvaluator;
pub use cumulative::CumulativeEvaluator;
pub use error::{Error, LinkDefect};
pub use evaluate::{Progress, evaluate};
pub use evaluator::{CostModel, Evaluator, Next, Test};
pub use executor::Accounts;
pub use exposure::{exposure_result, names as called};
pub use facts::{FederationFacts, Made, Organisation};
pub use memory_link::{Envelope, rehearse_message};
pub use names::with_ids;
pub use plan::{Held, Plan, PlanResult, PlannedCost, planned_requests};
pub use recount::Agreed;
pub use result::{
    ApproximateResult, Confirmation, Difference, DisclosureResult, EncryptionParameters, EvaluationResult,
    ExposureResult, ExposureRow, KindTraffic, Operations, OverflowResult, OverflowedModel, RangeResult,
    RoundResult, SCHEMA, SecurityResult, Timing, Traffic, UtilityResult, VERSION,
};
pub use secure::{SecureEvaluator, check_numbers, client_inputs};
pub use settings::EvaluationSettings;
pub use test_noise::{DifferenceNoise, TestNoise};
pub use utility::Utility;
pub use utility_table::MOST_ROWS;

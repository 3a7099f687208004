//! Data sets, non-IID splits and federated averaging that write run directories.

mod datasets;
mod error;
mod samples;
mod seeds;
mod split;

pub use datasets::{BankAgeCodes, Dataset, DatasetSource, LoadOptions, Silo};
pub use error::TrainingError;
pub use samples::{Samples, Standardiser};
pub use split::Split;

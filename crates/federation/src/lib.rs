//! What a federation leaves behind: who took part in which round, their models and test sets.
//!
//! Receives a run directory (or the part of it one silo holds) and hands on checked models, test sets and
//! coalitions, and the floating-point answer that every secure protocol is measured against. It holds no
//! cryptography.

mod aggregate;
mod architecture;
pub mod clear;
mod collective;
mod error;
mod files;
mod ids;
mod run_directory;
mod sample_set;
pub mod skip;
mod spec;
mod test_set;
mod weights;

pub use aggregate::WeightedMean;
pub use architecture::{Activation, Architecture, Conv2d, Gru, Layer, Linear};
pub use collective::CollectiveTestSet;
pub use error::{Defect, Error};
pub use ids::{ClientId, ClientIdError, Coalition, MAX_CLIENTS, RoundId};
pub use run_directory::{RunDirectory, RunWriter};
pub use sample_set::SampleSet;
pub use spec::{
    ClientSpec, FederationSpec, LayerSpec, MAX_ROUNDS, MAX_TRAIN_SIZE, MIN_CLIENTS, ModelSpec, RoundOverride,
};
pub use test_set::TestSet;
pub use weights::{Tensor, Weights};

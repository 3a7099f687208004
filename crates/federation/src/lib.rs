//! The files that a federation leaves behind: who took part in which round, their models and test sets.
//!
//! Receives a run directory (or the part of it one silo holds) and hands on checked models, test sets and
//! coalitions, and the floating-point answer that every secure protocol is measured against ([`clear`]).
//! Which samples may be skipped ([`skip`]) is decided here too, for tests in the clear and secure ones alike.
//!
//! ```
//! use secsv_federation::{CollectiveTestSet, RoundId, RunDirectory, SampleSet, clear::ClearRound};
//! # fn example(path: &std::path::Path) -> Result<(), secsv_federation::Error> {
//! let run = RunDirectory::open(path)?;
//! run.check()?;
//! let test_set = CollectiveTestSet::read(&run)?;
//! let mut models = Vec::new();
//! for position in run.participants(RoundId(1)).members() {
//!     let client = &run.spec().clients[position];
//!     models.push((position, client.weight_in(RoundId(1)), run.local_model(&client.id, RoundId(1))?));
//! }
//! let round = ClearRound::new(run.architecture(), &test_set, models);
//! let everybody = (round.participants(), SampleSet::all(test_set.len()));
//! println!("{} of {} right", round.correct_samples(&[everybody])[0].len(), test_set.len());
//! # Ok(())
//! # }
//! ```
//!
//! It holds no cryptography, trains nothing, and values nobody.

mod aggregate;
mod architecture;
mod atomic_file;
pub mod clear;
mod collective;
mod error;
mod files;
mod ids;
mod labels;
mod layer_spec;
mod limits;
mod round_file;
mod run_directory;
mod sample_set;
pub mod skip;
mod spec;
mod test_set;
mod weights;

pub use aggregate::WeightedMean;
pub use architecture::{
    Activation, Architecture, BatchNorm, Conv2d, Embedding, Gru, Layer, LayerNorm, Linear, Lstm, PlacedLayer,
    Pool, Source, up_to_scores,
};
pub use atomic_file::{partial_path, rename_durably, write_atomically};
pub use collective::CollectiveTestSet;
pub use error::{Defect, Error};
pub use ids::{ClientId, ClientIdError, Coalition, MAX_CLIENTS, RoundId};
pub use labels::{LABELS_FILE, Labels};
pub use layer_spec::{BatchNormSpec, ConvolutionSpec, LayerSpec, NamedLayer, PoolSpec};
pub use limits::Limits;
pub use round_file::{Participant, ROUNDS, RoundFile, round_path};
pub use run_directory::{RunDirectory, RunWriter};
pub use sample_set::SampleSet;
pub use spec::{
    Aggregation, ClientSpec, FederationSpec, Layout, MAX_ROUNDS, MAX_WEIGHT, MIN_CLIENTS, MIN_WEIGHT,
    ModelSpec, RoundOverride,
};
pub use test_set::TestSet;
pub use weights::{Tensor, Weights};

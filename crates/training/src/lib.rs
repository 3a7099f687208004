//! Federated training: from a data set to the run directory that a federation leaves behind.
//!
//! Receives the name of a data set (two are embedded, five public ones and the user's own tables are read
//! from files), deals its samples to clients as the paper does, trains the paper's models by federated
//! averaging, plants faults where an experiment wants them, and hands on a run directory as
//! `secsv_federation` reads it. One seed decides everything: the same recipe gives the same files, byte for
//! byte, on the same kind of machine.
//!
//! ```
//! use secsv_training::{DatasetSource, LoadOptions, ModelKind, Recipe, Split, train};
//!
//! let source = DatasetSource::BreastCancer;
//! let dataset = source.load(&LoadOptions::default())?;
//! let silos = Split::Dirichlet { alpha: 0.5 }.deal(&dataset, 5, 0)?;
//! let mut recipe = Recipe::new(&source, ModelKind::Logistic, 0);
//! recipe.rounds = 2;
//!
//! let place = tempfile::tempdir()?;
//! let outcome = train(&dataset, &silos, &recipe, &place.path().join("run"), &|_| ())?;
//! assert_eq!(outcome.directory.spec().clients.len(), 5);
//! assert!(outcome.rounds[1].accuracy() > 0.9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It measures nobody's contribution and holds no cryptography: evaluation reads the run directory, not this
//! crate.

mod datasets;
mod error;
mod faults;
mod fedavg;
mod local;
mod models;
mod network;
mod participation;
mod product;
mod recipe;
mod samples;
mod seeds;
mod split;

pub use datasets::{BankAgeCodes, Dataset, DatasetSource, LoadOptions, Silo};
pub use error::TrainingError;
pub use faults::Fault;
pub use fedavg::{ClientOutcome, RoundOutcome, TrainingEvent, TrainingOutcome, train};
pub use local::{LocalTraining, Loss};
pub use models::{Blueprint, ModelKind};
pub use participation::Participation;
pub use recipe::Recipe;
pub use samples::{Samples, Standardiser};
pub use split::Split;

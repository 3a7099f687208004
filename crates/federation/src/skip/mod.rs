//! SampleSkip (the paper's Algorithms 5 and 6): a sample that two models predict right need not be tested on
//! their aggregate. For linear classifiers that is a theorem, for others nearly always true.
//!
//! One implementation for tests in the clear and for secure ones: [`SkipTable`] finds the samples to skip
//! from the sets that were predicted right, [`Lattice`] says which coalitions can be tested at the same time.

mod lattice;
mod table;

pub use lattice::Lattice;
pub use table::SkipTable;

use serde::{Deserialize, Serialize};

/// Whether samples are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), clap(rename_all = "lower"))]
pub enum SkipMode {
    /// Wherever the paper's rule allows it.
    On,
    /// Never.
    #[default]
    Off,
    /// Where the search for samples to skip costs less than it can save, and something is saved.
    Auto,
}

impl SkipMode {
    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

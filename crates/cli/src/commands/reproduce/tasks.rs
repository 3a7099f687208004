//! The paper's four tasks, and two embedded stand-ins that need no files.

use clap::ValueEnum;
use secsv_training::{DatasetSource, ModelKind};
use serde::{Deserialize, Serialize};

/// A data set and the model trained on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PaperTask {
    /// AG news, logistic.
    Agnews,
    /// Bank marketing, logistic.
    Bank,
    /// MNIST, CNN.
    Mnist,
    /// miRNA targets, GRU.
    Mirna,
    /// Embedded: breast cancer, logistic. Not in the paper.
    BreastCancer,
    /// Embedded: handwritten digits, CNN. Not in the paper.
    Digits,
}

impl PaperTask {
    /// In file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agnews => "agnews",
            Self::Bank => "bank",
            Self::Mnist => "mnist",
            Self::Mirna => "mirna",
            Self::BreastCancer => "breast-cancer",
            Self::Digits => "digits",
        }
    }

    /// In tables, as the paper writes it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Agnews => "AGNEWS (LOGI)",
            Self::Bank => "BANK (LOGI)",
            Self::Mnist => "MNIST (CNN)",
            Self::Mirna => "miRNA-mRNA (RNN)",
            Self::BreastCancer => "breast cancer (LOGI)",
            Self::Digits => "digits (CNN)",
        }
    }

    /// Where its samples come from.
    pub fn source(self) -> DatasetSource {
        match self {
            Self::Agnews => DatasetSource::Agnews,
            Self::Bank => DatasetSource::Bank,
            Self::Mnist => DatasetSource::Mnist,
            Self::Mirna => DatasetSource::Mirna,
            Self::BreastCancer => DatasetSource::BreastCancer,
            Self::Digits => DatasetSource::Digits,
        }
    }

    /// The paper's model for it.
    pub fn model(self) -> ModelKind {
        match self {
            Self::Agnews | Self::Bank | Self::BreastCancer => ModelKind::Logistic,
            Self::Mnist | Self::Digits => ModelKind::Cnn,
            Self::Mirna => ModelKind::Gru,
        }
    }

    /// Whether the whole model is linear: nothing can be skipped wrongly then.
    pub fn is_linear(self) -> bool {
        self.model() == ModelKind::Logistic
    }

    /// Whether the model has a recurrent unit.
    pub fn is_recurrent(self) -> bool {
        self.model() == ModelKind::Gru
    }

    /// Where our data are not the paper's.
    pub fn difference(self) -> Option<&'static str> {
        match self {
            Self::Agnews => Some(
                "AGNEWS: 42595 of 120000 training texts, skip-gram vectors trained on them instead of GloVe-300; the test set is the paper's",
            ),
            Self::Bank => None,
            Self::Mnist => None,
            Self::Mirna => Some(
                "miRNA: the paper's pairs are not public; these are CLASH pairs (miRBind), 4000 test samples against the paper's 3312, in our own encoding of the same shape",
            ),
            Self::BreastCancer | Self::Digits => Some("an embedded stand-in that the paper does not have"),
        }
    }
}

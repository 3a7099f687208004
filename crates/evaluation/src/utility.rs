//! What a coalition's model is worth: a number from how many samples of each class it predicts right.

use std::{fmt, str::FromStr};

use secsv_protocol::session::Settings;

use crate::Error;

/// A utility function (the paper's v).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Utility {
    /// Right samples over all samples.
    #[default]
    Accuracy,
    /// The mean over classes of the part of their samples that is predicted right. Classes without samples do not count.
    BalancedAccuracy,
    /// The part of one class's samples that is predicted right.
    Recall(usize),
    /// Of two classes, twice the right samples of class 1 over those and all samples that either are or are predicted of
    /// class 1.
    F1,
}

impl Utility {
    /// Whether it follows from the number of right samples alone.
    pub fn needs_classes(self) -> bool {
        self != Self::Accuracy
    }

    /// The same settings of a protocol with what this utility has to learn; refused where the protocol does not tell it.
    pub fn settings(self, settings: Settings) -> Result<Settings, Error> {
        let (utility, protocol) = (self, settings.protocol.name());
        match settings.protocol.rules().class_counts() {
            _ if !self.needs_classes() => Ok(settings),
            None => Err(Error::HiddenClasses { utility, protocol }),
            Some(_) if settings.always_skips => Err(Error::SkipsClasses { utility, protocol }),
            Some(_) => Ok(Settings { by_class: true, ..settings }),
        }
    }

    /// Refuses a utility that a model of so many classes does not have.
    pub fn check_classes(self, classes: usize) -> Result<(), Error> {
        let refuse = |expected: String| Err(Error::Utility { utility: self, expected });
        match self {
            Self::Recall(class) if class >= classes => {
                refuse(format!("a class from 0 to {}", classes.saturating_sub(1)))
            }
            Self::F1 if classes != 2 => refuse(format!("two classes where the model has {classes}")),
            _ => Ok(()),
        }
    }

    /// Refuses a utility that samples of these classes do not have.
    pub fn check(self, samples: &[usize]) -> Result<(), Error> {
        self.check_classes(samples.len())?;
        match self {
            Self::Recall(class) if samples[class] == 0 => {
                Err(Error::Utility { utility: self, expected: "a class with test samples".to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The utility of a model that predicts so many samples of each class right, of so many.
    pub fn value(self, right: &[usize], samples: &[usize]) -> f64 {
        let part = |class: usize| match (right.get(class), samples.get(class)) {
            (Some(&right), Some(&all)) if all > 0 => right as f64 / all as f64,
            _ => 0.0,
        };
        match self {
            Self::Accuracy => {
                right.iter().sum::<usize>() as f64 / samples.iter().sum::<usize>().max(1) as f64
            }
            Self::BalancedAccuracy => {
                let present: Vec<usize> = (0..samples.len()).filter(|&class| samples[class] > 0).collect();
                present.iter().map(|&class| part(class)).sum::<f64>() / present.len().max(1) as f64
            }
            Self::Recall(class) => part(class),
            Self::F1 => {
                let (&[negative, positive], &[negatives, positives]) = (right, samples) else { return 0.0 };
                let missed = positives.saturating_sub(positive) as f64;
                let false_alarms = negatives.saturating_sub(negative) as f64;
                let twice = 2.0 * positive as f64;
                let all = twice + missed + false_alarms;
                if all == 0.0 { 0.0 } else { twice / all }
            }
        }
    }
}

impl fmt::Display for Utility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accuracy => f.write_str("accuracy"),
            Self::BalancedAccuracy => f.write_str("balanced-accuracy"),
            Self::Recall(class) => write!(f, "recall={class}"),
            Self::F1 => f.write_str("f1"),
        }
    }
}

impl FromStr for Utility {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let class = text.strip_prefix("recall=").map(str::parse);
        match (text, class) {
            ("accuracy", _) => Ok(Self::Accuracy),
            ("balanced-accuracy", _) => Ok(Self::BalancedAccuracy),
            ("f1", _) => Ok(Self::F1),
            (_, Some(Ok(class))) => Ok(Self::Recall(class)),
            _ => Err(format!("expected accuracy, balanced-accuracy, recall=CLASS or f1, found {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilities_are_those_of_their_definitions() {
        let (right, samples) = ([90, 6], [100, 10]);
        assert_eq!(Utility::Accuracy.value(&right, &samples), 96.0 / 110.0);
        assert_eq!(Utility::BalancedAccuracy.value(&right, &samples), (0.9 + 0.6) / 2.0);
        assert_eq!(Utility::Recall(1).value(&right, &samples), 0.6);
        // Precision 6 of 16, recall 6 of 10.
        let (precision, recall) = (6.0 / 16.0, 0.6);
        let f1 = 2.0 * precision * recall / (precision + recall);
        assert!((Utility::F1.value(&right, &samples) - f1).abs() < 1e-15);
        assert_eq!(Utility::F1.value(&[5, 0], &[5, 0]), 0.0, "nobody is of class 1, or predicted to be");
        assert_eq!(Utility::BalancedAccuracy.value(&[1, 0, 3], &[2, 0, 3]), 0.75, "a class without samples");
    }

    #[test]
    fn names_are_read_back_and_what_does_not_fit_is_refused() {
        for utility in [Utility::Accuracy, Utility::BalancedAccuracy, Utility::Recall(7), Utility::F1] {
            assert_eq!(utility.to_string().parse(), Ok(utility));
        }
        for wrong in ["recall", "recall=", "recall=x", "auc", ""] {
            assert!(wrong.parse::<Utility>().is_err(), "{wrong}");
        }
        assert!(Utility::F1.check(&[1, 2]).is_ok() && Utility::F1.check(&[1, 2, 3]).is_err());
        assert!(Utility::Recall(1).check(&[1, 2]).is_ok());
        assert!(Utility::Recall(2).check(&[1, 2]).is_err() && Utility::Recall(0).check(&[0, 2]).is_err());
    }
}

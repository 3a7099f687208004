//! Limits that a consortium agrees on before its training ends: with them numbers have the same formats in every round.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Defect, Error};

/// The largest number a limit may be.
const MOST: f64 = (1u64 << 40) as f64;

/// What no round exceeds, whatever it brings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The most rounds: none after this one is valued.
    pub rounds: u32,
    /// In no row of a layer's weights, its bias included, do magnitudes add up to more.
    pub norm: f64,
    /// No number of a sample is larger.
    pub input: f64,
    /// No number between two layers is expected to be larger; models of one layer have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<f64>,
}

impl Limits {
    /// Refuses limits that bound nothing; `file` is named in errors.
    pub(crate) fn check(&self, most_rounds: u32, file: &Path) -> Result<(), Error> {
        if !(1..=most_rounds).contains(&self.rounds) {
            let defect = Defect::Range { least: 1, most: most_rounds.into(), found: self.rounds.into() };
            return Err(Error::defect(file, "limits.rounds", defect));
        }
        let of = [("norm", Some(self.norm)), ("input", Some(self.input)), ("hidden", self.hidden)];
        match of.into_iter().find(|(_, limit)| limit.is_some_and(|limit| !(limit > 0.0 && limit <= MOST))) {
            Some((name, found)) => {
                let defect = Defect::Limit { most: MOST, found: found.unwrap_or_default() };
                Err(Error::defect(file, format!("limits.{name}"), defect))
            }
            None => Ok(()),
        }
    }
}

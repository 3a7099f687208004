//! What everybody learns in the end.

use std::collections::BTreeMap;

use secsv_federation::ClientId;
use serde::{Deserialize, Serialize};

use crate::{Error, party::local};
use secsv_evaluation::{EvaluationResult, RoundResult, UtilityResult};

/// The values and the utilities behind them, as the principal tells everybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedValues {
    /// How models were tested.
    pub protocol: String,
    /// How values were computed from utilities.
    pub estimator: String,
    /// Whether any sample was skipped.
    pub skip: bool,
    /// All clients, in the order of `federation.toml`.
    pub clients: Vec<ClientId>,
    /// Each client's value over all rounds.
    pub fsv: BTreeMap<ClientId, f64>,
    /// Standard errors of these values, where they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<BTreeMap<ClientId, f64>>,
    /// Each client's value in each round.
    pub ssv: Vec<RoundResult>,
    /// Every coalition that was tested.
    pub utilities: Vec<UtilityResult>,
    /// What everything sampled followed from.
    pub seed: u64,
}

impl PublishedValues {
    /// What of a result everybody learns.
    pub fn of(result: &EvaluationResult) -> Self {
        Self {
            protocol: result.protocol.clone(),
            estimator: result.estimator.clone(),
            skip: result.skip,
            clients: result.clients.clone(),
            fsv: result.fsv.clone(),
            standard_error: result.standard_error.clone(),
            ssv: result.ssv.clone(),
            utilities: result.utilities.clone(),
            seed: result.seed,
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|_| local("values that can be written"))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|_| local("values that can be read"))
    }
}

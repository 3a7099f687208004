//! What everybody learns in the end.

use std::collections::BTreeMap;

use secsv_federation::ClientId;
use serde::{Deserialize, Serialize};

use crate::{Error, kit::Kit, party::local};
use secsv_evaluation::{
    EvaluationResult, ExposureResult, FederationFacts, Made, Operations, OverflowResult, RoundResult, SCHEMA,
    SecurityResult, Timing, Utility, UtilityResult, VERSION, exposure_result,
};
use secsv_protocol::exposure::Exposure;

/// The values and the utilities behind them, as the principal tells everybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedValues {
    /// How models were tested.
    pub protocol: String,
    /// How values were computed from utilities.
    pub estimator: String,
    /// What utilities are.
    #[serde(default = "accuracy", skip_serializing_if = "is_accuracy")]
    pub utility: String,
    /// Samples of each class, where utilities ask for classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_samples: Vec<usize>,
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
    /// Hidden numbers that left their ranges, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<OverflowResult>,
}

fn accuracy() -> String {
    Utility::Accuracy.to_string()
}

fn is_accuracy(utility: &str) -> bool {
    utility == accuracy()
}

/// What a kit says of the run that its values belong to.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// The federation.
    pub federation: FederationFacts,
    /// Who can do what with whose samples and models.
    pub exposure: ExposureResult,
}

impl RunFacts {
    /// The facts that stand in a kit.
    pub fn of(kit: &Kit) -> Result<Self, Error> {
        let spec = &kit.federation.federation;
        let labels = kit.labels()?;
        let exposure = exposure_result(&Exposure::new(&kit.session()?)?, spec, &labels);
        let federation = FederationFacts::new(spec, &[]).of(kit.whole()).labelled(&labels);
        Ok(Self { federation, exposure })
    }
}

impl PublishedValues {
    /// The result as far as every party can tell: what it cost, and what each party learned, stands in the principal's.
    pub fn into_result(self, facts: RunFacts, made_by: &str) -> EvaluationResult {
        let security = SecurityResult {
            trust: "What each party learned, and what the run cost, stands in the principal's result."
                .to_owned(),
            disclosures: Vec::new(),
            exposure: facts.exposure,
            statistical_bits_per_reply: None,
            replies: 0,
            statistical_claim: false,
            ranges: Vec::new(),
            approximate: None,
        };
        EvaluationResult {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            made: Some(Made::now(made_by)),
            federation: Some(facts.federation),
            protocol: self.protocol,
            estimator: self.estimator,
            utility: self.utility,
            class_samples: self.class_samples,
            skip: self.skip,
            clients: self.clients,
            fsv: self.fsv,
            standard_error: self.standard_error,
            test_noise: None,
            notes: Vec::new(),
            ssv: self.ssv,
            utilities: self.utilities,
            timing: Timing::default(),
            traffic: Vec::new(),
            operations: Operations::default(),
            parameters: None,
            seed: self.seed,
            security: Some(security),
            messages: Vec::new(),
            recount: None,
            overflows: self.overflows,
            peak_memory_bytes: None,
        }
    }

    /// What of a result everybody learns.
    pub fn of(result: &EvaluationResult) -> Self {
        Self {
            protocol: result.protocol.clone(),
            estimator: result.estimator.clone(),
            utility: result.utility.clone(),
            class_samples: result.class_samples.clone(),
            skip: result.skip,
            clients: result.clients.clone(),
            fsv: result.fsv.clone(),
            standard_error: result.standard_error.clone(),
            ssv: result.ssv.clone(),
            utilities: result.utilities.clone(),
            seed: result.seed,
            overflows: result.overflows.clone(),
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|_| local("values that can be written"))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|_| local("values that can be read"))
    }
}

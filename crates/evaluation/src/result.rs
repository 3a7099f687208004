//! What an evaluation hands out: the JSON document that outsiders read.

use std::collections::BTreeMap;

use secsv_federation::{ClientId, RoundId};
pub use secsv_protocol::Operations;

use serde::{Deserialize, Serialize};

use crate::{FederationFacts, Made, TestNoise, Utility, utility_table};

/// The values of every client, and everything they were computed from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationResult {
    /// What this document is: `secsv-result`.
    #[serde(default = "schema")]
    pub schema: String,
    /// Version of its form. The first had no number.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Who made it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// Which federation it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<FederationFacts>,
    /// How models were tested: `nssv`, `secsv`, `hesv` or `secretsv`.
    pub protocol: String,
    /// How values were computed from utilities.
    pub estimator: String,
    /// What utilities are: `accuracy`, `balanced-accuracy`, `recall=CLASS` or `f1`.
    #[serde(default = "accuracy", skip_serializing_if = "is_accuracy")]
    pub utility: String,
    /// Samples of each class, where utilities ask for classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_samples: Vec<usize>,
    /// Whether any sample was skipped.
    pub skip: bool,
    /// All clients, in the order of `federation.toml`.
    pub clients: Vec<ClientId>,
    /// Each client's value over all rounds (the paper's FSV).
    pub fsv: BTreeMap<ClientId, f64>,
    /// Standard errors of these values, where they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<BTreeMap<ClientId, f64>>,
    /// How far values would move with other test cases, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_noise: Option<TestNoise>,
    /// Sentences on what these numbers do not cover; absent where there is nothing to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Each client's value in each round (the paper's SSV); 0 where it took no part.
    pub ssv: Vec<RoundResult>,
    /// Every coalition that was tested, the empty one included, by round and ids.
    #[serde(with = "utility_table")]
    pub utilities: Vec<UtilityResult>,
    /// Where the time went.
    #[serde(default)]
    pub timing: Timing,
    /// Bytes between parties.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// Counted cryptographic operations.
    #[serde(default)]
    pub operations: Operations,
    /// The encryption's parameters; null without encryption.
    #[serde(default)]
    pub parameters: Option<EncryptionParameters>,
    /// What everything random followed from.
    pub seed: u64,
    /// Who learned what, and who can do what with it; absent in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<SecurityResult>,
    /// Bytes and messages by kind; absent in the clear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<KindTraffic>,
    /// How many counts the auxiliary confirms, where it is in the same process; elsewhere its own log says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recount: Option<Confirmation>,
    /// Hidden numbers that left their ranges; absent where none can, and where somebody reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<OverflowResult>,
    /// The most memory this process had at any time, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

fn accuracy() -> String {
    Utility::Accuracy.to_string()
}

fn is_accuracy(utility: &str) -> bool {
    utility == accuracy()
}

/// What the document of a result is called.
pub const SCHEMA: &str = "secsv-result";
/// The version of its form that is written.
pub const VERSION: u32 = 2;

fn schema() -> String {
    SCHEMA.to_owned()
}

fn first_version() -> u32 {
    1
}

impl EvaluationResult {
    /// What a tested coalition's model is worth.
    pub fn worth(&self, tested: &UtilityResult) -> f64 {
        match self.utility.parse::<Utility>() {
            Ok(utility) if utility.needs_classes() => {
                utility.value(&tested.correct_of_classes, &self.class_samples)
            }
            _ => tested.correct as f64 / tested.total.max(1) as f64,
        }
    }

    /// What to do about hidden numbers that left their ranges, in a sentence; none where none did.
    pub fn warning(&self) -> Option<String> {
        let OverflowResult { numbers, models } = self.overflows.as_ref()?;
        let first = models.first()?;
        let members: Vec<&str> = first.coalition.iter().map(|id| self.label(id)).collect();
        let (count, s) = (models.len(), if models.len() == 1 { "" } else { "s" });
        Some(format!(
            "{numbers} hidden numbers of {count} tested model{s} left the ranges that were measured, first in round {} with [{}]: these \
             counts, and values that follow from them, may be wrong; value again with --ranges proven, or with models and samples \
             that are more alike",
            first.round,
            members.join(", "),
        ))
    }

    /// What people call a class: its name, or its number.
    pub fn class(&self, class: usize) -> String {
        let named = self.federation.as_ref().and_then(|facts| facts.classes.get(class));
        named.cloned().unwrap_or_else(|| class.to_string())
    }

    /// Whether utilities are accuracies.
    pub fn is_of_accuracy(&self) -> bool {
        is_accuracy(&self.utility)
    }

    /// What people call a client: its label, or its id.
    pub fn label<'a>(&'a self, id: &'a ClientId) -> &'a str {
        self.called(id.as_str())
    }

    /// The same of any party by its name; servers are called by theirs.
    pub fn called<'a>(&'a self, party: &'a str) -> &'a str {
        let known = self.federation.iter().flat_map(|facts| &facts.organisations);
        let label = known.filter(|known| known.id.as_str() == party).find_map(|known| known.label.as_deref());
        label.unwrap_or(party)
    }
}

/// What a secure run disclosed, and to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecurityResult {
    /// What collusion would open.
    pub trust: String,
    /// Everything that parties learned.
    pub disclosures: Vec<DisclosureResult>,
    /// Who can do what with whose samples and models; absent in results of earlier versions.
    #[serde(default)]
    pub exposure: ExposureResult,
    /// Statistical distance of one reply to a decryptor, in bits, the least of all layers; null without replies.
    pub statistical_bits_per_reply: Option<u32>,
    /// Replies to decryptors in this run: it loses log2 of their number.
    pub replies: u64,
    /// Whether the parameters promise that distance.
    pub statistical_claim: bool,
    /// Ranges of hidden numbers, layer by layer; absent where somebody reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeResult>,
    /// Functions that are computed by straight pieces, and how often that gives the exact model's labels; absent where all are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approximate: Option<ApproximateResult>,
}

/// What is approximate in a model, and how well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApproximateResult {
    /// Functions that are computed by straight pieces, by name.
    pub functions: Vec<String>,
    /// Labels that owners compared, on their samples under models they know ...
    pub labels: u64,
    /// ... and those that are the exact model's.
    pub equal: u64,
    /// The same of a hundred.
    pub percent: f64,
}

/// How many hidden numbers left their ranges: the counts of these models, and values that follow from them, may be wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowResult {
    /// All of them, over all models and samples.
    pub numbers: u64,
    /// Models with any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<OverflowedModel>,
}

/// A model with hidden numbers out of range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowedModel {
    /// Which round.
    pub round: RoundId,
    /// The members.
    pub coalition: Vec<ClientId>,
    /// How many numbers, over all samples.
    pub numbers: u64,
}

/// The range that a layer's hidden outputs are held to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeResult {
    /// The layer with weights, counted from 1.
    pub layer: usize,
    /// `proven` by published norms, or `calibrated`: what owners measured under models they know, and two bits.
    pub bound: String,
    /// Outputs are at most two to this power ...
    pub bits: i32,
    /// ... and norms prove this power.
    pub proven_bits: i32,
    /// Bits after the point.
    pub fraction_bits: i32,
    /// Whether every number that leaves the range is counted; otherwise half of those may be missed that exceed it more than six times.
    pub counts_all: bool,
}

/// One thing that was learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisclosureResult {
    /// Who learned it.
    pub who: String,
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Who can do what with whose samples and models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposureResult {
    /// What holds for all of it, sentence by sentence.
    pub sentences: Vec<String>,
    /// Each client, several together, each server.
    pub rows: Vec<ExposureRow>,
}

/// What one party, or several together, can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposureRow {
    /// Who: a client by its id, or others in words.
    pub who: String,
    /// What people call it, if it is not by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// With other clients' samples: `nothing`, `can recognise` or `can rebuild`.
    pub samples: String,
    /// With other clients' models, in the same words.
    pub models: String,
    /// The same in one sentence.
    pub sentence: String,
}

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTraffic {
    /// The kind.
    pub kind: String,
    /// How many.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The values of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundResult {
    /// Which round.
    pub round: RoundId,
    /// Each client's value.
    pub values: BTreeMap<ClientId, f64>,
    /// Standard errors of these values, where they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<BTreeMap<ClientId, f64>>,
}

/// How one coalition's model did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UtilityResult {
    /// Which round.
    pub round: RoundId,
    /// The members, sorted.
    pub coalition: Vec<ClientId>,
    /// Samples predicted right; skipped ones count as right.
    pub correct: usize,
    /// Samples of all clients together.
    pub total: usize,
    /// Samples that were not skipped.
    pub tested: usize,
    /// Skipped samples that the model would have predicted wrong, where that was looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrongly_skipped: Option<usize>,
    /// Samples of each class predicted right, where utilities ask for classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub correct_of_classes: Vec<usize>,
}

/// Seconds: all of the evaluation, and the phases of secure tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// From the first file read to the last value.
    pub wall_s: f64,
    /// Encryption.
    pub encrypt_s: f64,
    /// Secret sharing.
    pub share_s: f64,
    /// Linear layers on ciphertexts or shares.
    pub linear_s: f64,
    /// Decryption.
    pub decrypt_s: f64,
    /// Activations, by the clients that decrypt.
    pub activate_s: f64,
    /// Re-randomising and flooding of replies.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sanitise_s: f64,
    /// Packing and unpacking of messages.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub codec_s: f64,
    /// Tests that owners do themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clear_s: f64,
}

/// Phases that only secure tests have are left out in the clear.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Bytes from one party to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Bytes of the messages' contents: what frames them is not counted, in one process or on a network.
    pub bytes: u64,
}

/// The encryption's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionParameters {
    /// Their name.
    pub preset: String,
    /// Ring degree.
    pub degree: usize,
    /// Bits of the ciphertext modulus.
    pub modulus_bits: u32,
    /// Bits of the plaintext modulus.
    pub plaintext_bits: u32,
    /// Bits of security.
    pub security_bits: u32,
}

/// How many of the counts that were told the auxiliary confirms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Counts that were told: one for each round and coalition.
    pub told: usize,
    /// Those that the auxiliary counted too, and found the same. Skipped samples are taken as right.
    pub confirmed: usize,
    /// Those that it found to be others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<Difference>,
    /// Clients whose commitments are not to what the principal opened: what they had a part in cannot be counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disputed: Vec<ClientId>,
}

/// A count that was told and is not what was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Which round.
    pub round: RoundId,
    /// The members.
    pub coalition: Vec<ClientId>,
    /// Samples predicted right, as the principal tells.
    pub told: usize,
    /// The same, as the auxiliary counted.
    pub counted: usize,
}

//! What sets the protocols apart, as facts: [`Protocol::rules`] chooses, everybody else asks for the fact it needs and never
//! which protocol it is. A protocol's facts are one file.

mod blindsv;
mod hesv;
mod secretsv;
mod secsv;
#[cfg(test)]
mod tests;
mod two_servers;

use std::{fmt, sync::Arc};

use secsv_federation::{Architecture, skip::SkipMode};
use secsv_he::{NoiseBound, Parameters, Preset, linear::Layout};
use serde::{Deserialize, Serialize};

use crate::{
    Error, PartyId, Program,
    disclosure::{Disclosure, Line, line},
    message::Kind,
};

/// The secure protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), clap(rename_all = "lower"))]
pub enum Protocol {
    /// The paper's, for deeper models: encrypted models, shared samples, two servers; clients decrypt, and can rebuild.
    SecSv,
    /// The paper's, where there is one server alone: everything encrypted, slow; clients decrypt, and can rebuild.
    Hesv,
    /// The paper's, the fastest for deeper models: models and samples shared by two servers; clients read outputs, and
    /// can rebuild.
    SecretSv,
    /// For linear layers and convolutions with pools, batch norm, piecewise-linear functions or squares between them, residual and
    /// dense nets among them: two servers compute under owners' masks, and nobody reads samples, models, activations or scores.
    BlindSv,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::SecSv, Self::Hesv, Self::SecretSv, Self::BlindSv];

    /// What holds under this protocol.
    pub fn rules(self) -> &'static dyn ProtocolRules {
        match self {
            Self::SecSv => &secsv::SecSv,
            Self::Hesv => &hesv::Hesv,
            Self::SecretSv => &secretsv::SecretSv,
            Self::BlindSv => &blindsv::BlindSv,
        }
    }

    /// The name on the command line, in files and in results.
    pub fn name(self) -> &'static str {
        self.rules().name()
    }

    /// Everything that is learned under it. `skips` says whether samples may be skipped, `by_class` whether right predictions are
    /// counted for each true class.
    pub fn disclosures(self, program: &Program, skips: bool, by_class: bool) -> Vec<Line> {
        let rules = self.rules();
        let mut lines = vec![line(
            Disclosure::Published,
            "everybody",
            match rules.has_decryptors() {
                true => {
                    "the model's architecture, training and test set sizes, who took part in which round, and for each layer and client one power of two that bounds its weights and one that bounds its activations"
                }
                false => {
                    "the model's architecture, training and test set sizes, who took part in which round, and for each layer and client one power of two that bounds its weights, one that bounds its inputs and, but for the last layer, one that bounds its outputs on some of this client's samples"
                }
            },
            "fixed-point formats that cannot overflow are chosen from them",
        )];
        lines.extend(rules.disclosures(program));
        if rules.deals(program.gru.is_some()) {
            lines.push(line(
                Disclosure::MaskedFactors,
                "both servers",
                "factors of products under one-time masks that a client dealt",
                "multiplication of shares; uniform to whoever does not hold the masks",
            ));
        }
        if rules.has_decryptors() {
            lines.push(line(
                Disclosure::Schedule,
                "owners, decryptors, dealers and counting clients of a test",
                "its whole plan: which coalitions are tested on which samples, and who decrypts",
                "a test is announced to all of them with all its units",
            ));
        }
        lines.extend(rules.skip_disclosure().filter(|_| skips));
        lines.extend(rules.class_counts().filter(|_| by_class).map(|counts| counts.line));
        if skips && rules.learns_each_prediction(true) {
            lines.push(line(Disclosure::Schedule, "owners, decryptors and the auxiliary", "how many samples, and which, are tested on a coalition or may still be on larger ones: it depends on which smaller coalitions were right", "SampleSkip saves their tests"));
        }
        lines.push(line(
            Disclosure::Values,
            "everybody",
            "every client's contribution and the utility of each tested coalition",
            "the purpose",
        ));
        lines
    }
}

/// Samples and owners that are few.
#[derive(Clone, Copy, Debug)]
pub struct FewSamples {
    /// Samples of all owners: fewer are few.
    pub samples: u64,
    /// Owners: fewer are few.
    pub owners: usize,
    /// What is said to whoever has not accepted it.
    pub refusal: &'static str,
}

/// What counting right predictions for each true class discloses.
#[derive(Clone, Copy, Debug)]
pub struct ClassCounts {
    /// Who learns what.
    pub line: Line,
    /// What the principal alone learns, in a sentence.
    pub alone: &'static str,
}

/// How encrypted matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), clap(rename_all = "lower"))]
pub enum Matmul {
    /// Coefficient packing.
    Packed,
    /// The paper's Matrix Reducing.
    Reducing,
    /// The paper's Matrix Squaring.
    Squaring,
}

impl Matmul {
    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Reducing => "reducing",
            Self::Squaring => "squaring",
        }
    }
}

/// What somebody can do, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Can {
    /// No more than without the session.
    Nothing,
    /// Tell whether a candidate is among them.
    Recognise,
    /// Compute them.
    Rebuild,
}

impl fmt::Display for Can {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Recognise => "can recognise",
            Self::Rebuild => "can rebuild",
        })
    }
}

/// What holds under one protocol.
pub trait ProtocolRules: Sync {
    /// The name on the command line, in files and in results.
    fn name(&self) -> &'static str;

    /// The byte in the encoding that a session's fingerprint is the digest of.
    fn session_byte(&self) -> u8;

    /// Servers that take part.
    fn servers(&self) -> &'static [PartyId];

    /// Kinds of messages that its sessions have.
    fn kinds(&self) -> &'static [&'static [Kind]];

    /// Matrix methods.
    fn matmuls(&self) -> Matmuls;

    /// What SampleSkip must be and why, where it cannot be this.
    fn skip_refusal(&self, _: SkipMode) -> Option<&'static str> {
        None
    }

    /// What is learned in addition where samples are skipped, if it is not learned anyway.
    fn skip_disclosure(&self) -> Option<Line> {
        None
    }

    /// What is learned where right predictions are counted for each true class; none where the protocol cannot.
    fn class_counts(&self) -> Option<ClassCounts> {
        None
    }

    /// How many samples and owners are few, where utilities of few tell what nothing else does.
    fn few_samples(&self) -> Option<FewSamples> {
        None
    }

    /// What is encrypted, if anything is; otherwise numbers are shared modulo 2^64.
    fn encryption(&self) -> Option<&'static dyn EncryptionRules> {
        None
    }

    /// Bits of words in which numbers are shared where nothing is encrypted, the narrowest first: the first that leaves enough
    /// fractional bits is taken.
    fn word_widths(&self) -> &'static [u32] {
        &[64]
    }

    /// What is computed together.
    fn batching(&self) -> Batching;

    /// Whether a client deals for each unit; `has_gru` says whether the model has a recurrent unit.
    fn deals(&self, has_gru: bool) -> bool;

    /// Whether clients decrypt: who does what is planned then, and it takes four of them.
    fn has_decryptors(&self) -> bool {
        true
    }

    /// The model as it tests it; models that it cannot test are refused, with the reason.
    fn program(&self, architecture: &Architecture) -> Result<Program, Error> {
        Program::new(architecture)
    }

    /// Whether one more client counts the right predictions of a unit.
    fn has_counting_client(&self) -> bool {
        false
    }

    /// What servers, decryptors and counting clients learn.
    fn disclosures(&self, program: &Program) -> Vec<Line>;

    /// What servers can do with samples and models, and the trust that this asks for.
    fn exposure(&self) -> ServerExposure;

    /// Whether there is a second server.
    fn has_auxiliary(&self) -> bool {
        self.servers().contains(&PartyId::Auxiliary)
    }

    /// Whether the second server counts for itself, to find a principal that reports other counts.
    fn recounts(&self) -> bool {
        self.has_auxiliary()
    }

    /// Whether servers learn which predictions are right, not only how many: SampleSkip needs that. `skips` says whether it was
    /// asked for.
    fn learns_each_prediction(&self, skips: bool) -> bool {
        let mode = if skips { SkipMode::On } else { SkipMode::Auto };
        self.skip_refusal(mode).is_none()
    }
}

/// What holds of a protocol's encryption.
pub trait EncryptionRules: Sync {
    /// Refuses presets that have no room for its products.
    fn check_preset(&self, _: Preset) -> Result<(), Error> {
        Ok(())
    }

    /// The scheme's parameters.
    fn parameters(&self, preset: Preset) -> Result<Arc<Parameters>, Error>;

    /// A bound on the noise of one layer's outputs, if the layer can be computed.
    fn noise(&self, layout: &Layout) -> Result<NoiseBound, Error>;
}

/// Matrix methods of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Matmuls {
    /// The one that is taken where none is named.
    pub usual: Matmul,
    /// All of them.
    pub all: &'static [Matmul],
    /// All of them in words, and why no others.
    pub expected: &'static str,
}

impl Matmuls {
    /// Whether coefficient packing is among them, by far the fastest.
    pub fn has_packing(&self) -> bool {
        self.all.contains(&Matmul::Packed)
    }
}

/// What a protocol computes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Whether samples of several owners may share a batch.
    pub mixes_owners: bool,
    /// Whether several models can be tested together.
    pub tests_together: bool,
    /// Whether samples that SampleSkip leaves are gathered in fewer batches.
    pub gathers: bool,
}

/// What servers can do under a protocol.
#[derive(Clone, Copy, Debug)]
pub struct ServerExposure {
    /// The principal alone, the auxiliary alone: what they learn, in a sentence. They can do nothing.
    pub alone: [&'static str; 2],
    /// A client with the principal, a client with the auxiliary, both servers: what they can do with samples and models.
    pub together: [(Can, Can); 3],
    /// The same in a sentence each.
    pub said: [&'static str; 3],
    /// A server that aggregated the training: what it can do with samples and models, in words and in a sentence.
    pub aggregator: (Can, Can, &'static str),
    /// Several clients without a server: who, what they can do with samples and models, in words and in a sentence.
    pub clients: (&'static str, Can, Can, &'static str),
    /// What collusion opens: the ladder of trust.
    pub trust: &'static str,
    /// Who could see models and test cases, for readers of a report.
    pub brief: &'static str,
}

/// Who must not run a server where servers learn which predictions are right, or how many of each owner's are.
const NO_AGGREGATOR: (Can, Can, &str) = (
    Can::Recognise,
    Can::Rebuild,
    "No server may be run by whoever aggregated the training: it knows all models, and can recognise samples by what it learns of right predictions.",
);

/// Kinds that every protocol has.
const COMMON_KINDS: &[Kind] = &[
    Kind::ClientHello,
    Kind::Session,
    Kind::SealedClientKeys,
    Kind::RoundStart,
    Kind::Test,
    Kind::OwnTest,
    Kind::Values,
];

/// Clients together, where some of them decrypt.
const TWO_CLIENTS: (&str, Can, Can, &str) = (
    "any two clients",
    Can::Rebuild,
    Can::Rebuild,
    "Any two clients together can rebuild whatever either of them can, and what follows from both.",
);

/// Kinds of protocols that encrypt models.
const ENCRYPTED_MODEL_KINDS: &[Kind] = &[Kind::Model, Kind::Reply, Kind::PublicKey];

//! The protocols by the names that the command line and results have for them.

use clap::{Args, ValueEnum, builder::PossibleValue};
use secsv_evaluation::EvaluationResult;
use secsv_federation::RunDirectory;
use secsv_protocol::{decryptors::Protocol, rules::ProtocolRules, session::Federation};

use crate::failure::BadInput;

/// How models are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolName {
    /// In the clear, without any protection: what the secure protocols are measured against.
    Nssv,
    /// By a secure protocol.
    Secure(Protocol),
}

/// The argument that chooses a protocol.
#[derive(Args, Clone, Copy)]
pub struct ProtocolArg {
    /// How models are tested [default: blindsv, where it can test the model]
    #[arg(long, value_enum)]
    pub protocol: Option<ProtocolName>,
}

/// The same where there must be parties: nothing is shared, sent or disclosed in the clear.
#[derive(Args, Clone, Copy)]
pub struct SecureProtocolArg {
    /// How models are tested [default: blindsv, where it can test the model]
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
}

impl SecureProtocolArg {
    /// The protocol that is named, or the default ([`ProtocolArg::of`]).
    pub fn of(self, run: &RunDirectory) -> Result<Protocol, BadInput> {
        let protocol = self.protocol.map(ProtocolName::Secure);
        let chosen = ProtocolArg { protocol }.of(run)?;
        chosen.secure().ok_or_else(|| BadInput::new("--protocol", "a protocol with parties", chosen.name()))
    }
}

impl ProtocolArg {
    /// The protocol that is named, or the default. A model that the default cannot test has none: under the other protocols
    /// clients can rebuild samples and models, so whoever takes one says which.
    pub fn of(self, run: &RunDirectory) -> Result<ProtocolName, BadInput> {
        match (self.protocol, ProtocolName::DEFAULT.check(run)) {
            (Some(named), _) => Ok(named),
            (None, Ok(())) => Ok(ProtocolName::DEFAULT),
            (None, Err(why)) => Err(BadInput::new(
                "--protocol",
                "secsv, hesv or secretsv by name, because clients who decrypt can rebuild other clients' samples and models \
                 (secsv plan RUN --protocol NAME says whose)",
                format!("none, and the default cannot be taken: {why}"),
            )),
        }
    }
}

impl ProtocolName {
    /// The one that is taken where none is named.
    pub const DEFAULT: Self = Self::BLINDSV;
    /// BlindSV.
    pub const BLINDSV: Self = Self::Secure(Protocol::BlindSv);
    /// SecSV.
    pub const SECSV: Self = Self::Secure(Protocol::SecSv);
    /// HESV.
    pub const HESV: Self = Self::Secure(Protocol::Hesv);
    /// SecretSV.
    pub const SECRETSV: Self = Self::Secure(Protocol::SecretSv);

    /// The protocol, if it is a secure one.
    pub fn secure(self) -> Option<Protocol> {
        match self {
            Self::Nssv => None,
            Self::Secure(protocol) => Some(protocol),
        }
    }

    /// Refuses a run whose model it cannot test, with the reason.
    pub fn check(self, run: &RunDirectory) -> Result<(), secsv_protocol::Error> {
        let clients = run.spec().clients.len();
        let checked = self.secure().map(|p| Federation::check_model(p, run.architecture(), clients));
        checked.transpose().map(drop)
    }

    /// What holds under it, if it is a secure one.
    pub fn rules(self) -> Option<&'static dyn ProtocolRules> {
        self.secure().map(Protocol::rules)
    }

    /// Whether nobody reads hidden numbers.
    pub fn hides_numbers(self) -> bool {
        self.rules().is_some_and(|rules| !rules.has_decryptors())
    }

    /// Whether it encrypts.
    pub fn encrypts(self) -> bool {
        self.rules().is_some_and(|rules| rules.encryption().is_some())
    }

    /// Whether it is a secure one that cannot pack encrypted matrices: large models take it hours.
    pub fn lacks_packing(self) -> bool {
        self.rules().is_some_and(|rules| !rules.matmuls().has_packing())
    }

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nssv => "nssv",
            Self::Secure(protocol) => protocol.name(),
        }
    }

    /// The protocol of a result; none if it has a name that is not known here.
    pub fn of(result: &EvaluationResult) -> Option<Self> {
        Self::value_variants().iter().copied().find(|protocol| protocol.name() == result.protocol)
    }
}

impl ValueEnum for ProtocolName {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::BLINDSV, Self::SECSV, Self::HESV, Self::SECRETSV, Self::Nssv]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Nssv => Some(PossibleValue::new(self.name()).help(
                "In the clear, without any protection: what the secure protocols are measured against",
            )),
            Self::Secure(protocol) => protocol.to_possible_value(),
        }
    }
}

//! The protocols by the names that the command line and results have for them.

use clap::{ValueEnum, builder::PossibleValue};
use secsv_evaluation::EvaluationResult;
use secsv_protocol::{decryptors::Protocol, rules::ProtocolRules};

/// How models are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolName {
    /// In the clear, without any protection: what the secure protocols are measured against.
    Nssv,
    /// By a secure protocol.
    Secure(Protocol),
}

impl ProtocolName {
    /// BlindSV.
    pub const BLINDSV: Self = Self::Secure(Protocol::BlindSv);
    /// SecSV, the default.
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

    /// What holds under it, if it is a secure one.
    pub fn rules(self) -> Option<&'static dyn ProtocolRules> {
        self.secure().map(Protocol::rules)
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
        &[Self::Nssv, Self::BLINDSV, Self::SECSV, Self::HESV, Self::SECRETSV]
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

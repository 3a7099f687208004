//! Which protocol, under which parameters: what `evaluate`, `compare`, `plan` and `demo` have in common.

use std::path::Path;

use clap::{Args, ValueEnum};
use rand::{TryRngCore, rngs::OsRng};
use secsv_evaluation::{
    ClearEvaluator, CumulativeEvaluator, EvaluationResult, EvaluationSettings, SecureEvaluator, evaluate,
    in_process::Honest,
};
use secsv_federation::{CollectiveTestSet, RunDirectory, skip::SkipMode};
use secsv_protocol::{
    Preset, Seed,
    decryptors::Protocol,
    session::{Matmul, Settings, typical_costs},
};
use secsv_shapley::Method;
use serde::{Deserialize, Serialize};

use crate::{failure::BadInput, output::Progress};

/// How models are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolName {
    /// In the clear, without any protection: what the secure protocols are measured against.
    Nssv,
    /// Encrypted models, shared test data, two servers.
    Secsv,
    /// Everything encrypted, one server.
    Hesv,
    /// Shared models and test data, two servers.
    Secretsv,
}

impl ProtocolName {
    /// The protocol, if it is a secure one.
    pub fn secure(self) -> Option<Protocol> {
        match self {
            Self::Nssv => None,
            Self::Secsv => Some(Protocol::SecSv),
            Self::Hesv => Some(Protocol::Hesv),
            Self::Secretsv => Some(Protocol::SecretSv),
        }
    }
}

/// Parameters of the encryption.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PresetName {
    /// Replies flooded to at least 40 bits of statistical distance.
    Standard,
    /// Half the size, no statistical claim.
    Compact,
}

/// How encrypted matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MatmulName {
    /// Coefficient packing.
    Packed,
    /// The paper's Matrix Reducing.
    Reducing,
    /// The paper's Matrix Squaring.
    Squaring,
}

/// Arguments about encryption.
#[derive(Args, Clone, Copy, Debug)]
pub struct EncryptionArgs {
    /// Parameters of the encryption.
    #[arg(long, value_enum, default_value_t = PresetName::Standard)]
    preset: PresetName,
    /// How encrypted matrices are multiplied [default: packed; hesv: squaring]
    #[arg(long, value_enum)]
    matmul: Option<MatmulName>,
}

impl EncryptionArgs {
    /// The usual ones.
    pub const USUAL: Self = Self { preset: PresetName::Standard, matmul: None };

    /// The usual ones, with a matrix method.
    pub const fn with(matmul: Option<MatmulName>) -> Self {
        Self { matmul, ..Self::USUAL }
    }

    /// The same, with a matrix method HESV has.
    pub fn for_hesv(self) -> Self {
        let matmul = self.matmul.filter(|matmul| !matches!(matmul, MatmulName::Packed));
        Self { matmul, ..self }
    }

    /// The settings of a secure protocol.
    pub fn settings(self, protocol: Protocol, skip: SkipMode, method: Method) -> Result<Settings, BadInput> {
        let preset = match self.preset {
            PresetName::Standard => Preset::Standard,
            PresetName::Compact => Preset::Compact,
        };
        let matmul = match (self.matmul, protocol) {
            (Some(MatmulName::Packed), Protocol::Hesv) => {
                return Err(BadInput {
                    setting: "--matmul",
                    expected: "squaring or reducing with hesv: packing is for half-encrypted products",
                    found: "packed".to_owned(),
                });
            }
            (Some(MatmulName::Squaring), Protocol::SecSv) => {
                return Err(BadInput {
                    setting: "--matmul",
                    expected: "packed or reducing with secsv: rotations leave too little room for flooding",
                    found: "squaring".to_owned(),
                });
            }
            (Some(MatmulName::Packed), _) => Matmul::Packed,
            (Some(MatmulName::Reducing), _) => Matmul::Reducing,
            (Some(MatmulName::Squaring), _) => Matmul::Squaring,
            (None, Protocol::Hesv) => Matmul::Squaring,
            (None, _) => Matmul::Packed,
        };
        let (always_skips, whole_rounds) = (skip == SkipMode::On, method.asks_for_all());
        Ok(Settings { protocol, preset, matmul, always_skips, whole_rounds })
    }
}

/// 32 bytes from the operating system.
pub fn fresh_seed() -> anyhow::Result<Seed> {
    let mut bytes = [0; 32];
    OsRng.try_fill_bytes(&mut bytes)?;
    Ok(Seed::from_bytes(bytes))
}

/// Values every client of a run that has been checked.
pub fn evaluate_run(
    run: &RunDirectory,
    protocol: ProtocolName,
    encryption: EncryptionArgs,
    settings: &EvaluationSettings,
) -> anyhow::Result<EvaluationResult> {
    evaluate_with_views(run, protocol, encryption, settings, None)
}

/// The same, and writes what each party saw to a directory.
pub fn evaluate_with_views(
    run: &RunDirectory,
    protocol: ProtocolName,
    encryption: EncryptionArgs,
    settings: &EvaluationSettings,
    views: Option<&Path>,
) -> anyhow::Result<EvaluationResult> {
    let bar = Progress::new("coalitions", 0);
    let observe = |progress: secsv_evaluation::Progress| {
        #[derive(Serialize)]
        struct Step {
            event: &'static str,
            round: u32,
            tested: usize,
            asked: usize,
        }
        let secsv_evaluation::Progress { round, tested, asked } = progress;
        bar.advance(tested as u64, asked as u64);
        bar.note(format!("round {round}"), &Step { event: "tested", round: round.0, tested, asked });
    };
    let result = match protocol.secure() {
        None => nssv(run, settings, observe)?,
        Some(protocol) => {
            check_skip(protocol, settings)?;
            let chosen = encryption.settings(protocol, settings.skip, settings.method)?;
            let costs = Some(typical_costs(chosen.preset));
            let mut evaluator = match views {
                None => SecureEvaluator::new(run, chosen, costs, &fresh_seed()?, Box::new(Honest))?,
                Some(_) => SecureEvaluator::recorded(run, chosen, costs, &fresh_seed()?)?,
            };
            let mut result = evaluate(run.spec(), &mut evaluator, settings, observe)?;
            evaluator.account_for(run.spec(), &mut result);
            if let Some(directory) = views {
                evaluator.views(run.spec())?.write(directory)?;
            }
            result
        }
    };
    bar.finish();
    Ok(result)
}

/// What a secure protocol cannot do.
pub fn check_skip(protocol: Protocol, settings: &EvaluationSettings) -> Result<(), BadInput> {
    if protocol == Protocol::Hesv && settings.skip != SkipMode::Off {
        return Err(BadInput {
            setting: "--skip",
            expected: "off with hesv: its server learns counts, not which samples are right",
            found: format!("{:?}", settings.skip).to_lowercase(),
        });
    }
    if settings.method.needs_cumulative_models() {
        return Err(BadInput {
            setting: "--estimator",
            expected: "one that values each round: accumulated models exist in the clear alone (--protocol nssv)",
            found: settings.method.name().to_owned(),
        });
    }
    Ok(())
}

fn nssv(
    run: &RunDirectory,
    settings: &EvaluationSettings,
    observe: impl FnMut(secsv_evaluation::Progress),
) -> anyhow::Result<EvaluationResult> {
    let test_set = CollectiveTestSet::read(run)?;
    Ok(if settings.method.needs_cumulative_models() {
        evaluate(run.spec(), &mut CumulativeEvaluator::new(run, &test_set)?, settings, observe)?
    } else {
        evaluate(run.spec(), &mut ClearEvaluator::new(run, &test_set), settings, observe)?
    })
}

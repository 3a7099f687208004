//! Which protocol, under which parameters: what `evaluate`, `compare`, `plan` and `demo` have in common.

use std::path::Path;

use clap::Args;
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
use serde::Serialize;

use crate::{failure::BadInput, progress::ProgressReport, protocol_name::ProtocolName};

/// Arguments about encryption.
#[derive(Args, Clone, Copy, Debug)]
pub struct EncryptionArgs {
    /// Parameters of the encryption.
    #[arg(long, value_enum, default_value_t = Preset::Standard)]
    preset: Preset,
    /// How encrypted matrices are multiplied [default: packed; hesv: squaring]
    #[arg(long, value_enum)]
    matmul: Option<Matmul>,
}

impl EncryptionArgs {
    /// The usual ones.
    pub const USUAL: Self = Self { preset: Preset::Standard, matmul: None };

    /// The usual ones, with a matrix method.
    pub const fn with(matmul: Option<Matmul>) -> Self {
        Self { matmul, ..Self::USUAL }
    }

    /// The same without packing.
    pub fn unpacked(self) -> Self {
        let matmul = self.matmul.filter(|matmul| !matches!(matmul, Matmul::Packed));
        Self { matmul, ..self }
    }

    /// The settings of a secure protocol, if they go together.
    pub fn settings(self, protocol: Protocol, skip: SkipMode, method: Method) -> Result<Settings, BadInput> {
        Ok(Settings::new(protocol, self.preset, self.matmul, skip, method.asks_for_all())?)
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
    let bar = ProgressReport::new("coalitions", 0);
    let observe = |progress: secsv_evaluation::Progress| {
        #[derive(Serialize)]
        struct TestedNote {
            event: &'static str,
            round: u32,
            tested: usize,
            asked: usize,
        }
        let secsv_evaluation::Progress { round, tested, asked } = progress;
        bar.advance(tested as u64, asked as u64);
        bar.note(format!("round {round}"), &TestedNote { event: "tested", round: round.0, tested, asked });
    };
    let result = match protocol.secure() {
        None => nssv(run, settings, observe)?,
        Some(protocol) => {
            check_estimator(settings)?;
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

/// Refuses estimators that need models which no secure protocol has.
pub fn check_estimator(settings: &EvaluationSettings) -> Result<(), BadInput> {
    if settings.method.needs_cumulative_models() {
        return Err(BadInput::new(
            "--estimator",
            "one that values each round: accumulated models exist in the clear alone (--protocol nssv)",
            settings.method.name().to_owned(),
        ));
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

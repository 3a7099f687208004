//! Which protocol, under which parameters: what `evaluate`, `compare`, `plan` and `demo` have in common.

use std::{path::Path, sync::atomic::AtomicBool};

use clap::Args;
use rand::{TryRngCore, rngs::OsRng};
use secsv_evaluation::{
    ApproximateResult, ClearEvaluator, CumulativeEvaluator, EvaluationResult, EvaluationSettings,
    FederationFacts, Made, Progress, SecureEvaluator, evaluate, in_process::Honest,
};
use secsv_federation::{CollectiveTestSet, Labels, RunDirectory, skip::SkipMode};
use secsv_protocol::{
    Preset, Seed,
    decryptors::Protocol,
    session::{HiddenSettings, Matmul, RangeRule, Settings, typical_costs},
};
use secsv_shapley::Method;

use crate::{
    failure::BadInput, output::say, program, progress::ProgressReport, protocol_name::ProtocolName,
    stoppable::Stoppable,
};

/// Arguments about encryption.
#[derive(Args, Clone, Copy, Debug)]
pub struct EncryptionArgs {
    /// Parameters of the encryption, where the protocol encrypts [default: standard]
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// How encrypted matrices are multiplied [default: packed; hesv: squaring]
    #[arg(long, value_enum)]
    matmul: Option<Matmul>,
    /// Which bounds hidden numbers are held to, where nobody reads them (blindsv) [default: auto]
    #[arg(long, value_enum)]
    ranges: Option<RangeRule>,
    /// Count hidden numbers out of their ranges where norms prove that there are none, too (blindsv). They are always counted where
    /// bounds are only measured.
    #[arg(long)]
    check_ranges: bool,
    /// Labels in a hundred that a model with functions by straight pieces (sigmoid, tanh, gelu, silu, elu) must share with the exact
    /// model, at least, on owners' samples under models they know (blindsv) [default: 99.5]
    #[arg(long, value_name = "PERCENT")]
    agreement: Option<f64>,
}

impl EncryptionArgs {
    /// The usual ones.
    pub const USUAL: Self =
        Self { preset: None, matmul: None, ranges: None, check_ranges: false, agreement: None };

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
        let preset = self.preset.unwrap_or(Preset::Standard);
        let settings = Settings::new(protocol, preset, self.matmul, skip, method.asks_for_all())?;
        if protocol.rules().has_decryptors() {
            return Ok(settings);
        }
        let usual = HiddenSettings::USUAL;
        let agreement = self.agreement.map(ten_thousandths).transpose()?.unwrap_or(usual.agreement);
        let ranges = self.ranges.unwrap_or_default();
        Ok(settings.with_hidden(HiddenSettings { ranges, checks_all: self.check_ranges, agreement })?)
    }

    /// Refuses settings that are of no use under these protocols: whoever gives them expects something of them.
    pub fn check_used(self, protocols: &[ProtocolName]) -> Result<(), BadInput> {
        let names = || protocols.iter().map(|protocol| protocol.name()).collect::<Vec<_>>().join(", ");
        let hides = protocols.iter().any(|protocol| protocol.hides_numbers());
        for (setting, is_given) in [
            ("--ranges", self.ranges.is_some()),
            ("--check-ranges", self.check_ranges),
            ("--agreement", self.agreement.is_some()),
        ] {
            if is_given && !hides {
                return Err(BadInput::new(setting, "a protocol that hides all numbers (blindsv)", names()));
            }
        }
        if protocols.iter().any(|protocol| protocol.encrypts()) {
            return Ok(());
        }
        let setting = match (self.preset, self.matmul) {
            (Some(_), _) => "--preset",
            (None, Some(_)) => "--matmul",
            (None, None) => return Ok(()),
        };
        Err(BadInput::new(setting, "a protocol that encrypts (secsv, hesv)", names()))
    }
}

/// A percentage in ten-thousandths.
fn ten_thousandths(percent: f64) -> Result<u16, BadInput> {
    match (0.0..=100.0).contains(&percent) {
        true => Ok((100.0 * percent).round() as u16),
        false => Err(BadInput::new("--agreement", "a percentage from 0 to 100", percent.to_string())),
    }
}

/// How often functions by straight pieces give the exact model's labels, in a sentence.
pub fn agreement(approximate: &ApproximateResult) -> String {
    let ApproximateResult { functions, labels, equal, percent } = approximate;
    format!(
        "approximate: {} by straight pieces; the exact model gives the same label {equal} times in {labels} ({percent:.2} %), on owners' \
         samples under models they know",
        functions.join(", ")
    )
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
    let bar = ProgressReport::new(protocol.name(), "models", 0);
    let observe = |progress: Progress| bar.advance(progress.tested as u64, progress.asked as u64);
    let result =
        evaluate_watched(run, protocol, encryption, settings, views, observe, &AtomicBool::new(false))?;
    bar.finish();
    Ok(result)
}

/// The same, with somebody who watches and may stop it.
pub fn evaluate_watched(
    run: &RunDirectory,
    protocol: ProtocolName,
    encryption: EncryptionArgs,
    settings: &EvaluationSettings,
    views: Option<&Path>,
    observe: impl FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<EvaluationResult> {
    let labels = Labels::read(run.path(), run.spec())?;
    let mut result = match protocol.secure() {
        None => nssv(run, settings, observe, stop)?,
        Some(protocol) => {
            check_estimator(settings)?;
            let chosen = encryption.settings(protocol, settings.skip, settings.method)?;
            let chosen = settings.utility.settings(chosen)?;
            let costs = Some(typical_costs(chosen.preset));
            let mut evaluator = match views {
                None => SecureEvaluator::new(run, chosen, costs, &fresh_seed()?, Box::new(Honest))?,
                Some(_) => SecureEvaluator::recorded(run, chosen, costs, &fresh_seed()?)?,
            };
            if let Some(approximate) = evaluator.approximate()? {
                say(format_args!("{}", agreement(&approximate)));
            }
            let mut result =
                evaluate(run.spec(), &mut Stoppable::new(&mut evaluator, stop), settings, observe)?;
            evaluator.account_for(run.spec(), &labels, &mut result);
            if let Some(directory) = views {
                evaluator.views(run.spec())?.write(directory)?;
            }
            result
        }
    };
    result.made = Some(Made::now(program()));
    let samples: Result<Vec<_>, _> =
        run.spec().ids().map(|id| run.test_set(id).map(|test_set| Some(test_set.len() as u64))).collect();
    let facts = FederationFacts::new(run.spec(), &samples?);
    result.federation = Some(facts.labelled(&labels));
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
    observe: impl FnMut(Progress),
    stop: &AtomicBool,
) -> anyhow::Result<EvaluationResult> {
    let test_set = CollectiveTestSet::read(run)?;
    Ok(if settings.method.needs_cumulative_models() {
        let mut evaluator = CumulativeEvaluator::new(run, &test_set)?;
        evaluate(run.spec(), &mut Stoppable::new(&mut evaluator, stop), settings, observe)?
    } else {
        let mut evaluator = ClearEvaluator::new(run, &test_set);
        evaluate(run.spec(), &mut Stoppable::new(&mut evaluator, stop), settings, observe)?
    })
}

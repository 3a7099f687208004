//! Utilities of classes beside an independent computation: NumPy's counts of a recorded run (`recorded/README.md`), in the clear and
//! under BlindSV. A failure is a count of a class that differs, or a value.

use std::{collections::BTreeMap, path::Path};

use secsv_evaluation::{
    ClearEvaluator, Error, EvaluationResult, EvaluationSettings, SecureEvaluator, Utility, evaluate,
    in_process::Honest,
};
use secsv_federation::{CollectiveTestSet, RunDirectory, skip::SkipMode};
use secsv_protocol::{Preset, Seed, decryptors::Protocol, session::Matmul};
use serde::Deserialize;

use crate::federations::settings;

/// What NumPy counted.
#[derive(Deserialize)]
struct Counts {
    samples: Vec<usize>,
    right: BTreeMap<String, Vec<usize>>,
    values: BTreeMap<String, f64>,
}

fn recorded() -> (RunDirectory, Counts) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let run = RunDirectory::open(path.join("breast_cancer")).unwrap();
    run.check().unwrap();
    let counts = std::fs::read(path.join("breast_cancer.counts.json")).unwrap();
    (run, serde_json::from_slice(&counts).unwrap())
}

fn of_utility(utility: Utility) -> EvaluationSettings {
    EvaluationSettings { utility, ..EvaluationSettings::default() }
}

fn hidden(run: &RunDirectory, protocol: Protocol, utility: Utility) -> Result<EvaluationResult, Error> {
    let chosen = utility.settings(settings(protocol, Preset::Standard, Matmul::Packed))?;
    let seed = Seed::from_bytes([4; 32]);
    let mut evaluator = SecureEvaluator::new(run, chosen, None, &seed, Box::new(Honest))?;
    evaluate(run.spec(), &mut evaluator, &of_utility(utility), |_| {})
}

fn clear(run: &RunDirectory, utility: Utility) -> EvaluationResult {
    let samples = CollectiveTestSet::read(run).unwrap();
    evaluate(run.spec(), &mut ClearEvaluator::new(run, &samples), &of_utility(utility), |_| {}).unwrap()
}

/// What a model is worth that predicts so many of each of two classes right, by its definition.
fn worth(utility: Utility, right: &[usize], samples: &[usize]) -> f64 {
    let part = |class: usize| right[class] as f64 / samples[class] as f64;
    let called = right[1] + samples[0] - right[0];
    match utility {
        Utility::Accuracy => (right[0] + right[1]) as f64 / (samples[0] + samples[1]) as f64,
        Utility::BalancedAccuracy => (part(0) + part(1)) / 2.0,
        Utility::Recall(class) => part(class),
        Utility::F1 => 2.0 * right[1] as f64 / (samples[1] + called) as f64,
    }
}

#[test]
fn counts_of_each_class_are_those_of_numpy() {
    let (run, expected) = recorded();
    let utility = Utility::BalancedAccuracy;
    for result in [clear(&run, utility), hidden(&run, Protocol::BlindSv, utility).unwrap()] {
        assert_eq!((result.utility.parse(), &result.class_samples), (Ok(utility), &expected.samples));
        for found in &result.utilities {
            let members: Vec<&str> = found.coalition.iter().map(|id| id.as_str()).collect();
            // Nobody's model of a later round is everybody's of the round before.
            let key = match (found.round.0, members.is_empty()) {
                (round, true) if round > 1 => format!("{}:{}", round - 1, names(&run)),
                (round, _) => format!("{round}:{}", members.join(",")),
            };
            assert_eq!(found.correct_of_classes, expected.right[&key], "{}: {key}", result.protocol);
        }
        for (client, value) in &expected.values {
            let found = result.fsv.iter().find(|(id, _)| id.as_str() == client).map(|(_, value)| *value);
            assert!(found.is_some_and(|found| (found - value).abs() < 1e-12), "{client}: {found:?} {value}");
        }
    }
}

fn names(run: &RunDirectory) -> String {
    let mut names: Vec<&str> = run.spec().ids().map(|id| id.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

#[test]
fn every_utility_of_classes_is_the_one_in_the_clear() {
    let (run, expected) = recorded();
    for utility in [Utility::BalancedAccuracy, Utility::Recall(0), Utility::Recall(1), Utility::F1] {
        let (clear, hidden) = (clear(&run, utility), hidden(&run, Protocol::BlindSv, utility).unwrap());
        assert_eq!((&clear.fsv, &clear.utilities), (&hidden.fsv, &hidden.utilities), "{utility}");
        let everybody = &expected.right[&format!("2:{}", names(&run))];
        let gained = worth(utility, everybody, &expected.samples)
            - worth(utility, &expected.right["1:"], &expected.samples);
        let sum: f64 = hidden.fsv.values().sum();
        assert!((sum - gained).abs() < 1e-12, "{utility}: {sum} {gained}");
    }
}

#[test]
fn protocols_that_do_not_know_classes_refuse_by_name() {
    let (run, _) = recorded();
    for protocol in [Protocol::SecSv, Protocol::Hesv, Protocol::SecretSv] {
        let refusal = hidden(&run, protocol, Utility::F1).unwrap_err();
        assert!(refusal.is_bad_input());
        let said = refusal.to_string();
        assert!(
            said.contains(&format!("under {}", protocol.name())) && said.contains("blindsv and nssv can"),
            "{said}"
        );
    }
    let skips = settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed);
    let skips = secsv_protocol::session::Settings { always_skips: true, ..skips };
    let said = Utility::Recall(1).settings(skips).unwrap_err().to_string();
    assert!(said.starts_with("skip: expected off with utility recall=1"), "{said}");
    // Whoever asks an evaluator whose parties did not agree to count classes is told the same.
    let seed = Seed::from_bytes([4; 32]);
    let plain = settings(Protocol::BlindSv, Preset::Standard, Matmul::Packed);
    let mut evaluator = SecureEvaluator::new(&run, plain, None, &seed, Box::new(Honest)).unwrap();
    let asked = EvaluationSettings { skip: SkipMode::Off, ..of_utility(Utility::BalancedAccuracy) };
    let refusal = evaluate(run.spec(), &mut evaluator, &asked, |_| {}).unwrap_err();
    assert!(matches!(refusal, Error::HiddenClasses { .. }), "{refusal}");
}

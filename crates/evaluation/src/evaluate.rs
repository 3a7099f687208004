//! The loop between an estimator and an evaluator.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use secsv_federation::{ClientId, Coalition, FederationSpec, RoundId, SampleSet, skip::SkipMode};
use secsv_protocol::TestResult;
use secsv_shapley::{ClientValues, EstimatorSettings, Federated, FederatedValues, Method, StopRule};

use crate::{
    Error, EvaluationSettings, Evaluator, Utility,
    outcomes::{Classes, RoundOutcomes, TestOutcome},
    result::{
        EvaluationResult, Operations, OverflowResult, OverflowedModel, RoundResult, SCHEMA, Timing,
        UtilityResult, VERSION,
    },
    test_noise::CaseValues,
};

/// How far an evaluation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The round just worked on.
    pub round: RoundId,
    /// Models tested so far, over all rounds.
    pub tested: usize,
    /// Models to be tested as far as known; a sampling estimator may ask for more.
    pub asked: usize,
}

/// Asks the estimator which coalitions it wants, tests them, and computes every client's value.
///
/// The empty coalition's utility is measured: in the first round on the model before it, later it is that of
/// everybody who took part in the round before, where aggregates are means. Results depend on the settings alone, not on the number of threads.
pub fn evaluate<E: Evaluator>(
    spec: &FederationSpec,
    evaluator: &mut E,
    settings: &EvaluationSettings,
    mut observe: impl FnMut(Progress),
) -> Result<EvaluationResult, E::Error> {
    let start = Instant::now();
    if settings.skip != SkipMode::Off && !evaluator.tells_samples() {
        return Err(Error::CannotSkip { protocol: evaluator.protocol() }.into());
    }
    let skips_for_nothing = settings.skip == SkipMode::Auto && evaluator.tests_together();
    let settings = &EvaluationSettings {
        skip: if skips_for_nothing { SkipMode::Off } else { settings.skip },
        ..*settings
    };
    let classes = classes(evaluator, settings.utility)?.map(Arc::new);
    let rounds = evaluator.rounds();
    let mut plan = Federated::new(settings.method, &rounds, &settings.estimator).map_err(Error::from)?;
    let mut outcomes = Outcomes::new(&rounds, evaluator.samples(), settings, evaluator.gathers());
    outcomes.inherits_empty = !evaluator.tests_empty_each_round();
    outcomes.count_classes(classes.as_ref());
    outcomes.classes = classes.clone();
    outcomes.begin_with(evaluator.known_empty(), evaluator.samples())?;
    let is_plain = settings.method == Method::Exact
        && settings.skip == SkipMode::Off
        && settings.utility == Utility::Accuracy
        && outcomes.inherits_empty;
    if is_plain && evaluator.knows_outcomes() {
        outcomes.cases = CaseValues::new(&rounds, evaluator.samples(), spec.clients.len());
    }
    loop {
        let batch = plan.next_batch(start.elapsed()).map_err(Error::from)?;
        if batch.is_empty() {
            break;
        }
        let mut by_round: BTreeMap<RoundId, Vec<Coalition>> = BTreeMap::new();
        for (round, coalition) in batch {
            by_round.entry(round).or_default().push(coalition);
        }
        outcomes.test(evaluator, &by_round, &mut observe)?;
        for (&round, coalitions) in &by_round {
            for &coalition in coalitions {
                let outcome = outcomes.get(round, coalition)?;
                let utility = outcome.utility(evaluator.samples(), classes.as_deref());
                plan.absorb(round, coalition, utility).map_err(Error::from)?;
            }
        }
    }
    let values = plan.finish().map_err(Error::from)?;
    let mut result = outcomes.into_result(spec, evaluator, settings, &values);
    if let Some(classes) = classes {
        result.utility = settings.utility.to_string();
        result.class_samples = classes.sizes().to_vec();
        result.notes.push(format!("utilities are {}, not accuracy", settings.utility));
        let few = (0..).zip(classes.sizes()).filter(|(_, size)| (1..FEW_OF_A_CLASS).contains(*size));
        let called = |class: usize| spec.model.class_names.get(class).cloned().unwrap_or(class.to_string());
        let few = few.map(|(class, size)| format!("{size} of class {}", called(class))).collect::<Vec<_>>();
        if evaluator.counted_classes().is_some() && !few.is_empty() {
            let few = few.join(", ");
            result.notes.push(format!(
                "of classes with few samples ({few}) counts say much about each sample: treat this result as the samples are treated"
            ));
        }
    }
    result.timing.wall_s = start.elapsed().as_secs_f64();
    Ok(result)
}

/// The classes of all samples, if the utility asks for them.
fn classes<E: Evaluator>(evaluator: &E, utility: Utility) -> Result<Option<Classes>, Error> {
    if !utility.needs_classes() {
        return Ok(None);
    }
    let protocol = evaluator.protocol();
    match (evaluator.labels(), evaluator.counted_classes()) {
        (Some((labels, classes)), _) => Classes::new(utility, labels, classes).map(Some),
        (None, Some(classes)) => Classes::hidden(utility, classes).map(Some),
        (None, None) => Err(Error::HiddenClasses { utility, protocol }),
    }
}

/// Coalitions that are tested at once.
pub(crate) type Batch = Vec<(RoundId, Coalition)>;

/// The coalitions that an evaluation without SampleSkip tests, batch by batch, in the order it asks for them. Where an estimator
/// looks at utilities on the way they are at most these: it is told such that give it no reason to leave anything out.
pub(crate) fn planned_tests(
    rounds: &[(RoundId, Coalition)],
    method: Method,
    estimator: &EstimatorSettings,
) -> Result<Vec<Batch>, Error> {
    let stop = StopRule { tests: estimator.stop.tests, ..StopRule::default() };
    let thorough =
        EstimatorSettings { stop, tolerance: 0.0, round_tolerance: 0.0, convergence: 0.0, ..*estimator };
    let mut plan = Federated::new(method, rounds, &thorough)?;
    let mut outcomes = Outcomes::new(rounds, 0, &EvaluationSettings::default(), false);
    let mut batches = Vec::new();
    loop {
        let batch = plan.next_batch(Duration::ZERO)?;
        if batch.is_empty() {
            return Ok(batches);
        }
        batches.push(outcomes.plan(&batch));
        if method.asks_for_all() {
            return Ok(batches);
        }
        for (round, coalition) in batch {
            plan.absorb(round, coalition, made_up(round, coalition))?;
        }
    }
}

/// A utility that no other coalition has, from 0 to 1.
fn made_up(round: RoundId, coalition: Coalition) -> f64 {
    let bits = coalition.bits() ^ u128::from(round.0) << 96;
    let mixed = (bits as u64 ^ (bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// What every round's tests gave.
struct Outcomes {
    rounds: BTreeMap<RoundId, RoundOutcomes>,
    /// Models to be tested.
    asked: usize,
    /// Utilities that are those of models tested in the round before.
    inherited: usize,
    /// Values of single cases, where it is known which are right.
    cases: Option<CaseValues>,
    /// What samples are of, where the utility asks for it.
    classes: Option<Arc<Classes>>,
    /// Whether the empty coalition's model is that of everybody in the round before.
    inherits_empty: bool,
}

impl Outcomes {
    fn new(
        rounds: &[(RoundId, Coalition)],
        samples: usize,
        settings: &EvaluationSettings,
        gathers: bool,
    ) -> Self {
        let all = Arc::new(SampleSet::all(samples));
        let start = |&(round, participants): &(RoundId, Coalition)| {
            (round, RoundOutcomes::new(participants, &all, settings, gathers))
        };
        let rounds = rounds.iter().map(start).collect();
        Self { rounds, asked: 0, inherited: 0, inherits_empty: true, cases: None, classes: None }
    }

    fn count_classes(&mut self, classes: Option<&Arc<Classes>>) {
        let rounds = std::mem::take(&mut self.rounds);
        let with =
            |(round, outcomes): (RoundId, RoundOutcomes)| (round, outcomes.with_classes(classes.cloned()));
        self.rounds = rounds.into_iter().map(with).collect();
    }

    /// Takes what an earlier evaluation found of the model before the first round.
    fn begin_with(&mut self, found: Option<TestResult>, samples: usize) -> Result<(), Error> {
        let (Some(found), Some(first)) = (found, self.rounds.values_mut().next()) else { return Ok(()) };
        if let Some(classes) = &self.classes {
            classes.learn(&found, samples)?;
        }
        let of_classes = found.of_classes.iter().map(|class| class.right).collect();
        let (correct, wrongly_skipped) = (found.correct, None);
        let outcome = TestOutcome { correct, tested: samples, wrongly_skipped, of_classes, overflows: None };
        first.insert(Coalition::EMPTY, outcome);
        Ok(())
    }

    fn get(&self, round: RoundId, coalition: Coalition) -> Result<TestOutcome, Error> {
        let known = self.rounds.get(&round).and_then(|outcomes| outcomes.get(coalition));
        known.ok_or(Error::UnknownRound { found: round })
    }

    /// Tests coalitions of all rounds at once.
    fn test<E: Evaluator>(
        &mut self,
        evaluator: &mut E,
        coalitions: &BTreeMap<RoundId, Vec<Coalition>>,
        observe: &mut impl FnMut(Progress),
    ) -> Result<(), E::Error> {
        let mut wanted: BTreeMap<RoundId, BTreeSet<Coalition>> =
            coalitions.iter().map(|(round, list)| (*round, list.iter().copied().collect())).collect();
        let inherited = self.inherit(&mut wanted);
        let is_new = |round, coalition: &&Coalition| self.get(round, **coalition).is_err();
        let new = wanted.iter().map(|(round, wanted)| wanted.iter().filter(|c| is_new(*round, c)).count());
        let (asked, again) = (self.asked + new.sum::<usize>(), self.inherited);
        self.asked = asked;
        let mut observe = |rounds: &BTreeMap<RoundId, RoundOutcomes>, round| {
            let known: usize = rounds.values().map(RoundOutcomes::len).sum();
            observe(Progress { round, tested: known - again, asked });
        };
        if let Some(&round) = coalitions.keys().next() {
            observe(&self.rounds, round);
        }
        let cost = evaluator.cost_model();
        let mut tests = Vec::new();
        for (round, wanted) in wanted {
            let outcomes = self.rounds.get_mut(&round).ok_or(Error::UnknownRound { found: round })?;
            tests.extend(outcomes.begin(wanted, &cost).into_iter().map(|test| (round, test)));
        }
        evaluator.drive(tests, &mut |round, test, result| {
            let outcomes = self.rounds.get_mut(&round).ok_or(Error::UnknownRound { found: round })?;
            if let (Some(cases), Some(right)) = (&mut self.cases, &result.right) {
                cases.take(round, test.coalition, right);
            }
            if let Some(classes) = &self.classes {
                classes.learn(&result, test.samples.len())?;
            }
            let more = outcomes.complete(test, result, &cost);
            observe(&self.rounds, round);
            Ok(more.into_iter().map(|test| (round, test)).collect())
        })?;
        for (round, before, everybody) in inherited {
            // What was out of range there is counted there.
            let outcome = TestOutcome { overflows: None, ..self.get(before, everybody)? };
            if let Some(outcomes) = self.rounds.get_mut(&round) {
                outcomes.insert(Coalition::EMPTY, outcome);
                self.inherited += 1;
            }
        }
        Ok(())
    }

    /// What is tested of a batch, which is known from then on.
    fn plan(&mut self, batch: &[(RoundId, Coalition)]) -> Batch {
        let mut wanted: BTreeMap<RoundId, BTreeSet<Coalition>> = BTreeMap::new();
        batch.iter().for_each(|(round, coalition)| {
            wanted.entry(*round).or_default().insert(*coalition);
        });
        let inherited = self.inherit(&mut wanted);
        let mut tested = Batch::new();
        for (round, wanted) in wanted {
            let Some(outcomes) = self.rounds.get_mut(&round) else { continue };
            for coalition in wanted {
                if outcomes.get(coalition).is_none() {
                    outcomes.insert(coalition, TestOutcome::default());
                    tested.push((round, coalition));
                }
            }
        }
        for (round, ..) in inherited {
            if let Some(outcomes) = self.rounds.get_mut(&round) {
                outcomes.insert(Coalition::EMPTY, TestOutcome::default());
            }
        }
        tested
    }

    /// After the first round nobody's model is that of everybody in the round before: wanted there instead.
    fn inherit(
        &self,
        wanted: &mut BTreeMap<RoundId, BTreeSet<Coalition>>,
    ) -> Vec<(RoundId, RoundId, Coalition)> {
        let mut inherited = Vec::new();
        if !self.inherits_empty {
            return inherited;
        }
        // The latest first: a round without anybody passes the question on to the one before it.
        for &round in self.rounds.keys().rev() {
            let before = self.rounds.range(..round).next_back();
            let Some((&before, everybody)) = before.map(|(id, outcomes)| (id, outcomes.participants()))
            else {
                continue;
            };
            if wanted.get_mut(&round).is_some_and(|wanted| wanted.remove(&Coalition::EMPTY)) {
                if self.get(before, everybody).is_err() {
                    wanted.entry(before).or_default().insert(everybody);
                }
                inherited.push((round, before, everybody));
            }
        }
        inherited.reverse();
        inherited
    }

    /// The share of all coalitions of all rounds that was tested.
    fn share_tested(&self) -> f64 {
        let all: f64 = self.rounds.values().map(|of| 2f64.powi(of.participants().len() as i32)).sum();
        self.rounds.values().map(RoundOutcomes::len).sum::<usize>() as f64 / all
    }

    /// Hidden numbers out of range; none where nobody counts them.
    fn overflows(&self, spec: &FederationSpec) -> Option<OverflowResult> {
        let tested = self.rounds.iter().flat_map(|(&round, outcomes)| {
            let counted =
                |(coalition, outcome): (Coalition, TestOutcome)| Some((coalition, outcome.overflows?));
            outcomes.iter().filter_map(counted).map(move |(coalition, numbers)| (round, coalition, numbers))
        });
        let tested: Vec<(RoundId, Coalition, u64)> = tested.collect();
        let exceeded =
            tested.iter().filter(|(.., numbers)| *numbers > 0).map(|&(round, coalition, numbers)| {
                OverflowedModel { round, coalition: spec.names(coalition), numbers }
            });
        let models: Vec<OverflowedModel> = exceeded.collect();
        let numbers = models.iter().map(|model| model.numbers).sum();
        (!tested.is_empty()).then_some(OverflowResult { numbers, models })
    }

    fn into_result(
        self,
        spec: &FederationSpec,
        evaluator: &impl Evaluator,
        settings: &EvaluationSettings,
        values: &FederatedValues,
    ) -> EvaluationResult {
        let total = evaluator.samples();
        let mut utilities = Vec::new();
        let overflows = self.overflows(spec);
        for (&round, outcomes) in &self.rounds {
            let mut of_round: Vec<UtilityResult> = outcomes
                .iter()
                .map(|(coalition, outcome)| UtilityResult {
                    round,
                    coalition: spec.names(coalition),
                    correct: outcome.correct,
                    total,
                    tested: outcome.tested,
                    wrongly_skipped: outcome.wrongly_skipped,
                    correct_of_classes: outcome.of_classes,
                })
                .collect();
            of_round.sort_by(|a, b| a.coalition.cmp(&b.coalition));
            utilities.append(&mut of_round);
        }
        let round_result = |round: &secsv_shapley::RoundValues| RoundResult {
            round: round.round,
            values: by_client(spec, |client| round.values.value(client)),
            standard_error: standard_errors(spec, &round.values),
        };
        EvaluationResult {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            made: None,
            federation: None,
            protocol: evaluator.protocol().to_owned(),
            estimator: settings.method.name().to_owned(),
            utility: Utility::Accuracy.to_string(),
            class_samples: Vec::new(),
            skip: utilities.iter().any(|utility| utility.tested < utility.total),
            clients: spec.ids().cloned().collect(),
            fsv: by_client(spec, |client| values.total.value(client)),
            standard_error: standard_errors(spec, &values.total),
            test_noise: self.cases.as_ref().map(|cases| cases.noise(spec)),
            notes: notes(settings, values.total.standard_errors().is_some(), self.share_tested()),
            ssv: values.rounds.iter().map(round_result).collect(),
            utilities,
            timing: Timing::default(),
            traffic: Vec::new(),
            operations: Operations::default(),
            parameters: None,
            seed: settings.estimator.seed,
            security: None,
            messages: Vec::new(),
            recount: None,
            overflows,
            peak_memory_bytes: None,
        }
    }
}

fn by_client(spec: &FederationSpec, value: impl Fn(usize) -> f64) -> BTreeMap<ClientId, f64> {
    spec.ids().cloned().enumerate().map(|(position, id)| (id, value(position))).collect()
}

/// What a reader of values and standard errors alone would miss.
fn notes(settings: &EvaluationSettings, has_errors: bool, share_tested: f64) -> Vec<String> {
    let (method, seed) = (settings.method, settings.estimator.seed);
    let mut notes = Vec::new();
    if has_errors && method.truncates() {
        notes.push(format!(
            "standard errors are of the draw alone: what {method} leaves out on purpose to save tests is not in them and may be \
             many times larger"
        ));
    }
    if !has_errors && method.draws_by_chance(share_tested >= 1.0) {
        notes.push(format!(
            "drawn by chance (seed {seed}): another seed gives other values, and {method} cannot say how far they are off"
        ));
    }
    if method.takes_samples() && share_tested >= SAVES_NOTHING {
        let share = 100.0 * share_tested;
        notes.push(format!(
            "{method} tested {share:.0} % of all coalitions: exact costs about the same and has no error of the draw; fewer samples \
             (--samples) would save tests"
        ));
    }
    notes
}

/// Fewer samples of a class are few: what is counted of them is nearly what is right or wrong of each.
const FEW_OF_A_CLASS: usize = 30;

/// From this share of all coalitions on sampling is no use.
const SAVES_NOTHING: f64 = 0.9;

fn standard_errors(spec: &FederationSpec, values: &ClientValues) -> Option<BTreeMap<ClientId, f64>> {
    values
        .standard_errors()
        .is_some()
        .then(|| by_client(spec, |client| values.standard_error(client).unwrap_or(0.0)))
}

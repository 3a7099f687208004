//! The table "Comparisons of SV estimation methods under SecSV".

use std::{collections::BTreeMap, time::Instant};

use secsv_federation::{Coalition, RoundId};
use secsv_shapley::{EstimatorSettings, Federated, Method};
use serde::{Deserialize, Serialize};

use super::{
    eval,
    measurement::{Measured, Measurement},
    paper::{self, PaperEstimator},
    runs::{TrainedCell, Training},
    study::{CLIENTS, Section, Study, StudyScope, mean},
    table::{Cell, ResultTable, figure},
    tasks::PaperTask,
};
use crate::protocol_name::ProtocolName;

/// Seeds that an estimator's error is averaged over.
const SEEDS: u64 = 10;
/// The paper's samples of KernelSHAP.
const KERNEL_TESTS: usize = 2 * CLIENTS + 16;

/// One row of the table.
struct EstimatorRow {
    title: &'static str,
    method: Method,
    samples: Option<usize>,
    printed: Option<PaperEstimator>,
}

const ENTRIES: [EstimatorRow; 8] = [
    entry("SecSV, exact", Method::Exact, None, Some(PaperEstimator::Exact)),
    entry(
        "SecSV+PS, the authors' (with repeats)",
        Method::PermutationWithRepeats,
        None,
        Some(PaperEstimator::Permutations),
    ),
    entry("SecSV+GT, the authors'", Method::GroupTestingOfThePaper, None, Some(PaperEstimator::GroupTesting)),
    entry("SecSV+KS, the authors'", Method::KernelShapOfThePaper, None, Some(PaperEstimator::KernelShap)),
    entry("SecSV+PS as proposed", Method::Permutation, None, None),
    entry("SecSV+GT as proposed", Method::GroupTesting, None, None),
    entry("SecSV+KS as proposed, 26 tests", Method::KernelShap, Some(KERNEL_TESTS), None),
    entry("SecSV+KS as proposed, its own number", Method::KernelShap, None, None),
];

const fn entry(
    title: &'static str,
    method: Method,
    samples: Option<usize>,
    printed: Option<PaperEstimator>,
) -> EstimatorRow {
    EstimatorRow { title, method, samples, printed }
}

impl EstimatorRow {
    /// Whether fewer models than all are tested, so that the time has to be measured by itself.
    fn saves_tests(&self) -> bool {
        self.method == Method::KernelShapOfThePaper || self.samples.is_some()
    }

    fn measurement(&self, scope: &StudyScope, task: PaperTask, skip: bool) -> Measurement {
        let exact = exact(scope, task, skip);
        if !self.saves_tests() {
            return exact;
        }
        Measurement { method: self.method, estimator_samples: self.samples, ..exact }
    }
}

/// Every model tested under SecSV on all samples: what errors are computed from.
fn whole(scope: &StudyScope, task: PaperTask, skip: bool) -> Measurement {
    eval::secure(scope, task, 0, ProtocolName::SECSV, skip)
}

/// The same on as many samples as estimators are timed on.
fn exact(scope: &StudyScope, task: PaperTask, skip: bool) -> Measurement {
    Measurement { share: scope.studied(task), ..whole(scope, task, skip) }
}

/// The same of models that were trained as the paper's authors do, under SecSV or in the clear.
fn as_the_authors(scope: &StudyScope, task: PaperTask, protocol: ProtocolName) -> Measurement {
    let trained = TrainedCell { training: Training::OfTheAuthors, ..scope.federation(task, 0) };
    Measurement { share: scope.studied(task), ..Measurement::new(trained, protocol) }
}

/// Measurements of the table: estimators that ask for every model anyway share the exact run.
pub fn measurements(scope: &StudyScope) -> Vec<Measurement> {
    let mut all = Vec::new();
    for &task in &scope.tasks {
        let mut wanted =
            vec![eval::clear(scope, task, 0), eval::secure(scope, task, 0, ProtocolName::HESV, false)];
        for skip in [false, true] {
            wanted.push(whole(scope, task, skip));
            wanted.extend(ENTRIES.iter().map(|entry| entry.measurement(scope, task, skip)));
        }
        wanted.extend(
            [ProtocolName::Nssv, ProtocolName::SECSV].map(|protocol| as_the_authors(scope, task, protocol)),
        );
        for measurement in wanted {
            if !all.contains(&measurement) {
                all.push(measurement);
            }
        }
    }
    all
}

/// An estimator on utilities that are known: its error and time, averaged over seeds.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Replayed {
    error: f64,
    seconds: f64,
    tests: f64,
}

/// The table from what was measured.
pub fn section(study: &Study) -> Section {
    let title = "Estimation (table \"Comparisons of SV estimation methods under SecSV\")";
    let mut section = Section::new("table-estimation", title);
    section.about = vec![
        "Each cell: **ours** / the paper's. Speedups are per test sample and round against our own HESV, so they compare with the paper's only in kind.".to_owned(),
        format!("Errors are means over {SEEDS} seeds of the estimator on the utilities of the secure run on all test samples (without and with SampleSkip). PS and GT ask for all models of a round, so their time is that of the exact run plus their own computing; KernelSHAP with fewer tests is run by itself. CNN and GRU are timed on a tenth of the test samples."),
        "The authors' variants: PS draws 737 orders with repeats (120 exist); GT takes any point that fits, and utilities as they are instead of above the empty coalition's (the latter is our inference: it gives errors of the paper's size, whatever the data set); KS counts repeats of complements as new and lets sampled coalitions weigh 1. \"As proposed\" are the methods of the papers that propose them: with every order or coalition at hand PS and KS are exact.".to_owned(),
        "How far KS errs depends on how far apart the clients' models are, and so on their local training. Ours (docs/DATASETS.md) keeps them close, most of all on the GRU: one epoch a round where the authors take ten, and a loss that corrects for label skew. So the order of the errors is given for the authors' epochs, learning rates and loss as well.".to_owned(),
    ];
    let mut table = ResultTable::new("table-estimation", &COLUMNS);
    for &task in &study.scope.tasks {
        match task_rows(study, task, &mut section.lines) {
            Ok(rows) => {
                table.rows.extend(rows);
                let title = format!("{}, trained as the authors do", task.title());
                section.lines.push(match authors_errors(study, task) {
                    Ok((errors, samples)) => order(&format!("{title} (M = {samples})"), &errors),
                    Err(reason) => format!("{title}: gap: {reason}"),
                });
            }
            Err(reason) => table.push(vec![Cell::text(task.title()), Cell::gap(reason)]),
        }
    }
    section.tables.push(table);
    section.note_differences(&study.scope.tasks);
    section
}

const COLUMNS: [&str; 10] = [
    "Data set (model)",
    "Method",
    "M, timed",
    "Models a round",
    "Wall s, skip off",
    "Wall s, skip on",
    "Speedup w.r.t. HESV, off",
    "Speedup w.r.t. HESV, on",
    "Error, off",
    "Error, on",
];

fn task_rows(study: &Study, task: PaperTask, lines: &mut Vec<String>) -> Result<Vec<Vec<Cell>>, String> {
    let scope = &study.scope;
    let clear = study.get(&eval::clear(scope, task, 0))?;
    let hesv = study.get(&eval::secure(scope, task, 0, ProtocolName::HESV, false));
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for entry in &ENTRIES {
        let printed = entry.printed.and_then(|estimator| paper::estimation(task, estimator));
        let (mut seconds, mut speedups, mut found_errors) = (vec![], vec![], vec![]);
        let (mut tests, mut samples) = (0.0, 0.0);
        for (place, skip) in [false, true].into_iter().enumerate() {
            let run = study.get(&entry.measurement(scope, task, skip))?;
            let replayed = replay(study, &whole(scope, task, skip), entry, &clear)?;
            let own = if entry.saves_tests() { 0.0 } else { replayed.seconds };
            let wall = run.result.timing.wall_s + own;
            (tests, samples) = (replayed.tests, run.samples());
            seconds.push(Cell::Number(wall));
            speedups.push(match &hesv {
                Ok(hesv) => {
                    let speedup = hesv.seconds_per_sample() / (wall / (run.samples() * run.rounds()));
                    Cell::beside(speedup, printed.map(|row| row.speedup[place]))
                }
                Err(reason) => Cell::gap(reason.clone()),
            });
            found_errors.push(Cell::beside(replayed.error, printed.map(|row| row.error[place])));
            if !skip {
                errors.push((entry.method, entry.samples, replayed.error));
            }
        }
        if let (Method::Exact, [Cell::Number(off), Cell::Number(on)]) = (entry.method, seconds.as_slice())
            && on > off
        {
            let (name, off, on) = (task.title(), figure(*off), figure(*on));
            lines.push(format!("Worse: {name}, M = {samples}: SampleSkip slows SecSV from {off} to {on} s."));
        }
        let mut row =
            vec![Cell::text(task.title()), Cell::text(entry.title), Cell::count(samples), Cell::count(tests)];
        row.extend(seconds.into_iter().chain(speedups).chain(found_errors));
        rows.push(row);
    }
    lines.push(order(task.title(), &errors));
    Ok(rows)
}

/// Errors of all methods where clients train as the paper's authors have them, and on how many samples.
fn authors_errors(study: &Study, task: PaperTask) -> Result<(Errors, f64), String> {
    let [clear, exact] = [ProtocolName::Nssv, ProtocolName::SECSV]
        .map(|protocol| as_the_authors(&study.scope, task, protocol));
    let clear = study.get(&clear)?;
    let error = |entry: &EstimatorRow| {
        replay(study, &exact, entry, &clear).map(|found| (entry.method, entry.samples, found.error))
    };
    Ok((ENTRIES.iter().map(error).collect::<Result<_, _>>()?, clear.samples()))
}

/// The error of each method, with its number of samples where that is not its own.
type Errors = Vec<(Method, Option<usize>, f64)>;

/// Whether the authors' variants err in the paper's order, and where KernelSHAP proper lands.
fn order(title: &str, errors: &Errors) -> String {
    let of = |method: Method, samples: Option<usize>| {
        errors.iter().find(|(m, s, _)| (*m, *s) == (method, samples)).map_or(f64::NAN, |(.., error)| *error)
    };
    let variants = [
        of(Method::Exact, None),
        of(Method::PermutationWithRepeats, None),
        of(Method::GroupTestingOfThePaper, None),
        of(Method::KernelShapOfThePaper, None),
    ];
    let holds = variants.windows(2).all(|pair| pair[0] < pair[1]);
    format!(
        "{}: exact < PS < GT < KS (the authors' variants) {}: {}. KernelSHAP as proposed errs by {} with 26 tests and by {} with all.",
        title,
        if holds { "holds" } else { "does NOT hold" },
        variants.map(figure).join(", "),
        figure(of(Method::KernelShap, Some(KERNEL_TESTS))),
        figure(of(Method::KernelShap, None))
    )
}

fn replay(
    study: &Study,
    exact: &Measurement,
    entry: &EstimatorRow,
    clear: &Measured,
) -> Result<Replayed, String> {
    let samples = entry.samples.map_or(String::new(), |samples| samples.to_string());
    let key = format!("replay-{}-{}{samples}", exact.key(), entry.method);
    if let Some(found) = study.store.get(&key) {
        return Ok(found);
    }
    let begun = Instant::now();
    let run = study.get(exact)?;
    let game = RecordedGame::of(&run)?;
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        let settings = EstimatorSettings { seed, samples: entry.samples, ..EstimatorSettings::default() };
        all.push(game.play(entry.method, &settings, clear).map_err(|error| error.to_string())?);
    }
    let found = Replayed {
        error: mean(&all, |r| r.error),
        seconds: mean(&all, |r| r.seconds),
        tests: mean(&all, |r| r.tests),
    };
    study.store.put(&key, begun.elapsed().as_secs_f64(), &found).map_err(|error| format!("{error:#}"))?;
    Ok(found)
}

/// Every utility of an exact run.
struct RecordedGame<'a> {
    run: &'a Measured,
    rounds: Vec<(RoundId, Coalition)>,
    utilities: BTreeMap<(RoundId, Coalition), f64>,
}

impl<'a> RecordedGame<'a> {
    fn of(run: &'a Measured) -> Result<Self, String> {
        let mut utilities = BTreeMap::new();
        let mut players: BTreeMap<RoundId, Coalition> = BTreeMap::new();
        for utility in &run.result.utilities {
            let place = |id| run.result.clients.iter().position(|client| client == id);
            let members: Option<Coalition> = utility.coalition.iter().map(place).collect();
            let members = members.ok_or("a coalition of strangers")?;
            let everybody = players.entry(utility.round).or_insert(Coalition::EMPTY);
            *everybody = everybody.union(members);
            utilities.insert((utility.round, members), utility.correct as f64 / utility.total.max(1) as f64);
        }
        Ok(Self { run, rounds: players.into_iter().collect(), utilities })
    }

    fn play(
        &self,
        method: Method,
        settings: &EstimatorSettings,
        clear: &Measured,
    ) -> Result<Replayed, secsv_shapley::Error> {
        let begun = Instant::now();
        let mut plan = Federated::new(method, &self.rounds, settings)?;
        let mut tests = 0;
        loop {
            let batch = plan.next_batch(begun.elapsed())?;
            if batch.is_empty() {
                break;
            }
            for (round, coalition) in batch {
                tests += usize::from(!coalition.is_empty());
                let utility = self.utilities.get(&(round, coalition));
                plan.absorb(round, coalition, *utility.ok_or(secsv_shapley::Error::Missing { coalition })?)?;
            }
        }
        let values = plan.finish()?.total;
        let seconds = begun.elapsed().as_secs_f64();
        let off =
            |(position, id)| values.value(position) - clear.result.fsv.get(id).copied().unwrap_or_default();
        let squares = self.run.result.clients.iter().enumerate().map(off).map(|d| d * d);
        Ok(Replayed {
            error: squares.sum::<f64>().sqrt(),
            seconds,
            tests: tests as f64 / self.rounds.len().max(1) as f64,
        })
    }
}

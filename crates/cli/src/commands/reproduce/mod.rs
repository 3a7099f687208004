//! `secsv reproduce`: the paper's tables and figures on this machine, each figure of ours beside the paper's.
//!
//! A target names what it needs measured; measurements that targets share are made once. Each finished one is
//! a file of its own, so an interrupted run goes on where it was; what cannot be measured is a gap with a
//! reason, and the rest goes on.

mod chart;
mod client_counts;
mod estimation;
mod eval;
mod fit;
mod growth;
mod linear_growth;
mod machine;
mod matmul;
mod measurement;
mod page;
mod paper;
mod runs;
mod skipped;
mod store;
mod study;
mod table;
mod tasks;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::bench;
use crate::{
    failure::{BadInput, is_bad_input},
    output::{Document, Format, print_or_end, say},
    progress::{ProgressReport, is_told},
};
use machine::Machine;
use measurement::Measurement;
use runs::{Runs, TrainedCell};
use store::CellStore;
use study::{Section, Study, StudyScope};
use tasks::PaperTask;

/// How often matrix products are timed; the fastest counts.
const MATMUL_ROUNDS: usize = 4;
/// A guess at the seconds that takes.
const MATMUL_S: f64 = 60.0;

/// Arguments of `secsv reproduce`.
#[derive(Args)]
pub struct ReproduceArgs {
    /// Which of the paper's tables and figures.
    #[arg(value_enum)]
    what: Target,
    /// The directory that holds mnist/, bank/, agnews/, mirna/
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The share of each data set's training and test samples that is used
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Repetitions with seeds of their own, averaged (table-eval, fig-skipped)
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Where models, finished cells, CSV, SVG and the page go; use another directory for other data
    #[arg(long, default_value = "reproduced")]
    out: PathBuf,
    /// The tasks; breast-cancer and digits are embedded stand-ins that the paper does not have
    #[arg(long, value_enum, value_delimiter = ',', default_value = "agnews,bank,mnist,mirna")]
    tasks: Vec<PaperTask>,
    /// Rounds of training (the paper's T)
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// HESV takes fewer rounds, then fewer samples if a cell is planned to exceed so many seconds; so do the
    /// sweeps over clients and layers, for CNN, GRU and DNN with a 28th of it
    #[arg(long, default_value_t = 1800.0)]
    limit: f64,
    /// Use cells again that another build measured on this machine; the page names them
    #[arg(long)]
    reuse: bool,
}

/// The paper's tables and figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Running time and error of HESV, SecSV and SecretSV.
    TableEval,
    /// Estimators under SecSV.
    TableEstimation,
    /// Matrix Reducing against Matrix Squaring.
    TableMatmul,
    /// Samples that SampleSkip skips.
    FigSkipped,
    /// Cost by number of test samples (and of rounds).
    FigSamples,
    /// Cost by number of clients.
    FigClients,
    /// Skipping and cost by number of layers.
    FigLayers,
    /// All of them.
    All,
}

impl Target {
    const EACH: [Self; 7] = [
        Self::TableEval,
        Self::TableEstimation,
        Self::TableMatmul,
        Self::FigSkipped,
        Self::FigSamples,
        Self::FigClients,
        Self::FigLayers,
    ];

    fn parts(self) -> Vec<Self> {
        if self == Self::All { Self::EACH.to_vec() } else { vec![self] }
    }

    fn measurements(self, scope: &StudyScope) -> Vec<Measurement> {
        match self {
            Self::TableEval => eval::measurements(scope),
            Self::TableEstimation => estimation::measurements(scope),
            Self::FigSkipped => skipped::skip_measurements(scope),
            Self::FigSamples => growth::sample_measurements(scope),
            Self::FigClients => growth::client_measurements(scope),
            Self::FigLayers => skipped::layer_measurements(scope),
            Self::TableMatmul | Self::All => Vec::new(),
        }
    }

    fn section(self, study: &Study) -> Section {
        match self {
            Self::TableEval => eval::section(study),
            Self::TableEstimation => estimation::section(study),
            Self::FigSkipped => skipped::skip_section(study),
            Self::FigSamples => growth::sample_section(study),
            Self::FigClients => growth::client_section(study),
            Self::FigLayers => skipped::layer_section(study),
            Self::TableMatmul | Self::All => matmul::section(study),
        }
    }
}

/// One cell to be filled.
enum CellJob {
    Measure(Measurement),
    MatmulTimes,
}

impl CellJob {
    fn key(&self) -> String {
        match self {
            Self::Measure(measurement) => measurement.key(),
            Self::MatmulTimes => matmul::CELL.to_owned(),
        }
    }

    fn seconds(&self) -> f64 {
        match self {
            Self::Measure(measurement) => measurement.seconds(),
            Self::MatmulTimes => MATMUL_S,
        }
    }

    /// The federation that it needs.
    fn trained(&self) -> Option<&TrainedCell> {
        match self {
            Self::Measure(measurement) => Some(&measurement.trained),
            Self::MatmulTimes => None,
        }
    }
}

/// Runs the command.
pub fn run(args: &ReproduceArgs, format: Format) -> anyhow::Result<()> {
    let scope = scope(args)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{}: cannot be created", args.out.display()))?;
    let store = CellStore::open(&args.out, Machine::this(), args.reuse)?;
    let parts = args.what.parts();
    let mut jobs: Vec<CellJob> = Vec::new();
    for part in &parts {
        let wanted = part.measurements(&scope).into_iter().map(CellJob::Measure);
        jobs.extend(wanted);
        jobs.extend((*part == Target::TableMatmul).then_some(CellJob::MatmulTimes));
    }
    let runs = Runs { out: &args.out, data: args.data.as_deref() };
    let (failures, first) = work(jobs, &store, &runs)?;
    let study = Study { scope, store, failures };
    let mut sections: Vec<Section> = parts.iter().map(|part| named(*part, &study)).collect();
    let page = page::write(&args.out, &mut sections, &study, &command(args))?;
    match format {
        Format::Json => {
            let (scope, machine, failures) = (&study.scope, study.store.machine(), &study.failures);
            let document = json!({"scope": scope, "machine": machine, "sections": sections, "gaps": failures, "page": page});
            let document = Document::first("secsv-reproduction", document);
            print_or_end(&(serde_json::to_string(&document)? + "\n"))?;
        }
        Format::Text => {
            let text: String = sections.iter().map(page::markdown).collect();
            print_or_end(&format!("{text}\nwrote {}\n", page.display()))?;
        }
    }
    first.map_or(Ok(()), |error| {
        let cells = study.failures.len();
        Err(error
            .context(format!("{cells} cells could not be measured; the others are in {}", page.display())))
    })
}

/// A section, with the cells that another build measured.
fn named(part: Target, study: &Study) -> Section {
    study.store.take_reused();
    let mut section = part.section(study);
    let reused = study.store.take_reused();
    section.reuses = !reused.is_empty();
    section.lines.extend(reused.into_iter().map(|(build, cells)| {
        let cells: Vec<String> = cells.into_iter().map(|cell| format!("`{cell}`")).collect();
        format!("Measured by the earlier build {build}: {}.", cells.join(", "))
    }));
    section
}

fn scope(args: &ReproduceArgs) -> Result<StudyScope, BadInput> {
    let bad = |setting, expected, found: String| Err(BadInput::new(setting, expected, found));
    if !(args.scale > 0.0 && args.scale <= 1.0) {
        return bad("--scale", "more than 0 and at most 1", args.scale.to_string());
    }
    if args.runs == 0 {
        return bad("--runs", "at least 1", "0".to_owned());
    }
    if args.rounds == 0 {
        return bad("--rounds", "at least 1", "0".to_owned());
    }
    if !(args.limit > 0.0 && args.limit.is_finite()) {
        return bad("--limit", "a positive number of seconds", args.limit.to_string());
    }
    if let Some(data) = args.data.as_deref().filter(|data| !data.is_dir()) {
        return bad(
            "--data",
            "a directory that holds mnist/, bank/, agnews/, mirna/",
            data.display().to_string(),
        );
    }
    let mut tasks = args.tasks.clone();
    tasks.sort_unstable();
    tasks.dedup();
    let ReproduceArgs { scale, runs, rounds, seed, limit, .. } = *args;
    Ok(StudyScope { tasks, scale, runs, rounds, seed, limit })
}

/// The command that makes the same page again.
fn command(args: &ReproduceArgs) -> String {
    let what = args.what.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let tasks: Vec<&str> = args.tasks.iter().map(|task| task.name()).collect();
    let ReproduceArgs { scale, runs, rounds, seed, limit, .. } = args;
    let reuse = if args.reuse { " --reuse" } else { "" };
    format!(
        "secsv reproduce {what} --data DIR --scale {scale} --runs {runs} --rounds {rounds} --seed {seed} --limit {limit}{reuse} --tasks {}",
        tasks.join(",")
    )
}

type Failures = (BTreeMap<String, String>, Option<anyhow::Error>);

/// Fills every cell that is not there, the cheapest first, and goes on after those that cannot be.
fn work(jobs: Vec<CellJob>, store: &CellStore, runs: &Runs<'_>) -> anyhow::Result<Failures> {
    let mut open: BTreeMap<String, CellJob> = jobs.into_iter().map(|job| (job.key(), job)).collect();
    let asked = open.len();
    open.retain(|key, _| !store.has(key));
    let mut open: Vec<(String, CellJob)> = open.into_iter().collect();
    open.sort_by(|(_, a), (_, b)| a.seconds().total_cmp(&b.seconds()));
    let mut clock = TimeLeft::new(asked, &open, runs);
    let (mut failures, mut first): Failures = (BTreeMap::new(), None);
    for (place, (key, job)) in open.iter().enumerate() {
        clock.report(key);
        let begun = Instant::now();
        let done = match job {
            CellJob::Measure(measurement) => {
                measurement.take(runs).and_then(|found| store.put(key, begun.elapsed().as_secs_f64(), &found))
            }
            CellJob::MatmulTimes => bench::matmul(MATMUL_ROUNDS)
                .and_then(|found| store.put(key, begun.elapsed().as_secs_f64(), &found)),
        };
        clock.done(place);
        if let Err(error) = done {
            failures.insert(key.clone(), format!("{error:#}"));
            // Bad input decides the exit code only if nothing worse happened.
            if first.as_ref().is_none_or(|earlier| is_bad_input(earlier) && !is_bad_input(&error)) {
                first = Some(error);
            }
        }
    }
    clock.bar.finish();
    Ok((failures, first))
}

/// Guesses count like this many seconds of experience: what one cell took says little about others.
const TRUST_S: f64 = 120.0;

/// Progress over cells and the time left.
struct TimeLeft {
    bar: ProgressReport,
    begun: Instant,
    asked: usize,
    finished: usize,
    /// Seconds that each open cell is guessed to take, with the training where it is the first that needs it.
    guessed: Vec<f64>,
    guessed_done: f64,
}

impl TimeLeft {
    fn new(asked: usize, open: &[(String, CellJob)], runs: &Runs<'_>) -> Self {
        let mut trained = BTreeSet::new();
        let guessed = open.iter().map(|(_, job)| {
            let is_first = |run: &&TrainedCell| !runs.is_trained(run) && trained.insert(run.key());
            job.seconds() + job.trained().filter(is_first).map_or(0.0, TrainedCell::seconds)
        });
        let (guessed, finished) = (guessed.collect(), asked - open.len());
        if finished > 0 && is_told() {
            let rest =
                if open.is_empty() { "nothing is left to measure" } else { "going on with the others" };
            say(format_args!("{finished} of {asked} cells are there already: {rest}"));
        }
        let bar = ProgressReport::whole("reproduce", "cells", asked as u64);
        Self { bar, begun: Instant::now(), asked, finished, guessed, guessed_done: 0.0 }
    }

    /// Seconds left, by the guesses and by what came of them so far.
    fn left(&self) -> f64 {
        let pace = (self.begun.elapsed().as_secs_f64() + TRUST_S) / (self.guessed_done + TRUST_S);
        pace * (self.guessed.iter().sum::<f64>() - self.guessed_done)
    }

    fn report(&self, cell: &str) {
        #[derive(Serialize)]
        struct CellNote<'a> {
            event: &'static str,
            cell: &'a str,
            finished: usize,
            cells: usize,
            left_s: u64,
        }
        let left_s = self.left().round() as u64;
        self.bar.advance(self.finished as u64, self.asked as u64);
        let step = CellNote { event: "cell", cell, finished: self.finished, cells: self.asked, left_s };
        self.bar.part(cell, Duration::from_secs(left_s), &step);
    }

    fn done(&mut self, place: usize) {
        self.finished += 1;
        self.guessed_done += self.guessed[place];
    }
}

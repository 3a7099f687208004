//! A study: its scope, finished measurements, and failures.

use std::{collections::BTreeMap, path::PathBuf};

use secsv_training::ModelKind;
use serde::Serialize;

use super::{
    chart::Chart,
    measurement::{Measured, Measurement},
    runs::{TrainedCell, Training},
    store::CellStore,
    table::ResultTable,
    tasks::PaperTask,
};

/// The paper's number of clients.
pub const CLIENTS: usize = 5;
/// A cell of a sweep over larger models gets this part of the limit.
const SWEEP_PART: f64 = 28.0;

/// The scope that the user asked for.
#[derive(Clone, Debug, Serialize)]
pub struct StudyScope {
    /// The data sets.
    pub tasks: Vec<PaperTask>,
    /// The share of each data set's samples.
    pub scale: f64,
    /// How often everything is repeated, each time with another seed.
    pub runs: u32,
    /// The paper's T.
    pub rounds: u32,
    /// The first seed.
    pub seed: u64,
    /// Seconds that a cell of HESV may be planned to take before it gets fewer rounds, then fewer samples; see
    /// [`StudyScope::sweep_limit`] for cells of the sweeps.
    pub limit: f64,
}

impl StudyScope {
    /// The paper's federation for a task, in one of the repetitions.
    pub fn federation(&self, task: PaperTask, repetition: u32) -> TrainedCell {
        self.with(task, task.model(), CLIENTS, repetition)
    }

    /// Another model or number of clients.
    pub fn with(&self, task: PaperTask, model: ModelKind, clients: usize, repetition: u32) -> TrainedCell {
        let seed = self.seed + u64::from(repetition);
        let training = Training::Suited;
        TrainedCell { task, model, clients, rounds: self.rounds, scale: self.scale, seed, training }
    }

    /// The share of a scaled test set that makes a tenth of the whole one, as the paper's study of n uses.
    pub fn tenth(&self) -> f64 {
        (0.1 / self.scale).min(1.0)
    }

    /// The share of a task's test samples that estimators and the growth of cost are studied on: a tenth
    /// where one run with all of them takes ten minutes.
    pub fn studied(&self, task: PaperTask) -> f64 {
        if task.is_linear() { 1.0 } else { self.tenth() }
    }

    /// The limit of a cell of the sweeps over clients and layers. There are dozens of cells of CNN, GRU and
    /// DNN, and most would reach it: they get a small part.
    pub fn sweep_limit(&self, model: ModelKind) -> f64 {
        if model == ModelKind::Logistic { self.limit } else { (self.limit / SWEEP_PART).ceil() }
    }
}

/// Finished and failed measurements.
pub struct Study {
    /// The scope.
    pub scope: StudyScope,
    /// The finished ones.
    pub store: CellStore,
    /// Why others are missing, by cell.
    pub failures: BTreeMap<String, String>,
}

impl Study {
    /// A measurement, or why it is missing.
    pub fn get(&self, wanted: &Measurement) -> Result<Measured, String> {
        let key = wanted.key();
        let failed = || self.failures.get(&key).cloned().unwrap_or_else(|| "not measured".to_owned());
        self.store.get(&key).ok_or_else(failed)
    }

    /// The same of every repetition; the first reason if one is missing.
    pub fn repeated(&self, of: impl Fn(u32) -> Measurement) -> Result<Vec<Measured>, String> {
        (0..self.scope.runs).map(|repetition| self.get(&of(repetition))).collect()
    }
}

/// The mean of a figure over repetitions.
pub fn mean<T>(of: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    of.iter().map(figure).sum::<f64>() / of.len().max(1) as f64
}

/// One part of the page.
#[derive(Default, Serialize)]
pub struct Section {
    /// The command's word for it.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Notes on the meaning of the figures.
    pub about: Vec<String>,
    /// The figures.
    pub tables: Vec<ResultTable>,
    /// Findings: what the figures say, where ours are worse, where the data differ.
    pub lines: Vec<String>,
    /// The drawings, by file name.
    #[serde(skip)]
    pub charts: Vec<(&'static str, Chart)>,
    /// Whether cells of an earlier build are in it.
    pub reuses: bool,
    /// Everything written for it.
    pub files: Vec<PathBuf>,
}

impl Section {
    /// An empty one.
    pub fn new(name: &'static str, title: &'static str) -> Self {
        Self { name, title, ..Self::default() }
    }

    /// Notes every data set that is not the paper's.
    pub fn note_differences(&mut self, tasks: &[PaperTask]) {
        self.lines.extend(tasks.iter().filter_map(|task| task.difference()).map(str::to_owned));
    }
}

//! Run directories that measurements need: trained once, cut to fewer samples or rounds where a figure varies
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use secsv_federation::{FederationSpec, RunDirectory, RunWriter, TestSet};
use secsv_training::{LoadOptions, LocalTraining, ModelKind, Recipe, Split, train};
use serde_json::json;

use super::tasks::PaperTask;
use crate::progress::ProgressReport;

/// The paper's split: Dirichlet of concentration 0.5.
const ALPHA: f64 = 0.5;

/// A federation as it was trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainedCell {
    /// The data set.
    pub task: PaperTask,
    /// The model.
    pub model: ModelKind,
    /// The paper's n.
    pub clients: usize,
    /// The paper's T.
    pub rounds: u32,
    /// The share of the data set's training and test samples that is used.
    pub scale: f64,
    /// Drives split and training.
    pub seed: u64,
    /// How clients train in a round.
    pub training: Training,
}

/// How clients train in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// As reaches the best accuracy in ten rounds.
    Suited,
    /// As the paper's authors do.
    OfTheAuthors,
}

impl TrainedCell {
    /// In file names.
    pub fn key(&self) -> String {
        let Self { task, clients, rounds, scale, seed, .. } = self;
        let model = match self.model {
            ModelKind::Dnn { layers } => format!("dnn{layers}"),
            model => model.name().to_owned(),
        };
        let training = if self.training == Training::OfTheAuthors { "-authors" } else { "" };
        format!("{}-{model}{training}-n{clients}-T{rounds}-scale{scale}-seed{seed}", task.name())
    }

    /// A guess at the seconds that training takes.
    pub fn seconds(&self) -> f64 {
        let of_a_round = match self.model {
            ModelKind::Logistic => 0.3,
            ModelKind::Cnn | ModelKind::Gru => 2.5,
            ModelKind::Dnn { layers } => 0.6 * layers as f64,
        };
        let epochs = if self.training == Training::OfTheAuthors { 4.0 } else { 1.0 };
        of_a_round * epochs * f64::from(self.rounds) * self.scale
    }
}

/// Where run directories are kept.
pub struct Runs<'a> {
    /// The directory of everything.
    pub out: &'a Path,
    /// The directory that holds `mnist/`, `bank/` and so on.
    pub data: Option<&'a Path>,
}

impl Runs<'_> {
    /// Whether a federation has been trained.
    pub fn is_trained(&self, wanted: &TrainedCell) -> bool {
        self.out.join("runs").join(wanted.key()).is_dir()
    }

    /// The run directory of a federation, trained unless it is there.
    pub fn trained(&self, wanted: &TrainedCell) -> anyhow::Result<RunDirectory> {
        let path = self.place("runs")?.join(wanted.key());
        if self.is_trained(wanted) {
            return Ok(RunDirectory::open(path)?);
        }
        let source = wanted.task.source();
        let options = LoadOptions { data: self.data, seed: wanted.seed, ..LoadOptions::default() };
        let dataset = source.load(&options)?;
        let limit = |samples: usize| Some(((samples as f64 * wanted.scale).round() as usize).max(1));
        let (train_limit, test_limit) = (limit(dataset.train.len()), limit(dataset.test.len()));
        let dataset = dataset.limited(train_limit, test_limit, wanted.seed);
        let silos = Split::Dirichlet { alpha: ALPHA }.deal(&dataset, wanted.clients, wanted.seed)?;
        let mut recipe = Recipe::new(&source, wanted.model, wanted.seed);
        recipe.name = format!("{} {}", dataset.name, wanted.model.name());
        recipe.rounds = wanted.rounds;
        if wanted.training == Training::OfTheAuthors {
            recipe.local = LocalTraining::of_the_authors(&source, wanted.model);
        }
        let steps = u64::from(recipe.rounds) * silos.len() as u64 * u64::from(recipe.local.epochs);
        let bar = ProgressReport::new("training", "epochs", steps);
        bar.note(wanted.key(), &json!({"event": "training", "run": wanted.key()}));
        let outcome = train(&dataset, &silos, &recipe, &path, &|event| {
            if matches!(event, secsv_training::TrainingEvent::EpochFinished { .. }) {
                bar.step();
            }
        })?;
        bar.finish();
        Ok(outcome.directory)
    }

    /// The same models on a share of every client's test samples, and only the first rounds.
    pub fn cut(&self, run: &RunDirectory, share: f64, rounds: u32) -> anyhow::Result<RunDirectory> {
        if share >= 1.0 && rounds >= run.spec().rounds {
            return Ok(run.clone());
        }
        let name = run.path().file_name().unwrap_or_default().to_string_lossy();
        let path = self.place("cut")?.join(format!("{name}-M{share:.6}-T{rounds}"));
        if path.is_dir() {
            return Ok(RunDirectory::open(path)?);
        }
        let spec = FederationSpec { rounds, ..run.spec().clone() };
        let writer = RunWriter::create(&path, &spec)?;
        writer.initial_model(&run.initial_model()?)?;
        for id in spec.ids() {
            writer.test_set(id, &thinned(&run.test_set(id)?, share)?)?;
        }
        for round in spec.round_ids() {
            writer.global_model(round, &run.global_model(round)?)?;
            for id in spec.ids().filter(|id| run.took_part(id, round)) {
                writer.local_model(id, round, &run.local_model(id, round)?)?;
            }
        }
        Ok(writer.finish()?)
    }

    fn place(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.out.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// One sample at regular distances: samples lie class by class, so a prefix would not do.
fn thinned(test_set: &TestSet, share: f64) -> Result<TestSet, secsv_federation::Defect> {
    let width: usize = test_set.input().iter().product();
    let is_kept = |row: &usize| ((row + 1) as f64 * share).floor() > (*row as f64 * share).floor();
    let rows: Vec<usize> = (0..test_set.len()).filter(is_kept).collect();
    let features =
        rows.iter().flat_map(|row| &test_set.features()[row * width..(row + 1) * width]).copied().collect();
    let labels = rows.iter().map(|&row| test_set.labels()[row]).collect();
    TestSet::new(test_set.input().to_vec(), features, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_share_spread_over_all_samples() {
        let whole = TestSet::new(vec![2], (0..200).map(|i| i as f32).collect(), (0..100).collect()).unwrap();
        let tenth = thinned(&whole, 0.1).unwrap();
        assert_eq!(tenth.labels(), (0..10).map(|i| 10 * i + 9).collect::<Vec<i64>>());
        assert_eq!(tenth.features()[..2], [18.0, 19.0]);
        assert_eq!(thinned(&whole, 0.25).unwrap().len(), 25);
        assert_eq!(thinned(&whole, 1.0).unwrap(), whole);
    }
}

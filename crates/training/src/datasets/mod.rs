//! Data sets: two embedded, five public ones read from files, and the user's own tables.

mod agnews;
mod archive;
mod bank;
mod files;
mod heart;
mod mirna;
mod mnist;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secsv_federation::ClientId;

pub use bank::BankAgeCodes;

use crate::{Samples, Standardiser, TrainingError};
use files::Content;

/// Training and test samples of one task.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name, for people.
    pub name: String,
    /// Number of classes that are told apart.
    pub classes: usize,
    /// What the file called them, in order; none where they are called by their numbers.
    pub class_names: Vec<String>,
    /// Samples that clients learn from.
    pub train: Samples,
    /// Samples that clients test on.
    pub test: Samples,
    /// Who really holds which samples, where the data set says so.
    pub silos: Option<Vec<Silo>>,
    /// A note for readers of the results on how the samples were made.
    pub notes: Vec<String>,
}

/// One holder of samples in a data set with a natural split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silo {
    /// Its name.
    pub id: ClientId,
    /// Its rows of [`Dataset::train`].
    pub train: Vec<usize>,
    /// Its rows of [`Dataset::test`].
    pub test: Vec<usize>,
}

/// Which data set to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetSource {
    /// UCI Wisconsin diagnostic breast cancer, 2 x 30, embedded.
    BreastCancer,
    /// UCI optical digits (test part), 10 x 64 or 8 x 8 images, embedded.
    Digits,
    /// MNIST, 28 x 28 images.
    Mnist,
    /// UCI Bank Marketing in the paper's encoding, 2 x 48.
    Bank,
    /// AG news as word2vec sums, 4 x 300.
    Agnews,
    /// CLASH microRNA-site pairs, 2 classes, 10 steps x 64.
    Mirna,
    /// UCI heart disease, 2 x 13, four hospitals.
    Heart,
    /// The user's own `.npz` (x, y) or CSV.
    File(PathBuf),
}

/// Where to look, and the choices that some data sets leave open.
#[derive(Clone, Debug)]
pub struct LoadOptions<'a> {
    /// The directory that holds `mnist/`, `bank/` and so on.
    pub data: Option<&'a Path>,
    /// The label column of a CSV, by name or by number from 1; the last one if none is given.
    pub label: Option<&'a str>,
    /// The share of rows that is held out as test set where the data set has none of its own.
    pub test_share: f64,
    /// How BANK's age bins are numbered.
    pub bank_age_codes: BankAgeCodes,
    /// Draws the held-out rows.
    pub seed: u64,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        Self {
            data: None,
            label: None,
            test_share: 1.0 / 3.0,
            bank_age_codes: BankAgeCodes::default(),
            seed: 0,
        }
    }
}

/// The data sets with a name.
const NAMES: [&str; 7] = ["breast-cancer", "digits", "mnist", "bank", "agnews", "mirna", "heart"];

impl FromStr for DatasetSource {
    type Err = std::convert::Infallible;

    /// A known name, or the path of a file.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name {
            "breast-cancer" => Self::BreastCancer,
            "digits" => Self::Digits,
            "mnist" => Self::Mnist,
            "bank" => Self::Bank,
            "agnews" => Self::Agnews,
            "mirna" => Self::Mirna,
            "heart" => Self::Heart,
            path => Self::File(PathBuf::from(path)),
        })
    }
}

impl DatasetSource {
    /// Whether it is one of the paper's tasks, which take hundreds of steps in each pass over the samples.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self, Self::Mnist | Self::Bank | Self::Agnews | Self::Mirna)
    }

    /// Reads the samples and prepares them for training.
    pub fn load(&self, options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
        if !(options.test_share > 0.0 && options.test_share < 1.0) {
            let found = options.test_share.to_string();
            return Err(TrainingError::setting("test share", "between 0 and 1", found));
        }
        match self {
            Self::BreastCancer => breast_cancer(options),
            Self::Digits => digits(options),
            Self::Mnist => mnist::load(options.data),
            Self::Bank => bank::load(options),
            Self::Agnews => agnews::load(options.data),
            Self::Mirna => mirna::load(options.data),
            Self::Heart => heart::load(options),
            Self::File(path) => own_file(path, options),
        }
    }
}

impl Dataset {
    /// All samples at the scale of the training samples.
    fn standardised(mut self, standardiser: fn(&Samples) -> Standardiser) -> Self {
        let standard = standardiser(&self.train);
        standard.apply(&mut self.train);
        standard.apply(&mut self.test);
        self
    }

    /// A data set without a natural split.
    pub fn new(name: impl Into<String>, classes: usize, train: Samples, test: Samples) -> Self {
        let (class_names, notes) = (Vec::new(), Vec::new());
        Self { name: name.into(), classes, class_names, train, test, silos: None, notes }
    }

    /// Keeps at most `train` and `test` samples, drawn by seed; a natural split keeps who holds what.
    #[must_use]
    pub fn limited(self, train: Option<usize>, test: Option<usize>, seed: u64) -> Self {
        let train_rows = self.train.limited_rows(train.unwrap_or(usize::MAX), seed);
        let test_rows = self.test.limited_rows(test.unwrap_or(usize::MAX), seed);
        let kept = |own: &[usize], rows: &[usize]| -> Vec<usize> {
            own.iter().filter_map(|row| rows.binary_search(row).ok()).collect()
        };
        let silos = self.silos.map(|silos| {
            let cut = |silo: Silo| Silo {
                train: kept(&silo.train, &train_rows),
                test: kept(&silo.test, &test_rows),
                id: silo.id,
            };
            silos.into_iter().map(cut).collect()
        });
        Self { train: self.train.select(&train_rows), test: self.test.select(&test_rows), silos, ..self }
    }
}

fn breast_cancer(options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
    let stored = include_bytes!("../../data/breast_cancer.csv").to_vec();
    let content = Content::from_stored(Path::new("breast_cancer.csv"), stored)?;
    held_out("breast-cancer", &table::parse(&content, None)?.samples, 2, options, Standardiser::per_column)
}

/// Pixels 0..16 become 0..1, as images of 8 x 8.
fn digits(options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
    let stored = include_bytes!("../../data/digits.csv.gz").to_vec();
    let table = table::parse(&Content::from_stored(Path::new("digits.csv.gz"), stored)?, None)?;
    let pixels = table.samples.features().iter().map(|pixel| pixel / 16.0).collect();
    let samples = Samples::new(vec![1, 8, 8], pixels, table.samples.labels().to_vec());
    let (train, test) = samples.hold_out(10, options.test_share, options.seed);
    Ok(Dataset::new("digits", 10, samples.select(&train), samples.select(&test)))
}

fn own_file(path: &Path, options: &LoadOptions<'_>) -> Result<Dataset, TrainingError> {
    if !path.is_file() {
        return Err(TrainingError::UnknownDataset { expected: &NAMES, found: path.display().to_string() });
    }
    let name = path.file_stem().map_or_else(|| "data".into(), |stem| stem.to_string_lossy().into_owned());
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz")) {
        let (samples, class_names) = archive::read(path)?;
        let standardiser =
            if samples.shape().len() == 1 { Standardiser::per_column } else { Standardiser::overall };
        let mut dataset = held_out(&name, &samples, class_names.len(), options, standardiser)?;
        dataset.notes = what_was_read(&samples, "arrays x and y", &class_names);
        dataset.class_names = telling(class_names);
        return Ok(dataset);
    }
    if let Some(other) = path.extension().filter(|extension| extension.eq_ignore_ascii_case("npy")) {
        return Err(TrainingError::Format {
            file: path.to_owned(),
            place: "file".to_owned(),
            expected: "a .csv, or a .npz with arrays x and y (numpy.savez(\"own.npz\", x=x, y=y))".to_owned(),
            found: format!(".{}", other.to_string_lossy()),
        });
    }
    let table = table::parse(&Content::read(path)?, options.label)?;
    let classes = table.class_names.len();
    let mut dataset = held_out(&name, &table.samples, classes, options, Standardiser::per_column)?;
    dataset.notes = what_was_read(&table.samples, &table.layout, &table.class_names);
    dataset.class_names = telling(table.class_names);
    Ok(dataset)
}

/// Whether classes are called by their numbers.
fn is_numbered(class_names: &[String]) -> bool {
    class_names.iter().enumerate().all(|(class, name)| *name == class.to_string())
}

/// Names of classes, if they say more than their numbers and can stand in `federation.toml`.
fn telling(class_names: Vec<String>) -> Vec<String> {
    let can_stand = |name: &String| name.chars().count() <= 200 && !name.chars().any(char::is_control);
    if is_numbered(&class_names) || !class_names.iter().all(can_stand) { Vec::new() } else { class_names }
}

/// Classes that are listed with their counts, at most.
const MAX_LISTED: usize = 20;

/// What was found in a file, so that its owner sees a misreading.
fn what_was_read(samples: &Samples, layout: &str, class_names: &[String]) -> Vec<String> {
    let classes = class_names.len();
    let counts = table::counts(samples.labels(), classes);
    let listed =
        class_names.iter().zip(counts).take(MAX_LISTED).map(|(name, count)| format!("{name} ({count})"));
    let more = if classes > MAX_LISTED { ", ..." } else { "" };
    let features: usize = samples.shape().iter().product();
    let mut notes = Vec::new();
    if !is_numbered(class_names) {
        notes.push(format!("classes 0 to {} are {}", classes - 1, class_names.join(", ")));
    }
    notes.push(format!(
        "read {} samples of {features} features, none missing; {layout}; {classes} classes: {}{more}",
        samples.len(),
        listed.collect::<Vec<_>>().join(", ")
    ));
    let folded: BTreeSet<String> = class_names.iter().map(|name| name.to_lowercase()).collect();
    if folded.len() < classes {
        notes.push("some classes differ by upper and lower case alone: one is perhaps meant".to_owned());
    }
    notes
}

/// Cuts one table into training and test samples and standardises both with the training samples' statistics.
fn held_out(
    name: &str,
    samples: &Samples,
    classes: usize,
    options: &LoadOptions<'_>,
    standardiser: fn(&Samples) -> Standardiser,
) -> Result<Dataset, TrainingError> {
    let (train, test) = samples.hold_out(classes, options.test_share, options.seed);
    Ok(Dataset::new(name, classes, samples.select(&train), samples.select(&test)).standardised(standardiser))
}

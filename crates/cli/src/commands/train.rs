//! `secsv train`: federated training in simulation, from a data set to a run directory.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use secsv_federation::{ClientId, Labels};
use secsv_training::{
    BankAgeCodes, Dataset, DatasetSource, Fault, LoadOptions, Loss, ModelKind, Recipe, Silo, Split,
    TrainingEvent, TrainingOutcome, train,
};
use serde::Serialize;
use serde_json::json;

use crate::failure::BadInput;
use crate::output::{Document, Format, print_or_end};
use crate::progress::ProgressReport;

/// Arguments of `secsv train`.
#[derive(Args)]
pub struct TrainArgs {
    /// breast-cancer, digits (embedded); mnist, bank, agnews, mirna, heart (with --data); or a .csv or .npz
    /// file
    #[arg(long)]
    dataset: DatasetSource,
    /// The model; by default the paper's for the data set (mnist: cnn, mirna: gru, otherwise logistic)
    #[arg(long, value_enum)]
    model: Option<ModelName>,
    /// Linear layers of a dnn in all
    #[arg(long, default_value_t = 3)]
    layers: usize,
    /// The directory that holds mnist/, bank/, agnews/, mirna/, heart/
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Number of clients [default: 5; heart: its four hospitals]
    #[arg(long)]
    clients: Option<usize>,
    /// What the clients are called, in order; behind = what people call them [default: client-1, client-2 ...]
    #[arg(long, value_name = "ID[=LABEL],...", value_delimiter = ',', value_parser = parse_name)]
    names: Vec<(ClientId, Option<String>)>,
    /// Rounds of federated averaging
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Concentration of the Dirichlet split: small gives clients few classes each
    #[arg(long, allow_negative_numbers = true, default_value_t = 0.5)]
    alpha: f64,
    /// How samples are dealt [default: dirichlet; heart: natural if --clients is 4 or not given]
    #[arg(long, value_enum)]
    split: Option<SplitKind>,
    /// Drives split, initial model, sample order, selection and faults; equal seeds give equal files
    #[arg(long, allow_negative_numbers = true, default_value_t = 0)]
    seed: u64,
    /// The run directory to write; must be absent or empty
    #[arg(long, default_value = "run")]
    out: PathBuf,
    /// The federation's name in federation.toml [default: made of data set and model]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    local: LocalArgs,
    #[command(flatten)]
    samples: SampleArgs,
    #[command(flatten)]
    experiment: ExperimentArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Local training")]
struct LocalArgs {
    /// Passes over a client's samples in each round [default: suited to the task]
    #[arg(long)]
    epochs: Option<u32>,
    /// Adam's step size [default: suited to the task]
    #[arg(long, allow_negative_numbers = true)]
    learning_rate: Option<f64>,
    /// Samples per step
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Cross-entropy as it is, or corrected for how often each class occurs at a client (label skew)
    #[arg(long, value_enum, default_value_t = LossKind::Calibrated)]
    loss: LossKind,
}

#[derive(Args)]
#[command(next_help_heading = "Samples")]
struct SampleArgs {
    /// The label column of a CSV, by name or by number from 1 [default: the last]
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// The share of rows held out for testing, where the data set has no test set of its own
    #[arg(long, allow_negative_numbers = true, default_value_t = 1.0 / 3.0)]
    test_share: f64,
    /// Train on at most so many samples, drawn by seed
    #[arg(long, value_name = "N")]
    train_limit: Option<usize>,
    /// Test on at most so many samples, drawn by seed
    #[arg(long, value_name = "N")]
    test_limit: Option<usize>,
    /// How bank numbers its age bins: in the order of age, or as the paper's authors did
    #[arg(long, value_enum, default_value_t = AgeCodes::Ordered)]
    bank_ages: AgeCodes,
}

#[derive(Args)]
#[command(next_help_heading = "Selection and faults (repeat them as needed)")]
struct ExperimentArgs {
    /// The share of clients that takes part in each round
    #[arg(long, allow_negative_numbers = true, default_value_t = 1.0)]
    participation: f64,
    /// Only these clients take part in that round
    #[arg(long, value_name = "ROUND:ID,ID", value_parser = parse_selection)]
    select: Vec<(u32, Vec<ClientId>)>,
    /// Flip this fraction of a client's training labels
    #[arg(long, value_name = "ID:FRACTION", value_parser = parse_flip)]
    flip: Vec<Fault>,
    /// Let the first client train on a copy of the second one's samples
    #[arg(long, value_name = "ID:OF", value_parser = parse_duplicate)]
    duplicate: Vec<Fault>,
    /// Let a client upload the global model, with noise of this deviation if given
    #[arg(long, value_name = "ID[:NOISE]", value_parser = parse_free_rider)]
    free_rider: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModelName {
    Logistic,
    Cnn,
    Gru,
    Dnn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum SplitKind {
    Dirichlet,
    Even,
    Natural,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum LossKind {
    Plain,
    Calibrated,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AgeCodes {
    Ordered,
    Authors,
}

/// Runs the command.
pub fn run(args: &TrainArgs, format: Format) -> anyhow::Result<()> {
    let started = Instant::now();
    let dataset = load(args)?;
    let (kind, silos) = deal(args, &dataset)?;
    let recipe = recipe(args, &dataset)?;
    let loaded_s = started.elapsed().as_secs_f64();
    let progress = ProgressReport::new(
        "training",
        "epochs",
        u64::from(recipe.rounds) * silos.len() as u64 * u64::from(recipe.local.epochs),
    );
    for note in &dataset.notes {
        progress.note(note.clone(), &json!({"event": "note", "text": note}));
    }
    let named = args.names.iter().filter_map(|(id, label)| Some((id.clone(), label.clone()?)));
    let labels = Labels::new(named);
    check_labels(&labels, &silos)?;
    let outcome = train(&dataset, &silos, &recipe, &args.out, &|event| observe(&event, &progress, format))?;
    labels.write(outcome.directory.path())?;
    progress.finish();
    let report =
        Report::new(args, &dataset, &recipe, kind, &outcome, (loaded_s, started.elapsed().as_secs_f64()));
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&Document::first("secsv-training", &report))? + "\n",
        Format::Text => report.text(),
    };
    Ok(print_or_end(&text)?)
}

fn load(args: &TrainArgs) -> anyhow::Result<Dataset> {
    let options = LoadOptions {
        data: args.data.as_deref(),
        label: args.samples.label.as_deref(),
        test_share: args.samples.test_share,
        bank_age_codes: match args.samples.bank_ages {
            AgeCodes::Ordered => BankAgeCodes::Ordered,
            AgeCodes::Authors => BankAgeCodes::Authors,
        },
        seed: args.seed,
    };
    let dataset = args.dataset.load(&options)?;
    Ok(dataset.limited(args.samples.train_limit, args.samples.test_limit, args.seed))
}

/// A data set with a natural split keeps it unless another split or number of clients is asked for.
fn deal(args: &TrainArgs, dataset: &Dataset) -> anyhow::Result<(SplitKind, Vec<Silo>)> {
    let natural = dataset.silos.as_ref().map(Vec::len);
    let clients = named(args)?;
    let fits = natural.is_some() && clients.is_none_or(|clients| Some(clients) == natural);
    let kind = args.split.unwrap_or(if fits { SplitKind::Natural } else { SplitKind::Dirichlet });
    let (split, usual) = match kind {
        SplitKind::Dirichlet => (Split::Dirichlet { alpha: args.alpha }, 5),
        SplitKind::Even => (Split::Even, 5),
        SplitKind::Natural => (Split::Natural, natural.unwrap_or(5)),
    };
    let mut silos = split.deal(dataset, clients.unwrap_or(usual), args.seed)?;
    silos.iter_mut().zip(&args.names).for_each(|(silo, (name, _))| silo.id = name.clone());
    Ok((kind, silos))
}

/// Refuses labels that could not be read again.
fn check_labels(labels: &Labels, silos: &[Silo]) -> Result<(), BadInput> {
    let is_line = |label: &str| !label.trim().is_empty() && !label.chars().any(char::is_control);
    let wrong = silos.iter().find(|silo| labels.get(&silo.id).is_some_and(|label| !is_line(label)));
    match wrong {
        None => Ok(()),
        Some(silo) => {
            Err(BadInput::new("--names", "a label in one line behind =", format!("none for {}", silo.id)))
        }
    }
}

/// How many clients there are to be, if anything says it.
fn named(args: &TrainArgs) -> Result<Option<usize>, BadInput> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = args.names.iter().map(|(name, _)| name).find(|name| !seen.insert(*name)) {
        return Err(BadInput::new("--names", "every name once", format!("{twice} twice")));
    }
    match (args.clients, args.names.len()) {
        (clients, 0) => Ok(clients),
        (Some(clients), names) if clients != names => {
            let found = format!("{names} names and {clients} clients");
            Err(BadInput::new("--names", "as many names as --clients says", found))
        }
        (_, names) => Ok(Some(names)),
    }
}

fn recipe(args: &TrainArgs, dataset: &Dataset) -> anyhow::Result<Recipe> {
    let model = match (args.model, &args.dataset) {
        (Some(ModelName::Logistic), _) => ModelKind::Logistic,
        (Some(ModelName::Cnn), _) | (None, DatasetSource::Mnist) => ModelKind::Cnn,
        (Some(ModelName::Gru), _) | (None, DatasetSource::Mirna) => ModelKind::Gru,
        (Some(ModelName::Dnn), _) => ModelKind::Dnn { layers: args.layers },
        (None, _) => ModelKind::Logistic,
    };
    let mut recipe = Recipe::new(&args.dataset, model, args.seed);
    recipe.name = args.name.clone().unwrap_or_else(|| format!("{} {}", dataset.name, model.name()));
    recipe.rounds = args.rounds;
    recipe.local.batch = args.local.batch;
    recipe.local.loss = match args.local.loss {
        LossKind::Plain => Loss::Plain,
        LossKind::Calibrated => Loss::Calibrated,
    };
    recipe.local.epochs = args.local.epochs.unwrap_or(recipe.local.epochs);
    recipe.local.learning_rate = args.local.learning_rate.unwrap_or(recipe.local.learning_rate);
    let experiment = &args.experiment;
    recipe.participation.fraction = experiment.participation;
    for (round, clients) in &experiment.select {
        if recipe.participation.lists.insert(*round, clients.clone()).is_some() {
            let (setting, expected, found) = ("--select", "every round once", format!("round {round} twice"));
            return Err(BadInput::new(setting, expected, found).into());
        }
    }
    recipe.faults = [&experiment.flip, &experiment.duplicate, &experiment.free_rider]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    Ok(recipe)
}

fn observe(event: &TrainingEvent<'_>, progress: &ProgressReport, format: Format) {
    match event {
        TrainingEvent::EpochFinished { .. } => progress.step(),
        TrainingEvent::RoundFinished(round) => {
            let accuracy = round.accuracy();
            let record = json!({"event": "round", "round": round.round, "accuracy": accuracy});
            progress.note(format!("accuracy {accuracy:.4}"), &record);
            if format == Format::Text && round.round.0 == 1 {
                progress.print(&format!("{:>5}  {:>7}  {:>8}", "round", "clients", "accuracy"));
            }
            if format == Format::Text {
                progress.print(&format!(
                    "{:>5}  {:>7}  {accuracy:>8.4}",
                    round.round.0,
                    round.participants.len()
                ));
            }
        }
        _ => (),
    }
}

/// The document that `--format json` prints.
#[derive(Serialize)]
struct Report {
    out: PathBuf,
    name: String,
    dataset: String,
    model: &'static str,
    split: SplitKind,
    alpha: Option<f64>,
    seed: u64,
    epochs: u32,
    learning_rate: f64,
    batch: usize,
    loss: LossKind,
    clients: Vec<ClientReport>,
    initial_accuracy: f64,
    rounds: Vec<RoundReport>,
    notes: Vec<String>,
    timing: TrainingTime,
}

#[derive(Serialize)]
struct ClientReport {
    id: ClientId,
    /// What people call it, if it is not by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    train_size: usize,
    test_size: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<String>,
}

#[derive(Serialize)]
struct RoundReport {
    round: u32,
    clients: Vec<ClientId>,
    correct: usize,
    total: usize,
    accuracy: f64,
}

#[derive(Serialize)]
struct TrainingTime {
    load_s: f64,
    wall_s: f64,
}

impl Report {
    fn new(
        args: &TrainArgs,
        dataset: &Dataset,
        recipe: &Recipe,
        split: SplitKind,
        outcome: &TrainingOutcome,
        (load_s, wall_s): (f64, f64),
    ) -> Self {
        let faults =
            |id: &ClientId| recipe.faults.iter().filter(|f| f.client() == id).map(describe).collect();
        let label = |id: &ClientId| args.names.iter().find(|(named, _)| named == id)?.1.clone();
        let clients = outcome.clients.iter().map(|client| ClientReport {
            id: client.id.clone(),
            label: label(&client.id),
            train_size: client.train_size,
            test_size: client.test_size,
            faults: faults(&client.id),
        });
        let rounds = outcome.rounds.iter().map(|round| RoundReport {
            round: round.round.0,
            clients: outcome.directory.spec().names(round.participants),
            correct: round.correct,
            total: round.total,
            accuracy: round.accuracy(),
        });
        Self {
            out: args.out.clone(),
            name: recipe.name.clone(),
            dataset: dataset.name.clone(),
            model: recipe.model.name(),
            split,
            alpha: (split == SplitKind::Dirichlet).then_some(args.alpha),
            seed: args.seed,
            epochs: recipe.local.epochs,
            learning_rate: recipe.local.learning_rate,
            batch: recipe.local.batch,
            loss: args.local.loss,
            clients: clients.collect(),
            initial_accuracy: outcome.initial_correct as f64
                / outcome.rounds.first().map_or(1, |r| r.total) as f64,
            rounds: rounds.collect(),
            notes: dataset.notes.clone(),
            timing: TrainingTime { load_s, wall_s },
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let called = |client: &ClientReport| client.label.clone().unwrap_or_else(|| client.id.to_string());
        let width =
            self.clients.iter().map(|client| called(client).chars().count()).max().unwrap_or(0).max(16);
        let _ = writeln!(text, "\n{:<width$}  {:>7}  {:>6}  faults", "client", "train", "test");
        for client in &self.clients {
            let faults = client.faults.join(", ");
            let _ = writeln!(
                text,
                "{:<width$}  {:>7}  {:>6}  {faults}",
                called(client),
                client.train_size,
                client.test_size
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = writeln!(
            text,
            "\ninitial accuracy {:.4}; {} {} epochs a round at {}, {:.1} s; wrote {}",
            self.initial_accuracy,
            self.model,
            self.epochs,
            self.learning_rate,
            self.timing.wall_s,
            self.out.display()
        );
        text
    }
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::FlippedLabels { fraction, .. } => format!("{fraction} of its labels flipped"),
        Fault::Duplicate { of, .. } => format!("copies {of}"),
        Fault::FreeRider { noise: 0.0, .. } => "free rider".to_owned(),
        Fault::FreeRider { noise, .. } => format!("free rider with noise {noise}"),
    }
}

fn parse_client(text: &str) -> Result<ClientId, String> {
    ClientId::new(text).map_err(|error| error.to_string())
}

fn parse_name(text: &str) -> Result<(ClientId, Option<String>), String> {
    match text.split_once('=') {
        None => Ok((parse_client(text)?, None)),
        Some((id, label)) => Ok((parse_client(id)?, Some(label.trim().to_owned()))),
    }
}

fn parse_selection(text: &str) -> Result<(u32, Vec<ClientId>), String> {
    let (round, clients) = text.split_once(':').ok_or("expected ROUND:ID,ID")?;
    let round = round.parse().map_err(|_| format!("expected a round, found {round}"))?;
    Ok((round, clients.split(',').map(parse_client).collect::<Result<_, _>>()?))
}

fn parse_flip(text: &str) -> Result<Fault, String> {
    let (client, fraction) = text.split_once(':').ok_or("expected ID:FRACTION")?;
    let fraction = fraction.parse().map_err(|_| format!("expected a fraction, found {fraction}"))?;
    Ok(Fault::FlippedLabels { client: parse_client(client)?, fraction })
}

fn parse_duplicate(text: &str) -> Result<Fault, String> {
    let (client, of) = text.split_once(':').ok_or("expected ID:OF")?;
    Ok(Fault::Duplicate { client: parse_client(client)?, of: parse_client(of)? })
}

fn parse_free_rider(text: &str) -> Result<Fault, String> {
    let (client, noise) = text.split_once(':').unwrap_or((text, "0"));
    let noise = noise.parse().map_err(|_| format!("expected a deviation, found {noise}"))?;
    Ok(Fault::FreeRider { client: parse_client(client)?, noise })
}

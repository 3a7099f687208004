//! The figures "Effect of M" and "Effect of n", and how cost grows with the number of rounds.

use secsv_training::ModelKind;

use super::{
    chart::{Chart, Series},
    client_counts::{CLIENT_COUNTS, of_clients, of_clients_estimated},
    fit::LineFit,
    linear_growth::{add_estimated, add_products},
    measurement::{Measured, Measurement},
    study::{CLIENTS, Section, Study, StudyScope},
    table::{Cell, ResultTable, figure},
    tasks::PaperTask,
};
use crate::protocol_name::ProtocolName;

/// The shares of test samples that are used; the authors' are these without the last.
const SHARES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 1.0];
/// Those of the tenth that the larger models are studied on; all samples come beside them.
const SHARES_OF_A_TENTH: [f64; 3] = [0.25, 0.5, 1.0];
/// One measured point of a line.
struct Point {
    x: f64,
    found: Measured,
}

/// A line of a figure: what is measured at each place.
struct Sweep<'a> {
    name: &'static str,
    /// The name of x.
    x: &'static str,
    /// The measurement at each place, without and with SampleSkip.
    at: &'a dyn Fn(PaperTask, f64, bool) -> Measurement,
    places: &'a dyn Fn(PaperTask) -> Vec<f64>,
    skips: &'static [bool],
    /// Whether seconds are divided by samples and rounds.
    per_sample: bool,
}

fn of_share(scope: &StudyScope, task: PaperTask, share: f64, skip: bool) -> Measurement {
    let whole = Measurement::new(scope.federation(task, 0), ProtocolName::SECSV);
    Measurement { share, skip, ..whole }
}

fn of_rounds(scope: &StudyScope, task: PaperTask, rounds: f64, skip: bool) -> Measurement {
    let whole = Measurement::new(scope.federation(task, 0), ProtocolName::SECSV);
    Measurement { share: scope.studied(task), rounds: rounds as u32, skip, ..whole }
}

fn share_places(scope: &StudyScope, task: PaperTask) -> Vec<f64> {
    let studied = scope.studied(task);
    if studied == 1.0 {
        return SHARES.to_vec();
    }
    SHARES_OF_A_TENTH.iter().map(|share| share * studied).chain([1.0]).collect()
}

/// Five places up to T.
fn round_places(scope: &StudyScope) -> Vec<f64> {
    let mut places: Vec<u32> = (1..=5).map(|fifth| (scope.rounds * fifth).div_ceil(5)).collect();
    places.dedup();
    places.into_iter().map(f64::from).collect()
}

/// Hands on the sweeps over M and T.
fn with_sample_sweeps(scope: &StudyScope, mut take: impl FnMut(&Sweep<'_>)) {
    take(&Sweep {
        name: "fig-samples",
        x: "M (test samples)",
        at: &|task, share, skip| of_share(scope, task, share, skip),
        places: &|task| share_places(scope, task),
        skips: &[false, true],
        per_sample: false,
    });
    take(&Sweep {
        name: "fig-samples-rounds",
        x: "T (rounds)",
        at: &|task, rounds, skip| of_rounds(scope, task, rounds, skip),
        places: &|_| round_places(scope),
        skips: &[false],
        per_sample: false,
    });
}

/// Hands on the sweep over n.
fn with_client_sweep(scope: &StudyScope, mut take: impl FnMut(&Sweep<'_>)) {
    take(&Sweep {
        name: "fig-clients",
        x: "n (clients)",
        at: &|task, clients, skip| of_clients(scope, task, clients, skip),
        places: &|_| CLIENT_COUNTS.map(|clients| clients as f64).collect(),
        skips: &[false, true],
        per_sample: true,
    });
}

impl Sweep<'_> {
    fn measurements(&self, tasks: &[PaperTask]) -> Vec<Measurement> {
        let mut all = Vec::new();
        for &task in tasks {
            for &skip in self.skips {
                all.extend((self.places)(task).into_iter().map(|place| (self.at)(task, place, skip)));
            }
        }
        all
    }

    fn y(&self, found: &Measured) -> f64 {
        if self.per_sample { 1e3 * found.seconds_per_sample() } else { found.result.timing.wall_s }
    }

    fn unit(&self) -> &'static str {
        if self.per_sample { "wall ms per test sample and round" } else { "wall s" }
    }

    /// x is what was really used.
    fn points(&self, study: &Study, task: PaperTask, skip: bool) -> Vec<Result<Point, String>> {
        let point = |place: f64| {
            let found = study.get(&(self.at)(task, place, skip))?;
            let x = if self.name == "fig-samples" { found.samples() } else { place };
            Ok(Point { x, found })
        };
        (self.places)(task).into_iter().map(point).collect()
    }

    /// A place as it is printed where nothing was measured: a share of the samples, or a number of rounds or
    /// clients.
    fn place_cell(&self, place: f64) -> Cell {
        if self.name == "fig-samples" { Cell::Number(place) } else { Cell::count(place) }
    }

    fn add_to(&self, section: &mut Section, study: &Study) {
        let columns = [
            "Data set (model)",
            "SampleSkip",
            self.x,
            "M",
            "T",
            self.unit(),
            "Speedup by SampleSkip",
            "Memory GiB",
        ];
        let mut table = ResultTable::new(self.name, &columns);
        let mut series = Vec::new();
        for &task in &study.scope.tasks {
            let plain = self.points(study, task, false);
            for &skip in self.skips {
                let points = self.points(study, task, skip);
                for (place, (point, plain)) in (self.places)(task).into_iter().zip(points.iter().zip(&plain))
                {
                    table.push(self.row(task, skip, place, point, plain));
                }
                let measured: Vec<(f64, f64)> =
                    points.iter().flatten().map(|point| (point.x, self.y(&point.found))).collect();
                // All samples lie so far beyond a tenth that any line would pass through them: they test it
                // instead.
                let beyond = usize::from(self.name == "fig-samples" && study.scope.studied(task) < 1.0);
                let (near, far) = measured.split_at(measured.len().saturating_sub(beyond));
                let fit = LineFit::through(near);
                let name = format!("{}{}", task.name(), if skip { " + skip" } else { "" });
                if let Some(fit) = &fit {
                    let x = self.x.split(' ').next().unwrap_or_default();
                    let words = fit.words(x);
                    let words = if self.per_sample { words.replace(" s ", " ms ") } else { words };
                    section.lines.push(format!("{name}: {} = {words}.", self.unit()));
                    section.lines.extend(far.iter().map(|&(x, y)| {
                        let (said, found) = (figure(fit.at(x)), figure(y));
                        format!("{name}: for M = {x} that line says {said} s; it took {found} s.")
                    }));
                }
                series.push(Series { name, points: measured, fit });
            }
        }
        section.tables.push(table);
        let title = format!("SecSV: {} over {}", self.unit(), self.x);
        let chart = Chart { logarithmic: true, ..Chart::linear(&title, self.x, self.unit(), series) };
        section.charts.push((self.name, chart));
    }

    fn row(
        &self,
        task: PaperTask,
        skip: bool,
        place: f64,
        point: &Result<Point, String>,
        plain: &Result<Point, String>,
    ) -> Vec<Cell> {
        let skipping = Cell::text(if skip { "on" } else { "off" });
        let Point { x, found } = match point {
            Ok(point) => point,
            Err(reason) => {
                let gap = Cell::gap(reason.clone());
                return vec![Cell::text(task.title()), skipping, self.place_cell(place), gap];
            }
        };
        let speedup = plain
            .as_ref()
            .ok()
            .filter(|_| skip)
            .map(|plain| Cell::Number(plain.found.seconds_per_sample() / found.seconds_per_sample()));
        vec![
            Cell::text(task.title()),
            skipping,
            Cell::count(*x),
            Cell::count(found.samples()),
            Cell::count(found.rounds()),
            Cell::Number(self.y(found)),
            speedup.unwrap_or(Cell::text("")),
            found.memory_gib().map_or(Cell::text(""), Cell::Number),
        ]
    }
}

/// Measurements of "Effect of M".
pub fn sample_measurements(scope: &StudyScope) -> Vec<Measurement> {
    let mut all = Vec::new();
    with_sample_sweeps(scope, |sweep| all.extend(sweep.measurements(&scope.tasks)));
    all
}

/// The section "Effect of M".
pub fn sample_section(study: &Study) -> Section {
    let scope = &study.scope;
    let mut section = Section::new("fig-samples", "Test samples and rounds (figure \"Effect of M\")");
    section.about = vec![
        "SecSV with every party, wall clock; M and T vary, everything else as in table-eval, but T varies on a tenth of the test samples for CNN and GRU, and so does M below all of them. Lines are least-squares fits (dashed in the charts, whose y is logarithmic, so a straight line looks bent). The paper plots the speedup by SampleSkip and prints no numbers.".to_owned(),
    ];
    with_sample_sweeps(scope, |sweep| sweep.add_to(&mut section, study));
    section.note_differences(&scope.tasks);
    section
}

/// Measurements of "Effect of n".
pub fn client_measurements(scope: &StudyScope) -> Vec<Measurement> {
    let mut all = Vec::new();
    with_client_sweep(scope, |sweep| all.extend(sweep.measurements(&scope.tasks)));
    for &task in scope.tasks.iter().filter(|task| task.is_linear()) {
        all.extend(CLIENT_COUNTS.map(|clients| of_clients_estimated(scope, task, clients)));
    }
    all
}

/// The section "Effect of n".
pub fn client_section(study: &Study) -> Section {
    let scope = &study.scope;
    let mut section = Section::new("fig-clients", "Number of clients (figure \"Effect of n\")");
    section.about = vec![format!(
        "n = 4 to 10 clients (2^n - 1 models a round; the paper's default is {CLIENTS}), CNN and GRU on a tenth of the test samples, as the paper does, logistic models on all. Cells that were planned to exceed the limit ({} s; CNN and GRU {} s) use fewer rounds, then fewer samples (columns T and M), so cost is per test sample and round. Batches of fewer samples are less full, so a sample costs more where M is small.",
        figure(scope.sweep_limit(ModelKind::Logistic)),
        figure(scope.sweep_limit(ModelKind::Cnn)),
    )];
    with_client_sweep(scope, |sweep| sweep.add_to(&mut section, study));
    add_products(&mut section, study);
    add_estimated(&mut section, study);
    section.note_differences(&scope.tasks);
    section
}

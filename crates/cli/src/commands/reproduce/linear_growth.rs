//! What of the cost of one-layer models grows with the clients, and what with their coalitions.

use secsv_evaluation::Timing;
use secsv_shapley::Method;

use super::{
    chart::{Chart, Series},
    fit::Line,
    growth::{CLIENT_COUNTS, of_clients},
    measurement::{Measured, Measurement},
    study::{Scope, Section, Study},
    table::{Cell, Table},
    tasks::Task,
};

/// As many tests as the paper's KernelSHAP takes: their number grows with n, not with 2^n. For logistic models.
pub(super) fn of_clients_estimated(scope: &Scope, task: Task, clients: usize) -> Measurement {
    let exact = of_clients(scope, task, clients as f64, false);
    let estimator_samples = Some(2 * clients + 16);
    Measurement { method: Method::KernelShap, estimator_samples, limit: None, ..exact }
}

/// What a client more costs logistic models where the number of tests is not exponential.
pub(super) fn add_estimated(section: &mut Section, study: &Study) {
    let columns = ["Data set (model)", "n (clients)", "M", "T", "Models tested", "Wall s", "Memory GiB"];
    let mut table = Table::new("fig-clients-estimated", &columns);
    let mut series = Vec::new();
    for &task in study.scope.tasks.iter().filter(|task| task.is_linear()) {
        let mut points = Vec::new();
        for clients in CLIENT_COUNTS {
            let mut row = vec![Cell::text(task.title()), Cell::Number(clients as f64)];
            match study.get(&of_clients_estimated(&study.scope, task, clients)) {
                Ok(found) => {
                    let wall = found.result.timing.wall_s;
                    points.push((clients as f64, wall));
                    let memory = found.result.peak_memory_bytes.unwrap_or_default() as f64;
                    let figures = [found.samples(), found.rounds(), tested(&found), wall];
                    row.extend(figures.into_iter().chain([memory / (1u64 << 30) as f64]).map(Cell::Number));
                }
                Err(reason) => row.push(Cell::gap(reason)),
            }
            row.resize(columns.len(), Cell::text(""));
            table.rows.push(row);
        }
        let fit = Line::through(&points);
        if let Some(fit) = &fit {
            let words = fit.words("n");
            section.lines.push(format!("{} + KernelSHAP of 2n + 16 tests: wall s = {words}.", task.name()));
        }
        series.push(Series { name: task.name().to_owned(), points, fit });
    }
    if series.iter().all(|series| series.points.is_empty()) {
        return;
    }
    section.tables.push(table);
    section.about.push("With KernelSHAP's 2n + 16 tests a round (third table; as many as the paper's KernelSHAP takes, for n = 4 all there are) nothing is exponential, and the whole run grows with n.".to_owned());
    let chart = Chart {
        title: "SecSV with KernelSHAP of 2n + 16 tests, logistic models: wall s over n".to_owned(),
        x: "n (clients)",
        y: "wall s",
        logarithmic: false,
        categories: Vec::new(),
        series,
    };
    section.charts.push(("fig-clients-estimated.svg", chart));
}

/// Models that were tested, in all rounds.
fn tested(found: &Measured) -> f64 {
    found.result.utilities.iter().filter(|utility| !utility.coalition.is_empty()).count() as f64
}

/// What of the cost of logistic models grows with the clients, and what with the coalitions.
pub(super) fn add_products(section: &mut Section, study: &Study) {
    let columns = [
        "Data set (model)",
        "n (clients)",
        "M",
        "T",
        "Models tested",
        "Encrypted products",
        "Replies",
        "Under encryption, CPU s",
        "Wall ms per model tested",
    ];
    let mut table = Table::new("fig-clients-products", &columns);
    let mut series = Vec::new();
    for &task in study.scope.tasks.iter().filter(|task| task.is_linear()) {
        let (mut points, mut encrypted) = (Vec::new(), Vec::new());
        for clients in CLIENT_COUNTS {
            let place = Cell::Number(clients as f64);
            let row = match study.get(&of_clients(&study.scope, task, clients as f64, false)) {
                Ok(found) => {
                    let products = found.result.operations.ct_pt_mul as f64;
                    let models = tested(&found);
                    let Timing { encrypt_s, linear_s, sanitise_s, decrypt_s, .. } = found.result.timing;
                    let under_encryption = encrypt_s + linear_s + sanitise_s + decrypt_s;
                    let work = found.samples() * found.rounds();
                    points.push((clients as f64, products / work));
                    encrypted.push((clients as f64, 1e6 * under_encryption / work));
                    vec![
                        Cell::text(task.title()),
                        place,
                        Cell::Number(found.samples()),
                        Cell::Number(found.rounds()),
                        Cell::Number(models),
                        Cell::Number(products),
                        Cell::Number(found.result.operations.decrypt as f64),
                        Cell::Number(under_encryption),
                        Cell::Number(1e3 * found.result.timing.wall_s / models),
                    ]
                }
                Err(reason) => {
                    let mut row = vec![Cell::text(task.title()), place, Cell::gap(reason)];
                    row.resize(columns.len(), Cell::text(""));
                    row
                }
            };
            table.rows.push(row);
        }
        if let Some(fit) = Line::through(&encrypted) {
            let words = fit.words("n").replace(" s ", " ");
            section.lines.push(format!(
                "{}: processor microseconds under encryption per test sample and round = {words}.",
                task.name()
            ));
        }
        let fit = Line::through(&points);
        if let Some(fit) = &fit {
            let words = fit.words("n").replace(" s ", " ");
            section
                .lines
                .push(format!("{}: encrypted products per test sample and round = {words}.", task.name()));
        }
        series.push(Series { name: task.name().to_owned(), points, fit });
    }
    if series.iter().all(|series| series.points.is_empty()) {
        return;
    }
    section.tables.push(table);
    section.about.push("Of logistic models (second table) everything under encryption grows with n, not with 2^n: a coalition's outputs are sums of its members', and a decryptor adds up those that follow from others. What is left for each of the 2^n - 1 models is to take the class of each sample and to compare it blind, a few bits a sample.".to_owned());
    let chart = Chart {
        title: "SecSV, logistic models: encrypted products per test sample and round".to_owned(),
        x: "n (clients)",
        y: "products per test sample and round",
        logarithmic: false,
        categories: Vec::new(),
        series,
    };
    section.charts.push(("fig-clients-products.svg", chart));
}

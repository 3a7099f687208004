//! Costs of one-layer models that grow with the clients, and those that grow with their coalitions.

use secsv_evaluation::Timing;

use super::{
    chart::{Chart, Series},
    client_counts::{CLIENT_COUNTS, of_clients, of_clients_estimated},
    fit::LineFit,
    measurement::Measured,
    study::{Section, Study},
    table::{Cell, ResultTable},
};

/// Cost of each further client for logistic models where the number of tests is not exponential.
pub(super) fn add_estimated(section: &mut Section, study: &Study) {
    let columns = ["Data set (model)", "n (clients)", "M", "T", "Models tested", "Wall s", "Memory GiB"];
    let mut table = ResultTable::new("fig-clients-estimated", &columns);
    let mut series = Vec::new();
    for &task in study.scope.tasks.iter().filter(|task| task.is_linear()) {
        let mut points = Vec::new();
        for clients in CLIENT_COUNTS {
            let mut row = vec![Cell::text(task.title()), Cell::count(clients as f64)];
            match study.get(&of_clients_estimated(&study.scope, task, clients)) {
                Ok(found) => {
                    let wall = found.result.timing.wall_s;
                    points.push((clients as f64, wall));
                    row.extend([found.samples(), found.rounds(), tested(&found)].map(Cell::count));
                    row.extend([wall, found.memory_gib().unwrap_or_default()].map(Cell::Number));
                }
                Err(reason) => row.push(Cell::gap(reason)),
            }
            table.push(row);
        }
        let fit = LineFit::through(&points);
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
    let chart = Chart::linear(
        "SecSV with KernelSHAP of 2n + 16 tests, logistic models: wall s over n",
        "n (clients)",
        "wall s",
        series,
    );
    section.charts.push(("fig-clients-estimated", chart));
}

/// Models that were tested, in all rounds.
fn tested(found: &Measured) -> f64 {
    found.result.utilities.iter().filter(|utility| !utility.coalition.is_empty()).count() as f64
}

const PRODUCT_COLUMNS: [&str; 9] = [
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

/// Work of logistic models that grows with the clients, beside what grows with the coalitions.
pub(super) fn add_products(section: &mut Section, study: &Study) {
    let mut table = ResultTable::new("fig-clients-products", &PRODUCT_COLUMNS);
    let mut series = Vec::new();
    for &task in study.scope.tasks.iter().filter(|task| task.is_linear()) {
        let (mut points, mut encrypted) = (Vec::new(), Vec::new());
        for clients in CLIENT_COUNTS {
            let mut row = vec![Cell::text(task.title()), Cell::count(clients as f64)];
            match study.get(&of_clients(&study.scope, task, clients as f64, false)) {
                Ok(found) => {
                    let work = found.samples() * found.rounds();
                    points.push((clients as f64, found.result.operations.ct_pt_mul as f64 / work));
                    encrypted.push((clients as f64, 1e6 * under_encryption_s(&found) / work));
                    row.extend(product_cells(&found));
                }
                Err(reason) => row.push(Cell::gap(reason)),
            }
            table.push(row);
        }
        let fit = LineFit::through(&points);
        for (what, fit) in [
            ("processor microseconds under encryption", LineFit::through(&encrypted)),
            ("encrypted products", fit),
        ] {
            section.lines.extend(fit.map(|fit| {
                let words = fit.words("n").replace(" s ", " ");
                format!("{}: {what} per test sample and round = {words}.", task.name())
            }));
        }
        series.push(Series { name: task.name().to_owned(), points, fit });
    }
    if series.iter().all(|series| series.points.is_empty()) {
        return;
    }
    section.tables.push(table);
    section.about.push("Of logistic models (second table) everything under encryption grows with n, not with 2^n: a coalition's outputs are sums of its members', and a decryptor adds up those that follow from others. What is left for each of the 2^n - 1 models is to take the class of each sample and to compare it blind, a few bits a sample.".to_owned());
    let chart = Chart::linear(
        "SecSV, logistic models: encrypted products per test sample and round",
        "n (clients)",
        "products per test sample and round",
        series,
    );
    section.charts.push(("fig-clients-products", chart));
}

/// Processor seconds spent on ciphertexts by all parties.
fn under_encryption_s(found: &Measured) -> f64 {
    let Timing { encrypt_s, linear_s, sanitise_s, decrypt_s, .. } = found.result.timing;
    encrypt_s + linear_s + sanitise_s + decrypt_s
}

/// A row of the table of products, behind its task and number of clients.
fn product_cells(found: &Measured) -> [Cell; 7] {
    let operations = &found.result.operations;
    let models = tested(found);
    [
        Cell::count(found.samples()),
        Cell::count(found.rounds()),
        Cell::count(models),
        Cell::count(operations.ct_pt_mul as f64),
        Cell::count(operations.decrypt as f64),
        Cell::Number(under_encryption_s(found)),
        Cell::Number(1e3 * found.result.timing.wall_s / models),
    ]
}

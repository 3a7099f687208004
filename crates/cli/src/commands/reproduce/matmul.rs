//! The table "Speedup of Matrix Reducing w.r.t. Matrix Squaring".

use super::{
    paper::{MATMUL, MatmulColumn},
    study::{Section, Study},
    table::{Cell, ResultTable, figure},
};
use crate::commands::bench::{MatmulTimes, ProductTime};

/// The cell's name.
pub const CELL: &str = "matmul-standard";

/// The table from what was measured.
pub fn section(study: &Study) -> Section {
    let title = "Matrix products (table \"Speedup of Matrix Reducing w.r.t. Matrix Squaring\")";
    let mut section = Section::new("table-matmul", title);
    section.about = vec![
        "Speedups of Matrix Reducing (R) over Matrix Squaring (S), time per sample, one thread, encoding of the batch included: **ours** / the paper's. \"Full\": A and B encrypted. \"Half\": only A. The paper does not say which S its Half row is over, so both are here: R half over S half, and R half over S full.".to_owned(),
        "Our S is the fair one: a Galois key for every step, blocks added before they are folded once. \"Folded per block\" adds the rotations of folding each block by itself, as the paper describes it: computed from the count of rotations and this machine's cost of one, not measured.".to_owned(),
        "TenSEAL rows: stock TenSEAL 0.3.18 on 2 virtual EPYC cores, Half over S half with its own Galois keys, Half over S full with a key per step, Full over the fair S.".to_owned(),
    ];
    let columns: Vec<String> =
        MATMUL.iter().map(|column| format!("{}x{}", column.shape[0], column.shape[1])).collect();
    let mut head = vec!["Speedup"];
    head.extend(columns.iter().map(String::as_str));
    let mut table = ResultTable::new("table-matmul", &head);
    let mut times = ResultTable::new("table-matmul-times", &head);
    match study.store.get::<MatmulTimes>(CELL) {
        Some(found) => fill(&found, &mut table, &mut times, &mut section.lines),
        None => {
            let reason = study.failures.get(CELL).cloned().unwrap_or_else(|| "not measured".to_owned());
            table.push(vec![Cell::gap(reason)]);
        }
    }
    section.tables.extend([table, times]);
    section
}

struct Shape<'a> {
    found: &'a MatmulTimes,
    column: &'static MatmulColumn,
}

impl Shape<'_> {
    fn product(&self, method: &str, encrypted: &str) -> Option<&ProductTime> {
        let is_it =
            |p: &&ProductTime| p.shape == self.column.shape && p.method == method && p.encrypted == encrypted;
        self.found.products.iter().find(is_it)
    }

    fn time(&self, method: &str, encrypted: &str) -> f64 {
        self.product(method, encrypted).map_or(f64::NAN, |product| product.us_per_sample)
    }

    /// Squaring with each block folded by itself.
    fn per_block(&self, encrypted: &str) -> f64 {
        let d_in = self.column.shape[1];
        let side = d_in.min((self.found.degree / 2).isqrt());
        let blocks = d_in.div_ceil(side);
        let rotations = self.product("squaring", encrypted).and_then(|p| p.operations.get("rotate").copied());
        self.time("squaring", encrypted)
            + (blocks - 1) as f64 * rotations.unwrap_or(0.0) * self.found.rotate_us
    }
}

type Figure = fn(&Shape<'_>) -> f64;
type Printed = fn(&MatmulColumn) -> f64;

/// One row of speedups: its name, our figure, and the paper's where it prints one.
type SpeedupRow = (&'static str, Figure, Option<Printed>);

const SPEEDUPS: [SpeedupRow; 9] = [
    (
        "Full: R full over S full",
        |s| s.time("squaring", "full") / s.time("reducing", "full"),
        Some(|c| c.full),
    ),
    (
        "Half: R half over S half",
        |s| s.time("squaring", "half") / s.time("reducing", "half"),
        Some(|c| c.half),
    ),
    (
        "Half: R half over S full",
        |s| s.time("squaring", "full") / s.time("reducing", "half"),
        Some(|c| c.half),
    ),
    (
        "Full over S folded per block (computed)",
        |s| s.per_block("full") / s.time("reducing", "full"),
        Some(|c| c.full),
    ),
    (
        "Half over S half folded per block (computed)",
        |s| s.per_block("half") / s.time("reducing", "half"),
        Some(|c| c.half),
    ),
    ("Half: ours (packed) over S half", |s| s.time("squaring", "half") / s.time("packed", "half"), None),
    ("TenSEAL: Full over fair S", |s| s.column.tenseal_full_fair, Some(|c| c.full)),
    ("TenSEAL: Half over S half, its keys", |s| s.column.tenseal_half, Some(|c| c.half)),
    ("TenSEAL: Half over S full, key per step", |s| s.column.tenseal_half_over_full, Some(|c| c.half)),
];

/// Methods whose times are printed, and which operands are encrypted.
const TIMED: [(&str, &str); 5] = [
    ("squaring", "full"),
    ("reducing", "full"),
    ("squaring", "half"),
    ("reducing", "half"),
    ("packed", "half"),
];

fn fill(found: &MatmulTimes, table: &mut ResultTable, times: &mut ResultTable, lines: &mut Vec<String>) {
    let shapes: Vec<Shape<'_>> = MATMUL.iter().map(|column| Shape { found, column }).collect();
    for (name, figure, printed) in SPEEDUPS {
        let cell =
            |shape: &Shape<'_>| Cell::beside(figure(shape), printed.map(|printed| printed(shape.column)));
        table.rows.push(std::iter::once(Cell::text(name)).chain(shapes.iter().map(cell)).collect());
    }
    for (method, encrypted) in TIMED {
        let name = format!("{method}, {encrypted}, microseconds per sample");
        let cell = |shape: &Shape<'_>| Cell::Number(shape.time(method, encrypted));
        times.rows.push(std::iter::once(Cell::text(name)).chain(shapes.iter().map(cell)).collect());
    }
    for shape in &shapes {
        let ours = shape.time("squaring", "full") / shape.time("reducing", "full");
        if ours < shape.column.full {
            let [rows, columns] = shape.column.shape;
            lines.push(format!(
                "{rows}x{columns}, Full: R gains {}x over our fair S, less than the paper's {}x over its S.",
                figure(ours),
                figure(shape.column.full)
            ));
        }
    }
}

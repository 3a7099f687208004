//! The page, its tables as CSV and its drawings as SVG.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    Target,
    measurement::{SHORT_S, TIMES},
    study::{Section, Study},
    table::{Cell, ResultTable},
};
use crate::output_file;
use clap::ValueEnum as _;

/// Writes everything and gives the page's path. Sections of earlier runs in the same directory stay on the
/// page.
pub fn write(out: &Path, sections: &mut [Section], study: &Study, command: &str) -> anyhow::Result<PathBuf> {
    let parts = out.join("sections");
    fs::create_dir_all(&parts).with_context(|| format!("{}: cannot be created", parts.display()))?;
    for section in sections.iter_mut() {
        for table in &section.tables {
            let file = out.join(format!("{}.csv", table.name));
            output_file::write(&file, table.csv().as_bytes())?;
            section.files.push(file);
        }
        for (name, chart) in &section.charts {
            let file = out.join(format!("{name}.svg"));
            output_file::write(&file, chart.svg().as_bytes())?;
            section.files.push(file);
        }
        let made = format!("{}\nMade by `{command}` on {}.\n", markdown(section), study.store.machine());
        output_file::write(&parts.join(format!("{}.md", section.name)), made.as_bytes())?;
    }
    if let Some(section) = sections.iter().find(|section| section.name == "table-eval") {
        output_file::write(&out.join("headline.md"), headline(section, study, command).as_bytes())?;
    }
    let page = out.join("RESULTS.md");
    output_file::write(&page, whole(&parts, study).as_bytes())?;
    Ok(page)
}

fn whole(parts: &Path, study: &Study) -> String {
    let mut text = String::from("# The paper's tables and figures, reproduced\n\n");
    let scope = &study.scope;
    let _ = writeln!(
        text,
        "\"Secure Shapley Value for Cross-Silo Federated Learning\", PVLDB 16(7), 2023: its tables and figures on one machine, every party at work in one process, the `standard` preset, our figure beside the paper's in each cell.\n"
    );
    let share = if scope.scale < 1.0 {
        format!("**{} of the samples only** (`--scale {}`)", scope.scale, scope.scale)
    } else {
        "all samples".to_owned()
    };
    let _ = writeln!(
        text,
        "- Machine: {}\n- Latest run: {share}, T = {}, {} run(s) from seed {}, of cells on all samples that take less than {SHORT_S} s the fastest of {TIMES}, at most {} s a cell planned for HESV (a sweep over clients or layers says its own limit); each section names the command that made it\n- Cells, models and this page: one directory (`--out`); run the command again to go on after an interruption",
        study.store.machine(),
        scope.rounds,
        scope.runs,
        scope.seed,
        scope.limit
    );
    if !study.failures.is_empty() {
        let _ = writeln!(
            text,
            "- Gaps: {} cells could not be measured, their reasons are in the tables",
            study.failures.len()
        );
    }
    for target in Target::EACH {
        let Some(name) = target.to_possible_value() else { continue };
        if let Ok(section) = fs::read_to_string(parts.join(format!("{}.md", name.get_name()))) {
            text.push_str(&section);
        }
    }
    // bench/compare leaves its table here.
    if let Ok(peers) = fs::read_to_string(parts.join("peers.md")) {
        text.push_str("\n## Peers: one secure test\n\n");
        text.push_str(&peers);
    }
    text
}

/// The few columns of table-eval that a README has room for.
fn headline(section: &Section, study: &Study, command: &str) -> String {
    let picked = ["Data set (model)", "Protocol", "M", "Total, wall s", "Against the authors' code", "Error"];
    let mut short = ResultTable::new("headline", &picked);
    for table in &section.tables {
        let places: Vec<usize> =
            picked.iter().filter_map(|name| table.columns.iter().position(|column| column == name)).collect();
        let row = |row: &Vec<Cell>| places.iter().filter_map(|&place| row.get(place).cloned()).collect();
        short.rows.extend(table.rows.iter().map(row));
    }
    format!(
        "{}\n**Ours** / the paper's (times faster per test sample and round); T = {}, n = 5; `{command}` on {}{}.\n",
        short.markdown(),
        study.scope.rounds,
        study.store.machine(),
        if section.reuses { " and earlier builds, which docs/RESULTS.md names by cell" } else { "" }
    )
}

/// A section of the page.
pub fn markdown(section: &Section) -> String {
    let mut text = format!("\n## {}\n\n", section.title);
    for about in &section.about {
        let _ = writeln!(text, "{about}\n");
    }
    for table in &section.tables {
        let _ = writeln!(text, "{}", table.markdown());
    }
    for (name, chart) in &section.charts {
        let _ = writeln!(text, "![{}]({name}.svg)\n", chart.title);
    }
    for line in &section.lines {
        let _ = writeln!(text, "- {line}");
    }
    text
}

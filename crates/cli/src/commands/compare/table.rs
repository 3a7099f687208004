//! The comparison for people: values as `evaluate` shows them, what they took, and whom that exposes.

use std::fmt::Write as _;

use super::ComparisonRow;
use crate::{
    findings::{SHARE_RULE, models_tested, point_words, ranked, shares},
    output::is_verbose,
    value_table::{digits, exposure_sentences, points},
};

/// The width of a protocol's two columns, points and share.
const PAIR: usize = 19;

/// All of it, in the order of the first protocol's values.
pub fn text(rows: &[ComparisonRow]) -> String {
    let mut text = String::new();
    let Some(first) = rows.first() else { return text };
    let _ = writeln!(text, "what each organisation contributed, in points: {}\n", point_words(&first.result));
    values(&mut text, rows);
    if rows.len() > 1 && rows.iter().all(|row| row.result.fsv == first.result.fsv) {
        text.push_str("All columns are the same to the last bit.\n");
    }
    let _ = writeln!(text, "{SHARE_RULE}\n");
    efforts(&mut text, rows);
    let mut notes: Vec<&String> = rows.iter().flat_map(|row| &row.result.notes).collect();
    notes.dedup();
    notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text.push_str("\nwho can do what with other clients' samples and models\n");
    for row in rows {
        let _ = writeln!(text, "  {}", row.result.protocol);
        match &row.result.security {
            None => {
                text.push_str("    In the clear: whoever computed it could read every model and test case.\n")
            }
            Some(security) => {
                exposure_sentences(security).for_each(|said| text.push_str(&format!("    {said}\n")));
                if is_verbose() {
                    let _ = writeln!(text, "    trust: {}", security.trust);
                }
            }
        }
    }
    text
}

/// Width of the first column.
fn width(rows: &[ComparisonRow]) -> usize {
    let labels = rows.iter().flat_map(|row| row.result.clients.iter().map(|id| row.result.label(id)));
    labels.map(|label| label.chars().count()).max().unwrap_or(0).max(24)
}

fn values(text: &mut String, rows: &[ComparisonRow]) {
    let Some(first) = rows.first() else { return };
    let (width, digits) = (width(rows), digits(rows.iter().flat_map(|row| row.result.fsv.values().copied())));
    let _ = write!(text, "{:width$}", "");
    rows.iter().for_each(|row| {
        let _ = write!(text, "  {:>PAIR$}", row.result.protocol);
    });
    let _ = write!(text, "\n{:width$}", "organisation");
    rows.iter().for_each(|_| {
        let _ = write!(text, "  {:>10}  {:>7}", "points", "share");
    });
    text.push('\n');
    for (id, _) in ranked(&first.result) {
        let _ = write!(text, "{:width$}", first.result.label(id));
        for row in rows {
            let value = row.result.fsv.get(id).copied().unwrap_or_default();
            let share =
                shares(&row.result.fsv).get(id).map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
            let _ = write!(text, "  {:>10}  {share:>7}", points(value, digits));
        }
        text.push('\n');
    }
    let _ = write!(text, "{:width$}", "sum");
    let mut gap = 0;
    for row in rows {
        let _ = write!(text, "{:gap$}  {:>10}", "", points(row.result.fsv.values().sum(), digits));
        // The share's column is left empty.
        gap = PAIR - 10;
    }
    text.push('\n');
}

fn efforts(text: &mut String, rows: &[ComparisonRow]) {
    let width = width(rows);
    let mut line = |name: &str, cell: &dyn Fn(&ComparisonRow) -> String| {
        let _ = write!(text, "{name:width$}");
        rows.iter().for_each(|row| {
            let _ = write!(text, "  {:>PAIR$}", cell(row));
        });
        text.push('\n');
    };
    let seconds = |s: f64| format!("{s:.2}");
    line("models tested", &|row| models_tested(&row.result).to_string());
    line("elapsed s", &|row| seconds(row.result.timing.wall_s));
    line("MiB sent", &|row| {
        let bytes: u64 = row.result.traffic.iter().map(|link| link.bytes).sum();
        format!("{:.1}", bytes as f64 / (1 << 20) as f64)
    });
    if rows.iter().any(|row| row.result.standard_error.is_some()) {
        line("standard error, at most", &|row| {
            let errors = row.result.standard_error.iter().flat_map(|errors| errors.values().copied());
            format!("{:.2} points", 100.0 * errors.fold(0.0, f64::max))
        });
    }
    if rows.iter().any(|row| row.error.is_some()) {
        let off =
            |row: &ComparisonRow| row.largest_error.map_or("-".to_owned(), |e| format!("{:.1e}", 100.0 * e));
        line("points off nssv, at most", &off);
        line("counts unlike nssv's", &|row| row.differing_counts.map_or("-".to_owned(), |n| n.to_string()));
    }
    if is_verbose() {
        line("encrypting s", &|row| seconds(row.result.timing.encrypt_s));
        line("sharing s", &|row| seconds(row.result.timing.share_s));
        line("linear layers s", &|row| seconds(row.result.timing.linear_s));
        line("sanitising s", &|row| seconds(row.result.timing.sanitise_s));
        line("decrypting s", &|row| seconds(row.result.timing.decrypt_s));
        line("activations s", &|row| seconds(row.result.timing.activate_s));
    }
}

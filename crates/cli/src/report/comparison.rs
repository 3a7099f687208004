//! Several results of one question side by side: protocols, or two runs.

use std::collections::BTreeSet;

use maud::{Markup, html};
use secsv_evaluation::EvaluationResult;
use secsv_federation::ClientId;

use super::{
    amounts::{aligned_points, bytes, count, seconds},
    framed, page, section,
};
use crate::{
    findings::{cases, models_tested, point_words, ranked},
    value_table::exposure_sentences,
};

/// A result and what its column is called.
pub struct Compared<'a> {
    /// The heading.
    pub name: String,
    /// The result.
    pub result: &'a EvaluationResult,
}

/// The whole file.
pub fn render_comparison(columns: &[Compared<'_>], title: &str, notes: &[String]) -> String {
    page(
        title,
        "Comparison",
        html! {},
        html! {
            (values(columns, notes))
            (efforts(columns))
            (exposures(columns))
        },
    )
}

fn values(columns: &[Compared<'_>], notes: &[String]) -> Markup {
    let Some(first) = columns.first() else { return html! {} };
    let known: BTreeSet<&ClientId> = first.result.clients.iter().collect();
    let more = columns.iter().flat_map(|column| &column.result.clients).filter(|id| !known.contains(id));
    let more: BTreeSet<&ClientId> = more.collect();
    let rows: Vec<&ClientId> = ranked(first.result).into_iter().map(|(id, _)| id).chain(more).collect();
    let all = columns.iter().flat_map(|column| column.result.fsv.values().copied());
    let largest = all.map(f64::abs).fold(0.0, f64::max);
    section(
        "values",
        "Contributions",
        html! {
            p class="note" { "In points, " (point_words(first.result)) ", in the order of the first column." }
            @for note in notes { p { (note) } }
            (framed("Contributions", html! {
                table {
                    thead { tr { th scope="col" { "Organisation" } @for column in columns { th scope="col" class="amount" { (column.name) } } } }
                    tbody {
                        @for id in &rows {
                            tr {
                                th scope="row" { (first.result.label(id)) }
                                @for column in columns {
                                    td class="amount" { (column.result.fsv.get(*id).map_or("\u{2013}".to_owned(), |value| aligned_points(*value, largest))) }
                                }
                            }
                        }
                    }
                }
            }))
        },
    )
}

fn efforts(columns: &[Compared<'_>]) -> Markup {
    type Cell = fn(&EvaluationResult) -> String;
    let rows: [(&str, Cell); 6] = [
        ("Protocol", |result| result.protocol.clone()),
        ("Method", |result| result.estimator.clone()),
        ("Models tested", |result| count(models_tested(result) as u64)),
        ("Test cases", |result| count(cases(result) as u64)),
        ("Elapsed", |result| seconds(result.timing.wall_s)),
        ("Sent between parties", |result| bytes(result.traffic.iter().map(|link| link.bytes).sum())),
    ];
    section(
        "effort",
        "What it took",
        framed(
            "What it took",
            html! {
                table {
                    thead { tr { th scope="col" { "" } @for column in columns { th scope="col" class="amount" { (column.name) } } } }
                    tbody {
                        @for (name, cell) in rows {
                            tr { th scope="row" { (name) } @for column in columns { td class="amount" { (cell(column.result)) } } }
                        }
                    }
                }
            },
        ),
    )
}

fn exposures(columns: &[Compared<'_>]) -> Markup {
    section(
        "exposure",
        "Who can rebuild what of others",
        html! {
            @for column in columns {
                h3 { (column.name) }
                @match &column.result.security {
                    None => p { "In the clear: whoever computed it could read every model and test case." },
                    Some(security) => { @for sentence in exposure_sentences(security) { p { (sentence) } } },
                }
            }
        },
    )
}

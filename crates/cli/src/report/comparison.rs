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
    findings::{SHARE_RULE, cases, models_tested, point_words, ranked, shares},
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
            p class="note" { "In points, " (point_words(first.result)) ", in the order of the first column. " (SHARE_RULE) }
            @for note in notes { p { (note) } }
            (framed("Contributions", html! {
                table {
                    thead { tr {
                        th scope="col" { "Organisation" }
                        @for column in columns { th scope="col" class="amount" { (column.name) } }
                        @if columns.len() == 2 { th scope="col" class="amount" { "Difference" } }
                    } }
                    tbody {
                        @for id in &rows {
                            tr {
                                th scope="row" { (called(columns, id)) }
                                @for column in columns { (value(column, id, largest)) }
                                @if let Some(apart) = apart(columns, id) { td class="amount" { (aligned_points(apart, largest)) } }
                            }
                        }
                        tr {
                            th scope="row" { "Sum" }
                            @for column in columns { td class="amount" { (aligned_points(column.result.fsv.values().sum(), largest)) } }
                            @if columns.len() == 2 { td {} }
                        }
                    }
                }
            }))
        },
    )
}

/// What people call an organisation in the first result that knows it.
fn called<'a>(columns: &[Compared<'a>], id: &'a ClientId) -> &'a str {
    let knows = columns.iter().find(|column| column.result.clients.contains(id));
    knows.map_or(id.as_str(), |column| column.result.label(id))
}

/// Points and share.
fn value(column: &Compared<'_>, id: &ClientId, largest: f64) -> Markup {
    let shares = shares(&column.result.fsv);
    let share = shares.get(id).map_or("\u{2013}".to_owned(), |share| format!("{:.1}\u{a0}%", 100.0 * share));
    html! {
        td class="amount" {
            @match column.result.fsv.get(id) {
                Some(value) => { (aligned_points(*value, largest)) " " small { (share) } }
                None => "\u{2013}",
            }
        }
    }
}

/// How much the second of two results has more; nothing where there are others, or none of one.
fn apart(columns: &[Compared<'_>], id: &ClientId) -> Option<f64> {
    let [one, other] = columns else { return None };
    Some(other.result.fsv.get(id)? - one.result.fsv.get(id)?)
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

//! The report: one HTML file that needs nothing else, neither a network nor scripts, readable on a phone and
//! on paper.

mod amounts;
mod attendance;
mod coalitions;
mod contributions;
mod costs;
mod rounds;
mod security;
mod summary;
#[cfg(test)]
mod tests;

use attendance::RoundAttendance;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use secsv_evaluation::EvaluationResult;

const STYLE: &str = include_str!("style.css");

/// The whole file. Everything that comes from outside (`title`, names, parameters) is escaped.
pub fn render(result: &EvaluationResult, title: &str) -> String {
    let attendance = RoundAttendance::of(result);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "secsv " (env!("CARGO_PKG_VERSION")) };
                title { (title) ": contributions" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p class="kicker" { "Contribution report" }
                    h1 { (title) }
                    (summary::at_a_glance(result))
                }
                main {
                    (summary::in_words(result, &attendance))
                    (contributions::bars(result))
                    (rounds::lines(result, &attendance))
                    (rounds::tables(result, &attendance))
                    (security::disclosed(result))
                    (costs::skipped(result))
                    (costs::timing(result))
                    (costs::traffic(result))
                    (costs::operations(result))
                    (costs::parameters(result))
                    (coalitions::table(result, &attendance))
                }
                footer { p { "Made by secsv " (env!("CARGO_PKG_VERSION")) ". This file is complete: it loads nothing from anywhere." } }
            }
        }
    };
    page.into_string()
}

/// A section with a heading that can be linked to.
fn section(id: &str, heading: &str, content: Markup) -> Markup {
    html! { section id=(id) aria-labelledby={ (id) "-heading" } { h2 id={ (id) "-heading" } { (heading) } (content) } }
}

/// A table in a frame that scrolls by itself where the page is too narrow, and prints in full.
fn framed(label: &str, table: Markup) -> Markup {
    html! { div class="frame" role="region" aria-label=(label) tabindex="0" { (table) } }
}

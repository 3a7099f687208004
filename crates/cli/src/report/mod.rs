//! The report: one HTML file that needs nothing else, neither a network nor scripts, readable on a phone and
//! on paper.

mod amounts;
mod certainty;
mod coalitions;
mod comparison;
mod contributions;
mod costs;
mod gain;
mod glossary;
mod rounds;
mod security;
mod summary;
#[cfg(test)]
mod tests;

pub use comparison::{Compared, render_comparison};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use secsv_evaluation::EvaluationResult;

use crate::{attendance::RoundAttendance, program};

const STYLE: &str = include_str!("style.css");

/// The whole file. Everything that comes from outside (`title`, names, parameters) is escaped.
pub fn render(result: &EvaluationResult, title: &str) -> String {
    let attendance = RoundAttendance::of(result);
    let main = html! {
        (summary::in_words(result, &attendance))
        (contributions::bars(result))
        (certainty::in_words(result))
        (gain::by_round(result, &attendance))
        (security::rebuilding(result))
        (rounds::lines(result, &attendance))
        (glossary::words(result))
        p class="note annex" { "What follows is for whoever checks the numbers. " span class="screen" { "Tables unfold by a click, and in print." } }
        (rounds::tables(result, &attendance))
        (security::disclosed(result))
        (costs::skipped(result))
        (costs::timing(result))
        (costs::traffic(result))
        (costs::operations(result))
        (costs::parameters(result))
        (coalitions::table(result, &attendance))
        (origin(result))
    };
    page(title, "Contribution report", summary::at_a_glance(result), main)
}

/// A page around its parts.
fn page(title: &str, kicker: &str, glance: Markup, main: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(program());
                title { (title) ": contributions" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p class="kicker" { (kicker) }
                    h1 { (title) }
                    (glance)
                }
                main { (main) }
                footer { p { "Made by " (program()) ". This file is complete: it loads nothing from anywhere." } }
            }
        }
    };
    page.into_string()
}

/// By which two reports can be told apart.
fn origin(result: &EvaluationResult) -> Markup {
    html! {
        p class="note" {
            @if let Some(made) = &result.made { "Valued by " (made.by) " at " (made.at) ". " }
            @if let Some(federation) = &result.federation { "Federation " code { (federation.digest) } ". " }
            "Seed " (result.seed) "."
        }
    }
}

/// A section with a heading that can be linked to.
fn section(id: &str, heading: &str, content: Markup) -> Markup {
    html! { section id=(id) aria-labelledby={ (id) "-heading" } { h2 id={ (id) "-heading" } { (heading) } (content) } }
}

/// A section that is folded until somebody looks into it.
fn folded(id: &str, heading: &str, content: Markup) -> Markup {
    html! { section id=(id) aria-labelledby={ (id) "-heading" } class="folded" {
        details { summary { h2 id={ (id) "-heading" } { (heading) } } (content) }
    } }
}

/// A table in a frame that scrolls by itself where the page is too narrow, and prints in full.
fn framed(label: &str, table: Markup) -> Markup {
    html! { div class="frame" role="region" aria-label=(label) tabindex="0" { (table) } }
}

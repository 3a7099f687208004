//! Costs of the evaluation: tests skipped, time, traffic, operations, parameters.

use std::collections::BTreeMap;

use maud::{Markup, html};
use secsv_evaluation::{EvaluationResult, Operations, Timing, Traffic};
use secsv_federation::RoundId;

use super::{
    amounts::{bytes, count, counted, percent, seconds},
    folded, framed,
};

/// Number of cases that were not tested, by round.
pub fn skipped(result: &EvaluationResult) -> Markup {
    let mut by_round: BTreeMap<RoundId, Skips> = BTreeMap::new();
    for utility in &result.utilities {
        let skips = by_round.entry(utility.round).or_default();
        skips.total += utility.total;
        skips.tested += utility.tested;
        skips.wrong =
            utility.wrongly_skipped.map(|wrong| wrong + skips.wrong.unwrap_or_default()).or(skips.wrong);
    }
    folded(
        "skipped",
        "Skipped test cases",
        html! {
            @if result.skip {
                p class="note" {
                    "A case that two separate parts of a combination both get right is taken as right for the combination, and not tested again."
                }
                (framed("Skipped test cases by round", skip_table(&by_round)))
            } @else {
                p { "None: every model was tested on every test case." }
            }
        },
    )
}

#[derive(Default)]
struct Skips {
    total: usize,
    tested: usize,
    wrong: Option<usize>,
}

fn skip_table(by_round: &BTreeMap<RoundId, Skips>) -> Markup {
    let is_verified = by_round.values().any(|skips| skips.wrong.is_some());
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Round" }
                    th scope="col" class="amount" { "Cases" }
                    th scope="col" class="amount" { "Tested" }
                    th scope="col" class="amount" { "Skipped" }
                    @if is_verified { th scope="col" class="amount" { "Wrongly" } }
                }
            }
            tbody {
                @for (round, skips) in by_round {
                    tr {
                        th scope="row" { (round) }
                        td class="amount" { (count(skips.total as u64)) }
                        td class="amount" { (count(skips.tested as u64)) }
                        td class="amount" { (percent(1.0 - skips.tested as f64 / skips.total.max(1) as f64)) }
                        @if is_verified { td class="amount" { (skips.wrong.map_or("\u{2013}".to_owned(), |wrong| count(wrong as u64))) } }
                    }
                }
            }
        }
    }
}

/// Seconds by phase.
pub fn timing(result: &EvaluationResult) -> Markup {
    if result.timing == Timing::default() {
        return html! {};
    }
    let Timing { wall_s, encrypt_s, share_s, linear_s, decrypt_s, activate_s, sanitise_s, codec_s, clear_s } =
        result.timing.clone();
    let phases = [
        ("encrypting", encrypt_s),
        ("shares, masks and gates", share_s),
        ("linear layers", linear_s),
        ("re-randomising and flooding replies", sanitise_s),
        ("decrypting", decrypt_s),
        ("activations", activate_s),
        ("tests by owners themselves", clear_s),
        ("packing and unpacking messages", codec_s),
    ];
    let spent = phases.into_iter().filter(|(_, took)| *took > 0.0);
    let rows = [("elapsed", wall_s)].into_iter().chain(spent);
    folded(
        "timing",
        "Time",
        html! {
            p class="note" { "Elapsed is by the clock; phases are working time of all processors and parties together, so they may exceed it." }
            (pairs("Phase", "Time", rows.map(|(phase, took)| (phase.to_owned(), seconds(took)))))
        },
    )
}

/// With client-to-client links there can be thousands.
const MAX_LINKS: usize = 60;

/// Bytes by link, the busiest first.
pub fn traffic(result: &EvaluationResult) -> Markup {
    let total: u64 = result.traffic.iter().map(|link| link.bytes).sum();
    let mut links: Vec<_> = result.traffic.iter().collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.bytes));
    let all = links.len();
    links.truncate(MAX_LINKS);
    folded(
        "traffic",
        "Traffic",
        html! {
            @if result.traffic.is_empty() {
                p { @if result.security.is_some() { "Not told to whoever wrote this report." } @else { "None: everything ran in one place." } }
            } @else {
                p class="note" { (bytes(total)) " in all, over " (counted(all as u64, "link")) "." }
                @if links.len() < all { p class="cut" { "Cut: the " (links.len()) " busiest are shown. The JSON result lists all." } }
                (framed("Traffic by link", link_table(result, &links)))
            }
        },
    )
}

fn link_table(result: &EvaluationResult, links: &[&Traffic]) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "From" } th scope="col" { "To" } th scope="col" class="amount" { "Bytes" } } }
            tbody {
                @for link in links {
                    tr { td { (result.called(&link.from)) } td { (result.called(&link.to)) } td class="amount" { (bytes(link.bytes)) } }
                }
            }
        }
    }
}

/// Operations on ciphertexts.
pub fn operations(result: &EvaluationResult) -> Markup {
    let Operations { ct_pt_mul, ct_ct_mul, rotate, ntt, encrypt, decrypt } = result.operations;
    let rows = [
        ("encrypted times plain", ct_pt_mul),
        ("encrypted times encrypted", ct_ct_mul),
        ("rotations", rotate),
        ("transforms", ntt),
        ("encryptions", encrypt),
        ("decryptions", decrypt),
    ];
    if rows.iter().all(|(_, number)| *number == 0) {
        return html! {};
    }
    let rows = rows.into_iter().map(|(name, number)| (name.to_owned(), count(number)));
    folded("operations", "Operations on encrypted numbers", pairs("Operation", "Number", rows))
}

/// Settings that the run can be repeated with.
pub fn parameters(result: &EvaluationResult) -> Markup {
    let mut rows = vec![
        ("protocol".to_owned(), result.protocol.clone()),
        ("estimator".to_owned(), result.estimator.clone()),
        ("skip".to_owned(), if result.skip { "yes" } else { "no" }.to_owned()),
        ("seed".to_owned(), result.seed.to_string()),
    ];
    if let Some(parameters) = &result.parameters {
        rows.push(("preset".to_owned(), parameters.preset.clone()));
        rows.push(("ring degree".to_owned(), parameters.degree.to_string()));
        rows.push(("modulus".to_owned(), format!("{} bits", parameters.modulus_bits)));
        rows.push(("plaintext".to_owned(), format!("{} bits", parameters.plaintext_bits)));
        rows.push(("security".to_owned(), format!("{} bits", parameters.security_bits)));
    }
    folded(
        "parameters",
        "Parameters",
        html! {
            @if result.parameters.is_none() { p class="note" { "No encryption, so no parameters of it." } }
            (pairs("Parameter", "Value", rows.into_iter()))
        },
    )
}

fn pairs(name: &str, value: &str, rows: impl Iterator<Item = (String, String)>) -> Markup {
    framed(
        name,
        html! {
            table class="pairs" {
                thead { tr { th scope="col" { (name) } th scope="col" class="amount" { (value) } } }
                tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td class="amount" { (value) } } } }
            }
        },
    )
}

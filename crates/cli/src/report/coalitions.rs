//! Every combination that was tested, or the most telling ones if there are too many for a page.

use std::collections::BTreeMap;

use maud::{Markup, html};
use secsv_evaluation::{EvaluationResult, UtilityResult};
use secsv_federation::{ClientId, RoundId};

use super::{
    amounts::{count, percent},
    folded, framed,
};
use crate::attendance::RoundAttendance;

/// A table longer than this nobody reads, and a million rows make a file nobody opens.
const MAX_ROWS: usize = 400;

/// Rows on paper: the style sheet leaves out those behind.
const PRINTED_ROWS: usize = 80;

/// Round, members, share right, counts.
pub fn table(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Markup {
    let chosen = choose(&result.utilities, MAX_ROWS);
    let is_cut = chosen.len() < result.utilities.len();
    folded(
        "coalitions",
        "Tested combinations",
        html! {
            p class="note" {
                "Each row is one model, put together from the clients listed. \u{201c}Nobody\u{201d} is the model before the round, \u{201c}everybody\u{201d} all who took part in it. "
                "Tested counts the cases really run; skipped ones count as right."
            }
            @if is_cut {
                p class="cut" {
                    "Cut: " (count(chosen.len() as u64)) " of " (count(result.utilities.len() as u64)) " rows are shown, in every round "
                    "nobody, everybody, single clients and everybody but one first. The JSON result lists all."
                }
            }
            @if chosen.len() > PRINTED_ROWS {
                p class="cut paper" { "On paper the first " (PRINTED_ROWS) " rows are shown." }
            }
            (framed("Tested combinations", rows(result, attendance, &chosen)))
        },
    )
}

fn rows(result: &EvaluationResult, attendance: &RoundAttendance<'_>, chosen: &[&UtilityResult]) -> Markup {
    let is_verified = result.utilities.iter().any(|utility| utility.wrongly_skipped.is_some());
    html! {
        table {
            thead {
                tr {
                    th scope="col" class="amount" { "Round" }
                    th scope="col" { "Clients" }
                    th scope="col" class="amount" { (if result.is_of_accuracy() { "Right" } else { &result.utility }) }
                    th scope="col" class="amount" { "Correct" }
                    th scope="col" class="amount" { "Total" }
                    th scope="col" class="amount" { "Tested" }
                    @if is_verified { th scope="col" class="amount" { "Wrongly skipped" } }
                }
            }
            tbody {
                @for utility in chosen {
                    tr {
                        td class="amount" { (utility.round) }
                        td class="members" { (members(result, utility, attendance.count(utility.round))) }
                        td class="amount" { (percent(result.worth(utility))) }
                        td class="amount" { (count(utility.correct as u64)) }
                        td class="amount" { (count(utility.total as u64)) }
                        td class="amount" { (count(utility.tested as u64)) }
                        @if is_verified { td class="amount" { (utility.wrongly_skipped.map_or("\u{2013}".to_owned(), |wrong| count(wrong as u64))) } }
                    }
                }
            }
        }
    }
}

/// Long lists by their ends: a hundred names in a cell help nobody.
fn members(result: &EvaluationResult, utility: &UtilityResult, present: usize) -> String {
    const NAMED: usize = 12;
    let names = &utility.coalition;
    match names.len() {
        0 => "nobody".to_owned(),
        all if all == present && all > 2 => format!("everybody ({all})"),
        many if many > NAMED => format!("{} and {} more", listed(result, &names[..NAMED]), many - NAMED),
        _ => listed(result, names),
    }
}

fn listed(result: &EvaluationResult, names: &[ClientId]) -> String {
    names.iter().map(|id| result.label(id)).collect::<Vec<_>>().join(", ")
}

/// All rows if they fit. Otherwise rounds share the room, and within a round the ends come first.
fn choose(utilities: &[UtilityResult], room: usize) -> Vec<&UtilityResult> {
    if utilities.len() <= room {
        return utilities.iter().collect();
    }
    let mut by_round: BTreeMap<RoundId, Vec<&UtilityResult>> = BTreeMap::new();
    for utility in utilities {
        by_round.entry(utility.round).or_default().push(utility);
    }
    let share = (room / by_round.len()).max(1);
    let mut chosen = Vec::with_capacity(room);
    for (_, mut of_round) in by_round {
        let largest = of_round.iter().map(|utility| utility.coalition.len()).max().unwrap_or_default();
        let from_the_ends = |utility: &&UtilityResult| {
            let size = utility.coalition.len();
            (size.min(largest - size), size)
        };
        of_round.sort_by_key(from_the_ends);
        chosen.extend(of_round.into_iter().take(share));
        if chosen.len() >= room {
            break;
        }
    }
    chosen.truncate(room);
    chosen
}

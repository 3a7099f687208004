//! How contributions came about, round by round.

use std::fmt::Write as _;

use maud::{Markup, html};
use secsv_evaluation::{EvaluationResult, RoundResult};
use secsv_federation::ClientId;

use super::{
    amounts::{plus_minus, points},
    contributions::BarScale,
    folded, framed, section,
};
use crate::{attendance::RoundAttendance, findings::ranked};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 100.0;
/// Room around the drawing for the dots.
const MARGIN: f64 = 8.0;
/// More columns than this do not fit a sheet of paper.
const ROUNDS_A_TABLE: usize = 10;

/// One small drawing per client, all to the same scale.
pub fn lines(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Markup {
    if result.ssv.len() < 2 {
        return html! {};
    }
    let scale = BarScale::over(values(result));
    let (low, high) =
        (values(result).fold(f64::INFINITY, f64::min), values(result).fold(f64::NEG_INFINITY, f64::max));
    let (first, last) = (&result.ssv[0], &result.ssv[result.ssv.len() - 1]);
    section(
        "rounds",
        "Round by round",
        html! {
            p class="note" {
                "Points per round, from round " (first.round) " (left) to round " (last.round) " (right), all drawings to one "
                "scale: lowest " (points(low)) ", highest " (points(high)) ". The thin line is zero; a gap is a round without the client."
            }
            ul class="small-multiples" {
                @for (id, _) in ranked(result) {
                    li { figure { figcaption { (result.label(id)) } (line(id, result, attendance, &scale)) } }
                }
            }
        },
    )
}

fn values(result: &EvaluationResult) -> impl Iterator<Item = f64> + '_ {
    result.ssv.iter().flat_map(|round| round.values.values().copied())
}

/// The numbers behind the drawings.
pub fn tables(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Markup {
    folded(
        "values",
        "Values",
        html! {
            p class="note" { "The same in numbers, in points. The sum is over all rounds (FSV); a dash is a round without the client." }
            @for (place, rounds) in result.ssv.chunks(ROUNDS_A_TABLE).enumerate() {
                (framed("Values by client and round", table(result, attendance, rounds, place == 0)))
            }
        },
    )
}

fn table(
    result: &EvaluationResult,
    attendance: &RoundAttendance<'_>,
    rounds: &[RoundResult],
    with_sum: bool,
) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Client" }
                    @if with_sum { th scope="col" class="amount" { "Sum" } }
                    @for round in rounds { th scope="col" class="amount" { "Round " (round.round) } }
                }
            }
            tbody {
                @for (id, _) in ranked(result) {
                    tr {
                        th scope="row" { (result.label(id)) }
                        @if with_sum { (cell(result.fsv.get(id), result.standard_error.as_ref().and_then(|e| e.get(id)))) }
                        @for round in rounds {
                            @if attendance.includes(round.round, id) {
                                (cell(round.values.get(id), round.standard_error.as_ref().and_then(|e| e.get(id))))
                            } @else { (cell(None, None)) }
                        }
                    }
                }
            }
        }
    }
}

fn cell(value: Option<&f64>, error: Option<&f64>) -> Markup {
    html! {
        td class="amount" {
            @match value { Some(value) => { (points(*value)) } None => { "\u{2013}" } }
            @if let Some(error) = error { br; small { (plus_minus(*error)) } }
        }
    }
}

fn line(
    id: &ClientId,
    result: &EvaluationResult,
    attendance: &RoundAttendance<'_>,
    scale: &BarScale,
) -> Markup {
    let rounds = &result.ssv;
    let step = (WIDTH - 2.0 * MARGIN) / (rounds.len() - 1) as f64;
    let y = |value: f64| HEIGHT - MARGIN - scale.at(value, HEIGHT - 2.0 * MARGIN);
    let (mut path, mut dots, mut whiskers) = (String::new(), String::new(), String::new());
    let mut pen_down = false;
    for (place, round) in rounds.iter().enumerate() {
        let Some(value) = value_of(id, round, attendance) else {
            pen_down = false;
            continue;
        };
        let x = MARGIN + step * place as f64;
        // Writing into a string cannot fail.
        let _ = write!(path, "{}{x:.1} {:.1}", if pen_down { 'L' } else { 'M' }, y(value));
        let _ = write!(dots, "M{x:.1} {:.1}h0", y(value));
        if let Some(error) = round.standard_error.as_ref().and_then(|errors| errors.get(id)) {
            let _ = write!(whiskers, "M{x:.1} {:.1}V{:.1}", y(value - error), y(value + error));
        }
        pen_down = true;
    }
    let zero = format!("{:.1}", y(0.0));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { (result.label(id)) ", points per round" }
            desc { (spoken(id, rounds, attendance)) }
            line class="zero" x1="0" x2=(WIDTH) y1=(zero) y2=(zero) {}
            path class="line" d=(path) {}
            path class="error" d=(whiskers) {}
            path class="dots" d=(dots) {}
        }
    }
}

fn value_of(id: &ClientId, round: &RoundResult, attendance: &RoundAttendance<'_>) -> Option<f64> {
    round.values.get(id).copied().filter(|_| attendance.includes(round.round, id))
}

fn spoken(id: &ClientId, rounds: &[RoundResult], attendance: &RoundAttendance<'_>) -> String {
    let of_round = |round: &RoundResult| match value_of(id, round, attendance) {
        Some(value) => format!("round {}: {}", round.round, points(value)),
        None => format!("round {}: absent", round.round),
    };
    rounds.iter().map(of_round).collect::<Vec<_>>().join("; ")
}

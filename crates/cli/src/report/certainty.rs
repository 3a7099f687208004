//! How sure the numbers are: what other test cases would change.

use maud::{Markup, html};
use secsv_evaluation::{DifferenceNoise, EvaluationResult};
use secsv_federation::ClientId;

use super::{
    amounts::{count, points},
    contributions::TWO_SIDED_95,
    section,
};
use crate::findings::{cases, error_bound, ranked};

/// What other test cases would change, as far as that is known.
pub fn in_words(result: &EvaluationResult) -> Markup {
    let cases = cases(result).max(1);
    section(
        "certainty",
        "How sure the numbers are",
        html! {
            p {
                "One of the " (count(cases as u64)) " test cases is " (format!("{:.2}", 100.0 / cases as f64))
                " points. Other test cases of the same kind would give somewhat different numbers."
            }
            @match &result.test_noise {
                Some(noise) => {
                    p {
                        "It is known which cases each model got right, so each case has contributions of its own, and their "
                        "spread says how far the averages carry: in 19 of 20 draws of as many cases a contribution is within "
                        "the \u{b1} beside it."
                    }
                    (pairs(result, &noise.differences))
                }
                None => (unknown(result)),
            }
        },
    )
}

/// Neighbours in the order of values that cannot be told apart.
fn pairs(result: &EvaluationResult, differences: &[DifferenceNoise]) -> Markup {
    let ranked = ranked(result);
    let error = |a: &ClientId, b: &ClientId| {
        let is_it = |found: &&DifferenceNoise| {
            (&found.one, &found.other) == (a, b) || (&found.one, &found.other) == (b, a)
        };
        differences.iter().find(is_it).map(|found| found.standard_error)
    };
    let near: Vec<String> = ranked
        .windows(2)
        .filter_map(|pair| {
            let [(one, value), (other, less)] = pair else { return None };
            let reach = TWO_SIDED_95 * error(one, other)?;
            let apart = value - less;
            (apart <= reach)
                .then(|| format!("{one} and {other} ({} \u{b1} {:.2})", points(apart), 100.0 * reach))
        })
        .collect();
    html! {
        @if near.is_empty() {
            p { "Every contribution differs from the next by more than chance of the test cases explains." }
        } @else {
            p { "Within noise of each other, so that their order means nothing: " (near.join("; ")) "." }
        }
    }
}

/// What can be said where nobody knows which cases a model gets right.
fn unknown(result: &EvaluationResult) -> Markup {
    html! {
        @if let Some(bound) = error_bound(result) {
            p {
                "Nobody learned which cases each model got right, only how many. From the counts alone it follows that in 19 of "
                "20 draws no contribution would move by more than " (format!("{:.2}", 100.0 * TWO_SIDED_95 * bound))
                " points. That is an upper bound for the worst way in which the counts can come about; most often it is much less. "
                "Which contributions cannot be told apart is therefore not said here."
            }
        } @else {
            p { "How far they would move is not known here: nobody learned which cases each model got right." }
        }
    }
}

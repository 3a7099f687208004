//! How sure the numbers are: what other test cases would change.

use maud::{Markup, html};
use secsv_evaluation::{DifferenceNoise, EvaluationResult, TestNoise};
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
                    @let nothing = near_nothing(result, noise);
                    @if !nothing.is_empty() {
                        p { "Within noise of nothing, so that not even the sign is sure: " (nothing.join(", ")) "." }
                    }
                }
                None => (unknown(result)),
            }
        },
    )
}

/// Those whose value may as well be 0.
fn near_nothing<'a>(result: &'a EvaluationResult, noise: &TestNoise) -> Vec<&'a str> {
    let is_near = |(id, value): &(&ClientId, f64)| {
        noise.standard_error.get(*id).is_some_and(|error| value.abs() <= TWO_SIDED_95 * error)
    };
    ranked(result).into_iter().filter(is_near).map(|(id, _)| result.label(id)).collect()
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
            let (one, other) = (result.label(one), result.label(other));
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
    let Some(bound) = error_bound(result) else {
        return html! {
            p { "How far they would move cannot be said here: that takes which cases each model got right." }
        };
    };
    let reach = TWO_SIDED_95 * bound;
    let beyond = |(id, value): (&ClientId, f64)| (value.abs() > reach).then(|| result.label(id).to_owned());
    let sure: Vec<String> = ranked(result).into_iter().filter_map(beyond).collect();
    html! {
        p {
            strong { "How sure each contribution is cannot be said from totals. " }
            "It is known how many cases each model got right, but not which: that is what was protected. From totals follows an "
            "upper bound alone: in 19 of 20 draws of as many cases a contribution would move by at most "
            (format!("{:.2}", 100.0 * reach)) " points. It holds for the worst way in which these totals can come about; the true "
            "figure is most often several times smaller, and nobody here knows it."
        }
        p {
            @if sure.is_empty() {
                "No contribution is larger than this bound, so totals prove the sign of none. "
            } @else {
                "Larger than this bound, so that chance of the test cases does not explain their sign: " (sure.join(", ")) ". "
            }
            "Two contributions may move by so much each, in opposite directions: which of them really differ is not known here."
        }
    }
}

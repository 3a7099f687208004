//! The result in sentences for readers who will not look at the tables.

use maud::{Markup, html};

use secsv_evaluation::EvaluationResult;
use secsv_federation::RoundId;
use secsv_shapley::Method;

use super::{
    amounts::{count, counted, percent, points},
    section,
};
use crate::{attendance::RoundAttendance, commands::protocols::agreement};
use crate::{
    findings::{cases, cases_of_classes, ends, models_tested, utility_words},
    protocol_name::ProtocolName,
};

/// Who, how, how much, in one line each.
pub fn at_a_glance(result: &EvaluationResult) -> Markup {
    html! {
        dl class="facts" {
            div { dt { "Organisations" } dd { (count(result.clients.len() as u64)) } }
            div { dt { "Training rounds" } dd { (count(rounds(result))) } }
            div { dt { "Test cases" } dd { (count(cases(result) as u64)) } }
            div { dt { "Models tested" } dd { (count(models_tested(result) as u64)) } }
            div { dt { "Protocol" } dd { (result.protocol) } }
            div { dt { "Method" } dd { (result.estimator) } }
            @if let Some(made) = &result.made { div { dt { "Made" } dd { (made.at.split('T').next().unwrap_or_default()) } } }
            @if !result.class_samples.is_empty() { div { dt { "Utility" } dd { (result.utility) } } }
        }
    }
}

/// Sentences on what was measured, what the numbers mean, and what they do not.
pub fn in_words(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Markup {
    section(
        "summary",
        "In plain words",
        html! {
            @if let Some(warning) = result.warning() {
                p class="warning" { strong { "Do not rely on these values: " (warning) "." } }
            }
            h3 { "What came out" }
            @for sentence in findings(result, attendance) { p { (sentence) } }
            h3 { "What was measured" }
            p {
                (count(result.clients.len() as u64)) " organisations trained one shared model together in "
                (counted(rounds(result), "round")) ". " (question(&result.estimator)) " "
                (tested(result, attendance)) " " (meaning(&result.estimator).replace("accuracy", &result.utility))
                (one_point(result))
                @if let Some(cases) = cases_of_classes(result) { " " (cases) }
            }
            p {
                (who_could_see(ProtocolName::of(result)))
                @for sentence in result.security.iter().flat_map(|security| &security.exposure.sentences) {
                    " " (sentence)
                }
            }
            h3 { "What they do not mean" }
            ul {
                li { "They are not a price. Whether and how money follows from them is for the organisations to agree." }
                li {
                    "They say how useful an organisation's data was for this model, measured on these test cases. They say "
                    "nothing about the quality of its work, and nothing about whether data was collected or used lawfully."
                }
                li {
                    "They depend on who else took part: two organisations with much the same data share the credit for it, "
                    "so each may look small although losing both would hurt."
                }
                li { (uncertainty(result, attendance)) }
                @if let Some(approximate) = result.security.as_ref().and_then(|security| security.approximate.as_ref()) {
                    li { "The models that were tested are " (agreement(approximate)) "." }
                }
            }
        },
    )
}

fn rounds(result: &EvaluationResult) -> u64 {
    result.ssv.iter().map(|of_round| u64::from(of_round.round.0)).max().unwrap_or_default()
}

fn question(estimator: &str) -> &'static str {
    match estimator.parse() {
        Ok(Method::ContributionIndexOneRound) => {
            "We asked: how many of all organisations' test cases would the shared model have got right if only some of \
             them had contributed to it, over all rounds?"
        }
        _ => {
            "For each round we asked: how many of all organisations' test cases would the shared model have got right if \
             only some of them had taken part?"
        }
    }
}

fn tested(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> String {
    let tests = counted(models_tested(result) as u64, "such model");
    if is_drawn(result, attendance) {
        return format!(
            "{tests} were tested. What was asked of them follows from chance (seed {}).",
            result.seed
        );
    }
    match (result.standard_error.is_some(), tried_all(result, attendance)) {
        (false, true) => format!("All {tests} were tested."),
        (true, true) => {
            format!(
                "All {tests} were tested; the average over them was taken by chance (seed {}).",
                result.seed
            )
        }
        (true, false) => {
            format!(
                "Not every combination was tried: {tests} were tested, chosen by chance (seed {}).",
                result.seed
            )
        }
        (false, false) => format!("Not every combination was tried: {tests} were tested."),
    }
}

/// Whether values follow from chance, and nothing says how far.
fn is_drawn(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> bool {
    let method = result.estimator.parse::<Method>();
    result.standard_error.is_none()
        && method.is_ok_and(|method| method.draws_by_chance(tried_all(result, attendance)))
}

/// Whether every combination of every round was tested.
fn tried_all(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> bool {
    let of_round = |round: RoundId| 2f64.powi(attendance.count(round) as i32);
    let possible: f64 = result.ssv.iter().map(|values| of_round(values.round)).sum();
    result.utilities.len() as f64 >= possible
}

/// The trust each protocol asks for.
fn who_could_see(protocol: Option<ProtocolName>) -> &'static str {
    match protocol {
        Some(ProtocolName::Nssv) => {
            "This was computed in the clear: whoever ran it could read every organisation's models and test cases."
        }
        Some(ProtocolName::Secure(protocol)) => protocol.rules().exposure().brief,
        None => "How far models and test cases were protected depends on the protocol named above.",
    }
}

fn one_point(result: &EvaluationResult) -> &'static str {
    match result.class_samples.is_empty() {
        true => " One point is one more right answer per hundred test cases.",
        false => " One point is a hundredth of it.",
    }
}

fn meaning(estimator: &str) -> &'static str {
    match estimator.parse() {
        Ok(Method::LeaveOneOut) => {
            "An organisation's number is how much accuracy the group of all organisations loses without it, added up over \
             the rounds."
        }
        Ok(Method::Banzhaf) => {
            "An organisation's number is how much accuracy rises when it joins, on average over all combinations of the \
             others, added up over the rounds (Banzhaf value)."
        }
        Ok(Method::BetaShapley) => {
            "An organisation's number is how much accuracy rises when it joins, averaged over combinations of the others \
             with more weight on some sizes, added up over the rounds (Beta-Shapley value)."
        }
        Ok(Method::LeastCore) => {
            "An organisation's number is its part of the accuracy gained, split so that no combination of organisations \
             has much reason to complain that it would do better alone (least core)."
        }
        Ok(Method::GroupSv) => {
            "Organisations were put into groups by chance; an organisation's number is an equal part of what its group \
             added to the accuracy, over the rounds."
        }
        Ok(Method::ContributionIndexOneRound) => {
            "An organisation's number is how much accuracy rises when it joins, on average over all orders in which the \
             organisations could have joined, with models put together from what each did in all rounds (Contribution \
             Index, one-round reconstruction)."
        }
        Ok(Method::WtShapley) => {
            "An organisation's number is how much accuracy rises when it joins, on average over all orders in which the \
             organisations could have joined; rounds with a better result count more."
        }
        _ => {
            "An organisation's number is how much accuracy rises when it joins, on average over all orders in which the \
             organisations could have joined, added up over the rounds (Shapley value). It is the only rule that splits \
             exactly what was gained, treats equal contributions equally and gives nothing for nothing."
        }
    }
}

fn findings(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some((before, after)) = ends(result, attendance) {
        let total: f64 = result.fsv.values().sum();
        let gain = after - before;
        let adds_up =
            if (total - gain).abs() < 1e-9 { " The contributions add up to exactly that." } else { "" };
        sentences.push(format!(
            "From the first model to the last, {} went from {} to {}: {} points.{adds_up}",
            utility_words(result),
            percent(before),
            percent(after),
            points(gain),
        ));
    }
    let mut ranked: Vec<(&str, f64)> =
        result.fsv.iter().map(|(id, value)| (result.label(id), *value)).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let (Some(first), Some(last)) = (ranked.first(), ranked.last()) {
        let (most, least) = (points(first.1), points(last.1));
        sentences.push(format!(
            "{} contributed most ({most} points), {} least ({least} points).",
            first.0, last.0
        ));
    }
    let harmful: Vec<&str> = ranked.iter().filter(|(_, value)| *value < 0.0).map(|(id, _)| *id).collect();
    if !harmful.is_empty() {
        sentences.push(format!(
            "A negative number means that the shared model was on balance worse on the test cases with the organisation \
             than without: {}.",
            harmful.join(", ")
        ));
    }
    sentences
}

fn uncertainty(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> String {
    if let Some(errors) = &result.standard_error {
        let worst = errors.values().copied().fold(0.0, f64::max);
        let left_early = match result.estimator.parse() {
            Ok(method) if Method::truncates(method) => {
                " What the method leaves out on purpose to save tests is not part of that uncertainty."
            }
            _ => "",
        };
        return format!(
            "Because the average was taken over a sample, each number carries an uncertainty, shown as \u{b1} one standard \
             error (at most {:.3} points here). Differences smaller than about two of them may be chance.{left_early}",
            100.0 * worst
        );
    }
    if result.estimator == "least-core" && !tried_all(result, attendance) {
        return "Only a sample of the combinations was tested, and this method cannot say how much that changed the numbers."
            .to_owned();
    }
    if is_drawn(result, attendance) {
        return format!(
            "They were drawn by chance (seed {}): another seed gives other numbers, and this method cannot say how far they \
             are off.",
            result.seed
        );
    }
    let cases = result.utilities.iter().map(|utility| utility.total).max().unwrap_or_default();
    format!(
        "They follow exactly from these models and the {} at hand; other test cases would give somewhat different numbers.",
        counted(cases as u64, "test case")
    )
}

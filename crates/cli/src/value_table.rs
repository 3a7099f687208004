//! The values on a terminal: plain words first, technical detail where it is asked for.

use std::fmt::Write as _;

use secsv_evaluation::{EvaluationResult, ExposureRow, RangeResult, SecurityResult};
use secsv_shapley::Method;

use crate::{
    attendance::RoundAttendance,
    commands::protocols::agreement,
    findings::{
        SHARE_RULE, cases, cases_of_classes, ends, models_tested, point_words, ranked, shares, utility_words,
    },
    output::is_verbose,
};

/// The values for people, the largest first.
pub fn text(result: &EvaluationResult) -> String {
    let mut text = String::new();
    result.warning().iter().for_each(|warning| text.push_str(&format!("WARNING: {warning}\n\n")));
    text.push_str(&format!("what each organisation contributed, in points: {}\n\n", point_words(result)));
    values(&mut text, result);
    text.push('\n');
    gained(&mut text, result);
    cases_of_classes(result).iter().for_each(|cases| text.push_str(&format!("{cases}\n")));
    effort(&mut text, result);
    result.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    let approximate = result.security.as_ref().and_then(|security| security.approximate.as_ref());
    approximate.iter().for_each(|approximate| text.push_str(&format!("{}\n", agreement(approximate))));
    if let Some(security) = &result.security {
        protection(&mut text, result, security);
    }
    text
}

/// A value in points, with as many digits as tell values apart.
pub fn points(value: f64, digits: usize) -> String {
    let text = format!("{:+.digits$}", 100.0 * value);
    // Minus nothing is nothing.
    if text.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-' | b'+')) {
        return format!("{:.digits$}", 0.0);
    }
    text
}

/// Digits that tell these values apart in points.
pub fn digits(values: impl Iterator<Item = f64>) -> usize {
    if values.map(f64::abs).fold(0.0, f64::max) < 0.01 { 4 } else { 2 }
}

fn values(text: &mut String, result: &EvaluationResult) {
    let ranked = ranked(result);
    let digits = digits(ranked.iter().map(|(_, value)| *value));
    let name = "organisation";
    let width =
        ranked.iter().map(|(id, _)| result.label(id).chars().count()).max().unwrap_or(0).max(name.len());
    let has_errors = result.standard_error.is_some();
    let errors = if has_errors { "  standard error" } else { "" };
    let raw = if is_verbose() { "       value" } else { "" };
    let _ = writeln!(text, "{name:width$}  {:>9}  {:>7}{errors}{raw}", "points", "share");
    let shares = shares(&result.fsv);
    for (id, value) in &ranked {
        let share = shares.get(id).map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let _ = write!(text, "{:width$}  {:>9}  {share:>7}", result.label(id), points(*value, digits));
        if let Some(error) = result.standard_error.as_ref().map(|errors| errors.get(*id).copied()) {
            let _ = write!(text, "  {:>14.digits$}", 100.0 * error.unwrap_or_default());
        }
        if is_verbose() {
            let _ = write!(text, "  {value:+.6}");
        }
        text.push('\n');
    }
    let sum: f64 = result.fsv.values().sum();
    let _ = writeln!(text, "{:width$}  {:>9}", "sum", points(sum, digits));
}

/// What was gained altogether, and what a number means.
fn gained(text: &mut String, result: &EvaluationResult) {
    let cases = cases(result);
    if let Some((before, after)) = ends(result, &RoundAttendance::of(result)) {
        let _ = writeln!(
            text,
            "From the first model to the last, {} went from {:.1} % to {:.1} % {} {cases} test cases: {:+.2} points.",
            utility_words(result),
            100.0 * before,
            100.0 * after,
            if result.is_of_accuracy() { "of" } else { "on" },
            100.0 * (after - before)
        );
    }
    let method = result.estimator.parse::<Method>();
    let told = if method.as_ref().is_ok_and(|method| method.is_efficient()) {
        "The values split that among the organisations."
    } else if method.is_ok_and(Method::truncates) {
        "The values split that among the organisations, but for what the estimator leaves out."
    } else {
        "The values are on a scale of their own and do not add up to that (secsv evaluate --help says what each estimator measures)."
    };
    let one = match result.is_of_accuracy() {
        true => format!(" One test case is {:.2} points.", 100.0 / cases.max(1) as f64),
        false => String::new(),
    };
    let _ = writeln!(text, "{told}{one} {SHARE_RULE}");
}

/// What was done, in a line or two.
fn effort(text: &mut String, result: &EvaluationResult) {
    let skipping = if result.skip { ", samples skipped" } else { "" };
    // Whoever was only told the values was not told how long they took.
    let took = match result.timing.wall_s {
        0.0 => String::new(),
        seconds => format!(", {seconds:.2} s"),
    };
    let _ = writeln!(
        text,
        "{}, {}{skipping}: {} models tested on {} test cases in {} rounds{took}",
        result.protocol,
        result.estimator,
        models_tested(result),
        cases(result),
        result.ssv.len(),
    );
    let tested: usize = result.utilities.iter().map(|utility| utility.tested).sum();
    let all: usize = result.utilities.iter().map(|utility| utility.total).sum();
    if result.skip {
        let share = 100.0 * (all - tested) as f64 / all as f64;
        let _ = writeln!(text, "skipped {} of {all} predictions ({share:.1} %)", all - tested);
    }
    let verified: Vec<usize> = result.utilities.iter().filter_map(|u| u.wrongly_skipped).collect();
    if !verified.is_empty() {
        let wrong: usize = verified.iter().sum();
        let _ = writeln!(text, "wrongly skipped {wrong} of {} skipped predictions", all - tested);
    }
}

/// Whom a secure run exposed to whom; its costs and who exactly as well, where that is asked for.
pub fn protection(text: &mut String, result: &EvaluationResult, security: &SecurityResult) {
    if !is_verbose() {
        text.push_str("who can do what with other clients' samples and models\n");
        exposure_sentences(security).for_each(|sentence| text.push_str(&format!("  {sentence}\n")));
        text.push_str("(--verbose: one by one, who learned what, traffic and memory)\n");
        return;
    }
    let bytes: u64 = result.traffic.iter().map(|link| link.bytes).sum();
    let memory = result
        .peak_memory_bytes
        .map_or(String::new(), |b| format!(", {:.2} GiB of memory", b as f64 / (1u64 << 30) as f64));
    let _ = writeln!(
        text,
        "sent {:.1} MiB in {} messages{memory}",
        bytes as f64 / (1 << 20) as f64,
        result.messages.iter().map(|m| m.messages).sum::<u64>()
    );
    text.push_str(&statistical_distance(security));
    text.push_str(&ranges(security));
    let _ = writeln!(text, "trust: {}", security.trust);
    text.push_str("who learned what\n");
    for line in &security.disclosures {
        let _ = writeln!(text, "  {}: {}", line.who, line.what);
    }
    let _ = write!(text, "{}", security.exposure);
}

/// What holds for all; where no client reads anything of others, what parties could do together.
pub fn exposure_sentences(security: &SecurityResult) -> impl Iterator<Item = &String> {
    let exposure = &security.exposure;
    let has_common = !exposure.sentences.is_empty();
    let can = |row: &&ExposureRow| [&row.samples, &row.models].iter().any(|can| *can == "can rebuild");
    let together = exposure.rows.iter().filter(can).map(|row| &row.sentence);
    exposure.sentences.iter().chain(together.filter(move |_| !has_common))
}

/// The ranges that hidden numbers are held to, where nobody reads them.
pub fn ranges(security: &SecurityResult) -> String {
    let mut text = String::new();
    if !security.ranges.is_empty() {
        text.push_str("ranges of hidden numbers\n");
    }
    for RangeResult { layer, bound, bits, proven_bits, fraction_bits, .. } in &security.ranges {
        let proven =
            if bits < proven_bits { format!(" (norms prove 2^{proven_bits})") } else { String::new() };
        let _ = writeln!(
            text,
            "  layer {layer}: {bound} bound 2^{bits}{proven}, {fraction_bits} bits after the point"
        );
    }
    text
}

/// The line on flooding, where replies are flooded.
pub fn statistical_distance(security: &SecurityResult) -> String {
    match security.statistical_bits_per_reply {
        None => String::new(),
        Some(bits) if security.statistical_claim => {
            let run = f64::from(bits) - (security.replies.max(1) as f64).log2();
            let replies = security.replies;
            format!("statistical distance: {bits} bits per reply, {run:.0} bits for all {replies} replies\n")
        }
        Some(_) => {
            "statistical distance: these parameters make no claim (--preset standard does)\n".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_a_sign_unless_they_are_nothing() {
        assert_eq!([points(0.12345, 2), points(-0.001, 2)], ["+12.35", "-0.10"]);
        assert_eq!([points(-1e-9, 2), points(0.0, 4)], ["0.00", "0.0000"]);
    }
}

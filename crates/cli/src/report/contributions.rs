//! Contributions as bars, largest first.

use std::collections::BTreeMap;

use maud::{Markup, html};
use secsv_evaluation::EvaluationResult;
use secsv_federation::ClientId;

use super::{
    amounts::{aligned_points, count, plus_minus, points},
    section,
};
use crate::findings::{SHARE_RULE, point_words, ranked, shares};

/// The width of a bar's drawing, in its own units; it stretches to the page.
const WIDTH: f64 = 1000.0;

/// Standard errors to either side that hold nineteen of twenty values.
pub const TWO_SIDED_95: f64 = 1.96;

/// One row per client: name, points with their reach, share, sizes, bar.
pub fn bars(result: &EvaluationResult) -> Markup {
    let reach = Reach::of(result);
    let rows: Vec<ContributionRow<'_>> = ranked(result)
        .into_iter()
        .map(|(id, value)| ContributionRow { id, name: result.label(id), value, reach: reach.at(id) })
        .collect();
    let scale = BarScale::over(
        rows.iter()
            .flat_map(|row| [row.value - row.reach.unwrap_or(0.0), row.value + row.reach.unwrap_or(0.0)]),
    );
    let digits = rows.iter().map(|row| row.value.abs()).fold(0.0, f64::max);
    let shares = shares(&result.fsv);
    section(
        "contributions",
        "Contributions",
        html! {
            p class="note" {
                "In points, " (point_words(result)) ", over all rounds. " (SHARE_RULE) " " (reach.words())
            }
            ol class="bars" {
                @for row in &rows {
                    li {
                        span class="name" { (row.name) @if let Some(sizes) = sizes(result, row.id) { " " small { (sizes) } } }
                        span class="number" {
                            (aligned_points(row.value, digits))
                            @if let Some(reach) = row.reach { " " small { (plus_minus(reach)) } }
                        }
                        span class="share" { (shares.get(row.id).map_or("\u{2013}".to_owned(), |share| format!("{:.1}\u{a0}%", 100.0 * share))) }
                        (bar(row, &scale))
                    }
                }
            }
        },
    )
}

/// Sizes of what an organisation brought, where they are known.
fn sizes(result: &EvaluationResult, id: &ClientId) -> Option<String> {
    let known = result.federation.as_ref()?.organisations.iter().find(|known| known.id == *id)?;
    let tests = known.test_samples.map_or(String::new(), |tests| format!(", tests on {}", count(tests)));
    Some(format!("trained on {}{tests}", count(known.training_samples?)))
}

/// How far values reach to either side, and why.
enum Reach<'a> {
    /// Other test cases would give others.
    TestCases(&'a BTreeMap<ClientId, f64>),
    /// Another draw would give others.
    Draw(&'a BTreeMap<ClientId, f64>),
    /// Nobody knows.
    Unknown,
}

impl<'a> Reach<'a> {
    fn of(result: &'a EvaluationResult) -> Self {
        match (&result.test_noise, &result.standard_error) {
            (Some(noise), _) => Self::TestCases(&noise.standard_error),
            (None, Some(errors)) => Self::Draw(errors),
            (None, None) => Self::Unknown,
        }
    }

    fn at(&self, id: &ClientId) -> Option<f64> {
        match self {
            Self::TestCases(errors) => errors.get(id).map(|error| TWO_SIDED_95 * error),
            Self::Draw(errors) => errors.get(id).copied(),
            Self::Unknown => None,
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::TestCases(_) => {
                "The thin line and \u{b1} hold the value in 19 of 20 cases if the test cases were drawn anew."
            }
            Self::Draw(_) => "The thin line and \u{b1} reach one standard error of the draw to either side.",
            Self::Unknown => "",
        }
    }
}

struct ContributionRow<'a> {
    id: &'a ClientId,
    name: &'a str,
    value: f64,
    reach: Option<f64>,
}

/// Values to places on a drawing; zero is always on it.
pub struct BarScale {
    low: f64,
    high: f64,
}

impl BarScale {
    /// A scale that holds all these values.
    pub fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            values.fold((0.0f64, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        if low == high { Self { low: 0.0, high: 1.0 } } else { Self { low, high } }
    }

    /// The place of a value, from 0 to `length`.
    pub fn at(&self, value: f64, length: f64) -> f64 {
        (value - self.low) / (self.high - self.low) * length
    }
}

fn bar(row: &ContributionRow<'_>, scale: &BarScale) -> Markup {
    let place = |value: f64| scale.at(value, WIDTH);
    let (zero, end) = (place(0.0), place(row.value));
    let (from, width) = (zero.min(end), (zero - end).abs());
    let class = if row.value < 0.0 { "minus" } else { "plus" };
    html! {
        svg viewBox={ "0 0 " (WIDTH) " 20" } preserveAspectRatio="none" role="img" {
            title { (row.name) ": " (points(row.value)) " points" }
            rect class=(class) x={ (format!("{from:.1}")) } y="2" width={ (format!("{width:.1}")) } height="16" {}
            line class="zero" x1={ (format!("{zero:.1}")) } x2={ (format!("{zero:.1}")) } y1="0" y2="20" {}
            @if let Some(reach) = row.reach { path class="error" d=(whisker(place(row.value - reach), place(row.value + reach))) {} }
        }
    }
}

fn whisker(left: f64, right: f64) -> String {
    format!("M{left:.1} 10H{right:.1}M{left:.1} 5V15M{right:.1} 5V15")
}

//! Contributions as bars, largest first.

use maud::{Markup, html};
use secsv_evaluation::EvaluationResult;
use secsv_federation::ClientId;

use super::{
    amounts::{plus_minus, points},
    section,
};

/// The width of a bar's drawing, in its own units; it stretches to the page.
const WIDTH: f64 = 1000.0;

/// One row per client: name, points, bar, and the reach of one standard error.
pub fn bars(result: &EvaluationResult) -> Markup {
    let mut rows: Vec<ContributionRow> = result
        .clients
        .iter()
        .map(|id| ContributionRow {
            id,
            value: result.fsv.get(id).copied().unwrap_or_default(),
            error: result.standard_error.as_ref().and_then(|errors| errors.get(id)).copied(),
        })
        .collect();
    rows.sort_by(|a, b| b.value.total_cmp(&a.value));
    let scale =
        BarScale::over(rows.iter().flat_map(|row| [row.value - row.reach(), row.value + row.reach()]));
    section(
        "contributions",
        "Contributions",
        html! {
            p class="note" {
                "In points, over all rounds. "
                @if result.standard_error.is_some() { "The thin line reaches one standard error to either side." }
            }
            ol class="bars" {
                @for row in &rows {
                    li {
                        span class="name" { (row.id) }
                        span class="number" {
                            (points(row.value))
                            @if let Some(error) = row.error { " " small { (plus_minus(error)) } }
                        }
                        (bar(row, &scale))
                    }
                }
            }
        },
    )
}

struct ContributionRow<'a> {
    id: &'a ClientId,
    value: f64,
    error: Option<f64>,
}

impl ContributionRow<'_> {
    fn reach(&self) -> f64 {
        self.error.unwrap_or_default()
    }
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
            title { (row.id) ": " (points(row.value)) " points" }
            rect class=(class) x={ (format!("{from:.1}")) } y="2" width={ (format!("{width:.1}")) } height="16" {}
            line class="zero" x1={ (format!("{zero:.1}")) } x2={ (format!("{zero:.1}")) } y1="0" y2="20" {}
            @if row.error.is_some() { path class="error" d=(whisker(place(row.value - row.reach()), place(row.value + row.reach()))) {} }
        }
    }
}

fn whisker(left: f64, right: f64) -> String {
    format!("M{left:.1} 10H{right:.1}M{left:.1} 5V15M{right:.1} 5V15")
}

//! Where in training the gain arises: what the model is worth after each round.

use std::fmt::Write as _;

use maud::{Markup, html};
use secsv_evaluation::EvaluationResult;

use super::{
    amounts::{percent, points},
    contributions::BarScale,
    section,
};
use crate::{
    attendance::RoundAttendance,
    findings::{utility_words, worths},
};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 160.0;
const MARGIN: f64 = 8.0;

/// A sentence and a drawing; nothing for a single round, or where the models were not tested.
pub fn by_round(result: &EvaluationResult, attendance: &RoundAttendance<'_>) -> Markup {
    let Some(worths) = worths(result, attendance).filter(|all| all.len() > 2) else {
        return html! {};
    };
    section(
        "gain",
        "Where in training it was gained",
        html! {
            @for sentence in sentences(&worths) { p { (sentence) } }
            figure class="wide" { (curve(&worths)) figcaption {
                "The shared model's " (utility_words(result)) " before round 1 and after each round, from 0 % (bottom) to 100 % (top)."
            } }
        },
    )
}

fn sentences(worths: &[f64]) -> Vec<String> {
    let (Some(first), Some(last)) = (worths.first(), worths.last()) else { return Vec::new() };
    let gain = last - first;
    let steps = worths.windows(2).map(|pair| pair[1] - pair[0]);
    let largest = steps.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    let mut sentences = Vec::new();
    if let Some((place, step)) = largest.filter(|(_, step)| *step > 0.0 && gain > 0.0) {
        sentences.push(format!(
            "Round {} brought most: {} of the {} points, {} of all.",
            place + 1,
            points(step),
            points(gain),
            percent(step / gain)
        ));
        if step / gain > 0.5 {
            sentences.push(
                "So the contributions above mostly say who was useful in that round. Early rounds start from a model that \
                 knows little, where anybody's data help much; with another number of rounds the order may be another."
                    .to_owned(),
            );
        }
    }
    sentences
}

fn curve(worths: &[f64]) -> Markup {
    let scale = BarScale::over([1.0].into_iter());
    let step = (WIDTH - 2.0 * MARGIN) / (worths.len() - 1) as f64;
    let (mut path, mut dots, mut spoken) = (String::new(), String::new(), Vec::new());
    for (place, worth) in worths.iter().enumerate() {
        let (x, y) =
            (MARGIN + step * place as f64, HEIGHT - MARGIN - scale.at(*worth, HEIGHT - 2.0 * MARGIN));
        let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
        let _ = write!(dots, "M{x:.1} {y:.1}h0");
        spoken.push(format!("after round {place}: {}", percent(*worth)));
    }
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" {
            title { "By round" }
            desc { (spoken.join("; ")) }
            path class="line" d=(path) {}
            path class="dots" d=(dots) {}
        }
    }
}

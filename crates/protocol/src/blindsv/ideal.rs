//! The same answers without cryptography: plain integers, and the low bits of the owner's masks, which round.

use super::shape::Shape;

/// Whether each sample is predicted right. `scores` are signed, row by row; `rounding` as [`rounding`](super::dealer::rounding) gives it.
pub(crate) fn right(shape: &Shape, scores: &[i64], rounding: &[u64], labels: &[usize]) -> Vec<bool> {
    let samples = shape.samples;
    let dropped = |number: i64, low: u64| number.wrapping_add(low as i64) >> shape.widths.dropped();
    let score = |class: usize, sample: usize| match class < shape.rows {
        true => scores[class * samples + sample],
        false => 0,
    };
    let is_right = |(sample, &label): (usize, &usize)| {
        if shape.is_single() {
            let is_first = dropped(scores[sample], rounding[sample]) >= 0;
            return is_first == (label == 0);
        }
        (0..shape.classes).all(|class| {
            let margin = score(label, sample) - score(class, sample);
            dropped(margin, rounding[class * samples + sample]) >= i64::from(class < label)
        })
    };
    labels.iter().enumerate().map(is_right).collect()
}

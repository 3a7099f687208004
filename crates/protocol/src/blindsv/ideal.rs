//! The same answers without cryptography: plain integers.

use super::shape::Shape;

/// Whether each sample is predicted right. `scores` are signed, row by row.
pub(crate) fn right(shape: &Shape, scores: &[i64], labels: &[usize]) -> Vec<bool> {
    let samples = shape.samples;
    let score = |class: usize, sample: usize| match class < shape.rows {
        true => scores[class * samples + sample],
        false => 0,
    };
    let is_right = |(sample, &label): (usize, &usize)| {
        let margin = |class| score(label, sample) - score(class, sample);
        // Of equal scores the first counts.
        (0..shape.classes).all(|class| margin(class) >= i64::from(class < label))
    };
    labels.iter().enumerate().map(is_right).collect()
}

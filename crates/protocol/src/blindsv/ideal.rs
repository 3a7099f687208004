//! The same answers without cryptography: plain integers. Bits are dropped as owners' masks round them.

use secsv_algebra::{Matrix, Ring64};

use super::{
    dealer::OwnerKeys,
    gates::{cut, plain},
    hops::Scales,
    keys::{Place, Purpose},
    shape::{Shape, Stage},
    sums::Sums,
};
use crate::{Error, Program, model::EncodedOperator};

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

/// What an owner's masks and public numbers say of a coalition's model on some samples.
pub(crate) struct Rounding<'a> {
    pub keys: &'a OwnerKeys,
    pub place: Place,
    pub scales: &'a Scales,
}

/// What a coalition's model computes.
pub(crate) struct Computed {
    /// Inputs of every operator behind a hop, row by row.
    pub hidden: Vec<Vec<i64>>,
    /// Scores, row by row.
    pub scores: Vec<i64>,
}

/// What a coalition's model computes of samples, which have a row for each number and a column for each sample.
pub(crate) fn computed(
    program: &Program,
    shape: &Shape,
    rounding: &Rounding<'_>,
    operators: &[EncodedOperator<Ring64>],
    samples: &Matrix<Ring64>,
) -> Result<Computed, Error> {
    let Rounding { keys, place, scales } = *rounding;
    let mut inputs = samples.clone();
    let mut computed = Computed { hidden: Vec::new(), scores: Vec::new() };
    for (index, (operator, encoded)) in program.operators.iter().zip(operators).enumerate() {
        let columns = operator.arrange(&inputs)?;
        let factor = scales.factors[index];
        let product = encoded.weight.multiply(&columns)?;
        let mut outputs = Vec::with_capacity(operator.output_size() * inputs.columns());
        for (j, bias) in encoded.bias.iter().enumerate() {
            outputs.extend(product.row(j).iter().map(|sum| sum.wrapping_add(bias.wrapping_mul(factor))));
        }
        let samples = inputs.columns();
        let sums = |sums: &Option<Sums>, words: Vec<u64>| match sums {
            Some(sums) => sums.words(&words, samples),
            None => words,
        };
        let Some(hop) = shape.hops.all.get(index) else {
            computed.scores = sums(&shape.hops.scores, outputs).into_iter().map(u64::cast_signed).collect();
            break;
        };
        let outputs = sums(&hop.before, outputs);
        let stage = Purpose::Opening(shape.index(Stage::Outputs(index)));
        let [masks, others] = [0, 1].map(|server| keys[server].words(place, stage, outputs.len()));
        let rounded = outputs.iter().zip(masks.expose()).zip(others.expose());
        let knots = scales.knots[index].as_ref();
        let rounded = rounded
            .map(|((output, p), a)| cut(output.cast_signed(), scales.dropped[index], p.wrapping_add(*a)));
        let mut rounded: Vec<i64> = rounded.collect();
        if let Some(largest) = &hop.largest {
            rounded = largest.plain(&rounded, samples);
        }
        let results = rounded.into_iter().map(|number| plain(&hop.gate, knots, number).cast_unsigned());
        let words = sums(&hop.after, results.collect());
        let hidden = words.iter().copied().map(u64::cast_signed).collect();
        inputs = Matrix::new(Ring64, hop.handed(), samples, words)?;
        computed.hidden.push(hidden);
    }
    Ok(computed)
}

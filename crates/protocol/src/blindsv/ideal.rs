//! The same answers without cryptography: plain integers. Bits are dropped as owners' masks round them.

use secsv_algebra::{Matrix, Ring64};

use super::{
    curve::Knots,
    dealer::OwnerKeys,
    gates::{cut, plain},
    hops::{Hop, Scales},
    keys::{Place, Purpose},
    range_check::{gated, is_out_of_range},
    shape::{Shape, Stage},
    sums::Sums,
    wiring::{Taken, Term, spread},
};
use crate::{Error, Program, model::EncodedOperator, program::Operator};

/// Whether each sample is predicted right. `scores` are signed, row by row.
pub(crate) fn right(shape: &Shape, scores: &[i64], labels: &[usize]) -> Vec<bool> {
    let samples = shape.samples;
    let score = |class: usize, sample: usize| match class < shape.rows {
        true => scores[class * samples + sample],
        false => 0,
    };
    let is_right = |(sample, &label): (usize, &usize)| {
        // Of equal scores the first counts.
        let margin = |class: usize| {
            score(label, sample).wrapping_sub(score(class, sample)).wrapping_sub((class < label).into())
        };
        (0..shape.classes).all(|class| centred(margin(class) as u64, shape.widths.word) >= 0)
    };
    labels.iter().enumerate().map(is_right).collect()
}

/// The number of smallest magnitude that a word of so many bits stands for.
pub(super) fn centred(word: u64, bits: u32) -> i64 {
    let unused = u64::BITS - bits;
    (word << unused).cast_signed() >> unused
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
    /// How many numbers of checked hops are out of range.
    pub overflows: u64,
}

/// What a hop's gate gives of its outputs, cut to few bits, whose masks these are.
fn results(
    hop: &Hop,
    knots: Option<&Knots>,
    (rounded, masks): (Vec<i64>, &[u64]),
    (dropped, samples): (u32, usize),
) -> Vec<u64> {
    match &hop.largest {
        Some(largest) => {
            let largest = largest.plain(&rounded, samples).into_iter();
            largest.map(|number| plain(&hop.gate, knots, number).cast_unsigned()).collect()
        }
        None => rounded.into_iter().zip(masks).map(|(t, v)| gated(hop, knots, t, v >> dropped)).collect(),
    }
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
    let count = samples.columns();
    let sums = |sums: &Option<Sums>, words: Vec<u64>| match sums {
        Some(sums) => sums.words(&words, count),
        None => words,
    };
    let mut values = vec![samples.elements().to_vec()];
    let mut computed = Computed { hidden: Vec::new(), scores: Vec::new(), overflows: 0 };
    for index in 0..shape.hops.wiring.nodes.len() {
        let sum = sum((program, shape), index, (scales, operators), &values)?;
        let Some(hop) = shape.hops.all.get(index) else {
            computed.scores = sums(&shape.hops.scores, sum).into_iter().map(u64::cast_signed).collect();
            break;
        };
        let factor = scales.sum(index);
        let outputs = sums(&hop.before, sum).into_iter().map(|word| word.wrapping_mul(factor));
        let outputs: Vec<u64> = outputs.collect();
        let stage = Purpose::Opening(shape.index(Stage::Outputs(index)));
        let [masks, others] = [0, 1].map(|server| keys[server].words(place, stage, outputs.len()));
        let (dropped, knots) = (scales.dropped[index], scales.knots[index].as_ref());
        let masks: Vec<u64> =
            masks.expose().iter().zip(others.expose()).map(|(p, a)| p.wrapping_add(*a)).collect();
        let cut_off = |(output, v): (&u64, &u64)| {
            centred(cut(output.cast_signed(), dropped, *v).cast_unsigned(), hop.kept)
        };
        let rounded: Vec<i64> = outputs.iter().zip(&masks).map(cut_off).collect();
        if shape.hops.is_checked(index) {
            computed.overflows += rounded.iter().filter(|t| is_out_of_range(hop.kept, **t)).count() as u64;
        }
        let results = results(hop, knots, (rounded, &masks), (dropped, count));
        let value: Vec<u64> = sums(&hop.after, results)
            .into_iter()
            .map(|word| centred(word, hop.word).cast_unsigned())
            .collect();
        computed.hidden.push(value.iter().copied().map(u64::cast_signed).collect());
        values.push(value);
    }
    Ok(computed)
}

/// The sum of a node's terms, from all values before, for so many samples.
fn sum(
    (program, shape): (&Program, &Shape),
    index: usize,
    (scales, operators): (&Scales, &[EncodedOperator<Ring64>]),
    values: &[Vec<u64>],
) -> Result<Vec<u64>, Error> {
    let (node, count) = (&shape.hops.wiring.nodes[index], shape.samples);
    let columns = match shape.hops.all.get(index) {
        Some(hop) if hop.is_of_model => count.min(1),
        _ => count,
    };
    let mut sum = Vec::new();
    for (term, taken) in node.terms.iter().enumerate() {
        let factor = |place| scales.value((index, term, place));
        let scaled = |(place, of): (usize, Taken)| {
            let factor = if taken.is_scaled() { 1 } else { factor(place) };
            let value = &values[of.0];
            value[shape.words_of(&of, value.len())]
                .iter()
                .map(|word| word.wrapping_mul(factor))
                .collect::<Vec<u64>>()
        };
        let mut words: Vec<u64> = taken.taken(node.size).into_iter().enumerate().flat_map(scaled).collect();
        match taken {
            Term::Product { operator, .. } => {
                let (of_program, bias) = (&program.operators[*operator], scales.factors[*operator]);
                let inputs = Matrix::new(Ring64, of_program.input_size(), count, words)?;
                words = outputs(of_program, &operators[*operator], bias, &inputs)?;
                if let Some(order) = of_program.order().filter(|_| index > 0 && !scales.sums.is_empty()) {
                    words = Sums::order(order).words(&words, count);
                }
            }
            Term::Constants(operator) => {
                let bias = operators[*operator].bias.iter();
                let bias = bias.map(|bias| bias.wrapping_mul(scales.factors[*operator]));
                words = spread(&bias.collect::<Vec<u64>>(), (node.size, 1), columns);
            }
            Term::Spread { positions, .. } => {
                words = spread(&words, (node.size / positions, *positions), columns);
            }
            Term::Scaled { positions, .. } => {
                let of_factors = words.len() - node.size * columns;
                let factors = spread(&words[..of_factors], (node.size / positions, *positions), columns);
                let products = factors.iter().zip(&words[of_factors..]);
                words = products.map(|(g, x)| g.wrapping_mul(*x).wrapping_mul(factor(0))).collect();
            }
            Term::Values(_) | Term::Part { .. } => {}
        }
        sum.resize(words.len(), 0u64);
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    Ok(sum)
}

/// An operator's outputs, row by row.
fn outputs(
    operator: &Operator,
    encoded: &EncodedOperator<Ring64>,
    factor: u64,
    inputs: &Matrix<Ring64>,
) -> Result<Vec<u64>, Error> {
    let product = encoded.weight.multiply(&operator.arrange(inputs)?)?;
    let rows = encoded.bias.iter().enumerate().flat_map(|(j, bias)| {
        let bias = bias.wrapping_mul(factor);
        product.row(j).iter().map(move |sum| sum.wrapping_add(bias)).collect::<Vec<_>>()
    });
    Ok(rows.collect())
}
